/*
 * The rdma:// driver without vmrun: random reads and writes of pages, many in flight, verified,
 * with and without faults.
 *
 * usage: driver ADDRESS [MEMNODE [WORD]] all cases, or those whose name has WORD
 *        driver --url URL SECONDS              traffic with the node there, whatever happens to it
 * Each case is two processes: a node of node.c at ADDRESS, and a client of the driver that makes
 * the faults happen.  With MEMNODE, the path of that program, some cases also run against it.
 * Prints TAP.
 *
 * The client is on the harness of ../drivers.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "base/message.h"
#include "base/privfd.h"
#include "common/clock.h"
#include "far/rdma/settings.h"
#include "node.h"
#include "test/drivers/conformance.h"

#define SLOTS   4096u
#define FRAMES  512u                    /* more than may be locked where pages are copied */
#define DEPTH   96u

/* ---- what the driver expects around it ---- */

static struct rdma_settings settings = {
        .timeout_ms = 3000, .connect_timeout_ms = 3000, .gid_index = -1, .program = "test"
};
static int result_fd = -1;              /* where a client tells how it ended */

static void say(const char *fmt, va_list ap)
{
        char line[600];
        vsnprintf(line, sizeof(line), fmt, ap);
        printf("#   %s\n", line);
        fflush(stdout);
}

void warnx_(const char *fmt, ...) { va_list ap; va_start(ap, fmt); say(fmt, ap); va_end(ap); }
void info_(const char *fmt, ...) { va_list ap; va_start(ap, fmt); say(fmt, ap); va_end(ap); }

int rdma_settings(const struct far_node *n, struct rdma_settings *s, char why[FAR_WHY])
{
        (void)n;
        (void)why;
        *s = settings;
        return 0;
}

/* Private descriptors are those from 700 on. */
int privfd_move(int fd)
{
        if (fd >= 700)
                return fd;
        int n = fcntl(fd, F_DUPFD_CLOEXEC, 700);
        int err = n < 0 ? -errno : n;
        close(fd);
        return err;
}
void privfd_close(int fd) { close(fd); }
bool privfd_is(int fd) { return fd >= 700; }
void privfd_forget(int fd) { (void)fd; }
bool privfd_making(void) { return true; }
void privfd_made(bool held) { (void)held; }
void die_(int status, const char *fmt, ...)
{
        va_list ap;
        va_start(ap, fmt);
        vfprintf(stderr, fmt, ap);
        va_end(ap);
        _exit(status);
}

/* How a client ended: a word, and a sentence.  The parent compares. */
static _Noreturn void tell(const char *word, const char *fmt, va_list ap)
{
        char text[600];
        int n = snprintf(text, sizeof(text), "%s ", word);

        vsnprintf(text + n, sizeof(text) - (size_t)n, fmt, ap);
        if (write(result_fd, text, strlen(text)) < 0)
                perror("driver");
        fflush(stdout);
        _exit(0);
}

static _Noreturn void verdict(const char *word, const char *fmt, ...)
        __attribute__((format(printf, 2, 3)));
static _Noreturn void verdict(const char *word, const char *fmt, ...)
{
        va_list ap;

        va_start(ap, fmt);
        tell(word, fmt, ap);
}

_Noreturn void harness_wrong(const char *fmt, ...)
{
        va_list ap;

        va_start(ap, fmt);
        tell("wrong", fmt, ap);
}

/* As in vmrun, the loss of a node ends it all. */
static void end_lost(struct far_node *n)
{
        if (!n->lost_pages)
                verdict("wrong", "lost without its pages: %s", n->why);
        conform_lost();
        verdict("lost", "%s", n->why);
}

/* ---- a node ---- */

extern const struct far_driver *const far_module[];

static const struct node_option option = { .url = "rdma://test",
                                           .origin = "--node rdma://test",
                                           .gid_index = -1 };
static struct far_node node_ = { .option = &option, .url = "rdma://test", .member = 1 };

static void command(int commands, char what)
{
        if (write(commands, &what, 1) != 1)
                verdict("wrong", "the node is gone");
}

/* Starts and ends `total` requests; at each of the counts in `at`, writes the command to the
 * node. */
struct fault { unsigned at; char command; };
static void traffic(unsigned total, const struct fault *f, int commands)
{
        struct traffic t = { .run = CONFORM_RUN, .depth = DEPTH };
        unsigned made = 0;

        for (; f && f->command; f++) {
                t.count = f->at - made;
                conform_traffic(&t);
                made = f->at;
                command(commands, f->command);
        }
        t.count = total - made;
        conform_traffic(&t);
        harness_settle();
}

