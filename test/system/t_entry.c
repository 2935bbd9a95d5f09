#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "t_entry.h"
int flags_main(long rounds);
int main(int argc, char **argv)
{
        if (argc > 2 && !strcmp(argv[1], "flags"))
                return flags_main(atol(argv[2]));
        return instructions_main(argc > 1 ? argv[1] : NULL, 1, 10);
}
