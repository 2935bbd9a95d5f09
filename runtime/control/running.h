/*
 * Settings of a program that runs.
 */
#ifndef VMRUN_CONTROL_RUNNING_H
#define VMRUN_CONTROL_RUNNING_H

#include <stdio.h>
#include "control/session.h"

/* One setting by name, or all (""). */
int running_get(const char *name, enum form form, FILE *f, char why[CTL_WHY]);
/* NAME=VALUE */
int running_set(struct vm *vm, const char *setting, char why[CTL_WHY]);
/* Stores in the control page what the settings of opt say that may change while the program
 * runs. */
void running_apply(void);

#endif