static void close_node(void)
{
        node_.driver->close(&node_);
        for (int fd = 700; fd < 1024; fd++)
                if (fcntl(fd, F_GETFD) >= 0) {
                        char path[64], target[256];
                        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
                        ssize_t n = readlink(path, target, sizeof(target) - 1);
                        target[n > 0 ? n : 0] = '\0';
                        /* librdmacm keeps the device's own two open. */
                        if (!strstr(target, "uverbs") && !strstr(target, "infinibandevent"))
                                verdict("wrong", "descriptor %d (%s) is left open", fd, target);
                }
}

/* Descriptors that the program would see: none of RDMA. */
static void look_for_descriptors(void)
{
        char path[64], target[256];

        for (int fd = 3; fd < 700; fd++) {
                snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
                ssize_t n = readlink(path, target, sizeof(target) - 1);
                target[n > 0 ? n : 0] = '\0';
                if (strstr(target, "infiniband") || strstr(target, "uverbs") ||
                    strstr(target, "rdma"))
                        verdict("wrong", "descriptor %d is %s", fd, target);
        }
}

/* As it is before open(). */
static void prepare_node(void)
{
        node_.driver = far_module[0];
        harness.zeroed = true;
        harness.patience_ms = 5000;
        harness.on_lost = end_lost;
        harness_init(FRAMES, 3 * SLOTS);
}

/* Opens the node, makes the frames known to it, leases the slots. */
static void open_node(const char *url_rest)
{
        char why[FAR_WHY] = "?", text[256];

        prepare_node();
        int64_t before = now_ms();
        int err = node_.driver->open(&node_, url_rest, why);
        if (err)
                verdict("refused", "%s (after %lld ms)", why, (long long)(now_ms() - before));
        look_for_descriptors();
        harness_start(&node_, SLOTS, SLOTS);
        node_.driver->describe(&node_, text, sizeof(text));
        printf("#   %s\n", text);
}

/* ---- the cases ---- */

struct target { char rest[300]; int commands; pid_t node; };   /* of the URL, after rdma: */

static void run_plain(const struct target *t, unsigned total, const struct fault *f)
{
        open_node(t->rest);
        traffic(total, f, t->commands);
        unsigned breaks = 0;
        for (; f && f->command; f++)
                breaks++;
        if (breaks && !((struct rdma_node *)node_.data)->data.reconnections)
                verdict("wrong", "no connection broke");
        if (harness.most_in_flight < 64)
                verdict("wrong", "only %u requests were ever in flight", harness.most_in_flight);
        close_node();
        verdict("passed", "%llu requests, up to %u in flight", (unsigned long long)harness.done,
                harness.most_in_flight);
}

static void case_plain(const struct target *t) { run_plain(t, 5000, NULL); }

static void case_drop(const struct target *t)
{
        static const struct fault f[] = {
                { 500, NODE_CMD_DROP }, { 1500, NODE_CMD_DROP }, { 2500, NODE_CMD_CONTROL }, { 0 }
        };
        settings.timeout_ms = 15000;    /* soft-RoCE may take seconds to connect again */
        run_plain(t, 4000, f);
}

static void case_hang(const struct target *t)
{
        static const struct fault f[] = { { 1000, NODE_CMD_HANG }, { 0 } };
        run_plain(t, 3000, f);
}

static void case_hang_long(const struct target *t)
{
        static const struct fault f[] = { { 500, NODE_CMD_HANG_LONG }, { 0 } };
        run_plain(t, 3000, f);
}

static void case_goodbye(const struct target *t)
{
        static const struct fault f[] = { { 500, NODE_CMD_GOODBYE }, { 0 } };
        run_plain(t, 100000, f);
}

static void case_forget(const struct target *t)
{
        static const struct fault f[] = { { 500, NODE_CMD_FORGET }, { 0 } };
        run_plain(t, 100000, f);
}

static void case_revoke(const struct target *t)
{
        static const struct fault f[] = { { 500, NODE_CMD_REVOKE }, { 0 } };
        run_plain(t, 100000, f);
}

static void case_killed(const struct target *t)
{
        open_node(t->rest);
        traffic(500, NULL, -1);
        kill(t->node, SIGKILL);
        traffic(100000, NULL, -1);
        verdict("wrong", "all requests are done by a dead node");
}

/* A clean end of memnode itself. */
static void case_term(const struct target *t)
{
        open_node(t->rest);
        traffic(500, NULL, -1);
        kill(t->node, SIGINT);          /* at once: no client moves its pages here */
        traffic(1000000, NULL, -1);
        verdict("wrong", "all requests are done by a node that ended");
}

