/*
 * Draining: its beginning, its words, its end; and `memnode --drain`, which asks for it.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>
#include "common/clock.h"
#include "common/progress.h"
#include "control_socket.h"
#include "drain.h"
#include "memnode.h"
#include "server.h"

#define SAY_MS 5000             /* between two messages about clients that are still here */
#define END_MS 15000            /* for systemd: the most that the end itself takes */

/* the last line to --drain: no client was left, and none loses a page */
#define DRAINED "drained"
/* a line to --drain that only a terminal shows: those who cannot move, or are gone, count too */
#define ANSWERED "answered: "

/* ms, of now_ms(); 0: it has not begun.  Relaxed: the thread of --stats reads it. */
static _Atomic int64_t began;
static int64_t next_word;
static unsigned told;           /* by tell_progress() */

static uint32_t limit_ms(void) { return __atomic_load_n(&opt.drain_ms, __ATOMIC_RELAXED); }

/* To the log, and to the clients of the control socket that wait for the end. */
__attribute__((format(printf, 2, 3)))
static void say(void (*log)(const char *fmt, ...), const char *fmt, ...)
{
        char text[256];
        va_list ap;

        va_start(ap, fmt);
        vsnprintf(text, sizeof(text), fmt, ap);
        va_end(ap);
        log("%s", text);
        control_tell(text);
}

static unsigned waits(bool name_them)
{
        unsigned n = 0;

        for (unsigned i = 0; i < SERVERS; i++)
                n += servers[i]->waits(name_them);
        return n;
}

static int64_t since(void) { return atomic_load_explicit(&began, memory_order_relaxed); }

bool drain_began(void) { return since() != 0; }

void drain_begin(void)
{
        told = 0;                       /* a newcomer at the control socket was told nothing */
        if (since())
                return;
        atomic_store_explicit(&began, now_ms(), memory_order_relaxed);
        next_word = since() + SAY_MS;
        if (!limit_ms())
                return;                 /* see drain_over() */
        for (unsigned i = 0; i < SERVERS; i++)
                servers[i]->drain();
}

static void say_begun(void)
{
        static bool said;

        if (said)
                return;
        said = true;
        sd_notifyf(0, "STOPPING=1\nEXTEND_TIMEOUT_USEC=%llu\n"
                   "STATUS=draining: clients move their pages to other nodes",
                   (limit_ms() + END_MS) * 1000ull);
        say(notice_, "draining: clients are asked to move their pages to other nodes, which they "
            "may do for %u s", limit_ms() / 1000);
}

/* To --drain, when it changes. */
static void tell_progress(unsigned left)
{
        static unsigned most;
        char text[64];

        if (left == told)
                return;
        told = left;
        most = left > most ? left : most;
        snprintf(text, sizeof(text), ANSWERED "%u of %u process%s of clients", most - left,
                 most, most == 1 ? "" : "es");
        control_tell(text);
}

bool drain_over(void)
{
        int64_t now = now_ms();
        unsigned left = waits(false);

        if (!left || !limit_ms()) {
                notice_("drained after %.1f s", (double)(now - since()) / 1000);
                if (!left && !opt.resume)       /* else drain_kept() */
                        control_tell(DRAINED);
                return true;
        }
        if (now - since() >= DRAIN_LOOK_MS) {     /* RDMA has counted */
                say_begun();
                tell_progress(left);
        }
        if (now - since() >= limit_ms()) {
                waits(true);
                say(warnx_, "draining: %u process%s of clients did not move away within the %u s "
                    "of --drain-timeout%s", left, left == 1 ? "" : "es", limit_ms() / 1000,
                    opt.resume ? "" : ", and lose what is here");
                return true;
        }
        if (now >= next_word) {
                next_word = now + SAY_MS;
                waits(true);
                say(notice_, "draining: %u process%s of clients %s still here after %.0f s", left,
                    left == 1 ? "" : "es", left == 1 ? "is" : "are",
                    (double)(now - since()) / 1000);
        }
        return false;
}

void drain_kept(void) { control_tell(DRAINED); }

/* ---- memnode --drain ---- */

int drain_other(const char *control)
{
        struct sockaddr_un sun = { .sun_family = AF_UNIX };
        char *line = NULL;
        size_t room = 0;
        bool drained = false;

        if (strlen(control) >= sizeof(sun.sun_path))
                die_(1, "--drain %s: longer than the path of a socket can be", control);
        strcpy(sun.sun_path, control);
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd < 0 || connect(fd, (struct sockaddr *)&sun, sizeof(sun)) != 0)
                die_(1, "--drain %s: no memnode answers there: %s: give the path of its --control",
                     control, strerror(errno));
        if (send(fd, CONTROL_DRAIN, strlen(CONTROL_DRAIN), MSG_NOSIGNAL) < 0)
                die_(1, "--drain %s: it ended the connection: %s", control, strerror(errno));
        /* No time limit: memnode has one, --drain-timeout. */
        FILE *f = fdopen(fd, "r");
        while (f && getline(&line, &room, f) > 0) {
                if (strncmp(line, ANSWERED, strlen(ANSWERED)) == 0) {
                        line[strcspn(line, "\n")] = '\0';
                        progress_show(line);
                        continue;
                }
                progress_end();
                drained = strcmp(line, DRAINED "\n") == 0;
                if (fputs(line, stdout) == EOF || fflush(stdout) == EOF)
                        break;
        }
        progress_end();
        free(line);
        if (f)
                fclose(f);
        return drained ? 0 : 1;
}
