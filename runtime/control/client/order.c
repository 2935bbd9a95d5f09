/*
 * The command line of vmctl: which command, and which of the options it has.
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include <getopt.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/bad_option.h"
#include "control/client/order.h"

#ifndef PACKAGE_VERSION
#define PACKAGE_VERSION "unknown"
#endif

/* Options that only some commands have, as bits. */
enum { JSON = 2, FLAT = 4, PROM = 8, RESET = 16, RATE = 32, STATUS = 64, STOP = 128 };

enum { OPT_VERSION = 1000, OPT_HELP };

static const struct option long_options[] = {
        { "json",    no_argument,       NULL, JSON },
        { "flat",    no_argument,       NULL, FLAT },
        { "prom",    no_argument,       NULL, PROM },
        { "reset",   no_argument,       NULL, RESET },
        { "rate",    required_argument, NULL, RATE },
        { "status",  no_argument,       NULL, STATUS },
        { "stop",    no_argument,       NULL, STOP },
        { "version", no_argument,       NULL, OPT_VERSION },
        { "help",    no_argument,       NULL, OPT_HELP },
        { NULL, 0, NULL, 0 }
};

static const struct row {
        enum command command;
        const char *name, *synopsis;
        int least, most;                /* words behind it */
        unsigned options, one_of;       /* that it has; of which one at most can be given */
} rows[] = {
        { CMD_LIST, "list", "vmctl list [--json]", 0, 0, JSON, 0 },
        { CMD_TOP, "top", "vmctl top [SECONDS]", 0, 1, 0, 0 },
        { CMD_STATS, "stats", "vmctl PID stats [--json|--flat|--prom|--reset]", 0, 0,
          JSON | FLAT | PROM | RESET, JSON | FLAT | PROM | RESET },
        { CMD_WATCH, "watch", "vmctl PID watch [SECONDS] [--json]", 0, 1, JSON, 0 },
        { CMD_GET, "get", "vmctl PID get [NAME] [--json]", 0, 1, JSON, 0 },
        { CMD_SET, "set", "vmctl PID set NAME=VALUE...", 1, INT_MAX, 0, 0 },
        { CMD_NODES, "nodes", "vmctl PID nodes [--json]", 0, 0, JSON, 0 },
        { CMD_NODES_ADD, "nodes add", "vmctl PID nodes add URL", 1, 1, 0, 0 },
        { CMD_SCRUB, "scrub", "vmctl PID scrub [--rate BYTES|--status|--stop] [--json]", 0, 0,
          JSON | RATE | STATUS | STOP, RATE | STATUS | STOP },
};
#define ROWS (sizeof(rows) / sizeof(rows[0]))

static const char help_text[] =
        "Look at a program that vmrun runs, and change its settings.\n"
        "\n"
        "  list       the processes of this user that vmrun runs\n"
        "  top        what happens in them, a line each, each second or every SECONDS\n"
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
        "      --rate BYTES\n"
        "                 read so many bytes a second at most; 0: no limit\n"
        "      --status   how far it has come\n"
        "      --stop     end it\n"
        "      --version  print the version\n"
        "      --help     print this text\n"
        "\n"
        "Exit status: 0; 1 if it failed, or pages are wrong; 2 if the command line is wrong.  See\n"
        "vmctl(1).\n";

static _Noreturn void print_and_exit(bool help)
{
        for (size_t i = 0; help && i < ROWS; i++)
                printf("%s %s\n", i ? "      " : "Usage:", rows[i].synopsis);
        fputs(help ? help_text : "vmctl " PACKAGE_VERSION "\n", stdout);
        exit(fflush(stdout) == 0 ? 0 : 1);
}

static _Noreturn __attribute__((format(printf, 1, 2))) void refuse(const char *fmt, ...)
{
        va_list ap;

        fputs("vmctl: ", stderr);
        va_start(ap, fmt);
        vfprintf(stderr, fmt, ap);
        va_end(ap);
        fputc('\n', stderr);
        exit(EXIT_USAGE);
}

/* ---- options ---- */

/* Takes the options out of the words, and moves the other words together.  Returns how many there
 * are. */
