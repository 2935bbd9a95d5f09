/*
 * The memory file that a process tree shares (runtime/far/tree.c): the lives of its processes, the
 * lock whose owner dies, exec.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/wait.h>
#include <time.h>
#include <cmocka.h>
#include "base/options.h"
#include "base/privfd.h"
#include "far/cut.h"
#include "far/io.h"
#include "far/node.h"
#include "tree_actor.h"

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define SLOW 10
#else
#define SLOW 1
#endif

/* The lock of a dead owner goes to the next process. The owner's unpublished changes are void. */
static void dead_owner(void **state)
{
        static struct actor a;

        (void)state;
        begin(&a);
        a.tree.head->node[0] =
                (struct tree_node){ .pages = 100000, .leased = SLOTS, .slabs = SLABS };
        pid_t pid = fork();
        if (pid == 0) {
                tree_lock(&a.tree);
                a.tree.head->node[0].leased += 4096;
                a.tree.head->slab[SLABS] = (struct tree_slab){ .pages = 4096, .places = 1 };
                /* a place that has bits, and is not listed yet */
                tree_map(a.tree.units, 0)->places = a.tree.head->slab[0].places + 1;
                kill(getpid(), SIGKILL);
        }
        waitpid(pid, NULL, 0);
        tree_lock(&a.tree);
        assert_int_equal(a.tree.head->node[0].leased, SLOTS);
        assert_int_equal(a.tree.head->node[0].slabs, SLABS);
        assert_int_equal(tree_map(a.tree.units, 0)->places, a.tree.head->slab[0].places);
        assert_int_equal(tree_map(a.tree.units, 1)->places, 0);
        tree_unlock(&a.tree);
        tree_lock(&a.tree);
        tree_unlock(&a.tree);
        tree_close(&a.tree);
}

/* A child that never came up is buried at once: it has sent nothing. */
static void never_up(void **state)
{
        static struct actor a;
        struct tree_child c;

        (void)state;
        begin(&a);
        take(&a);
        assert_int_equal(tree_child(&a.tree, &c), 0);
        assert_int_equal(tree_share(&a.tree, c.number, a.slot, a.n), 0);
        assert_int_equal(tree_share(&a.tree, c.number, a.slot, a.n), -EEXIST);
        assert_int_equal(tree_share(&a.tree, c.number, (uint64_t[]){ a.slot[0] + 1 }, 1), -EINVAL);
        assert_int_equal(slotmap_held(&a.map), 1);
        assert_false(slotmap_writable(&a.map, a.slot[0]));
        tree_child_left(&c);
        mend(&a.tree);
        assert_int_equal(a.tree.head->record[c.number].state, RECORD_FREE);
        assert_int_equal(tree_release(&a.tree, a.slot, 1), 0);
        assert_int_equal(tree_release(&a.tree, a.slot, 1), -EINVAL);
        a.n = 0;
        count_all(&a);
        tree_close(&a.tree);
}

/* Nodes that are drained for a process are drained for its children; that a node has asked goes
 * neither to them nor to the process that has the number next. */
static void drained_for_parent(void **state)
{
        static struct actor a;
        struct tree_child c;

        (void)state;
        begin(&a);
        struct tree_process *process = ((struct tree_common *)a.tree.units)->process;
        process[a.tree.self].drained = 5;
        process[a.tree.self].asked = 7;
        for (unsigned i = 0; i < 2; i++) {
                assert_int_equal(tree_child(&a.tree, &c), 0);
                assert_int_equal(process[c.number].drained, i ? 4 : 5);
                assert_int_equal(process[c.number].asked, 0);
                process[c.number].asked = 7;
                tree_child_left(&c);
                mend(&a.tree);
                process[a.tree.self].drained = 4;
        }
        tree_close(&a.tree);
}

/* Cuts off all dead processes, as slabs.c does. */
static void cut_all(struct tree *t)
{
        struct tree_dead d;
        tree_dead_locked(t, &d);
        tree_cut_locked(t, &d, 0);
}

/* With a remote slab, a dead process's slots rest until it is cut off.  Where the node cannot cut
 * it off, the slots that a late write may still reach are retired. */
