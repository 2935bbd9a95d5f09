/*
 * A thread of the program begins that has a low policy, few CPUs or a high policy, and is the first
 * that needs more memory than the cache has.
 *
 * usage: t_sched KIND MIB            prints "ready" and ends when standard input does
 *        t_sched KIND MIB ACCESSES   then another thread accesses MIB at random, ACCESSES times,
 *                                    beside a thread for each CPU that computes; prints the
 *                                    milliseconds
 *
 * KIND: other, idle, batch, nice, pinned, fifo: of the beginner; widened: it has all CPUs;
 * narrowed: it has all CPUs, and then its own again.  With "-fork" behind it a child does all this,
 * with "-main" the first thread is the beginner.  Status 77: not permitted.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include "t_memory.h"

#define COMPUTE_MOST 64

static const char *kind;
static uint64_t pages, accesses;
static volatile char *memory;

static bool is(const char *name) { return strncmp(kind, name, strlen(name)) == 0; }

static void pin(void)
{
        cpu_set_t all, one;
        int cpu = 0;

        CHECK(sched_getaffinity(0, sizeof(all), &all) == 0);
        while (!CPU_ISSET(cpu, &all))
                cpu++;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        CHECK(sched_setaffinity(0, sizeof(one), &one) == 0);
}

static void widen(bool back)
{
        cpu_set_t before, all;

        CHECK(sched_getaffinity(0, sizeof(before), &before) == 0);
        memset(&all, 0xff, sizeof(all));
        CHECK(sched_setaffinity(0, sizeof(all), &all) == 0);
        CHECK(!back || sched_setaffinity(0, sizeof(before), &before) == 0);
}

static void change(void)
{
        const struct sched_param none = { 0 }, least = { .sched_priority = 1 };
        int err = is("idle")    ? sched_setscheduler(0, SCHED_IDLE, &none)
                  : is("batch") ? sched_setscheduler(0, SCHED_BATCH, &none)
                  : is("fifo")  ? sched_setscheduler(0, SCHED_FIFO, &least)
                  : is("nice")  ? setpriority(PRIO_PROCESS, 0, 19)
                                : 0;

        if (err)
                exit(77);
        if (is("pinned"))
                pin();
        if (is("widened") || is("narrowed"))
                widen(is("narrowed"));
}

static void *touch(void *arg)
{
        for (uint64_t i = 0; i < pages; i++)
                memory[i * PG]++;
        return arg;
}

static atomic_bool over;

static void *compute(void *arg)
{
        while (!atomic_load_explicit(&over, memory_order_relaxed))
                for (volatile int i = 0; i < 1000; i++) { }
        return arg;
}

static void *access_at_random(void *arg)
{
        uint64_t x = 1;

        for (uint64_t i = 0; i < accesses; i++) {
                x = x * 6364136223846793005 + 1442695040888963407;
                memory[(x >> 33) % pages * PG]++;
        }
        return arg;
}

static pthread_t start(void *(*f)(void *))
{
        pthread_t id;

        CHECK(pthread_create(&id, NULL, f, NULL) == 0);
        return id;
}

static void finish(pthread_t id) { CHECK(pthread_join(id, NULL) == 0); }

static void wait_for_end(void)
{
        char c;

        printf("ready %d\n", (int)getpid());
        fflush(stdout);
        while (read(0, &c, 1) > 0)
                ;
}

static void measure(void)
{
        struct timespec a, b;
        pthread_t id[COMPUTE_MOST];
        cpu_set_t cpus;

        CHECK(sched_getaffinity(0, sizeof(cpus), &cpus) == 0);
        const int n = CPU_COUNT(&cpus) < COMPUTE_MOST ? CPU_COUNT(&cpus) : COMPUTE_MOST;
        for (int i = 0; i < n; i++)
                id[i] = start(compute);
        clock_gettime(CLOCK_MONOTONIC, &a);
        finish(start(access_at_random));
        clock_gettime(CLOCK_MONOTONIC, &b);
        atomic_store(&over, true);
        for (int i = 0; i < n; i++)
                finish(id[i]);
        printf("%ld\n", (b.tv_sec - a.tv_sec) * 1000 + (b.tv_nsec - a.tv_nsec) / 1000000);
}

static void go_on(void)
{
        if (accesses)
                measure();
        else
                wait_for_end();
}

static void *begin(void *arg)
{
        int status = 0;

        change();
        if (strstr(kind, "-fork")) {
                pid_t pid = fork();
                if (pid == 0) {
                        touch(NULL);
                        go_on();
                        exit(0);
                }
                CHECK(waitpid(pid, &status, 0) == pid && status == 0);
        } else {
                touch(NULL);
        }
        return arg;
}

int main(int argc, char **argv)
{
        CHECK(argc >= 3);
        kind = argv[1];
        pages = strtoul(argv[2], NULL, 0) << 8;
        accesses = argc > 3 ? strtoul(argv[3], NULL, 0) : 0;
        memory = mmap(NULL, pages * PG, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(memory != MAP_FAILED);
        if (strstr(kind, "-main"))
                begin(NULL);
        else
                finish(start(begin));
        if (!strstr(kind, "-fork"))
                go_on();
        return 0;
}
