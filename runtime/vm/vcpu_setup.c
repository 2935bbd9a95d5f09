/*
 * Making a vCPU: its block in the window, its tables, and its first state.
 */
#include <asm/kvm_para.h>
#include <errno.h>
#include <linux/kvm.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "abi_control.h"
#include "abi_image.h"
#include "base/message.h"
#include "base/privfd.h"
#include "pager/pte.h"
#include "vm/kvm.h"
#include "vm/time.h"
#include "vm/vcpu_setup.h"
#include "vm/xstate.h"
#include "x86.h"

static const struct kern_header *kern(void) { return (const struct kern_header *)WINDOW; }

#define KERN_STACK ((uint64_t)VCPU_SELF + VCPU_STACK_TOP)

static uint64_t block_gpa(uint32_t number)
{
        return RAM_GPA + VCPUS_OFF + (uint64_t)number * VCPU_BLOCK;
}

/* Pages of a block that the guest never writes: a wild store of the program faults there. */
static bool is_constant(unsigned off)
{
        return off == VCPU_TSS_OFF || off == VCPU_GDT_OFF ||
               (off >= VCPU_TABLES_OFF && off < VCPU_GUIDE_OFF);
}

/* This vCPU's PML4: the lower half is shared, except the slot that maps its own block at
 * VCPU_SELF. */
static void make_tables(struct vm *vm, uint32_t number)
{
        char *block = (char *)vcpu_block(number);
        uint64_t gpa = block_gpa(number), user = vm->level == 3 ? PTE_ACCESS : 0;
        uint64_t *pml4 = (uint64_t *)(block + VCPU_PML4_OFF),
                 *pt = (uint64_t *)(block + VCPU_PT_OFF);

        for (unsigned i = 0; i < 256; i++)      /* the entries below decide */
                pml4[i] = (RAM_GPA + PDPT_OFF(i)) | PTE_TABLE | PTE_ACCESS;
        pml4[VCPU_SELF >> 39] = (gpa + VCPU_PDPT_OFF) | PTE_TABLE | user;
        *(uint64_t *)(block + VCPU_PDPT_OFF + 511 * 8) = (gpa + VCPU_PD_OFF) | PTE_TABLE | user;
        *(uint64_t *)(block + VCPU_PD_OFF + 511 * 8) = (gpa + VCPU_PT_OFF) | PTE_TABLE | user;
        pt += 512 - VCPU_BLOCK / PAGE_SIZE;
        for (unsigned off = 0; off < VCPU_BLOCK; off += PAGE_SIZE) {
                uint64_t writable = is_constant(off) ? 0 : PTE_W;
                if (off != VCPU_GUARD_OFF && off != VCPU_GUIDE_OFF)
                        pt[off / PAGE_SIZE] = (gpa + off) | PTE_P | PTE_A | PTE_D | writable |
                                              user | PTE_NX;
        }
}

/*
 * GDT laid out as Linux's; its user code and data segments are what a p = 3 program sees in CS and
 * SS.  At p = 0 its user code is not present: a return to it would leave ring 0, so it faults, and
 * signal/trapped.c does what Linux would.
 */
static void make_gdt(char *block, bool user)
{
        const uint64_t data = DESC_FLAT | DESC_PAGES | DESC_SEGMENT | DESC_PRESENT |
                              DESC_WRITABLE | DESC_ACCESSED;
        const uint64_t code = data | DESC_CODE;
        const uint64_t user_code = (code | DESC_DPL(3)) & ~(user ? 0 : DESC_PRESENT);
        uint64_t *gdt = (uint64_t *)(block + VCPU_GDT_OFF), tss = VCPU_SELF + VCPU_TSS_OFF;
        const uint64_t limit = PAGE_SIZE;       /* I/O bitmap included */

        gdt[SEL_KERN_CS >> 3] = code | DESC_LONG;
        gdt[SEL_KERN_SS >> 3] = data | DESC_32;
        gdt[SEL_USER_CS32 >> 3] = user_code | DESC_32;
        gdt[SEL_USER_SS >> 3] = data | DESC_DPL(3) | DESC_32;
        gdt[SEL_USER_CS >> 3] = user_code | DESC_LONG;
        gdt[SEL_TSS >> 3] = (limit - 1) | (tss & 0xffffff) << 16 | DESC_TSS_BUSY | DESC_PRESENT |
                            (tss >> 24 & 0xff) << 56;
        gdt[(SEL_TSS >> 3) + 1] = tss >> 32;
}

/* IST 1 for #PF ends at the end of vcpu.regs, IST 2 for all others is a page of its own.  The I/O
 * bitmap opens EXIT_PORT and DOORBELL_PORT. */