/* A stopped memnode still serves: its CPU has no part in it. */
static void case_stopped(const struct target *t)
{
        open_node(t->rest);
        kill(t->node, SIGSTOP);
        traffic(3000, NULL, -1);
        kill(t->node, SIGCONT);
        close_node();
        verdict("passed", "%llu requests", (unsigned long long)harness.done);
}

static void case_wrong_key(const struct target *t)
{
        settings.key.secret[0] ^= 1;
        open_node(t->rest);
}

static void case_unknown_key(const struct target *t)
{
        strcpy(settings.key.name, "mallory");
        open_node(t->rest);
}

static void case_no_key(const struct target *t)
{
        settings.key = (struct key){ .bytes = 0 };
        open_node(t->rest);
}

static unsigned seconds;                /* --url */

static void case_url(const struct target *t)
{
        char text[256];
        int64_t end;

        open_node(t->rest);
        for (end = now_ms() + seconds * 1000; now_ms() < end; poll(NULL, 0, 5))
                traffic(200, NULL, -1);
        node_.driver->describe(&node_, text, sizeof(text));
        printf("#   %s\n", text);
        close_node();
        verdict("passed", "%llu requests", (unsigned long long)harness.done);
}

/* The node says goodbye while nothing is under way: the driver's descriptors must wake the
 * sleeper. */
static void case_idle_goodbye(const struct target *t)
{
        open_node(t->rest);
        traffic(100, NULL, -1);
        command(t->commands, NODE_CMD_GOODBYE);
        for (;;)
                harness_sleep((int)harness.patience_ms);
}

static void case_lease(const struct target *t)
{
        open_node(t->rest);
        if (node_.pages != 3 * SLOTS)
                verdict("wrong", "the node has %llu pages, not %u", (unsigned long long)node_.pages,
                        3 * SLOTS);
        harness_lease(SLOTS);
        traffic(1000, NULL, -1);
        conform_lease_end();
        close_node();
        verdict("passed", "leases");
}

/* An answer that comes after its request was given up is not taken for the next request's. */
static void case_late_answer(const struct target *t)
{
        const struct far_range dead = { 5, 7 };
        char why[FAR_WHY] = "?";

        open_node(t->rest);
        int err = node_.driver->cut(&node_, &dead, 1, 500, why);
        if (err != -ETIMEDOUT)
                verdict("wrong", "cut: %d (%s)", err, why);
        harness_lease(SLOTS);
        traffic(1000, NULL, -1);
        close_node();
        verdict("passed", "a late answer");
}

/* One thread leases while the other has traffic, and connections break. */
static void *leaser(void *arg)
{
        int *result = arg;
        for (unsigned i = 0; i < 64 && *result == 0; i++) {
                struct slab s = { 0 };
                struct far_place p = { .node = &node_ };
                *result = node_.driver->lease(&node_, NULL, 0, 16, &s, &p);
                poll(NULL, 0, 20);
        }
        return NULL;
}

static void case_lease_beside(const struct target *t)
{
        static const struct fault f[] = {
                { 500, NODE_CMD_DROP }, { 1000, NODE_CMD_CONTROL }, { 1500, NODE_CMD_HANG }, { 0 }
        };
        static int result;
        pthread_t thread;

        open_node(t->rest);
        pthread_create(&thread, NULL, leaser, &result);
        traffic(4000, f, t->commands);
        /* Reconnections need no traffic, but a thread that polls. */
        struct timespec end;
        do {
                harness_poll();
                clock_gettime(CLOCK_REALTIME, &end);
                end.tv_nsec += 1000000;
                end.tv_sec += end.tv_nsec / 1000000000;
                end.tv_nsec %= 1000000000;
        } while (pthread_timedjoin_np(thread, NULL, &end) == ETIMEDOUT);
        if (result)
                verdict("wrong", "lease: %s", strerror(-result));
        close_node();
        verdict("passed", "64 leases beside %llu requests", (unsigned long long)harness.done);
}

/* lease() alone, without a thread that polls, across a break. */
static void case_lease_alone(const struct target *t)
{
        struct slab s = { 0 };
        struct far_place p = { .node = &node_ };

        open_node(t->rest);
        command(t->commands, NODE_CMD_CONTROL);
        poll(NULL, 0, 300);
        int err = node_.driver->lease(&node_, NULL, SLOTS, 16, &s, &p);
        if (err)
                verdict("wrong", "lease: %s", strerror(-err));
        traffic(1000, NULL, -1);
        close_node();
        verdict("passed", "lease and %llu requests", (unsigned long long)harness.done);
}

