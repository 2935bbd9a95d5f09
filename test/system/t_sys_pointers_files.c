/*
 * Calls about files and directories by name.  (t_sys_pointers.c)
 */
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include "t_sys_pointers.h"

#define CWD AT_FDCWD
static const uint64_t how[3] = { O_RDONLY, 0, 0 };
static const uint64_t times2[4] = { 1000, 5, 2000, 6 };
static const uint64_t utimbuf[2] = { 1000, 2000 };
static const uint32_t handle[34] = { 128, 0 };
static const uint64_t mount_attr[4] = { 0 };

#define NEW MAKES_FD
const struct call file_calls[] = {
        { "open", SYS_open, NEW, { 0, O_RDWR }, { STR(0, "file") } },
        { "open O_CREAT", SYS_open, NEW, { 0, O_RDWR | O_CREAT, 0600 }, { STR(0, "created") } },
        { "open /proc/self/exe", SYS_open, NEW, { 0, O_RDONLY }, { STR(0, "/proc/self/exe") } },
        { "open /proc/self/maps", SYS_open, NEW, { 0, O_RDONLY }, { STR(0, "/proc/self/maps") } },
        { "openat", SYS_openat, NEW, { CWD, 0, O_RDONLY }, { STR(1, "file") } },
        { "openat of no descriptor", SYS_openat, NEW, { 99, 0, O_RDONLY }, { STR(1, "file") } },
        { "openat2", SYS_openat2, NEW, { CWD, 0, 0, sizeof(how) }, { STR(1, "file"), IN(2, how) } },
        { "openat2, short", SYS_openat2, NEW, { CWD, 0, 0, 8 }, { STR(1, "file"), ARG(2, 8, how) } },
        { "creat", SYS_creat, NEW, { 0, 0600 }, { STR(0, "created") } },
        { "stat", SYS_stat, 0, { 0 }, { STR(0, "file"), OUT(1, 144) } },
        { "stat of nothing", SYS_stat, 0, { 0 }, { STR(0, "none"), OUT(1, 144) } },
        { "lstat", SYS_lstat, 0, { 0 }, { STR(0, "file"), OUT(1, 144) } },
        { "fstat", SYS_fstat, 0, { FD_FILE }, { OUT(1, 144) } },
        { "fstat of nothing", SYS_fstat, 0, { 99 }, { OUT(1, 144) } },
        { "newfstatat", SYS_newfstatat, 0, { CWD }, { STR(1, "file"), OUT(2, 144) } },
        { "newfstatat AT_EMPTY_PATH", SYS_newfstatat, 0, { FD_FILE, 0, 0, AT_EMPTY_PATH }, { STR(1, ""), OUT(2, 144) } },
        { "statx", SYS_statx, 0, { CWD, 0, 0, 0x7ff }, { STR(1, "file"), OUT(4, 256) } },
        { "statx AT_EMPTY_PATH", SYS_statx, 0, { FD_FILE, 0, AT_EMPTY_PATH, 0x7ff }, { STR(1, ""), OUT(4, 256) } },
        { "statfs", SYS_statfs, 0, { 0 }, { STR(0, "file"), OUT(1, 120) } },
        { "fstatfs", SYS_fstatfs, 0, { FD_FILE }, { OUT(1, 120) } },
        { "access", SYS_access, 0, { 0, 4 }, { STR(0, "file") } },
        { "faccessat", SYS_faccessat, 0, { CWD, 0, 4 }, { STR(1, "file") } },
        { "faccessat2", SYS_faccessat2, 0, { CWD, 0, 4, 0 }, { STR(1, "file") } },
        { "chmod", SYS_chmod, 0, { 0, 0600 }, { STR(0, "file") } },
        { "fchmodat", SYS_fchmodat, 0, { CWD, 0, 0600 }, { STR(1, "file") } },
        { "chown", SYS_chown, 0, { 0, -1, -1 }, { STR(0, "file") } },
        { "lchown", SYS_lchown, 0, { 0, -1, -1 }, { STR(0, "file") } },
        { "fchownat", SYS_fchownat, 0, { CWD, 0, -1, -1, 0 }, { STR(1, "file") } },
        { "utime", SYS_utime, 0, { 0 }, { STR(0, "file"), IN(1, utimbuf) } },
        { "utimes", SYS_utimes, 0, { 0 }, { STR(0, "file"), IN(1, times2) } },
        { "futimesat", SYS_futimesat, 0, { CWD }, { STR(1, "file"), IN(2, times2) } },
        { "futimesat of a descriptor", SYS_futimesat, 0, { FD_FILE }, { STR(1, "file"), IN(2, times2) } },
        { "utimensat", SYS_utimensat, 0, { CWD }, { STR(1, "file"), IN(2, times2) } },
        { "utimensat of a descriptor", SYS_utimensat, 0, { FD_FILE }, { STR(1, "file"), IN(2, times2) } },
        { "truncate", SYS_truncate, SETS_FILE, { 0, 5000 }, { STR(0, "file") } },
        { "chdir", SYS_chdir, 0, { 0 }, { STR(0, ".") } },
        { "mkdir", SYS_mkdir, 0, { 0, 0700 }, { STR(0, "dir") } },
        { "mkdirat", SYS_mkdirat, 0, { CWD, 0, 0700 }, { STR(1, "dir2") } },
        { "rmdir", SYS_rmdir, 0, { 0 }, { STR(0, "dir") } },
        { "mknod", SYS_mknod, 0, { 0, S_IFIFO | 0600 }, { STR(0, "fifo") } },
        { "mknodat", SYS_mknodat, 0, { CWD, 0, S_IFIFO | 0600 }, { STR(1, "fifo2") } },
        { "link", SYS_link, 0, { 0 }, { STR(0, "file"), STR(1, "hard") } },
        { "linkat", SYS_linkat, 0, { CWD, 0, CWD }, { STR(1, "file"), STR(3, "hard2") } },
        { "symlink", SYS_symlink, 0, { 0 }, { STR(0, "file"), STR(1, "soft") } },
        { "symlinkat", SYS_symlinkat, 0, { 0, CWD }, { STR(0, "file"), STR(2, "soft2") } },
        { "readlink", SYS_readlink, 0, { 0, 0, 100 }, { STR(0, "soft"), OUT(1, 4) } },
        { "readlink, short", SYS_readlink, 0, { 0, 0, 2 }, { STR(0, "soft"), OUT(1, 2) } },
        { "readlink /proc/self/exe", SYS_readlink, ANY_RESULT, { 0, 0, 3 }, { STR(0, "/proc/self/exe"), OUT(1, 3) } },
        { "readlinkat", SYS_readlinkat, 0, { CWD, 0, 0, 100 }, { STR(1, "soft"), OUT(2, 4) } },
        { "rename", SYS_rename, 0, { 0 }, { STR(0, "hard"), STR(1, "renamed") } },
        { "renameat", SYS_renameat, 0, { CWD, 0, CWD }, { STR(1, "hard2"), STR(3, "renamed") } },
        { "renameat2", SYS_renameat2, 0, { CWD, 0, CWD, 0, 1 }, { STR(1, "file"), STR(3, "renamed") } },
        { "unlink", SYS_unlink, 0, { 0 }, { STR(0, "renamed") } },
        { "unlinkat", SYS_unlinkat, 0, { CWD }, { STR(1, "soft2") } },
        { "getcwd", SYS_getcwd, ANY_RESULT, { 0, 4096 }, { OUT(0, 4096) } },
        { "getdents", SYS_getdents, ANY_RESULT | SETS_FILE, { FD_DIR, 0, 24 }, { OUT(1, 24) } },
        { "getdents64", SYS_getdents64, ANY_RESULT | SETS_FILE, { FD_DIR, 0, 24 }, { OUT(1, 24) } },
        { "getdents64, longer", SYS_getdents64, ANY_RESULT | SETS_FILE, { FD_DIR, 0, 4096 }, { OUT(1, 4096) } },
        { "setxattr", SYS_setxattr, 0, { 0, 0, 0, 5, 0 }, { STR(0, "file"), STR(1, "user.x"), ARG(2, 5, "value") } },
        { "lsetxattr", SYS_lsetxattr, 0, { 0, 0, 0, 5, 0 }, { STR(0, "file"), STR(1, "user.x"), ARG(2, 5, "value") } },
        { "fsetxattr", SYS_fsetxattr, 0, { FD_FILE, 0, 0, 5, 0 }, { STR(1, "user.x"), ARG(2, 5, "value") } },
        { "getxattr", SYS_getxattr, 0, { 0, 0, 0, 5 }, { STR(0, "file"), STR(1, "user.x"), OUT(2, 5) } },
        { "getxattr of nothing", SYS_getxattr, 0, { 0, 0, 0, 5 }, { STR(0, "file"), STR(1, "user.none"), OUT(2, 5) } },
        { "lgetxattr", SYS_lgetxattr, 0, { 0, 0, 0, 5 }, { STR(0, "file"), STR(1, "user.x"), OUT(2, 5) } },
        { "fgetxattr", SYS_fgetxattr, 0, { FD_FILE, 0, 0, 5 }, { STR(1, "user.x"), OUT(2, 5) } },
        { "listxattr", SYS_listxattr, ANY_RESULT, { 0, 0, 200 }, { STR(0, "file"), OUT(1, 200) } },
        { "llistxattr", SYS_llistxattr, ANY_RESULT, { 0, 0, 200 }, { STR(0, "file"), OUT(1, 200) } },
        { "flistxattr", SYS_flistxattr, ANY_RESULT, { FD_FILE, 0, 200 }, { OUT(1, 200) } },
        { "removexattr", SYS_removexattr, 0, { 0 }, { STR(0, "file"), STR(1, "user.x") } },
        { "lremovexattr", SYS_lremovexattr, 0, { 0 }, { STR(0, "file"), STR(1, "user.x") } },
        { "fremovexattr", SYS_fremovexattr, 0, { FD_FILE }, { STR(1, "user.x") } },
        { "inotify_add_watch", SYS_inotify_add_watch, 0, { FD_INOTIFY, 0, 0x100 }, { STR(1, ".") } },
        { "name_to_handle_at", SYS_name_to_handle_at, 0, { CWD }, { STR(1, "file"), IN(2, handle), OUT(3, 4) } },
        { "open_by_handle_at", SYS_open_by_handle_at, NEW, { CWD, 0, O_RDONLY }, { IN(1, handle) } },
        { "memfd_create", SYS_memfd_create, NEW, { 0, 1 }, { STR(0, "name") } },
        { "open_tree", SYS_open_tree, NEW, { CWD, 0, 0 }, { STR(1, "file") } },
        { "mount_setattr", SYS_mount_setattr, HARMFUL, { CWD, 0, 0, 0, 32 }, { STR(1, "file"), IN(3, mount_attr) } },
        { "mount_setattr, no attributes", SYS_mount_setattr, 0, { CWD, 0, 0, 0, 7 }, { STR(1, "file"), ARG(3, 7, mount_attr) } },
        { "fsopen", SYS_fsopen, HARMFUL | NEW, { 0, 0 }, { STR(0, "tmpfs") } },
        { "fspick", SYS_fspick, HARMFUL | NEW, { CWD, 0, 0 }, { STR(1, "file") } },
        { "move_mount", SYS_move_mount, HARMFUL, { CWD, 0, CWD, 0, 0 }, { STR(1, "file"), STR(3, "file") } },
        { "mount", SYS_mount, HARMFUL, { 0 }, { STR(0, "a"), STR(1, "file"), STR(2, "none"), STR(4, "data") } },
        { "umount2", SYS_umount2, HARMFUL, { 0 }, { STR(0, "file") } },
        { "pivot_root", SYS_pivot_root, HARMFUL, { 0 }, { STR(0, "file"), STR(1, "file") } },
        { "chroot", SYS_chroot, HARMFUL, { 0 }, { STR(0, "file") } },
        { "swapon", SYS_swapon, HARMFUL, { 0, 0 }, { STR(0, "file") } },
        { "swapoff", SYS_swapoff, HARMFUL, { 0 }, { STR(0, "file") } },
};
const size_t n_file_calls = sizeof(file_calls) / sizeof(file_calls[0]);
