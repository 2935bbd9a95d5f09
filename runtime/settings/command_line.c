/*
 * The command line of vmrun: its options, and how they combine with the configuration file.
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "base/message.h"
#include "base/options.h"
#include "common/bad_option.h"
#include "common/size.h"
#include "settings/command_line.h"
#include "settings/config_file.h"
#include "settings/guide.h"
#include "settings/node_draft.h"
#include "settings/service.h"
#include "settings/settings.h"

#ifndef PACKAGE_VERSION
#define PACKAGE_VERSION "unknown"
#endif

enum {
        OPT_SETTING = 256,
        OPT_YES,
        OPT_NO,
        OPT_STATS,
        OPT_NODE,
        OPT_GUIDE,
        OPT_CONFIG,
        OPT_NO_CONFIG,
        OPT_RECORD,
        OPT_REPLAY,
        OPT_CHECK,
        OPT_STATES,
        OPT_DEBUG,
        OPT_VERSION,
        OPT_HELP
};

static const struct option long_options[] = {
        /* Options with OPT_SETTING, OPT_YES and OPT_NO are settings of that name (settings.c), with
         * the value given, "yes" or "no". */
        { "cache",           required_argument, NULL, OPT_SETTING },
        { "placement",       required_argument, NULL, OPT_SETTING },
        { "replicas",        required_argument, NULL, OPT_SETTING },
        { "replicas-required", no_argument,     NULL, OPT_YES },
        { "no-replicas-required", no_argument,  NULL, OPT_NO },
        { "rebuild-rate",    required_argument, NULL, OPT_SETTING },
        { "prefetch",        required_argument, NULL, OPT_SETTING },
        { "prefetch-window", required_argument, NULL, OPT_SETTING },
        { "prefetch-history", required_argument, NULL, OPT_SETTING },
        { "timeout",         required_argument, NULL, OPT_SETTING },
        { "connect-timeout", required_argument, NULL, OPT_SETTING },
        { "io",              required_argument, NULL, OPT_SETTING },
        { "direct",          required_argument, NULL, OPT_SETTING },
        { "far",             required_argument, NULL, OPT_SETTING },
        { "control",         no_argument,       NULL, OPT_YES },
        { "no-control",      no_argument,       NULL, OPT_NO },
        { "overcommit",      no_argument,       NULL, OPT_YES },
        { "no-overcommit",   no_argument,       NULL, OPT_NO },
        { "follow",          no_argument,       NULL, OPT_YES },
        { "no-follow",       no_argument,       NULL, OPT_NO },
        { "verify",          no_argument,       NULL, OPT_YES },
        { "no-verify",       no_argument,       NULL, OPT_NO },
        { "verbose",         no_argument,       NULL, OPT_YES },
        { "no-verbose",      no_argument,       NULL, OPT_NO },
        { "stats",           optional_argument, NULL, OPT_STATS },
        { "stats-interval",  required_argument, NULL, OPT_SETTING },
        { "no-stats",        no_argument,       NULL, OPT_NO },
        { "profile",         required_argument, NULL, OPT_SETTING },
        { "no-profile",      no_argument,       NULL, OPT_NO },
        { "node",            required_argument, NULL, OPT_NODE },
        { "guide",           required_argument, NULL, OPT_GUIDE },
        { "record",          required_argument, NULL, OPT_RECORD },
        { "replay",          required_argument, NULL, OPT_REPLAY },
        { "config",          required_argument, NULL, OPT_CONFIG },
        { "no-config",       no_argument,       NULL, OPT_NO_CONFIG },
        { "check",           no_argument,       NULL, OPT_CHECK },
        { "states",          required_argument, NULL, OPT_STATES },
        { "debug",           no_argument,       NULL, OPT_DEBUG },
        { "version",         no_argument,       NULL, OPT_VERSION },
        { "help",            no_argument,       NULL, OPT_HELP },
        { NULL, 0, NULL, 0 }
};

/* Values of the command line, kept until the configuration file has been read, which they
 * override. */
struct given {
        const char *value[SETTINGS_MAX];        /* by number of the setting; NULL: not given */
        const char *nodes[NODES_MAX];
        unsigned nnodes;
        const char *config;
        bool no_config;
        /* The last option and its value, if that is a word of its own: of `--profile FILE PROGRAM`
         * with one word missing, PROGRAM. */
        const char *last, *value_of_last;
};

