/*
 * All control sockets of this user.
 */
#ifndef VMRUN_CONTROL_SOCKETS_H
#define VMRUN_CONTROL_SOCKETS_H

/* Calls fn for each by its name, in the order of numbers; its folder is the working directory. */
void sockets_each(void (*fn)(const char *name, void *arg), void *arg);

#endif
