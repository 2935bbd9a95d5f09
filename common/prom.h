/*
 * Prometheus's text format.
 */
#ifndef COMMON_PROM_H
#define COMMON_PROM_H

#include <stdio.h>

/* Prints the value of a label, without its quotes. */
void prom_escaped(FILE *f, const char *text);

#endif
