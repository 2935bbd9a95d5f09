/*
 * The program's iovecs and their host shadow.
 */
#ifndef VMRUN_SYS_IOV_H
#define VMRUN_SYS_IOV_H

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

struct thread;

#define SYS_IOV_MAX     1024
#define SYS_RW_MAX      0x7ffff000ul    /* the kernel's MAX_RW_COUNT */

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
