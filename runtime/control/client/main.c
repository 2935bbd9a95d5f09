/*
 * vmctl: looks at a program that vmrun runs, and changes its settings.  See vmctl(1).
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "control/client/client.h"
#include "control/client/order.h"
#include "control/client/talk.h"
#include "control/protocol.h"

/* ---- requests ---- */

static int fail(pid_t pid, int err)
{
        if (err == -ESRCH)
                fprintf(stderr, "vmctl: no vmrun of this user runs process %d, or it was started "
                        "with --no-control: vmctl list shows those that can be asked\n", pid);
        else if (err == -EACCES)
                fprintf(stderr, "vmctl: process %d is another user's: ask as its user, or as "
                        "root\n", pid);
        else if (err == -ETIMEDOUT)
                fprintf(stderr, "vmctl: process %d does not answer: it may be stopped\n", pid);
        else if (err == -ECONNRESET || err == -EPIPE)
                fprintf(stderr, "vmctl: process %d has ended, or executes another program\n", pid);
        else if (err == -EPROTO)
                fprintf(stderr, "vmctl: process %d answers in another way than this vmctl expects: "
                        "use the vmctl of its vmrun\n", pid);
        else
                fprintf(stderr, "vmctl: process %d cannot be asked: %s\n", pid, strerror(-err));
        return 1;
}

static int show(struct answer *a)
{
        bool ok = a->ok;

        if (ok)
                fwrite(a->text, 1, a->size, stdout);
        else
                fprintf(stderr, "vmctl: %s\n", a->text);
        free(a->text);
        return ok ? 0 : 1;
}

static int ask(pid_t pid, int fd, const char *request, int limit_ms)
{
        struct answer a;
        int err = talk(fd, request, limit_ms, &a);

        return err ? fail(pid, err) : show(&a);
}

/* A question, which may be asked twice: an execve ends connections, and the next program listens on
 * this socket again. */
static int ask_one(pid_t pid, const char *request)
{
        struct answer a;
        int err = -ECONNRESET;

        for (int tries = 0; tries < 2 && (err == -ECONNRESET || err == -EPIPE); tries++) {
                int fd = talk_open(pid);
                if (fd < 0)
                        return fail(pid, fd);
                err = talk(fd, request, TALK_MS, &a);
                close(fd);
        }
        return err ? fail(pid, err) : show(&a);
}

static int stats(const struct order *o)
{
        return ask_one(o->pid, o->reset  ? "reset"
                               : o->json ? "stats json"
                               : o->flat ? "stats flat"
                               : o->prom ? "stats prom"
                                         : "stats text");
}

static int get(const struct order *o)
{
        char request[REQUEST_MOST];

        snprintf(request, sizeof(request), "get %s %s", o->json ? "json" : "text",
                 *o->words ? *o->words : "");
        return ask_one(o->pid, request);
}

static int set(pid_t pid, char **settings)
{
        char request[REQUEST_MOST];
        int status = 0, fd = talk_open(pid);

        if (fd < 0)
                return fail(pid, fd);
        /* reports of --stats-interval may have to be waited for */
        for (; *settings && !status; settings++) {
                snprintf(request, sizeof(request), "set %s", *settings);
                status = ask(pid, fd, request, 2 * TALK_MS);
        }
        close(fd);
        return status;
}

/* Takes as long as the node takes to answer; vmrun has a time limit for that. */
static int add(pid_t pid, const char *url)
{
        char request[REQUEST_MOST], dir[PATH_MAX];
        int status = 0, fd;

        if (!getcwd(dir, sizeof(dir)))
                strcpy(dir, "/");
        fd = talk_open(pid);            /* changes the directory */
        if (fd < 0)
                return fail(pid, fd);
        if (snprintf(request, sizeof(request), "from %s", dir) < REQUEST_MOST)
                status = ask(pid, fd, request, TALK_MS);
        snprintf(request, sizeof(request), "add %s", url);
        if (!status)
                status = ask(pid, fd, request, -1);
        close(fd);
        return status;
}

static int run_scrub(const struct order *o)
{
        int status;

        if (o->stop)
                return ask_one(o->pid, o->json ? "scrub json stop" : "scrub text stop");
        if (o->status)
                return ask_one(o->pid, o->json ? "scrub json" : "scrub text");
        int err = scrub(o->pid, o->rate, o->json, &status);
        return err ? fail(o->pid, err) : status;
}

static int run_watch(const struct order *o)
{
        int err = watch(o->pid, o->interval_ms, o->json);

        return err ? fail(o->pid, err) : 0;
}

static int run(const struct order *o)
{
        switch (o->command) {
        case CMD_LIST:
                return list_print(o->json);
        case CMD_TOP:
                return top(o->interval_ms);
        case CMD_STATS:
                return stats(o);
        case CMD_WATCH:
                return run_watch(o);
        case CMD_GET:
                return get(o);
        case CMD_SET:
                return set(o->pid, o->words);
        case CMD_NODES:
                return ask_one(o->pid, o->json ? "nodes json" : "nodes text");
        case CMD_NODES_ADD:
                return add(o->pid, *o->words);
        case CMD_SCRUB:
                return run_scrub(o);
        }
        return 1;
}

int main(int argc, char **argv)
{
        struct order o;

        order_parse(argc, argv, &o);
        int status = run(&o);

        if (fflush(stdout) != 0 && errno != EPIPE) {
                fprintf(stderr, "vmctl: cannot write to standard output: %s\n", strerror(errno));
                status = 1;
        }
        return status;
}
