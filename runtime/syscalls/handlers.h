/*
 * The table of system calls and its handlers.
 */
#ifndef VMRUN_HANDLERS_H
#define VMRUN_HANDLERS_H

#include "marshal/row.h"

#define SYS_ROWS 451
extern const struct sys_row sys_rows[SYS_ROWS];

/* Handlers, by file. */
/* rw.c */
sys_fn sys_read, sys_write, sys_readv, sys_writev, sys_getrandom, sys_vmsplice, sys_lseek;
/* socket.c */
sys_fn sys_sendto, sys_recvfrom, sys_sendmsg, sys_recvmsg, sys_sendmmsg, sys_recvmmsg,
       sys_setsockopt, sys_getsockopt;
/* poll.c */
sys_fn sys_poll, sys_ppoll, sys_select, sys_pselect6;
/* ioctl.c */
sys_fn sys_ioctl;
/* file.c */
sys_fn sys_fcntl, sys_close, sys_dup2, sys_close_range, sys_getdents, sys_fsconfig,
       sys_name_to_handle, sys_open_by_handle, sys_kcmp;
/* path.c */
sys_fn sys_open, sys_openat, sys_openat2, sys_creat, sys_readlink, sys_readlinkat;
/* truncate.c */
sys_fn sys_truncate, sys_ftruncate;
/* signal.c */
sys_fn sys_rt_sigaction, sys_rt_sigprocmask, sys_rt_sigpending, sys_rt_sigtimedwait,
       sys_rt_sigreturn, sys_sigaltstack, sys_mq_notify;
/* process.c */
sys_fn sys_exit, sys_prctl, sys_set_tid_address, sys_set_robust_list, sys_get_robust_list,
       sys_unshare, sys_setns, sys_capability, sys_set_user, sys_sched_attr, sys_sched_lower,
       sys_sched_cpus;
/* futex.c */
sys_fn sys_futex;
/* exec.c */
sys_fn sys_execve, sys_execveat;
/* clone.c */
sys_fn sys_clone, sys_clone3, sys_fork, sys_vfork;
/* limits.c */
sys_fn sys_getrlimit, sys_setrlimit, sys_prlimit64, sys_sysinfo;
/* keys.c */
sys_fn sys_keyctl, sys_key_iov, sys_key_dh, sys_key_pkey;
/* process_vm.c */
sys_fn sys_process_vm;
/* sysv.c */
sys_fn sys_semctl, sys_msgctl, sys_shmget, sys_shmctl, sys_msgrcv;

#endif
