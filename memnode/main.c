/*
 * memnode: starts the servers, then handles signals and the control socket.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <systemd/sd-daemon.h>
#include <time.h>
#include <unistd.h>
#include "common/clock.h"
#include "common/size.h"
#include "account.h"
#include "admission/keyring.h"
#include "admission/party.h"
#include "admission/refusals.h"
#include "check.h"
#include "control_socket.h"
#include "drain.h"
#include "inherited.h"
#include "log.h"
#include "options.h"
#include "pidfile.h"
#include "pool.h"
#include "pulse.h"
#include "resume_read.h"
#include "resume_write.h"
#include "run.h"
#include "server.h"
#include "stats.h"
#include "watchdog.h"

#define STOP_MS 5000            /* the longest that a clean end may take */
#define SLOW_MS 1000            /* a part of the end that takes as long is named */
#define RETRY_MS 200            /* after a client of the control socket could not be taken */

static void print_statistics(FILE *to)
{
        char a[32], b[32], c[32];

        fprintf(to, "pool %s in pages of %s, %s left\n", size_text(pool_size(), a),
                size_text(opt.hugepage, b), size_text(pool_left(), c));
        for (unsigned i = 0; i < SERVERS; i++)
                if (servers[i]->print)
                        servers[i]->print(to);
        refusals_print(to);
        account_print(to);
}

static void statistics_to_stderr(void)
{
        char *text = NULL;
        size_t n;
        FILE *f = open_memstream(&text, &n);

        if (!f)
                return;
        print_statistics(f);
        if (fclose(f) == 0)
                for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
                        notice_("%s", line);
        free(text);
}

static char serving[800];               /* what and where, in words */
static void tell_ready(void) { sd_notifyf(0, "READY=1\nSTATUS=%s", serving); }

static int admit_clients(const struct memnode_options *o, char why[WHY_MAX])
{
        char cause[WHY_MAX];
        int err = o->keys ? keyring_load(o->keys, cause, sizeof(cause)) : 0;

        if (err)
                snprintf(why, WHY_MAX, "--keys %.150s: %.300s", o->keys, cause);
        return err;
}

/* Leases that are there already stay, whatever the limits are. */
static int limit_clients(const struct memnode_options *o, char why[WHY_MAX])
{
        struct key k;
        int err = party_set_limits(o->client, o->nclients);

        if (err)
                snprintf(why, WHY_MAX, "no memory is left for the limits of clients");
        for (unsigned i = 0; i < o->nclients && !err; i++)
                if (!keyring_find(o->client[i].name, strlen(o->client[i].name), &k))
                        warnx_("[client %s]: there is no key of that name in %s, so its limits are "
                               "for nobody", o->client[i].name, o->keys);
        explicit_bzero(&k, sizeof(k));
        return err;
}

static int read_settings(struct memnode_options *o, int argc, char **argv, char why[WHY_MAX])
{
        int err = options_parse(o, argc, argv, why);

        if (!err)
                err = inherited_add(o, why);
        if (!err)
                err = run_place(o, why);
        return err ? err : options_check(o, why);
}

/* SIGHUP: reads the limits again, from the command line and from the file as it is then. */
static void reload(int argc, char **argv)
{
        struct memnode_options fresh;
        char why[WHY_MAX], a[32];

        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        sd_notifyf(0, "RELOADING=1\nMONOTONIC_USEC=%lld\nSTATUS=reading the limits again",
                   (long long)t.tv_sec * 1000000 + t.tv_nsec / 1000);
        int err = read_settings(&fresh, argc, argv, why);
        if (!err && !fresh.keys != !opt.keys) {
                err = -EINVAL;
                snprintf(why, sizeof(why), "whether there are keys is settled at the start: "
                         "restart memnode");
        }
        if (!err)
                err = admit_clients(&fresh, why);
        if (!err)
                err = limit_clients(&fresh, why);
        if (err) {
                warnx_("%s; the limits stay as they were", why);
        } else {
                __atomic_store_n(&opt.max_per_client, fresh.max_per_client, __ATOMIC_RELAXED);
                __atomic_store_n(&opt.grace_ms, fresh.grace_ms, __ATOMIC_RELAXED);
                __atomic_store_n(&opt.drain_ms, fresh.drain_ms, __ATOMIC_RELAXED);
                notice_("limits read again: at most %s a client, %u s of grace, %u s to drain",
                       fresh.max_per_client == UINT64_MAX ? "all"
                                                          : size_text(fresh.max_per_client, a),
                       fresh.grace_ms / 1000, fresh.drain_ms / 1000);
        }
        options_free(&fresh);
        tell_ready();
}

