/*
 * The slots that a process tree shares, with real processes on a real memory file: they take, free, write, fork and are killed at random
 * moments.  Every slot's content is kept in shared memory by who holds it, so a slot handed out twice or freed under a reader shows; and
 * when all are gone, none may be missing.  The same with threads in place of processes, for the thread sanitizer.
 *
 *   SEED=n SECONDS=n test_tree_race
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>
#include "far/tree.h"
#include "pager/pager.h"
#include "pager/slotmap.h"

#define SLABS 3
#define PAGES 1300                      /* of each: two chunks and a half */
#define SLOTS (SLABS * PAGES)
#define HELD  1000                      /* by one process */

/* What the slots hold: by who wrote it, so that each is told apart. */
struct world {
        _Atomic uint64_t content[SLOTS];
        _Atomic uint64_t stamp;
        _Atomic uint64_t takes, releases, forks, failures;
        char text[200];
};
static struct world *world;
static struct slab slabs[SLABS];

static unsigned index_of(uint64_t slot) { return slot_slab(slot) * PAGES + slot_page(slot); }

_Noreturn void die_(int status, const char *fmt, ...)
{
        va_list ap;
        va_start(ap, fmt);
        vfprintf(stderr, fmt, ap);
        va_end(ap);
        fputc('\n', stderr);
        _exit(status);
}

_Noreturn void env_bug(const char *what, uint64_t a, uint64_t b)
{
        atomic_fetch_add(&world->failures, 1);
        snprintf(world->text, sizeof(world->text), "env_bug: %s: %#lx %#lx", what, (unsigned long)a, (unsigned long)b);
        _exit(3);
}

/* ---- one process, or one thread ---- */

struct actor {
        struct tree tree;
        struct slotmap map;
        unsigned n;
        uint64_t slot[HELD], expect[HELD];
        uint64_t random;
};

static uint32_t rnd(struct actor *a, uint32_t n)
{
        a->random ^= a->random >> 12;
        a->random ^= a->random << 25;
        a->random ^= a->random >> 27;
        return (uint32_t)((a->random * 0x2545f4914f6cdd1dull >> 32) * n >> 32);
}

static void wrong(struct actor *a, const char *what, uint64_t slot, uint64_t is, uint64_t expect)
{
        if (atomic_fetch_add(&world->failures, 1) == 0)
                snprintf(world->text, sizeof(world->text), "process %u: slot %#lx %s: %#lx, not %#lx", a->map.self, (unsigned long)slot, what,
                         (unsigned long)is, (unsigned long)expect);
}

/* Relaxed: the order comes from the code under test alone. */
static void check(struct actor *a, unsigned i)
{
        uint64_t is = atomic_load_explicit(&world->content[index_of(a->slot[i])], memory_order_relaxed);
        if (is != a->expect[i])
                wrong(a, "changed under its holder", a->slot[i], is, a->expect[i]);
}

static void write_slot(struct actor *a, unsigned i)
{
        a->expect[i] = atomic_fetch_add_explicit(&world->stamp, 1, memory_order_relaxed) << 10 | a->map.self;
        atomic_store_explicit(&world->content[index_of(a->slot[i])], a->expect[i], memory_order_relaxed);
}

static void take(struct actor *a)
{
        if (a->n == HELD)
                return;
        uint64_t slot = slotmap_take(&a->map, rnd(a, 4) == 0);
        if (slot == SLOT_NONE)
                return;
        atomic_fetch_add(&world->takes, 1);
        a->slot[a->n] = slot;
        write_slot(a, a->n++);
}

static void let_go(struct actor *a, unsigned i)
{
        uint64_t slot = a->slot[i];
        check(a, i);
        a->n--;
        a->slot[i] = a->slot[a->n];
        a->expect[i] = a->expect[a->n];
        if (slotmap_put(&a->map, slot))
                return;
        atomic_fetch_add(&world->releases, 1);
        if (tree_release(&a->tree, &slot, 1) != 0)
                wrong(a, "cannot be let go of", slot, 0, 0);
}

