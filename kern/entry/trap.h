/*
 * Functions that entry.S calls for exceptions other than page faults, and the words that it leaves
 * on the stack for them.
 */
#ifndef VMRUN_TRAP_H
#define VMRUN_TRAP_H

#include <stdint.h>

/* The words below the top of the stack of traps (IST 2): the stub pushes the first one or two, the
 * CPU the others. */
struct trap_frame { uint64_t vector, err, rip, cs, rflags, rsp, ss; };

/* An exception of the program's, whose registers are in vcpu.regs. */
void trap(uint64_t vector);

/* An exception with RIP in kern.  syscall_jump, iret_jump: the addresses of the two instructions
 * that return to the program.  Returns only if one of these two caused the exception. */
void kern_trap(const struct trap_frame *t, uint64_t syscall_jump, uint64_t iret_jump);

/* Called before a return to the program if there is work first: an event of the host, or a TLB
 * flush. */
void events(void);

#endif
