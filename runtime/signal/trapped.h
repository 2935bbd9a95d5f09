/*
 * An exception of the program as kern saw it, and as Linux would report it (trapped.c).
 */
#ifndef VMRUN_TRAPPED_H
#define VMRUN_TRAPPED_H

#include <stdbool.h>
#include <stdint.h>

struct thread;

struct trapped {
        int signo, code; /* the signal, and its si_code */
        uint64_t addr;   /* si_addr */
        int vector;      /* of the exception; IN: maybe with SOFTWARE_INT */
};

/*
 * Makes x and t->v->regs, both IN/OUT, as they would be on Linux, where the program runs in ring 3.
 * True: Linux does not refuse the instruction.  It was carried out, and the program continues.  In
 * EXIT_SIGNAL, all signals held.
 */
bool trapped_as_on_linux(struct thread *t, struct trapped *x);

/* An I/O instruction that KVM has refused the program: sets RIP back to it, since KVM may have
 * stepped over it.  In EXIT_EVENT. */
void trapped_io(struct thread *t);

#endif
