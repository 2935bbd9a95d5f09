/*
 * vmctl list: each process of this user that vmrun runs.
 */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#include "common/size.h"
#include "control/client/client.h"
#include "control/client/talk.h"
#include "control/place.h"
#include "stats/read.h"

static void print_line(const char *about)
{
        char since[32] = "", program[256], used[32], cache[32], far[32];
        time_t t = (time_t)flat_number(about, "since");
        struct tm tm;

        if (localtime_r(&t, &tm))
                strftime(since, sizeof(since), "%F %T", &tm);
        printf("%7llu  %-19s %9s %9s %9s  %s\n",
               (unsigned long long)flat_number(about, "pid"), since,
               size_text(flat_number(about, "cache_bytes"), cache),
               size_text(flat_number(about, "cache_used_bytes"), used),
               size_text(flat_number(about, "far_used_bytes"), far),
               flat_text(about, "program", program, sizeof(program)));
}

static int ask(const char *name, bool json, struct answer *a)
{
        pid_t pid;
        int fd = talk_connect(name, &pid);

        if (fd < 0)
                return fd;
        int err = talk(fd, json ? "about json" : "about text", TALK_MS, a);
        close(fd);
        return err;
}

/* One socket; *n: how many were printed. */
static void print_one(const char *name, bool json, unsigned *n)
{
        struct answer a = { 0 };
        int err = ask(name, json, &a);

        if (err == -ECONNRESET)         /* it executes another program, or has just ended */
                err = ask(name, json, &a);
        if (err == -ECONNREFUSED)       /* it was killed */
                unlink(name);
        if (err == -ETIMEDOUT)
                fprintf(stderr, "vmctl: process %s does not answer: it may be stopped\n", name);
        if (err || !a.ok) {
                free(a.text);
                return;
        }
        if (json) {
                printf("%s\n  %s", *n ? "," : "", a.text);
        } else {
                if (!*n)
                        printf("%7s  %-19s %9s %9s %9s  %s\n", "pid", "since", "cache", "in use",
                               "far", "program");
                print_line(a.text);
        }
        ++*n;
        free(a.text);
}

static int is_socket(const struct dirent *e) { return isdigit((unsigned char)e->d_name[0]); }

int list_print(bool json)
{
        char dir[PLACES][PATH_MAX];
        unsigned printed = 0;

        if (json)
                printf("[");
        for (unsigned i = 0, n = place_list(dir); i < n; i++) {
                struct dirent **e;
                int count = place_enter(dir[i], geteuid()) == 0
                                    ? scandir(".", &e, is_socket, versionsort) : -1;
                for (int k = 0; k < count; k++) {
                        print_one(e[k]->d_name, json, &printed);
                        free(e[k]);
                }
                if (count >= 0)
                        free(e);
        }
        if (json)
                printf("%s]\n", printed ? "\n" : "");
        return 0;
}
