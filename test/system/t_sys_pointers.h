/*
 * For t_sys_pointers.c and its tables: a call, its arguments, and which of them are buffers.
 */
#ifndef T_SYS_POINTERS_H
#define T_SYS_POINTERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BUFS 4

/* A buffer of a call.  A table ends its list with size 0. */
struct buf {
        int8_t in;  /* number of the buffer that holds the pointer to it; -1: it is an argument */
        uint8_t at; /* which argument, or at which byte of that buffer the pointer is */
        uint16_t size;
        const void *data;               /* its content; NULL: zeros */
};

/* flags */
enum {
        SETS_FILE = 1,       /* before the call: the two files as they were; */
        SETS_PIPE = 2,       /* 64 bytes in the first pipe, none in the second; */
        SETS_SOCKET = 4,     /* 64 bytes for each end of both pairs; */
        SETS_CONNECTION = 8, /* one to accept; */
        SETS_EVENT = 16,     /* the eventfd can be read; */
        SETS_SIGNAL = 32,    /* SIGUSR1 is pending; */
        SETS_MESSAGE = 64,   /* a message in both kinds of queues */
        MAKES_FD = 128,      /* what it opens is closed again */
        ANY_RESULT = 256,    /* it succeeds with something that varies */
        HARMFUL = 512,       /* only with addresses that cannot work */
        ADDRESS = 1024,      /* the pointer is an address to map at: the rooms are made again */
};

struct call {
        const char *name;
        int nr;
        unsigned flags;
        long a[6]; /* those that are no buffers; VAR(): known at run time only */
        struct buf b[BUFS];
};

enum { VAR_PID, VAR_MSG, VAR_SEM, VAR_TIMER, VAR_COUNT };
#define VAR_BASE 0x7ab00000
#define VAR(name) (VAR_BASE + VAR_##name)

/* Descriptors that are open. */
enum {
        FD_FIRST = 10,
        FD_FILE = FD_FIRST,
        FD_OTHER,
        FD_DIR,
        FD_PIPE_R,
        FD_PIPE_W,
        FD_PIPE2_R,
        FD_PIPE2_W,
        FD_STREAM_A,
        FD_STREAM_B,
        FD_DGRAM_A,
        FD_DGRAM_B,
        FD_LISTEN,
        FD_INET,
        FD_EVENT,
        FD_EPOLL,
        FD_TIMER,
        FD_INOTIFY,
        FD_ZERO,
        FD_PTY,
        FD_QUEUE,
        FD_FREE = 40, /* from here on none is */
};

#define ARG(arg, bytes, content) { -1, arg, bytes, content }
#define STR(arg, s)      { -1, arg, sizeof(s), s }
#define IN(arg, obj)     { -1, arg, sizeof(obj), &obj }
#define OUT(arg, bytes)  { -1, arg, bytes, NULL }
#define AT(buffer, offset, bytes, content) { buffer, offset, bytes, content }

extern const struct call file_calls[], io_calls[], other_calls[];
extern const size_t n_file_calls, n_io_calls, n_other_calls;

#endif
