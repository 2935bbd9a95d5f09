/*
 * A memory node that answers late: system calls that use its pages meanwhile cost no processor
 * time, and nothing is lost.
 *
 * usage: t_outage writes SECONDS PAGES    the node delays each write for so long; PAGES: nearly the
 *                                         cache
 *        t_outage reads SECONDS PAGES     the node delays each read; PAGES: twice the cache
 *        t_outage populate SECONDS PAGES  one call brings all pages: no other takes so long
 *        t_outage exit SECONDS PAGES      the program ends with 7 meanwhile
 * Prints its measurements on standard error.
 */
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include "t_memory.h"

#ifndef MLOCK_ONFAULT
#define MLOCK_ONFAULT 1
#endif

static double seconds;
static uint64_t pages;
static char *p;

static double seconds_of(struct timeval t) { return (double)t.tv_sec + (double)t.tv_usec / 1e6; }

/* Of all of this process's threads. */
static double cpu_time(void)
{
        struct rusage u;
        CHECK(getrusage(RUSAGE_SELF, &u) == 0);
        return seconds_of(u.ru_utime) + seconds_of(u.ru_stime);
}

static double now(void)
{
        struct timespec t;
        CHECK(clock_gettime(CLOCK_MONOTONIC, &t) == 0);
        return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void pass(double s)
{
        const struct timespec t = { (time_t)s, (long)((s - (double)(time_t)s) * 1e9) };
        nanosleep(&t, NULL);
}

static bool resident(char *at)
{
        unsigned char here;
        CHECK(mincore(at, PG, &here) == 0);
        return here & 1;
}

/* --- writes that are held back: many pages are resident and on their way to the node --- */

static void calls(int fd, uint64_t version)
{
        uint64_t word;
        CHECK(mprotect(p, pages * PG, PROT_READ) == 0);
        CHECK(mprotect(p, pages * PG, PROT_NONE) == 0);
        CHECK(mprotect(p, pages * PG, RW) == 0);
        CHECK(syscall(SYS_mlock2, p, pages / 4 * PG, MLOCK_ONFAULT) == 0);
        CHECK(munlock(p, pages / 4 * PG) == 0);
        CHECK(madvise(p, pages * PG, MADV_COLD) == 0);
        for (uint64_t i = 0; i < pages; i++) {
                if (!resident(p + i * PG))
                        continue; /* it would need a frame, and that is something to wait for */
                CHECK(pwrite(fd, p + i * PG, sizeof(word), (off_t)(i * sizeof(word))) ==
                      sizeof(word));
                CHECK(pread(fd, p + i * PG, sizeof(word), (off_t)(i * sizeof(word))) ==
                      sizeof(word));
        }
        verify("after the calls", p, 0, 1, version);
}

static int writes_test(void)
{
        FILE *file = tmpfile();
        double cpu = 0, wall = 0;

        CHECK(file);
        for (uint64_t round = 1; round <= 2; round++) {
                fill(p, 0, pages, round);
                pass(0.5);
                double t = now(), c = cpu_time();
                calls(fileno(file), round);
                wall += now() - t;
                cpu += cpu_time() - c;
                verify("at the end", p, 0, pages, round);
        }
        fprintf(stderr, "the calls took %.3f s of the clock, %.3f s of processor time\n", wall,
                cpu);
        /*
         * They did not wait for the node, or slept while they waited. (Emulated, they compute
         * long.)
         */
        CHECK(wall < seconds || cpu < seconds / 4);
        puts("writes: ok");
        return 0;
}

/*
 * --- reads that are held back: one thread waits for a page, one for that page's entry, and main
 * for the lock that the second has ---
 */

static char *page;

static void *touch(void *arg)
{
        (void)arg;
        verify("touched", page, (uint64_t)(page - p) / PG, 1, 1);
        return NULL;
}

static void *protect(void *arg)
{
        (void)arg;
        CHECK(mprotect(page, PG, PROT_READ) == 0);
        return NULL;
}

/* True if it did wait. */
static bool wait_for_lock(void)
{
        pthread_t toucher, protecter;

        CHECK(pthread_create(&toucher, NULL, touch, NULL) == 0);
        pass(seconds / 8);
        CHECK(pthread_create(&protecter, NULL, protect, NULL) == 0);
        pass(seconds / 8);
        double t = now(), c = cpu_time();
        CHECK(munmap(map_pages(1, RW, MAP_PRIVATE), PG) == 0);
        double wall = now() - t, cpu = cpu_time() - c;
        CHECK(pthread_join(toucher, NULL) == 0 && pthread_join(protecter, NULL) == 0);
        fprintf(stderr, "mmap took %.3f s of the clock, %.3f s of processor time\n", wall, cpu);
        CHECK(cpu < seconds / 8);
        return wall > seconds / 2;
}

static int reads_test(void)
{
        bool waited = false;

        fill(p, 0, pages, 1);
        for (uint64_t i = 0; i < pages && !waited; i += 16) {
                page = p + i * PG;
                if (!resident(page))
                        waited = wait_for_lock();
        }
        CHECK(waited);
        puts("reads: ok");
        return 0;
}

/* --- a call that brings many pages: signals wait for its end, the program's end does not --- */

static volatile sig_atomic_t handled;

static void handle(int sig) { handled += sig == SIGALRM; }

static void *populate(void *arg)
{
        double t = now();

        CHECK(madvise(p, pages * PG, 22 /* MADV_POPULATE_READ */) == 0);
        fprintf(stderr, "all pages came in %.1f s\n", now() - t);
        return arg;
}

static int populate_test(void)
{
        const struct sigaction a = { .sa_handler = handle };

        fill(p, 0, pages, 1);
        CHECK(sigaction(SIGALRM, &a, NULL) == 0);
        alarm(1);
        populate(NULL);
        CHECK(handled == 1);
        verify("populated", p, 0, 16, 1);
        puts("populate: ok");
        return 0;
}

static int exit_test(void)
{
        pthread_t id;
        double t;

        fill(p, 0, pages, 1);
        CHECK(pthread_create(&id, NULL, populate, NULL) == 0);
        pass(1);
        t = now();
        pid_t pid = fork();
        if (pid == 0)
                _exit(0);
        CHECK(pid > 0 && waitpid(pid, NULL, 0) == pid);
        fprintf(stderr, "a child came and went in %.1f s\n", now() - t);
        puts("exit: ok");
        exit(7);
}

int main(int argc, char **argv)
{
        if (argc != 4)
                return 2;
        seconds = strtod(argv[2], NULL);
        pages = strtoul(argv[3], NULL, 0);
        p = map_pages(pages, RW, MAP_PRIVATE);
        if (strcmp(argv[1], "populate") == 0)
                return populate_test();
        if (strcmp(argv[1], "exit") == 0)
                return exit_test();
        return strcmp(argv[1], "writes") == 0 ? writes_test() : reads_test();
}
