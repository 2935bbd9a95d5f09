/*
 * Model check of the slots that processes share (kern/far/slotmap.c, runtime/far/tree_hold.c):
 * simulated processes take, free, write, fork and die, and may be interrupted, or killed for good,
 * before and after each atomic operation.
 *
 * The slots that each process believes to hold, and its pages there, are kept apart from the code
 * under test.  So a slot handed out twice, freed under a reader or written under a reader shows as
 * a wrong content; and in the end, when all are buried, no slot may be left.
 *
 * In some runs the second slab is at a node that cannot fence: a page that was sent more than once,
 * or whose sender died, may arrive there at any later time, again and again.
 *
 *   SEED=n STEPS=n test_tree_model
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <cmocka.h>
#include "pager_sched.h"

/* Where a process may die: at each atomic operation of the code under test. */
static void crash_point(void);
#define point crash_point
#include "pager_hooks.h"
#undef point

#define point() crash_point()
#include "far/slotmap.c"
#include "far/tree_hold.c"
#undef point

#define SEATS  6                        /* processes at one time */
#define SLABS  2
/* slots of a slab: few, so that all processes meet */
#define PAGES  6
#define SLOTS  (SLABS * PAGES)

/* ---- the world ---- */

static struct tree_head *head;
static char *units;
static _Atomic uint64_t *bits;
static struct slab slabs[SLABS];
static uint64_t content[SLOTS], writes;
static unsigned in_use[SLOTS];          /* believed holders */

struct seat {
        enum { EMPTY, ALIVE, DEAD, BURYING } state;
        bool doomed;                    /* dies at its next point */
        jmp_buf top;
        struct tree tree;
        struct slotmap map;
        unsigned n;                     /* believes to hold: */
        uint64_t slot[SLOTS], expect[SLOTS];
        uint64_t taking;                /* not written yet; SLOT_NONE: no slot */
        struct seat *child;             /* being shared with */
};
static struct seat seats[SEATS], *running;
static int burying = -1;                /* the seat that holds the "lock" for burying */
static bool no_more_kills;
static uint64_t kills, forks, taken, shared_released, buried, came_late, retired, slots_freed;

/* A process that buries has no more time, now and then: then another may continue. */
#define TIME_OVER 1
int64_t now_ms(void) { return chance(3) ? TIME_OVER : 0; }

/* Pages on their way to the node that cannot fence. */
static struct { uint64_t slot, value; } under_way[32];
static unsigned nunder_way;
static bool fences;                     /* so none is under way */

static unsigned index_of(uint64_t slot) { return slot_slab(slot) * PAGES + slot_page(slot); }

_Noreturn void env_bug(const char *what, uint64_t a, uint64_t b)
{
        sched_fail("env_bug: %s: %#lx %#lx", what, (unsigned long)a, (unsigned long)b);
        abort();
}

static void crash_point(void)
{
        struct seat *me = running;

        (point)();                      /* others may run meanwhile */
        running = me;
        if (me && me->doomed) {
                me->doomed = false;
                longjmp(me->top, 1);
        }
}

/* Now and then a page arrives late, or a process is killed: at once if it is not running, since it
 * never continues. */
static void tick(void)
{
        if (nunder_way && chance(20)) {
                unsigned i = rnd(nunder_way);
                content[index_of(under_way[i].slot)] = under_way[i].value;
                came_late++;
        }
        if (no_more_kills || !chance(600))
                return;
        struct seat *s = &seats[rnd(SEATS)];
        if (s->state == ALIVE)
                s->doomed = true;
}

/* ---- one process ---- */

static void believe(struct seat *s, uint64_t slot, uint64_t value)
{
        s->slot[s->n] = slot;
        s->expect[s->n++] = value;
        in_use[index_of(slot)]++;
}

static void forget(struct seat *s, unsigned i)
{
        in_use[index_of(s->slot[i])]--;
        s->n--;
        s->slot[i] = s->slot[s->n];
        s->expect[i] = s->expect[s->n];
}

static void check_content(struct seat *s)
{
        for (unsigned i = 0; i < s->n; i++)
                if (content[index_of(s->slot[i])] != s->expect[i])
                        sched_fail("process %u: slot %#lx holds %lu, not %lu", s->map.self,
                                   (unsigned long)s->slot[i],
                                   (unsigned long)content[index_of(s->slot[i])],
                                   (unsigned long)s->expect[i]);
}

/* As io.c and the driver of NBD nodes do. */
static void send_page(uint64_t slot, uint64_t value)
{
        slot_word_t *word = slot_word(units, slot);

        if (fences || slot_slab(slot) == 0) {
                content[index_of(slot)] = value;
                return;
        }
        slot_write_begins(word);
        unsigned i = nunder_way < 32 ? nunder_way++ : rnd(32);
        under_way[i].slot = slot;
        under_way[i].value = value;
        crash_point();
        content[index_of(slot)] = value;
        crash_point();
        if (chance(20))
                return;                 /* the second copy was answered; one is under way */
        for (i = 0; i < nunder_way; i++)
                if (under_way[i].value == value)
                        under_way[i--] = under_way[--nunder_way];
        slot_write_ends(word);
}

