/*
 * The reference for page reads over NBD: a request of NBD's size one way and a page with NBD's
 * header the other, over TCP on loopback, between two processes that do nothing else. It leaves out
 * all work of vmrun, memnode and the kernel's block layer, so no pager that waits for one page at a
 * time over TCP can be faster.
 *
 *   exchange [--unix] [COUNT]
 *
 * --unix: over a unix socket instead. Prints `KEY VALUE` lines: latency_p50, latency_p99 in ns,
 * exchanges_per_s.
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { REQUEST = 28, ANSWER = 16 + 4096 }; /* NBD: struct nbd_request; simple reply and a page */

static void check(bool good, const char *what)
{
        if (good)
                return;
        fprintf(stderr, "exchange: %s: %s\n", what, strerror(errno));
        exit(1);
}

static void tcp_pair(int end[2])
{
        struct sockaddr_in at = { .sin_family = AF_INET,
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
        socklen_t len = sizeof(at);
        int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0);

        check(listener >= 0 && bind(listener, (struct sockaddr *)&at, sizeof(at)) == 0 &&
                      listen(listener, 1) == 0 &&
                      getsockname(listener, (struct sockaddr *)&at, &len) == 0,
              "a port to listen at");
        end[0] = socket(AF_INET, SOCK_STREAM, 0);
        check(end[0] >= 0 && connect(end[0], (struct sockaddr *)&at, sizeof(at)) == 0,
              "connecting");
        end[1] = accept(listener, NULL, NULL);
        check(end[1] >= 0, "accepting");
        for (int i = 0; i < 2; i++)
                check(setsockopt(end[i], IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) == 0,
                      "TCP_NODELAY");
        close(listener);
}

static bool receive(int fd, char *at, size_t n)
{
        ssize_t got = recv(fd, at, n, MSG_WAITALL);
        check(got >= 0, "receiving");
        return (size_t)got == n;
}

static void serve(int fd)
{
        char request[REQUEST], answer[ANSWER] = { 0 };

        while (receive(fd, request, sizeof(request)))
                check(send(fd, answer, sizeof(answer), MSG_NOSIGNAL) == sizeof(answer),
                      "answering");
        _exit(0);
}

static uint64_t now(void)
{
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static int by_size(const void *a, const void *b)
{
        uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
        return x < y ? -1 : x > y;
}

int main(int argc, char **argv)
{
        bool local = argc > 1 && strcmp(argv[1], "--unix") == 0;
        long count = argc > 1 + local ? atol(argv[1 + local]) : 4000;
        char request[REQUEST] = { 0 }, answer[ANSWER];
        uint64_t *took = calloc((size_t)(count > 0 ? count : 1), sizeof(*took)), all = 0;
        int end[2];

        if (count <= 0 || !took) {
                fputs("usage: exchange [--unix] [COUNT]\n", stderr);
                return 2;
        }
        if (local)
                check(socketpair(AF_UNIX, SOCK_STREAM, 0, end) == 0, "a pair of sockets");
        else
                tcp_pair(end);
        pid_t server = fork();
        check(server >= 0, "fork");
        if (server == 0) {
                close(end[0]);
                serve(end[1]);
        }
        close(end[1]);
        for (long i = 0; i < count; i++) {
                uint64_t begin = now();
                check(send(end[0], request, sizeof(request), MSG_NOSIGNAL) == sizeof(request) &&
                              receive(end[0], answer, sizeof(answer)),
                      "an exchange");
                all += took[i] = now() - begin;
        }
        qsort(took, (size_t)count, sizeof(*took), by_size);
        printf("latency_p50 %llu\nlatency_p99 %llu\nexchanges_per_s %.1f\n",
               (unsigned long long)took[count / 2], (unsigned long long)took[count * 99 / 100],
               (double)count * 1e9 / (double)all);
        return 0;
}
