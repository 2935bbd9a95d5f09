/*
 * The row of a forwarded system call: which arguments it has, and what its handler is.  The rows
 * are in syscalls/table.c, the marshaller that performs them in generic.c, the calls that a row
 * cannot describe in syscalls/.
 */
#ifndef VMRUN_SYS_ROW_H
#define VMRUN_SYS_ROW_H

#include <stdint.h>

struct thread;

struct sys_row;

/* A handler for one call, with its row: the call's value or -errno, or -SYS_PUT_OFF. */
typedef long sys_fn(struct thread *t, const struct sys_row *row, const uint64_t a[6]);

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
#define RF_RIGHTS  32   /* may change the credentials or the root of the thread */

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

/* The marshaller: performs the call as its row says.  Also for handlers that add only one thing. */
sys_fn sys_generic;

#endif