/* A process without the right to lock much memory. */
static void limit_memlock(rlim_t bytes)
{
        struct rlimit r = { bytes, bytes };
        if (setrlimit(RLIMIT_MEMLOCK, &r) != 0 || setresgid(65534, 65534, 65534) != 0 ||
            setresuid(65534, 65534, 65534) != 0)
                verdict("wrong", "cannot give up rights: %s", strerror(errno));
}

static void case_pool(const struct target *t)
{
        char text[256], copied[64];

        limit_memlock(RDMA_POOL_PAGES * PAGE_SIZE + 16 * PAGE_SIZE);
        open_node(t->rest);
        traffic(3000, NULL, -1);
        node_.driver->describe(&node_, text, sizeof(text));
        snprintf(copied, sizeof(copied), "%llu pages copied", (unsigned long long)harness.done);
        if (!strstr(text, copied))
                verdict("wrong", "no word of the pool: %s", text);
        close_node();
        verdict("passed", "%s", text);
}

static void case_pool_drop(const struct target *t)
{
        static const struct fault f[] = { { 500, NODE_CMD_DROP },
                                          { 1500, NODE_CMD_CONTROL },
                                          { 0 } };
        limit_memlock(RDMA_POOL_PAGES * PAGE_SIZE + 16 * PAGE_SIZE);
        run_plain(t, 3000, f);
}

static void case_memlock(const struct target *t)
{
        limit_memlock(16 * PAGE_SIZE);
        open_node(t->rest);
        verdict("wrong", "registered without a right to");
}

static void case_open(const struct target *t)
{
        open_node(t->rest);
        verdict("wrong", "the node could be opened");
}

static void case_host(const struct target *t)
{
        (void)t;
        open_node("//no-such-host.invalid");
}

static void case_loopback(const struct target *t)
{
        (void)t;
        open_node("//127.0.0.1");
}

static void case_no_route(const struct target *t)
{
        (void)t;
        open_node("//198.51.100.1");
}

static void case_no_device(const struct target *t)
{
        (void)t;
        open_node("//10.99.0.2");       /* driver.sh: reached over an interface without RDMA */
}

static void case_silent_host(const struct target *t)
{
        (void)t;
        /* driver.sh: an address in the network of the RDMA device that no host has */
        open_node("//10.98.0.77");
}

static void case_deaf_port(const struct target *t)
{
        char *port = strrchr(t->rest, ':');
        strcpy(port, ":7999");
        open_node(t->rest);
}

static void case_device(const struct target *t)
{
        settings.device = "rxe0";
        open_node(t->rest);
        traffic(500, NULL, -1);
        close_node();
        verdict("passed", "by rxe0");
}

static void case_no_such_device(const struct target *t)
{
        settings.device = "mlx9_9";
        open_node(t->rest);
}

/* ---- with a node that hands back ---- */

/* The node goes down once for each fault, and each time within within_ms. */
static void run_hand_back(const struct target *t, unsigned total, const struct fault *f,
                          unsigned faults, int within_ms)
{
        harness.hands_back = true;
        open_node(t->rest);
        traffic(total, f, t->commands);
        /* The last fault may show after the last transfer. */
        for (int64_t end = now_ms() + 5000; harness.downs < faults && now_ms() < end; )
                harness_sleep((int)harness.patience_ms);
        traffic(200, NULL, -1);
        if (harness.downs != faults || (harness.downs && !harness.given_back) ||
            harness.slowest_ms > within_ms)
                verdict("wrong", "down %u times, %llu handed back, after %lld ms at most",
                        harness.downs, (unsigned long long)harness.given_back,
                        (long long)harness.slowest_ms);
        close_node();
        verdict("passed", "%llu requests, down %u times, %llu handed back, after %lld ms at most",
                (unsigned long long)harness.done, harness.downs,
                (unsigned long long)harness.given_back, (long long)harness.slowest_ms);
}

static void case_back_plain(const struct target *t) { run_hand_back(t, 3000, NULL, 0, 0); }

static void case_back_drop(const struct target *t)
{
        static const struct fault f[] = {
                { 500, NODE_CMD_DROP }, { 1500, NODE_CMD_DROP }, { 2500, NODE_CMD_CONTROL }, { 0 }
        };
        run_hand_back(t, 4000, f, 3, 1000);
}

static void case_back_hang(const struct target *t)
{
        static const struct fault f[] = { { 1000, NODE_CMD_HANG }, { 0 } };
        run_hand_back(t, 3000, f, 1, 1500);
}

/* The node's control connection would answer.  Here the device notices before the driver has to
 * ask. */
static void case_back_stall(const struct target *t)
{
        static const struct fault f[] = { { 1000, NODE_CMD_STALL }, { 0 } };
        run_hand_back(t, 3000, f, 1, 1500);
}