static void cut_off(void **state)
{
        static struct actor a;
        struct tree_child c;

        (void)state;
        begin(&a);
        a.tree.head->slab[0].kind = SLAB_REMOTE;
        assert_int_equal(tree_child(&a.tree, &c), 0);
        pid_t pid = fork();
        if (pid == 0) {
                tree_be_child(&a.tree, &c);
                start(&a, 5);
                while (a.n < 100)
                        take(&a);
                for (unsigned i = 0; i < 10; i++)
                        atomic_fetch_or(slot_word(a.tree.units, a.slot[i]), SLOT_DUE);
                _exit(0);
        }
        waitpid(pid, NULL, 0);
        tree_child_left(&c);
        tree_lock(&a.tree);
        assert_false(tree_uncut_locked(&a.tree, true)); /* no process has noticed yet */
        assert_int_equal(mend_all_locked(&a.tree), 0);
        assert_true(tree_uncut_locked(&a.tree, true));
        assert_false(tree_uncut_locked(&a.tree, false));
        assert_false(tree_alone_locked(&a.tree));
        assert_int_equal(mend_all_locked(&a.tree), 0);
        assert_int_equal(a.tree.head->record[c.number].state, RECORD_DEAD);
        cut_all(&a.tree);
        assert_false(tree_uncut_locked(&a.tree, true));
        assert_int_equal(mend_all_locked(&a.tree), 90);
        tree_unlock(&a.tree);
        assert_int_equal(words(&a, SLOT_DUE), 10);
        assert_int_equal(words(&a, SLOT_FREE), SLOTS - 10);
        tree_close(&a.tree);
}

/* A slot that is DUE may be shared, and is retired when its last holder has released it, alive or
 * dead. */
static void due(void **state)
{
        static struct actor a;
        struct tree_child c;

        (void)state;
        begin(&a);
        while (a.n < 6)
                take(&a);
        uint64_t slot[6];
        memcpy(slot, a.slot, sizeof(slot));
        for (unsigned i = 0; i < 6; i++)
                if (i != 5)
                        atomic_fetch_or(slot_word(a.tree.units, slot[i]), SLOT_DUE);
        assert_int_equal(tree_child(&a.tree, &c), 0);
        assert_int_equal(tree_share(&a.tree, c.number, slot + 1, 5), 0);
        assert_int_equal(*slot_word(a.tree.units, slot[1]), SLOT_SHARED | SLOT_DUE);
        assert_false(slotmap_writable(&a.map, slot[0]));
        assert_true(slotmap_put(&a.map, slot[0]));
        assert_int_equal(*slot_word(a.tree.units, slot[0]), SLOT_DUE);
        assert_int_equal(tree_release(&a.tree, slot + 1, 5), 0);
        assert_int_equal(*slot_word(a.tree.units, slot[1]), SLOT_SHARED | SLOT_DUE);
        tree_child_left(&c);           /* it never came: the last holder is dead */
        tree_lock(&a.tree);
        assert_int_equal(mend_all_locked(&a.tree), 1);
        tree_unlock(&a.tree);
        assert_int_equal(*slot_word(a.tree.units, slot[1]), SLOT_DUE);
        assert_int_equal(words(&a, SLOT_DUE), 5);
        tree_close(&a.tree);
}

/* The dead: all numbers that were given and are not alive, as ranges.  A process that dies after
 * the list was made is not in it, and not cut. */