static void step(struct actor *a)
{
        unsigned i = a->n ? rnd(a, a->n) : 0;

        switch (rnd(a, 8)) {
        case 0: case 1: case 2: case 3:
                take(a);
                break;
        case 4: case 5:
                if (a->n)
                        let_go(a, i);
                break;
        case 6:
                if (a->n)
                        check(a, i);
                break;
        case 7:
                if (a->n && slotmap_writable(&a->map, a->slot[i])) {
                        write_slot(a, i);
                } else if (a->n && a->n < HELD) {       /* written back elsewhere */
                        take(a);
                        let_go(a, i);
                }
        }
}

static void start(struct actor *a, uint64_t seed)
{
        slotmap_init(&a->map, a->tree.units, slabs, a->tree.self);
        a->map.nslabs = SLABS;
        a->random = seed * 0x9e3779b97f4a7c15ull | 1;
}

static void mend(struct tree *t)
{
        tree_lock(t);
        tree_mend_locked(t);
        tree_unlock(t);
}

/* ---- processes ---- */

static void run_process(struct actor *a, unsigned depth);

/* As vmrun's fork will: number, slots, fork; the child comes up, then the parent lets it be. */
static void do_fork(struct actor *a, unsigned depth)
{
        struct tree_child c;
        int up[2];

        if (tree_child(&a->tree, &c) != 0)
                return;
        if (tree_share(&a->tree, c.number, a->slot, a->n) != 0)
                wrong(a, "cannot be shared", a->n ? a->slot[0] : 0, 0, 0);
        atomic_fetch_add(&world->forks, 1);
        if (pipe(up) != 0)
                _exit(4);
        pid_t pid = fork();
        if (pid == 0) {
                if (tree_be_child(&a->tree, &c) != 0)
                        _exit(0);       /* the parent died first */
                close(up[0]);
                close(up[1]);
                start(a, (uint64_t)getpid());
                run_process(a, depth + 1);
        }
        close(up[1]);
        char byte;
        while (pid > 0 && read(up[0], &byte, 1) < 0 && errno == EINTR)
                ;
        close(up[0]);
        tree_child_left(&a->tree, &c);
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

static uint64_t number(const char *name, uint64_t otherwise)
{
        const char *text = getenv(name);
        return text ? strtoull(text, NULL, 0) : otherwise;
}

static int64_t now_ms(void)
{
        struct timespec ts;
        clock_gettime(CLOCK_MONOTONIC, &ts);
        return ts.tv_sec * 1000ll + ts.tv_nsec / 1000000;
}

static void begin(struct actor *a)
{
        char why[256];

        memset(world, 0, sizeof(*world));
        if (tree_make(&a->tree, SLABS, NULL, 0, why, sizeof(why)) != 0)
                fail_msg("%s", why);
        a->tree.head->nnodes = 1;
        for (uint32_t i = 0; i < SLABS; i++) {
                slabs[i] = (struct slab){ .kind = SLAB_MEMORY, .pages = PAGES };
                a->tree.head->slab[i] = (struct tree_slab){ .kind = SLAB_MEMORY, .pages = PAGES };
        }
        a->tree.head->nslabs = SLABS;
        assert_int_equal(tree_join(&a->tree), 0);
        start(a, number("SEED", 1));
}

/* Nobody else is left: every slot that is not ours is free, and the records are. */
static void count_all(struct actor *a)
{
        tree_lock(&a->tree);
        tree_mend_locked(&a->tree);
        assert_true(tree_alone_locked(&a->tree));
        tree_unlock(&a->tree);
        while (a->n)
                let_go(a, 0);
        if (world->failures)
                fail_msg("%s (and %lu more)", world->text, (unsigned long)world->failures - 1);
        for (uint32_t i = 0; i < SLABS; i++)
                for (uint32_t p = 0; p < PAGES; p++)
                        if (tree_map(a->tree.units, i)->word[p] != SLOT_FREE)
                                fail_msg("slot %u of slab %u leaked: word %#x", p, i, tree_map(a->tree.units, i)->word[p]);
        for (unsigned n = 0; n < SLOTS; n++)
                assert_true(slotmap_take(&a->map, true) != SLOT_NONE);
        assert_true(slotmap_take(&a->map, true) == SLOT_NONE);
        assert_int_equal(slotmap_held(&a->map), SLOTS);
        assert_int_equal(slotmap_in_use(&a->map), SLOTS);
}

/* Families of processes, each a process group, under one that lives on. */
static void processes(void **state)
{
        static struct actor a;
        int64_t end = now_ms() + 1000 * (int64_t)number("SECONDS", 2);
        uint64_t seed = number("SEED", 1), kills = 0;
        enum { FAMILIES = 4 };
        pid_t family[FAMILIES] = { 0 };

        (void)state;
        begin(&a);
        while (now_ms() < end && !world->failures) {
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
                                if (tree_be_child(&a.tree, &c) != 0)
                                        _exit(5);
                                start(&a, ++seed);
                                run_process(&a, 0);
                        }
                        setpgid(pid, pid);
                        seed++;
                        family[i] = pid;
                        while (a.tree.head->record[c.number].pid == 0 && waitpid(pid, NULL, WNOHANG) == 0)
                                usleep(100);
                        tree_child_left(&a.tree, &c);
                }
                for (unsigned i = 0; i < 2000; i++)
                        step(&a);
                usleep(1000 * rnd(&a, 20));
                for (unsigned i = 0; i < FAMILIES; i++) {
                        if (rnd(&a, 2))
                                continue;
                        /* Only its first, so that its children are left behind for a moment, or the whole family. */
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
                tree_lock(&a.tree);
                tree_mend_locked(&a.tree);
                bool alone = tree_alone_locked(&a.tree);
                tree_unlock(&a.tree);
                if (alone)
                        break;
        }
        print_message("# %lu taken, %lu forks, %lu shared slots let go, %lu kills\n", (unsigned long)world->takes, (unsigned long)world->forks,
                      (unsigned long)world->releases, (unsigned long)kills);
        count_all(&a);
        assert_true(kills > 0 && world->releases > 0);
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
        pthread_t id[THREADS];

        (void)state;
        begin(&a);
        while (a.n < 500)
                take(&a);
        for (unsigned i = 0; i < THREADS; i++) {
                struct tree_child c;
                assert_int_equal(tree_child(&a.tree, &c), 0);
                assert_int_equal(tree_share(&a.tree, c.number, a.slot, a.n), 0);
                t[i] = a;
                t[i].tree.self = c.number;
                start(&t[i], i + 10);
                assert_int_equal(pthread_create(&id[i], NULL, thread_main, &t[i]), 0);
        }
        for (unsigned i = 0; i < 10000; i++)
                step(&a);
        for (unsigned i = 0; i < THREADS; i++)
                assert_int_equal(pthread_join(id[i], NULL), 0);
        for (unsigned i = 0; i < THREADS; i++)
                tree_child_left(&a.tree, &(struct tree_child){ .number = t[i].tree.self });
        /* In one process, a lock tells nothing about threads. */
        for (unsigned i = 0; i < THREADS; i++) {
                tree_bury(&a.tree, t[i].tree.self);
                a.tree.head->record[t[i].tree.self].state = RECORD_FREE;
        }
        count_all(&a);
        tree_close(&a.tree);
}

