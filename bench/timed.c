/*
 * timed FILE COMMAND [ARGUMENT...]: runs COMMAND and appends `wall_ns N` and `cpu_us N` (user and
 * system time of it and of what it waited for) to FILE. Status: COMMAND's.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <spawn.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>

extern char **environ;

static uint64_t now_ns(void)
{
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

int main(int argc, char **argv)
{
        struct rusage r;
        pid_t pid;
        int status;

        if (argc < 3) {
                fprintf(stderr, "usage: timed FILE COMMAND [ARGUMENT...]\n");
                return 125;
        }
        uint64_t begin = now_ns();
        int err = posix_spawnp(&pid, argv[2], NULL, NULL, argv + 2, environ);
        if (err) {
                fprintf(stderr, "timed: %s: %s\n", argv[2], strerror(err));
                return 127;
        }
        while (wait4(pid, &status, 0, &r) < 0)
                if (errno != EINTR)
                        return 125;
        uint64_t wall = now_ns() - begin;

        FILE *f = fopen(argv[1], "a");
        if (!f) {
                perror(argv[1]);
                return 125;
        }
        fprintf(f, "wall_ns %lu\ncpu_us %lu\n", wall,
                (uint64_t)(r.ru_utime.tv_sec + r.ru_stime.tv_sec) * 1000000 +
                        (uint64_t)(r.ru_utime.tv_usec + r.ru_stime.tv_usec));
        fclose(f);
        return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
