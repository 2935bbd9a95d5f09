/*
 * Why a connection failed, as text that names cause and cure.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include "common/size.h"
#include "far/rdma/words.h"

/* Reasons of rejection, numbered as in the InfiniBand specification: only those that can concern
 * us. */
#define REJECT_NO_LISTENER 8
#define REJECT_BY_MEMNODE  28
#define MEMLOCK_SMALL      (64ull << 20)

const char *rdma_words_address(const union rdma_sockaddr *a, char text[80])
{
        char ip[INET6_ADDRSTRLEN] = "?";
        bool v6 = a->sa.sa_family == AF_INET6;

        inet_ntop(a->sa.sa_family,
                  v6 ? (const void *)&a->in6.sin6_addr : (const void *)&a->in.sin_addr, ip,
                  sizeof(ip));
        snprintf(text, 80, v6 ? "[%s]:%u" : "%s:%u", ip,
                 ntohs(v6 ? a->in6.sin6_port : a->in.sin_port));
        return text;
}

const char *rdma_words_memlock(char text[128])
{
        struct rlimit r;
        char size[32];

        text[0] = '\0';
        if (getrlimit(RLIMIT_MEMLOCK, &r) == 0 && r.rlim_cur < MEMLOCK_SMALL)
                snprintf(text, 128,
                         "; the limit of locked memory is %s: raise it by `ulimit -l` or in "
                         "/etc/security/limits.conf",
                         size_text(r.rlim_cur, size));
        return text;
}

/* " (port 1 of rxe0 has no link)" if a device has no link: a likely cause when no device or no
 * route is found. */
static const char *idle_port(char text[96])
{
        int count = 0;
        struct ibv_context **all = rdma_get_devices(&count);
        struct ibv_port_attr port;

        text[0] = '\0';
        for (int i = 0; all && i < count && !*text; i++)
                if (ibv_query_port(all[i], 1, &port) == 0 && port.state != IBV_PORT_ACTIVE)
                        snprintf(text, 96, " (port 1 of RDMA device %.32s has no link)",
                                 ibv_get_device_name(all[i]->device));
        if (all)
                rdma_free_devices(all);
        return text;
}

static enum rdma_failure say(char why[FAR_WHY], enum rdma_failure failure, const char *fmt, ...)
        __attribute__((format(printf, 3, 4)));
static enum rdma_failure say(char why[FAR_WHY], enum rdma_failure failure, const char *fmt, ...)
{
        va_list ap;

        va_start(ap, fmt);
        vsnprintf(why, FAR_WHY, fmt, ap);
        va_end(ap);
        return failure;
}

enum rdma_failure rdma_words_errno(const union rdma_sockaddr *peer, int err, const char *doing,
                                   char why[FAR_WHY])
{
        char to[80], text[128];

        rdma_words_address(peer, to);
        switch (err) {
        case ENETUNREACH:
        case EHOSTUNREACH:
                return say(why, FAIL_SILENT,
                           "there is no route to %s%s: see `ip route get`, and plug in or set up "
                           "the interface",
                           to, idle_port(text));
        case ENODEV:
        case EADDRNOTAVAIL:
                return say(why, FAIL_SILENT,
                           "no RDMA device of this host leads to %s%s: `rdma link` lists them; "
                           "soft-RoCE: `rdma link add rxe0 type rxe netdev IF`",
                           to, idle_port(text));
        case ETIMEDOUT:
                return say(why, FAIL_SILENT,
                           "%s does not answer: is that machine up, and on this network?", to);
        case ENOMEM:
        case EAGAIN:
                return say(why, FAIL_SILENT, "cannot %s: out of memory for the RDMA device%s",
                           doing, rdma_words_memlock(text));
        case EACCES:
        case EPERM:
                return say(why, FAIL_FINAL,
                           "cannot %s: no permission for /dev/infiniband: ask for the group or "
                           "mode of these devices; a program that enters another user namespace "
                           "needs a node over nbd://",
                           doing);
        default:
                return say(why, FAIL_SILENT, "cannot %s for %s: %s", doing, to, strerror(err));
        }
}

enum rdma_reply rdma_words_reply(const void *bytes, size_t n, struct node_private *p)
{
        memset(p, 0, sizeof(*p));
        if (bytes)              /* those after p->length are padding */
                memcpy(p, bytes, n < sizeof(*p) ? n : sizeof(*p));
        if (p->magic != NODE_MAGIC)
                return REPLY_NONE;
        if (p->version != NODE_VERSION)
                return REPLY_VERSION;
        return p->length == sizeof(*p) && n >= sizeof(*p) ? REPLY_WHOLE : REPLY_NONE;
}