static void make_tss(char *block)
{
        char *tss = block + VCPU_TSS_OFF;
        uint64_t ist1 = VCPU_SELF + offsetof(struct vcpu, regs) + sizeof(struct regs);
        uint64_t ist2 = VCPU_SELF + VCPU_IST_OFF + PAGE_SIZE;
        uint64_t rsp0 = ist2;
        uint16_t iomap = TSS_SIZE;

        memcpy(tss + TSS_RSP0, &rsp0, 8);
        memcpy(tss + TSS_IST1, &ist1, 8);
        memcpy(tss + TSS_IST2, &ist2, 8);
        memcpy(tss + TSS_IOMAP, &iomap, 2);
        memset(tss + iomap, 0xff, PAGE_SIZE - iomap);
        for (unsigned port = EXIT_PORT; port < EXIT_PORT + 4; port++)   /* OUTL touches four */
                tss[iomap + port / 8] &= (char)~(1u << port % 8);
        tss[iomap + DOORBELL_PORT / 8] &= (char)~(1u << DOORBELL_PORT % 8);
}

static void make_idt(const struct vm *vm, char *block)
{
        uint64_t *idt = (uint64_t *)(block + VCPU_IDT_OFF);
        uint64_t stubs = kern()->stubs[vm->level == 3];

        for (unsigned v = 0; v < kern()->vectors; v++) {
                uint64_t at = stubs + v * kern()->stub_size;
                bool by_program = v == VEC_BP || v == VEC_OF;   /* int3, into */
                uint64_t ist = v == VEC_PF ? 1 : 2;
                idt[2 * v] = (at & 0xffff) | (uint64_t)SEL_KERN_CS << 16 | ist << 32 |
                             DESC_INTERRUPT | DESC_PRESENT | DESC_DPL(by_program ? 3 : 0) |
                             (at >> 16 & 0xffff) << 48;
                idt[2 * v + 1] = at >> 32;
        }
}

static void make_block(struct vm *vm, uint32_t number, enum vcpu_role role)
{
        struct vcpu *v = vcpu_block(number);
        char *block = (char *)v;
        bool user = vm->level == 3;

        struct vcpu_fixed *f = vcpu_fixed(v);

        f->number = number;
        f->role = role;
        v->may_not_ring = 0;            /* of the thread before */
        f->level = (uint32_t)vm->level;
        v->canary0 = v->canary1 = v->canary2 = v->canary3 = v->canary4 = CANARY;
        v->regs.cs = user ? SEL_USER_CS : SEL_KERN_CS;
        v->regs.ss = user ? SEL_USER_SS : SEL_KERN_SS;
        v->regs.rflags = RFLAGS_PROGRAM;
        const uint64_t frame[5] = { 0, SEL_USER_CS, RFLAGS_KERN, KERN_STACK, SEL_USER_SS };
        memcpy(f->frame3_pf, frame, sizeof(frame));
        memcpy(f->frame3_trap, frame, sizeof(frame));
        f->frame3_pf[0] = kern()->pf_common;
        f->frame3_trap[0] = kern()->trap_common;
        make_tables(vm, number);
        make_gdt(block, user);
        make_tss(block);
        make_idt(vm, block);
}

static struct kvm_segment code_segment(int level)
{
        return (struct kvm_segment){ .selector = level == 3 ? SEL_USER_CS : SEL_KERN_CS,
                                     .limit = 0xffffffff,
                                     .type = 11,
                                     .present = 1,
                                     .dpl = (uint8_t)level,
                                     .s = 1,
                                     .l = 1,
                                     .g = 1 };
}

static struct kvm_segment data_segment(int level)
{
        return (struct kvm_segment){ .selector = level == 3 ? SEL_USER_SS : SEL_KERN_SS,
                                     .limit = 0xffffffff,
                                     .type = 3,
                                     .present = 1,
                                     .dpl = (uint8_t)level,
                                     .s = 1,
                                     .db = 1,
                                     .g = 1 };
}

/* Sets the special registers that belong to vmrun; segments that a program may load stay
 * unchanged. */
static void set_ours(const struct vm *vm, uint32_t number, struct kvm_sregs *s)
{
        s->cs = code_segment(vm->level);
        s->ss = data_segment(vm->level);
        s->ldt = (struct kvm_segment){ .unusable = 1 };
        s->tr = (struct kvm_segment){ .selector = SEL_TSS,
                                      .base = VCPU_SELF + VCPU_TSS_OFF,
                                      .limit = 0xfff,
                                      .type = 11,
                                      .present = 1 };
        s->gdt = (struct kvm_dtable){ .base = VCPU_SELF + VCPU_GDT_OFF, .limit = SEL_TSS + 15 };
        s->idt = (struct kvm_dtable){ .base = VCPU_SELF + VCPU_IDT_OFF,
                                      .limit = (uint16_t)(kern()->vectors * 16 - 1) };
        s->cr0 = CR0_PG | CR0_WP | CR0_NE | CR0_ET | CR0_MP | CR0_PE;
        s->cr3 = block_gpa(number) + VCPU_PML4_OFF;
        s->cr4 = CR4_PAE | CR4_PGE | CR4_OSFXSR | CR4_OSXMMEXCPT | (vm->xcr0 ? CR4_OSXSAVE : 0) |
                 (vm->fsgsbase ? CR4_FSGSBASE : 0);
        s->efer = EFER_NXE | EFER_LMA | EFER_LME | EFER_SCE;
}

