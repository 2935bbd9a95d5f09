/*
 * What this host offers: see check.h.  The report of vmrun --check has one line a fact, and under it, indented, what it
 * means where something is missing.
 */
#include <cpuid.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/kvm.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>
#include "check.h"
#include "far/far.h"
#include "settings.h"
#include "vmrun.h"

#define LAB "or try it in the lab, which needs none: lab/lab -- build/vmrun PROGRAM"

/* --- reading small files --- */

/* First line of a file, without its newline; false if it cannot be read. */
static bool read_line(const char *path, char *line, size_t n)
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
        if (!read_line(path, line, sizeof(line)) || sscanf(line, "%llu", &n) != 1)
                return false;
        *v = n;
        return true;
}

/* The tightest memory.max (and what is left below it) of this process' control groups, version 2. */
static void cgroup_memory(uint64_t *limit, uint64_t *left)
{
        char text[1024], path[1200];
        uint64_t max, used;

        *limit = *left = UINT64_MAX;
        if (!read_line("/proc/self/cgroup", text, sizeof(text)) || strncmp(text, "0::/", 4) != 0)
                return;
        for (char *group = text + 3; group; ) {
                snprintf(path, sizeof(path), "/sys/fs/cgroup%s/memory.max", group);
                if (host_number(path, &max)) {          /* "max" is no number */
                        snprintf(path, sizeof(path), "/sys/fs/cgroup%s/memory.current", group);
                        if (!host_number(path, &used) || used > max)
                                used = 0;
                        *limit = max < *limit ? max : *limit;
                        *left = max - used < *left ? max - used : *left;
                }
                char *slash = strrchr(group, '/');
                if (!slash)
                        break;
                *slash = 0;                             /* "/a/b", "/a", "": the last is the root */
        }
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
        uint64_t limit, left;
        cgroup_memory(&limit, &left);
        return least(meminfo("MemTotal"), limit);
}

uint64_t host_memory_available(void)
{
        uint64_t limit, left;
        cgroup_memory(&limit, &left);
        return least(meminfo("MemAvailable"), left);
}

/* --- can KVM be used? --- */

static bool cpu_has_vmx(void)
{
        unsigned a, b, c, d;
        return __get_cpuid(1, &a, &b, &c, &d) && (c >> 5 & 1);
}

static bool cpu_has_svm(void)
{
        unsigned a, b, c, d;
        return __get_cpuid(0x80000001, &a, &b, &c, &d) && (c >> 2 & 1);
}

unsigned check_host_phys_bits(void)
{
        unsigned a, b, c, d;
        return __get_cpuid(0x80000008, &a, &b, &c, &d) ? a & 0xff : 0;
}

unsigned check_cpuid_phys_bits(const struct kvm_cpuid2 *c)
{
        for (unsigned i = 0; i < c->nent; i++)
                if (c->entries[i].function == 0x80000008)
                        return c->entries[i].eax & 0xff;
        return 0;
}

unsigned check_guest_phys_bits(int kvm_fd)
{
        enum { ENTRIES = 256 };
        unsigned bits = 0;
        struct kvm_cpuid2 *q = calloc(1, sizeof(*q) + ENTRIES * sizeof(q->entries[0]));
        if (!q)
                return 0;
        q->nent = ENTRIES;
        if (ioctl(kvm_fd, KVM_GET_SUPPORTED_CPUID, q) == 0)
                bits = check_cpuid_phys_bits(q);
        free(q);
        return bits;
}

int check_phys_bits(unsigned host, unsigned guest, const char **why)
{
        static char text[512];
        if (!host || !guest || guest >= host)
                return 0;
        snprintf(text, sizeof(text), "KVM gives its guests %u physical address bits where the host has %u, and would intercept every page "
                 "fault: load kvm_intel without allow_smaller_maxphyaddr, or give this virtual machine the host's bits; " LAB,
                 guest, host);
        *why = text;
        return -EOPNOTSUPP;
}

