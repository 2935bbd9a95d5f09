/*
 * The report of vmrun --check has one line a fact.  If something is missing, an indented line below
 * names the consequence.
 */
#include <cpuid.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/kvm.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>
#include "base/host.h"
#include "base/message.h"
#include "base/options.h"
#include "common/size.h"
#include "far/far.h"
#include "settings/check.h"
#include "settings/settings.h"
#include "vm/level.h"
#include "vm/space.h"

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
        char model[128], vendor[13] = "";
        unsigned a, b, c, d;
        struct utsname u;

        if (__get_cpuid(0, &a, &b, &c, &d)) {
                memcpy(vendor, &b, 4);
                memcpy(vendor + 4, &d, 4);
                memcpy(vendor + 8, &c, 4);
        }
        host_cpu_model(model, sizeof(model));
        fact("cpu", "%s, %s, %ld online", vendor, model, sysconf(_SC_NPROCESSORS_ONLN));
        if (uname(&u) == 0)
                fact("kernel", "%s %s", u.sysname, u.release);
        fact("virtualization", "%s",
             host_has_vmx()   ? "VMX"
             : host_has_svm() ? "SVM"
                              : "none shown by this CPU");
        if (!host_has_vmx() && !host_has_svm())
                meaning("no hardware help for KVM: only a KVM that brings page tables of its own "
                        "(kvm_pvm) can work");
}

static void report_module(void)
{
        const struct host_kvm k = host_kvm();

        if (!k.module) {
                fact("kvm module", "%s",
                     access("/sys/module/kvm", F_OK) == 0 ? "kvm, but none for this CPU" : "none");
                meaning("load kvm_intel or kvm_amd");
                return;
        }
        fact("kvm module", "%s", k.module);
        if (!k.paging) {
                fact("nested paging", "none: this KVM keeps page tables of its own");
                meaning("first touch of a page, TLB flushes and exits are slow; memory that is "
                        "mapped runs at full speed");
                return;
        }
        fact("nested paging", "%s %s", k.paging, k.on ? "on" : "off");
        if (!k.on)
                meaning("KVM shadows page tables: every change of one is slow; load the module "
                        "with ept=1 or npt=1");
}

/* Reports the limits of an open /dev/kvm; err: it cannot be used anyway. */
static int report_kvm_limits(int fd, int err)
{
        unsigned host = host_phys_bits(), space, guest = host_guest_phys_bits(fd, &space);
        const char *why;
        char size[32];

        fact("physical bits", "host %u, guest %u", host, guest);
        int bits_err = host_check_phys_bits(host, guest, &why);
        if (bits_err)
                meaning(why);
        const uint64_t cache = opt.cache ? opt.cache : cache_default();
        const struct space_arena arena = space_arena(space, RAM_GPA + POOL_OFF + cache,
                                                     space_pool(cache / PAGE_SIZE, 0));
        fact("shared mappings", "at most %s", space ? size_text(arena.size, size) : "unknown");
        if (arena.size < ARENA_END - ARENA)
                meaning("less by the size of far memory: both share the physical addresses");
        fact("vcpus", "at most %d", ioctl(fd, KVM_CHECK_EXTENSION, KVM_CAP_MAX_VCPUS));
        meaning("one for each thread of the program, one for the cleaner: past that, clone fails "
                "with EAGAIN");
        int slots = ioctl(fd, KVM_CHECK_EXTENSION, KVM_CAP_NR_MEMSLOTS);
        fact("memory slots", "%d", slots);
        if (slots < 500)
                meaning("few: nodes in memory (up to 1 GiB a slot) and shared mappings may run "
                        "out of them");
        return err ? err : bits_err;
}