static void take(struct seat *s)
{
        if (s->n == SLOTS)
                return;
        uint64_t slot = slotmap_take(&s->map, chance(2));
        if (slot == SLOT_NONE)
                return;
        if (in_use[index_of(slot)])
                sched_fail("process %u: slot %#lx was handed out, but has %u holders", s->map.self,
                           (unsigned long)slot, in_use[index_of(slot)]);
        taken++;
        uint64_t value = ++writes;
        in_use[index_of(slot)]++;
        s->taking = slot;
        send_page(slot, value);
        in_use[index_of(slot)]--;
        s->taking = SLOT_NONE;
        believe(s, slot, value);
}

static void let_go(struct seat *s, unsigned i)
{
        uint64_t slot = s->slot[i];
        /* a process killed from here on would not use it any more */
        forget(s, i);
        if (slotmap_put(&s->map, slot))
                return;
        shared_released++;
        if (tree_release(&s->tree, &slot, 1) != 0)
                sched_fail("process %u: slot %#lx cannot be released", s->map.self,
                           (unsigned long)slot);
}

static void write_back(struct seat *s, unsigned i)
{
        if (slotmap_writable(&s->map, s->slot[i])) {
                if (in_use[index_of(s->slot[i])] != 1)
                        sched_fail("process %u: slot %#lx is writable, but has other holders",
                                   s->map.self, (unsigned long)s->slot[i]);
                s->expect[i] = ++writes;
                send_page(s->slot[i], s->expect[i]);
        } else {
                take(s);
                let_go(s, i);
        }
}

static void start(struct seat *s)
{
        s->tree = (struct tree){
                .self = (uint32_t)(s - seats), .head = head, .units = units, .bits = bits
        };
        slotmap_init(&s->map, units, slabs, s->tree.self);
        s->map.nslabs = SLABS;
        s->n = 0;
        s->taking = SLOT_NONE;
        s->state = ALIVE;
}

static void do_fork(struct seat *s)
{
        for (struct seat *c = seats; c < seats + SEATS; c++) {
                if (c->state != EMPTY)
                        continue;
                c->state = BURYING;     /* so that no other seat takes it */
                s->child = c;
                for (unsigned i = 0; i < s->n; i++)
                        if (tree_share(&s->tree, (uint32_t)(c - seats), &s->slot[i], 1) != 0)
                                sched_fail("process %u: slot %#lx cannot be shared", s->map.self,
                                           (unsigned long)s->slot[i]);
                s->child = NULL;
                start(c);
                for (unsigned i = 0; i < s->n; i++)
                        believe(c, s->slot[i], s->expect[i]);
                forks++;
                return;
        }
}

/* As tree_mend_locked() does, under a lock that goes with its holder. */
static void mend(struct seat *s)
{
        if (burying >= 0)
                return;
        burying = (int)s->map.self;
        for (struct seat *d = seats; d < seats + SEATS; d++)
                if (d->state == DEAD &&
                    tree_bury(&s->tree, (uint32_t)(d - seats), TIME_OVER, &slots_freed)) {
                        d->state = EMPTY;
                        buried++;
                }
        burying = -1;
}

static void died(struct seat *s)
{
        kills++;
        if (burying == (int)s->map.self)
                burying = -1;
        if (s->child)                   /* never came up */
                s->child->state = DEAD;
        s->child = NULL;
        while (s->n)
                forget(s, s->n - 1);
        if (s->taking != SLOT_NONE)
                in_use[index_of(s->taking)]--;
        s->state = DEAD;
}

static void live(struct seat *s)
{
        check_content(s);
        switch (rnd(12)) {
        case 0: case 1: case 2: case 3:
                take(s);
                break;
        case 4: case 5: case 6:
                if (s->n)
                        let_go(s, rnd(s->n));
                break;
        case 7: case 8:
                if (s->n)
                        write_back(s, rnd(s->n));
                break;
        case 9: case 10:
                mend(s);
                break;
        case 11:
                do_fork(s);
        }
}

static bool all_dead(void)
{
        for (struct seat *s = seats; s < seats + SEATS; s++)
                if (s->state == ALIVE || s->state == EMPTY)
                        return false;
        return true;
}

static int rounds;
static void actor(void *arg)
{
        struct seat *s = arg;

        while (rounds > 0 && !all_dead()) {
                running = s;
                if (setjmp(s->top)) {
                        died(s);
                } else if (s->state == ALIVE) {
                        live(s);
                        rounds--;
                } else if (s->state == EMPTY && chance(50)) {
                        start(s);
                        rounds--;
                }
                running = s;
                crash_point();
        }
}

/* ---- the run ---- */