/* Who may open /dev/kvm differs: distributions have a group for it, containers often a number only. */
static const char *why_not_allowed(void)
{
        static char text[512];
        const char *start = "no permission to open /dev/kvm";
        struct group *g;
        struct stat st;

        if (stat("/dev/kvm", &st) != 0 || faccessat(AT_FDCWD, "/dev/kvm", R_OK | W_OK, AT_EACCESS) == 0)
                snprintf(text, sizeof(text), "%s, though its mode allows it: a container without this device, or "
                         "a security module: start the container with --device /dev/kvm; " LAB, start);
        else if (st.st_gid == 0 || (st.st_mode & 060) != 060)
                snprintf(text, sizeof(text), "%s, which has no group that may (mode %o, owner %u:%u): run vmrun "
                         "as root, or as root let others (chmod 666 /dev/kvm); " LAB, start,
                         st.st_mode & 0777, st.st_uid, st.st_gid);
        else if ((g = getgrgid(st.st_gid)) != NULL)
                snprintf(text, sizeof(text), "%s: add yourself to the group %s (usermod -aG %s NAME) and log in "
                         "again; " LAB, start, g->gr_name, g->gr_name);
        else
                snprintf(text, sizeof(text), "%s: its group has the number %u and no name here: be in it (in a "
                         "container --group-add %u, else groupadd -g %u kvm && usermod -aG kvm NAME, and log in "
                         "again); " LAB, start, st.st_gid, st.st_gid, st.st_gid);
        return text;
}

static const char *why_not_open(int err)
{
        static char text[320];
        switch (err) {
        case ENOENT:
                if (!cpu_has_vmx() && !cpu_has_svm())
                        return "there is no /dev/kvm, because this CPU shows neither VMX nor SVM: enable virtualization in the firmware, or "
                               "nested virtualization if this is a virtual machine; " LAB;
                return "there is no /dev/kvm, because its module is not loaded: modprobe kvm_intel or kvm_amd; " LAB;
        case EACCES:
        case EPERM:
                return why_not_allowed();
        case ENODEV:
        case ENXIO:
                return "/dev/kvm is there but nothing serves it: load kvm_intel or kvm_amd, enable virtualization in the firmware, or nested "
                       "virtualization if this is a virtual machine; " LAB;
        default:
                snprintf(text, sizeof(text), "cannot open /dev/kvm: %s; " LAB, strerror(err));
                return text;
        }
}

/* What vmrun cannot do without. */
static const struct { int cap; const char *name; } needed[] = {
        { KVM_CAP_USER_MEMORY, "KVM_CAP_USER_MEMORY" },
        { KVM_CAP_SYNC_MMU, "KVM_CAP_SYNC_MMU" },
        { KVM_CAP_IMMEDIATE_EXIT, "KVM_CAP_IMMEDIATE_EXIT" },
        { KVM_CAP_EXT_CPUID, "KVM_CAP_EXT_CPUID" },
        { KVM_CAP_XCRS, "KVM_CAP_XCRS" },
};

int check_kvm_usable(const char **why)
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
                snprintf(text, sizeof(text), "/dev/kvm speaks version %d of its interface, vmrun needs %d: update the kernel; " LAB, version,
                         KVM_API_VERSION);
                err = -EPROTO;
        }
        for (size_t i = 0; !err && i < sizeof(needed) / sizeof(needed[0]); i++)
                if (ioctl(fd, KVM_CHECK_EXTENSION, needed[i].cap) <= 0) {
                        snprintf(text, sizeof(text), "this KVM lacks %s: use Linux 4.11 or newer; " LAB, needed[i].name);
                        err = -EOPNOTSUPP;
                }
        *why = text;
        close(fd);
        return err;
}

/* --- the report --- */

static void __attribute__((format(printf, 2, 3))) fact(const char *name, const char *fmt, ...)
{
        va_list ap;
        printf("%-16s", name);
        va_start(ap, fmt);
        vprintf(fmt, ap);
        va_end(ap);
        putchar('\n');
}

static void meaning(const char *text)
{
        printf("%-16s  %s\n", "", text);
}

