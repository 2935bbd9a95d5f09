/*
 * Threads: checks itself; its output is the same natively and under vmrun.
 *
 *   t_threads            all groups
 *   t_threads GROUP...   these: basic, futex, lock, own, signal, memory, vfork
 *   t_threads long ...   these groups, five times as long
 *   t_threads short ...  these groups, a third as long
 *   t_threads end N      ends in the n-th way (t_threads_ends.c), for a test of the status
 *   t_threads collide    two threads touch the same far pages at the same time
 *   t_threads limit      as many threads as there can be, where there cannot be many
 */
#include <sched.h>
#include <sys/mman.h>
#include "t_threads.h"

_Atomic int failures;
int effort = 100;

void check_failed(const char *file, int line, const char *what)
{
        int e = errno;

        failures++;
        printf("FAILED %s:%d: %s (errno %s)\n", strrchr(file, '/') ? strrchr(file, '/') + 1 : file,
               line, what, e ? strerrorname_np(e) : "0");
        fflush(stdout);
}

pthread_t start(void *(*f)(void *), void *arg)
{
        pthread_t id;
        int err = pthread_create(&id, NULL, f, arg);

        if (err) {
                printf("FAILED pthread_create: %s\n", strerrorname_np(err));
                exit(1);
        }
        return id;
}

void *finish(pthread_t id)
{
        void *ret = NULL;

        CHECK(pthread_join(id, &ret) == 0);
        return ret;
}

int64_t now_ns(clockid_t clock)
{
        struct timespec t;

        clock_gettime(clock, &t);
        return t.tv_sec * 1000 * MS + t.tv_nsec;
}

static char state_of(pid_t tid)
{
        char path[64], text[512], *p;
        FILE *f;
        size_t n;

        snprintf(path, sizeof(path), "/proc/self/task/%d/stat", tid);
        f = fopen(path, "r");
        if (!f)
                return 0;
        n = fread(text, 1, sizeof(text) - 1, f);
        fclose(f);
        text[n] = 0;
        p = strrchr(text, ')');
        return p ? p[2] : 0;
}

bool falls_asleep(pid_t tid)
{
        int64_t end = now_ns(CLOCK_MONOTONIC) + PATIENCE;

        /* A thread may also wait for a page: so it is looked at many times. */
        for (int in_a_row = 0; in_a_row < 20; sleep_ms(1)) {
                in_a_row = state_of(tid) == 'S' ? in_a_row + 1 : 0;
                if (now_ns(CLOCK_MONOTONIC) > end)
                        return false;
        }
        return true;
}

/* ---- where there cannot be many ---- */

static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;

static void *waits_at_the_gate(void *arg)
{
        pthread_mutex_lock(&gate);
        pthread_mutex_unlock(&gate);
        return arg;
}

/* Makes threads until there can be no more, and again once they are gone. */
#define COLLIDE_PAGES 1024
static char *collide_at;
static _Atomic unsigned collide_step;

/* Each waits for the other before each page. */
static void *collide_thread(void *arg)
{
        uint64_t sum = 0;

        (void)arg;
        for (unsigned i = 0; i < 2 * COLLIDE_PAGES; i++) {
                atomic_fetch_add(&collide_step, 1);
                for (unsigned spins = 0; atomic_load(&collide_step) < 2 * (i + 1); spins++)
                        if (spins > 20000)
                                sched_yield();
                sum += *(volatile uint64_t *)(collide_at + i % COLLIDE_PAGES * 4096ul);
        }
        return (void *)sum;
}

static int collide(void)
{
        uint64_t sum = 0;

        collide_at = mmap(NULL, COLLIDE_PAGES * 4096ul, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(collide_at != MAP_FAILED);
        for (uint64_t i = 0; i < COLLIDE_PAGES; i++)
                sum += *(uint64_t *)(collide_at + i * 4096) = i * i;
        pthread_t a = start(collide_thread, NULL), b = start(collide_thread, NULL);
        CHECK((uint64_t)finish(a) == 2 * sum);
        CHECK((uint64_t)finish(b) == 2 * sum);
        if (!failures)
                printf("collide: ok\n");
        return failures;
}

static int limit(void)
{
        enum { MOST = 1000 };
        static pthread_t id[MOST];
        int n[2] = { 0, 0 }, err = 0;

        for (int turn = 0; turn < 2; turn++) {
                pthread_mutex_lock(&gate);
                while (n[turn] < MOST &&
                       (err = pthread_create(&id[n[turn]], NULL, waits_at_the_gate, NULL)) == 0)
                        n[turn]++;
                pthread_mutex_unlock(&gate);
                for (int i = 0; i < n[turn]; i++)
                        finish(id[i]);
                if (n[turn] == MOST || err != EAGAIN)
                        break;
        }
        if (n[0] > 0 && n[0] == n[1] && failures == 0)
                printf("limit: ok, then EAGAIN\n");
        else
                printf("FAILED limit: %d and %d threads, %s\n", n[0], n[1],
                       err ? strerrorname_np(err) : "no error");
        return failures != 0;
}

static bool wanted(const char *group, int argc, char **argv)
{
        for (int i = 1; i < argc; i++)
                if (strcmp(argv[i], group) == 0)
                        return true;
        return argc < 2;
}

int main(int argc, char **argv)
{
        const struct test *const groups[] = {
                basic_tests,  futex_tests,  lock_tests,  own_tests,
                signal_tests, memory_tests, vfork_tests,
        };
        int ran = 0;

        setvbuf(stdout, NULL, _IOLBF, 0);
        bool is_long = argc > 1 && strcmp(argv[1], "long") == 0;
        if (is_long || (argc > 1 && strcmp(argv[1], "short") == 0)) {
                effort = is_long ? 500 : 30;
                argc--;
                argv++;
        }
        if (argc == 3 && strcmp(argv[1], "end") == 0) {
                end_in_way(atoi(argv[2]));
                printf("FAILED: the end did not come\n");
                return 99;
        }
        if (argc == 2 && strcmp(argv[1], "collide") == 0)
                return collide();
        if (argc == 2 && strcmp(argv[1], "limit") == 0)
                return limit();
        for (size_t g = 0; g < sizeof(groups) / sizeof(groups[0]); g++)
                for (const struct test *t = groups[g]; t->name && wanted(t->group, argc, argv);
                     t++) {
                        int before = failures;
                        printf("%s: %s\n", t->group, t->name);
                        t->run();
                        if (failures == before)
                                printf("ok %d\n", ++ran);
                        else
                                printf("not ok %d\n", ++ran);
                }
        if (!ran)
                printf("FAILED: no such group\n");
        return failures || !ran;
}