static int set_sregs(struct thread *t)
{
        struct kvm_sregs s;

        if (ioctl(t->vcpu_fd, KVM_GET_SREGS, &s) < 0)
                return -errno;
        s.ds = s.es = s.fs = s.gs = (struct kvm_segment){ .unusable = 1 };
        set_ours(t->vm, vcpu_fixed(t->v)->number, &s);
        return ioctl(t->vcpu_fd, KVM_SET_SREGS, &s) < 0 ? -errno : 0;
}

static bool same_table(const struct kvm_dtable *a, const struct kvm_dtable *b)
{
        return a->base == b->base && a->limit == b->limit;
}

bool vcpu_mend(struct thread *t)
{
        struct kvm_sregs now, ours;

        if (t->vm->level != 0 || ioctl(t->vcpu_fd, KVM_GET_SREGS, &now) < 0 ||
            now.cs.selector == RESET_CS)
                return false;
        ours = now;
        set_ours(t->vm, vcpu_fixed(t->v)->number, &ours);
        if (now.cr0 == ours.cr0 && now.cr3 == ours.cr3 && now.cr4 == ours.cr4 &&
            now.efer == ours.efer && same_table(&now.gdt, &ours.gdt) &&
            same_table(&now.idt, &ours.idt) && now.tr.base == ours.tr.base &&
            now.cs.selector == ours.cs.selector)
                return false;
        info_("the program has changed control registers or descriptor tables, which Linux would "
              "refuse: they are set right");
        return ioctl(t->vcpu_fd, KVM_SET_SREGS, &ours) == 0;
}

static int set_msrs(struct thread *t)
{
        const struct kvm_msr_entry e[3] = {
                { .index = MSR_STAR,
                  .data = (uint64_t)SEL_KERN_CS << 32 | (uint64_t)SEL_USER_CS32 << 48 },
                { .index = MSR_LSTAR, .data = kern()->syscall },
                { .index = MSR_SFMASK,
                  .data = X86_AC | X86_NT | X86_RF | X86_DF | X86_IF | X86_TF },
        };
        union {
                struct kvm_msrs m;
                char room[sizeof(struct kvm_msrs) + sizeof(e)];
        } u = { .m.nmsrs = 3 };

        memcpy(u.m.entries, e, sizeof(e));
        return ioctl(t->vcpu_fd, KVM_SET_MSRS, &u.m) == 3 ? 0 : -EINVAL;
}

_Static_assert(sizeof(struct steal_time) == sizeof(struct kvm_steal_time) &&
                       offsetof(struct steal_time, state) ==
                               offsetof(struct kvm_steal_time, preempted) &&
                       STEAL_PREEMPTED == KVM_VCPU_PREEMPTED && STEAL_FLUSH == KVM_VCPU_FLUSH_TLB,
               "struct steal_time is what KVM writes");

/* Asks KVM to say in CONTROL when the host does not run the vCPU, and to flush its TLB for kern.
 * Where KVM refuses, the byte stays 0, and kern kicks this vCPU.  STEAL_FLUSH may be set already,
 * and stays: who set it waits no more. */
static void ask_for_steal_time(struct thread *t)
{
        const struct kvm_msr_entry e = {
                .index = MSR_KVM_STEAL_TIME,
                .data = (RAM_GPA + CONTROL_OFF + offsetof(struct control, steal) +
                         vcpu_fixed(t->v)->number * sizeof(struct steal_time)) |
                        KVM_MSR_ENABLED
        };
        union {
                struct kvm_msrs m;
                char room[sizeof(struct kvm_msrs) + sizeof(e)];
        } u = { .m.nmsrs = 1 };

        if (!t->vm->flushes)
                return;
        memcpy(u.m.entries, &e, sizeof(e));
        ioctl(t->vcpu_fd, KVM_SET_MSRS, &u.m);
}

static int set_start(struct thread *t)
{
        struct kvm_regs r = { .rip = kern()->start, .rsp = KERN_STACK, .rflags = RFLAGS_KERN };
        struct kvm_xcrs x = { .nr_xcrs = 1, .xcrs[0] = { .xcr = 0, .value = t->vm->xcr0 } };
        int err;

        if ((err = set_sregs(t)) != 0 || (err = set_msrs(t)) != 0)
                return err;
        ask_for_steal_time(t);
        if (t->vm->xcr0 && ioctl(t->vcpu_fd, KVM_SET_XCRS, &x) < 0)
                return -errno;
        return ioctl(t->vcpu_fd, KVM_SET_REGS, &r) < 0 ? -errno : 0;
}