static void report_cpu(void)
{
        char line[512], model[128] = "unknown model", vendor[13] = "";
        unsigned a, b, c, d;
        struct utsname u;

        if (__get_cpuid(0, &a, &b, &c, &d)) {
                memcpy(vendor, &b, 4);
                memcpy(vendor + 4, &d, 4);
                memcpy(vendor + 8, &c, 4);
        }
        FILE *f = fopen("/proc/cpuinfo", "re");
        while (f && fgets(line, sizeof(line), f))
                if (sscanf(line, "model name : %127[^\n]", model) == 1)
                        break;
        if (f)
                fclose(f);
        fact("cpu", "%s, %s, %ld online", vendor, model, sysconf(_SC_NPROCESSORS_ONLN));
        if (uname(&u) == 0)
                fact("kernel", "%s %s", u.sysname, u.release);
        fact("virtualization", "%s", cpu_has_vmx() ? "VMX" : cpu_has_svm() ? "SVM" : "none shown by this CPU");
        if (!cpu_has_vmx() && !cpu_has_svm())
                meaning("no hardware help for KVM: only a KVM that brings page tables of its own (kvm_pvm) can work");
}

static void report_module(void)
{
        static const struct { const char *module, *parameter, *name; } flavours[] = {
                { "kvm_intel", "ept", "EPT" }, { "kvm_amd", "npt", "NPT" }, { "kvm_pvm", NULL, NULL },
        };
        char path[128], value[16];

        for (size_t i = 0; i < sizeof(flavours) / sizeof(flavours[0]); i++) {
                snprintf(path, sizeof(path), "/sys/module/%s", flavours[i].module);
                if (access(path, F_OK) != 0)
                        continue;
                fact("kvm module", "%s", flavours[i].module);
                if (!flavours[i].parameter) {
                        fact("nested paging", "none: this KVM keeps page tables of its own");
                        meaning("first touch of a page, TLB flushes and exits are slow; memory that is mapped runs at full speed");
                        return;
                }
                snprintf(path, sizeof(path), "/sys/module/%s/parameters/%s", flavours[i].module, flavours[i].parameter);
                bool on = read_line(path, value, sizeof(value)) && (value[0] == 'Y' || value[0] == '1');
                fact("nested paging", "%s %s", flavours[i].name, on ? "on" : "off");
                if (!on)
                        meaning("KVM shadows page tables: every change of one is slow; load the module with ept=1 or npt=1");
                return;
        }
        fact("kvm module", "%s", access("/sys/module/kvm", F_OK) == 0 ? "kvm, but none for this CPU" : "none");
        meaning("load kvm_intel or kvm_amd");
}

/* What an open /dev/kvm says of itself; err: it cannot be used anyway. */
static int report_kvm_limits(int fd, int err)
{
        unsigned host = check_host_phys_bits(), guest = check_guest_phys_bits(fd);
        const char *why;

        fact("physical bits", "host %u, guest %u", host, guest);
        int bits_err = check_phys_bits(host, guest, &why);
        if (bits_err)
                meaning(why);
        fact("vcpus", "at most %d", ioctl(fd, KVM_CHECK_EXTENSION, KVM_CAP_MAX_VCPUS));
        meaning("one for each thread of the program, one for the cleaner: past that, clone fails with EAGAIN");
        int slots = ioctl(fd, KVM_CHECK_EXTENSION, KVM_CAP_NR_MEMSLOTS);
        fact("memory slots", "%d", slots);
        if (slots < 500)
                meaning("few: far tiers in memory (up to 1 GiB a slot) and shared mappings may run out of them");
        return err ? err : bits_err;
}

