/*
 * What all of the runtime may use: options, messages, private fds, the VM.
 */
#ifndef VMRUN_VMRUN_H
#define VMRUN_VMRUN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "../common/size.h"
#include "abi.h"

#define EXIT_VMRUN_FAILED   125         /* vmrun itself failed */
#define EXIT_NOT_EXECUTABLE 126
#define EXIT_NOT_FOUND      127

#define NODES_MAX 64

/* A far-memory node as the user named it.  (settings.c) */
struct node_option {
        const char *url;                /* without the options that followed it */
        const char *name;               /* of its section in the configuration file, else the url */
        const char *origin;             /* where it was named, for messages: "--node mem:4G", "/etc/vmrun.conf:7: node m1" */
        const char *token_file;         /* NULL: none */
        const char *device;             /* rdma: name of the local RDMA device; NULL: by the route to the node */
        uint64_t size;                  /* bytes to use of it, whole pages; 0: all it has */
        unsigned weight;                /* share of the slabs, 1 to 1000 */
        int gid_index;                  /* rdma: in the local device's table; -1: by the route to the node */
        bool overwrite;                 /* dax: also a file with data that is not vmrun's */
};

enum placement { PLACE_WEIGHTED, PLACE_LINEAR, PLACE_FREE };

/* Settings, from the command line (options.c) and the configuration file (config.c). */
struct options {
        uint64_t cache;                 /* bytes; 0: choose */
        struct node_option nodes[NODES_MAX];    /* in the order given */
        unsigned nnodes;
        enum placement placement;
        unsigned timeout_ms;            /* how long a node may be silent before it counts as lost */
        unsigned connect_timeout_ms;    /* how long it may take to answer at start */
        enum { IO_THREAD, IO_INLINE } io;       /* who moves pages of remote nodes: a thread of its own, or the vCPUs' in an exit */
        bool verbose, overcommit, debug;
        bool follow;                    /* programs that the program executes run under vmrun, too */
        bool stats;
        const char *stats_file;         /* NULL: stderr */
        const char *config;             /* the configuration file that was read; NULL: none */
        enum { CMD_RUN, CMD_CHECK, CMD_STATES } command;
        const char *states_pid;
        char **argv;                    /* PROGRAM [ARG...] */
};
extern struct options opt;
/* Fills opt.  --help, --version and mistakes end the process here; afterwards opt.cache is chosen.  (options.c) */
void options_parse(int argc, char **argv);
/* To follow what is said of a program that cannot be had, which may be meant for something else. */
const char *options_hint(void);

/* vmrun's own words go to a private copy of stderr, one line each, with the prefix "vmrun: ". (message.c) */
void message_use(int fd);               /* the copy; -1: there is none */
extern bool message_verbose;            /* info_() says something */
void warnx_(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void info_(const char *fmt, ...) __attribute__((format(printf, 1, 2)));        /* only with -v */
_Noreturn void die_(int status, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* info_() once for each key. */
void info_once(unsigned long key, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int message_fd(void);

/* vmrun's own file descriptors sit at and above the program's RLIMIT_NOFILE where there is room, close-on-exec.  They are an exact set:
 * privfd_is is not monotonous. (privfd.c) */
void privfd_init(void);                 /* fixes the border from the current limits */
/* Instead, after execve: with limits of the program's that are not the host's. */
void privfd_init_seen(uint64_t soft, uint64_t hard);
int privfd_adopt(int fd);               /* makes an inherited descriptor private and close-on-exec where it is: 0 or -EBADF */
int privfd_base(void);                  /* where they begin */
/* A new private one: `call` makes it under a low number. -errno if that fails. While it has that number, the program's threads close and
 * replace no descriptor, for they could hit this one. */
#define PRIVFD_NEW(call) ({                                             \
        bool held_ = privfd_making();                                   \
        int fd_ = (call);                                               \
        fd_ = fd_ < 0 ? -errno : privfd_move(fd_);                      \
        privfd_made(held_);                                             \
        fd_;                                                            \
})
bool privfd_making(void);               /* the same by hand, for calls that make several; privfd_made() takes the result */
void privfd_made(bool held);
void privfd_numbers_lock(void), privfd_numbers_unlock(void);    /* around a call by which the program closes or replaces a number */
void privfd_forked(void);               /* in a child: the threads that were between the two are not there */
int privfd_move(int fd);                /* moves fd up there; returns the new one, or -errno (fd is closed either way) */
int privfd_dup(int fd);                 /* same, but leaves fd open; not between privfd_making() and _made() */
void privfd_close(int fd);              /* never plain close() for a private one */
void privfd_forget(int fd);             /* for a library that will close this one itself, right after */
void privfd_closed(int fd);             /* a library has closed this one by plain close() */
bool privfd_is(int fd);                 /* must the program not see this one? */
int privfd_next(int from);              /* the lowest private fd at or above from, or -1 */
/* close_range that passes over the private ones, which are a set and not a range: the program may have raised its limit beyond them. */
int privfd_close_range(unsigned first, unsigned last, unsigned flags);
uint64_t privfd_nofile_soft(void), privfd_nofile_hard(void);     /* what the program sees as RLIMIT_NOFILE */
bool has_capability(int cap);           /* CAP_* effective in this process? */
int privfd_set_nofile(uint64_t soft, uint64_t hard);

#endif
