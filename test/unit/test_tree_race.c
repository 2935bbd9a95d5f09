/*
 * The slots that a process tree shares, with real processes on a real memory file: they take, free,
 * write, fork and are killed at random moments. The holder of a slot keeps the slot's content in
 * shared memory, so a slot handed out twice or freed under a reader shows. When all have ended, no
 * slot may be missing. In threads(), threads stand for the processes, for the thread sanitizer.
 *
 *   SEED=n SECONDS=n KILLS=n test_tree_race
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/wait.h>
#include <time.h>
#include <cmocka.h>
#include "common/clock.h"
#include "tree_actor.h"

/* ---- processes ---- */

static void run_process(struct actor *a, unsigned depth);

/* As vmrun's fork does: number, slots, fork. */
static void do_fork(struct actor *a, unsigned depth)
{
        struct tree_child c;

        if (tree_child(&a->tree, &c) != 0)
                return;
        if (tree_share(&a->tree, c.number, a->slot, a->n) != 0)
                wrong(a, "cannot be shared", a->n ? a->slot[0] : 0, 0, 0);
        atomic_fetch_add(&world->forks, 1);
        if (fork() == 0) {
                tree_be_child(&a->tree, &c);
                start(a, (uint64_t)getpid());
                run_process(a, depth + 1);
        }
        tree_child_left(&c);
}

static _Noreturn void run_process(struct actor *a, unsigned depth)
{
        for (unsigned n = 0;; n++) {
                step(a);
                if (rnd(a, 3000) == 0 && depth < 3)
                        do_fork(a, depth);
                if (rnd(a, 2000) == 0)
                        mend(&a->tree);
                if (rnd(a, depth ? 20000 : 200000) == 0)
                        _exit(0);       /* leaves all it holds */
                while (n % 1024 == 0 && waitpid(-1, NULL, WNOHANG) > 0)
                        ;
        }
}

/* Families of processes, each a process group, under a process that lives on. */
static void processes(void **state)
{
        static struct actor a;
        int64_t end = now_ms() + 1000 * (int64_t)number("SECONDS", 2);
        uint64_t seed = number("SEED", 1), kills = 0;
        enum { FAMILIES = 4 };
        pid_t family[FAMILIES] = { 0 };

        (void)state;
        begin(&a);
        while ((now_ms() < end || !kills) && !world->failures) {
                for (unsigned i = 0; i < FAMILIES; i++) {
                        if (family[i])
                                continue;
                        struct tree_child c;
                        assert_int_equal(tree_child(&a.tree, &c), 0);
                        assert_int_equal(tree_share(&a.tree, c.number, a.slot, a.n), 0);
                        pid_t pid = fork();
                        assert_true(pid >= 0);
                        if (pid == 0) {
                                setpgid(0, 0);
                                tree_be_child(&a.tree, &c);
                                start(&a, ++seed);
                                run_process(&a, 0);
                        }
                        setpgid(pid, pid);
                        seed++;
                        family[i] = pid;
                        tree_child_left(&c);
                }
                for (unsigned i = 0; i < 2000; i++)
                        step(&a);
                usleep(1000 * rnd(&a, 20));
                for (unsigned i = 0; i < FAMILIES; i++) {
                        if (rnd(&a, 2))
                                continue;
                        /* Only its first, so that its children are left behind for a moment, or the
                         * whole family. */
                        kill(rnd(&a, 2) ? family[i] : -family[i], SIGKILL);
                        kills++;
                        waitpid(family[i], NULL, 0);
                        mend(&a.tree);
                        kill(-family[i], SIGKILL);
                        family[i] = 0;
                }
                mend(&a.tree);
        }
        for (unsigned i = 0; i < FAMILIES; i++)
                if (family[i]) {
                        kill(-family[i], SIGKILL);
                        waitpid(family[i], NULL, 0);
                }
        /* Grandchildren are not ours to wait for; they are gone when their locks are. */
        for (int64_t limit = now_ms() + 5000; now_ms() < limit; usleep(2000)) {
                if (tree_alone(&a.tree))
                        break;
        }
        print_message("# %lu taken, %lu forks, %lu shared slots let go, %lu kills\n",
                      (unsigned long)world->takes, (unsigned long)world->forks,
                      (unsigned long)world->releases, (unsigned long)kills);
        count_all(&a);
        assert_true(kills > 0 && world->releases > 0);
        tree_close(&a.tree);
}

/* A process that only takes the lock. */
static pid_t locker(struct actor *a, _Atomic uint64_t *turns)
{
        pid_t pid = fork();

        if (pid)
                return pid;
        for (;; atomic_fetch_add(turns, 1)) {
                tree_lock(&a->tree);
                for (volatile unsigned i = 0; i < 2000; i++)
                        ;
                tree_unlock(&a->tree);
        }
}

/*
 * A group of processes is killed at once, among them the owner of the lock and the process that is
 * woken for it: another process, which waits with them, still gets the lock.
 */
static void killed_with_the_lock(void **state)
{
        static struct actor a;
        static _Atomic uint64_t ignored;
        _Atomic uint64_t *turns = &world->takes;
        pid_t bystander, group;

        (void)state;
        begin(&a);
        bystander = locker(&a, turns);
        for (unsigned kills = 0; kills < number("KILLS", 400); kills++) {
                group = 0;
                for (unsigned i = 0; i < 4; i++) {
                        pid_t pid = locker(&a, &ignored);
                        assert_true(pid > 0);
                        setpgid(pid, group ? group : pid);
                        group = group ? group : pid;
                }
                usleep(rnd(&a, 3000));
                kill(-group, SIGKILL);
                while (waitpid(-group, NULL, 0) > 0)
                        ;
                uint64_t before = atomic_load(turns);
                for (int64_t limit = now_ms() + 20000; atomic_load(turns) == before; usleep(100))
                        if (now_ms() > limit) {
                                kill(bystander, SIGKILL);
                                fail_msg("after %u kills no process gets the lock", kills + 1);
                        }
        }
        kill(bystander, SIGKILL);
        waitpid(bystander, NULL, 0);
        tree_close(&a.tree);
}

/* ---- threads ---- */

#define THREADS 4
static void *thread_main(void *arg)
{
        struct actor *a = arg;
        for (unsigned i = 0; i < 30000; i++)
                step(a);
        while (a->n)
                let_go(a, 0);
        return NULL;
}

static void threads(void **state)
{
        static struct actor a, t[THREADS];
        struct tree_child c[THREADS];
        pthread_t id[THREADS];

        (void)state;
        begin(&a);
        while (a.n < 500)
                take(&a);
        for (unsigned i = 0; i < THREADS; i++) {
                assert_int_equal(tree_child(&a.tree, &c[i]), 0);
                assert_int_equal(tree_share(&a.tree, c[i].number, a.slot, a.n), 0);
                t[i] = a;
                t[i].tree.self = c[i].number;
                start(&t[i], i + 10);
                assert_int_equal(pthread_create(&id[i], NULL, thread_main, &t[i]), 0);
        }
        for (unsigned i = 0; i < 10000; i++)
                step(&a);
        for (unsigned i = 0; i < THREADS; i++)
                assert_int_equal(pthread_join(id[i], NULL), 0);
        for (unsigned i = 0; i < THREADS; i++)
                tree_child_left(&c[i]);
        count_all(&a);
        tree_close(&a.tree);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(threads),
                cmocka_unit_test(processes),
                cmocka_unit_test(killed_with_the_lock),
        };
        return cmocka_run_group_tests_name("tree race", tests, setup, NULL);
}
