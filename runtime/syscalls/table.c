/*
 * One row a system call number, x86-64, Linux 6.1.  Data only: what a row cannot say has a handler, and what is not
 * offered is refused by a row of its own, with the errno a kernel without that feature gives.
 */
#include <linux/keyctl.h>
#include "sys.h"

/* Arguments. */
#define V               { K_VAL, 0, -1, 0, 0 }
#define FD              { K_FD, 0, -1, 0, 0 }
#define PATH            { K_PATH, 0, -1, 0, 0 }
#define PATHN           { K_PATH, AF_NULL, -1, 0, 0 }
#define PATHF(k)        { K_PATH, AF_NULL, -1, k + 1, 0 }       /* argument k has AT_SYMLINK_NOFOLLOW */
#define LINK            { K_PATHL, 0, -1, 0, 0 }
#define STR             { K_PATHL, 0, -1, 0, 0 }
#define STRN            { K_PATHL, AF_NULL, -1, 0, 0 }
#define IN(n)           { K_IN, 0, -1, 0, n }
#define INN(n)          { K_IN, AF_NULL, -1, 0, n }
#define INA(k)          { K_IN, AF_NULL, k, 0, 1 }              /* argument k bytes */
#define INI(k)          { K_IN, AF_NULL | AF_INT, k, 0, 1 }     /* the same, k an int */
#define INX(k, n, x)    { K_IN, 0, k, x, n }                    /* argument k elements of n bytes, and x more */
#define OUT(n)          { K_OUT, 0, -1, 0, n }
#define OUTN(n)         { K_OUT, AF_NULL, -1, 0, n }
#define OUTR(k)         { K_OUT, AF_NULL | AF_RET, k, 0, 1 }    /* room for argument k bytes, result says how many came */
#define OUTRI(k)        { K_OUT, AF_NULL | AF_RET | AF_INT, k, 0, 1 }
#define OUTRU(k)        { K_OUT, AF_NULL | AF_RET | AF_UINT, k, 0, 1 }
#define OUTRX(k, n, x)  { K_OUT, AF_RET | AF_INT, k, x, n }
#define PRE(n)          { K_PRE, 0, -1, 0, n }
#define PREN(n)         { K_PRE, AF_NULL, -1, 0, n }
#define PREA(k)         { K_PRE, AF_UINT, k, 0, 1 }
#define PREAN(k)        { K_PRE, AF_NULL, k, 0, 1 }
#define PRER(k)         { K_PRE, AF_NULL | AF_RET, k, 0, 1 }    /* the result may say more than came, and is then no length of what did */
#define CHGN(n)         { K_PRE, AF_NULL | AF_CHG, -1, 0, n }
#define IO(n)           { K_INOUT, 0, -1, 0, n }
#define ION(n)          { K_INOUT, AF_NULL, -1, 0, n }
#define VOUT(k)         { K_VOUT, AF_NULL, k, 0, 1 }
#define BLOCKED         { K_BLOCKED, AF_NULL, -1, 0, 8 }

/* Rows. */
#define ROW(n, ...)     [__NR_##n] = { #n, NULL, 0, 0, { __VA_ARGS__ }, NULL }
#define ROWF(n, f, ...) [__NR_##n] = { #n, NULL, 0, f, { __VA_ARGS__ }, NULL }
#define HAND(n, f, h)   [__NR_##n] = { #n, h, 0, f, { { 0 } }, NULL }
#define HROW(n, f, h, ...) [__NR_##n] = { #n, h, 0, f, { __VA_ARGS__ }, NULL }        /* handler that ends in the marshaller */
#define NOT(n, e, why)  [__NR_##n] = { #n, NULL, e, 0, { { 0 } }, why }
#define KERN(n)         NOT(n, ENOSYS, NULL)    /* kern serves it; here only by mistake */
#define B       RF_BLOCKS
#define NEW     RF_NEWFD
#define NEW2    RF_NEWFD2
#define FIRST   RF_RESERVE

