/*
 * The command line of memnode: its options, and messages about mistakes.
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/bad_option.h"
#include "common/hostport.h"
#include "common/near.h"
#include "common/size.h"
#include "nodeproto.h"
#include "config_file.h"
#include "options.h"

#ifndef PACKAGE_VERSION
#define PACKAGE_VERSION "unknown"
#endif

struct memnode_options opt;

#define SIZE_LARGEST  (1ull << 46)      /* 64 TiB: what a process can map */
#define GRACE_DEFAULT 30000
#define DRAIN_DEFAULT 25000             /* Kubernetes gives 30 s */
#define SECONDS_MOST  86400
#define STATS_DEFAULT 15000             /* as often as Prometheus asks, as a rule */

static const char help_text[] =
        "Usage: memnode --size SIZE --listen URL [OPTION...]\n"
        "       memnode --drain PATH\n"
        "       memnode --check [OPTION...]\n"
        "Serve this host's memory to programs on other hosts.\n"
        "\n"
        "      --size SIZE           serve SIZE bytes (K, M, G, T)\n"
        "      --listen URL          may be given several times:\n"
        "                              rdma://HOST[:PORT]      (0.0.0.0 and [::]: every address)\n"
        "                              nbd://HOST[:PORT]\n"
        "                              nbd+unix:///PATH\n"
        "      --export NAME=SIZE    a named NBD export, which lasts as long as memnode runs;\n"
        "                            several times\n"
        "      --max-per-client SIZE at most SIZE for one client (default: all)\n"
        "      --keys FILE           serve only clients that prove themselves with a key of FILE\n"
        "      --insecure            serve other hosts without keys: anybody there may read and\n"
        "                            write\n"
        "      --hugepages 1G|2M|none\n"
        "                            pages of the memory (default: 2M if enough, else none)\n"
        "      --grace SECONDS       how long a client that vanished keeps its memory\n"
        "                            (default: 30)\n"
        "      --drain-timeout SECONDS\n"
        "                            how long clients may take to move away at the end\n"
        "                            (default: 25)\n"
        "      --config FILE         read settings from FILE; the command line wins\n"
        "      --control PATH        a socket that gives the statistics to each client\n"
        "      --stats FILE          write figures for Prometheus to FILE, as in NAME.prom\n"
        "      --stats-interval SECONDS\n"
        "                            how often (default: 15)\n"
        "      --pidfile FILE        write the process number to FILE once it serves\n"
        "      --run COMMAND         start COMMAND with $uri set, and end with it and its status\n"
        "      --drain PATH          drain the memnode with that control socket, and wait until\n"
        "                            it has ended\n"
        "      --resume FILE         keep leases that programs still use in FILE at the end, and\n"
        "                            serve those that are there again\n"
        "      --socket-mode MODE    of nbd+unix:// sockets, as in 666 (default: as umask says)\n"
        "  -v, --verbose             say what is going on\n"
        "      --check               tell what this host offers, and whether memnode could serve\n"
        "      --version             print the version\n"
        "      --help                print this text\n"
        "\n"
        "Signals: TERM drains and ends it, INT ends it at once, HUP rereads the limits,\n"
        "USR1 prints statistics.  See memnode(8).\n";

/* --- the settings --- */

static int set_bytes(uint64_t *bytes, const char *value, char why[WHY_MAX])
{
        int err = size_parse(value, bytes);
        if (err == -EINVAL)
                snprintf(why, WHY_MAX,
                         "this is no size: give a whole number with K, M, G or T, as in 4G");
        else if (err || *bytes > SIZE_LARGEST)
                snprintf(why, WHY_MAX, "larger than the address space: give at most 64T");
        else if (*bytes < 4096)
                snprintf(why, WHY_MAX, "too small: give at least one page of 4K");
        else
                return 0;
        return -EINVAL;
}

/* A list of strings or one: a copy, so that o outlives the file it came from. */
static int set_string(const char **to, const char *value, char why[WHY_MAX])
{
        char *copy = *value ? strdup(value) : NULL;
        if (!copy) {
                snprintf(why, WHY_MAX, *value ? "no memory is left" : "a value is missing");
                return *value ? -ENOMEM : -EINVAL;
        }
        free((char *)*to);
        *to = copy;
        return 0;
}

static int set_size(struct memnode_options *o, const char *value, char why[WHY_MAX])
{
        int err = set_bytes(&o->size, value, why);
        o->size = (o->size + 4095) & ~4095ull;
        return err;
}