static int take_options(int argc, char **argv, unsigned *given, const char **rate)
{
        char why[512];
        int c, n = 0;

        opterr = 0;
        /* "-": words come in between, as option 1. */
        while ((c = getopt_long(argc, argv, "-:", long_options, NULL)) != -1) {
                switch (c) {
                case 1:
                        argv[n++] = optarg;
                        break;
                case OPT_VERSION:
                case OPT_HELP:
                        print_and_exit(c == OPT_HELP);
                case '?':
                case ':':
                        bad_option(argv, c, long_options, "vmctl --help", why, sizeof(why));
                        refuse("%s", why);
                default:
                        *given |= (unsigned)c;
                        if (c == RATE)
                                *rate = optarg;
                }
        }
        while (optind < argc)           /* behind "--" */
                argv[n++] = argv[optind++];
        argv[n] = NULL;
        return n;
}

/* The name of the first of some options, which are bits. */
static const char *option_name(unsigned options)
{
        const struct option *o = long_options;

        while (!((unsigned)o->val & options))
                o++;
        return o->name;
}

static void check_options(const struct row *r, unsigned given)
{
        unsigned of_one = given & r->one_of;

        if (given & ~r->options)
                refuse("%s: it does not have --%s: give %s", r->name,
                       option_name(given & ~r->options), r->synopsis);
        if (of_one & (of_one - 1))
                refuse("%s: --%s and --%s exclude each other: give one of them", r->name,
                       option_name(of_one), option_name(of_one & (of_one - 1)));
}

/* ---- words ---- */

static pid_t process(const char *text)
{
        size_t n = strspn(text, "0123456789");

        if (!n || n > 9 || text[n] || !atoi(text))
                refuse("%s: give list, top, or the number of a process, which vmctl list shows",
                       text);
        return atoi(text);
}

static unsigned interval(const char *text)
{
        char *end;
        double seconds = strtod(text, &end);

        if (!*text || *end || !(seconds >= 0.1 && seconds <= 3600))
                refuse("%s: give seconds from 0.1 to 3600, as in 0.5", text);
        return (unsigned)(seconds * 1000);
}

static const struct row *row_of(enum command c)
{
        const struct row *r = rows;

        while (r->command != c)
                r++;
        return r;
}

static bool is_of_all(enum command c) { return c == CMD_LIST || c == CMD_TOP; }

/* The command behind PID, whose name may be two words; *words: those behind it. */
static const struct row *find(const char *pid, char ***words)
{
        const char *name = **words;

        if (!name)
                refuse("%s: the command is missing: give stats, watch, get, set, nodes or scrub",
                       pid);
        ++*words;
        if (strcmp(name, "nodes") == 0 && **words) {
                if (strcmp(**words, "add") != 0)
                        refuse("nodes %s: give nodes, or nodes add URL", **words);
                ++*words;
                return row_of(CMD_NODES_ADD);
        }
        for (size_t i = 0; i < ROWS; i++)
                if (!is_of_all(rows[i].command) && strcmp(rows[i].name, name) == 0)
                        return &rows[i];
        refuse("%s: give stats, watch, get, set, nodes or scrub", name);
}

static void check_words(const struct row *r, char **words)
{
        int n = 0;

        while (words[n] && n <= r->most)
                n++;
        if (n < r->least)
                refuse("%s: an argument is missing: give %s", r->name, r->synopsis);
        if (n > r->most)
                refuse("%s: one argument too many: give %s", words[r->most], r->synopsis);
}

void order_parse(int argc, char **argv, struct order *o)
{
        const struct row *r;
        unsigned given = 0;

        *o = (struct order){ .words = argv, .interval_ms = 1000 };
        if (take_options(argc, argv, &given, &o->rate) < 1)
                refuse("give list, top, or the number of a process and a command: see vmctl "
                       "--help");
        if (strcmp(*o->words, "list") == 0 || strcmp(*o->words, "top") == 0) {
                r = row_of(**o->words == 'l' ? CMD_LIST : CMD_TOP);
                o->words++;
        } else {
                const char *pid = *o->words++;
                o->pid = process(pid);
                r = find(pid, &o->words);
        }
        check_words(r, o->words);
        check_options(r, given);
        o->command = r->command;
        if ((o->command == CMD_WATCH || o->command == CMD_TOP) && *o->words)
                o->interval_ms = interval(*o->words);
        o->json = given & JSON;
        o->flat = given & FLAT;
        o->prom = given & PROM;
        o->reset = given & RESET;
        o->status = given & STATUS;
        o->stop = given & STOP;
}
