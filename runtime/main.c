/*
 * vmrun: from the command line to the program's first instruction, in order.
 */
#include <errno.h>
#include <linux/capability.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "check.h"
#include "exits.h"
#include "far/far.h"
#include "files.h"
#include "image.h"
#include "procfs.h"
#include "states.h"
#include "stats.h"
#include "vm.h"
#include "vmrun.h"

/* A vCPU's looks at a page under way before it sleeps: some tens of microseconds, as long as a memory node takes to answer. */
#define WAIT_SPINS 1000

static struct vm vm;
static struct thread first, service;
static struct image image;

static uint64_t soft_limit(int resource)
{
        struct rlimit r;
        return getrlimit(resource, &r) == 0 ? r.rlim_cur : RLIM_INFINITY;
}

/* Linux's mmap_base without address randomisation: a gap for the stack, of at least 128 MiB and at most 5/6 of all. */
static uint64_t mmap_top(uint64_t stack_limit)
{
        const uint64_t min = 128ull << 20, max = (uint64_t)TASK_SIZE / 6 * 5;
        uint64_t gap = stack_limit < min ? min : stack_limit > max ? max : stack_limit;
        return (TASK_SIZE - gap) & ~(uint64_t)(PAGE_SIZE - 1);
}

static uint64_t mmap_min(void)
{
        unsigned long v = 65536;
        FILE *f = fopen("/proc/sys/vm/mmap_min_addr", "re");
        if (f) {
                if (fscanf(f, "%lu", &v) != 1)
                        v = 65536;
                fclose(f);
        }
        return v;
}

static void fill_control(uint64_t far_pages)
{
        struct control *c = CONTROL;

        c->stats_on = opt.stats;
        c->debug = opt.debug;
        c->overcommit = opt.overcommit;
        c->far_pages = far_pages;
        c->rlimit_as = soft_limit(RLIMIT_AS);
        c->rlimit_data = soft_limit(RLIMIT_DATA);
        c->rlimit_stack = soft_limit(RLIMIT_STACK);
        c->rlimit_memlock = has_capability(CAP_IPC_LOCK) ? RLIM_INFINITY : soft_limit(RLIMIT_MEMLOCK);
        c->mmap_top = mmap_top(c->rlimit_stack);
        c->mmap_min = mmap_min();
        c->pid = (uint32_t)getpid();
        c->wait_spins = opt.io == IO_INLINE ? 0 : WAIT_SPINS;
        c->service_asleep = 1;          /* its thread is made when the bell first rings */
}

/* The program's file, its arguments and environment: everything that can be refused before a VM exists. */
static void open_program(void)
{
        char path[4096];
        struct why why;
        struct image_config c;
        int err = program_find(path, opt.argv[0], getenv("PATH"), &why);

        if (err)
                die_(image_exit_status(err), "%s", why.text);
        image_config_init(&c, CONTROL);
        err = image_open(&image, path, opt.argv, environ, &c);
        if (err)
                die_(image_exit_status(err), "%s", image.why.text);
        if (image.set_id)
                warnx_("%s has a set-uid or set-gid bit, which vmrun does not honour", image.exe);
        procfs_set_exe(image.exe);
        prctl(PR_SET_NAME, image.comm);
}

static void make_vm(void)
{
        char why[512];
        struct vm_config c = { .nframes = opt.cache / PAGE_SIZE };

        if (vm_open(&vm, why, sizeof why) != 0)
                die_(EXIT_VMRUN_FAILED, "%s", why);
        far_init(vm_gpa_room(&vm, c.nframes));
        c.far_pages = far_total_pages();
        if (vm_make_ram(&vm, &c, why, sizeof why) != 0)
                die_(EXIT_VMRUN_FAILED, "%s", why);
        fill_control(c.far_pages);
}

static void *service_main(void *arg)
{
        char why[512];
        (void)arg;
        prctl(PR_SET_NAME, "vmrun-cleaner");
        if (vcpu_create(&vm, &service, 1, ROLE_SERVICE, why, sizeof why) != 0)
                die_(EXIT_VMRUN_FAILED, "%s", why);
        service.tid = (pid_t)syscall(SYS_gettid);
        thread_loop(&service);
}

static void service_start(void)
{
        pthread_t id;
        uint64_t all = ~0ull, old;

        /* Signals are the program's: this thread takes none, not even the two that libc would leave open. */
        syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, &old, sizeof all);
        int err = pthread_create(&id, NULL, service_main, NULL);
        syscall(SYS_rt_sigprocmask, SIG_SETMASK, &old, NULL, sizeof old);
        if (err)
                die_(EXIT_VMRUN_FAILED, "the cleaner's thread cannot be made: %s", strerror(err));
}

void service_ensure(void)
{
        static pthread_once_t once = PTHREAD_ONCE_INIT;
        pthread_once(&once, service_start);
}

int main(int argc, char **argv)
{
        char why[512];

        privfd_init();
        message_init();
        options_parse(argc, argv);
        if (opt.command == CMD_CHECK)
                return check_report();
        if (opt.command == CMD_STATES)
                return states_print(opt.states_pid);
        stats_init();
        kick_init();
        make_vm();
        open_program();
        if (vcpu_start_first(&vm, &first, why, sizeof why) != 0)
                die_(EXIT_VMRUN_FAILED, "%s", why);
        time_init(&first);
        if (image_load(&first, &image) != 0)
                die_(EXIT_VMRUN_FAILED, "%s", image.why.text);
        image_close(&image);
        procfs_set_image(&image);
        files_program_starts();
        first.v->exit.ret = 0;
        thread_loop(&first);
}
