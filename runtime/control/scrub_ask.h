/*
 * Scrubs on request.
 */
#ifndef VMRUN_CONTROL_SCRUB_ASK_H
#define VMRUN_CONTROL_SCRUB_ASK_H

#include <stdio.h>
#include "control/session.h"

/* "start", "start RATE", "stop", or "": how far it has come, and what it has found. */
int scrub_ask(const char *what, enum form form, FILE *f, char why[CTL_WHY]);

#endif
