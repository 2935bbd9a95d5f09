/*
 * Signals that kern raises for the program: Linux's numbers and si_codes for x86 exceptions (from
 * arch/x86/kernel/traps.c).
 */
#ifndef VMRUN_SIGNAL_H
#define VMRUN_SIGNAL_H

#include <stdint.h>

enum { SIGILL = 4, SIGTRAP = 5, SIGBUS = 7, SIGFPE = 8, SIGSEGV = 11 };

enum { SI_KERNEL = 0x80 };
enum { ILL_ILLOPN = 2 };
enum { TRAP_BRKPT = 1, TRAP_TRACE = 2 };
enum { BUS_ADRALN = 1, BUS_ADRERR = 2, BUS_MCEERR_AR = 4 };
enum { FPE_INTDIV = 1, FPE_FLTINV = 7 };
enum { SEGV_MAPERR = 1, SEGV_ACCERR = 2 };

/* Tells the host of an exception of the program's.  The host changes vcpu.regs so that the
 * program's handler runs next or that the program continues as on Linux; it does not return if the
 * program dies.  The caller returns to its assembly, which enters the program by vcpu.regs. */
void program_signal(uint64_t vector, int signo, int code, uint64_t addr);

#endif
