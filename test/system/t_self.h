/*
 * Declarations for the files of t_self.
 */
#ifndef T_SELF_H
#define T_SELF_H

#include <stddef.h>
#include <stdint.h>
#include "t_draw.h"

/* Makes a call that changes something; makes all those that ask. Each is printed with its
 * arguments and result. t_self_calls.c */
void make_change(void);
void ask_questions(void);

#endif
