/*
 * t_self: what the kernel tells a program about itself: the auxiliary vector, the answers of calls,
 * and each file of /proc/self, after calls that change them. A seed chooses the calls and their
 * arguments; a process of its own makes those of one round. The native run is the oracle.
 *
 *   t_self [SEED [ROUNDS]]
 *
 * Values that differ by nature, or from run to run, are in the tables `vector_known` and `known`.
 * Not drawn are calls that docs/syscalls.md refuses (options of prctl, READ_IMPLIES_EXEC), options
 * of prctl since Linux 6.3, and policies that keep the program from running on a busy machine.
 */
#include <dirent.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include "hints.h"
#include "t_draw.h"
#include "t_self.h"

#define CHANGES 8                       /* in a round */

static uint64_t rng;
uint64_t draw(uint64_t below) { return draw_from(&rng, below); }

/* --- the auxiliary vector --- */

static const struct { uint64_t key; bool absent; } vector_known[] = {
        { AT_SYSINFO_EHDR, true },              /* there is no vDSO */
        { 27 /* AT_RSEQ_FEATURE_SIZE */, true }, /* rseq is ENOSYS */
        { 28 /* AT_RSEQ_ALIGN */, true },
        { HINTS_AUX, true },                    /* vmrun's own entry */
        /* addresses */
        { AT_PHDR, false }, { AT_BASE, false }, { AT_ENTRY, false }, { AT_RANDOM, false },
        { AT_EXECFN, false }, { AT_PLATFORM, false },
        { AT_HWCAP2, false },                   /* the VM has no MONITOR outside the kernel */
};

static void say_vector(char **environment)
{
        const Elf64_auxv_t *a;

        while (*environment++)
                ;
        for (a = (const void *)environment; a->a_type != AT_NULL; a++) {
                size_t i = 0;
                while (i < COUNT(vector_known) && vector_known[i].key != a->a_type)
                        i++;
                if (i == COUNT(vector_known))
                        printf("vector: %lu is %#lx\n", a->a_type, a->a_un.a_val);
                else if (!vector_known[i].absent)
                        printf("vector: %lu\n", a->a_type);
        }
}

/* --- files --- */

/* How much of a file is compared: its first line, the lines that begin with one of a list, those
 * that do not, or whether it can be opened. */
enum how { FIRST_LINE, THESE_LINES, NOT_THESE_LINES, OPENED };

static const struct known {
        const char *name;
        enum how how;
        const char *lines;              /* each followed by a blank */
} known[] = {
        /* of this moment, or of other programs */
        { "io", OPENED, 0 }, { "schedstat", OPENED, 0 }, { "oom_score", OPENED, 0 },
        { "stack", OPENED, 0 }, { "arch_status", OPENED, 0 }, { "mounts", FIRST_LINE, 0 },
        { "mountinfo", FIRST_LINE, 0 }, { "mountstats", FIRST_LINE, 0 },
        { "autogroup", OPENED, 0 }, { "stat", OPENED, 0 }, { "children", OPENED, 0 },
        { "sched", THESE_LINES, "t_self policy prio " },
        { "status", NOT_THESE_LINES,
          "Tgid: Pid: PPid: NStgid: NSpid: NSpgid: NSsid: "
          "VmPeak: VmSize: VmHWM: VmRSS: RssAnon: RssFile: RssShmem: VmData: VmStk: VmExe: VmLib: "
          "VmPTE: VmSwap: SigQ: voluntary_ctxt_switches: nonvoluntary_ctxt_switches: " },
        /* addresses */
        { "auxv", OPENED, 0 }, { "maps", OPENED, 0 }, { "smaps", OPENED, 0 },
        { "smaps_rollup", OPENED, 0 }, { "mem", OPENED, 0 }, { "statm", OPENED, 0 },
        { "syscall", OPENED, 0 },
        /* vmrun(1): ENOENT */
        { "pagemap", NOT_THESE_LINES, 0 }, { "numa_maps", NOT_THESE_LINES, 0 },
};

static void say_text(const char *p, size_t n)
{
        for (size_t i = 0; i < n; i++)
                putchar(p[i] >= ' ' ? p[i] : '|');
        printf("\n");
}

static bool listed(const char *list, const char *line, size_t n)
{
        for (const char *p = list; *p; p = strchr(p, ' ') + 1) {
                size_t len = strcspn(p, " ");
                if (n >= len && !strncmp(line, p, len))
                        return true;
        }
        return false;
}

static char text[1 << 16];

static void say_lines(const char *name, enum how how, const char *list)
{
        for (const char *p = text; *p;) {
                size_t n = strcspn(p, "\n");
                const char *comma = how == THESE_LINES ? memchr(p, ',', n) : NULL;
                size_t from = comma ? (size_t)(comma - p) : 0;  /* behind the process's number */
                if (how == FIRST_LINE || listed(list, p, n) == (how == THESE_LINES)) {
                        printf("%s: ", name);
                        say_text(p + from, n - from);
                }
                p += n + (p[n] == '\n');
                if (how == FIRST_LINE)
                        return;
        }
}

