/*
 * This host: its memory, its address bits, and whether KVM can be used.  vmrun --check reports it
 * (settings/check.c).
 */
#include <cpuid.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/kvm.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/cgroup.h"
#include "base/host.h"

#define LAB "or, in vmrun's sources, try it on an emulated machine: lab/lab -- build/vmrun PROGRAM"

/* --- memory, and other numbers in small files --- */

/* First line of a file, without its newline; false if it cannot be read. */
bool host_line(const char *path, char *line, size_t n)
{
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
                return false;
        ssize_t r = read(fd, line, n - 1);
        close(fd);
        if (r < 0)
                return false;
        line[r] = 0;
        line[strcspn(line, "\n")] = 0;
        return true;
}

bool host_number(const char *path, uint64_t *v)
{
        char line[64];
        unsigned long long n;
        if (!host_line(path, line, sizeof(line)) || sscanf(line, "%llu", &n) != 1)
                return false;
        *v = n;
        return true;
}

static uint64_t meminfo(const char *field)
{
        char text[512];
        unsigned long long kib;
        int fd = open("/proc/meminfo", O_RDONLY | O_CLOEXEC);
        ssize_t r = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
        if (fd >= 0)
                close(fd);
        if (r <= 0)
                return 0;
        text[r] = 0;
        const char *at = strstr(text, field);
        return at && sscanf(at + strlen(field), ": %llu", &kib) == 1 ? kib << 10 : 0;
}

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

uint64_t host_memory_total(void)
{
        struct cgroup_memory m;
        cgroup_memory("", &m);
        return least(meminfo("MemTotal"), m.limit);
}

uint64_t host_memory_available(void)
{
        struct cgroup_memory m;
        cgroup_memory("", &m);
        return least(meminfo("MemAvailable"), m.left);
}

const char *host_memory_limit(void)
{
        static struct cgroup_memory m;
        cgroup_memory("", &m);
        return m.limit < meminfo("MemTotal") ? m.file : NULL;
}

static bool limited(int resource)
{
        struct rlimit r;

        return getrlimit(resource, &r) == 0 && r.rlim_cur != RLIM_INFINITY;
}

const char *host_memory_cure(int err)
{
        bool space = err == -ENOMEM && limited(RLIMIT_AS);
        bool data = err == -ENOMEM && limited(RLIMIT_DATA);

        return space && data ? ": raise the hard limits of address space and of data (ulimit -v, "
                               "-d), of which cache and far memory take as much as they hold"
               : space       ? ": raise the hard limit of address space (ulimit -v), of which "
                               "cache and far memory take as much as they hold"
               : data        ? ": raise the hard limit of data (ulimit -d), of which the cache "
                               "takes as much as it holds"
                             : "";
}

/* --- can KVM be used? --- */

bool host_has_vmx(void)
{
        unsigned a, b, c, d;
        return __get_cpuid(1, &a, &b, &c, &d) && (c >> 5 & 1);
}

bool host_has_svm(void)
{
        unsigned a, b, c, d;
        return __get_cpuid(0x80000001, &a, &b, &c, &d) && (c >> 2 & 1);
}

void host_cpu_model(char *text, size_t n)
{
        char line[512], model[128] = "unknown model";
        FILE *f = fopen("/proc/cpuinfo", "re");

        while (f && fgets(line, sizeof(line), f))
                if (sscanf(line, "model name : %127[^\n]", model) == 1)
                        break;
        if (f)
                fclose(f);
        snprintf(text, n, "%s", model);
}

struct host_kvm host_kvm(void)
{
        static const struct { const char *module, *parameter, *paging;
        } known[] = {
                { "kvm_intel", "ept", "EPT" },
                { "kvm_amd", "npt", "NPT" },
                { "kvm_pvm", NULL, NULL },
        };
        char path[128], value[16];

        for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
                snprintf(path, sizeof(path), "/sys/module/%s", known[i].module);
                if (access(path, F_OK) != 0)
                        continue;
                struct host_kvm k = { .module = known[i].module, .paging = known[i].paging };
                if (known[i].parameter)
                        snprintf(path, sizeof(path), "/sys/module/%s/parameters/%s",
                                 known[i].module, known[i].parameter);
                k.on = known[i].parameter && host_line(path, value, sizeof(value)) &&
                       (value[0] == 'Y' || value[0] == '1');
                return k;
        }
        return (struct host_kvm){ 0 };
}

bool host_has_shadow_paging(void)
{
        const struct host_kvm k = host_kvm();

        return k.module && !k.on;
}

void host_rdma_devices(char *text, size_t n)
{
        DIR *d = opendir("/sys/class/infiniband");
        size_t used = 0;

        *text = 0;
        for (struct dirent *e; d && (e = readdir(d)); )
                if (e->d_name[0] != '.' && used + strlen(e->d_name) + 2 < n)
                        used += (size_t)sprintf(text + used, "%s%s", used ? " " : "", e->d_name);
        if (d)
                closedir(d);
}

unsigned host_phys_bits(void)
{
        unsigned a, b, c, d;
        return __get_cpuid(0x80000008, &a, &b, &c, &d) ? a & 0xff : 0;
}

unsigned host_cpuid_phys_bits(const struct kvm_cpuid2 *c)
{
        for (unsigned i = 0; i < c->nent; i++)
                if (c->entries[i].function == 0x80000008)
                        return c->entries[i].eax & 0xff;
        return 0;
}

/* Four levels of nested page tables reach 48 bits, whatever the CPU can address. */
unsigned host_cpuid_space_bits(const struct kvm_cpuid2 *c)
{
        unsigned bits = host_cpuid_phys_bits(c), guest = 0;

        for (unsigned i = 0; i < c->nent; i++)
                if (c->entries[i].function == 0x80000008)
                        guest = c->entries[i].eax >> 16 & 0xff; /* GuestPhysBits; 0: not told */
        if (guest && guest < bits)
                bits = guest;
        return bits < 48 ? bits : 48;
}

