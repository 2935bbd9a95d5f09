/*
 * Prints a vCPU's state on stderr, for a guest in an impossible state.
 */
#include <linux/kvm.h>
#include <sys/ioctl.h>
#include "abi_control.h"
#include "abi_image.h"
#include "base/message.h"
#include "pager/pte.h"
#include "vm/dump.h"

static const char *mode_name(uint32_t m)
{
        return mode_is_out(m)      ? "OUT"
               : m == MODE_KERN    ? "KERN"
               : m == MODE_PROGRAM ? "PROGRAM"
                                   : "?";
}

static const uint64_t *table(uint64_t entry)
{
        uint64_t off = (entry & PTE_NUM) - RAM_GPA;
        return (entry & PTE_P) && off < CONTROL->pool_end ? (const uint64_t *)(WINDOW + off) : NULL;
}

/* Prints the page-table entries that lead to addr, as the CPU would walk them. */
static void dump_walk(struct vcpu *v, uint64_t addr)
{
        const uint64_t *t = (const uint64_t *)((const char *)v + VCPU_PML4_OFF);
        static const char *const name[] = { "PML4E", "PDPTE", "PDE", "PTE" };

        for (int level = 0; level < 4 && t; level++) {
                uint64_t e = t[addr >> (39 - 9 * level) & 511];
                warnx_("  %s of 0x%llx: 0x%016llx", name[level], (unsigned long long)addr,
                       (unsigned long long)e);
                if (level > 0 && (e & 0x80))
                        return;
                t = table(e);
        }
}

void vcpu_dump(struct thread *t)
{
        struct vcpu *v = t->v;
        struct kvm_regs r = { 0 };
        struct kvm_sregs s = { 0 };
        typedef unsigned long long ull;
        const uint64_t code = ((const struct kern_header *)WINDOW)->syscall;

        ioctl(t->vcpu_fd, KVM_GET_REGS, &r);
        ioctl(t->vcpu_fd, KVM_GET_SREGS, &s);
        warnx_("vCPU %u (p = %u, mode %s, exit op %u):", vcpu_fixed(v)->number,
               vcpu_fixed(v)->level, mode_name(v->mode), v->exit.op);
        warnx_("  rip %016llx rsp %016llx rflags %08llx cr2 %016llx cr3 %llx", (ull)r.rip,
               (ull)r.rsp, (ull)r.rflags, (ull)s.cr2, (ull)s.cr3);
        warnx_("  rax %016llx rbx %016llx rcx %016llx rdx %016llx", (ull)r.rax, (ull)r.rbx,
               (ull)r.rcx, (ull)r.rdx);
        warnx_("  rsi %016llx rdi %016llx rbp %016llx r8  %016llx", (ull)r.rsi, (ull)r.rdi,
               (ull)r.rbp, (ull)r.r8);
        warnx_("  r9  %016llx r10 %016llx r11 %016llx r12 %016llx", (ull)r.r9, (ull)r.r10,
               (ull)r.r11, (ull)r.r12);
        warnx_("  r13 %016llx r14 %016llx r15 %016llx cs %x ss %x", (ull)r.r13, (ull)r.r14,
               (ull)r.r15, s.cs.selector, s.ss.selector);
        warnx_("  program: rip %016llx rsp %016llx rax %016llx cr2 %016llx fault error %llx",
               (ull)v->regs.rip, (ull)v->regs.rsp, (ull)v->regs.rax, (ull)v->cr2, (ull)v->regs.err);
        dump_walk(v, v->cr2);
        /* After a reset the question is whether kern's own code is mapped. */
        dump_walk(v, s.cs.selector == RESET_CS ? code : r.rip);
}