static int set_max_per_client(struct memnode_options *o, const char *value, char why[WHY_MAX])
{
        return set_bytes(&o->max_per_client, value, why);
}

static int set_listen(struct memnode_options *o, const char *value, char why[WHY_MAX])
{
        static const char *const schemes[] = { "rdma://", "nbd://", "nbd+unix://" };
        unsigned i = 0;

        while (i < 3 && strncmp(value, schemes[i], strlen(schemes[i])) != 0)
                i++;
        if (i == 3) {
                snprintf(why, WHY_MAX,
                         "not an address to listen at: give rdma://HOST[:PORT], nbd://HOST[:PORT] "
                         "or nbd+unix:///PATH");
                return -EINVAL;
        }
        if (o->nlisten == sizeof(o->listen) / sizeof(o->listen[0])) {
                snprintf(why, WHY_MAX, "more than %u addresses: give fewer", o->nlisten);
                return -E2BIG;
        }
        int err = set_string(&o->listen[o->nlisten], value, why);
        o->nlisten += !err;
        return err;
}

int setting_export(struct memnode_options *o, const char *name, const char *size, char why[WHY_MAX])
{
        size_t len = strlen(name);
        uint64_t bytes;

        if (len == 0 || len > 255) {
                snprintf(why, WHY_MAX, "the name of an export has 1 to 255 bytes");
                return -EINVAL;
        }
        if (o->nexports == sizeof(o->export) / sizeof(o->export[0])) {
                snprintf(why, WHY_MAX, "more than %u exports: give fewer", o->nexports);
                return -E2BIG;
        }
        for (unsigned i = 0; i < o->nexports; i++) {
                if (!strcmp(o->export[i].name, name)) {
                        snprintf(why, WHY_MAX,
                                 "there is an export of this name already: give each a name of its "
                                 "own");
                        return -EEXIST;
                }
        }
        int err = set_bytes(&bytes, size, why);
        if (err)
                return err;
        o->export[o->nexports].size = (bytes + 4095) & ~4095ull;
        err = set_string(&o->export[o->nexports].name, name, why);
        o->nexports += !err;
        return err;
}

static int set_export(struct memnode_options *o, const char *value, char why[WHY_MAX])
{
        const char *equals = strrchr(value, '=');       /* a name may hold one, a size cannot */
        char name[257];

        if (!equals || equals - value > 256) {
                snprintf(why, WHY_MAX,
                         "not NAME=SIZE, as in disk=4G, with a name of at most 255 bytes");
                return -EINVAL;
        }
        snprintf(name, sizeof(name), "%.*s", (int)(equals - value), value);
        return setting_export(o, name, equals + 1, why);
}

static int set_keys(struct memnode_options *o, const char *value, char why[WHY_MAX])
{
        return set_string(&o->keys, value, why);
}
static int set_insecure(struct memnode_options *o, const char *value, char why[WHY_MAX])
{
        (void)value, (void)why;
        o->insecure = true;
        return 0;
}

/* The entry of a client, made if it is not there. */
static struct party_limits *client_entry(struct memnode_options *o, const char *name,
                                         char why[WHY_MAX])
{
        size_t len = strlen(name);

        for (unsigned i = 0; i < o->nclients; i++)
                if (!strcmp(o->client[i].name, name))
                        return &o->client[i];
        if (!len || len > KEY_NAME_MAX) {
                snprintf(why, WHY_MAX, "the name of a client is that of a key, 1 to %d bytes",
                         KEY_NAME_MAX);
                return NULL;
        }
        if (o->nclients == sizeof(o->client) / sizeof(o->client[0])) {
                snprintf(why, WHY_MAX, "more than %u clients with limits: give fewer", o->nclients);
                return NULL;
        }
        struct party_limits *l = &o->client[o->nclients++];
        *l = (struct party_limits){ .quota = UINT64_MAX, .connections = PARTY_CONNECTIONS };
        memcpy(l->name, name, len + 1);
        return l;
}

int setting_client(struct memnode_options *o, const char *client, const char *name,
                   const char *value, char why[WHY_MAX])
{
        struct party_limits *l = client_entry(o, client, why);
        char *end;

        if (!l)
                return -EINVAL;
        if (!strcmp(name, "quota"))
                return set_bytes(&l->quota, value, why);
        if (!strcmp(name, "reserve"))
                return set_bytes(&l->reserve, value, why);
        if (strcmp(name, "connections") != 0) {
                snprintf(why, WHY_MAX, "a client has quota, reserve and connections, nothing else");
                return -ENOENT;
        }
        unsigned long n = strtoul(value, &end, 10);
        if (*value < '0' || *value > '9' || *end || !n || n > PARTY_CONNECTIONS) {
                snprintf(why, WHY_MAX, "give a whole number of connections, 1 to %u",
                         PARTY_CONNECTIONS);
                return -EINVAL;
        }
        l->connections = (unsigned)n;
        return 0;
}

