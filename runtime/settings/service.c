/*
 * Nodes by the name of a service in DNS.  See service.h.
 */
#include <arpa/nameser.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <resolv.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/bounded.h"
#include "settings/node_draft.h"
#include "settings/service.h"

#define MARK        "+srv://"
#define ANSWER_MOST 65535
#define WEIGHT_MOST 1000                /* of a node */

/* One SRV record (RFC 2782). */
struct record {
        unsigned priority, weight, port;
        char host[NS_MAXDNAME];
};

static int say_failed(const char *name, int h, char why[SETTING_WHY])
{
        snprintf(why, SETTING_WHY, h == TRY_AGAIN
                         ? "no DNS server answers for %.150s: see /etc/resolv.conf"
                         : "DNS has no SRV record of %.150s: give a name as in "
                           "_memnode._tcp.example.org, or the nodes themselves", name);
        return h == TRY_AGAIN ? -EAGAIN : -ENOENT;
}

/* Letters of host names alone: the name becomes part of a URL. */
static bool is_host(const char *name)
{
        return *name && strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                     "0123456789-_.") == strlen(name);
}

/* Record number i of the answer; false: it is of another kind, or says that there is no host. */
static bool read_record(ns_msg *m, int i, struct record *r)
{
        ns_rr rr;

        if (ns_parserr(m, ns_s_an, i, &rr) != 0 || ns_rr_type(rr) != ns_t_srv ||
            ns_rr_rdlen(rr) < 7)
                return false;
        const unsigned char *at = ns_rr_rdata(rr);
        r->priority = ns_get16(at);
        r->weight = ns_get16(at + 2);
        r->port = ns_get16(at + 4);
        return dn_expand(ns_msg_base(*m), ns_msg_end(*m), at + 6, r->host, sizeof(r->host)) > 0 &&
               r->port && is_host(r->host);
}

/* A server may send records in any order; these become numbers of nodes. */
static int by_order(const void *x, const void *y)
{
        const struct record *a = x, *b = y;
        int host = strcmp(a->host, b->host);

        return a->priority != b->priority ? (a->priority < b->priority ? -1 : 1)
               : host                     ? host
                                          : (int)a->port - (int)b->port;
}

/* One question to DNS, in a thread of its own: libc's resolver may wait for minutes. */
struct query {
        struct bounded b;
        char name[NS_MAXDNAME];
        int h;                          /* 0, or why there is no answer: TRY_AGAIN and its like */
        unsigned n;
        struct record r[NODES_MAX + 1];
};

static void query_drop(struct bounded *b) { free(b); }

static void query_run(struct bounded *b)
{
        struct query *q = (struct query *)b;
        unsigned char *answer = malloc(ANSWER_MOST);
        struct __res_state state = { 0 };
        ns_msg m;

        q->h = TRY_AGAIN;
        if (answer && res_ninit(&state) == 0) {
                int got = res_nsearch(&state, q->name, ns_c_in, ns_t_srv, answer, ANSWER_MOST);
                q->h = got < 0 ? state.res_h_errno : 0;
                res_nclose(&state);
                if (!q->h && ns_initparse(answer, got < ANSWER_MOST ? got : ANSWER_MOST, &m) == 0)
                        for (int i = 0; i < ns_msg_count(m, ns_s_an) && q->n <= NODES_MAX; i++)
                                q->n += read_record(&m, i, &q->r[q->n]);
        }
        free(answer);
}

/* Asks DNS.  How many records, NODES_MAX + 1 at most; or -errno with why. */
static int ask(const char *name, unsigned timeout_ms, struct record r[NODES_MAX + 1],
               char why[SETTING_WHY])
{
        struct query *q = calloc(1, sizeof(*q));
        int err = q ? 0 : -ENOMEM;

        if (q) {
                q->b.run = query_run;
                q->b.drop = query_drop;
                strcpy(q->name, name);
                err = bounded_run(&q->b, timeout_ms);
        }
        if (err == -ETIMEDOUT)
                return say_failed(name, TRY_AGAIN, why);
        if (err) {
                snprintf(why, SETTING_WHY, "DNS cannot be asked: %s: free some memory on this "
                         "host, or raise `ulimit -u`", strerror(-err));
                return err;
        }
        unsigned n = q->n;
        err = q->h || !n ? say_failed(name, q->h ? q->h : NO_DATA, why) : 0;
        memcpy(r, q->r, n * sizeof(*r));
        bounded_drop(&q->b);
        qsort(r, n, sizeof(*r), by_order);
        return err ? err : (int)n;
}

