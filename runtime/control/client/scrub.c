/*
 * vmctl PID scrub: begins one, waits for its end, and shows what it has found.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "common/progress.h"
#include "control/client/client.h"
#include "control/client/talk.h"
#include "control/protocol.h"
#include "stats/read.h"

#define LOOK_MS 200                     /* between two questions; less at first */

static volatile sig_atomic_t enough;

static void on_signal(int number)
{
        (void)number;
        enough = 1;
}

/* Asks over *fd, which is opened again if the connection has ended: the socket stays over an
 * execve.  0 or -errno. */
static int ask(pid_t pid, int *fd, const char *request, struct answer *a)
{
        int err = *fd < 0 ? -ECONNRESET : talk(*fd, request, TALK_MS, a);

        if (err != -ECONNRESET && err != -EPIPE)
                return err;
        if (*fd >= 0)
                close(*fd);
        *fd = talk_open(pid);
        return *fd < 0 ? *fd : talk(*fd, request, TALK_MS, a);
}

static void show_progress(const char *flat)
{
        unsigned long long all = flat_number(flat, "all"), pages = flat_number(flat, "pages");
        char text[128];

        snprintf(text, sizeof(text), "%llu of %llu pages, %llu wrong copies, %llu lost pages",
                 pages, all > pages ? all : pages,
                 (unsigned long long)flat_number(flat, "wrong"),
                 (unsigned long long)flat_number(flat, "lost"));
        progress_show(text);
}

/* Waits until the scrub is over.  *good: all pages were looked at, and no page is wrong any more.
 * 1: a message has said why there is nothing to show. */
static int wait_for_end(pid_t pid, int *fd, bool *good)
{
        struct timespec pause = { 0 };
        struct answer a;
        char state[16];

        for (long ms = 10;; ms = ms < LOOK_MS / 2 ? ms * 2 : LOOK_MS) {
                int err = ask(pid, fd, "scrub flat", &a);
                if (err) {
                        progress_end();
                        return err;
                }
                flat_text(a.text, "state", state, sizeof(state));
                *good = strcmp(state, "finished") == 0 && !flat_number(a.text, "lost") &&
                        flat_number(a.text, "wrong") == flat_number(a.text, "repaired");
                show_progress(a.text);
                free(a.text);
                if (strcmp(state, "running") != 0)
                        break;
                pause.tv_nsec = ms * 1000000;
                if (!enough)
                        nanosleep(&pause, NULL);        /* a signal ends it */
                if (enough) {
                        progress_end();
                        fprintf(stderr, "vmctl: the scrub goes on: vmctl %d scrub --status shows "
                                "it, --stop ends it\n", pid);
                        return 1;
                }
        }
        progress_end();
        if (strcmp(state, "none") != 0)
                return 0;
        fprintf(stderr, "vmctl: process %d executes another program: the scrub has ended with the "
                "one before\n", pid);
        return 1;
}

int scrub(pid_t pid, const char *rate, bool json, int *status)
{
        struct sigaction end = { .sa_handler = on_signal };
        char request[REQUEST_MOST];
        struct answer a;
        sigset_t ends;
        int fd = talk_open(pid);
        bool good = false;

        *status = 1;
        if (fd < 0)
                return fd;
        snprintf(request, sizeof(request), "scrub flat start%s%s", rate ? " " : "",
                 rate ? rate : "");
        /* Signals wait until the scrub has begun, because their message says that it goes on. */
        sigemptyset(&ends);
        sigaddset(&ends, SIGINT);
        sigaddset(&ends, SIGTERM);
        sigprocmask(SIG_BLOCK, &ends, NULL);
        sigaction(SIGINT, &end, NULL);
        sigaction(SIGTERM, &end, NULL);
        int err = talk(fd, request, TALK_MS, &a);
        sigprocmask(SIG_UNBLOCK, &ends, NULL);
        if (!err && !a.ok) {
                fprintf(stderr, "vmctl: %s\n", a.text);
                err = 1;
        }
        if (err >= 0)
                free(a.text);
        if (!err)
                err = wait_for_end(pid, &fd, &good);
        if (!err)
                err = ask(pid, &fd, json ? "scrub json" : "scrub text", &a);
        if (!err) {
                fwrite(a.text, 1, a.size, stdout);
                free(a.text);
                *status = good ? 0 : 1;
        }
        if (fd >= 0)
                close(fd);
        return err > 0 ? 0 : err;
}
