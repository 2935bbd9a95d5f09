/*
 * A host thread and its vCPU.  Each thread of the program runs a vCPU; the service thread runs the
 * cleaner's.
 */
#ifndef VMRUN_THREAD_H
#define VMRUN_THREAD_H

#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "abi_exits.h"
#include "abi_vcpu.h"
#include "include/allocator.h"

struct kvm_run;
struct vm;

/* An alternate signal stack, as sigaltstack() has it. */
struct altstack { uint64_t sp; int32_t flags, pad; uint64_t size; };

/* A thread's signal state (signal/signals.c, signal/sigframe.c). */
struct thread_signals {
        /* the signal that the host handler took, while sys_put_off is set, */
        siginfo_t info;
        /* and the program's mask then; the host thread itself blocks all */
        uint64_t mask;
        bool held;                      /* between signals_hold and signals_release; */
        uint64_t held_mask;             /* the program's mask then */
        bool waits;                     /* the call under way waits with its own mask: */
        uint64_t wait_mask;
        bool ends;                      /* the default action of that signal ends the program: */
        int timer;                      /* a host timer that makes sure that it ends */
        struct altstack alt;
        /* of the last exception that became a signal: signal frames show them */
        uint64_t trapno, err, cr2;
};

/* How a thread ends. Set within an exit of kern; thread_loop() then returns, with that exit still
 * pending. */
struct thread_end {
        enum {
                END_NOT,
                END_THREAD,             /* others continue */
                END_PROGRAM,            /* with a status */
                END_KILLED,             /* the program ends by a signal */
                END_CHILD,              /* of a vfork, with a status: its parent continues */
        } how;
        int status;
        int signo, code;                /* END_KILLED: the signal, its si_code and si_addr */
        uint64_t addr;
};

struct sighand;                         /* dispositions of a process (signal/signals.c) */

struct thread {
        struct vm *vm;
        struct vcpu *v;                 /* this vCPU's block, in the window */
        struct kvm_run *run;
        int vcpu_fd;                    /* private fd */
        /* as the program sees them: the child of a vfork runs on its parent's vCPU, with its own
         * ids */
        pid_t tid, pid;
        /* the target of a kick: in the PID namespace of the process that made the VM */
        _Atomic pid_t kick_tid, kick_pid;
        bool apart;                     /* the child of a vfork, in another PID namespace */
        _Atomic bool kick_asked;        /* by a thread that is apart (process/service.c) */
        /* the thread's mask changed: tell KVM before the next run */
        _Atomic bool sigmask_dirty;
        bool arena_fault;               /* for EXIT_EVENT: KVM_RUN met a page without memory, */
        /* the program executed an instruction that only a kernel may, or a fatal split lock
         * (KVM_EXIT_EXCEPTION): the KVM_EXIT_* it caused; else 0 */
        uint32_t privileged;
        struct {                        /* an int3 that seems to be pending (p = 3; vcpu.c) */
                uint64_t rip;           /* RIP behind it; 0: none */
                int64_t cpu_ns;         /* this thread's processor time at the first kick */
        } soft;
        uint64_t stuck_at;              /* RIP at the last arena_fault */
        /* since when there are only arena faults there, that no truncated file explains, in ms by
         * CLOCK_MONOTONIC; 0: a system call or a signal came since */
        int64_t stuck_since;
        bool running;               /* inside KVM_RUN */
        struct {                    /* watch.c */
                uint64_t seen_ms;   /* the last look, by CLOCK_MONOTONIC; 0: there is no watch */
                uint64_t waited_ms; /* so far, since */
                uint64_t work;      /* was seen to grow */
                int timer;
                bool has_timer;
                unsigned exits;
        } watch;
        /* KICK_*: may a kick be sent, is one being sent, was one sent (vcpu.c) */
        _Atomic uint32_t kick;
        /* si_signo not 0: the program's own SIGSTKFLT, which it blocks, taken from the queue while
         * the guest runs */
        siginfo_t parked;
        /* a host timer, if there is one: offers the signal to others again */
        int parked_timer;
        bool has_parked_timer;
        bool bounced;                   /* the signal was put back once, for other threads */
        struct thread_signals signal;
        struct sighand *sighand;

        /* For vm/stop.c. */
        /* 1: touches nothing of the guest before it has checked whether all must stop */
        _Atomic uint32_t safe;
        /* a program thread runs here; under the lock of vm/stop.c */
        bool alive;
        struct thread_end end;
        bool vforked;                   /* the child of a vfork runs on this vCPU meanwhile */
        /* vforked: by this the child asks its parent's thread (process/vfork.c); else NULL */
        struct vfork_lender *lender;
        int next;               /* vforked: of the program that it executes, the number in the tree;
                                 * negative: it has none */
        struct thread *next_idle;
        uint32_t pins;                  /* frames that it has pinned (memory/gmem.c) */
        /* the argument of set_tid_address; kept here, as that of set_robust_list in the vCPU block,
         * because on the host vmrun uses its own */
        uint64_t clear_tid;
        /* left behind by an execve of a process that shared our address space (syscalls/exec.c) */
        void *exec_room;
};

/* The program thread that this host thread runs; NULL in vmrun's own threads. */
extern _Thread_local struct thread *thread_self;
/* A signal was taken: the program's system calls are put off until its handler has run
 * (marshal/call.c). Set by the host's signal handler. */
extern _Thread_local _Atomic uint32_t sys_put_off;

/* Runs kern for one upcall inside the pending exit; returns upcall.ret.  Only from within an exit
 * of kern. (vcpu.c) */
int64_t thread_upcall(struct thread *t, enum upcall_op op, uint64_t a0, uint64_t a1, uint64_t a2);

#endif
