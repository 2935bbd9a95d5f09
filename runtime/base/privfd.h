/*
 * vmrun's own file descriptors, out of the program's sight.
 */
#ifndef VMRUN_PRIVFD_H
#define VMRUN_PRIVFD_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>

/* vmrun's own file descriptors sit well above the program's RLIMIT_NOFILE where there is room,
 * close-on-exec.  They are an exact set: privfd_is is not monotonous. (privfd.c) */
void privfd_init(void);                 /* fixes the border from the current limits */
/* After execve, instead of privfd_init(): with the program's limits, which differ from the
 * host's. */
void privfd_init_seen(uint64_t soft, uint64_t hard);
/* makes an inherited descriptor private and close-on-exec where it is: 0 or -EBADF */
int privfd_adopt(int fd);
int privfd_base(void);                  /* where they begin */
/* A new private descriptor: `call` makes it under a low number.  -errno if that fails.  While it
 * has that number, threads of the program close and replace no descriptor, since they could hit the
 * new one. */
#define PRIVFD_NEW(call) ({                                             \
        bool held_ = privfd_making();                                   \
        int fd_ = (call);                                               \
        fd_ = fd_ < 0 ? -errno : privfd_move(fd_);                      \
        privfd_made(held_);                                             \
        fd_;                                                            \
})
/* the two halves of PRIVFD_NEW, for calls that make several descriptors; privfd_made() takes the
 * result */
bool privfd_making(void);
void privfd_made(bool held);
/* around a call by which the program closes or replaces a number */
void privfd_numbers_lock(void), privfd_numbers_unlock(void);
/* in a child: threads that were between lock and unlock do not exist there */
void privfd_forked(void);
/* The child of a vfork runs on its parent's thread, in its parent's memory, with a descriptor table
 * of its own, which has its own marks.  privfd_vfork() and privfd_vforked() stand around the vfork
 * (false: no memory); privfd_parting() and privfd_parted() between them, around the call that makes
 * the table. */
struct privfd_lent { struct privfd_marks *own, *room, *made; };
bool privfd_vfork(struct privfd_lent *was);
void privfd_vforked(const struct privfd_lent *was);
void privfd_parting(void), privfd_parted(void);
bool privfd_apart(void);                /* has this thread such a table? */
/* Moves fd to a private number; returns it, or -errno (fd is closed either way). */
int privfd_move(int fd);
/* as privfd_move(), but leaves fd open; not between privfd_making() and _made() */
int privfd_dup(int fd);
void privfd_close(int fd);              /* never use plain close() for a private descriptor */
/* for a library that will close this descriptor itself, right after */
void privfd_forget(int fd);
void privfd_closed(int fd);             /* a library has closed fd by plain close() */
bool privfd_is(int fd);                 /* must the program not see this descriptor? */
int privfd_next(int from);              /* the lowest private fd at or above from, or -1 */
/* RLIMIT_NOFILE as the program sees it */
uint64_t privfd_nofile_soft(void), privfd_nofile_hard(void);
bool has_capability(int cap);           /* CAP_* effective in this process? */
int privfd_set_nofile(uint64_t soft, uint64_t hard);

#endif
