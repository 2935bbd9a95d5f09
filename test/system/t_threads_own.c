/*
 * t_threads: the attributes that each thread has of its own.
 */
#include <fcntl.h>
#include <fenv.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include "t_threads.h"

static __thread int mine = 7;
static __thread char zeros[9000];
static pthread_barrier_t meet;

static void *has_variables(void *arg)
{
        int *before = &mine;

        CHECK(mine == 7);
        for (size_t i = 0; i < sizeof(zeros); i++)
                if (zeros[i])
                        return (void *)1;
        mine = (int)(intptr_t)arg;
        zeros[8999] = (char)(intptr_t)arg;
        pthread_barrier_wait(&meet);
        sched_yield();
        pthread_barrier_wait(&meet);
        CHECK(mine == (int)(intptr_t)arg && zeros[8999] == (char)(intptr_t)arg && before == &mine);
        return NULL;
}

static void variables(void)
{
        pthread_t id[8];

        pthread_barrier_init(&meet, NULL, 8);
        for (intptr_t i = 0; i < 8; i++)
                id[i] = start(has_variables, (void *)(i + 100));
        for (int i = 0; i < 8; i++)
                CHECK(finish(id[i]) == NULL);
        CHECK(mine == 7);
        pthread_barrier_destroy(&meet);
}

static void *fails_in_its_way(void *way)
{
        for (int i = 0; i < 300; i++)
                if (way) {
                        CHECK(close(-1) == -1 && errno == EBADF);
                } else {
                        CHECK(access("/no such file", F_OK) == -1 && errno == ENOENT);
                }
        return NULL;
}

static void error_numbers(void)
{
        pthread_t a = start(fails_in_its_way, NULL), b = start(fails_in_its_way, (void *)1);

        errno = EXDEV;
        finish(a);
        finish(b);
        CHECK(errno == EXDEV);
}

/* ---- floating point ---- */

static void *rounds(void *arg)
{
        unsigned csr = __builtin_ia32_stmxcsr();
        volatile float third = 1.0f, three = 3.0f;

        CHECK(fegetround() == (int)(intptr_t)arg);
        CHECK((csr & 0x6000) >> 3 == (unsigned)(intptr_t)arg);
        third /= three;
        CHECK((third > 1.0 / 3) == ((int)(intptr_t)arg != FE_DOWNWARD));
        fesetround(FE_TOWARDZERO);
        return NULL;
}

static void rounding(void)
{
        const int ways[] = { FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TONEAREST };

        for (int i = 0; i < 4; i++) {
                fesetround(ways[i]);
                finish(start(rounds, (void *)(intptr_t)ways[i]));
                CHECK(fegetround() == ways[i]);
        }
}

/* Each thread's vector registers are its own, over faults and switches. */
static void *computes(void *arg)
{
        double x = (double)(intptr_t)arg, sum = 0, again = 0;

        for (int i = 1; i <= 60000; i++) {
                sum += x / i;
                if (i % 6000 == 0)
                        sched_yield();
        }
        for (int i = 1; i <= 60000; i++)
                again += x / i;
        CHECK(sum == again);
        return NULL;
}

static void computing(void)
{
        pthread_t id[6];

        for (intptr_t i = 0; i < 6; i++)
                id[i] = start(computes, (void *)(i + 1));
        for (int i = 0; i < 6; i++)
                finish(id[i]);
}

/* ---- names, CPUs, accounts ---- */

static void *waits_twice(void *tid)
{
        *(pid_t *)tid = my_tid();
        pthread_barrier_wait(&meet);
        pthread_barrier_wait(&meet);
        return NULL;
}

