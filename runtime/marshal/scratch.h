/*
 * Host memory for the arguments of one call, and copies from and to the program.
 */
#ifndef VMRUN_SYS_SCRATCH_H
#define VMRUN_SYS_SCRATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "marshal/call.h"

#define SYS_BOUNCE      (128ul << 10)   /* transfers up to this size always use a bounce buffer */
#define SYS_CHUNK       (1ul << 20)
#define SYS_MESSAGE_MAX (64ul << 20)    /* one message of a socket that keeps message boundaries */
#define SYS_ARG_MAX     (1ul << 20)     /* a plain argument */

/*
 * Host memory for the arguments of one call, released all at once when it ends.  NULL: out of
 * memory. sys_scratch_like keeps the address of the program's buffer modulo 512, or 4096 from a
 * page on, so that O_DIRECT sees the same alignment.
 */
void *sys_scratch(size_t n);
void *sys_scratch_like(uint64_t addr, size_t n);
void sys_scratch_reset(void);
/* The thread ends: gives its buffers back. */
void sys_scratch_end(void);
/* A buffer of n bytes of which only the first `reach` can be accessed, like a buffer of the program
 * that ends at an unmapped page. */
void *sys_scratch_edge(size_t reach, size_t n);

/*
 * An address that cannot be copied from or to.  It is passed to the kernel in place of a bad
 * program pointer, so the kernel itself decides which of several errors wins, and what happens
 * before EFAULT.
 */
void *sys_bad(void);

/* A bad pointer as the kernel must see it: NULL and addresses at or above TASK_SIZE pass unchanged,
 * because some calls check for them before other errors; all others become sys_bad(). */
static inline uint64_t sys_bad_at(uint64_t addr)
{
        return !addr || addr >= TASK_SIZE ? addr : P(sys_bad());
}

/* How many of the n bytes from addr on can be accessed, up to the first that cannot. */
size_t sys_reach(struct thread *t, uint64_t addr, size_t n, bool write);
/* For a buffer that sys_in() could not copy as a whole: copies its accessible beginning so that it
 * ends at an unmapped page, as the program's own does; the bad address if nothing is accessible.
 * The kernel may need no more.  Pass it to the kernel only: vmrun itself would fault past the
 * end. */
void *sys_in_edge(struct thread *t, uint64_t addr, size_t n);

/* Copies in to scratch; the bad address if the program has no such bytes or max is exceeded. */
void *sys_in(struct thread *t, uint64_t addr, size_t n, size_t max);
void *sys_in_null(struct thread *t, uint64_t addr, size_t n);           /* NULL stays NULL */
/* A copy of a string in scratch, cut at 4096 bytes without a NUL as the kernel would see it. */
char *sys_string(struct thread *t, uint64_t addr);

/* Room for a result of exactly n bytes, filled from the program; the bad address if it could not be
 * stored. */
void *sys_out(struct thread *t, uint64_t addr, size_t n);
/* Copies the result of sys_out() to the program: ret, or -EFAULT.  NULL: nothing to do. */
long sys_deliver(struct thread *t, uint64_t addr, const void *host, size_t n, long ret);

/* A new fd beyond the program's limit becomes EMFILE. */
long sys_newfd(long ret);
/* Would the next fd be beyond the limit?  For calls that have another effect beside the fd. */
bool sys_no_fd_left(void);

/* cannot be memory of a process, whatever the length */
#define SYS_NOWHERE     0xfffffffffffff000ull

#endif