static void dead(void **state)
{
        static struct actor a;
        struct tree_child c[6];
        struct tree_dead d;

        (void)state;
        begin(&a);
        a.tree.head->slab[0].kind = SLAB_REMOTE;
        tree_lock(&a.tree);
        tree_dead_locked(&a.tree, &d);
        tree_unlock(&a.tree);
        assert_int_equal(d.n, 0);
        for (unsigned i = 0; i < 6; i++) {      /* births 2 to 7 */
                assert_int_equal(tree_child(&a.tree, &c[i]), 0);
                assert_int_equal(a.tree.head->record[c[i].number].birth, 2 + i);
                a.tree.head->record[c[i].number].pid = 1;       /* it came up */
        }
        tree_child_left(&c[1]);
        tree_child_left(&c[2]);
        tree_child_left(&c[5]);
        tree_lock(&a.tree);
        mend_all_locked(&a.tree);
        tree_dead_locked(&a.tree, &d);
        assert_int_equal(d.n, 2);
        assert_true(d.range[0].first == 3 && d.range[0].last == 4);
        assert_true(d.range[1].first == 7 && d.range[1].last == 7);
        tree_unlock(&a.tree);
        tree_child_left(&c[0]);        /* between the question and the answer */
        tree_lock(&a.tree);
        mend_all_locked(&a.tree);
        tree_cut_locked(&a.tree, &d, 0);
        assert_true(a.tree.head->told == 7);
        mend_all_locked(&a.tree);
        for (unsigned i = 0; i < 6; i++)
                assert_int_equal(a.tree.head->record[c[i].number].state,
                                 i == 0               ? RECORD_DEAD
                                 : i == 3 || i == 4 ? RECORD_USED
                                                      : RECORD_FREE);
        tree_unlock(&a.tree);
        /* A number that is given again has another birth, and counts as alive. */
        assert_int_equal(tree_child(&a.tree, &c[1]), 0);
        assert_int_equal(a.tree.head->record[c[1].number].birth, 8);
        tree_lock(&a.tree);
        tree_dead_locked(&a.tree, &d);
        assert_int_equal(d.n, 2);
        assert_true(d.range[0].first == 2 && d.range[0].last == 4);
        assert_true(d.range[1].first == 7 && d.range[1].last == 7);
        tree_unlock(&a.tree);
        tree_close(&a.tree);
}

static uint64_t uncut(struct actor *a)
{
        return atomic_load(&((struct tree_common *)a->tree.units)->uncut);
}

/* Two processes cut off the dead, each with its own list.  A node that was silent for the later
 * list has to answer one that was made after that: the earlier list did not name all the dead. */
static void silent_node(void **state)
{
        static struct actor a;
        struct tree_child c[2];
        struct tree_dead early, late;

        (void)state;
        begin(&a);
        a.tree.head->slab[0].kind = SLAB_REMOTE;
        for (unsigned i = 0; i < 2; i++) {
                assert_int_equal(tree_child(&a.tree, &c[i]), 0);
                a.tree.head->record[c[i].number].pid = 1;       /* it came up */
        }
        tree_child_left(&c[0]);
        mend(&a.tree);
        tree_lock(&a.tree);
        tree_dead_locked(&a.tree, &early);
        tree_unlock(&a.tree);
        tree_child_left(&c[1]);
        mend(&a.tree);
        tree_lock(&a.tree);
        tree_dead_locked(&a.tree, &late);
        tree_cut_locked(&a.tree, &late, 2);     /* node 1 did not answer */
        assert_int_equal(uncut(&a), 2);
        tree_cut_locked(&a.tree, &early, 0);    /* now it does */
        assert_int_equal(uncut(&a), 2);
        tree_dead_locked(&a.tree, &late);
        tree_cut_locked(&a.tree, &late, 0);
        assert_int_equal(uncut(&a), 0);
        tree_unlock(&a.tree);
        tree_close(&a.tree);
}

/* far/io.c, for cut_dead() */
void io_start(struct vm *vm, struct slot_pieces *pieces) { (void)vm; (void)pieces; }
void io_wait_attached(void) {}
void info_(const char *fmt, ...) { (void)fmt; }
struct options opt;

static unsigned asked_to_cut;           /* a set of nodes */
static int answers(struct far_node *n, const struct far_range *dead, unsigned count,
                   unsigned limit_ms, char why[FAR_WHY])
{
        (void)limit_ms;
        (void)why;
        assert_true(count == 1 && dead->first == 2 && dead->last == 2);
        asked_to_cut |= 1u << n->index;
        return 0;
}

/* A node that only this process has lost cannot be told who died: with copies elsewhere the dead
 * are buried, and the node counts as silent. */
