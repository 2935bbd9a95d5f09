/*
 * For t_odd: declarations for its two parts, and the memory they work on.
 */
#ifndef T_ODD_H
#define T_ODD_H

#include <stddef.h>
#include <stdint.h>
#include "t_draw.h"

#define USER_END 0x7ffffffff000ul       /* the first address that is no program's */

/* Where the system puts nothing by itself. */
#define WINDOW ((char *)0x200000000000)
#define PAGES  40ul

/* Makes one call, with arguments by the random numbers, and prints it. It leaves nothing behind. */
void memory_case(void);                 /* t_odd_memory.c */
void clone_case(void);                  /* t_odd_clone.c */
/* Before the first case of a process. */
void memory_begin(void);
void clone_begin(void);

#endif