static void case_back_pool(const struct target *t)
{
        limit_memlock(RDMA_POOL_PAGES * PAGE_SIZE + 16 * PAGE_SIZE);
        case_back_drop(t);
}

static void case_back_forget(const struct target *t)
{
        harness.hands_back = true;
        case_forget(t);
}

static void case_back_goodbye(const struct target *t)
{
        harness.hands_back = true;
        case_idle_goodbye(t);
}

static void case_back_killed(const struct target *t)
{
        harness.hands_back = true;
        case_killed(t);
}

static void poll_for(int64_t ms)
{
        for (int64_t end = now_ms() + ms; now_ms() < end; )
                harness_sleep((int)harness.patience_ms);
}

/* A node that is silent for good is down, and not lost, however long. */
static void case_back_hang_long(const struct target *t)
{
        harness.hands_back = true;
        open_node(t->rest);
        traffic(500, NULL, -1);
        command(t->commands, NODE_CMD_HANG_LONG);
        poll_for(2 * settings.timeout_ms);
        if (node_.up || node_.lost || harness.downs != 1)
                verdict("wrong", "up %d, lost %d, down %u times", node_.up, node_.lost,
                        harness.downs);
        conform_down(harness_place(0));
        verdict("passed", "it is down");
}

/* Nothing is under way for longer than a silence may last. */
static void case_pause(const struct target *t)
{
        open_node(t->rest);
        traffic(200, NULL, -1);
        for (int i = 0; i < 2; i++) {
                harness_sleep((int)harness.patience_ms);
                poll(NULL, 0, 4000);
                traffic(200, NULL, -1);
        }
        if (((struct rdma_node *)node_.data)->data.reconnections || harness.downs)
                verdict("wrong", "a connection broke");
        close_node();
        verdict("passed", "%llu requests", (unsigned long long)harness.done);
}

static void case_back_pause(const struct target *t)
{
        harness.hands_back = true;
        case_pause(t);
}

/* Another process of the tree attaches while the node's host cannot be reached: not even the device
 * is known.  Later the host can be reached. */
static _Noreturn void join(const struct target *t, int from_parent)
{
        struct far_place place = { .node = &node_ };
        struct far_kept_node k;
        char why[FAR_WHY] = "?";

        if (read(from_parent, &k, sizeof(k)) != sizeof(k) ||
            read(from_parent, place.word, sizeof(place.word)) != sizeof(place.word))
                verdict("wrong", "the first process has ended");
        settings.connect_timeout_ms = 20000;    /* an attach that waits for that is too late */
        prepare_node();
        node_.inherited = &k;
        node_.member = 2;
        if (node_.driver->open(&node_, t->rest, why) != 0)
                verdict("wrong", "open: %s", why);
        struct rdma_node *rn = node_.data;
        union rdma_sockaddr right = rn->to;
        inet_pton(AF_INET, "10.98.0.77", &rn->to.in.sin_addr);
        harness_prepare(&node_, SLOTS);
        int64_t before = now_ms();
        int err = node_.driver->attach(&node_, harness.frames, FRAMES * PAGE_SIZE, why);
        if (err || node_.up || rn->dev.verbs || now_ms() - before > 5000)
                verdict("wrong", "attach: %d (%s), up %d, after %lld ms", err, why, node_.up,
                        (long long)(now_ms() - before));
        conform_down(place);
        poll_for(500);
        rn->to = right;
        /* A connection that was begun with the wrong address ends first. */
        harness.patience_ms = 15000;
        for (before = now_ms(); !node_.up && now_ms() - before < 20000; )
                harness_sleep((int)harness.patience_ms);
        if (!node_.up)
                verdict("wrong", "it is not up: %s", rn->data.why);
        harness_lease(SLOTS);
        traffic(500, NULL, -1);
        _exit(0);
}

static void case_back_join(const struct target *t)
{
        struct far_kept_node k = { .fd = -1 };
        int down[2], status;

        harness.hands_back = true;
        if (pipe2(down, O_CLOEXEC) != 0)
                verdict("wrong", "no pipe");
        pid_t pid = fork();             /* before it has anything of RDMA */
        if (pid == 0)
                join(t, down[0]);
        open_node(t->rest);
        traffic(200, NULL, -1);
        struct far_place place = harness_place(0);
        if (!node_.driver->keep(&node_, &k) || write(down[1], &k, sizeof(k)) != sizeof(k) ||
            write(down[1], place.word, sizeof(place.word)) != sizeof(place.word))
                verdict("wrong", "the second process cannot be told");
        /* No request is under way in this process, so no descriptor need wake it: it polls. */
        for (; waitpid(pid, &status, WNOHANG) == 0; poll(NULL, 0, 50))
                harness_poll();
        if (status != 0)
                verdict("wrong", "the second process: status %#x", (unsigned)status);
        traffic(200, NULL, -1);
        close_node();
        verdict("passed", "a second process joined later");
}

