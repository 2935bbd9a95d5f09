/*
 * See soak.h: a process of a tree, which is to the slots and to the node what kern and the I/O
 * thread are.  It takes slots, writes to them, reads them and checks their pages; it forks,
 * executes itself, ends, and is killed between any two instructions.
 *
 * Slots come from kern's allocator, and shared slots from runtime/far.  This file keeps the pager's
 * promises: a slot is read only after its write was answered; it is written only while
 * slotmap_writable() says so; and no write to it is under way when it is released, or shared at a
 * fork.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/message.h"
#include "base/privfd.h"
#include "far/slotmap.h"
#include "pager/pager.h"
#include "soak.h"

#define HELD     256                    /* slots of one process */
#define RELEASES 16                     /* shared slots are released together, as in kern */
#define READS    32                     /* between two other steps */
#define LIVING   7                      /* processes at one time, about */
#define DEPTH    3                      /* generations below the first of a family */

/* Passages of a place, about, until a process kills itself there. */
#define OFTEN  30000                    /* passed for each write or release */
#define SELDOM 15                       /* passed for each fork */

struct held {
        uint64_t slot;
        uint64_t stamp;                 /* of the page that was last written there */
        struct message *write;          /* under way; NULL: the page is there */
        bool late;                      /* LATE_SUM: its sum is not stored yet */
};

static struct tree tree;
static struct slotmap map;
static struct link *my_link;
static uint64_t birth, random_state, version;
static uint32_t sent;                   /* messages, on this link */
static unsigned nheld, nreleasing, depth;
static struct held held[HELD];
static uint64_t releasing[RELEASES];
static uint64_t reads, pieces, writes;  /* not yet added to the world's */
static _Alignas(64) char frame[PAGE_SIZE];
static volatile sig_atomic_t told_to_end;
int world_fd;

static uint32_t any(uint32_t n) { return rnd(&random_state, n); }

/* ---- ends ---- */

_Noreturn void die_(int status, const char *fmt, ...)
{
        char text[200];
        va_list ap;

        va_start(ap, fmt);
        vsnprintf(text, sizeof(text), fmt, ap);
        va_end(ap);
        failure("process %u ends: %s", tree.self, text);
        _exit(status);
}

_Noreturn void env_bug(const char *what, uint64_t a, uint64_t b)
{
        die_(3, "kern_bug: %s: %#llx %#llx", what, (unsigned long long)a, (unsigned long long)b);
}

static void add_counts(void)
{
        atomic_fetch_add(&world->reads, reads);
        atomic_fetch_add(&world->pieces, pieces);
        atomic_fetch_add(&world->writes, writes);
        reads = pieces = writes = 0;
}

/* Processes are also killed from outside, anywhere; but seldom in a place as short as these. */
static void may_die(uint32_t odds)
{
        if (any(odds) == 0)
                kill(getpid(), SIGKILL);
}

/* The test itself may be killed: then no other process would end this one. */
static void end_without_node(void)
{
        if (kill(world->node, 0) != 0)
                _exit(0);
}

/* ---- reads and writes ---- */

static void read_one(void)
{
        const struct held *h = &held[any(nheld)];

        if ((h->write && world->plant != EARLY_READ) || h->late)
                return;
        if (world->plant != UNSEEDED && any(2))
                pieces += page_check_part(&tree, h->slot, h->stamp, reads);
        else
                page_check(&tree, h->slot, h->stamp, reads);
        if (++reads == 1024)
                add_counts();
}

/* Looks which writes are over.  True: some are not. */
static bool is_writing(void)
{
        bool some = false;

        for (unsigned i = 0; i < nheld; i++) {
                if (held[i].write && link_is_over(held[i].write))
                        held[i].write = NULL;
                some |= held[i].write != NULL;
        }
        return some;
}

static void finish_writes(void)
{
        for (; is_writing(); usleep(50))
                end_without_node();
}

static struct message *room(void) { return link_room(my_link, sent); }

/* There is room. */
static void write_slot(struct held *h)
{
        struct message *m = room();

        h->stamp = STAMP(birth, ++version);
        page_make(frame, h->slot, h->stamp);
        h->late = world->plant == LATE_SUM;
        if (any(OFTEN) == 0) {
                page_store_some(&tree, h->slot, frame, any(PIECES + 1));
                kill(getpid(), SIGKILL);
        }
        /* Also if it does not know that others read parts. */
        if (!h->late)
                page_store_sum(&tree, h->slot, frame, any(2));
        may_die(OFTEN);
        link_send(m, h->slot, frame);
        may_die(OFTEN);
        h->write = m;
        sent++;
        writes++;
}

