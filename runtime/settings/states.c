/*
 * vmrun --states PID: what the vCPUs of a running vmrun are doing.  Read from outside through
 * /proc, so it also works if that vmrun hangs.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "abi_control.h"
#include "abi_image.h"
#include "abi_vcpu.h"
#include "base/message.h"
#include "settings/states.h"
#include "vm/counters.h"

#define GIVE "give the number of a process that vmrun runs (vmctl list shows them)"

static const char *const modes[] = {
        [MODE_OUT] = "out", [MODE_KERN] = "kern", [MODE_PROGRAM] = "program", [MODE_TAKEN] = "out"
};

static void print_vcpu(unsigned n, const struct vcpu *v, const struct vcpu_fixed *f)
{
        typedef unsigned long long ull;

        printf("vcpu %u: %s p=%u mode=%s", n, f->role == ROLE_SERVICE ? "cleaner" : "program",
               f->level, v->mode <= MODE_TAKEN ? modes[v->mode] : "?");
        printf(" exit=%s(%#llx, %#llx) upcall=%u event=%#x flushed=%llu faulting=%#llx\n",
               counters_exit_name(v->exit.op), (ull)v->exit.a[0], (ull)v->exit.a[1], v->upcall.op,
               v->event, (ull)v->flushed, v->faulting ? (ull)v->faulting - 1 : 0);
        printf("        last entry to kern: rip=%#llx rsp=%#llx rax=%#llx cr2=%#llx; free frames "
               "in stock: %u\n",
               (ull)v->regs.rip, (ull)v->regs.rsp, (ull)v->regs.rax, (ull)v->cr2, v->frames.free.n);
}

static void print_file(const char *dir, const char *name)
{
        char path[300], text[256];
        snprintf(path, sizeof(path), "%s/%s", dir, name);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
        if (fd >= 0)
                close(fd);
        text[n > 0 ? n : 0] = 0;
        text[strcspn(text, "\n")] = 0;
        printf(" %s: %s", name, text);
}

static void print_threads(const char *pid)
{
        char dir[64];
        snprintf(dir, sizeof(dir), "/proc/%s/task", pid);
        DIR *d = opendir(dir);
        for (struct dirent *e; d && (e = readdir(d)); ) {
                if (e->d_name[0] == '.')
                        continue;
                char task[340];
                snprintf(task, sizeof(task), "%s/%s", dir, e->d_name);
                printf("thread %s:", e->d_name);
                print_file(task, "comm");
                print_file(task, "wchan");
                print_file(task, "syscall");
                printf("\n");
        }
        if (d)
                closedir(d);
}

int states_print(const char *pid)
{
        static struct control c;
        char path[64];

        if (!*pid || pid[strspn(pid, "0123456789")] || strlen(pid) > 10)
                die_(EXIT_VMRUN_FAILED, "--states %s: " GIVE, pid);
        snprintf(path, sizeof(path), "/proc/%s/mem", pid);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0 && (errno == EACCES || errno == EPERM))
                die_(EXIT_VMRUN_FAILED,
                     "--states %s: the memory of this process may not be read: if vmrun "
                     "runs it, ask as its user, or as root",
                     pid);
        if (fd < 0 && errno == ENOENT)
                die_(EXIT_VMRUN_FAILED, "--states %s: there is no such process: " GIVE, pid);
        if (fd < 0 && errno != ESRCH)   /* a kernel thread, or a zombie */
                die_(EXIT_VMRUN_FAILED, "--states %s: %s: %s", pid, path, strerror(errno));
        if (pread(fd, &c, sizeof(c), (off_t)(WINDOW + CONTROL_OFF)) != sizeof(c) ||
            c.abi_version != ABI_VERSION)
                die_(EXIT_VMRUN_FAILED,
                     "--states %s: no vmrun of this version runs this process: " GIVE, pid);
        for (unsigned i = 0; i < c.nvcpus && i < VCPUS_MAX; i++) {
                struct vcpu v;
                struct vcpu_fixed f;
                if (pread(fd, &v, sizeof(v), (off_t)(uint64_t)vcpu_block(i)) == sizeof(v) &&
                    pread(fd, &f, sizeof(f), (off_t)(uint64_t)vcpu_fixed(vcpu_block(i))) ==
                            sizeof(f))
                        print_vcpu(i, &v, &f);
        }
        printf("flush epoch %llu, cleaner %s, waiting for frames: %u, starved: %u%s\n",
               (unsigned long long)c.flush_epoch, c.service_asleep ? "asleep" : "awake",
               c.frames_waiters, c.starved, c.one_cpu ? ", all on one CPU" : "");
        print_threads(pid);
        close(fd);
        return 0;
}
