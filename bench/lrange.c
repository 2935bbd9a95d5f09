/*
 * A lean client for LRANGE, so that what is measured is the server.
 *
 *      lrange SOCKET fill LISTS ELEMENTS BYTES
 *      lrange SOCKET ask  LISTS ELEMENTS BYTES REQUESTS SERVER_PID
 *
 * fill: LISTS lists of ELEMENTS values of BYTES each, pushed in random order over the lists, so
 * that neighbours in a list are no neighbours in memory.  ask: LRANGE of whole lists at random, one
 * request at a time over one connection; the answer's length is known, so it is read and thrown
 * away.  A time is that of the clock less what this process ran meanwhile (SCHED_IDLE: it does not
 * run while the server can).  So on one CPU, with lab --icount, it is the server's alone: its
 * instructions, those of its side of the socket, and its waits.  thread_: less what the server's
 * other threads ran too, as if they had a CPU of their own: under vmrun, the cleaner.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include "samples.h"

#define PIPELINE 256

static char *buffer;
static size_t room;
static int sock;
static unsigned lists, elements, bytes;

static void fail(const char *what)
{
        fprintf(stderr, "lrange: %s: %s\n", what, errno ? strerror(errno) : "not as expected");
        exit(1);
}

static unsigned number(const char *word)
{
        char *end;
        unsigned long v = strtoul(word, &end, 10);

        errno = 0;
        if (*end || v == 0 || v > 100000000)
                fail(word);
        return (unsigned)v;
}

/* Each run draws equal numbers. */
static uint32_t drawn(uint32_t below)
{
        static uint64_t state = 88172645463325252u;

        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        return (uint32_t)((state >> 32) * below >> 32);
}

static void connect_to(const char *path)
{
        struct sockaddr_un addr = { .sun_family = AF_UNIX };

        if (strlen(path) >= sizeof(addr.sun_path))
                fail(path);
        strcpy(addr.sun_path, path);
        sock = socket(AF_UNIX, SOCK_STREAM, 0);
        if (sock < 0 || connect(sock, (struct sockaddr *)&addr, sizeof(addr)) != 0)
                fail(path);
}

static void send_all(const char *from, size_t len)
{
        while (len) {
                ssize_t n = send(sock, from, len, MSG_NOSIGNAL);
                if (n < 0)
                        fail("send");
                from += n;
                len -= (size_t)n;
        }
}

static void receive(size_t len, char begins)
{
        for (size_t got = 0; got < len;) {
                ssize_t n = recv(sock, buffer, len - got < room ? len - got : room, 0);
                if (n <= 0)
                        fail("recv");
                if (got == 0 && buffer[0] != begins) {
                        errno = 0;
                        fail("the answer");
                }
                got += (size_t)n;
        }
}

/* Answers to RPUSH: a line each. */
static void receive_lines(unsigned lines)
{
        while (lines) {
                ssize_t n = recv(sock, buffer, room, 0);
                if (n <= 0)
                        fail("recv");
                for (ssize_t i = 0; i < n; i++) {
                        if (buffer[i] == '-') {
                                errno = 0;
                                fail("RPUSH");
                        }
                        lines -= buffer[i] == '\n';
                }
        }
}

static void fill(void)
{
        unsigned total = lists * elements, *order = malloc(total * sizeof(*order));
        char *text = malloc(PIPELINE * (bytes + 100ul)), *value = malloc(bytes + 1ul), *at = text;

        if (!order || !text || !value)
                fail("memory");
        for (unsigned i = 0; i < total; i++)
                order[i] = i % lists;
        for (unsigned i = total; i > 1; i--) {
                unsigned j = drawn(i), was = order[i - 1];
                order[i - 1] = order[j];
                order[j] = was;
        }
        for (unsigned i = 0; i < total; i++) {
                memset(value, 'a' + (int)drawn(26), bytes);
                value[bytes] = 0;
                at += sprintf(at, "*3\r\n$5\r\nRPUSH\r\n$12\r\nkey:%08u\r\n$%u\r\n%s\r\n",
                              order[i], bytes, value);
                if (i % PIPELINE == PIPELINE - 1 || i == total - 1) {
                        send_all(text, (size_t)(at - text));
                        receive_lines(i % PIPELINE + 1);
                        at = text;
                }
        }
}