static const char help_text[] =
        "Usage: vmrun [OPTION...] [--] PROGRAM [ARG...]\n"
        "       vmrun --check [OPTION...]\n"
        "       vmrun --states PID\n"
        "Run an unmodified Linux x86-64 program in a virtual machine of its own, with more memory "
        "than its local cache.\n"
        "\n"
        "      --cache SIZE    keep at most SIZE of the program's memory here: with K, M, G, T, or "
        "a part of this\n"
        "                      host's, as 25% (default: a quarter of the memory that is "
        "available)\n"
        "      --node URL      add a far-memory node; may be given several times (default: mem:, "
        "as large as\n"
        "                      the memory that is available)\n"
        "                        mem:SIZE                      memory of this host, outside the "
        "cache\n"
        "                        dax:PATH                      a DAX device, or a file that is "
        "mapped\n"
        "                        file:PATH[?size=SIZE]         a file or block device, by direct "
        "I/O\n"
        "                        rdma://HOST[:PORT]            memnode over RDMA\n"
        "                        nbd://HOST[:PORT][/EXPORT]    memnode or another NBD server\n"
        "                        nbds://HOST...?keys=FILE      the same, by TLS and a key\n"
        "                        nbd+unix:///EXPORT?socket=PATH\n"
        "                        rdma+srv://NAME, nbd+srv://NAME, nbds+srv://NAME\n"
        "                                                      all nodes of that name (DNS SRV)\n"
        "                      options of the node may follow, as in rdma://m1?size=4G&weight=2\n"
        "      --placement weighted|linear|free\n"
        "                      spread memory over nodes by weight (default), fill one after "
        "another, or take\n"
        "                      the one with most free memory\n"
        "      --replicas N    keep each page on N remote nodes, 1 to 3 (default: 1), so that the "
        "program goes on\n"
        "                      when one is lost\n"
        "      --replicas-required\n"
        "                      end rather than start with fewer nodes than that\n"
        "      --rebuild-rate RATE\n"
        "                      bytes a second at which all processes together make up for copies "
        "that a node\n"
        "                      missed (default: 100M)\n"
        "      --timeout S     end the program when a node was silent for S seconds (default: 10)\n"
        "      --connect-timeout S\n"
        "                      give up on a node that has not answered at start after S seconds "
        "(default: 5)\n"
        "      --io auto|thread|inline\n"
        "                      move pages of remote nodes in a thread, or inline in the program's "
        "own (default:\n"
        "                      auto: inline where the program may use one CPU only)\n"
        "      --direct auto|on|off\n"
        "                      the fault handler reads pages over RDMA by itself; on: over "
        "soft-RoCE, too\n"
        "                      (default: auto: over mlx5)\n"
        "      --prefetch auto|pointers|trend|readahead|none\n"
        "                      fetch pages of remote nodes before they are touched (default: "
        "auto)\n"
        "      --prefetch-window N\n"
        "                      at most N pages ahead (default: 64; trend and readahead: 8 at "
        "most)\n"
        "      --prefetch-history N\n"
        "                      trend looks at the last N pages (default: 32)\n"
        "      --guide FILE    load a library with guides (vmguest(3)) into the program: a path, "
        "or one that\n"
        "                      ships with vmrun: graph, malloc, redis\n"
        "      --record FILE   write to FILE in which order pages were waited for; nothing is "
        "prefetched\n"
        "      --replay FILE   fetch pages ahead in the order of a run that was recorded\n"
        "      --far on|off    evict pages ahead of need, or only when the cache is full (default: "
        "on)\n"
        "      --no-control    make no socket by which vmctl can look at the program and change "
        "settings\n"
        "      --overcommit    let the program map more than cache and nodes can hold\n"
        "      --no-verify     do not check pages that come back from memory nodes\n"
        "      --no-follow     let programs that PROGRAM executes run natively, not under vmrun\n"
        "      --stats[=FILE]  print statistics at the end of each program, to standard error (a "
        "table if that\n"
        "                      is a terminal, or with --stats=table) or FILE; a FILE.json has "
        "JSON, a FILE.prom\n"
        "                      Prometheus's text format\n"
        "      --stats-interval S\n"
        "                      while the program runs, write FILE again every S seconds, or a line "
        "to standard error\n"
        "      --profile FILE  write to FILE where the program waited for far memory, as folded "
        "stacks for a flame\n"
        "                      graph, and to FILE.txt, as a table\n"
        "      --config FILE   read settings from FILE (default: $XDG_CONFIG_HOME/vmrun.conf, "
        "which usually is\n"
        "                      ~/.config/vmrun.conf, else /etc/vmrun.conf, if there is one)\n"
        "      --no-config     read none\n"
        "      --control, --follow, --verify, --no-overcommit, --no-profile, --no-stats,\n"
        "      --no-verbose, --no-replicas-required\n"
        "                      override the configuration file, if it sets the contrary\n"
        "      --debug         check at the end that no frame, slot or pin was leaked (also: "
        "VMRUN_DEBUG=1)\n"
        "  -v, --verbose       say what is going on\n"
        "      --check         tell what this host offers, and whether programs can run; try each "
        "node\n"
        "      --states PID    tell what the vCPUs of a running vmrun are doing\n"
        "      --version       print the version\n"
        "      --help          print this text\n"
        "\n"
        "Exit status: the program's own; 125 if vmrun itself fails, 126 if PROGRAM cannot be "
        "executed, 127 if it is\n"
        "not found.  See vmrun(1), vmctl(1), vmrun.conf(5).\n";

