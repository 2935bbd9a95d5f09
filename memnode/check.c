/*
 * What this host offers, read from /proc and /sys, and from the RDMA devices.
 */
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include "common/size.h"
#include "check.h"
#include "memnode.h"
#include "options.h"
#include "pool.h"

/* descriptors: of PARTY_CONNECTIONS, of newcomers, and of RDMA's queues */
#define FILES 4096

uint64_t check_memory(uint64_t *available)
{
        char line[256];
        unsigned long long total = 0, free = 0;
        FILE *f = fopen("/proc/meminfo", "re");

        while (f && fgets(line, sizeof(line), f)) {
                sscanf(line, "MemTotal: %llu kB", &total);
                sscanf(line, "MemAvailable: %llu kB", &free);
        }
        if (f)
                fclose(f);
        *available = (uint64_t)free << 10;
        return (uint64_t)total << 10;
}

static void raise_limit(int what, rlim_t most)
{
        struct rlimit r;

        if (getrlimit(what, &r) != 0)
                return;
        most = r.rlim_max < most ? r.rlim_max : most;
        if (r.rlim_cur < most) {
                r.rlim_cur = most;
                setrlimit(what, &r);
        }
}

void check_raise_limits(void)
{
        raise_limit(RLIMIT_MEMLOCK, RLIM_INFINITY);
        raise_limit(RLIMIT_NOFILE, FILES);
}

/* CAP_IPC_LOCK among the effective ones: bit 14. */
static bool may_lock_anything(void)
{
        char line[256];
        unsigned long long caps = 0;
        FILE *f = fopen("/proc/self/status", "re");

        if (!f)
                return false;
        while (fgets(line, sizeof(line), f))
                if (sscanf(line, "CapEff: %llx", &caps) == 1)
                        break;
        fclose(f);
        return caps >> 14 & 1;
}

int check_memlock(uint64_t bytes, char *why, size_t n)
{
        struct rlimit r;
        char a[32], b[32];

        if (getrlimit(RLIMIT_MEMLOCK, &r) != 0 || r.rlim_cur == RLIM_INFINITY ||
            r.rlim_cur >= bytes || may_lock_anything())
                return 0;
        snprintf(why, n,
                 "the memlock limit is %s, and %s must be locked: raise `ulimit -l` "
                 "(/etc/security/limits.d: memlock unlimited; systemd: LimitMEMLOCK=infinity)",
                 size_text(r.rlim_cur, a), size_text(bytes, b));
        return -EPERM;
}

