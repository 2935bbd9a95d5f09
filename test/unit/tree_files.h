/*
 * For the models of processes of a tree: what the kernel knows of far/tree_life.c, that is, file
 * descriptions of the tree's file, their locks, and which processes have them open.  A description
 * has one number in all processes.
 *
 * For one file of each model; its hooks come first.
 */
#ifndef TEST_TREE_FILES_H
#define TEST_TREE_FILES_H

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define MAPPED 1                        /* all processes have it, for ever */

/* The model has these: of the process that runs; of all that live. */
static uint64_t *own_files(void);
static uint64_t all_files(void);

static bool locks[64][NUMBERS];         /* by description: bytes of the file */

int memfd_again(int fd)
{
        crash_point();
        if (fd != MAPPED)
                sched_fail("another file is opened again");
        int d = __builtin_ctzll(~(all_files() | 1ull << MAPPED | 1));
        memset(locks[d], 0, sizeof(locks[d]));
        *own_files() |= 1ull << d;
        crash_point();
        return d;
}

void privfd_close(int fd)
{
        crash_point();
        if (!(*own_files() >> fd & 1))
                sched_fail("a descriptor is closed that is not open");
        *own_files() &= ~(1ull << fd);
        crash_point();
}

static bool conflicts(int fd, off_t p)
{
        uint64_t open = all_files() | 1ull << MAPPED;

        for (int d = 0; d < 64; d++)
                if (d != fd && (open >> d & 1) && locks[d][p])
                        return true;
        return false;
}

int model_fcntl(int fd, int cmd, struct flock *l)
{
        crash_point();
        if (fd != MAPPED && !(fd > MAPPED && *own_files() >> fd & 1))
                sched_fail("fcntl of a descriptor that is not open");
        if (cmd == F_OFD_GETLK)
                l->l_type = conflicts(fd, l->l_start) ? F_RDLCK : F_UNLCK;
        else if (cmd == F_OFD_SETLK)
                locks[fd][l->l_start] = l->l_type == F_RDLCK;
        else
                sched_fail("a lock that belongs to a process");
        crash_point();
        return 0;
}

#endif