static const char *copy(const char *text) { return text ? strdup(text) : NULL; }

/* The node of a record.  False: no memory. */
static bool make_node(const struct node_option *n, const struct record *r, struct node_option *to)
{
        const char *name = strstr(n->url, MARK) + strlen(MARK);
        char *url, *origin;

        *to = *n;
        to->domain = copy(n->domain);
        to->keys = copy(n->keys);
        to->client = copy(n->client);
        to->device = copy(n->device);
        to->url = to->name = to->origin = NULL;
        if (asprintf(&url, "%.*s://%s:%u%s", (int)(strstr(n->url, MARK) - n->url), n->url, r->host,
                     r->port, name + strcspn(name, "/")) < 0)
                return false;
        to->url = to->name = url;
        if (asprintf(&origin, "%s: %s:%u", n->origin, r->host, r->port) < 0)
                return false;
        to->origin = origin;
        return (to->domain || !n->domain) && (to->keys || !n->keys) &&
               (to->client || !n->client) && (to->device || !n->device);
}

int service_find(const struct node_option *n, unsigned timeout_ms, struct node_option to[],
                 unsigned room, char why[SETTING_WHY])
{
        static struct record r[NODES_MAX + 1];  /* one thread at a time makes nodes */
        const char *url = strstr(n->url, MARK) + strlen(MARK);
        char name[NS_MAXDNAME];
        unsigned most = 1, level = 0;

        if (strcspn(url, "/") == 0 || strcspn(url, "/") >= sizeof(name)) {
                snprintf(why, SETTING_WHY, "it has no name that DNS could know: give one as in "
                         "_memnode._tcp.example.org");
                return -EINVAL;
        }
        snprintf(name, sizeof(name), "%.*s", (int)strcspn(url, "/"), url);
        int found = ask(name, timeout_ms, r, why);
        if (found > (int)room) {
                snprintf(why, SETTING_WHY, "DNS has too many SRV records of %.150s: there can be "
                         "%u nodes", name, NODES_MAX);
                return -E2BIG;
        }
        for (int i = 0; i < found; i++)
                most = r[i].weight > most ? r[i].weight : most;
        for (int i = found; i-- > 0; ) {
                /* In DNS the lowest number comes first, here the highest. */
                level += i + 1 < found && r[i].priority != r[i + 1].priority;
                if (!make_node(n, &r[i], &to[i])) {
                        snprintf(why, SETTING_WHY, "out of memory: free some on this host");
                        return -ENOMEM;
                }
                unsigned w = most > WEIGHT_MOST ? r[i].weight * WEIGHT_MOST / most : r[i].weight;
                to[i].priority = level;
                to[i].weight = w ? w : 1;
        }
        return found;
}

int service_expand(struct options *o, const char **origin, char why[SETTING_WHY])
{
        for (unsigned i = 0; i < o->nnodes; ) {
                static struct node_option found[NODES_MAX];
                struct node_option n = o->nodes[i];
                if (!node_is_service(n.url)) {
                        i++;
                        continue;
                }
                *origin = n.origin;
                int count = service_find(&n, o->connect_timeout_ms, found,
                                         NODES_MAX + 1 - o->nnodes, why);
                if (count < 0)
                        return count;
                memmove(&o->nodes[i + (unsigned)count], &o->nodes[i + 1],
                        (o->nnodes - i - 1) * sizeof(n));
                memcpy(&o->nodes[i], found, (unsigned)count * sizeof(n));
                o->nnodes += (unsigned)count - 1;
                i += (unsigned)count;
                node_option_free(&n);
        }
        return 0;
}
