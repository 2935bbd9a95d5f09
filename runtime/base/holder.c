/*
 * Finds the process that holds a lock, in the kernel's list of locks.
 */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>
#include "base/holder.h"

/* The process that took the lock: children that share it are not listed. */
static int pid_of(const struct stat *st)
{
        FILE *f = fopen("/proc/locks", "re");
        char line[256];
        int found = 0;

        while (f && !found && fgets(line, sizeof(line), f)) {
                unsigned major, minor;
                unsigned long long inode;
                int pid;
                if (sscanf(line, "%*[^:]: FLOCK ADVISORY %*s %d %x:%x:%llu", &pid, &major, &minor,
                           &inode) == 4 &&
                    inode == st->st_ino && makedev(major, minor) == st->st_dev)
                        found = pid;
        }
        if (f)
                fclose(f);
        return found;
}

const char *lock_holder(int fd, char *text, size_t n)
{
        char path[64], name[32] = "";
        struct stat st;
        int pid = fstat(fd, &st) == 0 ? pid_of(&st) : 0;

        snprintf(path, sizeof(path), "/proc/%d/comm", pid);
        FILE *f = pid > 0 ? fopen(path, "re") : NULL;
        if (f && fgets(name, sizeof(name), f))
                name[strcspn(name, "\n")] = '\0';
        if (f)
                fclose(f);
        if (pid <= 0)
                snprintf(text, n, "another program");
        else if (pid == getpid())
                snprintf(text, n, "another node of this vmrun");
        else
                snprintf(text, n, "process %d%s%s%s", pid, *name ? " (" : "", name,
                         *name ? ")" : "");
        return text;
}
