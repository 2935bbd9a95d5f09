/*
 * See auxv.h.  Not getauxval(): glibc has a value of its own for AT_HWCAP.  Not /proc/self/auxv:
 * /proc may be missing.
 */
#include <elf.h>
#include "load/auxv.h"

static const Elf64_auxv_t *vector;      /* up to AT_NULL; written once, by main() */

void auxv_take(char *const *environment)
{
        while (*environment++)
                ;
        vector = (const void *)environment;
}

uint64_t auxv_value(uint64_t key)
{
        for (const Elf64_auxv_t *a = vector; a->a_type != AT_NULL; a++)
                if (a->a_type == key)
                        return a->a_un.a_val;
        return 0;
}