static int report_kvm(void)
{
        const char *why;
        char text[512] = "";
        int err = host_check_kvm(&why);

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
        int level = vm_probe_level(text, sizeof(text));
        if (level == 0) {
                fact("privilege", "0: program and kern run in guest ring 0");
        } else if (level == 3) {
                fact("privilege",
                     "3: program and kern run in guest ring 3, ring 0 only holds exception stubs");
                meaning("this KVM emulates ring 0: faults, system calls and flushes cost tens of "
                        "microseconds, computing costs nothing");
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

        bool thp = host_line("/sys/kernel/mm/transparent_hugepage/enabled", line, sizeof(line));
        fact("huge pages", "transparent: %s", thp ? line : "not in this kernel");
        if (!thp || strstr(line, "[never]"))
                meaning("the cache is backed by 4 KiB pages, so TLB misses cost more: "
                        "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled");
        if (host_line("/sys/kernel/mm/transparent_hugepage/shmem_enabled", line, sizeof(line))) {
                fact("", "of shared memory: %s", line);
                if (strstr(line, "[never]") || strstr(line, "[deny]"))
                        meaning("a mem: node has 4 KiB pages, so first evictions cost more: "
                                "echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled");
        }
        for (size_t i = 0; i < 2; i++) {
                snprintf(path, sizeof(path), "/sys/kernel/mm/hugepages/hugepages-%skB/nr_hugepages",
                         sizes[i]);
                if (host_number(path, &n) && n) {
                        fact("", "reserved: %llu of %s KiB", (unsigned long long)n, sizes[i]);
                        total += n;
                }
        }
        if (!total)
                fact("", "reserved: none (vmrun does not need them)");
}

/* Settings of the host with which all works, but slower. */
static const struct {
        const char *name, *file;
        const char *const costly[3];    /* values that cost; NULL ends them */
        const char *meaning;
} tunables[] = {
        { "nx huge pages", "/sys/module/kvm/parameters/nx_huge_pages", { "Y" },
          "KVM splits huge pages with code, so faults and TLB misses cost more: if you trust what "
          "your virtual machines run, echo off > /sys/module/kvm/parameters/nx_huge_pages" },
        { "l1d flush", "/sys/module/kvm_intel/parameters/vmentry_l1d_flush", { "always", "cond" },
          "KVM flushes a cache of the CPU on its way into the guest, so exits cost more: if you "
          "trust what your virtual machines run, echo never > "
          "/sys/module/kvm_intel/parameters/vmentry_l1d_flush" },
        { "numa balancing", "/proc/sys/kernel/numa_balancing", { "1", "3" },
          "the kernel unmaps pages of the cache again and again to see who uses them, which costs "
          "a fault each: sysctl kernel.numa_balancing=0, or bind vmrun to one node (numactl)" },
};

static void report_tunables(void)
{
        char line[64];

        for (size_t i = 0; i < sizeof(tunables) / sizeof(tunables[0]); i++) {
                if (!host_line(tunables[i].file, line, sizeof(line)))
                        continue;
                fact(tunables[i].name, "%s", line);
                for (const char *const *c = tunables[i].costly; *c; c++)
                        if (strcmp(*c, line) == 0)
                                meaning(tunables[i].meaning);
        }
}

static void report_limits(void)
{
        struct rlimit r;
        char a[32];
        if (getrlimit(RLIMIT_MEMLOCK, &r) == 0) {
                fact("memlock", "%s",
                     r.rlim_cur == RLIM_INFINITY ? "unlimited" : size_text(r.rlim_cur, a));
                if (r.rlim_cur != RLIM_INFINITY)
                        meaning("an RDMA node must lock the cache: raise it (ulimit -l) when you "
                                "use one; mem: does not need it");
        }
        if (getrlimit(RLIMIT_NOFILE, &r) == 0)
                fact("open files", "soft %llu, hard %llu", (unsigned long long)r.rlim_cur,
                     (unsigned long long)r.rlim_max);
}

static void report_rdma(void)
{
        char names[256];

        host_rdma_devices(names, sizeof(names));
        fact("rdma devices", "%s", *names ? names : "none");
        if (!*names)
                meaning("rdma:// nodes need one (soft-RoCE also does: rdma link add rxe0 type rxe "
                        "netdev IF)");
}

static void report_memory(void)
{
        char a[32], b[32];
        uint64_t available = host_memory_available();
        fact("memory", "%s, %s available", size_text(host_memory_total(), a),
             size_text(available, b));
        fact("defaults", "--cache %s --node mem:%s", size_text(cache_default(), a),
             size_text(available, b));
}

/* Reports the user's set-up: the configuration file (a mistake in it has already ended vmrun), and
 * whether each node is available. */
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
        report_tunables();
        report_limits();
        report_rdma();
        int nodes = report_nodes();
        fact("verdict", "%s%s", err ? "programs cannot run here" : "programs can run here",
             !nodes ? ""
             : err  ? "; not all nodes work"
                    : ", but not all nodes work");
        if (err)
                fact("", "lab/lab, in vmrun's sources, opens a shell on an emulated machine where "
                         "they can");
        if (fflush(stdout) != 0)
                die_(EXIT_VMRUN_FAILED, "cannot write to standard output: %s", strerror(errno));
        return err || nodes ? EXIT_VMRUN_FAILED : 0;
}