static int report_kvm(void)
{
        const char *why;
        char text[512] = "";
        int err = check_kvm_usable(&why);

        fact("/dev/kvm", "%s", err ? "cannot be used" : "can be used");
        if (err)
                meaning(why);
        int fd = open("/dev/kvm", O_RDWR | O_CLOEXEC);
        if (fd >= 0) {
                err = report_kvm_limits(fd, err);
                close(fd);
        }
        if (err)
                return err;
        int level = kvm_probe_level(text, sizeof(text));
        if (level == 0) {
                fact("privilege", "0: program and kern run in guest ring 0");
        } else if (level == 3) {
                fact("privilege", "3: program and kern run in guest ring 3, ring 0 only holds exception stubs");
                meaning("this KVM emulates ring 0: faults, system calls and flushes cost tens of microseconds, computing costs nothing");
        } else {
                fact("privilege", "none works");
                meaning(text);
        }
        return level < 0 ? level : 0;
}

static void report_huge_pages(void)
{
        static const char *const sizes[] = { "2048", "1048576" };
        char line[128], path[128];
        uint64_t n, total = 0;

        bool thp = read_line("/sys/kernel/mm/transparent_hugepage/enabled", line, sizeof(line));
        fact("huge pages", "transparent: %s", thp ? line : "not in this kernel");
        if (!thp || strstr(line, "[never]"))
                meaning("the cache is backed by 4 KiB pages, so TLB misses cost more: "
                        "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled");
        for (size_t i = 0; i < 2; i++) {
                snprintf(path, sizeof(path), "/sys/kernel/mm/hugepages/hugepages-%skB/nr_hugepages", sizes[i]);
                if (host_number(path, &n) && n) {
                        fact("", "reserved: %llu of %s KiB", (unsigned long long)n, sizes[i]);
                        total += n;
                }
        }
        if (!total)
                fact("", "reserved: none (vmrun does not need them)");
}

static void report_limits(void)
{
        struct rlimit r;
        char a[32];
        if (getrlimit(RLIMIT_MEMLOCK, &r) == 0) {
                fact("memlock", "%s", r.rlim_cur == RLIM_INFINITY ? "unlimited" : size_text(r.rlim_cur, a));
                if (r.rlim_cur != RLIM_INFINITY)
                        meaning("an RDMA node must lock the cache: raise it (ulimit -l) when you use one; mem: does not need it");
        }
        if (getrlimit(RLIMIT_NOFILE, &r) == 0)
                fact("open files", "soft %llu, hard %llu", (unsigned long long)r.rlim_cur, (unsigned long long)r.rlim_max);
}

static void report_rdma(void)
{
        char names[256] = "";
        DIR *d = opendir("/sys/class/infiniband");
        for (struct dirent *e; d && (e = readdir(d)); )
                if (e->d_name[0] != '.' && strlen(names) + strlen(e->d_name) + 2 < sizeof(names))
                        strcat(strcat(names, *names ? " " : ""), e->d_name);
        if (d)
                closedir(d);
        fact("rdma devices", "%s", *names ? names : "none");
        if (!*names)
                meaning("rdma:// nodes need one (soft-RoCE also does: rdma link add rxe0 type rxe netdev IF)");
}

static void report_memory(void)
{
        char a[32], b[32];
        uint64_t available = host_memory_available();
        fact("memory", "%s, %s available", size_text(host_memory_total(), a), size_text(available, b));
        fact("defaults", "--cache %s --node mem:%s", size_text(cache_default(), a), size_text(available, b));
}

/* What the user set up: the file, whose mistakes ended vmrun already, and whether each node can be had. */
static int report_nodes(void)
{
        fact("settings", "%s", opt.config ? opt.config : "no configuration file");
        fflush(stdout);                 /* a node that does not answer takes a while */
        return far_check(stdout);
}

int check_report(void)
{
        report_cpu();
        report_module();
        int err = report_kvm();
        report_memory();
        report_huge_pages();
        report_limits();
        report_rdma();
        int nodes = report_nodes();
        fact("verdict", "%s%s", err ? "programs cannot run here" : "programs can run here", !nodes ? "" : err ? "; not all nodes work" :
             ", but not all nodes work");
        if (fflush(stdout) != 0)
                die_(EXIT_VMRUN_FAILED, "cannot write to standard output: %s", strerror(errno));
        return err || nodes ? EXIT_VMRUN_FAILED : 0;
}