/* ---- all of them ---- */

static const struct test {
        const char *name, *fault;       /* fault: of the node; NULL: no node */
        void (*client)(const struct target *t);
        const char *word, *sentence;    /* the verdict: its word, and part of its sentence */
        int max_ms;
        unsigned depth;                 /* of the node; 0: 128 */
} tests[] = {
        { "reads and writes are verified, 96 in flight", "", case_plain, "passed", "", 60000, 0 },
        { "a node with little depth", "", case_plain, "passed", "", 60000, 4 },
        { "a node whose depth shrinks", "shrink", case_drop, "passed", "", 60000, 0 },
        { "leases to the end of the node", "", case_lease, "passed", "", 30000, 0 },
        { "an answer that comes too late", "late", case_late_answer, "passed", "", 30000, 0 },
        { "connections that are dropped", "", case_drop, "passed", "", 60000, 0 },
        { "a silence that ends in time", "", case_hang, "passed", "", 60000, 0 },
        { "a silence that does not end", "", case_hang_long, "lost",
          "nothing came through for 3.0 s", 15000, 0 },
        { "a goodbye ends at once", "", case_goodbye, "lost", "it said goodbye", 10000, 0 },
        { "a goodbye while nothing is under way", "", case_idle_goodbye, "lost", "it said goodbye",
          5000, 0 },
        { "a node that forgot its client", "", case_forget, "lost", "does not know this program",
          10000, 0 },
        { "a node that is killed", "", case_killed, "lost", "nothing listens", 10000, 0 },
        { "a node that withdraws its memory", "", case_revoke, "lost", "does not let us at", 15000,
          0 },
        { "leases beside traffic and breaks", "", case_lease_beside, "passed", "", 60000, 0 },
        { "a lease across a break, before any poll", "", case_lease_alone, "passed", "",
          30000, 0 },
        { "little memory may be locked: pages are copied", "", case_pool, "passed", "", 60000, 0 },
        { "little memory may be locked: breaks", "", case_pool_drop, "passed", "", 60000, 0 },
        { "hardly any memory may be locked", "", case_memlock, "wrong", "ulimit -l", 10000, 0 },
        { "a device by its name", "", case_device, "passed", "", 20000, 0 },
        { "no such device", "", case_no_such_device, "refused", "no RDMA device mlx9_9", 15000, 0 },
        { "nothing is under way for a while", "", case_pause, "passed", "", 30000, 0 },
        { "hand back: reads and writes", "", case_back_plain, "passed", "", 60000, 0 },
        { "hand back: connections that are dropped", "", case_back_drop, "passed", "", 60000, 0 },
        { "hand back: dropped connections, copied pages", "", case_back_pool, "passed", "", 60000,
          0 },
        { "hand back: a silence", "", case_back_hang, "passed", "", 60000, 0 },
        { "hand back: only data connections are silent", "", case_back_stall, "passed", "", 60000,
          0 },
        { "hand back: a silence that does not end", "", case_back_hang_long, "passed", "", 15000,
          0 },
        { "hand back: nothing is under way for a while", "", case_back_pause, "passed", "", 30000,
          0 },
        { "hand back: a node that forgot its client", "", case_back_forget, "lost",
          "does not know this program", 10000, 0 },
        { "hand back: a goodbye while nothing is under way", "", case_back_goodbye, "lost",
          "it said goodbye", 5000, 0 },
        { "hand back: a node that is killed", "", case_back_killed, "lost", "nothing listens",
          10000, 0 },
        { "another version", "version", case_open, "refused", "of the protocol, this vmrun version",
          15000, 0 },
        { "no memnode", "stranger", case_open, "refused", "no memnode", 15000, 0 },
        { "a node that refuses", "refuses", case_open, "refused", "likes no clients", 15000, 0 },
        { "a node that wants a key", "key", case_open, "refused", "give keys=FILE", 15000, 0 },
        { "cookies that are not taken", "cookies", case_open, "refused", "none of the cookies",
          15000, 0 },
        { "an impostor", "impostor", case_open, "refused", "does not prove", 15000, 0 },
        { "garbage for an answer", "garbage", case_open, "refused", "not memnode's protocol", 15000,
          0 },
        { "a node that does not answer HELLO", "mute", case_open, "refused", "does not answer",
          20000, 0 },
        { "a node that does not answer at all", "deaf", case_open, "refused", "does not answer",
          20000, 0 },
        /* Either time-out may be first: that of one request, or that of all connections. */
        { "a node that takes no data connections", "nodata", case_open, "refused",
          "does not answer the connection request", 20000, 0 },
        { "a port where nothing listens", "", case_deaf_port, "refused", "nothing listens", 15000,
          0 },
        { "an unknown host", NULL, case_host, "refused", "not known", 20000, 0 },
        { "an address of no device", NULL, case_loopback, "refused", "RDMA device", 20000, 0 },
        { "no route", NULL, case_no_route, "refused", "no route", 20000, 0 },
        { "a route over no RDMA device", NULL, case_no_device, "refused", "no RDMA device", 20000,
          0 },
        { "an address without a host", NULL, case_silent_host, "refused", "does not answer", 20000,
          0 },
};

