/*
 * Finds or makes the folder of control sockets, and names the sockets in it.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "control/place.h"

unsigned place_list(char dir[PLACES][PATH_MAX])
{
        const char *runtime = getenv("XDG_RUNTIME_DIR");
        unsigned n = 0;

        if (runtime && *runtime == '/' && strlen(runtime) < PATH_MAX - sizeof("/vmrun"))
                sprintf(dir[n++], "%s/vmrun", runtime);
        strcpy(dir[n++], "/run/vmrun");
        if (geteuid() != 0)
                place_in_tmp(dir[n++], geteuid());
        return n;
}

void place_in_tmp(char dir[PATH_MAX], uid_t user)
{
        snprintf(dir, PATH_MAX, "/tmp/vmrun-%u", user);
}

int place_enter(const char *dir, uid_t user)
{
        struct stat st;
        int fd = open(dir, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), err = 0;

        if (fd < 0)
                return -errno;
        if (fstat(fd, &st) != 0 || fchdir(fd) != 0)
                err = -errno;
        else if (user && st.st_uid != user)
                err = -ENOENT;
        close(fd);
        return err;
}

static int open_one(const char *path, char why[PLACE_WHY])
{
        struct stat st;

        /* Whatever the umask: never more than this. */
        if (mkdir(path, 0700) != 0 && errno != EEXIST) {
                int err = -errno;
                snprintf(why, PLACE_WHY, "%.160s: cannot be made: %s", path, strerror(-err));
                return err;
        }
        int fd = open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0 || fstat(fd, &st) != 0) {
                int err = -errno;
                snprintf(why, PLACE_WHY, "%.160s: cannot be opened: %s", path, strerror(-err));
                if (fd >= 0)
                        close(fd);
                return err;
        }
        if (st.st_uid == geteuid() && !(st.st_mode & 077))
                return fd;
        if (st.st_uid == geteuid())
                snprintf(why, PLACE_WHY, "%.140s: others may enter it: chmod 700, or remove it",
                         path);
        else
                snprintf(why, PLACE_WHY, "%.140s: it is another user's: set XDG_RUNTIME_DIR to a "
                         "folder of your own, with mode 700", path);
        close(fd);
        return -EPERM;
}

int place_open(char why[PLACE_WHY])
{
        char dir[PLACES][PATH_MAX];
        int fd = -ENOENT;

        for (unsigned i = 0, n = place_list(dir); i < n && fd < 0; i++)
                fd = open_one(dir[i], why);
        return fd;
}

const char *place_name(char name[PLACE_NAME], int pid, unsigned turn)
{
        if (turn)
                snprintf(name, PLACE_NAME, "%d-%u", pid, turn);
        else
                snprintf(name, PLACE_NAME, "%d", pid);
        return name;
}
