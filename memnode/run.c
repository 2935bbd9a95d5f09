#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "common/hostport.h"
#include "common/message.h"
#include "run.h"

extern char **environ;

#define SCHEME "nbd+unix://"

/* Main thread only. */
static char folder[] = "/tmp/memnode.XXXXXX";
static char socket_url[64];             /* in that folder; "": there is none */
static pid_t child;
static bool over;
static int status;

int run_place(struct memnode_options *o, char why[WHY_MAX])
{
        if (!o->run || o->nlisten || o->check || o->drain)
                return 0;
        if (!*socket_url) {
                if (!mkdtemp(folder)) {
                        int err = -errno;
                        snprintf(why, WHY_MAX, "--run: no folder %s can be made: %s: give "
                                 "--listen", folder, strerror(-err));
                        return err;
                }
                snprintf(socket_url, sizeof(socket_url), SCHEME "%s/nbd", folder);
                message_at_end(run_unplace);
        }
        return setting_find("listen")->set(o, socket_url, why);
}

void run_unplace(void)
{
        if (!*socket_url)
                return;
        unlink(socket_url + strlen(SCHEME));    /* a clean end has done so */
        rmdir(folder);
}

/* A URL to listen at, as one to connect to; by TLS if there are keys. */
void run_prepare(const char *url, bool keys)
{
        const char *place = strstr(url, "://") + 3;
        char uri[300] = "";
        struct hostport hp;

        if (strncmp(url, "nbd+unix:", 9) == 0) {
                if (strncmp(place, "/?socket=", 9) == 0)
                        place += 9;
                snprintf(uri, sizeof(uri), "nbd+unix:///?socket=%s", place);
                setenv("unixsocket", place, 1);
        } else if (hostport_parse(place, &hp) == HOSTPORT_OK) {
                bool v6 = strchr(hp.host, ':');
                const char *host = strcmp(hp.host, "::") == 0 ? "::1"
                                   : !*hp.host || strcmp(hp.host, "0.0.0.0") == 0 ? "127.0.0.1"
                                                                                  : hp.host;
                bool tls = keys && strncmp(url, "nbd:", 4) == 0;
                snprintf(uri, sizeof(uri), "%.*s%s%s%s%s%s",
                         tls ? 7 : (int)(place - url), tls ? "nbds://" : url,
                         v6 ? "[" : "", host, v6 ? "]" : "", hp.colon ? ":" : "", hp.service);
                if (hp.colon)
                        setenv("port", hp.service, 1);
        }
        setenv("uri", uri, 1);
}

int run_start(const char *command, char *why, size_t n)
{
        char *const argv[] = { "sh", "-c", (char *)command, NULL };
        posix_spawnattr_t attr;
        sigset_t none, ours;            /* ours: what memnode ignores, or passes on */

        sigemptyset(&none);
        sigemptyset(&ours);
        sigaddset(&ours, SIGPIPE);
        sigaddset(&ours, SIGINT);
        sigaddset(&ours, SIGTERM);
        posix_spawnattr_init(&attr);
        posix_spawnattr_setsigmask(&attr, &none);
        posix_spawnattr_setsigdefault(&attr, &ours);
        posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
        int err = -posix_spawn(&child, "/bin/sh", NULL, &attr, argv, environ);
        posix_spawnattr_destroy(&attr);
        if (err) {
                child = 0;
                snprintf(why, n, "/bin/sh cannot be started: %s", strerror(-err));
        }
        return err;
}

void run_signal(int signal)
{
        if (child && !over)
                kill(child, signal);
}

bool run_ended(void)
{
        if (child && !over)
                over = waitpid(child, &status, WNOHANG) == child;
        return over;
}

int run_status(void)
{
        if (!run_ended()) {
                run_signal(SIGTERM);
                return 1;
        }
        return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
