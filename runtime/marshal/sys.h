/*
 * What the forwarded system calls share: the row of a call, host buffers, the raw call. The rows
 * are in syscalls/table.c, the marshaller that performs them in generic.c, the calls that a row
 * cannot describe in syscalls/.
 */
#ifndef VMRUN_SYS_H
#define VMRUN_SYS_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/uio.h>
#include <asm/unistd.h>
#include "memory/gmem.h"
#include "vm/stop.h"

struct sys_row;

/* A handler for one call, with its row: the call's value or -errno, or -SYS_PUT_OFF. */
typedef long sys_fn(struct thread *t, const struct sys_row *row, const uint64_t a[6]);

/* Not an errno that a program can see: a signal came first and the call had no effect.  The program
 * makes the call again after the signal's handler. */
#define SYS_PUT_OFF 512

enum sys_kind {
        K_VAL = 0,      /* passed unchanged */
        K_FD,           /* a file descriptor (AT_FDCWD passes): vmrun's own are EBADF */
        K_PATH,         /* string; /proc/self/exe is replaced by the program's file */
        K_PATHL,        /* string; names a link itself or something new: passed unchanged */
        K_IN,           /* bytes copied in */
        K_OUT,          /* bytes copied out when the call succeeded */
        K_INOUT,        /* both */
        /* copied out as K_OUT; since the kernel may leave bytes unwritten, it is filled from the
         * program first */
        K_PRE,
        /* copied out; its room is the int that argument len points to (a K_INOUT of 4) */
        K_VOUT,
        K_BLOCKED,      /* a signal mask to block while the call waits */
};
/* Argument flags. */
#define AF_NULL  1      /* NULL is allowed and passed as NULL */
#define AF_INT   2      /* the length argument is an int, and the kernel refuses a negative one */
#define AF_UINT  16     /* the length argument is an unsigned int */
#define AF_RET   4      /* bytes to copy out: result * size + add, not the whole buffer */
#define AF_CHG   8      /* K_PRE: copied out whatever the result, if the kernel changed it */
#define AF_FAIL  32     /* K_INOUT: if the call fails, copied out if the kernel changed it */
#define AF_READ  64     /* K_VOUT: the kernel may read its beginning first */

struct sys_arg {
        uint8_t kind, flags;
        /* argument that holds the number of elements; -1: size bytes exactly */
        int8_t len;
        /* bytes beside the elements; K_PATH: 1 + the argument with AT_SYMLINK_NOFOLLOW, or 0 */
        uint8_t add;
        uint16_t size;          /* of an element, or of all */
};

/* Row flags. */
#define RF_BLOCKS  1    /* may sleep without a bound */
#define RF_NEWFD   2    /* the result is a new fd */
#define RF_NEWFD2  4    /* argument 0 or 3, the K_OUT of 8 bytes, receives two new fds */
#define RF_RESERVE 8    /* with RF_NEWFD: if no number is free, the call has no effect */
#define RF_LINKS   16   /* tells how many links a file has */

struct sys_row {
        const char *name;
        sys_fn *fn;             /* NULL: the marshaller does it */
        int16_t refuse;         /* errno of a call refused on purpose, 0: not refused */
        uint16_t flags;
        struct sys_arg arg[6];
        /* a refusal's reason: a sentence without its end; else NULL */
        const char *why;
        uint16_t nr;                    /* the call's number */
};

/* The call waits with this mask instead of the thread's: if a signal ends it, the handler runs
 * under that mask. */
static inline void sys_waits_with(struct thread *t, uint64_t mask)
{
        t->signal.waits = true;
        t->signal.wait_mask = mask;
}

/* The marshaller: performs the call as its row says.  Also for handlers that add only one thing.
 * (generic.c) */
sys_fn sys_generic;

/* A call made by vmrun itself, which does not sleep and is never put off: value or -errno.
 * (call.c) */
long sys_own(long nr, uint64_t a0, uint64_t a1, uint64_t a2, uint64_t a3, uint64_t a4, uint64_t a5);