/* ---- lives and the lock ---- */

/* Who dies with the lock leaves it to the next, and what it had not published counts for nothing. */
static void dead_owner(void **state)
{
        static struct actor a;

        (void)state;
        begin(&a);
        a.tree.head->node[0] = (struct tree_node){ .pages = 100000, .leased = SLOTS, .slabs = SLABS };
        pid_t pid = fork();
        if (pid == 0) {
                tree_lock(&a.tree);
                a.tree.head->node[0].leased += 4096;
                a.tree.head->slab[SLABS] = (struct tree_slab){ .pages = 4096 };
                kill(getpid(), SIGKILL);
        }
        waitpid(pid, NULL, 0);
        tree_lock(&a.tree);
        assert_int_equal(a.tree.head->node[0].leased, SLOTS);
        assert_int_equal(a.tree.head->node[0].slabs, SLABS);
        tree_unlock(&a.tree);
        tree_lock(&a.tree);
        tree_unlock(&a.tree);
        tree_close(&a.tree);
}

/* A child whose parent died before it was up, and whose number was buried meanwhile, must not go on. */
static void orphan(void **state)
{
        static struct actor a;
        struct tree_child c;
        int status;

        (void)state;
        begin(&a);
        take(&a);
        assert_int_equal(tree_child(&a.tree, &c), 0);
        assert_int_equal(tree_share(&a.tree, c.number, a.slot, a.n), 0);
        assert_int_equal(tree_share(&a.tree, c.number, a.slot, a.n), -EEXIST);
        assert_int_equal(tree_share(&a.tree, c.number, (uint64_t[]){ a.slot[0] + 1 }, 1), -EINVAL);
        assert_int_equal(slotmap_held(&a.map), 1);
        assert_false(slotmap_writable(&a.map, a.slot[0]));
        tree_child_left(&a.tree, &c);
        mend(&a.tree);
        assert_int_equal(a.tree.head->record[c.number].state, RECORD_FREE);
        pid_t pid = fork();
        if (pid == 0)
                _exit(tree_be_child(&a.tree, &c) == -ESRCH ? 0 : 1);
        waitpid(pid, &status, 0);
        assert_int_equal(status, 0);
        assert_int_equal(tree_release(&a.tree, a.slot, 1), 0);
        assert_int_equal(tree_release(&a.tree, a.slot, 1), -EINVAL);
        a.n = 0;
        count_all(&a);
        tree_close(&a.tree);
}