static void lost_node(void **state)
{
        static struct actor a;
        const struct far_driver driver = { .kind = SLAB_REMOTE, .cut = answers };
        struct node_option option = { .origin = "a node" };
        struct far_node node[3], *nodes[3];
        struct tree_child c;

        (void)state;
        begin(&a);
        opt.replicas = 2;
        a.tree.head->slab[0].kind = SLAB_REMOTE;
        a.tree.head->slab[0].places = 2;
        a.tree.head->slab[0].place[1].node = 1;
        for (unsigned i = 0; i < 3; i++) {      /* no slab is on the third */
                node[i] = (struct far_node){
                        .driver = &driver, .option = &option, .index = i, .fences = true
                };
                nodes[i] = &node[i];
        }
        node[1].lost = node[2].lost = true;
        struct cutter cutter = { .tree = &a.tree, .nodes = nodes, .nnodes = 3 };
        pthread_mutex_t lease_lock = PTHREAD_MUTEX_INITIALIZER;
        cutter.lease_lock = &lease_lock;
        pthread_mutex_init(&cutter.lock, NULL);
        assert_int_equal(tree_child(&a.tree, &c), 0);
        a.tree.head->record[c.number].pid = 1;
        tree_child_left(&c);
        mend(&a.tree);
        assert_int_equal(a.tree.head->record[c.number].state, RECORD_DEAD);
        cut_dead(&cutter, NULL);
        assert_int_equal(asked_to_cut, 1);
        assert_int_equal(uncut(&a), 2);
        assert_int_equal(a.tree.head->record[c.number].state, RECORD_FREE);
        opt.replicas = 0;
        tree_close(&a.tree);
}

/* Of processes that say that they leave, the last is told so. A process that leaves with nothing
 * under way is buried at once. */
static void leave(void **state)
{
        static struct actor a;
        struct tree_child c, killed;
        int status;

        (void)state;
        begin(&a);
        a.tree.head->slab[0].kind = SLAB_REMOTE;
        assert_int_equal(tree_child(&a.tree, &c), 0);
        assert_int_equal(tree_child(&a.tree, &killed), 0);
        assert_false(tree_leave(&a.tree, false, 100));  /* there are two more, not up yet */
        pid_t pid = fork();
        if (pid == 0) {
                tree_be_child(&a.tree, &c);
                start(&a, 5);
                while (a.n < 100)
                        take(&a);
                _exit(tree_leave(&a.tree, true, 100));
        }
        waitpid(pid, &status, 0);
        /* the killed one is still kept alive by its parent */
        assert_int_equal(status, 0);
        tree_child_left(&c);
        assert_false(tree_leave(&a.tree, false, 100));
        a.tree.head->record[killed.number].pid = 1;     /* it came up */
        tree_child_left(&killed);
        assert_true(tree_leave(&a.tree, false, 100));
        tree_lock(&a.tree);
        assert_int_equal(mend_all_locked(&a.tree), 100);
        assert_int_equal(a.tree.head->record[c.number].state, RECORD_FREE);
        assert_int_equal(a.tree.head->record[killed.number].state, RECORD_DEAD);
        cut_all(&a.tree);
        assert_int_equal(mend_all_locked(&a.tree), 0);
        assert_int_equal(a.tree.head->record[killed.number].state, RECORD_FREE);
        tree_unlock(&a.tree);
        count_all(&a);
        tree_close(&a.tree);
}

/* A process stays if its execve fails, so no other is the last one meanwhile.  A process that ended
 * then took itself for the last one, and released the leases with the pages of the first one. */
static void may_stay(void **state)
{
        static struct actor a;
        struct tree_child c;
        int status;

        (void)state;
        begin(&a);
        assert_int_equal(tree_child(&a.tree, &c), 0);
        tree_leaves(&a.tree, true);
        pid_t pid = fork();
        if (pid == 0) {
                tree_be_child(&a.tree, &c);
                _exit(tree_leave(&a.tree, true, 100));
        }
        waitpid(pid, &status, 0);
        assert_int_equal(status, 0);
        tree_leaves(&a.tree, false);
        tree_child_left(&c);
        tree_close(&a.tree);
}

/* A number for the program that an execve starts counts as alive until that program joins.  A
 * program that never came up is buried at once, as is a process that leaves for another program. */