/* Why a call is refused: a sentence for docs/syscalls.md and for -v. */
#define GONE    "a number without a call: Linux has none behind it either"
#define OLD     "obsolete; as a kernel built without it"
#define ADMIN   "changes the whole machine, which is no business of a program in a VM; as without the privilege"
#define PORTS   "the ports that a program would see are the VM's; as without the privilege"
#define QUOTA   "what follows its pointer depends on the file system; as without CONFIG_QUOTA"
#define AIO     "the kernel would keep addresses of the program's after the call; as without CONFIG_AIO"
#define NUMA    "the program's memory is frames of a cache, which are not its own to place; as without CONFIG_NUMA"
#define CROSS   "addresses in another process are vmrun's there, not its program's; as without CONFIG_CROSS_MEMORY_ATTACH"
#define PKEYS   "page tables are kern's, and it keeps no keys; as before Linux 4.9"
#define RING    "rings are shared with the kernel, which would keep addresses of the program's; as without CONFIG_IO_URING"

#define TIMESPEC 16
#define STAT    144

/* keyctl, by command (argument 0). */
#define KEY(c, ...)     [KEYCTL_##c] = { "KEYCTL_" #c, NULL, 0, 0, { V, __VA_ARGS__ }, NULL }
#define HKEY(c, h, ...) [KEYCTL_##c] = { "KEYCTL_" #c, h, 0, 0, { V, __VA_ARGS__ }, NULL }
const struct sys_row sys_keyctl_rows[SYS_KEYCTL_ROWS] = {
        KEY(GET_KEYRING_ID, V, V), KEY(JOIN_SESSION_KEYRING, STRN), KEY(UPDATE, V, INA(3), V), KEY(REVOKE, V), KEY(CHOWN, V, V, V),
        KEY(SETPERM, V, V), KEY(DESCRIBE, V, PRER(3), V), KEY(CLEAR, V), KEY(LINK, V, V), KEY(UNLINK, V, V), KEY(SEARCH, V, STR, STR, V),
        KEY(READ, V, PRER(3), V), KEY(INSTANTIATE, V, INA(3), V, V), KEY(NEGATE, V, V, V), KEY(SET_REQKEY_KEYRING, V), KEY(SET_TIMEOUT, V, V),
        KEY(ASSUME_AUTHORITY, V), KEY(GET_SECURITY, V, PRER(3), V), KEY(SESSION_TO_PARENT, V), KEY(REJECT, V, V, V, V),
        HKEY(INSTANTIATE_IOV, sys_key_iov, V), KEY(INVALIDATE, V), KEY(GET_PERSISTENT, V, V), HKEY(DH_COMPUTE, sys_key_dh, IN(12), PRER(3), V, V),
        KEY(PKEY_QUERY, V, V, STRN, OUT(56)), HKEY(PKEY_ENCRYPT, sys_key_pkey, V), HKEY(PKEY_DECRYPT, sys_key_pkey, V),
        HKEY(PKEY_SIGN, sys_key_pkey, V), HKEY(PKEY_VERIFY, sys_key_pkey, V), KEY(RESTRICT_KEYRING, V, STRN, STRN), KEY(MOVE, V, V, V, V),
        KEY(CAPABILITIES, PREAN(2), V), KEY(WATCH_KEY, V, FD, V),
};