static void open_pool(void)
{
        char why[WHY_MAX], again[WHY_MAX], a[32], b[32];
        uint64_t available, total = check_memory(&available);
        int err;

        /* Memory in use now may become free; memory that the host does not have will not. */
        if (total && opt.size > total)
                die_(1, "--size %s: this host has %s of memory in all: give a smaller size",
                     size_text(opt.size, a), size_text(total, b));
        if (opt.hugepage) {
                err = pool_open(opt.size, opt.hugepage, why, sizeof(why));
        } else {
                opt.hugepage = 2ull << 20;
                err = pool_open(opt.size, opt.hugepage, why, sizeof(why));
                if (err) {
                        opt.hugepage = 4096;
                        err = pool_open(opt.size, opt.hugepage, again, sizeof(again));
                        if (err)
                                memcpy(why, again, sizeof(why));
                        else if (options_listen(&opt, "rdma"))
                                warnx_("--size %s: pages of 4K, which cost the network card more: "
                                       "%s",
                                       size_text(opt.size, a), why);
                }
        }
        if (err)
                die_(1, "--size %s: %s", size_text(opt.size, a), why);
        /* MemAvailable does not count huge pages: they are either reserved or missing. */
        if (opt.hugepage == 4096 && available && opt.size > available)
                warnx_("--size %s: only that much memory is available now: %s; this host may run "
                       "out of it",
                       size_text(opt.size, a), size_text(available, b));
}

/* For systemd: reading and writing pages takes time.  Once a second at most, as clients decide how
 * many pieces there are. */
static void still_alive(void)
{
        static int64_t said;

        if (said && now_ms() - said < 1000)
                return;
        said = now_ms();
        sd_notify(0, "EXTEND_TIMEOUT_USEC=30000000");
}

/* resume_take */
static int take_over(struct resume_lease *l, char *why, size_t n)
{
        bool rdma = l->kind == RESUME_RDMA;

        if (options_listen(&opt, rdma ? "rdma" : "nbd"))
                return (rdma ? &rdma_server : &nbd_server)->take_over(l, why, n);
        snprintf(why, n, "it has leases of programs that come over %s, and no such address is "
                 "listened at: give one, as in --listen %s://0.0.0.0, or remove the file, and they "
                 "lose their pages", rdma ? "RDMA" : "NBD", rdma ? "rdma" : "nbd");
        return -EINVAL;
}

static void take_leases_over(void)
{
        char why[WHY_MAX];
        unsigned count;
        int err = resume_lock(opt.resume, why, sizeof(why));

        if (!err)
                err = resume_read(opt.resume, take_over, still_alive, &count, why, sizeof(why));
        if (err)
                die_(1, "--resume %s: %s", opt.resume, why);
        stats_resumed(count);
        if (count)
                notice_("--resume %s: %u lease%s of clients %s taken over", opt.resume, count,
                        count == 1 ? "" : "s", count == 1 ? "is" : "are");
}

/* Nothing can fail any more before the first client is served. */
static void begin(void)
{
        char why[WHY_MAX];

        if (opt.resume && resume_remove(opt.resume, why, sizeof(why)) != 0)
                die_(1, "--resume %s: %s", opt.resume, why);
        for (unsigned i = 0; i < SERVERS; i++)
                servers[i]->begin();
}

