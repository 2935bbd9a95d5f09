/*
 * Ways into kern other than system calls as the C library makes them.
 *
 *   t_entry flags [ROUNDS] [level3]         signals while a thread makes system calls with DF, NT
 *                                           and AC set (default: 2000 each). At p = 3 a
 *                                           pagetable-based KVM loses NT whenever the host
 *                                           interrupts: no frame must have it
 *   t_entry kicks ROUNDS                    INT3 and INT 4 under a storm of signals
 *   t_entry instructions [SECONDS [NAME]]   a line for each of some 600 instructions, or only for
 *                                           this one: its result. Children run them; a child that
 *                                           takes longer (default: 5 s) is killed
 *   t_entry instructions SECONDS without NAME    for all others
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "t_entry.h"

int main(int argc, char **argv)
{
        const char *what = argc > 1 ? argv[1] : "";

        if (strcmp(what, "flags") == 0)
                return flags_main(argc > 2 && atol(argv[2]) ? atol(argv[2]) : 2000,
                                  strcmp(argv[argc - 1], "level3") == 0);
        if (strcmp(what, "kicks") == 0 && argc > 2)
                return kicks_main(atol(argv[2]));
        if (strcmp(what, "instructions") == 0 && argc > 4 && strcmp(argv[3], "without") == 0)
                return instructions_main(atoi(argv[2]), NULL, argv[4]);
        if (strcmp(what, "instructions") == 0)
                return instructions_main(argc > 2 ? atoi(argv[2]) : 5, argc > 3 ? argv[3] : NULL,
                                         NULL);
        fprintf(stderr, "usage: t_entry flags [ROUNDS] [level3] | kicks ROUNDS | "
                        "instructions [SECONDS [NAME | without NAME]]\n");
        return 2;
}