static int set_hugepages(struct memnode_options *o, const char *value, char why[WHY_MAX])
{
        uint64_t bytes = 4096;

        if (strcmp(value, "none") != 0 &&
            (size_parse(value, &bytes) || (bytes != 2ull << 20 && bytes != 1ull << 30))) {
                snprintf(why, WHY_MAX, "not a size that huge pages have: give 1G, 2M or none");
                return -EINVAL;
        }
        o->hugepage = bytes;
        return 0;
}

static int set_seconds(uint32_t *ms, const char *value, unsigned least, char why[WHY_MAX])
{
        char *end;
        errno = 0;
        unsigned long s = strtoul(value, &end, 10);
        if (*value < '0' || *value > '9' || *end || errno || s < least || s > SECONDS_MOST) {
                snprintf(why, WHY_MAX, "give a whole number of seconds, %u to %d", least,
                         SECONDS_MOST);
                return -EINVAL;
        }
        *ms = (uint32_t)s * 1000;
        return 0;
}

static int set_grace(struct memnode_options *o, const char *value, char why[WHY_MAX])
{
        return set_seconds(&o->grace_ms, value, 0, why);
}
static int set_drain_timeout(struct memnode_options *o, const char *value, char why[WHY_MAX])
{
        return set_seconds(&o->drain_ms, value, 0, why);
}

/* Octal digits, as chmod takes them. */
static int set_socket_mode(struct memnode_options *o, const char *value, char why[WHY_MAX])
{
        size_t len = strlen(value);

        if (!len || len > 4 || strspn(value, "01234567") != len || strtol(value, NULL, 8) > 0777) {
                snprintf(why, WHY_MAX,
                         "not the mode of a socket: give octal digits, as in 660 or 666");
                return -EINVAL;
        }
        o->socket_mode = (int)strtol(value, NULL, 8);
        return 0;
}

static int set_control(struct memnode_options *o, const char *value, char why[WHY_MAX])
{
        return set_string(&o->control, value, why);
}
static int set_stats(struct memnode_options *o, const char *value, char why[WHY_MAX])
{
        return set_string(&o->stats, value, why);
}
static int set_stats_interval(struct memnode_options *o, const char *value, char why[WHY_MAX])
{
        return set_seconds(&o->stats_ms, value, 1, why);
}
static int set_pidfile(struct memnode_options *o, const char *value, char why[WHY_MAX])
{
        return set_string(&o->pidfile, value, why);
}
static int set_run(struct memnode_options *o, const char *value, char why[WHY_MAX])
{
        return set_string(&o->run, value, why);
}
static int set_drain(struct memnode_options *o, const char *value, char why[WHY_MAX])
{
        return set_string(&o->drain, value, why);
}
static int set_resume(struct memnode_options *o, const char *value, char why[WHY_MAX])
{
        return set_string(&o->resume, value, why);
}
static int set_config(struct memnode_options *o, const char *value, char why[WHY_MAX])
{
        return set_string(&o->config, value, why);
}
static int set_verbose(struct memnode_options *o, const char *value, char why[WHY_MAX])
{
        (void)value, (void)why;
        o->verbose = true;
        return 0;
}
static int set_check(struct memnode_options *o, const char *value, char why[WHY_MAX])
{
        (void)value, (void)why;
        o->check = true;
        return 0;
}

static const struct setting settings[] = {
        { "size",           set_size,           .flag = false },
        { "listen",         set_listen,         .list = true },
        { "export",         set_export,         .list = true },
        { "max-per-client", set_max_per_client, .flag = false },
        { "keys",           set_keys,           .flag = false },
        { "insecure",       set_insecure,       .flag = true },
        { "hugepages",      set_hugepages,      .flag = false },
        { "grace",          set_grace,          .flag = false },
        { "drain-timeout",  set_drain_timeout,  .flag = false },
        { "control",        set_control,        .flag = false },
        { "stats",          set_stats,          .flag = false },
        { "stats-interval", set_stats_interval, .flag = false },
        { "pidfile",        set_pidfile,        .flag = false },
        { "run",            set_run,            .typed = true },
        { "drain",          set_drain,          .typed = true },
        { "resume",         set_resume,         .flag = false },
        { "socket-mode",    set_socket_mode,    .flag = false },
        { "config",         set_config,         .typed = true },
        { "verbose",        set_verbose,        .flag = true },
        { "check",          set_check,          .flag = true, .typed = true },
};
#define NSETTINGS (sizeof(settings) / sizeof(settings[0]))

