/*
 * A library to be preloaded: a kernel before 6.14, for vmrun, on a file system of the type
 * $FS_TYPE: leases are refused.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/vfs.h>

#define FCNTL(name)                                                             \
        int name(int fd, int cmd, ...)                                          \
        {                                                                       \
                va_list ap;                                                     \
                va_start(ap, cmd);                                              \
                void *arg = va_arg(ap, void *);                                 \
                va_end(ap);                                                     \
                if (cmd == F_SETLEASE)                                          \
                        return errno = EAGAIN, -1;                              \
                return ((int (*)(int, int, void *))dlsym(RTLD_NEXT, #name))(fd, cmd, arg); \
        }
FCNTL(fcntl)
FCNTL(fcntl64)

int fstatfs(int fd, struct statfs *fs)
{
        int err = ((int (*)(int, struct statfs *))dlsym(RTLD_NEXT, "fstatfs"))(fd, fs);
        fs->f_type = (__fsword_t)strtoul(getenv("FS_TYPE"), NULL, 16);
        return err;
}
int fstatfs64(int fd, struct statfs64 *fs) { return fstatfs(fd, (struct statfs *)fs); }

long syscall(long nr, ...)
{
        va_list ap;
        long a[6];
        va_start(ap, nr);
        for (int i = 0; i < 6; i++)
                a[i] = va_arg(ap, long);
        va_end(ap);
        if (nr == SYS_execveat && a[4] & 0x10000 /* AT_EXECVE_CHECK */)
                return errno = EINVAL, -1;
        long (*next)(long, ...) = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
        return next(nr, a[0], a[1], a[2], a[3], a[4], a[5]);
}
