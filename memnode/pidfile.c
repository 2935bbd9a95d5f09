#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "common/outfile.h"
#include "pidfile.h"

static struct outfile file = OUTFILE_NONE;

int pidfile_write(const char *path, char *why, size_t n)
{
        char text[32];
        int len = snprintf(text, sizeof(text), "%d\n", getpid());
        int err = outfile_open(&file, path, NULL);

        file.mode |= 0444;              /* other users look for it */
        if (!err)
                err = outfile_replace(&file, file.name, text, (size_t)len);
        if (err)
                snprintf(why, n, "cannot be written: %s: %s", strerror(-err), outfile_cure(err));
        return err;
}

void pidfile_remove(void)
{
        if (file.dir_fd >= 0)
                unlinkat(file.dir_fd, file.name, 0);
}
