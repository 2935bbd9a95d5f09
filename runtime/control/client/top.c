/*
 * vmctl top: a line for each program of this user, those first that wait longest for far memory.
 * As for watch, vmrun counts from one sample of a connection to the next.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "common/size.h"
#include "control/client/client.h"
#include "control/client/screen.h"
#include "control/client/sockets.h"
#include "control/client/talk.h"
#include "control/place.h"
#include "stats/formats.h"
#include "stats/read.h"

#define PROGRAMS 256
#define ANSWER_MS 500                   /* a process that is stopped holds the others up */

static struct program {
        pid_t pid;
        int fd;
        bool seen, rates;               /* its socket is there; there was a sample before */
        bool silent;
        char name[128], socket[PLACE_NAME];
        uint64_t cache, used, far, p99;
        double faults, fetched, waits;          /* a second; waits: percent of the time */
} program[PROGRAMS];
static unsigned programs;

static struct program *find(pid_t pid)
{
        for (unsigned i = 0; i < programs; i++)
                if (program[i].pid == pid)
                        return &program[i];
        return NULL;
}

/* The queue of a process that is stopped is full. */
static void meet_silent(const char *socket)
{
        for (unsigned i = 0; i < programs; i++)
                if (program[i].fd < 0 && strcmp(program[i].socket, socket) == 0)
                        program[i].seen = program[i].silent = true;
}

/* A connection that is there is kept: its counts go on.  Who listens is asked each time, as a
 * number may be that of another PID namespace. */
static void meet(const char *name, void *arg)
{
        pid_t pid;
        int fd = talk_connect(name, ANSWER_MS, &pid);

        (void)arg;
        if (fd == -ETIMEDOUT)
                meet_silent(name);
        if (fd < 0)
                return;
        struct program *p = find(pid);
        if (!p && programs < PROGRAMS) {
                p = &program[programs++];
                *p = (struct program){ .pid = pid, .fd = -1 };
                snprintf(p->name, sizeof(p->name), "%s", name);
                snprintf(p->socket, sizeof(p->socket), "%s", name);
        }
        if (p && p->fd < 0) {
                p->fd = fd;
                p->rates = false;
        } else {
                close(fd);
        }
        if (p)
                p->seen = true;
}

static uint64_t waited_ns(const char *flat, const char *kind)
{
        char key[64];

        snprintf(key, sizeof(key), "latency_ns.%s.mean", kind);
        uint64_t mean = flat_number(flat, key);
        snprintf(key, sizeof(key), "latency_ns.%s.count", kind);
        return mean * flat_number(flat, key);
}

static void take(struct program *p, const char *flat)
{
        double ns = (double)flat_number(flat, "elapsed_ns") + 1;
        char path[sizeof(p->name)];

        p->cache = flat_number(flat, "cache_bytes");
        p->used = flat_number(flat, "cache_used_bytes");
        p->far = flat_number(flat, "far_used_bytes");
        p->p99 = flat_number(flat, "latency_ns.fetch.p99");
        p->faults = (double)flat_number(flat, "faults.total") / ns * 1e9;
        p->fetched = (double)flat_number(flat, "count.fetched") / ns * 1e9;
        p->waits = 100.0 * (double)(waited_ns(flat, "fetch") + waited_ns(flat, "wait")) / ns;
        flat_text(flat, "about.program", path, sizeof(path));
        snprintf(p->name, sizeof(p->name), "%s", basename(path));
}

static void ask(struct program *p)
{
        struct answer a;

        int err = talk(p->fd, "sample", ANSWER_MS, &a);
        p->silent = err == -ETIMEDOUT;
        if (err) {                      /* it ended, or executes another program */
                close(p->fd);
                p->fd = -1;
                return;
        }
        if (a.ok)
                take(p, a.text);
        if (!p->rates)                  /* these were since its start */
                p->waits = p->faults = p->fetched = 0, p->p99 = 0;
        p->rates = true;
        free(a.text);
}

static void look(void)
{
        unsigned n = 0;

        for (unsigned i = 0; i < programs; i++)
                program[i].seen = false;
        sockets_each(meet, NULL);
        for (unsigned i = 0; i < programs; i++) {
                if (program[i].seen)
                        program[n++] = program[i];
                else if (program[i].fd >= 0)
                        close(program[i].fd);
        }
        programs = n;
        for (unsigned i = 0; i < programs; i++)
                if (program[i].fd >= 0)
                        ask(&program[i]);
}

static int order(const void *a, const void *b)
{
        const struct program *p = a, *q = b;

        if (p->waits != q->waits)
                return p->waits < q->waits ? 1 : -1;
        if (p->faults != q->faults)
                return p->faults < q->faults ? 1 : -1;
        return p->pid < q->pid ? -1 : 1;
}

static void print_program(FILE *f, const struct program *p)
{
        char a[32];

        fprintf(f, "%7d", p->pid);
        if (p->fd < 0) {
                fprintf(f, "%55s  %.60s\n", p->silent ? "does not answer: it may be stopped"
                                                      : "executes another program", p->name);
                return;
        }
        fprintf(f, "%7s", size_text(p->cache, a));
        fprintf(f, "%7s", size_text(p->used, a));
        fprintf(f, "%7s", size_text(p->far, a));
        fprintf(f, "%10.0f%10.0f", p->faults, p->fetched);
        fprintf(f, "%9s", p->p99 ? stats_ns_text(p->p99, a) : "-");
        fprintf(f, "%4.0f%%  %.60s\n", p->waits, p->name);
}

static bool show(void)
{
        char *text = NULL;
        size_t size;
        FILE *f = open_memstream(&text, &size);

        if (!f)
                return true;
        qsort(program, programs, sizeof(*program), order);
        if (screen_is_there())
                fprintf(f, "%u program%s of this user; q or Ctrl-C ends this\n\n", programs,
                        programs == 1 ? "" : "s");
        fprintf(f, "%7s%7s%7s%7s%10s%10s%9s%6s %s\n", "pid", "cache", "in use", "far",
                "faults/s", "fetches/s", "p99", "waits", "program");
        for (unsigned i = 0; i < programs; i++)
                print_program(f, &program[i]);
        bool read = fclose(f) != 0 || screen_show(text);
        free(text);
        return read;
}

int top(unsigned interval_ms)
{
        screen_begin(true);
        bool live = screen_is_there();
        look();
        if (live)
                show();
        while (!screen_wait(interval_ms)) {
                look();
                if (!show() || !live)
                        break;
        }
        screen_end();
        return 0;
}