static void clear(void)
{
        for (uint32_t i = 0; i < SLABS; i++) {
                struct slab_map *map = tree_map(units, i);
                memset((void *)map->word, 0, PAGES * sizeof(map->word[0]));
                memset((void *)map->chunk, 0, sizeof(map->chunk));
                memset((void *)map->touched, 0, SEATS * sizeof(map->touched[0]));
        }
        for (uint32_t p = 0; p < SEATS; p++)
                for (uint32_t i = 0; i < SLABS; i++)
                        *(uint64_t *)&bits[(i * TREE_PROCESSES + p) * (SLAB_PAGES / 64)] = 0;
        memset(units, 0, sizeof(struct tree_common));
        memset(seats, 0, sizeof(seats));
        memset(in_use, 0, sizeof(in_use));
        ((struct tree_common *)units)->numbers = SEATS;
        burying = -1;
        nunder_way = 0;
}

/* The dead are buried, and the living release all they hold. Then nothing may be left but slots
 * that are retired, and a last process finds all others free. Nothing is buried after that: it
 * would repair what must not happen among the living. */
static void last_one(void)
{
        struct seat *s = &seats[0];
        running = NULL;
        for (struct seat *d = seats; d < seats + SEATS; d++)
                if (d->state == DEAD)
                        tree_bury(&(struct tree){ .self = SEATS - 1,
                                                  .head = head,
                                                  .units = units,
                                                  .bits = bits },
                                  (uint32_t)(d - seats), INT64_MAX, &slots_freed);
        for (unsigned i = 0; i < SLOTS; i++)
                if (tree_map(units, i / PAGES)->chunk[0] == CHUNK_FULL &&
                    tree_map(units, i / PAGES)->word[i % PAGES] == SLOT_FREE)
                        sched_fail("slot %u is free, but its chunk says that it is full", i);
        for (struct seat *d = seats; d < seats + SEATS; d++)
                while (d->state == ALIVE && d->n)
                        let_go(d, 0);
        unsigned left = SLOTS;
        for (unsigned i = 0; i < SLOTS; i++) {
                uint16_t word = tree_map(units, i / PAGES)->word[i % PAGES];
                left -= i >= PAGES && word == SLOT_DUE;
                if (word != SLOT_FREE && (i < PAGES || word != SLOT_DUE))
                        sched_fail("slot %u leaked: word %#x", i, word);
        }
        retired += SLOTS - left;
        start(s);
        for (unsigned i = 0; i < left; i++)
                if (slotmap_take(&s->map, true) == SLOT_NONE) {
                        sched_fail("only %u of %u slots can be found in the end", i, left);
                        return;
                }
        for (uint32_t i = 0; i < SLABS; i++)
                for (uint32_t p = 0; p < PAGES; p++)
                        if (tree_map(units, i)->word[p] != SLOT_OWNED &&
                            tree_map(units, i)->word[p] != SLOT_DUE)
                                sched_fail("slot %u of slab %u: word %#x", p, i,
                                           tree_map(units, i)->word[p]);
}

static void model(void **state)
{
        uint64_t seed = sched_setting("SEED", 1);
        uint64_t steps = sched_setting("STEPS", 6000000 / sched_slow);

        (void)state;
        for (; sched_steps < steps; seed++) {
                sched_seed(seed);
                sched_reset(1 + rnd(12), tick);
                clear();
                no_more_kills = chance(8);
                fences = !chance(4);
                rounds = 50 + (int)rnd(300);
                for (unsigned i = 0; i < SEATS; i++)
                        sched_spawn(actor, &seats[i]);
                int err = sched_run();
                no_more_kills = true;
                if (!err)
                        last_one();
                if (err || sched_failed())
                        fail_msg("SEED=%lu fails", (unsigned long)seed);
        }
        print_message("# %lu taken, %lu forks, %lu shared slots let go, %lu kills, %lu buried, "
                      "%lu pages came late, %lu slots retired\n",
                      (unsigned long)taken, (unsigned long)forks, (unsigned long)shared_released,
                      (unsigned long)kills, (unsigned long)buried, (unsigned long)came_late,
                      (unsigned long)retired);
        /* The run met what it is for. */
        if (steps >= 6000000)
                assert_true(forks > 100 && kills > 100 && buried > 100 && shared_released > 100 &&
                            came_late > 100 && retired > 100);
}

static int setup(void **state)
{
        (void)state;
        const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
        head = calloc(1, sizeof(*head));
        units = mmap(NULL, (1 + SLABS) * SLAB_MAP_SIZE, PROT_READ | PROT_WRITE, flags, -1, 0);
        bits = mmap(NULL, SLABS * SLAB_BITS_SIZE, PROT_READ | PROT_WRITE, flags, -1, 0);
        if (!head || units == MAP_FAILED || bits == MAP_FAILED)
                return -1;
        head->nslabs = SLABS;
        for (uint32_t i = 0; i < SLABS; i++)
                slabs[i] = (struct slab){ .kind = SLAB_MEMORY, .pages = PAGES };
        return 0;
}

int main(void)
{
        const struct CMUnitTest tests[] = { cmocka_unit_test(model) };
        return cmocka_run_group_tests_name("tree model", tests, setup, NULL);
}