static void successor(void **state)
{
        static struct actor a;
        struct tree_child c;

        (void)state;
        begin(&a);
        a.tree.head->slab[0].kind = SLAB_REMOTE;
        int number = tree_expect(&a.tree);
        assert_true(number > 0);
        int up[2];
        assert_int_equal(pipe(up), 0);
        pid_t pid = fork();             /* as a child of vfork, which executes its program */
        if (pid == 0) {
                c = tree_expected(&a.tree, number);
                privfd_close(a.tree.life);
                (void)!write(up[1], "", c.life >= 0);
                pause();
        }
        char byte;
        assert_int_equal(read(up[0], &byte, 1), 1);
        tree_expect_end(&a.tree, number);
        assert_false(tree_leave(&a.tree, false, 100));
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        close(up[0]), close(up[1]);
        assert_true(tree_leave(&a.tree, false, 100));
        tree_lock(&a.tree);
        assert_int_equal(mend_all_locked(&a.tree), 0);
        assert_int_equal(a.tree.head->record[number].state, RECORD_FREE);
        tree_unlock(&a.tree);
        assert_int_equal(tree_child(&a.tree, &c), 0);
        pid = fork();
        if (pid == 0) {
                tree_be_child(&a.tree, &c);
                start(&a, 5);
                while (a.n < 100)
                        take(&a);
                tree_leaves(&a.tree, true);
                tree_leaves(&a.tree, false);    /* the execve failed */
                tree_leaves(&a.tree, true);
                _exit(0);
        }
        waitpid(pid, NULL, 0);
        tree_child_left(&c);
        tree_lock(&a.tree);
        assert_int_equal(mend_all_locked(&a.tree), 100);
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
        for (int i = 1; i < TREE_PROCESSES; i++)
                assert_int_equal(tree_expect(&a.tree), i);
        assert_int_equal(tree_expect(&a.tree), -EAGAIN);
        assert_int_equal(tree_child(&a.tree, &c), -EAGAIN);
        tree_expect_end(&a.tree, 7);
        assert_int_equal(tree_child(&a.tree, &c), 0);
        assert_int_equal(c.number, 7);
        tree_close(&a.tree);
}

