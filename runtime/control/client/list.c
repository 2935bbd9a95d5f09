/*
 * vmctl list: each process of this user that vmrun runs.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#include "common/size.h"
#include "control/client/client.h"
#include "control/client/sockets.h"
#include "control/client/talk.h"
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
        int fd = talk_connect(name, TALK_MS, &pid);

        if (fd < 0)
                return fd;
        int err = talk(fd, json ? "about json" : "about text", TALK_MS, a);
        close(fd);
        return err;
}

struct list { bool json; unsigned printed; };

/* One socket. */
static void print_one(const char *name, void *arg)
{
        struct list *l = arg;
        struct answer a = { 0 };
        int err = ask(name, l->json, &a);

        if (err == -ECONNRESET)         /* it executes another program, or has just ended */
                err = ask(name, l->json, &a);
        if (err == -ECONNREFUSED)       /* it was killed */
                unlink(name);
        if (err == -ETIMEDOUT)
                fprintf(stderr, "vmctl: process %s does not answer: it may be stopped\n", name);
        if (err || !a.ok) {
                free(a.text);
                return;
        }
        if (l->json) {
                printf("%s\n  %s", l->printed ? "," : "", a.text);
        } else {
                if (!l->printed)
                        printf("%7s  %-19s %9s %9s %9s  %s\n", "pid", "since", "cache", "in use",
                               "far", "program");
                print_line(a.text);
        }
        l->printed++;
        free(a.text);
}

int list_print(bool json)
{
        struct list l = { .json = json };

        if (json)
                printf("[");
        sockets_each(print_one, &l);
        if (json)
                printf("%s]\n", l.printed ? "\n" : "");
        return 0;
}