unsigned host_guest_phys_bits(int kvm_fd, unsigned *space)
{
        enum { ENTRIES = 256 };
        unsigned bits = 0;

        *space = 0;
        struct kvm_cpuid2 *q = calloc(1, sizeof(*q) + ENTRIES * sizeof(q->entries[0]));
        if (!q)
                return 0;
        q->nent = ENTRIES;
        if (ioctl(kvm_fd, KVM_GET_SUPPORTED_CPUID, q) == 0) {
                bits = host_cpuid_phys_bits(q);
                *space = host_cpuid_space_bits(q);
        }
        free(q);
        return bits;
}

int host_check_phys_bits(unsigned host, unsigned guest, const char **why)
{
        static char text[512];
        if (!host || !guest || guest >= host)
                return 0;
        snprintf(text, sizeof(text),
                 "KVM gives its guests %u physical address bits where the host has %u, and would "
                 "intercept every page "
                 "fault: load kvm_intel without allow_smaller_maxphyaddr, or give this virtual "
                 "machine the host's bits; " LAB,
                 guest, host);
        *why = text;
        return -EOPNOTSUPP;
}

/* Why this user may not open /dev/kvm.  Distributions have a group for it; containers often have
 * only a number. */
static const char *why_not_allowed(void)
{
        static char text[512];
        const char *start = "no permission to open /dev/kvm";
        struct group *g;
        struct stat st;

        /* A device control group makes faccessat() fail, too. */
        if (stat("/dev/kvm", &st) != 0 || (st.st_mode & 06) == 06 ||
            faccessat(AT_FDCWD, "/dev/kvm", R_OK | W_OK, AT_EACCESS) == 0)
                snprintf(text, sizeof(text),
                         "%s, though its mode allows it: a container without this device, or "
                         "a security module: start the container with --device /dev/kvm; " LAB,
                         start);
        else if (st.st_gid == 0 || (st.st_mode & 060) != 060)
                snprintf(text, sizeof(text),
                         "%s, which has no group that may (mode %o, owner %u:%u): run vmrun "
                         "as root, or as root let others (chmod 666 /dev/kvm); " LAB,
                         start, st.st_mode & 0777, st.st_uid, st.st_gid);
        else if ((g = getgrgid(st.st_gid)) != NULL)
                snprintf(text, sizeof(text),
                         "%s: add yourself to the group %s (usermod -aG %s NAME) and log in "
                         "again; " LAB,
                         start, g->gr_name, g->gr_name);
        else
                snprintf(text, sizeof(text),
                         "%s: its group has the number %u and no name here: be in it (in a "
                         "container --group-add %u, else groupadd -g %u kvm && usermod -aG kvm "
                         "NAME, and log in "
                         "again); " LAB,
                         start, st.st_gid, st.st_gid, st.st_gid);
        return text;
}

static const char *why_not_open(int err)
{
        static char text[320];
        switch (err) {
        case ENOENT:
                if (!host_has_vmx() && !host_has_svm())
                        return "there is no /dev/kvm, because this CPU shows neither VMX nor SVM: "
                               "enable virtualization in the firmware, or "
                               "nested virtualization if this is a virtual machine; " LAB;
                return "there is no /dev/kvm, because its module is not loaded: modprobe kvm_intel "
                       "or kvm_amd; " LAB;
        case EACCES:
        case EPERM:
                return why_not_allowed();
        case ENODEV:
        case ENXIO:
                return "/dev/kvm is there but nothing serves it: load kvm_intel or kvm_amd, enable "
                       "virtualization in the firmware, or nested "
                       "virtualization if this is a virtual machine; " LAB;
        default:
                snprintf(text, sizeof(text), "cannot open /dev/kvm: %s; " LAB, strerror(err));
                return text;
        }
}

/* The capabilities that vmrun needs. */
static const struct { int cap; const char *name; } needed[] = {
        { KVM_CAP_USER_MEMORY, "KVM_CAP_USER_MEMORY" },
        { KVM_CAP_SYNC_MMU, "KVM_CAP_SYNC_MMU" },
        { KVM_CAP_IMMEDIATE_EXIT, "KVM_CAP_IMMEDIATE_EXIT" },
        { KVM_CAP_EXT_CPUID, "KVM_CAP_EXT_CPUID" },
        { KVM_CAP_XCRS, "KVM_CAP_XCRS" },
};

int host_check_kvm(const char **why)
{
        static char text[320];
        int fd = open("/dev/kvm", O_RDWR | O_CLOEXEC), err = 0;
        if (fd < 0) {
                err = -errno;
                *why = why_not_open(-err);
                return err;
        }
        int version = ioctl(fd, KVM_GET_API_VERSION, 0);
        if (version != KVM_API_VERSION) {
                snprintf(text, sizeof(text),
                         "/dev/kvm speaks version %d of its interface, vmrun needs %d: update the "
                         "kernel; " LAB,
                         version, KVM_API_VERSION);
                err = -EPROTO;
        }
        for (size_t i = 0; !err && i < sizeof(needed) / sizeof(needed[0]); i++)
                if (ioctl(fd, KVM_CHECK_EXTENSION, needed[i].cap) <= 0) {
                        snprintf(text, sizeof(text),
                                 "this KVM lacks %s: use Linux 4.11 or newer; " LAB,
                                 needed[i].name);
                        err = -EOPNOTSUPP;
                }
        *why = text;
        close(fd);
        return err;
}