/* What the thread has used of a processor: a busy machine does not count. */
static double cpu_ms(void)
{
        struct timespec t;

        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
        return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* Process p holds slots of the slab with others: all, or half of them, or none. */
static void hold(struct actor *a, uint32_t slab, uint32_t p, uint8_t of_eight)
{
        struct slab_map *map = tree_map(a->tree.units, slab);

        for (uint32_t chunk = 0; chunk < SLAB_CHUNKS; chunk++)
                chunk_touch(map, p, chunk);
        memset((char *)a->tree.bits + ((uint64_t)slab * TREE_PROCESSES + p) * SLAB_PAGES / 8,
               of_eight, SLAB_PAGES / 8);
        for (uint32_t i = 0; of_eight && i < SLAB_PAGES; i++)
                map->word[i] = SLOT_SHARED;
}

/* Burying takes time, under the lock that each process needs to lease or fork: little for each
 * slot, however many processes there are, and little at a time.  Half of the slots have one more
 * holder, which is found last.  In ms of a processor; 10 times as much under a sanitizer. */
#define BURY_GIB (SLOW > 1 ? 1u : 3u)
static bool bury_in_time(void)
{
        static struct actor a;
        struct tree_child next;
        int c[TREE_PROCESSES - 1];
        const unsigned last = TREE_PROCESSES - 2;
        double worst = 0, all = 0;
        uint64_t freed = 0;

        begin(&a);
        for (unsigned i = 0; i <= last; i++)
                assert_true((c[i] = tree_expect(&a.tree)) > 0);
        for (uint32_t slab = 0; slab < BURY_GIB; slab++) {
                for (unsigned i = 1; i < last; i++)
                        hold(&a, slab, (uint32_t)c[i], 0);
                hold(&a, slab, (uint32_t)c[0], 0xff);
                hold(&a, slab, (uint32_t)c[last], 0x55);
        }
        tree_expect_end(&a.tree, c[0]);
        while (a.tree.head->record[c[0]].state != RECORD_FREE) {
                tree_lock(&a.tree);
                double began = cpu_ms();
                freed += tree_mend_locked(&a.tree);
                double took = cpu_ms() - began;
                tree_unlock(&a.tree);
                worst = took > worst ? took : worst;
                all += took;
        }
        print_message("# %.1f ms at a time at most, %.1f ms a GiB\n", worst, all / BURY_GIB);
        assert_int_equal(freed, (uint64_t)BURY_GIB * SLAB_PAGES / 2);
        for (uint32_t i = 0; i < SLAB_PAGES; i++)
                assert_int_equal(tree_map(a.tree.units, 0)->word[i],
                                 i % 2 ? SLOT_FREE : SLOT_SHARED);
        /* A process that needs the dead one's number buries it to the end. */
        assert_int_equal(tree_child(&a.tree, &next), 0);
        assert_int_equal(next.number, c[0]);
        tree_expect_end(&a.tree, c[last]);
        assert_int_equal(tree_child(&a.tree, &next), 0);
        assert_int_equal(next.number, c[last]);
        assert_int_equal(words(&a, SLOT_FREE), SLABS * PAGES);
        tree_close(&a.tree);
        return worst <= 30 * SLOW && all <= 300 * SLOW * BURY_GIB;
}

/* Once of three times: the host may take the CPU away, which counts as this process's time. */
static void bury_many(void **state)
{
        bool in_time = false;

        (void)state;
        for (unsigned i = 0; i < 3 && !in_time; i++)
                in_time = bury_in_time();
        assert_true(in_time);
}

/* A process that joins buries the dead while it has no number: it leaves nothing where one beyond
 * all numbers would, nor in the name of a process that lives. */
static void newcomer(void **state)
{
        static struct actor a;
        struct tree_child c;
        struct tree t;
        char why[256];

        (void)state;
        begin(&a);
        take(&a);
        assert_int_equal(tree_child(&a.tree, &c), 0);
        assert_int_equal(tree_share(&a.tree, c.number, a.slot, 1), 0);
        tree_child_left(&c);
        struct slab_map *map = tree_map(a.tree.units, slot_slab(a.slot[0]));
        memset((void *)map->touched[a.tree.self], 0, sizeof(map->touched[0]));
        assert_int_equal(tree_attach(&t, a.tree.fd, NULL, why, sizeof(why)), 0);
        assert_int_equal(tree_join(&t), 0);
        assert_int_equal(t.self, c.number);
        for (unsigned i = 0; i < SLAB_CHUNKS / 64; i++)
                assert_int_equal(map->touched[a.tree.self][i], 0);
        for (unsigned i = 0; i < SLAB_PAGES; i++)
                assert_int_equal(map->sum[i], 0);
        t.fd = -1;                      /* one descriptor, two views */
        tree_close(&t);
        tree_close(&a.tree);
}

/* exec keeps the descriptor: the file behind it is looked at before it is believed. */
static void attach(void **state)
{
        static struct actor a;
        struct tree t;
        char why[256];

        (void)state;
        begin(&a);
        take(&a);
        assert_int_equal(tree_attach(&t, a.tree.fd, NULL, why, sizeof(why)), 0);
        assert_true(t.head != a.tree.head);
        assert_int_equal(*slot_word(t.units, a.slot[0]), SLOT_OWNED | a.tree.self);
        t.fd = -1;                      /* one descriptor, two views */
        tree_close(&t);
        int fd = memfd_create("other", 0);
        assert_int_equal(tree_attach(&t, fd, NULL, why, sizeof(why)), -EINVAL);
        a.tree.head->version++;
        assert_int_equal(tree_attach(&t, a.tree.fd, NULL, why, sizeof(why)), -EPROTO);
        close(fd);
        tree_close(&a.tree);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(dead_owner), cmocka_unit_test(never_up), cmocka_unit_test(cut_off),
                cmocka_unit_test(drained_for_parent),
                cmocka_unit_test(due),        cmocka_unit_test(dead),
                cmocka_unit_test(silent_node), cmocka_unit_test(lost_node),
                cmocka_unit_test(numbers),    cmocka_unit_test(attach), cmocka_unit_test(leave),
                cmocka_unit_test(may_stay),   cmocka_unit_test(successor),
                cmocka_unit_test(bury_many),  cmocka_unit_test(newcomer),
        };
        return cmocka_run_group_tests_name("tree", tests, setup, NULL);
}
