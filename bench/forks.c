/*
 * What fork, the exit of the child and wait cost a program of that size.
 *
 *   forks MB COUNT [WRITE]
 *
 * WRITE: MB of it are written to between two forks (default 0: only what the parent touches by
 * itself). Prints fork_p50 and fork_p99 in ns, and cpu_ns: what both processes ran for one fork,
 * the writing included.
 */
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include "samples.h"

#define MEBIBYTE (1ul << 20)

static uint64_t ran_ns(void)
{
        uint64_t us = 0;

        for (int who = RUSAGE_CHILDREN; who <= RUSAGE_SELF; who++) {
                struct rusage r;
                getrusage(who, &r);
                us += (uint64_t)(r.ru_utime.tv_sec + r.ru_stime.tv_sec) * 1000000 +
                      (uint64_t)(r.ru_utime.tv_usec + r.ru_stime.tv_usec);
        }
        return us * 1000;
}

int main(int argc, char **argv)
{
        size_t size = argc > 2 ? (size_t)atoi(argv[1]) * MEBIBYTE : 0,
               again = argc > 3 ? (size_t)atoi(argv[3]) * MEBIBYTE : 0;
        unsigned count = argc > 2 ? (unsigned)atoi(argv[2]) : 0;
        struct samples s;

        if (!size || again > size || !samples_init(&s, count)) {
                fputs("usage: forks MB COUNT [WRITE]\n", stderr);
                return 2;
        }
        char *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p == MAP_FAILED) {
                perror("mmap");
                return 1;
        }
        for (size_t i = 0; i < size; i += 4096)
                p[i] = 1;
        uint64_t ran = ran_ns();
        for (unsigned k = 0; k < count; k++) {
                for (size_t i = 0; i < again; i += 4096)
                        p[i] = (char)k;
                uint64_t begin = samples_now();
                pid_t pid = fork();
                if (pid == 0)
                        _exit(0);
                int status;
                if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0) {
                        perror("fork");
                        return 1;
                }
                samples_add(&s, samples_now() - begin);
        }
        samples_print(&s, "fork");
        printf("cpu_ns %llu\n", (unsigned long long)((ran_ns() - ran) / count));
        return 0;
}