const struct sys_row sys_rows[SYS_ROWS] = {
        HAND(read, B, sys_read),
        HAND(write, B, sys_write),
        HROW(open, B | NEW | FIRST, sys_open, PATH, V, V),
        HAND(close, 0, sys_close),
        ROW(stat, PATH, OUT(STAT)),
        ROW(fstat, FD, OUT(STAT)),
        ROW(lstat, LINK, OUT(STAT)),
        HAND(poll, B, sys_poll),
        HROW(lseek, 0, sys_lseek, FD, V, V),
        KERN(mmap), KERN(mprotect), KERN(munmap), KERN(brk),
        HAND(rt_sigaction, 0, sys_rt_sigaction),
        HAND(rt_sigprocmask, 0, sys_rt_sigprocmask),
        HAND(rt_sigreturn, 0, sys_rt_sigreturn),
        HAND(ioctl, B, sys_ioctl),
        HAND(pread64, B, sys_read),
        HAND(pwrite64, B, sys_write),
        HAND(readv, B, sys_readv),
        HAND(writev, B, sys_writev),
        ROW(access, PATH, V),
        ROWF(pipe, NEW2, OUT(8)),
        HAND(select, B, sys_select),
        ROW(sched_yield, V),
        KERN(mremap), KERN(msync), KERN(mincore), KERN(madvise),
        HROW(shmget, 0, sys_shmget, V, V, V),
        KERN(shmat),
        HAND(shmctl, 0, sys_shmctl),
        ROWF(dup, NEW, FD),
        HAND(dup2, NEW, sys_dup2),
        ROWF(pause, B, V),
        ROWF(nanosleep, B, IN(TIMESPEC), CHGN(TIMESPEC)),
        ROW(getitimer, V, OUT(32)),
        ROW(alarm, V),
        ROW(setitimer, V, INN(32), OUTN(32)),
        ROW(getpid, V),
        ROWF(sendfile, B, FD, FD, ION(8), V),
        ROWF(socket, NEW, V, V, V),
        ROWF(connect, B, FD, INI(2), V),
        ROWF(accept, B | NEW | FIRST, FD, VOUT(2), ION(4)),
        HAND(sendto, B, sys_sendto),
        HAND(recvfrom, B, sys_recvfrom),
        HAND(sendmsg, B, sys_sendmsg),
        HAND(recvmsg, B, sys_recvmsg),
        ROW(shutdown, FD, V),
        ROW(bind, FD, INI(2), V),
        ROW(listen, FD, V),
        ROW(getsockname, FD, VOUT(2), IO(4)),
        ROW(getpeername, FD, VOUT(2), IO(4)),
        ROWF(socketpair, NEW2, V, V, V, OUT(8)),
        HROW(setsockopt, 0, sys_setsockopt, FD, V, V, INI(4), V),
        HROW(getsockopt, 0, sys_getsockopt, FD, V, V, { K_VOUT, AF_NULL | AF_READ, 4, 0, 1 }, { K_INOUT, AF_FAIL, -1, 0, 4 }),
        HAND(clone, 0, sys_clone), HAND(fork, 0, sys_fork), HAND(vfork, 0, sys_vfork),
        HAND(execve, 0, sys_execve),
        HAND(exit, 0, sys_exit),
        ROWF(wait4, B, V, PREN(4), V, PREN(144)),
        ROW(kill, V, V),
        ROW(uname, OUT(390)),
        ROW(semget, V, V, V),
        ROWF(semop, B, V, INX(2, 6, 0), V),
        HAND(semctl, 0, sys_semctl),
        KERN(shmdt),
        ROW(msgget, V, V),
        ROWF(msgsnd, B, V, INX(2, 1, 8), V, V),
        HROW(msgrcv, B, sys_msgrcv, V, { K_OUT, AF_RET, 2, 8, 1 }, V, V, V),
        HAND(msgctl, 0, sys_msgctl),
        HAND(fcntl, B, sys_fcntl),
        ROWF(flock, B, FD, V),
        ROW(fsync, FD), ROW(fdatasync, FD),
        HROW(truncate, 0, sys_truncate, PATH, V),
        HROW(ftruncate, 0, sys_ftruncate, FD, V),
        HROW(getdents, 0, sys_getdents, FD, OUTRU(2), V),
        ROW(getcwd, OUTR(1), V),
        ROW(chdir, PATH), ROW(fchdir, FD),
        ROW(rename, LINK, LINK), ROW(mkdir, LINK, V), ROW(rmdir, LINK),
        HROW(creat, B | NEW | FIRST, sys_creat, PATH, V),
        ROW(link, LINK, LINK), ROW(unlink, LINK), ROW(symlink, STR, LINK),
        HROW(readlink, 0, sys_readlink, LINK, OUTRI(2), V),
        ROW(chmod, PATH, V), ROW(fchmod, FD, V),
        ROW(chown, PATH, V, V), ROW(fchown, FD, V, V), ROW(lchown, LINK, V, V),
        ROW(umask, V),
        ROW(gettimeofday, OUTN(16), OUTN(8)),
        HAND(getrlimit, 0, sys_getrlimit),
        ROW(getrusage, V, OUT(144)),
        HAND(sysinfo, 0, sys_sysinfo),
        ROW(times, OUTN(32)),
        NOT(ptrace, EPERM, "a tracer would see vmrun's registers and memory, not the program's; as under Yama at its strictest"),
        ROW(getuid, V),
        ROW(syslog, V, OUTRI(2), V),
        ROW(getgid, V), ROW(setuid, V), ROW(setgid, V), ROW(geteuid, V), ROW(getegid, V),
        ROW(setpgid, V, V), ROW(getppid, V), ROW(getpgrp, V), ROW(setsid, V),
        ROW(setreuid, V, V), ROW(setregid, V, V),
        ROW(getgroups, V, OUTRX(0, 4, 0)),
        ROW(setgroups, V, { K_IN, AF_INT, 0, 0, 4 }),
        ROW(setresuid, V, V, V), ROW(getresuid, OUT(4), OUT(4), OUT(4)),
        ROW(setresgid, V, V, V), ROW(getresgid, OUT(4), OUT(4), OUT(4)),
        ROW(getpgid, V), ROW(setfsuid, V), ROW(setfsgid, V), ROW(getsid, V),
        HAND(capget, 0, sys_capability), HAND(capset, 0, sys_capability),
        HAND(rt_sigpending, 0, sys_rt_sigpending),
        ROWF(rt_sigtimedwait, B, INN(8), OUTN(128), INN(TIMESPEC), V),
        ROW(rt_sigqueueinfo, V, V, IN(128)),
        ROWF(rt_sigsuspend, B, BLOCKED, V),
        HAND(sigaltstack, 0, sys_sigaltstack),
        ROW(utime, PATH, INN(16)),
        ROW(mknod, LINK, V, V),
        NOT(uselib, ENOSYS, OLD),
        ROW(personality, V),
        NOT(ustat, ENOSYS, OLD),
        ROW(statfs, PATH, OUT(120)), ROW(fstatfs, FD, OUT(120)),
        NOT(sysfs, ENOSYS, OLD),
        ROW(getpriority, V, V), ROW(setpriority, V, V, V),
        ROW(sched_setparam, V, IN(4)), ROW(sched_getparam, V, OUT(4)),
        ROW(sched_setscheduler, V, V, IN(4)), ROW(sched_getscheduler, V),
        ROW(sched_get_priority_max, V), ROW(sched_get_priority_min, V),
        ROW(sched_rr_get_interval, V, OUT(TIMESPEC)),
        KERN(mlock), KERN(munlock), KERN(mlockall), KERN(munlockall),
        ROW(vhangup, V),
        NOT(modify_ldt, ENOSYS, "segments of the program's own are not kept; as without CONFIG_MODIFY_LDT_SYSCALL"),
        ROW(pivot_root, PATH, PATH),
        NOT(_sysctl, ENOSYS, OLD),
        HAND(prctl, 0, sys_prctl),
        KERN(arch_prctl),
        ROW(adjtimex, IO(208)),
        HAND(setrlimit, 0, sys_setrlimit),
        ROW(chroot, PATH), ROW(sync, V), ROW(acct, PATHN),
        ROW(settimeofday, INN(16), INN(8)),
        ROW(mount, STRN, PATH, STRN, V, STRN),
        ROW(umount2, PATH, V),
        ROW(swapon, PATH, V), ROW(swapoff, PATH),
        NOT(reboot, EPERM, ADMIN),
        ROW(sethostname, { K_IN, AF_INT, 1, 0, 1 }, V), ROW(setdomainname, { K_IN, AF_INT, 1, 0, 1 }, V),
        NOT(iopl, EPERM, PORTS), NOT(ioperm, EPERM, PORTS),
        NOT(create_module, ENOSYS, GONE), NOT(init_module, EPERM, ADMIN), NOT(delete_module, EPERM, ADMIN),
        NOT(get_kernel_syms, ENOSYS, GONE), NOT(query_module, ENOSYS, GONE),
        NOT(quotactl, ENOSYS, QUOTA),
        NOT(nfsservctl, ENOSYS, GONE), NOT(getpmsg, ENOSYS, GONE), NOT(putpmsg, ENOSYS, GONE), NOT(afs_syscall, ENOSYS, GONE),
        NOT(tuxcall, ENOSYS, GONE), NOT(security, ENOSYS, GONE),
        ROW(gettid, V),
        ROW(readahead, FD, V, V),
        ROW(setxattr, PATH, STR, INA(3), V, V), ROW(lsetxattr, LINK, STR, INA(3), V, V),
        ROW(fsetxattr, FD, STR, INA(3), V, V),
        ROW(getxattr, PATH, STR, OUTR(3), V), ROW(lgetxattr, LINK, STR, OUTR(3), V), ROW(fgetxattr, FD, STR, OUTR(3), V),
        ROW(listxattr, PATH, OUTR(2), V), ROW(llistxattr, LINK, OUTR(2), V), ROW(flistxattr, FD, OUTR(2), V),
        ROW(removexattr, PATH, STR), ROW(lremovexattr, LINK, STR), ROW(fremovexattr, FD, STR),
        ROW(tkill, V, V),
        ROW(time, OUTN(8)),
        HAND(futex, B, sys_futex),
        ROW(sched_setaffinity, V, V, { K_IN, AF_UINT, 1, 0, 1 }),
        ROW(sched_getaffinity, V, V, { K_OUT, AF_RET | AF_UINT, 1, 0, 1 }),
        NOT(set_thread_area, ENOSYS, "of 32-bit programs only"),
        NOT(io_setup, ENOSYS, AIO), NOT(io_destroy, ENOSYS, AIO), NOT(io_getevents, ENOSYS, AIO), NOT(io_submit, ENOSYS, AIO),
        NOT(io_cancel, ENOSYS, AIO),
        NOT(get_thread_area, ENOSYS, "of 32-bit programs only"),
        NOT(lookup_dcookie, ENOSYS, "for a profiler that is gone; as without CONFIG_PROFILING"),
        ROWF(epoll_create, NEW, V),
        NOT(epoll_ctl_old, ENOSYS, GONE), NOT(epoll_wait_old, ENOSYS, GONE),
        NOT(remap_file_pages, ENOSYS, "replaced by mmap; the kernel emulates it only"),
        HROW(getdents64, 0, sys_getdents, FD, OUTRU(2), V),
        HAND(set_tid_address, 0, sys_set_tid_address),
        NOT(restart_syscall, EINTR, "the kernel's own; a program that makes it gets the same"),
        ROWF(semtimedop, B, V, INX(2, 6, 0), V, INN(TIMESPEC)),
        ROW(fadvise64, FD, V, V, V),
        ROW(timer_create, V, INN(64), OUT(4)),
        ROW(timer_settime, V, V, IN(32), OUTN(32)), ROW(timer_gettime, V, OUT(32)),
        ROW(timer_getoverrun, V), ROW(timer_delete, V),
        ROW(clock_settime, V, IN(TIMESPEC)), ROW(clock_gettime, V, OUT(TIMESPEC)), ROW(clock_getres, V, OUTN(TIMESPEC)),
        ROWF(clock_nanosleep, B, V, V, IN(TIMESPEC), CHGN(TIMESPEC)),
        HAND(exit_group, 0, sys_exit),
        ROWF(epoll_wait, B, FD, OUTRX(2, 12, 0), V, V),
        ROW(epoll_ctl, FD, V, FD, INN(12)),
        ROW(tgkill, V, V, V),
        ROW(utimes, PATH, INN(32)),
        NOT(vserver, ENOSYS, GONE),
        NOT(mbind, ENOSYS, NUMA), NOT(set_mempolicy, ENOSYS, NUMA), NOT(get_mempolicy, ENOSYS, NUMA),
        ROWF(mq_open, NEW | FIRST, STR, V, V, INN(64)), ROW(mq_unlink, STR),
        ROWF(mq_timedsend, B, FD, INA(2), V, V, INN(TIMESPEC)),
        ROWF(mq_timedreceive, B, FD, OUTR(2), V, OUTN(4), INN(TIMESPEC)),
        HAND(mq_notify, 0, sys_mq_notify),
        ROW(mq_getsetattr, FD, INN(64), OUTN(64)),
        NOT(kexec_load, EPERM, ADMIN),
        ROWF(waitid, B, V, V, PREN(128), V, PREN(144)),
        ROW(add_key, STR, STRN, INA(3), V, V), ROWF(request_key, B, STR, STR, STRN, V), HAND(keyctl, 0, sys_keyctl),
        ROW(ioprio_set, V, V, V), ROW(ioprio_get, V, V),
        ROWF(inotify_init, NEW, V), ROW(inotify_add_watch, FD, PATH, V), ROW(inotify_rm_watch, FD, V),
        NOT(migrate_pages, ENOSYS, NUMA),
        HROW(openat, B | NEW | FIRST, sys_openat, FD, PATH, V, V),
        ROW(mkdirat, FD, LINK, V), ROW(mknodat, FD, LINK, V, V),
        ROW(fchownat, FD, PATHF(4), V, V, V), ROW(futimesat, FD, PATHN, INN(32)),
        ROW(newfstatat, FD, PATHF(3), OUT(STAT), V),
        ROW(unlinkat, FD, LINK, V), ROW(renameat, FD, LINK, FD, LINK), ROW(linkat, FD, LINK, FD, LINK, V),
        ROW(symlinkat, STR, FD, LINK),
        HROW(readlinkat, 0, sys_readlinkat, FD, LINK, OUTRI(3), V),
        ROW(fchmodat, FD, PATH, V), ROW(faccessat, FD, PATH, V),
        HAND(pselect6, B, sys_pselect6),
        HAND(ppoll, B, sys_ppoll),
        HROW(unshare, 0, sys_unshare, V),
        HAND(set_robust_list, 0, sys_set_robust_list), HAND(get_robust_list, 0, sys_get_robust_list),
        ROWF(splice, B, FD, ION(8), FD, ION(8), V, V),
        ROWF(tee, B, FD, FD, V, V),
        ROW(sync_file_range, FD, V, V, V),
        HAND(vmsplice, B, sys_vmsplice),
        NOT(move_pages, ENOSYS, NUMA),
        ROW(utimensat, FD, PATHF(3), INN(32), V),
        ROWF(epoll_pwait, B, FD, OUTRX(2, 12, 0), V, V, BLOCKED, V),
        ROWF(signalfd, NEW, FD, INN(8), V),
        ROWF(timerfd_create, NEW, V, V),
        ROWF(eventfd, NEW, V),
        ROWF(fallocate, B, FD, V, V, V),
        ROW(timerfd_settime, FD, V, IN(32), OUTN(32)), ROW(timerfd_gettime, FD, OUT(32)),
        ROWF(accept4, B | NEW | FIRST, FD, VOUT(2), ION(4), V),
        ROWF(signalfd4, NEW, FD, INN(8), V, V),
        ROWF(eventfd2, NEW, V, V), ROWF(epoll_create1, NEW, V),
        HAND(dup3, NEW, sys_dup2),
        ROWF(pipe2, NEW2, OUT(8), V),
        ROWF(inotify_init1, NEW, V),
        HAND(preadv, B, sys_readv), HAND(pwritev, B, sys_writev),
        ROW(rt_tgsigqueueinfo, V, V, V, IN(128)),
        NOT(perf_event_open, ENOSYS, "vmrun's work would be counted with the program's; as without CONFIG_PERF_EVENTS"),
        HAND(recvmmsg, B, sys_recvmmsg),
        ROWF(fanotify_init, NEW, V, V), ROW(fanotify_mark, FD, V, V, FD, PATHN),
        HAND(prlimit64, 0, sys_prlimit64),
        HAND(name_to_handle_at, 0, sys_name_to_handle), HAND(open_by_handle_at, NEW, sys_open_by_handle),
        ROW(clock_adjtime, V, IO(208)),
        ROW(syncfs, FD),
        HAND(sendmmsg, B, sys_sendmmsg),
        HROW(setns, 0, sys_setns, FD, V),
        ROW(getcpu, OUTN(4), OUTN(4), V),
        HAND(process_vm_readv, 0, sys_process_vm), HAND(process_vm_writev, 0, sys_process_vm),
        HAND(kcmp, 0, sys_kcmp),
        NOT(finit_module, EPERM, ADMIN),
        HAND(sched_setattr, 0, sys_sched_attr), ROW(sched_getattr, V, PREA(2), V, V),
        ROW(renameat2, FD, LINK, FD, LINK, V),
        NOT(seccomp, ENOSYS, "a filter would judge vmrun's calls, not the program's; as without CONFIG_SECCOMP"),
        HAND(getrandom, B, sys_getrandom),
        ROWF(memfd_create, NEW, STR, V),
        NOT(kexec_file_load, EPERM, ADMIN),
        NOT(bpf, EPERM, "its structs are full of pointers, and its programs watch the host; as with unprivileged_bpf_disabled"),
        HAND(execveat, 0, sys_execveat),
        NOT(userfaultfd, ENOSYS, "page faults of the program do not reach the host kernel; as without CONFIG_USERFAULTFD"),
        ROW(membarrier, V, V, V),
        KERN(mlock2),
        ROWF(copy_file_range, B, FD, ION(8), FD, ION(8), V, V),
        HAND(preadv2, B, sys_readv), HAND(pwritev2, B, sys_writev),
        NOT(pkey_mprotect, ENOSYS, PKEYS), NOT(pkey_alloc, ENOSYS, PKEYS), NOT(pkey_free, ENOSYS, PKEYS),
        ROW(statx, FD, PATHF(2), V, V, OUT(256)),
        NOT(io_pgetevents, ENOSYS, AIO),
        NOT(rseq, ENOSYS, "the kernel would write to an address of the program's at each switch; as before Linux 4.18"),
        ROW(pidfd_send_signal, FD, V, INN(128), V),
        NOT(io_uring_setup, ENOSYS, RING), NOT(io_uring_enter, ENOSYS, RING), NOT(io_uring_register, ENOSYS, RING),
        ROWF(open_tree, NEW, FD, PATH, V), ROW(move_mount, FD, PATH, FD, PATH, V),
        ROWF(fsopen, NEW, STR, V), HROW(fsconfig, 0, sys_fsconfig, FD, V, STRN, STRN, V),
        ROWF(fsmount, NEW, FD, V, V), ROWF(fspick, NEW, FD, PATH, V),
        ROWF(pidfd_open, NEW, V, V),
        HAND(clone3, 0, sys_clone3),
        HAND(close_range, 0, sys_close_range),
        HAND(openat2, B | NEW, sys_openat2),
        ROWF(pidfd_getfd, NEW, FD, V, V),
        ROW(faccessat2, FD, PATHF(3), V, V),
        NOT(process_madvise, ENOSYS, CROSS),
        ROWF(epoll_pwait2, B, FD, OUTRX(2, 12, 0), V, INN(TIMESPEC), BLOCKED, V),
        ROW(mount_setattr, FD, PATH, V, INA(4), V),
        NOT(quotactl_fd, ENOSYS, QUOTA),
        ROWF(landlock_create_ruleset, NEW, INA(1), V, V), ROW(landlock_add_rule, FD, V, IN(16), V),
        ROW(landlock_restrict_self, FD, V),
        NOT(memfd_secret, ENOSYS, "its pages could not be the program's frames; as where it was not enabled at boot"),
        ROW(process_mrelease, FD, V),
        NOT(futex_waitv, ENOSYS, "waiting on many words at once is not there; as before Linux 5.16"),
        NOT(set_mempolicy_home_node, ENOSYS, NUMA),

        /* 335..423: numbers x86-64 does not use. */
        [335 ... 423] = { NULL, NULL, ENOSYS, 0, { { 0 } }, NULL },
};