const struct setting *setting_find(const char *name)
{
        for (unsigned i = 0; i < NSETTINGS; i++)
                if (!strcmp(settings[i].name, name))
                        return &settings[i];
        return NULL;
}

const char *setting_near(const char *name)
{
        const char *words[NSETTINGS];
        size_t n = 0;

        for (unsigned i = 0; i < NSETTINGS; i++)
                if (!settings[i].typed)
                        words[n++] = settings[i].name;
        return near_word(name, words, n);
}

void options_free(struct memnode_options *o)
{
        for (unsigned i = 0; i < o->nlisten; i++)
                free((char *)o->listen[i]);
        for (unsigned i = 0; i < o->nexports; i++)
                free((char *)o->export[i].name);
        free((char *)o->keys);
        free((char *)o->config);
        free((char *)o->control);
        free((char *)o->stats);
        free((char *)o->pidfile);
        free((char *)o->run);
        free((char *)o->drain);
        free((char *)o->resume);
        memset(o, 0, sizeof(*o));
}

/* --- the command line --- */

static _Noreturn void print_and_exit(const char *text)
{
        if (fputs(text, stdout) == EOF || fflush(stdout) == EOF)
                die_(1, "cannot write to standard output: %s", strerror(errno));
        exit(0);
}

struct given { const struct setting *setting; const char *value; };

/* All options into given[], which has room for argc of them. */
static int collect(int argc, char **argv, struct given *given, int *count, char why[WHY_MAX])
{
        enum { OPT_FIRST = 1000, OPT_VERSION = OPT_FIRST + NSETTINGS, OPT_HELP };
        struct option longs[NSETTINGS + 3] = { 0 };
        int c;

        for (unsigned i = 0; i < NSETTINGS; i++)
                longs[i] = (struct option){ settings[i].name,
                                            settings[i].flag ? no_argument : required_argument,
                                            NULL, OPT_FIRST + (int)i };
        longs[NSETTINGS] = (struct option){ "version", no_argument, NULL, OPT_VERSION };
        longs[NSETTINGS + 1] = (struct option){ "help", no_argument, NULL, OPT_HELP };

        *count = 0;
        opterr = 0;
        optind = 0;
        while ((c = getopt_long(argc, argv, ":v", longs, NULL)) != -1) {
                if (c == OPT_VERSION)
                        print_and_exit("memnode " PACKAGE_VERSION "\n");
                else if (c == OPT_HELP)
                        print_and_exit(help_text);
                else if (c == 'v')
                        given[(*count)++] = (struct given){ setting_find("verbose"), "" };
                else if (c >= OPT_FIRST && c < OPT_FIRST + (int)NSETTINGS)
                        given[(*count)++] = (struct given){ &settings[c - OPT_FIRST], optarg };
                else {
                        bad_option(argv, c, longs, "memnode --help", why, WHY_MAX);
                        return -EINVAL;
                }
        }
        if (optind < argc) {
                snprintf(why, WHY_MAX,
                         "%.200s: this is no option, and memnode takes nothing else: see memnode "
                         "--help",
                         argv[optind]);
                return -EINVAL;
        }
        return 0;
}

static void defaults(struct memnode_options *o)
{
        memset(o, 0, sizeof(*o));
        o->grace_ms = GRACE_DEFAULT;
        o->drain_ms = DRAIN_DEFAULT;
        o->stats_ms = STATS_DEFAULT;
        o->max_per_client = UINT64_MAX;
        o->socket_mode = -1;
}

/* Lists of the command line replace those of the file. */
static void forget_lists(struct memnode_options *o, const struct given *given, int count)
{
        for (int i = 0; i < count; i++) {
                if (given[i].setting->set == set_listen)
                        while (o->nlisten)
                                free((char *)o->listen[--o->nlisten]), o->listen[o->nlisten] = NULL;
                if (given[i].setting->set == set_export)
                        while (o->nexports)
                                free((char *)o->export[--o->nexports].name),
                                        o->export[o->nexports].name = NULL;
        }
}

static int apply(struct memnode_options *o, const struct given *g, char why[WHY_MAX])
{
        char cause[WHY_MAX];
        int err = g->setting->set(o, g->value, cause);
        if (err)
                snprintf(why, WHY_MAX, "--%s %.150s: %.300s", g->setting->name,
                         g->value ? g->value : "", cause);
        return err;
}

