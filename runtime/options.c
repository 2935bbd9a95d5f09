/*
 * The command line of vmrun: what it accepts, what it says about mistakes, and the defaults that depend on the host.
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "check.h"
#include "vmrun.h"

#ifndef PACKAGE_VERSION
#define PACKAGE_VERSION "unknown"
#endif

#define CACHE_MIN (64ull * PAGE_SIZE)   /* 64 frames a vCPU: below that a fault could need more frames than there are */

struct options opt;

enum { OPT_CACHE = 256, OPT_NODE, OPT_STATS, OPT_CHECK, OPT_STATES, OPT_OVERCOMMIT, OPT_DEBUG, OPT_VERSION, OPT_HELP };

static const struct option long_options[] = {
        { "cache",      required_argument, NULL, OPT_CACHE },
        { "node",       required_argument, NULL, OPT_NODE },
        { "stats",      optional_argument, NULL, OPT_STATS },
        { "verbose",    no_argument,       NULL, 'v' },
        { "check",      no_argument,       NULL, OPT_CHECK },
        { "states",     required_argument, NULL, OPT_STATES },
        { "overcommit", no_argument,       NULL, OPT_OVERCOMMIT },
        { "debug",      no_argument,       NULL, OPT_DEBUG },
        { "version",    no_argument,       NULL, OPT_VERSION },
        { "help",       no_argument,       NULL, OPT_HELP },
        { NULL, 0, NULL, 0 }
};

static const char help_text[] =
        "Usage: vmrun [OPTION...] [--] PROGRAM [ARG...]\n"
        "       vmrun --check\n"
        "       vmrun --states PID\n"
        "Run an unmodified Linux x86-64 program in a virtual machine of its own, with more memory than its local cache.\n"
        "\n"
        "      --cache SIZE    keep at most SIZE of the program's memory here (K, M, G, T; default: a quarter of\n"
        "                      the memory that is available)\n"
        "      --node URL      add a far-memory node; may be given several times (default: mem:, as large as\n"
        "                      the memory that is available)\n"
        "                        mem:SIZE   memory of this host, outside the cache\n"
        "      --overcommit    let the program map more than cache and nodes can hold\n"
        "      --stats[=FILE]  print statistics at the end, to standard error or FILE\n"
        "      --debug         check at the end that no frame, slot or pin was leaked (also: VMRUN_DEBUG=1)\n"
        "  -v, --verbose       say what is going on\n"
        "      --check         tell what this host offers, and whether programs can run\n"
        "      --states PID    tell what the vCPUs of a running vmrun are doing\n"
        "      --version       print the version\n"
        "      --help          print this text\n"
        "\n"
        "Exit status: the program's own; 125 if vmrun itself fails, 126 if PROGRAM cannot be executed, 127 if it is\n"
        "not found.  See vmrun(1).\n";

static void print_and_exit(const char *text)
{
        if (fputs(text, stdout) == EOF || fflush(stdout) == EOF)
                die_(EXIT_VMRUN_FAILED, "cannot write to standard output: %s", strerror(errno));
        exit(0);
}

static void take_cache(const char *text)
{
        uint64_t bytes, memory = host_memory_total();
        char a[32], b[32];

        int err = size_parse(text, &bytes);
        if (err == -EINVAL)
                die_(EXIT_VMRUN_FAILED, "--cache %s: this is no size: give a whole number with K, M, G or T, as in --cache 4G", text);
        if (err == 0 && bytes < CACHE_MIN)
                die_(EXIT_VMRUN_FAILED, "--cache %s: too small, a program needs at least 64 pages here: give 256K or more", text);
        if (err == -ERANGE || (memory && bytes > memory))
                die_(EXIT_VMRUN_FAILED, "--cache %s: larger than this host's memory of %s: give less, %s is available now; "
                     "what does not fit goes to the far tier (--node)", text, size_text(memory, a),
                     size_text(host_memory_available(), b));
        if (bytes / PAGE_SIZE > UINT32_MAX)
                die_(EXIT_VMRUN_FAILED, "--cache %s: more pages than vmrun can number: give less than 16T", text);
        opt.cache = bytes & ~(uint64_t)(PAGE_SIZE - 1);
}

static void default_cache(void)
{
        char a[32];
        opt.cache = host_memory_available() / 4 & ~(uint64_t)(PAGE_SIZE - 1);
        if (opt.cache < CACHE_MIN)
                opt.cache = CACHE_MIN;
        info_("cache: %s, a quarter of the available memory (--cache SIZE sets it)", size_text(opt.cache, a));
}

/* getopt has no words for it that name the cure. */
static _Noreturn void bad_option(char **argv, bool missing_value)
{
        const char *given = argv[optind - 1];

        if (missing_value)
                die_(EXIT_VMRUN_FAILED, "%s: a value is missing: see vmrun --help", given);
        if (optopt && strncmp(given, "--", 2) == 0 && strchr(given, '='))
                die_(EXIT_VMRUN_FAILED, "%s: this option takes no value: leave out what follows the =", given);
        if (optopt)
                die_(EXIT_VMRUN_FAILED, "-%c: no such option: see vmrun --help (the program's own options come after its name)", optopt);
        die_(EXIT_VMRUN_FAILED, "%s: no such option, or an abbreviation of several: see vmrun --help "
             "(the program's own options come after its name)", given);
}

void options_parse(int argc, char **argv)
{
        const char *cache = NULL;
        int c;

        const char *debug = getenv("VMRUN_DEBUG");
        opt.debug = debug && strcmp(debug, "1") == 0;
        opt.command = CMD_RUN;
        opterr = 0;
        while ((c = getopt_long(argc, argv, "+:v", long_options, NULL)) != -1) {
                switch (c) {
                case OPT_CACHE:
                        cache = optarg;
                        break;
                case OPT_NODE:
                        if (opt.nnodes == sizeof(opt.nodes) / sizeof(opt.nodes[0]))
                                die_(EXIT_VMRUN_FAILED, "--node %s: more than %u nodes: give fewer", optarg, opt.nnodes);
                        opt.nodes[opt.nnodes++] = optarg;
                        break;
                case OPT_STATS:
                        if (optarg && !*optarg)
                                die_(EXIT_VMRUN_FAILED, "--stats=: no file is named: give --stats=FILE, or --stats for standard error");
                        opt.stats = true;
                        opt.stats_file = optarg;
                        break;
                case 'v':
                        opt.verbose = true;
                        break;
                case OPT_CHECK:
                        opt.command = CMD_CHECK;
                        break;
                case OPT_STATES:
                        opt.command = CMD_STATES;
                        opt.states_pid = optarg;
                        break;
                case OPT_OVERCOMMIT:
                        opt.overcommit = true;
                        break;
                case OPT_DEBUG:
                        opt.debug = true;
                        break;
                case OPT_VERSION:
                        print_and_exit("vmrun " PACKAGE_VERSION "\n");
                        break;
                case OPT_HELP:
                        print_and_exit(help_text);
                        break;
                default:
                        bad_option(argv, c == ':');
                }
        }
        if (cache)
                take_cache(cache);
        opt.argv = argv + optind;
        if (opt.command != CMD_RUN) {
                if (*opt.argv)
                        die_(EXIT_VMRUN_FAILED, "%s: --check and --states run no program: leave it out", *opt.argv);
                return;
        }
        if (!*opt.argv || !**opt.argv)
                die_(EXIT_VMRUN_FAILED, "no program is named: vmrun [OPTION...] [--] PROGRAM [ARG...], see vmrun --help");
        if (!cache)
                default_cache();
}
