/*
 * The fault profile, --profile: where in the program it waited for far memory.
 *
 * kern counts stacks in a table (include/fault_profile.h).  When a program ends they get names
 * (code.h) and become two files (texts.h).
 */
#ifndef VMRUN_RUNTIME_PROFILE_H
#define VMRUN_RUNTIME_PROFILE_H

#include "common/outfile.h"
#include "vm/thread.h"

/* Remembers where the files go; ends vmrun if they cannot be written.  Nothing without
 * --profile. */
void profile_init(void);
/* Writes both files, and replaces older ones.  All other threads of the program stand still.
 * Nothing without --profile. */
void profile_write(struct thread *t);

/* profile_keep() fills o for the next program after execve; profile_adopt() applies it there. */
void profile_keep(struct outfile *o);
void profile_adopt(const struct outfile *o);

#endif