static void print_and_exit(const char *text)
{
        if (fputs(text, stdout) == EOF || fflush(stdout) == EOF)
                die_(EXIT_VMRUN_FAILED, "cannot write to standard output: %s", strerror(errno));
        exit(0);
}

static void default_cache(void)
{
        char a[32];
        opt.cache = cache_default();
        info_("cache: %s, a quarter of the available memory (--cache SIZE sets it)",
              size_text(opt.cache, a));
}

static _Noreturn void refuse_option(char **argv, int c)
{
        char why[SETTING_WHY];

        bad_option(argv, c, long_options,
                   c == ':' ? "vmrun --help"
                            : "vmrun --help (the program's own options come after its name)",
                   why, sizeof(why));
        die_(EXIT_VMRUN_FAILED, "%s", why);
}

/* The value of --stats.  A plain name is a file in this folder, but a word that may be meant for
 * yes or no is checked as in the configuration file. */
static const char *stats_value(const char *given)
{
        static const char *const words[] = { "table", "yes", "no", "true", "false", "on", "off",
                                             "1", "0" };
        char *path;

        if (!given)
                return "yes";
        if (!*given)
                die_(EXIT_VMRUN_FAILED, "--stats=: no file is named: give --stats=FILE, or --stats "
                                        "for standard error");
        for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
                if (strcasecmp(given, words[i]) == 0)
                        return given;
        if (strchr(given, '/'))
                return given;
        if (asprintf(&path, "./%s", given) < 0)
                die_(EXIT_VMRUN_FAILED, "out of memory: free some on this host");
        return path;
}

/* `--stats FILE PROGRAM`: getopt takes FILE for the program. */
static const char *after_stats;

const char *options_hint(void)
{
        static char text[PATH_MAX + 64];

        if (after_stats)
                snprintf(text, sizeof(text), " (for statistics in that file say --stats=%s)",
                         after_stats);
        return text;
}

/* The command line as it stands.  --help, --version and options that do not exist end here. */
static void take_line(int argc, char **argv, struct given *g)
{
        int c, at;

        opterr = 0;
        while ((c = getopt_long(argc, argv, "+:v", long_options, &at)) != -1) {
                g->value_of_last = optarg && optarg == argv[optind - 1] ? optarg : NULL;
                g->last = g->value_of_last ? long_options[at].name : NULL;
                switch (c) {
                case OPT_SETTING:
                        g->value[setting_find(long_options[at].name)] = optarg;
                        break;
                case OPT_YES:
                        g->value[setting_find(long_options[at].name)] = "yes";
                        break;
                case OPT_NO:
                        g->value[setting_find(long_options[at].name + strlen("no-"))] = "no";
                        break;
                case 'v':
                        g->value[setting_find("verbose")] = "yes";
                        break;
                case OPT_STATS:
                        g->value[setting_find("stats")] = stats_value(optarg);
                        break;
                case OPT_NODE:
                        if (g->nnodes == NODES_MAX)
                                die_(EXIT_VMRUN_FAILED, "--node %s: more than %u nodes: give fewer",
                                     optarg, NODES_MAX);
                        g->nodes[g->nnodes++] = optarg;
                        break;
                case OPT_GUIDE:
                        guide_add(optarg);
                        break;
                case OPT_CONFIG:
                        g->config = optarg;
                        g->no_config = false;
                        break;
                case OPT_NO_CONFIG:
                        g->config = NULL;
                        g->no_config = true;
                        break;
                case OPT_RECORD:
                        opt.record = optarg;
                        break;
                case OPT_REPLAY:
                        opt.replay = optarg;
                        break;
                case OPT_CHECK:
                        opt.command = CMD_CHECK;
                        break;
                case OPT_STATES:
                        opt.command = CMD_STATES;
                        opt.states_pid = optarg;
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
                        refuse_option(argv, c);
                }
        }
        opt.argv = argv + optind;
        if (optind > 1 && strcmp(argv[optind - 1], "--stats") == 0)
                after_stats = argv[optind];
}

