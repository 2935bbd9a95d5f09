/*
 * --guide: a library with guides (vmguest(3)) that is loaded into an unmodified program.
 */
#ifndef VMRUN_SETTINGS_GUIDE_H
#define VMRUN_SETTINGS_GUIDE_H

/* given: a path, or the name of a guide that ships with vmrun.  Ends vmrun if it is none. */
void guide_add(const char *given);

/* Puts the guides into the environment that the program gets. */
void guide_preload(void);
/* The program is static: says so if that matters. */
void guide_missed(const char *program);

#endif