/*
 * The program's call: value or -errno, or -SYS_PUT_OFF if a signal came before it had any effect.
 * -SYS_PUT_OFF is returned to the caller of syscall_forward() like an error: the program makes the
 * call again after its handler ran.  (call.c)
 */
long sys_enter(const _Atomic uint32_t *word, long nr, const uint64_t a[6])
        __attribute__((visibility("hidden")));
/* Where the code that a signal interrupted at rip has to continue. */
uint64_t sys_interrupted(uint64_t rip);

static inline long sys_raw_unless(const _Atomic uint32_t *word, long nr, const uint64_t a[6])
{
        struct thread *t = thread_self;

        threads_safe_begin(t);
        long ret = sys_enter(word, nr, a);
        threads_safe_end(t);
        return ret;
}

static inline long sys_raw(long nr, uint64_t a0, uint64_t a1, uint64_t a2, uint64_t a3, uint64_t a4,
                           uint64_t a5)
{
        const uint64_t a[6] = { a0, a1, a2, a3, a4, a5 };

        return sys_raw_unless(&sys_put_off, nr, a);
}

/*
 * A further part of a call that signals do not cut short, such as one that waits only for a disk:
 * it is made although a signal was taken.  That signal blocks all others, so at most one can put it
 * off.
 */
static inline long sys_raw_further(long nr, uint64_t a0, uint64_t a1, uint64_t a2, uint64_t a3,
                                   uint64_t a4, uint64_t a5)
{
        static const _Atomic uint32_t never;
        const uint64_t a[6] = { a0, a1, a2, a3, a4, a5 };
        long ret = sys_raw_unless(&never, nr, a);

        return ret == -SYS_PUT_OFF ? sys_raw_unless(&never, nr, a) : ret;
}
static inline uint64_t P(const void *p) { return (uint64_t)(uintptr_t)p; }

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
#define SYS_SIGKICK     16              /* SIGSTKFLT */
#define SYS_IOV_MAX     1024
#define SYS_RW_MAX      0x7ffff000ul    /* the kernel's MAX_RW_COUNT */
#define SYS_BOUNCE      (128ul << 10)   /* transfers up to this size always use a bounce buffer */
#define SYS_CHUNK       (1ul << 20)
#define SYS_MESSAGE_MAX (64ul << 20)    /* one message of a socket that keeps message boundaries */
#define SYS_ARG_MAX     (1ul << 20)     /* a plain argument */

/* iov.c: the program's iovecs and their host shadow. */
struct sys_iov {
        struct iovec *prog;             /* iov_base are program addresses */
        struct iovec *host;             /* same lengths, in scratch */
        int n;
        size_t total;                   /* bytes, after the kernel's clipping */
};
/*
 * Reads the array.  0, or -errno if the array itself is wrong; *kernel is then the pointer to pass
 * to the kernel so that it finds the error itself.
 */
int sys_iov_read(struct thread *t, struct sys_iov *v, uint64_t addr, uint64_t n, void **kernel);
void sys_iov_one(struct sys_iov *v, struct iovec store[2], uint64_t addr, size_t len);
size_t sys_iov_clip(struct sys_iov *v, size_t max);
/* Host buffers to read into, or filled with the program's bytes to write.  They end where the
 * program's memory does, so the kernel decides how much of a transfer is made, and whether data
 * that could not be stored is lost.  0 or -ENOMEM. */
int sys_iov_room(struct thread *t, struct sys_iov *v);
int sys_iov_fill(struct thread *t, struct sys_iov *v);
/* stores the n bytes that arrived, from the front */
size_t sys_iov_store(struct thread *t, const struct sys_iov *v, size_t n);
enum sys_file { FILE_REGULAR, FILE_STREAM, FILE_MESSAGE, FILE_PIPE, FILE_CHAR, FILE_OTHER };
enum sys_file sys_file_kind(int fd);

#endif