/* At the end.  ended: no thread is left that could still write to a lease.  True: all are kept. */
static bool keep_leases(bool ended)
{
        struct resume_list list = { .count = 0 };
        char why[WHY_MAX] = "a connection is still at work";
        int err = ended ? 0 : -EBUSY;

        for (unsigned i = 0; i < SERVERS && !err; i++) {
                err = servers[i]->kept(&list);
                still_alive();
        }
        if (err == -ENOMEM)
                snprintf(why, sizeof(why), "no memory is left");
        if (!err && list.count)
                err = resume_write(opt.resume, &list, still_alive, why, sizeof(why));
        if (err)
                warnx_("--resume %s: leases are not kept, and programs lose what they have here: "
                       "%s", opt.resume, why);
        else if (list.count)
                notice_("--resume %s: %u lease%s kept for memnode's next start", opt.resume,
                        list.count, list.count == 1 ? " is" : "s are");
        if (!err && !list.lost)
                drain_kept();
        resume_list_free(&list);
        return !err;
}

/* Names a part of memnode's end that took long: a service manager does not wait for ever.  since:
 * when the part began, ms; returns when the next one does. */
static int64_t say_slow(const char *what, int64_t since)
{
        int64_t now = now_ms();

        if (now - since >= SLOW_MS)
                warnx_("ending: %s took %.1f s", what, (double)(now - since) / 1000);
        return now;
}

static void open_listeners(void)
{
        char why[WHY_MAX];

        for (unsigned i = 0; i < opt.nlisten; i++) {
                const char *url = opt.listen[i];
                const struct server *s = strncmp(url, "rdma:", 5) ? &nbd_server : &rdma_server;

                if (s->listen(url, why, sizeof(why)) != 0)
                        die_(1, "%s: %s", url, why);
        }
}

static void announce(void)
{
        char a[32];
        size_t n = (size_t)snprintf(serving, sizeof(serving), "serving %s at ",
                                    size_text(pool_size(), a));

        for (unsigned i = 0; i < opt.nlisten && n < sizeof(serving); i++)
                n += (size_t)snprintf(serving + n, sizeof(serving) - n, "%s%s", i ? ", " : "",
                                      opt.listen[i]);
        notice_("%s", serving);
        tell_ready();
}

static void drain_asked(void)
{
        notice_("drain asked for over %s", opt.control);
        drain_begin();
}

/* False: no descriptor or memory is left for the next client of the control socket, so it must
 * wait. */
static bool answer(int control)
{
        static bool said;
        int err = control_answer(control, print_statistics, drain_asked);
        bool none = err == -EMFILE || err == -ENFILE || err == -ENOBUFS || err == -ENOMEM;

        if (none && !said)
                warnx_("clients of the control socket must wait: %s%s", strerror(-err),
                       err == -EMFILE ? ": raise `ulimit -n`" : "");
        if (none || !err)
                said = none;
        return !none;
}

/* Who sent it: another than the service manager, perhaps. */
static void say_signal(const struct signalfd_siginfo *s)
{
        const char *name = s->ssi_signo == SIGTERM ? "SIGTERM" : "SIGINT";

        if (s->ssi_code == SI_KERNEL)
                notice_("%s from the terminal", name);
        else
                notice_("%s from process %u of user %u", name, s->ssi_pid, s->ssi_uid);
}

/* Serves until a signal ends it, or it is drained. */
static void serve(int signals, int control, int argc, char **argv)
{
        struct pollfd fds[2] = { { .fd = signals, .events = POLLIN },
                                 { .fd = control, .events = POLLIN } };

        for (;;) {
                struct signalfd_siginfo info;

                /* A client that cannot be accepted stays in the queue, so poll() would return at
                 * once: ignore it for a while.  Otherwise there is no time limit: this is where
                 * memnode idles. */
                int ms = drain_began() ? DRAIN_LOOK_MS : fds[1].fd == control ? -1 : RETRY_MS;
                if (poll(fds, 2, pulse_beat(PULSE_MAIN, ms)) < 0)
                        continue;
                if (run_ended() || (drain_began() && drain_over()))
                        return;
                fds[1].fd = fds[1].revents && !answer(control) ? -1 : control;
                if (read(signals, &info, sizeof(info)) != sizeof(info))
                        continue;
                switch (info.ssi_signo) {
                case SIGHUP:
                        reload(argc, argv);
                        break;
                case SIGUSR1:
                        statistics_to_stderr();
                        break;
                case SIGCHLD:
                        break;
                case SIGTERM:
                        say_signal(&info);
                        if (opt.run) {          /* whose end is memnode's */
                                run_signal(SIGTERM);
                                break;
                        }
                        if (drain_began())
                                return;
                        drain_begin();
                        break;
                default:
                        say_signal(&info);
                        if (!opt.run)
                                return;
                        if (info.ssi_code != SI_KERNEL)         /* a terminal tells both */
                                run_signal(SIGINT);
                }
        }
}