static void fact(const char *name, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void fact(const char *name, const char *fmt, ...)
{
        va_list ap;
        va_start(ap, fmt);
        printf("%-12s ", name);
        vprintf(fmt, ap);
        putchar('\n');
        va_end(ap);
}

/* Prints one line a port; true if a port is up. */
static bool report_ports(struct ibv_context *c, const char *name)
{
        struct ibv_device_attr device;
        bool up = false;

        if (ibv_query_device(c, &device) != 0) {
                fact("device", "%s: cannot be asked: %s", name, strerror(errno));
                return false;
        }
        for (unsigned port = 1; port <= device.phys_port_cnt; port++) {
                struct ibv_port_attr a;
                if (ibv_query_port(c, (uint8_t)port, &a) != 0)
                        continue;
                fact("device", "%s port %u: %s, %s, %u reads in flight a connection, MTU %d", name,
                     port, ibv_port_state_str(a.state),
                     a.link_layer == IBV_LINK_LAYER_ETHERNET ? "Ethernet" : "InfiniBand",
                     (unsigned)device.max_qp_rd_atom, 128 << a.active_mtu);
                up |= a.state == IBV_PORT_ACTIVE;
        }
        return up;
}

static bool report_devices(void)
{
        int count = 0;
        struct ibv_device **list = ibv_get_device_list(&count);
        bool up = false;

        for (int i = 0; list && i < count; i++) {
                const char *name = ibv_get_device_name(list[i]);
                struct ibv_context *c = ibv_open_device(list[i]);
                if (!c) {
                        fact("device",
                             "%s: cannot be opened: %s: look at the permissions of "
                             "/dev/infiniband/uverbs*",
                             name, strerror(errno));
                        continue;
                }
                up |= report_ports(c, name);
                ibv_close_device(c);
        }
        if (list)
                ibv_free_device_list(list);
        if (!count)
                fact("device", "none: load the driver of the network card, or make a soft-RoCE "
                               "device: `rdma link add rxe0 type rxe netdev IF`");
        else if (!up)
                fact("device", "no port is active: look at the cable, and `ip link set IF up`");
        if (access("/dev/infiniband/rdma_cm", R_OK | W_OK) != 0) {
                fact("rdma_cm", "/dev/infiniband/rdma_cm: %s: %s", strerror(errno),
                     errno == EACCES ? "give this user access to it" : "`modprobe rdma_ucm`");
                up = false;
        }
        return up;
}

static uint64_t report_hugepages(unsigned kib)
{
        char a[32], b[32];
        uint64_t bytes = pool_hugepages((uint64_t)kib << 10, "free_hugepages") * kib << 10;

        fact("hugepages", "%s free in pages of %s", size_text(bytes, a),
             size_text((uint64_t)kib << 10, b));
        return bytes;
}

/* Prints the reason why memnode could not serve; returns 1. */
static int verdict(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static int verdict(const char *fmt, ...)
{
        va_list ap;
        va_start(ap, fmt);
        printf("%-12s ", "verdict");
        vprintf(fmt, ap);
        putchar('\n');
        va_end(ap);
        return 1;
}

int check_report(void)
{
        uint64_t available, total = check_memory(&available);
        char why[512], a[32], b[32];
        bool rdma = false;              /* RDMA is wanted; by default NBD is enough */

        for (unsigned i = 0; i < opt.nlisten; i++)
                rdma |= !strncmp(opt.listen[i], "rdma://", 7);
        if (options_lack_keys(&opt))
                fact("keys", "none, and other hosts reach %.100s: it starts only with --keys FILE, "
                     "or --insecure", options_lack_keys(&opt));
        bool up = report_devices();
        struct rlimit r;
        if (getrlimit(RLIMIT_MEMLOCK, &r) == 0)
                fact("memlock", "%s%s",
                     r.rlim_cur == RLIM_INFINITY ? "unlimited" : size_text(r.rlim_cur, a),
                     may_lock_anything() ? ", and this user may exceed it" : "");
        uint64_t large = report_hugepages(1 << 20), medium = report_hugepages(2 << 10);
        fact("memory", "%s available", size_text(available, a));

        uint64_t size = opt.size ? opt.size : 4096;
        bool rdma_works = up && check_memlock(size, why, sizeof(why)) == 0;
        if (!up)
                snprintf(why, sizeof(why), "see device above");
        if (rdma && !rdma_works)
                return verdict("memnode cannot serve over RDMA: %s", why);
        uint64_t offered = opt.hugepage == 1 << 30   ? large
                           : opt.hugepage == 2 << 20 ? medium
                                                     : available;
        if (size > offered && opt.hugepage > 4096) {
                pool_hugepages_cure(size, opt.hugepage, why, sizeof(why));
                return verdict("memnode cannot serve %s: not enough huge pages of %s are free: %s",
                               size_text(size, a), size_text(opt.hugepage, b), why);
        }
        if (total && size > total)
                return verdict("memnode cannot serve %s: this host has %s of memory in all",
                               size_text(size, a), size_text(total, b));
        if (size > offered)
                return verdict("memnode should not serve %s: only %s is available",
                               size_text(size, a), size_text(offered, b));
        printf("%-12s memnode can serve%s%s", "verdict", opt.size ? " " : "",
               opt.size ? size_text(opt.size, a) : "");
        if (!opt.nlisten && !rdma_works)
                printf(" over NBD, but not over RDMA: %s", why);
        putchar('\n');
        return fflush(stdout) == 0 ? 0 : 1;
}
