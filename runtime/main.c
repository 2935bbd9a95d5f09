/*
 * vmrun: from the command line to the program's first instruction, in order.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "base/host.h"
#include "base/message.h"
#include "base/options.h"
#include "base/own_thread.h"
#include "base/privfd.h"
#include "common/line.h"
#include "control/control.h"
#include "control/running.h"
#include "exits.h"
#include "far/far.h"
#include "far/io.h"
#include "far/nodes.h"
#include "far/wait.h"
#include "load/auxv.h"
#include "load/image.h"
#include "load/script.h"
#include "memory/files.h"
#include "memory/gmem.h"
#include "process/end.h"
#include "process/exec.h"
#include "process/footprint.h"
#include "process/rlimits.h"
#include "process/service.h"
#include "process/threads.h"
#include "procfs/procfs.h"
#include "profile/profile.h"
#include "replay/replay.h"
#include "settings/absolute.h"
#include "settings/check.h"
#include "settings/command_line.h"
#include "settings/settings_stats.h"
#include "settings/states.h"
#include "signal/signals.h"
#include "stats/facts.h"
#include "stats/interval.h"
#include "stats/report.h"
#include "stats/stats.h"
#include "settings/guide.h"
#include "syscalls/dispatch.h"
#include "vm/counters.h"
#include "vm/guides.h"
#include "vm/kvm.h"
#include "vm/level.h"
#include "vm/time.h"
#include "vm/vcpu.h"

static struct vm vm;
static struct thread first;
static struct image_config config;
static struct image image;
static struct limits_kept limits;       /* the program's first limits, without `before` */

/* Linux's mmap_base without address randomisation: a gap for the stack of at least 128 MiB and at
 * most 5/6 of the address space. */
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

/* The handover of the program before execve; NULL: this is the first program. */
static const struct handover *before;
static const struct limits_kept *first_limits(void) { return before ? &before->limits : &limits; }

/* An I/O thread beside the program pays only where it has a CPU of its own.  After far_init(). */
static void choose_io(void)
{
        if (opt.io == IO_AUTO)
                opt.io = own_cpus_are_one() && !far_needs_thread() ? IO_INLINE : IO_THREAD;
}

static void fill_control(uint64_t far_pages)
{
        struct control *c = CONTROL;

        counters_measure(opt.stats);
        c->debug = opt.debug;
        c->overcommit = opt.overcommit;
        c->shadow_paging = host_has_shadow_paging();
        c->one_cpu = own_cpus_are_one();
        running_apply();
        c->far_pages = far_pages;
        limits_adopt(first_limits());
        c->mmap_top = config.mmap_top;
        c->mmap_min = config.mmap_min;
        c->service_asleep = 1;          /* its thread is made when the doorbell first rings */
}

static int find_program(void)
{
        char path[4096];
        struct why why;
        int err = program_find(path, opt.argv[0], getenv("PATH"), &why);

        if (err)
                die_(image_exit_status(err), "%s%s", why.text, options_hint());
        return image_open(&image, path, opt.argv, environ, &config);
}

/* A program that passed all checks in the vmrun before execve. */
static int take_program(void)
{
        struct program p = { .fd = before->program, .file = before->path, .argv = opt.argv };

        if (fstat(p.fd, &p.st) != 0)
                die_(EXIT_VMRUN_FAILED, "%s: cannot be examined: %s", p.file, strerror(errno));
        return image_take(&image, before->path, &p, environ, &config);
}

/* The program's file, its arguments and environment: everything that can be refused before a VM
 * exists. */
static void open_program(void)
{
        uint64_t stack = limits_stack(first_limits());

        image_config_init(&config, mmap_top(stack), mmap_min(), stack);
        int err = before ? take_program() : find_program();
        if (err)
                die_(image_exit_status(err), "%s%s", image.why.text, options_hint());
        if (image.set_id && !before)
                warnx_("%s has a set-uid or set-gid bit, which vmrun does not honour", image.exe);
        if (!*image.interp)
                guide_missed(opt.argv[0]);
        program_mark_running(image.fd);
        procfs_set_exe(image.exe);
        prctl(PR_SET_NAME, image.comm);
}

/* Functions of the folders above that the VM calls. */
static const struct vm_calls calls = { .serve = exit_serve,
                                       .deadly = signals_deadly,
                                       .peek = gmem_peek,
                                       .kick = service_kick,
                                       .wake_service = service_wake };

static void make_vm(void)
{
        char why[512];
        struct vm_config c = { .nframes = replay_frames(), .profile = opt.profile,
                               .extra = replay_room() };

        if (vm_open(&vm, why, sizeof(why)) != 0)
                die_(EXIT_VMRUN_FAILED, "%s", why);
        vm.calls = &calls;
        far_init(vm_gpa_room(&vm, c.nframes));
        choose_io();
        c.far_pages = far_total_pages();
        if (vm_make_ram(&vm, &c, why, sizeof(why)) != 0)
                die_(EXIT_VMRUN_FAILED, "%s", why);
        fill_control(c.far_pages);
}

/* A private copy of standard error, for messages; -1: none, because it was closed when vmrun
 * started. */
static int own_stderr(void)
{
        int fd = line_open(STDERR_FILENO);

        fd = fd < 0 ? privfd_dup(STDERR_FILENO) : privfd_move(fd);
        if (fd == -EMFILE || fd == -EINVAL)
                return STDERR_FILENO;   /* no number left: better a shared stderr than silence */
        return fd < 0 ? -1 : fd;
}

/* The order of lines in --stats. */
static void register_statistics(void)
{
        stats_begin();
        stats_register_identity();
        stats_register(counters_stats);
        stats_register(syscall_stats);
        stats_register(footprint_stats);
        stats_register(guides_stats);
        stats_register(far_stats);
        stats_register(settings_stats);
        facts_register();
}

int main(int argc, char **argv)
{
        char why[512];

        auxv_take(environ);
        own_threads_init();
        message_prefix("vmrun: ");
        before = exec_resume(argv);
        if (!before) {
                privfd_init();
                limits_begin(&limits);
                message_to(own_stderr());
                options_parse(argc, argv);
                if (opt.command == CMD_CHECK)
                        return check_report();
                if (opt.command == CMD_STATES)
                        return states_print(opt.states_pid);
                options_make_absolute(&opt, NULL);
                guide_preload();
                replay_init();
                exec_init();
                stats_init();
                profile_init();
        }
        far_name();
        open_program();
        register_statistics();
        make_vm();
        replay_start(image.exe, image.brk);
        if (vcpu_start_first(&vm, &first, why, sizeof(why)) != 0)
                die_(EXIT_VMRUN_FAILED, "%s", why);
        time_init(&first);
        wait_first();
        if (image_load(&first, &image) != 0)
                die_(EXIT_VMRUN_FAILED, "%s", image.why.text);
        image_close(&image);
        procfs_set_image(&image);
        files_program_starts();
        threads_init(&first);
        stats_interval_start();
        ctl_start(&vm);
        thread_answer(&first, 0);
        thread_loop(&first);
        thread_finish(&first);
        /* not reached: the first thread ends in there, the program with its last thread */
        abort();
}