int vcpu_reset(struct thread *t, enum vcpu_role role)
{
        make_block(t->vm, vcpu_fixed(t->v)->number, role);
        return set_start(t);
}

/* KVM's part of a vCPU. */
static int make_vcpu(struct vm *vm, struct thread *t, uint32_t number, char *why, size_t n)
{
        t->sigmask_dirty = true;
        t->vcpu_fd = PRIVFD_NEW(ioctl(vm->fd, KVM_CREATE_VCPU, (unsigned long)number));
        if (t->vcpu_fd < 0) {
                snprintf(why, n, "KVM cannot make vCPU %u: %s%s", number, strerror(-t->vcpu_fd),
                         t->vcpu_fd == -EMFILE ? ": raise `ulimit -n`" : "");
                return t->vcpu_fd;
        }
        t->run =
                mmap(NULL, (size_t)vm->run_size, PROT_READ | PROT_WRITE, MAP_SHARED, t->vcpu_fd, 0);
        if (t->run == MAP_FAILED || ioctl(t->vcpu_fd, KVM_SET_CPUID2, vm->cpuid) < 0) {
                int err = -errno;
                snprintf(why, n, "KVM does not take the CPU features it supports: %s",
                         strerror(-err));
                return err;
        }
        if (number == 0)
                vm_refuse_msrs(vm);
        return 0;
}

int vcpu_create(struct vm *vm, struct thread *t, uint32_t number, enum vcpu_role role, char *why,
                size_t n)
{
        t->vm = vm;
        t->v = vcpu_block(number);
        vcpu_fixed(t->v)->number = number;
        int err = make_vcpu(vm, t, number, why, n);
        if (err)
                return err;
        err = vcpu_reset(t, role);
        if (err) {
                snprintf(why, n, "KVM refuses the vCPU's start state: %s", strerror(-err));
                return err;
        }
        vm->thread[number] = t;
        /* Release: a vCPU that counts this one (kern/base/flush.c, kern/space/pt.c) finds its block
         * filled in. */
        if (number >= atomic_load(&CONTROL->nvcpus))
                atomic_store_explicit(&CONTROL->nvcpus, number + 1, memory_order_release);
        return 0;
}

void vcpu_destroy(struct thread *t)
{
        if (t->run && t->run != MAP_FAILED)
                munmap(t->run, (size_t)t->vm->run_size);
        if (t->vcpu_fd >= 0)
                privfd_close(t->vcpu_fd);
}

struct vcpu_kept {
        struct kvm_regs regs;
        struct kvm_sregs sregs;
        void *xstate;
        bool tsc_known;
        uint64_t tsc_offset;
};

struct vcpu_kept *vcpu_keep(struct thread *t)
{
        struct vcpu_kept *k = calloc(1, sizeof(*k));

        vcpu_retire(t);                 /* first: KVM finishes the exit */
        if (k)
                k->xstate = xstate_keep(t);
        if (!k || !k->xstate)
                die_(EXIT_VMRUN_FAILED, "out of memory: free some on this host");
        if (ioctl(t->vcpu_fd, KVM_GET_REGS, &k->regs) < 0 ||
            ioctl(t->vcpu_fd, KVM_GET_SREGS, &k->sregs) < 0)
                die_(EXIT_VMRUN_FAILED, "KVM does not tell the registers of a vCPU: %s",
                     strerror(errno));
        k->tsc_known = time_keep(t, &k->tsc_offset);
        return k;
}

int vcpu_bring_back(struct thread *t, struct vcpu_kept *k, char *why, size_t n)
{
        int err = make_vcpu(t->vm, t, vcpu_fixed(t->v)->number, why, n);
        if (err)
                return err;
        err = set_start(t);             /* MSRs and XCR0, which are equal on all vCPUs */
        if (!err && (ioctl(t->vcpu_fd, KVM_SET_SREGS, &k->sregs) < 0 ||
                     ioctl(t->vcpu_fd, KVM_SET_REGS, &k->regs) < 0))
                err = -errno;
        if (err)
                snprintf(why, n, "KVM does not take back the registers of a vCPU: %s",
                         strerror(-err));
        xstate_bring_back(t, k->xstate);
        time_bring_back(t, k->tsc_known, k->tsc_offset);
        free(k);
        return err;
}

void vcpu_retire(struct thread *t)
{
        t->run->immediate_exit = 1;
        ioctl(t->vcpu_fd, KVM_RUN, 0);
        t->run->immediate_exit = 0;
}
