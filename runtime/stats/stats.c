/*
 * The destination of the --stats report, and the format of its lines: each registered owner prints
 * its own.  Every line is "key value", keys in the order of the owners, so `awk '$1 ==
 * "faults.fetch" { print $2 }'` is enough to parse it.  Counts of zero are printed too, except for
 * exits and system calls: an absent one is zero.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/message.h"
#include "base/options.h"
#include "base/privfd.h"
#include "common/put.h"
#include "stats/stats.h"

#define READER_MS 5000          /* the longest wait for a reader that takes nothing */

/* Where the report goes. */
static struct stats_place place = { .dir_fd = -1, .direct_fd = -1 };

void stats_line(FILE *f, const char *group, const char *key, uint64_t v)
{
        fprintf(f, "%s%s%s %llu\n", group, *group ? "." : "", key, (unsigned long long)v);
}

void stats_numbered(FILE *f, const char *group, const char *name, unsigned i, uint64_t v)
{
        char number[16];
        snprintf(number, sizeof(number), "%u", i);
        stats_line(f, group, name ? name : number, v);
}

#define OWNERS_MAX 8
static stats_fn *owner[OWNERS_MAX];
static unsigned owners;

void stats_register(stats_fn *fn) { owner[owners++] = fn; }

/* Prints the whole report. */
static void print(FILE *f)
{
        stats_line(f, "", "vmrun_statistics", 1);       /* version of this format */
        stats_line(f, "", "pid", (uint64_t)getpid());
        stats_line(f, "", "execs", place.execs);
        for (unsigned i = 0; i < owners; i++)
                owner[i](f);
}

/* --- where it goes --- */

static _Noreturn void cannot_write(int err)
{
        const char *cure = err == EISDIR ? "name a file in it" :
                           err == ENOENT || err == ENOTDIR ? "make its folder first" :
                           err == ENAMETOOLONG ? "give a shorter name" :
                           "name a file where this user may write";
        die_(EXIT_VMRUN_FAILED, "--stats=%s: cannot be written: %s: %s", opt.stats_file,
             strerror(err), cure);
}

void stats_init(void)
{
        char *real, *slash;
        struct stat st;

        if (!opt.stats || !opt.stats_file)
                return;
        /* replace what a link points to, not the link */
        real = realpath(opt.stats_file, NULL);
        if (real && stat(real, &st) == 0 && !S_ISREG(st.st_mode)) {
                place.direct_fd = PRIVFD_NEW(open(real, O_WRONLY | O_CLOEXEC | O_NOCTTY));
                if (place.direct_fd < 0)
                        cannot_write(S_ISDIR(st.st_mode) ? EISDIR : -place.direct_fd);
                free(real);
                return;
        }
        if (!real && !(real = strdup(opt.stats_file)))
                cannot_write(ENOMEM);
        slash = strrchr(real, '/');
        const char *name = slash ? slash + 1 : real;
        if (!*name || strlen(name) > NAME_MAX - STATS_SUFFIX)
                cannot_write(*name ? ENAMETOOLONG : EISDIR);
        strcpy(place.name, name);
        place.pid = getpid();
        if (slash)
                *(slash == real ? slash + 1 : slash) = 0;
        place.dir_fd = open(slash ? real : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (place.dir_fd < 0 || faccessat(place.dir_fd, ".", W_OK | X_OK, AT_EACCESS) != 0)
                cannot_write(errno);
        place.dir_fd = privfd_move(place.dir_fd);
        if (place.dir_fd < 0)
                cannot_write(-place.dir_fd);
        place.mode = umask(0);
        umask(place.mode);
        place.mode = 0666 & ~place.mode;
        free(real);
}

void stats_keep(struct stats_place *p)
{
        *p = place;
        p->execs++;
}

void stats_adopt(const struct stats_place *p)
{
        place = *p;
}

static bool print_to(int fd)
{
        char *text = NULL;
        size_t size = 0;
        FILE *f = open_memstream(&text, &size);
        if (!f)
                return false;
        print(f);
        bool good = !ferror(f);
        good &= fclose(f) == 0;
        good = good && put_all(fd, text, size, READER_MS);
        free(text);
        return good;
}

void stats_report(void)
{
        char temporary[NAME_MAX + 1], name[NAME_MAX + 1];

        if (!opt.stats)
                return;
        if (!opt.stats_file || place.direct_fd >= 0) {
                if (!print_to(opt.stats_file ? place.direct_fd : message_fd()))
                        warnx_("the statistics could not be written: %s", strerror(errno));
                return;
        }
        /* A process that waits for the file sees all of it or nothing. */
        snprintf(temporary, sizeof(temporary), ".%.*s.%d", NAME_MAX - 16, place.name,
                 getpid() % 10000000);
        if (getpid() == place.pid && !place.execs)
                snprintf(name, sizeof(name), "%s", place.name);
        else
                snprintf(name, sizeof(name), "%.*s.%d.%u", NAME_MAX - STATS_SUFFIX, place.name,
                         getpid(), place.execs);
        int fd = openat(place.dir_fd, temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        bool good = fd >= 0 && print_to(fd) && fchmod(fd, place.mode) == 0 &&
                    renameat(place.dir_fd, temporary, place.dir_fd, name) == 0;
        if (!good) {
                warnx_("--stats=%s: could not be written: %s", opt.stats_file, strerror(errno));
                unlinkat(place.dir_fd, temporary, 0);
        }
        if (fd >= 0)
                close(fd);
}
