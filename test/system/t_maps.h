/*
 * For t_maps: declarations for its two processes, and the window in which they map.
 */
#ifndef T_MAPS_H
#define T_MAPS_H

#include "t_child.h"

#define HUGE         (2 * MiB)
#define HUGE_PAGES   (HUGE / PG)
#define WINDOW_HUGE  8ul                /* huge pages of the window */
#define WINDOW_PAGES (WINDOW_HUGE * HUGE_PAGES)
/* Where the system puts nothing by itself. */
#define WINDOW_AT    ((char *)0x200000000000)

/*
 * What can be mapped. CONSTANT and HUGE_CONSTANT are never written through, and so are all that is
 * mapped private: Linux does not say when a private page sees what is written to its file. The
 * others change, by stores, calls and truncation. HUGE_READ is HUGE_SHARED, opened for reading.
 */
enum object { NOTHING, MEMORY, ON_DISK, HUGE_SHARED, HUGE_READ, CONSTANT, HUGE_CONSTANT,
              SHARED_ANONYMOUS, ANONYMOUS, OBJECTS };

#define FD_AT    20                     /* the descriptor of object k is FD_AT + k */
#define FD_TO    (FD_AT + OBJECTS)      /* pipes: steps to the child, */
#define FD_FROM  (FD_TO + 2)            /* and its results */
#define FD_OTHER (FD_FROM + 2)          /* a file that is never mapped */

struct settings { uint64_t seed, steps, from, to; bool huge; };
extern struct settings set;

/* The random numbers of one step: they depend on the seed and the step alone. */
void draw_start(uint64_t step);
uint64_t draw(uint64_t below);

/* Adds to the line of actions and results of this step. */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Adds the result of a call: a number, or the name of the error. */
void say_result(long result);

/* Carries out one step in this process. t_maps_ops.c */
void step_here(uint64_t step);
/* All of the window, and all files. */
void look_at_all(void);
/* In a process that has just been executed: nothing is mapped. */
void forget_window(void);
void catch_faults(void);

#endif
