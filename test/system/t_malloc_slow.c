/*
 * For guides/malloc.c in a process without vmrun: drops as vmrun does, but takes its time, so that
 * other threads come in between.
 */
#include <sched.h>
#include <sys/mman.h>
#include "vmguest.h"

int vmg_version(void)
{
        return 1;
}

int vmg_drop(void *addr, size_t len)
{
        for (int i = 0; i < 3; i++)
                sched_yield();
        return madvise(addr, len, MADV_DONTNEED);
}