static void names(void)
{
        char name[16], path[64], comm[32] = "";
        pid_t tid;

        pthread_barrier_init(&meet, NULL, 2);
        pthread_t id = start(waits_twice, &tid);
        pthread_barrier_wait(&meet);
        CHECK(pthread_getname_np(id, name, sizeof(name)) == 0 && strcmp(name, "t_threads") == 0);
        CHECK(pthread_setname_np(id, "a worker thread") == 0 &&
              pthread_setname_np(id, "sixteen letters!") == ERANGE);
        CHECK(pthread_getname_np(id, name, sizeof(name)) == 0 &&
              strcmp(name, "a worker thread") == 0);
        CHECK(prctl(PR_GET_NAME, name) == 0 && strcmp(name, "t_threads") == 0);
        snprintf(path, sizeof(path), "/proc/self/task/%d/comm", tid);
        FILE *f = fopen(path, "r");
        CHECK(f && fgets(comm, sizeof(comm), f) && strcmp(comm, "a worker thread\n") == 0);
        if (f)
                fclose(f);
        pthread_barrier_wait(&meet);
        finish(id);
        CHECK(pthread_setname_np(pthread_self(), "main one") == 0 &&
              prctl(PR_GET_NAME, name) == 0 && strcmp(name, "main one") == 0);
        pthread_setname_np(pthread_self(), "t_threads");
        pthread_barrier_destroy(&meet);
}

static void affinity(void)
{
        cpu_set_t all, one, got;
        pid_t tid;
        int cpu = 0;

        CHECK(sched_getaffinity(0, sizeof(all), &all) == 0);
        while (!CPU_ISSET(cpu, &all))
                cpu++;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        pthread_barrier_init(&meet, NULL, 2);
        pthread_t id = start(waits_twice, &tid);
        pthread_barrier_wait(&meet);
        CHECK(pthread_setaffinity_np(id, sizeof(one), &one) == 0);
        CHECK(pthread_getaffinity_np(id, sizeof(got), &got) == 0 && CPU_EQUAL(&got, &one));
        CHECK(sched_getaffinity(tid, sizeof(got), &got) == 0 && CPU_EQUAL(&got, &one));
        CHECK(sched_getaffinity(0, sizeof(got), &got) == 0 && CPU_EQUAL(&got, &all));
        errno = 0;
        int before = getpriority(PRIO_PROCESS, 0), lower = before < 15 ? before + 4 : before;
        CHECK(setpriority(PRIO_PROCESS, (id_t)tid, lower) == 0);
        CHECK(getpriority(PRIO_PROCESS, (id_t)tid) == lower &&
              getpriority(PRIO_PROCESS, 0) == before && errno == 0);
        struct sched_param p;
        int policy;
        CHECK(pthread_getschedparam(id, &policy, &p) == 0 && policy == SCHED_OTHER &&
              p.sched_priority == 0);
        pthread_barrier_wait(&meet);
        finish(id);
        pthread_barrier_destroy(&meet);
}

static int64_t cpu_ns(int who)
{
        struct rusage r;

        CHECK(getrusage(who, &r) == 0);
        return (r.ru_utime.tv_sec + r.ru_stime.tv_sec) * 1000 * MS +
               (r.ru_utime.tv_usec + r.ru_stime.tv_usec) * 1000;
}

static void *works(void *arg)
{
        int64_t end = now_ns(CLOCK_MONOTONIC) + PATIENCE;

        pthread_barrier_wait(&meet);
        while (now_ns(CLOCK_THREAD_CPUTIME_ID) < 300 * MS && now_ns(CLOCK_MONOTONIC) < end)
                for (volatile int i = 0; i < 10000; i++) { }
        CHECK(cpu_ns(RUSAGE_THREAD) >= 250 * MS);
        return arg;
}

static void accounts(void)
{
        int64_t thread, process = cpu_ns(RUSAGE_SELF), cpu = now_ns(CLOCK_PROCESS_CPUTIME_ID);

        pthread_barrier_init(&meet, NULL, 2);
        pthread_t id = start(works, NULL);
        pthread_barrier_wait(&meet);
        thread = cpu_ns(RUSAGE_THREAD);
        finish(id);
        pthread_barrier_destroy(&meet);
        CHECK(cpu_ns(RUSAGE_THREAD) - thread < 200 * MS);       /* it waited */
        CHECK(cpu_ns(RUSAGE_SELF) - process >= 250 * MS &&
              now_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu >= 250 * MS);
}

