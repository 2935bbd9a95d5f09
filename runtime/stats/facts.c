/*
 * Facts beside the numbers: the vmrun, program, host and KVM that they are of.  They are found out
 * once: with --stats before the program can change this process's view of the host, else at the
 * first request.
 */
#ifdef HAVE_CONFIG_H
#include "config.h"
#include "stats/stats.h"
#endif
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>
#include "base/host.h"
#include "base/options.h"
#include "stats/facts.h"

#ifndef PACKAGE_VERSION
#define PACKAGE_VERSION "unknown"
#endif

static char kernel[96], cpu[128], cpus[16], kvm[64], rdma[256];

/* Takes a while. */
static void find_out(void)
{
        const struct host_kvm k = host_kvm();
        struct utsname u;

        snprintf(kernel, sizeof(kernel), "%s", uname(&u) == 0 ? u.release : "unknown");
        host_cpu_model(cpu, sizeof(cpu));
        snprintf(cpus, sizeof(cpus), "%ld", sysconf(_SC_NPROCESSORS_ONLN));
        snprintf(kvm, sizeof(kvm), "%s%s%s%s", k.module ? k.module : "none",
                 k.paging                    ? ", "
                 : k.module                  ? ", page tables of its own"
                                             : "",
                 k.paging ? k.paging : "", !k.paging ? "" : k.on ? " on" : " off");
        host_rdma_devices(rdma, sizeof(rdma));
        if (!*rdma)
                strcpy(rdma, "none");
}

static void add_facts(struct stats *s)
{
        static const struct stats_kind about = {
                .key = "about.%", .type = STATS_TEXT,
                .help = "What runs where: vmrun, the program, the host and its KVM",
        };

        if (stats_only_counters(s))
                return;
        if (!*kernel)
                find_out();
        stats_text(s, &about, "version", PACKAGE_VERSION, false);
        stats_text(s, &about, "program", opt.argv && opt.argv[0] ? opt.argv[0] : "", false);
        stats_text(s, &about, "kernel", kernel, false);
        stats_text(s, &about, "cpu", cpu, false);
        stats_text(s, &about, "cpus", cpus, true);
        stats_text(s, &about, "kvm", kvm, false);
        stats_text(s, &about, "rdma", rdma, false);
}

void facts_register(void)
{
        stats_register(add_facts);
        if (opt.stats)
                find_out();
}