/* The cases against memnode itself; one after the other with one memnode, until it is ended. */
static const struct test real_tests[] = {
        { "reads and writes with memnode", "", case_plain, "passed", "", 60000, 0 },
        { "the next client finds zeros", "", case_plain, "passed", "", 60000, 0 },
        { "leases to the end of memnode", "", case_lease, "passed", "", 30000, 0 },
        { "memnode is stopped", "", case_stopped, "passed", "", 30000, 0 },
        { "hand back: a second process joins later", "", case_back_join, "passed", "", 30000, 0 },
        { "memnode refuses a wrong key", "", case_wrong_key, "refused", "give keys=FILE", 3000, 0 },
        { "memnode refuses an unknown key", "", case_unknown_key, "refused", "give keys=FILE", 3000,
          0 },
        { "memnode refuses who has no key", "", case_no_key, "refused", "give keys=FILE", 3000, 0 },
        { "memnode ends", "", case_term, "lost", "it said goodbye", 10000, 0 },
        { "memnode is killed", "", case_killed, "lost", "nothing listens", 10000, 0 },
};

#define KEY "alice:000102030405060708090a0b0c0d0e0f"

/* The name of a file with the key. */
static const char *key_file(void)
{
        static char name[] = "/tmp/vmrun-test-keys-XXXXXX";
        int fd = mkstemp(name);
        if (fd < 0 || write(fd, KEY "\n", sizeof(KEY)) != sizeof(KEY))
                abort();
        close(fd);
        return name;
}

/* Starts memnode and waits for its READY=1. */
static pid_t start_memnode(const char *path, const char *keys, const char *address, uint16_t port)
{
        struct sockaddr_un at = { .sun_family = AF_UNIX };
        struct timeval patience = { .tv_sec = 20 };
        char name[64], url[128], size[32], text[256] = "";
        int s = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

        snprintf(name, sizeof(name), "@vmrun-test-%d-%u", (int)getpid(), port);
        memcpy(at.sun_path + 1, name + 1, strlen(name) - 1);
        if (s < 0 || bind(s, (struct sockaddr *)&at,
                          (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name))) != 0)
                abort();
        setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
        snprintf(url, sizeof(url), "rdma://%s:%u", address, port);
        snprintf(size, sizeof(size), "%llu", 3ull * SLOTS * PAGE_SIZE);
        fflush(stdout);
        pid_t pid = fork();
        if (pid == 0) {
                prctl(PR_SET_PDEATHSIG, SIGKILL);
                setenv("NOTIFY_SOCKET", name, 1);
                execl(path, path, "--size", size, "--listen", url, "--hugepages", "none",
                      "--keys", keys, NULL);
                perror(path);
                _exit(1);
        }
        while (!strstr(text, "READY=1")) {
                ssize_t n = recv(s, text, sizeof(text) - 1, 0);
                if (n < 0) {
                        printf("#   memnode does not start\n");
                        break;
                }
                text[n] = '\0';
        }
        close(s);
        return pid;
}

static pid_t start_node(const struct test *t, const char *address, uint16_t port, int *commands)
{
        struct node_config c = { .address = address,
                                 .port = port,
                                 .bytes = 3ull * SLOTS * PAGE_SIZE,
                                 .depth = t->depth ? t->depth : 128,
                                 .fault = t->fault };
        int down[2], ready[2];
        char byte;

        if (pipe2(down, O_CLOEXEC) != 0 || pipe2(ready, O_CLOEXEC) != 0)
                abort();
        pid_t pid = fork();
        if (pid == 0) {
                prctl(PR_SET_PDEATHSIG, SIGKILL);
                close(down[1]);
                node_run(&c, down[0], ready[1]);
        }
        close(down[0]);
        close(ready[1]);
        if (read(ready[0], &byte, 1) != 1)
                printf("#   the node does not start\n");
        close(ready[0]);
        *commands = down[1];
        return pid;
}