/* ---- keys, once ---- */

static pthread_key_t key;
static _Atomic int destroyed, made_once;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void destroys(void *p) { destroyed += (int)(intptr_t)p; }
static void makes_once(void) { sleep_ms(5); made_once++; }

static void *uses_keys(void *n)
{
        pthread_once(&once, makes_once);
        CHECK(made_once == 1 && pthread_getspecific(key) == NULL);
        pthread_setspecific(key, n);
        sched_yield();
        CHECK(pthread_getspecific(key) == n);
        return NULL;
}

static void keys(void)
{
        pthread_t id[10];

        CHECK(pthread_key_create(&key, destroys) == 0);
        for (intptr_t i = 0; i < 10; i++)
                id[i] = start(uses_keys, (void *)(i + 1));
        for (int i = 0; i < 10; i++)
                finish(id[i]);
        CHECK(destroyed == 55 && made_once == 1);
}

/*
 * ---- descriptors, which vmrun makes for itself as well, while threads come and files are mapped
 * ----
 */

static _Atomic bool done_mapping;

static void *works_not(void *arg) { return arg; }

/*
 * For each new thread, and each mapping of a file that is not mapped already, vmrun opens
 * something. The program itself opens nothing here.
 */
static void *maps_and_starts(void *file)
{
        for (int i = 0; i < times(1000); i++) {
                char *p = mmap(NULL, 4096, PROT_READ, MAP_SHARED, *(int *)file, 0);
                CHECK(p != MAP_FAILED && munmap(p, 4096) == 0);
                if (i % 100 == 0)
                        finish(start(works_not, NULL));
        }
        done_mapping = true;
        return NULL;
}

/* Numbers that vmrun does not use are the program's to close, and to put something at. */
static void descriptor_numbers(void)
{
        int null = open("/dev/null", O_WRONLY | O_CLOEXEC), file = fcntl(null, F_DUPFD, null + 50);

        CHECK(null >= 0 && file >= 0 && close(file) == 0);
        int some = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
        CHECK(some >= 0 && dup2(some, file) == file && close(some) == 0);
        done_mapping = false;
        pthread_t id = start(maps_and_starts, &file);
        do {
                for (int n = null + 1; n < null + 6; n++) {
                        if (n % 2) {
                                CHECK(close(n) == -1 && errno == EBADF);
                                continue;
                        }
                        CHECK(dup2(null, n) == n);
                        CHECK(write(n, "x", 1) == 1);
                        CHECK(close(n) == 0);
                }
        } while (!done_mapping);
        finish(id);
        CHECK(close(null) == 0 && close(file) == 0);
}

/* libc has all threads change their user, by a signal of its own. */
static void *meets_twice(void *arg)
{
        pthread_barrier_wait(&meet);
        pthread_barrier_wait(&meet);
        return arg;
}

static void users(void)
{
        pthread_t id[3];

        CHECK(pthread_barrier_init(&meet, NULL, 4) == 0);
        for (int i = 0; i < 3; i++)
                id[i] = start(meets_twice, NULL);
        pthread_barrier_wait(&meet);
        CHECK(setresuid((uid_t)-1, (uid_t)-1, (uid_t)-1) == 0);         /* to what it was */
        pthread_barrier_wait(&meet);
        for (int i = 0; i < 3; i++)
                finish(id[i]);
        pthread_barrier_destroy(&meet);
}

const struct test own_tests[] = {
        { "own", "variables", variables },
        { "own", "errno", error_numbers },
        { "own", "rounding, inherited", rounding },
        { "own", "floating point", computing },
        { "own", "names", names },
        { "own", "CPUs and priority", affinity },
        { "own", "CPU time", accounts },
        { "own", "keys and once", keys },
        { "own", "numbers of descriptors", descriptor_numbers },
        { "own", "users, changed in all threads", users },
        { NULL, NULL, NULL }
};
