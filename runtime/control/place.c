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
        return n;
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
        snprintf(why, PLACE_WHY, "%.160s: it is not this user's alone: chmod 700, or remove it",
                 path);
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
