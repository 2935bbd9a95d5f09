#include <stdio.h>
#include "t_entry.h"
int main(int argc, char **argv)
{
        return instructions_main(argc > 1 ? argv[1] : NULL, 1, 10);
}