int options_parse(struct memnode_options *o, int argc, char **argv, char why[WHY_MAX])
{
        struct given *given = calloc((size_t)argc + 1, sizeof(*given));
        int count, err;

        defaults(o);
        if (!given) {
                snprintf(why, WHY_MAX, "no memory is left");
                return -ENOMEM;
        }
        err = collect(argc, argv, given, &count, why);
        for (int i = 0; i < count && !err; i++)
                if (given[i].setting->set == set_config)
                        err = apply(o, &given[i], why);
        if (!err && o->config)
                err = config_read(o, o->config, why);
        if (!err)
                forget_lists(o, given, count);
        for (int i = 0; i < count && !err; i++)
                if (given[i].setting->set != set_config)
                        err = apply(o, &given[i], why);
        free(given);
        return err;
}

bool options_listen(const struct memnode_options *o, const char *protocol)
{
        for (unsigned i = 0; i < o->nlisten; i++)
                if (strncmp(o->listen[i], protocol, strlen(protocol)) == 0)
                        return true;
        return false;
}

/* May other hosts reach this URL?  A name counts as one that they may. */
static bool is_open(const char *url)
{
        struct hostport hp;
        struct in_addr in4;
        struct in6_addr in6;

        /* What is no address is for the server to refuse. */
        if (strncmp(url, "nbd+unix:", 9) == 0 ||
            hostport_parse(strstr(url, "://") + 3, &hp) != HOSTPORT_OK)
                return false;
        if (inet_pton(AF_INET, hp.host, &in4) == 1)
                return ntohl(in4.s_addr) >> 24 != 127;
        if (inet_pton(AF_INET6, hp.host, &in6) == 1)
                return !IN6_IS_ADDR_LOOPBACK(&in6);
        return strcmp(hp.host, "localhost") != 0;
}

const char *options_lack_keys(const struct memnode_options *o)
{
        if (o->keys || o->insecure)
                return NULL;
        for (unsigned i = 0; i < o->nlisten; i++)
                if (is_open(o->listen[i]))
                        return o->listen[i];
        return NULL;
}

int options_check(const struct memnode_options *o, char why[WHY_MAX])
{
        uint64_t exports = 0;
        const char *greedy = NULL;      /* a client that could never have its reserve */
        uint64_t reserves = 0;
        char a[32], b[32];

        for (unsigned i = 0; i < o->nexports; i++)
                exports += o->export[i].size;
        for (unsigned i = 0; i < o->nclients; i++) {
                reserves += o->client[i].reserve;
                if (o->client[i].reserve > o->client[i].quota)
                        greedy = o->client[i].name;
        }
        if (o->drain)
                return 0;               /* nothing else matters */
        if (!o->size && !o->check)
                snprintf(why, WHY_MAX,
                         "--size: how much memory to serve is not said: give a size, as in --size "
                         "4G; see memnode --help");
        else if (!o->nlisten && !o->check)
                snprintf(why, WHY_MAX,
                         "--listen: nothing to listen at is named: give an address, as in --listen "
                         "rdma://0.0.0.0:%d",
                         NODE_PORT);
        else if (o->size && exports > o->size)
                snprintf(why, WHY_MAX,
                         "--export: the exports need %s in all, and --size is %s: raise it or make "
                         "them smaller",
                         size_text(exports, a), size_text(o->size, b));
        else if (o->size && reserves > o->size - exports)
                snprintf(why, WHY_MAX,
                         "the clients' reserves are %s in all, and --size leaves %s beside the "
                         "exports: raise it or make them smaller",
                         size_text(reserves, a), size_text(o->size - exports, b));
        else if (greedy)
                snprintf(why, WHY_MAX, "[client %.64s]: its reserve is more than its quota: raise "
                         "the quota", greedy);
        else if (options_lack_keys(o) && !o->check)
                snprintf(why, WHY_MAX,
                         "--listen %.100s: other hosts reach it, and without keys any of them may "
                         "read, write and use up the memory: give --keys FILE (make one with "
                         "`psktool -u NAME -p FILE`), or --insecure where all of them are trusted",
                         options_lack_keys(o));
        else if (o->nclients && !o->keys)
                snprintf(why, WHY_MAX, "[client %.64s]: clients are told apart by their keys: give "
                         "--keys FILE", o->client[0].name);
        else
                return 0;
        return -EINVAL;
}