static uint64_t clock_of(clockid_t clock)
{
        struct timespec t;

        if (clock_gettime(clock, &t) != 0)
                fail("clock_gettime");
        return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static clockid_t server_clock;
static int server_thread = -1;

static void watch(pid_t server)
{
        char path[64];

        errno = clock_getcpuclockid(server, &server_clock);
        if (errno)
                fail("the server's clock");
        snprintf(path, sizeof(path), "/proc/%d/task/%d/schedstat", server, server);
        server_thread = open(path, O_RDONLY | O_CLOEXEC);
        if (server_thread < 0)
                fail(path);
}

/* CPU time of the server's first thread.  It does not run now, if there is one CPU. */
static uint64_t first_thread(void)
{
        char text[100];
        ssize_t n = pread(server_thread, text, sizeof(text) - 1, 0);

        if (n <= 0)
                fail("schedstat");
        text[n] = 0;
        return strtoull(text, NULL, 10);
}

/* Time outside this process; and that time less the server's other threads'. */
struct moment { uint64_t all, thread; };

static struct moment now(void)
{
        struct moment m;
        uint64_t beside = clock_of(server_clock) - first_thread();

        m.all = clock_of(CLOCK_MONOTONIC) - clock_of(CLOCK_PROCESS_CPUTIME_ID);
        m.thread = m.all - beside;
        return m;
}

/* With more than one CPU the clocks run on between the reads of now(). */
static uint64_t since(uint64_t begun, uint64_t over) { return over > begun ? over - begun : 0; }

static void ask(unsigned requests, pid_t server)
{
        size_t digits = (size_t)snprintf(NULL, 0, "%u", bytes);
        size_t answer = (size_t)snprintf(NULL, 0, "*%u\r\n", elements) +
                        elements * (digits + bytes + 5);
        struct sched_param none = { 0 };
        struct samples all, thread;
        uint64_t sum = 0, thread_sum = 0;
        char text[100];

        if (!samples_init(&all, requests) || !samples_init(&thread, requests))
                fail("memory");
        if (sched_setscheduler(0, SCHED_IDLE, &none) != 0)
                fail("SCHED_IDLE");
        watch(server);
        uint64_t mine = clock_of(CLOCK_PROCESS_CPUTIME_ID), served = clock_of(server_clock);
        for (unsigned i = 0; i < requests; i++) {
                int len = snprintf(text, sizeof(text),
                                   "*4\r\n$6\r\nLRANGE\r\n$12\r\nkey:%08u\r\n"
                                   "$1\r\n0\r\n$2\r\n-1\r\n",
                                   drawn(lists));
                struct moment begun = now();
                send_all(text, (size_t)len);
                receive(answer, '*');
                struct moment over = now();
                samples_add(&all, since(begun.all, over.all));
                samples_add(&thread, since(begun.thread, over.thread));
                sum += since(begun.all, over.all);
                thread_sum += since(begun.thread, over.thread);
        }
        printf("requests_s %.1f\nmean %.0f\n", 1e9 * requests / (double)sum,
               (double)sum / requests);
        samples_print(&all, "server");
        printf("server_max %lu\nthread_mean %.0f\n", all.ns[requests - 1],
               (double)thread_sum / requests);
        samples_print(&thread, "thread");
        printf("cpu_server %.0f\ncpu_client %.0f\n",
               (double)(clock_of(server_clock) - served) / requests,
               (double)(clock_of(CLOCK_PROCESS_CPUTIME_ID) - mine) / requests);
}

int main(int argc, char **argv)
{
        if (argc < 6 || (strcmp(argv[2], "fill") != 0 && argc < 8)) {
                fprintf(stderr, "usage: lrange SOCKET fill LISTS ELEMENTS BYTES\n"
                                "       lrange SOCKET ask LISTS ELEMENTS BYTES REQUESTS SERVER\n");
                return 2;
        }
        lists = number(argv[3]);
        elements = number(argv[4]);
        bytes = number(argv[5]);
        room = 1 << 20;
        buffer = malloc(room);
        if (!buffer)
                fail("memory");
        memset(buffer, 1, room);
        connect_to(argv[1]);
        if (strcmp(argv[2], "fill") == 0)
                fill();
        else
                ask(number(argv[6]), (pid_t)number(argv[7]));
        return 0;
}