/* Runs the client of a case; text receives its verdict. */
static void run_client(const struct test *t, const struct target *target, char *text, size_t size,
                       int *ms)
{
        int back[2];
        int64_t before = now_ms();

        if (pipe2(back, O_CLOEXEC) != 0)
                abort();
        fflush(stdout);
        pid_t pid = fork();
        if (pid == 0) {
                struct target mine = *target;
                prctl(PR_SET_PDEATHSIG, SIGKILL);
                alarm(90 + seconds);
                result_fd = back[1];
                t->client(&mine);
                verdict("wrong", "no verdict");
        }
        close(back[1]);
        ssize_t n = read(back[0], text, size - 1);
        text[n > 0 ? n : 0] = '\0';
        close(back[0]);
        int status;
        waitpid(pid, &status, 0);
        if (n <= 0)
                snprintf(text, size, "no verdict: status %#x", (unsigned)status);
        *ms = (int)(now_ms() - before);
}

static bool judge(unsigned i, const struct test *t, const char *text, int ms)
{
        bool good = strncmp(text, t->word, strlen(t->word)) == 0 && strstr(text, t->sentence) &&
                    ms <= t->max_ms;
        printf("%sok %u - %s\n#   %d ms: %s\n", good ? "" : "not ", i, t->name, ms, text);
        fflush(stdout);
        return good;
}

static unsigned number, failed;

static void node_cases(const char *address, const char *word)
{
        char text[700];
        int ms;

        for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++) {
                const struct test *t = &tests[i];
                struct target target = { .commands = -1 };
                /* a port of its own: a late packet for a node that is gone reaches no other */
                uint16_t port = (uint16_t)(7500 + i);
                if (!strstr(t->name, word))
                        continue;
                snprintf(target.rest, sizeof(target.rest), "//%s:%u", address, port);
                if (t->fault)
                        target.node = start_node(t, address, port, &target.commands);
                run_client(t, &target, text, sizeof(text), &ms);
                if (t->fault) {
                        close(target.commands);
                        kill(target.node, SIGKILL);
                        waitpid(target.node, NULL, 0);
                }
                failed += !judge(++number, t, text, ms);
        }
}

static void memnode_cases(const char *path, const char *address, const char *word)
{
        struct target target = { .commands = -1 };
        const char *keys = key_file();
        uint16_t port = 7600;
        char text[700];
        int ms;

        for (size_t i = 0; i < sizeof(real_tests) / sizeof(real_tests[0]); i++) {
                const struct test *t = &real_tests[i];
                if (!strstr(t->name, word))
                        continue;
                if (keys_line(KEY, sizeof(KEY) - 1, &settings.key))
                        abort();
                if (!target.node) {
                        target.node = start_memnode(path, keys, address, ++port);
                        snprintf(target.rest, sizeof(target.rest), "//%s:%u", address, port);
                }
                run_client(t, &target, text, sizeof(text), &ms);
                failed += !judge(++number, t, text, ms);
                if (strcmp(t->word, "lost") == 0) {
                        kill(target.node, SIGKILL);     /* if the case has not */
                        waitpid(target.node, NULL, 0);
                        target.node = 0;
                }
        }
        if (target.node)
                kill(target.node, SIGKILL);
        unlink(keys);
}

static int run_url(const char *url, const char *time)
{
        static const struct test t = { "traffic", NULL, case_url, "passed", "", 600000, 0 };
        struct target target = { .commands = -1 };
        char text[700];
        int ms;

        seconds = (unsigned)atoi(time);
        settings.timeout_ms = 10000;    /* as vmrun has it */
        snprintf(target.rest, sizeof(target.rest), "%s", url + strlen("rdma:"));
        run_client(&t, &target, text, sizeof(text), &ms);
        judge(1, &t, text, ms);
        return strncmp(text, "passed", 6) != 0;
}

int main(int argc, char **argv)
{
        signal(SIGPIPE, SIG_IGN);
        if (argc == 4 && strcmp(argv[1], "--url") == 0 && strncmp(argv[2], "rdma:", 5) == 0)
                return run_url(argv[2], argv[3]);
        if (argc < 2 || argc > 4 || argv[1][0] == '-') {
                fprintf(stderr, "usage: driver ADDRESS [MEMNODE [WORD]] | --url URL SECONDS\n");
                return 2;
        }
        const char *word = argc == 4 ? argv[3] : "";
        node_cases(argv[1], word);
        if (argc > 2 && *argv[2])
                memnode_cases(argv[2], argv[1], word);
        printf("1..%u\n", number);
        return failed != 0;
}
