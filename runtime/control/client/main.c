/*
 * vmctl: looks at a program that vmrun runs, and changes its settings.  See vmctl(1).
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "control/client/client.h"
#include "control/client/talk.h"
#include "control/protocol.h"

#ifndef PACKAGE_VERSION
#define PACKAGE_VERSION "unknown"
#endif

static const char help_text[] =
        "Usage: vmctl list [--json]\n"
        "       vmctl PID stats [--json|--flat|--prom|--reset]\n"
        "       vmctl PID watch [SECONDS] [--json]\n"
        "       vmctl PID get [NAME] [--json]\n"
        "       vmctl PID set NAME=VALUE...\n"
        "       vmctl PID nodes [--json]\n"
        "       vmctl PID nodes add URL\n"
        "       vmctl PID scrub [--rate BYTES] [--json]\n"
        "       vmctl PID scrub --status|--stop [--json]\n"
        "Look at a program that vmrun runs, and change its settings.\n"
        "\n"
        "  list       the processes of this user that vmrun runs\n"
        "  stats      the statistics of one, as vmrun --stats prints them; --reset: count from 0\n"
        "  watch      what happens in it, each second or every SECONDS\n"
        "  get, set   its settings; prefetch, prefetch-window, prefetch-history, far, verbose and\n"
        "             stats-interval can be changed\n"
        "  nodes      its memory nodes; add: one more\n"
        "  scrub      read its far pages back, and compare them with their sums; wrong copies are\n"
        "             made right where another copy is\n"
        "\n"
        "      --json     print JSON\n"
        "      --flat     lines of a key and a value\n"
        "      --prom     Prometheus's text format\n"
        "      --reset    count from 0 from here on\n"
        "      --rate     read so many bytes a second at most; 0: no limit\n"
        "      --status   how far it has come; --stop: end it\n"
        "      --version  print the version\n"
        "      --help     print this text\n"
        "\n"
        "Exit status: 0; 1 if it failed, or pages are wrong; 2 if the command line is wrong.  See\n"
        "vmctl(1).\n";

static struct { bool json, flat, prom, reset, status, stop; const char *rate; } opt;

static _Noreturn __attribute__((format(printf, 1, 2))) void usage(const char *fmt, ...)
{
        va_list ap;

        fputs("vmctl: ", stderr);
        va_start(ap, fmt);
        vfprintf(stderr, fmt, ap);
        va_end(ap);
        fputs(": see vmctl --help\n", stderr);
        exit(EXIT_USAGE);
}

/* Takes the options out of the words, and moves the other words together. */
static int take_options(int argc, char **argv)
{
        const struct { const char *name; bool *flag; } flags[] = {
                { "--json", &opt.json }, { "--flat", &opt.flat }, { "--prom", &opt.prom },
                { "--reset", &opt.reset }, { "--status", &opt.status }, { "--stop", &opt.stop },
        };
        int n = 0;

        for (int i = 1; i < argc; i++) {
                size_t f = 0;
                if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "--version") == 0) {
                        fputs(argv[i][2] == 'h' ? help_text : "vmctl " PACKAGE_VERSION "\n",
                              stdout);
                        exit(fflush(stdout) == 0 ? 0 : 1);
                }
                while (f < sizeof(flags) / sizeof(flags[0]) &&
                       strcmp(argv[i], flags[f].name) != 0)
                        f++;
                if (f < sizeof(flags) / sizeof(flags[0]))
                        *flags[f].flag = true;
                else if (strncmp(argv[i], "--rate=", 7) == 0)
                        opt.rate = argv[i] + 7;
                else if (strcmp(argv[i], "--rate") == 0 && argv[i + 1])
                        opt.rate = argv[++i];
                else if (argv[i][0] == '-')
                        usage("%s: no such option", argv[i]);
                else
                        argv[n++] = argv[i];
        }
        argv[n] = NULL;
        return n;
}

/* ---- requests ---- */

static int fail(pid_t pid, int err)
{
        if (err == -ESRCH)
                fprintf(stderr, "vmctl: no vmrun of this user runs process %d, or it was started "
                        "with --no-control: vmctl list shows those that can be asked\n", pid);
        else if (err == -EACCES)
                fprintf(stderr, "vmctl: process %d is another user's: ask as its user, or as "
                        "root\n", pid);
        else if (err == -ETIMEDOUT)
                fprintf(stderr, "vmctl: process %d does not answer: it may be stopped\n", pid);
        else if (err == -ECONNRESET || err == -EPIPE)
                fprintf(stderr, "vmctl: process %d has ended, or executes another program\n", pid);
        else if (err == -EPROTO)
                fprintf(stderr, "vmctl: process %d answers in another way than this vmctl expects: "
                        "use the vmctl of its vmrun\n", pid);
        else
                fprintf(stderr, "vmctl: process %d cannot be asked: %s\n", pid, strerror(-err));
        return 1;
}

static int show(struct answer *a)
{
        bool ok = a->ok;

        if (ok)
                fwrite(a->text, 1, a->size, stdout);
        else
                fprintf(stderr, "vmctl: %s\n", a->text);
        free(a->text);
        return ok ? 0 : 1;
}

static int ask(pid_t pid, int fd, const char *request, int limit_ms)
{
        struct answer a;
        int err = talk(fd, request, limit_ms, &a);

        return err ? fail(pid, err) : show(&a);
}

/* A question, which may be asked twice: an execve ends connections, and the next program listens on
 * this socket again. */
