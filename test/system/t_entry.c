/*
 * What enters kern by other ways than system calls as the C library makes them.
 *
 *   t_entry flags [ROUNDS]                     signals while a thread makes system calls with DF, NT and AC set (default: 2000 each)
 *   t_entry instructions [SECONDS [NAME]]      a line for each of some 600 instructions, or only for this one: what became of it.
 *                                              Children run them; one that takes longer (default: 5 s) is killed
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "t_entry.h"

int main(int argc, char **argv)
{
        const char *what = argc > 1 ? argv[1] : "";

        if (strcmp(what, "flags") == 0)
                return flags_main(argc > 2 ? atol(argv[2]) : 2000);
        if (strcmp(what, "instructions") == 0)
                return instructions_main(argc > 2 ? atoi(argv[2]) : 5, argc > 3 ? argv[3] : NULL);
        fprintf(stderr, "usage: t_entry flags [ROUNDS] | instructions [SECONDS [NAME]]\n");
        return 2;
}