/* With a remote slab, a dead process's slots rest until its last writes must have come to their end. */
static void linger(void **state)
{
        static struct actor a;
        struct tree_child c;

        (void)state;
        begin(&a);
        a.tree.linger_ms = 300;
        a.tree.head->slab[0].kind = SLAB_REMOTE;
        assert_int_equal(tree_child(&a.tree, &c), 0);
        pid_t pid = fork();
        if (pid == 0) {
                if (tree_be_child(&a.tree, &c) == 0) {
                        start(&a, 5);
                        while (a.n < 100)
                                take(&a);
                }
                _exit(0);
        }
        waitpid(pid, NULL, 0);
        tree_child_left(&a.tree, &c);
        tree_lock(&a.tree);
        assert_int_equal(tree_mend_locked(&a.tree), 0);
        assert_false(tree_alone_locked(&a.tree));
        usleep(310 * 1000);
        assert_int_equal(tree_mend_locked(&a.tree), 100);
        tree_unlock(&a.tree);
        count_all(&a);
        tree_close(&a.tree);
}

/* All numbers in use is EAGAIN, not a slot with a number that it cannot hold. */
static void numbers(void **state)
{
        static struct actor a;
        struct tree_child c;

        (void)state;
        begin(&a);
        for (unsigned i = 1; i < TREE_PROCESSES; i++)
                assert_int_equal(tree_child(&a.tree, &c), 0);
        assert_int_equal(tree_child(&a.tree, &c), -EAGAIN);
        tree_child_left(&a.tree, &(struct tree_child){ .number = 7 });
        assert_int_equal(tree_child(&a.tree, &c), 0);
        assert_int_equal(c.number, 7);
        tree_close(&a.tree);
}

/* exec keeps the descriptor: what it leads to is looked at before it is believed. */
static void attach(void **state)
{
        static struct actor a;
        struct tree t;
        char why[256];

        (void)state;
        begin(&a);
        take(&a);
        assert_int_equal(tree_attach(&t, a.tree.fd, NULL, 0, why, sizeof(why)), 0);
        assert_true(t.head != a.tree.head);
        assert_int_equal(*slot_word(t.units, a.slot[0]), SLOT_OWNED | a.tree.self);
        t.fd = -1;                      /* one descriptor, two views */
        tree_close(&t);
        int fd = memfd_create("other", 0);
        assert_int_equal(tree_attach(&t, fd, NULL, 0, why, sizeof(why)), -EINVAL);
        a.tree.head->version++;
        assert_int_equal(tree_attach(&t, a.tree.fd, NULL, 0, why, sizeof(why)), -EPROTO);
        close(fd);
        tree_close(&a.tree);
}

static int setup(void **state)
{
        (void)state;
        world = mmap(NULL, sizeof(*world), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        return world == MAP_FAILED ? -1 : 0;
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(threads), cmocka_unit_test(processes), cmocka_unit_test(dead_owner), cmocka_unit_test(orphan),
                cmocka_unit_test(linger), cmocka_unit_test(numbers), cmocka_unit_test(attach),
        };
        return cmocka_run_group_tests_name("tree race", tests, setup, NULL);
}