static void store_late_sums(void)
{
        for (unsigned i = 0; i < nheld; i++) {
                if (!held[i].late || held[i].write || any(64) != 0)
                        continue;
                page_make(frame, held[i].slot, held[i].stamp);
                page_store_sum(&tree, held[i].slot, frame, any(2));
                held[i].late = false;
        }
}

/* ---- slots ---- */

/* Has the dead cut off and buries them, as cut_dead() in runtime/far/cut.c. */
static bool cut_dead(struct tree *t)
{
        static struct tree_dead d;
        uint64_t freed = 0;

        tree_lock(t);
        tree_dead_locked(t, &d);
        tree_unlock(t);
        if (d.n == 0 || !((world->plant == UNCUT && any(4) != 0) || node_cut(&d)))
                return false;
        tree_lock(t);
        tree_cut_locked(t, &d, 0);
        freed = tree_mend_locked(t);
        tree_unlock(t);
        return freed > 0;
}

void bury(struct tree *t)
{
        tree_lock(t);
        tree_mend_locked(t);
        bool many = tree_uncut_locked(t, false);
        tree_unlock(t);
        if (many)
                cut_dead(t);
}

bool bury_for_slots(struct tree *t)
{
        tree_lock(t);
        bool freed = tree_mend_locked(t) > 0, uncut = !freed && tree_uncut_locked(t, true);
        tree_unlock(t);
        return freed || (uncut && cut_dead(t));
}

static uint64_t take_slot(void)
{
        uint64_t slot;

        /* kern takes from chunks of others only at the end; here slots are to change hands. */
        while ((slot = slotmap_take(&map, any(4) == 0)) == SLOT_NONE) {
                atomic_fetch_add(&world->wanted, 1);
                if (!bury_for_slots(&tree))
                        return slotmap_take(&map, true);
        }
        return slot;
}

/* NULL: it has as many as it wants, or there is none, or no room on the link. */
static struct held *take(void)
{
        struct held *h = &held[nheld];
        uint64_t slot;

        if (nheld == HELD || !room())
                return NULL;
        slot = take_slot();
        if (slot == SLOT_NONE)
                return NULL;
        nheld++;
        *h = (struct held){ .slot = slot };
        write_slot(h);
        return h;
}

static void release_now(void)
{
        if (tree_release(&tree, releasing, nreleasing) != 0)
                failure("process %u holds a slot that it cannot release", tree.self);
        atomic_fetch_add(&world->released, nreleasing);
        nreleasing = 0;
}

static void let_go(struct held *h)
{
        uint64_t slot = h->slot;

        if (h->write && world->plant != EARLY_REUSE)
                return;
        *h = held[--nheld];
        may_die(OFTEN);
        if (slotmap_put(&map, slot))
                return;
        releasing[nreleasing++] = slot;
        if (nreleasing == RELEASES)
                release_now();
}

static struct held *some_under_way(struct held *otherwise)
{
        for (unsigned i = 0; i < nheld; i++)
                if (held[i].write)
                        return &held[i];
        return otherwise;
}

/* Writes a page again: to a new slot if other processes read its slot. */
static void rewrite(struct held *h)
{
        if (h->write)
                return;
        if (!slotmap_writable(&map, h->slot) && world->plant != WRITE_SHARED) {
                if (take())
                        let_go(h);
        } else if (room()) {
                write_slot(h);
        }
}

/* ---- lives ---- */

static void on_sigterm(int signo)
{
        (void)signo;
        told_to_end = 1;
}

static void start(void)
{
        static struct slab slabs[SLABS];

        signal(SIGTERM, on_sigterm);
        for (unsigned i = 0; i < SLABS; i++)
                slabs[i] = (struct slab){ .kind = SLAB_REMOTE, .pages = PAGES };
        birth = tree.head->record[tree.self].birth;
        random_state = (world->seed << 32 ^ birth) * 0x9e3779b97f4a7c15ull | 1;
        while (!(my_link = link_open(birth))) {
                bury(&tree);
                cut_dead(&tree);
        }
        slotmap_init(&map, tree.units, slabs, tree.self);
        map.nslabs = SLABS;
        sent = 0;
        reads = pieces = writes = 0;
        for (unsigned i = 0; i < nheld; i++)
                held[i].late = false;   /* the parent's bug, not known here */
}

static void be_child(const struct tree_child *c)
{
        /* Sometimes its parent has long been dead. */
        if (any(4) == 0)
                usleep(any(10000));
        tree_be_child(&tree, c);
        start();
}

