/*
 * The vCPUs' stocks of free frames (kern/pager/frames.c), which the cleaner takes back when there
 * are no others (EXIT_STOCKS).
 */
#ifndef VMRUN_STOCKS_H
#define VMRUN_STOCKS_H

#include "abi_vcpu.h"
#include "vm/vm.h"

/* Takes the stocks of vCPUs that are in the host: they belong to kern's vCPU that asks.  The others
 * are told to give theirs back.  OUT: *s. */
void stocks_take(struct vm *vm, struct exit_stocks *s);

#endif
