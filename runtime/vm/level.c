/*
 * The privilege level of program and kern, found by trying; opening and closing a whole VM.
 *
 * Program and kern run at privilege level p. p = 0 wherever KVM runs ring 0 natively (VMX, SVM).
 * Where it would emulate ring 0 instruction by instruction, p = 3.  The level is found by trying:
 * no instruction emulator knows kern's first instruction.
 */
#include <errno.h>
#include <linux/kvm.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "abi_control.h"
#include "base/privfd.h"
#include "vm/kvm.h"
#include "vm/level.h"
#include "vm/vcpu.h"
#include "vm/vcpu_setup.h"

static bool forced_level(int *level)
{
        const char *e = getenv("VMRUN_LEVEL");
        if (!e || (strcmp(e, "0") != 0 && strcmp(e, "3") != 0))
                return false;
        *level = *e - '0';
        return true;
}

/* Starts t's vCPU at vm->level and sees whether kern comes up. */
static int try_level(struct vm *vm, struct thread *t)
{
        CONTROL->level = (uint32_t)vm->level;
        vm_map_window(vm);
        int err = vcpu_reset(t, ROLE_PROGRAM);
        vcpu_fixed(t->v)->tid = (uint32_t)t->tid;
        vcpu_fixed(t->v)->pid = (uint32_t)t->pid;
        if (err == 0)
                err = vcpu_try_run(t);
        return err == 0 && t->v->exit.op != EXIT_READY ? -EIO : err;
}

static int create_first(struct vm *vm, struct thread *t, char *why, size_t n)
{
        t->tid = (pid_t)syscall(SYS_gettid);
        t->pid = getpid();
        t->kick_tid = t->tid;
        t->kick_pid = t->pid;
        return vcpu_create(vm, t, 0, ROLE_PROGRAM, why, n);
}

int vcpu_start_known(struct vm *vm, struct thread *t, char *why, size_t n)
{
        int err = create_first(vm, t, why, n);

        if (err)
                return err;
        err = try_level(vm, t);
        if (err)
                snprintf(why, n, "kern does not start in ring %d any more (exit reason %u)",
                         vm->level, t->run->exit_reason);
        return err;
}

int vcpu_start_first(struct vm *vm, struct thread *t, char *why, size_t n)
{
        bool forced = forced_level(&vm->level);
        int err = create_first(vm, t, why, n);

        if (err)
                return err;
        err = try_level(vm, t);
        if (err && !forced) {
                vm->level = 3;
                err = try_level(vm, t);
        }
        if (err)
                snprintf(why, n,
                         "KVM on this host runs programs neither in ring 0 nor in ring 3 (exit "
                         "reason %u): vmrun needs VMX, SVM or "
                         "a pagetable-based KVM with native ring 3",
                         t->run->exit_reason);
        return err;
}

int vm_probe_level(char *why, size_t n)
{
        struct vm vm;
        struct thread t = { .vcpu_fd = -1 };
        const struct vm_config c = { .nframes = 64, .far_pages = 0 };
        int err = vm_open(&vm, why, n);

        if (err)
                return err;
        t.vm = &vm;
        err = vm_make_ram(&vm, &c, why, n);
        if (err == 0)
                err = vcpu_start_first(&vm, &t, why, n);
        int level = vm.level;
        vcpu_destroy(&t);
        vm_close(&vm);
        return err ? err : level;
}

/* /dev/kvm stays open: the program may have changed its root or its user, so that opening it again
 * could fail. */
void vm_away(struct vm *vm)
{
        for (size_t i = 0; i < sizeof(vm->thread) / sizeof(vm->thread[0]); i++)
                if (vm->thread[i])
                        vcpu_destroy(vm->thread[i]);
        privfd_close(vm->fd);
}

int vm_renew(struct vm *vm, char *why, size_t n)
{
        vm_away(vm);
        memset(vm->thread, 0, sizeof(vm->thread));
        pthread_mutex_init(&vm->lock, NULL);
        vm->next_slot = 0;
        return vm_make_again(vm, why, n);
}

int vm_back(struct vm *vm, char *why, size_t n)
{
        int err = vm_make_again(vm, why, n);

        for (uint32_t i = 0; !err && i < vm->next_slot; i++)
                if (vm->slot[i].memory_size &&
                    ioctl(vm->fd, KVM_SET_USER_MEMORY_REGION, &vm->slot[i]) < 0) {
                        err = -errno;
                        snprintf(why, n,
                                 "KVM does not take back the memory of a virtual machine: %s",
                                 strerror(-err));
                }
        return err;
}
