/*
 * A host thread and its vCPU.  Program threads run one each; the service thread runs the cleaner's.
 */
#ifndef VMRUN_THREAD_H
#define VMRUN_THREAD_H

#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "abi.h"

struct kvm_run;
struct vm;

/* An alternate signal stack, as sigaltstack() has it. */
struct altstack { uint64_t sp; int32_t flags, pad; uint64_t size; };

/* What a thread knows of its signals (signals.c, sigframe.c). */
struct thread_signals {
        siginfo_t info;                 /* the signal that the host handler took, while sys_put_off is set, */
        uint64_t mask;                  /* and the program's mask then; the host thread itself blocks all */
        bool held;                      /* between signals_hold and signals_release; */
        uint64_t held_mask;             /* the program's mask then */
        bool waits;                     /* the call under way waits with a mask of its own: */
        uint64_t wait_mask;
        bool ends;                      /* that signal had the default action, the program's end: */
        int timer;                      /* of the host, which sees to it that it does end */
        struct altstack alt;
        uint64_t trapno, err, cr2;      /* of the last exception that became a signal: signal frames show them */
};

struct sighand;                         /* dispositions of a process (signals.c) */

struct thread {
        struct vm *vm;
        struct vcpu *v;                 /* this vCPU's block, in the window */
        struct kvm_run *run;
        int vcpu_fd;                    /* private fd */
        pid_t tid, pid;                 /* as the program sees them: the child of a vfork runs on its parent's vCPU, under its own ids */
        _Atomic pid_t kick_tid, kick_pid; /* a kick goes there: in the PID namespace of the process that made the VM */
        bool apart;                     /* the child of a vfork, in another one */
        _Atomic bool kick_asked;        /* by one that is apart (service.c) */
        _Atomic bool sigmask_dirty;     /* the thread's mask changed: tell KVM before the next run */
        bool arena_fault;               /* for EXIT_EVENT: KVM_RUN met a page without memory, */
        uint32_t privileged;            /* the program executed an instruction that only a kernel may: the KVM_EXIT_* it caused; else 0 */
        struct {                        /* an int3 that seems to be on its way since a kick (p = 3; vcpu.c) */
                uint64_t rip;           /* behind it; 0: none */
                int64_t cpu_ns;         /* of this thread's processor time at that kick */
        } soft;
        uint64_t stuck_at;              /* RIP at the last arena_fault */
        unsigned stuck_times;           /* arena faults there, since anything else happened, that no cut file explained */
        bool running;                   /* inside KVM_RUN */
        struct {                        /* watch.c */
                uint64_t seen_ms;       /* the last look, by CLOCK_MONOTONIC; 0: no watch is kept */
                uint64_t waited_ms;     /* so far, since */
                uint64_t work;          /* was seen to grow */
                int timer;
                bool has_timer;
                unsigned exits;
        } watch;
        _Atomic uint32_t kick;          /* may one be sent, is one being sent, was one sent (vcpu.c) */
        siginfo_t parked;               /* si_signo not 0: the program's own SIGSTKFLT, which it blocks, taken from the queue while the guest runs */
        bool bounced;                   /* it was put back once, for other threads */
        struct thread_signals signal;
        struct sighand *sighand;

        /* For threads.c. */
        _Atomic uint32_t safe;          /* 1: touches nothing of the guest until it has looked whether all are to stop */
        bool alive;                     /* a program thread runs here; under the lock of threads.c */
        bool ended;                     /* it has ended: thread_loop() returns */
        bool vforked;                   /* the child of a vfork runs here meanwhile */
        struct thread *next_idle;
        uint32_t pins;                  /* frames it holds (gmem.c) */
        uint64_t clear_tid;             /* what set_tid_address says; kept here, as the vCPU block keeps set_robust_list's, for the host's are vmrun's own */
        void *exec_room;                /* what an execve of a process that borrowed our memory has left behind (exec.c) */
};

/* The program thread that this host thread is; NULL in vmrun's own threads. */
extern _Thread_local struct thread *thread_self;

/* Runs kern for one upcall inside the pending exit; returns upcall.ret.  Only from within an exit of kern. (vcpu.c) */
int64_t thread_upcall(struct thread *t, enum upcall_op op, uint64_t a0, uint64_t a1, uint64_t a2);

#endif