/* In the order of runtime/process/fork.c. */
static void do_fork(void)
{
        struct tree_child c;
        uint64_t slot[HELD];

        finish_writes();
        release_now();
        bury(&tree);
        if (tree_child(&tree, &c) != 0)
                return;
        for (unsigned i = 0; i < nheld; i++)
                slot[i] = held[i].slot;
        if (tree_share(&tree, c.number, slot, nheld) != 0)
                failure("process %u holds a slot that it cannot share", tree.self);
        atomic_fetch_add(&world->shared, nheld);
        may_die(SELDOM);
        add_counts();
        pid_t pid = fork();
        if (pid == 0) {
                be_child(&c);
                depth++;
        } else {
                may_die(SELDOM);
                tree_child_left(&c);
                atomic_fetch_add(&world->forks, pid > 0);
        }
}

/* The next program has the tree and the world, and no slots.  Writes of this one may be under
 * way. */
static void do_exec(void)
{
        struct tree_child c;
        char text[64];

        bury(&tree);
        if (tree_child(&tree, &c) != 0)
                return;
        snprintf(text, sizeof(text), "%d %d %u %u %d", tree.fd, world_fd, depth, c.number, c.life);
        add_counts();
        atomic_fetch_add(&world->execs, 1);
        may_die(SELDOM);
        fcntl(tree.fd, F_SETFD, 0);
        fcntl(c.life, F_SETFD, 0);
        execl("/proc/self/exe", "test_sum_soak", "--actor", text, NULL);
        die_(3, "exec does not work");
}

static _Noreturn void do_end(void)
{
        bool still = any(2) || world->plant == FALSE_STILL;

        for (unsigned i = 0; i < RING && nheld > 0; i++)
                rewrite(&held[any(nheld)]);
        if (still && world->plant != FALSE_STILL)
                finish_writes();
        tree_leave(&tree, still, 100);
        add_counts();
        atomic_fetch_add(&world->ends, 1);
        _exit(0);
}

static void reap(void)
{
        pid_t pid;
        int status;

        while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
                check_end(pid, status);
}

/* ---- what it does ---- */

static void do_seldom(void)
{
        uint32_t what = any(8000);

        if (what < 20 && depth < DEPTH && atomic_load(&world->living) < LIVING)
                do_fork();
        else if (what >= 20 && what < 40)
                bury_for_slots(&tree);
        else if (what >= 40 && what < 42)
                do_exec();
        else if (what >= 42 && what < 50)
                do_end();
}

static void step(void)
{
        struct held *h = &held[nheld ? any(nheld) : 0];

        is_writing();
        if (world->plant == LATE_SUM)
                store_late_sums();
        switch (any(8)) {
        case 0: case 1: case 2:
                take();
                break;
        case 3: case 4:
                if (nheld)
                        rewrite(h);
                break;
        case 5: case 6:
                if (any(HELD) < nheld)  /* so it comes to hold most of what it may */
                        let_go(world->plant == EARLY_REUSE ? some_under_way(h) : h);
                break;
        default:
                do_seldom();
        }
}

static _Noreturn void run(void)
{
        for (uint64_t n = 0; !told_to_end; n++) {
                uint64_t before = reads;
                for (unsigned i = 0; i < READS && nheld; i++)
                        read_one();
                if (reads == before)
                        usleep(20);     /* all that it has is still under way */
                step();
                if (n % 1024 == 0) {
                        end_without_node();
                        reap();
                }
        }
        do_end();
}

void actor_child(const struct tree *t, const struct tree_child *c)
{
        tree = *t;
        be_child(c);
        run();
}

/* As slabs_adopt() and slabs_start() in runtime/far/slabs.c. */
void actor_again(const char *text)
{
        struct tree_child c;
        char why[256];
        int fd;

        if (sscanf(text, "%d %d %u %u %d", &fd, &world_fd, &depth, &c.number, &c.life) != 5)
                _exit(3);
        world = mmap(NULL, sizeof(*world), PROT_READ | PROT_WRITE, MAP_SHARED, world_fd, 0);
        if (world == MAP_FAILED)
                _exit(3);
        if (privfd_adopt(fd) != 0 || privfd_adopt(c.life) != 0)
                die_(3, "the tree's descriptors were not inherited");
        if (tree_attach(&tree, fd, NULL, why, sizeof(why)) != 0)
                die_(3, "%s", why);
        tree_be_child(&tree, &c);
        start();
        run();
}
