/*
 * Many members of one lease of memnode, each with its connections, all made at once: how long the
 * last one waits, and what memnode has for them.
 *
 *   members [--keys FILE --client NAME] [--limit-kib N] --pid PID HOST PORT MEMBERS
 *
 * The lease is CREATEd, and JOINed by MEMBERS members with three links each, but for one link of
 * the last one, which stays free (PARTY_CONNECTIONS).  Then each connection reads a page.  Prints
 * the times, and memnode's private memory and CPU time at rest; fails if memory is above the limit.
 */
#include <getopt.h>
#include <libnbd.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>
#include "common/clock.h"

#define THREADS 16
#define LINKS   3
#define SIZE    (16ul << 20)
#define HEX     "00112233445566778899aabbccddeeff"

static const char *keys, *name, *host, *port;
static unsigned members, total;
static unsigned long incarnation, limit_kib;
static int pid;
static struct nbd_handle **links;
static atomic_uint next_link, again;    /* relaxed: joined by pthread_join */
static _Atomic int64_t slowest;         /* ms */

static _Noreturn void fail(const char *what)
{
        const char *why = nbd_get_error();

        fprintf(stderr, "members: %s: %s\n", what, why ? why : "");
        exit(1);
}

/* As vmrun does, it comes again if it was closed among too many others. */
static struct nbd_handle *attach(const char *export)
{
        for (unsigned i = 0; i < 20; i++) {
                struct nbd_handle *h = nbd_create();
                if (!h)
                        fail("a handle");
                nbd_set_export_name(h, export);
                nbd_set_full_info(h, true);
                if (keys && (nbd_set_tls(h, LIBNBD_TLS_REQUIRE) != 0 ||
                             nbd_set_tls_psk_file(h, keys) != 0 ||
                             nbd_set_tls_username(h, name) != 0))
                        fail("TLS");
                if (nbd_connect_tcp(h, host, port) == 0)
                        return h;
                nbd_close(h);
                atomic_fetch_add_explicit(&again, 1, memory_order_relaxed);
                usleep(100000);
        }
        fail(export);
}

static void *connect_some(void *arg)
{
        char export[200];
        unsigned i;

        while ((i = atomic_fetch_add_explicit(&next_link, 1, memory_order_relaxed)) < total) {
                int64_t begin = now_ms();
                snprintf(export, sizeof(export), "join-" HEX "-%016lx-%u-%u-1", incarnation,
                         i / LINKS + 1, i % LINKS + 1);
                links[i] = attach(export);
                int64_t took = now_ms() - begin, most = slowest;
                while (took > most && !atomic_compare_exchange_weak(&slowest, &most, took))
                        ;
        }
        return arg;
}

/* Of memnode, in KiB: memory of its own, without the pool. */
static unsigned long private_kib(void)
{
        char path[40], line[200];
        unsigned long kib = 0;

        snprintf(path, sizeof(path), "/proc/%d/status", pid);
        FILE *f = fopen(path, "re");
        while (f && fgets(line, sizeof(line), f) && sscanf(line, "RssAnon: %lu", &kib) != 1)
                ;
        if (f)
                fclose(f);
        return kib;
}

static double cpu_seconds(void)
{
        char path[40], text[1000] = "";
        unsigned long user = 0, system = 0;

        snprintf(path, sizeof(path), "/proc/%d/stat", pid);
        FILE *f = fopen(path, "re");
        /* fields 14 and 15; the second is a name, which may have anything in it */
        if (f && fgets(text, sizeof(text), f) && strrchr(text, ')')) {
                char *at = strrchr(text, ')') + 1;
                for (unsigned i = 0; i < 11; i++)
                        at += strspn(at, " "), at += strcspn(at, " ");
                sscanf(at, " %lu %lu", &user, &system);
        }
        if (f)
                fclose(f);
        return (double)(user + system) / (double)sysconf(_SC_CLK_TCK);
}

static void parse(int argc, char **argv)
{
        static const struct option names[] = {
                { "keys", 1, NULL, 'k' }, { "client", 1, NULL, 'c' }, { "pid", 1, NULL, 'p' },
                { "limit-kib", 1, NULL, 'l' }, { NULL, 0, NULL, 0 }
        };

        for (int c; (c = getopt_long(argc, argv, "", names, NULL)) != -1;) {
                switch (c) {
                case 'k': keys = optarg; break;
                case 'c': name = optarg; break;
                case 'p': pid = atoi(optarg); break;
                case 'l': limit_kib = strtoul(optarg, NULL, 10); break;
                default: exit(2);
                }
        }
        if (optind + 3 != argc || !pid)
                exit(2);
        host = argv[optind];
        port = argv[optind + 1];
        members = (unsigned)atoi(argv[optind + 2]);
        total = members * LINKS;
}

int main(int argc, char **argv)
{
        struct rlimit files = { 4096, 4096 };
        pthread_t id[THREADS];
        char page[4096], export[200];

        parse(argc, argv);
        setrlimit(RLIMIT_NOFILE, &files);
        links = calloc(total, sizeof(*links));
        if (!links)
                fail("memory");
        unsigned long before = private_kib();
        snprintf(export, sizeof(export), "create-" HEX "-%lu-1-1-1", SIZE);
        links[0] = attach(export);
        char *said = nbd_get_export_description(links[0]);
        if (!said || sscanf(said, "incarnation %lx", &incarnation) != 1)
                fail("no incarnation");
        free(said);
        int64_t begin = now_ms();
        atomic_store(&next_link, 1);
        for (unsigned i = 0; i < THREADS; i++)
                pthread_create(&id[i], NULL, connect_some, NULL);
        for (unsigned i = 0; i < THREADS; i++)
                pthread_join(id[i], NULL);
        long all = (long)(now_ms() - begin);
        for (unsigned i = 0; i < total; i++)
                if (nbd_pread(links[i], page, sizeof(page), i * sizeof(page), 0) != 0)
                        fail("a read");
        unsigned long kib = private_kib() - before;
        double cpu = cpu_seconds();
        sleep(3);
        cpu = cpu_seconds() - cpu;
        printf("%u connections: the last after %ld ms, the slowest %ld ms, %u came again; memory "
               "%lu KiB, CPU at rest %.1f ms/s\n",
               total, all, (long)slowest, again, kib, cpu * 1000 / 3);
        if (limit_kib && kib > limit_kib) {
                printf("more than %lu KiB\n", limit_kib);
                return 1;
        }
        return 0;
}
