/*
 * process_vm_readv and process_vm_writev: between this program and itself, or a process that does
 * not run under vmrun.
 *
 * Pages of another program under vmrun may be in far memory, where only its own kern finds them,
 * and its page tables may change at any time: EPERM, as for a process that may not be traced.
 */
#include <errno.h>
#include "base/message.h"
#include "marshal/call.h"
#include "marshal/iov.h"
#include "marshal/row.h"
#include "marshal/scratch.h"
#include "memory/gmem.h"
#include "syscalls/handlers.h"
#include "syscalls/limits.h"

/* A position in a list: pieces left, and bytes used of the first one. */
struct place { const struct iovec *iov; uint64_t left, at; };

/* Bytes at *addr up to the end of its piece, at most a page; 0: the list is at its end. */
static size_t next_piece(struct place *p, uint64_t *addr)
{
        while (p->left && p->at == p->iov->iov_len) {
                p->iov++;
                p->left--;
                p->at = 0;
        }
        if (!p->left)
                return 0;
        *addr = P(p->iov->iov_base) + p->at;
        uint64_t page = PAGE_SIZE - (*addr & (PAGE_SIZE - 1)), rest = p->iov->iov_len - p->at;
        return rest < page ? rest : page;
}

/* Copies n bytes between the other side and buf.  Returns how many, or -errno. */
static long there(struct thread *t, int pid, char *buf, uint64_t addr, size_t n, bool write)
{
        const struct iovec l = { buf, n }, r = { (void *)(uintptr_t)addr, n };

        long nr = write ? __NR_process_vm_writev : __NR_process_vm_readv;

        if (pid)
                return sys_own(nr, (uint64_t)pid, P(&l), 1, P(&r), 1, 0);
        int err = write ? gmem_write(t, addr, buf, n) : gmem_read(t, buf, addr, n);
        return err ? err : (long)n;
}

/* pid: 0 for this program. */
static long transfer(struct thread *t, int pid, struct place *l, struct place *r, bool write)
{
        char buf[PAGE_SIZE];
        uint64_t here, addr;
        long done = 0, got = 0;

        for (size_t n, m; (n = next_piece(l, &here)) != 0 && (m = next_piece(r, &addr)) != 0; ) {
                n = n < m ? n : m;
                if (write && gmem_read(t, buf, here, n))
                        got = -EFAULT;
                else
                        got = there(t, pid, buf, addr, n, write);
                if (got > 0 && !write && gmem_write(t, here, buf, (size_t)got))
                        got = -EFAULT;
                if (got <= 0)
                        break;
                done += got;
                l->at += (uint64_t)got;
                r->at += (uint64_t)got;
        }
        return done ? done : got;
}

/* Reads the other side's list, whose addresses are not checked.  0, with *any: it has at least one
 * byte; or -errno. */
static long read_remote(struct thread *t, uint64_t addr, uint64_t n, struct iovec **iov, bool *any)
{
        *any = false;
        if (n > SYS_IOV_MAX)
                return -EINVAL;
        *iov = sys_scratch(n * sizeof(**iov) + 1);
        if (!*iov)
                return -ENOMEM;
        if (n && gmem_read(t, *iov, addr, n * sizeof(**iov)))
                return -EFAULT;
        for (uint64_t i = 0; i < n; i++) {
                if ((int64_t)(*iov)[i].iov_len < 0)
                        return -EINVAL;
                *any |= (*iov)[i].iov_len > 0;
        }
        return 0;
}

long sys_process_vm(struct thread *t, const struct sys_row *row, const uint64_t a[6])
{
        int pid = (int)a[0];
        struct iovec *remote;
        struct sys_iov v;
        void *kernel;
        bool any;

        if (a[5])
                return -EINVAL;
        long err = sys_iov_read(t, &v, a[1], a[2], &kernel);
        if (err || !v.total)
                return err;
        err = read_remote(t, a[3], a[4], &remote, &any);
        if (err || !any)
                return err;
        if (pid == t->pid || threads_find(t, pid)) {
                pid = 0;
        } else if (pid <= 0) {
                return -ESRCH;
        } else if (sys_under_vmrun(pid)) {
                info_once(0x70007, "the memory of another program under vmrun cannot be read or "
                                      "written: EPERM");
                return -EPERM;
        }
        struct place l = { v.prog, (uint64_t)v.n, 0 }, r = { remote, a[4], 0 };
        return transfer(t, pid, &l, &r, row->nr == __NR_process_vm_writev);
}