/* memnode's rejection is a number; the sentences are here. */
static enum rdma_failure rejected_by_memnode(const char *to, const struct rdma_conn_param *p,
                                             char why[FAR_WHY])
{
        struct node_private r;

        enum rdma_reply what = rdma_words_reply(p->private_data, p->private_data_len, &r);

        if (what == REPLY_NONE)
                return say(why, FAIL_FINAL,
                           "what listens at %s is no memnode: correct the address or the port", to);
        if (what == REPLY_VERSION || r.kind == NODE_EVERSION)
                return say(why, FAIL_FINAL,
                           "its memnode speaks version %u of the protocol, this vmrun version %u: "
                           "install the same version on both",
                           r.version, NODE_VERSION);
        switch (r.kind) {
        case NODE_EUNKNOWN:
                return say(why, FAIL_UNKNOWN,
                           "its memnode does not know this program any more (it was restarted, or "
                           "its grace time was over)");
        case NODE_EKEY:
                return say(why, FAIL_FINAL,
                           "its memnode takes only clients with a key of its --keys: give "
                           "keys=FILE with such a key, and client=NAME if the file has several");
        case NODE_ENOKEYS:
                return say(why, FAIL_FINAL,
                           "its memnode has no keys: leave keys= out, or start memnode with "
                           "--keys");
        case NODE_ECOOKIE:
                return say(why, FAIL_COOKIE,
                           "its memnode takes none of the cookies that it gives: see its clock, "
                           "and who answers at this address");
        case NODE_ECLOSING:
                return say(why, FAIL_FINAL,
                           "its memnode is about to end: start it again, then this program");
        case NODE_ECUT:
                return say(why, FAIL_FINAL,
                           "its memnode was told that this process is dead: another process of "
                           "its tree found it so");
        case NODE_ESTALE:
                return say(why, FAIL_SILENT,
                           "its memnode knows a newer connection of this process");
        case NODE_EBUSY:
                return say(why, FAIL_SILENT,
                           "its memnode is busy: it has too many clients, or still takes leases "
                           "over: see its log, or use another node");
        case NODE_EINTERNAL:
                return say(why, FAIL_SILENT,
                           "its memnode has trouble of its own: see memnode's messages");
        case NODE_EPROTO:
                return say(why, FAIL_FINAL,
                           "its memnode does not understand this vmrun: install the same version "
                           "on both");
        default:
                return say(why, FAIL_SILENT,
                           "its memnode turned the connection down (reason %u): see memnode's "
                           "messages",
                           r.kind);
        }
}

enum rdma_failure rdma_words_event(const union rdma_sockaddr *peer, const struct rdma_cm_event *ev,
                                   char why[FAR_WHY])
{
        char to[80];

        rdma_words_address(peer, to);
        switch (ev->event) {
        case RDMA_CM_EVENT_ADDR_ERROR:
                return rdma_words_errno(peer, -ev->status, "resolve the address", why);
        case RDMA_CM_EVENT_ROUTE_ERROR:
                return rdma_words_errno(peer, -ev->status, "resolve the route", why);
        case RDMA_CM_EVENT_REJECTED:
                if (ev->status == REJECT_BY_MEMNODE)
                        return rejected_by_memnode(to, &ev->param.conn, why);
                else if (ev->status == REJECT_NO_LISTENER || ev->status == -ECONNREFUSED)
                        return say(why, FAIL_DEAF,
                                   "nothing listens at %s: start memnode there, or give its port "
                                   "as in rdma://HOST:PORT",
                                   to);
                else
                        return say(why, FAIL_SILENT,
                                   "the connection to %s was rejected (rdma_cm's reason %d)", to,
                                   ev->status);
        case RDMA_CM_EVENT_UNREACHABLE:
                return say(why, FAIL_SILENT,
                           "%s does not answer: is memnode's machine up, and UDP port 4791 open "
                           "for RoCE?",
                           to);
        case RDMA_CM_EVENT_CONNECT_ERROR:
                return rdma_words_errno(peer, -ev->status, "connect", why);
        case RDMA_CM_EVENT_DISCONNECTED:
                return say(why, FAIL_SILENT, "memnode's side ended the connection");
        case RDMA_CM_EVENT_DEVICE_REMOVAL:
                return say(why, FAIL_FINAL,
                           "the RDMA device of this host was removed: do not unload or remove it "
                           "while programs run");
        default:
                return say(why, FAIL_SILENT, "unexpected event %s of rdma_cm",
                           rdma_event_str(ev->event));
        }
}

enum rdma_failure rdma_words_silent(const union rdma_sockaddr *peer, bool found, unsigned ms,
                                    char why[FAR_WHY])
{
        char to[80];

        rdma_words_address(peer, to);
        if (!found)
                return say(why, FAIL_SILENT,
                           "%s does not answer within %u.%u s: is that machine up, and on this "
                           "network?",
                           to, ms / 1000, ms % 1000 / 100);
        else
                return say(why, FAIL_SILENT,
                           "%s does not answer the connection request within %u.%u s: is UDP port "
                           "4791 open for RoCE in all firewalls?",
                           to, ms / 1000, ms % 1000 / 100);
}