int main(int argc, char **argv)
{
        char why[WHY_MAX];
        sigset_t signals;
        int control = -1;

        log_begin();
        if (read_settings(&opt, argc, argv, why) != 0)
                die_(1, "%s", why);
        message_verbose(opt.verbose);
        if (opt.drain)
                return drain_other(opt.drain);
        check_raise_limits();
        if (opt.check && admit_clients(&opt, why) != 0)
                die_(1, "%s", why);
        if (opt.check)
                return check_report();

        /* Blocked before the first thread starts, so that all threads have them blocked and only
         * serve() sees them. */
        sigemptyset(&signals);
        sigaddset(&signals, SIGCHLD);
        sigaddset(&signals, SIGHUP);
        sigaddset(&signals, SIGINT);
        sigaddset(&signals, SIGTERM);
        sigaddset(&signals, SIGUSR1);
        sigprocmask(SIG_BLOCK, &signals, NULL);
        signal(SIGPIPE, SIG_IGN);
        signal(SIGCHLD, SIG_DFL);       /* were it ignored, the end of a command would go unseen */
        int fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
        if (fd < 0)
                die_(1, "no file descriptor for signals can be had: %s: raise `ulimit -n`",
                     strerror(errno));

        log_open();
        if (opt.run)
                run_prepare(opt.listen[0], opt.keys);
        if (admit_clients(&opt, why) != 0)
                die_(1, "%s", why);
        watchdog_open();
        open_pool();
        if (opt.resume)
                take_leases_over();
        if (limit_clients(&opt, why) != 0)
                die_(1, "%s", why);
        if (opt.control) {
                control = control_open(opt.control, why, sizeof(why));
                if (control < 0)
                        die_(1, "--control %s: %s", opt.control, why);
        }
        open_listeners();
        /* Behind it: a second memnode, which cannot listen, must not take the first for dead. */
        if (opt.stats && stats_open(opt.stats, why, sizeof(why)) != 0)
                die_(1, "--stats %s: %s", opt.stats, why);
        if (opt.pidfile && pidfile_write(opt.pidfile, why, sizeof(why)) != 0)
                die_(1, "--pidfile %s: %s", opt.pidfile, why);
        begin();
        announce();
        stats_begin(opt.stats_ms);
        watchdog_begin();
        /* Clients may have come: what follows is the end that keeps their leases. */
        if (opt.run && run_start(opt.run, why, sizeof(why)) != 0)
                warnx_("--run %s: %s", opt.run, why);
        else
                serve(fd, control, argc, argv);

        /* A second signal ends memnode at once, unless leases are to be kept, or a command has
         * ended, perhaps by the same signal. */
        if (!opt.resume && !opt.run)
                sigprocmask(SIG_UNBLOCK, &signals, NULL);
        sd_notify(0, "STOPPING=1\nSTATUS=ending: clients are told");
        notice_("ending");
        watchdog_end();
        pidfile_remove();               /* before another memnode can listen, and write its own */
        pool_end();
        int64_t at = now_ms();
        bool ended = true;
        for (unsigned i = 0; i < SERVERS; i++)
                ended = servers[i]->stop(STOP_MS) && ended;
        at = say_slow("closing the connections", at);
        if (opt.control) {              /* no client is to wait there for an answer */
                close(control);
                unlink(opt.control);
        }
        bool kept = opt.resume && keep_leases(ended);
        if (opt.resume)
                say_slow("writing the leases", at);
        for (unsigned i = 0; i < SERVERS; i++)
                servers[i]->lose(kept);
        stats_end();
        run_unplace();
        int status = opt.run ? run_status() : 0;
        notice_("ended");
        message_end();
        if (!ended)
                _exit(status);          /* the memory goes with the threads that still use it */
        pool_close();
        return status;
}
