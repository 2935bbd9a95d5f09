#include <ctype.h>
#include <dirent.h>
#include <stdlib.h>
#include <unistd.h>
#include "control/client/sockets.h"
#include "control/place.h"

static int is_socket(const struct dirent *e) { return isdigit((unsigned char)e->d_name[0]); }

void sockets_each(void (*fn)(const char *name, void *arg), void *arg)
{
        char dir[PLACES][PATH_MAX];

        for (unsigned i = 0, n = place_list(dir); i < n; i++) {
                struct dirent **e;
                int count = place_enter(dir[i], geteuid()) == 0
                                    ? scandir(".", &e, is_socket, versionsort) : -1;
                for (int k = 0; k < count; k++) {
                        fn(e[k]->d_name, arg);
                        free(e[k]);
                }
                if (count >= 0)
                        free(e);
        }
}