static void say_file(int dir, const char *name)
{
        const struct known *k = NULL;
        ssize_t n = 0, got = 0;

        for (size_t i = 0; i < COUNT(known); i++)
                if (!strcmp(known[i].name, name))
                        k = &known[i];
        if (k && !k->lines && k->how == NOT_THESE_LINES)
                return;
        int fd = openat(dir, name, O_RDONLY);
        if (fd < 0) {
                printf("%s: %s\n", name, strerrorname_np(errno));
                return;
        }
        if (k && k->how == OPENED) {
                printf("%s is open\n", name);
        } else {
                while ((got = read(fd, text + n, sizeof(text) - 1 - (size_t)n)) > 0)
                        n += got;
                for (ssize_t i = 0; i < n; i++)
                        text[i] = text[i] ? text[i] : '|';
                text[n] = 0;
                if (got < 0)
                        printf("%s: %s\n", name, strerrorname_np(errno));
                else
                        say_lines(name, k ? k->how : NOT_THESE_LINES,
                                  k && k->lines ? k->lines : "");
        }
        close(fd);
}

static void say_files(const char *path)
{
        struct dirent **list;
        struct stat st;
        char link[256];
        int n = scandir(path, &list, NULL, alphasort), dir = open(path, O_RDONLY | O_DIRECTORY);

        for (int i = 0; i < n; free(list[i++])) {
                const char *name = list[i]->d_name;
                ssize_t len = readlinkat(dir, name, link, sizeof(link));
                if (len >= 0)
                        printf("%s -> %.*s\n", name, (int)len, link);
                else if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW))
                        printf("%s: %s\n", name, strerrorname_np(errno));
                else if (S_ISREG(st.st_mode))
                        say_file(dir, name);
        }
        if (n >= 0)
                free(list);
        close(dir);
}

/* Fields of stat, counted from 1. */
static void say_stat(void)
{
        static const int fields[] = { 2, 3, 18, 19, 20, 21, 25, 29, 30, 31, 32, 33, 34, 37, 38, 40,
                                      41, 43, 44, 52 };
        FILE *f = fopen("/proc/self/stat", "r");
        char *p;

        if (!f || !fgets(text, sizeof(text), f))
                printf("stat: %s\n", strerrorname_np(errno));
        else
                for (int i = 0, n = 1; (p = strtok(n == 1 ? text : NULL, " \n")); n++)
                        if (i < (int)COUNT(fields) && n == fields[i]) {
                                printf("stat, %d: ", fields[i++]);
                                say_text(p, strlen(p));
                        }
        if (f)
                fclose(f);
}

/* --- rounds --- */

static void write_file(void)
{
        static const char *const names[] = { "oom_score_adj", "coredump_filter", "timerslack_ns",
                                             "comm", "status", "limits", "personality", "maps" };
        static const char *const texts[] = { "0", "17", "-5", "1000", "1001", "0x33", "name", "" };
        const char *name = ONE_OF(names), *value = ONE_OF(texts);
        char path[64];

        snprintf(path, sizeof(path), "/proc/self/%s", name);
        int fd = open(path, O_WRONLY);
        long n = fd < 0 ? -1 : write(fd, value, strlen(value));
        printf("'%s' to %s: %s\n", value, name, n < 0 ? strerrorname_np(errno) : "written");
        close(fd);
}

static void one_round(uint64_t seed)
{
        char task[64];

        setpgid(0, 0);
        rng = seed << 32;
        for (int i = 0; i < CHANGES; i++) {
                printf("%lu: ", seed);
                if (draw(6) == 0)
                        write_file();
                else
                        make_change();
        }
        ask_questions();
        say_stat();
        snprintf(task, sizeof(task), "/proc/self/task/%d", getpid());
        say_files(draw(2) ? "/proc/self" : task);
        fflush(stdout);
        _exit(0);
}

int main(int argc, char **argv, char **environment)
{
        uint64_t seed = argc > 1 ? strtoul(argv[1], NULL, 0) : 1;
        uint64_t rounds = argc > 2 ? strtoul(argv[2], NULL, 0) : 40;
        int status;

        setvbuf(stdout, NULL, _IOLBF, 0);
        say_vector(environment);
        close_range(3, ~0U, 0);
        for (uint64_t i = seed; i < seed + rounds; i++) {
                fflush(stdout);
                pid_t child = fork();
                if (child == 0)
                        one_round(i);
                if (child < 0 || waitpid(child, &status, 0) != child || status) {
                        printf("round %lu ended with status %#x\n", i, status);
                        return 1;
                }
        }
        return 0;
}