static int ask_one(pid_t pid, const char *request)
{
        struct answer a;
        int err = -ECONNRESET;

        for (int tries = 0; tries < 2 && (err == -ECONNRESET || err == -EPIPE); tries++) {
                int fd = talk_open(pid);
                if (fd < 0)
                        return fail(pid, fd);
                err = talk(fd, request, TALK_MS, &a);
                close(fd);
        }
        return err ? fail(pid, err) : show(&a);
}

static int stats(pid_t pid)
{
        return ask_one(pid, opt.reset  ? "reset"
                            : opt.json ? "stats json"
                            : opt.flat ? "stats flat"
                            : opt.prom ? "stats prom"
                                       : "stats text");
}

static int get(pid_t pid, const char *name)
{
        char request[REQUEST_MOST];

        snprintf(request, sizeof(request), "get %s %s", opt.json ? "json" : "text",
                 name ? name : "");
        return ask_one(pid, request);
}

static int set(pid_t pid, char **settings)
{
        char request[REQUEST_MOST];
        int status = 0, fd = talk_open(pid);

        if (fd < 0)
                return fail(pid, fd);
        /* reports of --stats-interval may have to be waited for */
        for (; *settings && !status; settings++) {
                snprintf(request, sizeof(request), "set %s", *settings);
                status = ask(pid, fd, request, 2 * TALK_MS);
        }
        close(fd);
        return status;
}

/* Takes as long as the node takes to answer; vmrun has a time limit for that. */
static int add(pid_t pid, const char *url)
{
        char request[REQUEST_MOST], dir[PATH_MAX];
        int status = 0, fd;

        if (!getcwd(dir, sizeof(dir)))
                strcpy(dir, "/");
        fd = talk_open(pid);            /* changes the directory */
        if (fd < 0)
                return fail(pid, fd);
        if (snprintf(request, sizeof(request), "from %s", dir) < REQUEST_MOST)
                status = ask(pid, fd, request, TALK_MS);
        snprintf(request, sizeof(request), "add %s", url);
        if (!status)
                status = ask(pid, fd, request, -1);
        close(fd);
        return status;
}

static int run_scrub(pid_t pid)
{
        int status;

        if (opt.stop)
                return ask_one(pid, opt.json ? "scrub json stop" : "scrub text stop");
        if (opt.status)
                return ask_one(pid, opt.json ? "scrub json" : "scrub text");
        int err = scrub(pid, opt.rate, opt.json, &status);
        return err ? fail(pid, err) : status;
}

/* ---- the command line ---- */

static pid_t process(const char *text)
{
        size_t n = strspn(text, "0123456789");

        if (!n || n > 9 || text[n] || !atoi(text))
                usage("%s: give list, or the number of a process", text);
        return atoi(text);
}

static unsigned interval(const char *text)
{
        char *end;
        double seconds = strtod(text, &end);

        if (!*text || *end || !(seconds >= 0.1 && seconds <= 3600))
                usage("%s: give seconds from 0.1 to 3600", text);
        return (unsigned)(seconds * 1000);
}

/* Most and least words behind the command; what its options are. */
static void check(char **words, int n, int least, int most, bool options)
{
        if (n < least)
                usage("%s: an argument is missing", words[0]);
        if (n > most)
                usage("%s: one argument too many", words[most + 1]);
        if (!options)
                usage("%s: it does not have this option", words[0]);
}

static int run(char **words, int n)
{
        bool of_scrub = opt.rate || opt.status || opt.stop;
        bool only_json = !opt.flat && !opt.prom && !opt.reset && !of_scrub;

        if (n > 0 && strcmp(words[0], "list") == 0) {
                check(words, n - 1, 0, 0, only_json);
                return list_print(opt.json);
        }
        if (n < 1)
                usage("give list, or the number of a process");
        pid_t pid = process(words[0]);
        const char *command = words[1] ? words[1] : "";
        words++, n -= 2;
        if (strcmp(command, "stats") == 0) {
                check(words, n, 0, 0,
                      opt.json + opt.flat + opt.prom + opt.reset <= 1 && !of_scrub);
                return stats(pid);
        }
        if (strcmp(command, "watch") == 0) {
                check(words, n, 0, 1, only_json);
                int err = watch(pid, words[1] ? interval(words[1]) : 1000, opt.json);
                return err ? fail(pid, err) : 0;
        }
        if (strcmp(command, "get") == 0) {
                check(words, n, 0, 1, only_json);
                return get(pid, words[1]);
        }
        if (strcmp(command, "set") == 0) {
                check(words, n, 1, INT_MAX - 1, only_json && !opt.json);
                return set(pid, words + 1);
        }
        if (strcmp(command, "nodes") == 0 && n > 0) {
                if (strcmp(words[1], "add") != 0)
                        usage("nodes %s: give nodes, or nodes add URL", words[1]);
                check(words + 1, n - 1, 1, 1, only_json && !opt.json);
                return add(pid, words[2]);
        }
        if (strcmp(command, "nodes") == 0) {
                check(words, n, 0, 0, only_json);
                return ask_one(pid, opt.json ? "nodes json" : "nodes text");
        }
        if (strcmp(command, "scrub") == 0) {
                check(words, n, 0, 0, !opt.flat && !opt.prom && !opt.reset &&
                                      opt.status + opt.stop + !!opt.rate <= 1);
                return run_scrub(pid);
        }
        usage("%s: give stats, watch, get, set, nodes or scrub", *command ? command : words[-1]);
}

int main(int argc, char **argv)
{
        int n = take_options(argc, argv), status = run(argv, n);

        if (fflush(stdout) != 0 && errno != EPIPE) {
                fprintf(stderr, "vmctl: cannot write to standard output: %s\n", strerror(errno));
                status = 1;
        }
        return status;
}