static void take_settings(const struct given *g)
{
        char why[SETTING_WHY];

        for (size_t i = 0; i < sizeof(long_options) / sizeof(long_options[0]) - 1; i++) {
                int n = setting_find(long_options[i].name);
                if (n >= 0 && g->value[n] && setting_set(&opt, n, g->value[n], why) != 0)
                        die_(EXIT_VMRUN_FAILED, "--%s %s: %s", long_options[i].name, g->value[n],
                             why);
        }
}

/* Nodes of the file, if there are any, are then ignored. */
static void take_nodes(const struct given *g)
{
        char why[SETTING_WHY], *origin;

        if (g->nnodes)
                opt.nnodes = 0;
        for (unsigned i = 0; i < g->nnodes; i++) {
                struct node_draft d;
                node_draft_init(&d);
                if (node_draft_set(&d, "url", g->nodes[i], why) != 0 ||
                    node_draft_check(&d, why) != 0)
                        die_(EXIT_VMRUN_FAILED, "--node %s: %s", g->nodes[i], why);
                if (asprintf(&origin, "--node %s", g->nodes[i]) < 0)
                        die_(EXIT_VMRUN_FAILED, "out of memory: free some on this host");
                d.node.origin = origin;
                d.node.name = d.node.url;
                opt.nodes[opt.nnodes++] = d.node;
        }
}

static _Noreturn void no_program(const struct given *g)
{
        const char *value = g->value_of_last;

        die_(EXIT_VMRUN_FAILED, "no program is named%s%s%s%s: vmrun [OPTION...] [--] PROGRAM "
             "[ARG...], see vmrun --help", value ? ", " : "", value ? value : "",
             value ? " is the value of --" : "", value ? g->last : "");
}

/* Last: it asks the network. */
static void find_services(void)
{
        const char *origin;
        char why[SETTING_WHY];

        if (service_expand(&opt, &origin, why) != 0)
                die_(EXIT_VMRUN_FAILED, "%s: %s", origin, why);
}

void options_parse(int argc, char **argv)
{
        struct given g = { .nnodes = 0 };
        const char *debug = getenv("VMRUN_DEBUG");
        char why[PATH_MAX + 2 * SETTING_WHY];

        opt.debug = debug && strcmp(debug, "1") == 0;
        opt.command = CMD_RUN;
        settings_default(&opt);
        take_line(argc, argv, &g);
        if (opt.command != CMD_RUN && *opt.argv)
                die_(EXIT_VMRUN_FAILED, "%s: --check and --states run no program: leave it out",
                     *opt.argv);
        if (opt.command == CMD_STATES)
                return;
        opt.config = g.no_config ? NULL : g.config ? g.config : config_default();
        int err = opt.config ? config_read(&opt, opt.config, why, sizeof(why)) : 0;
        /* -EINVAL: a mistake in its content, whose message has a cure */
        if (err)
                die_(EXIT_VMRUN_FAILED, "%s%s", why, err == -EINVAL ? "" : err == -ENOENT ?
                     ": check the name after --config" : ": make it readable, or give --no-config");
        take_settings(&g);
        if (g.value[setting_find("stats-interval")] && !opt.stats && opt.command == CMD_RUN)
                die_(EXIT_VMRUN_FAILED, "--stats-interval: there are no statistics: give --stats "
                                        "too");
        take_nodes(&g);
        message_verbose(opt.verbose);
        if (opt.command == CMD_CHECK) {
                find_services();
                return;
        }
        if (!*opt.argv || !**opt.argv)
                no_program(&g);
        if (opt.config)
                info_("settings: %s", opt.config);
        if (!opt.cache)
                default_cache();
        find_services();
}
