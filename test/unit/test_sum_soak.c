/*
 * The sums of pages and of their pieces (runtime/far/sums.c), which are kept for each slot in the
 * memory of a process tree.  No sum may be wrong for a page that is right, and none right for a
 * page that is wrong, while processes fork, execute, end and are killed, and slots of the dead go
 * to others.  Some writes keep no sums of pieces, as of a process that does not know yet that
 * others read parts.  With real processes, kern's allocator and the tree's own code; the node is a
 * memory that all share, to which writes of the dead may come late.
 *
 * Then the soak runs once for each bug of a list, planted in what surrounds that code: every time
 * an error must be found.
 *
 *   test_sum_soak [--full] [--plant NAME] [READS [SEED]]
 *
 * --full: 10^9 reads, and no planted bugs.  --plant: with this bug alone, so it fails; a wrong NAME
 * lists them.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include "common/clock.h"
#include "far/memfd.h"
#include "soak.h"

#define FAMILIES   3
/* Reads of all processes between two kills, at most; so the kills of a run are about as many on a
 * busy machine.  And a time after which there is one anyway. */
#define QUIET      100000
#define QUIET_MS   500
#define END_MS     20000                /* for all to be gone at the end */
#define FULL       1000000000ull
#define BUG_LIMIT  40000000ull          /* reads until a planted bug must have been found */

/* What a planted bug must be found by; with ANY, it depends on which process is faster. */
static const struct {
        const char *name;
        enum { ANY, FALSE_ALARM, ALARM, MISSED } finding;
} plants[PLANTS] = {
        [NO_PLANT] = { "none", ANY },
        [LATE_SUM] = { "late-sum", FALSE_ALARM },
        [SWAPPED] = { "swapped", ALARM },
        [UNSEEDED] = { "unseeded", MISSED },
        [UNCUT] = { "uncut", ANY },
        [EARLY_REUSE] = { "early-reuse", ANY },
        [FALSE_STILL] = { "false-still", ANY },
        [WRITE_SHARED] = { "write-shared", ANY },
        [EARLY_READ] = { "early-read", ANY },
        [FLIPPED] = { "flipped", ALARM },
        [LOST] = { "lost", ALARM },
        [UNPROVED] = { "unproved", FALSE_ALARM },
};

static uint64_t wanted_reads = 3000000, wanted_seed = 1;
static enum plant wanted_plant = NO_PLANT;

static struct tree tree;
static uint64_t random_state;
/* Processes with their descendants; each is a process group.  0: none. */
static pid_t family[FAMILIES];

/* ---- the families ---- */

/* It stays a zombie, so no other process gets its number, which is the group's. */
static bool has_ended(pid_t pid)
{
        siginfo_t info = { 0 };

        return waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid;
}

/* The first of a family holds no slot yet. */
static void spawn(pid_t *f)
{
        struct tree_child c;

        bury(&tree);
        if (tree_child(&tree, &c) != 0)
                return;
        pid_t pid = fork();
        if (pid == 0) {
                setpgid(0, 0);
                actor_child(&tree, &c);
        }
        if (pid < 0) {
                failure("no process can be made");
        } else {
                setpgid(pid, pid);
                *f = pid;
        }
        tree_child_left(&c);
}

/* Also those whose parents died: they have become children of this process. */
static void end_family(pid_t *f)
{
        int status;
        pid_t pid;

        kill(-*f, SIGKILL);
        while ((pid = waitpid(-*f, &status, 0)) > 0)
                check_end(pid, status);
        *f = 0;
}

/* The first of a family is killed or told to end, and leaves its children behind for a moment; or
 * all of the family are killed. */
static void strike(void)
{
        pid_t *f = &family[rnd(&random_state, FAMILIES)];

        if (*f && !has_ended(*f) && rnd(&random_state, 2)) {
                bool end = world->plant == FALSE_STILL || rnd(&random_state, 2);
                kill(*f, end ? SIGTERM : SIGKILL);
                return;
        }
        if (*f)
                end_family(f);
        spawn(f);
}

static uint32_t living(void)
{
        const struct tree_common *c = (struct tree_common *)tree.units;
        uint32_t n = 0;

        for (uint32_t p = 0; p < atomic_load(&c->numbers); p++)
                n += tree.head->record[p].state == RECORD_USED;
        return n;
}

/* ---- a run ---- */

static void begin(enum plant plant)
{
        char why[256];

        world_fd = memfd_create("soak", 0);
        if (world_fd < 0 || ftruncate(world_fd, sizeof(*world)) != 0)
                fail_msg("no memory for the node");
        world = mmap(NULL, sizeof(*world), PROT_READ | PROT_WRITE, MAP_SHARED, world_fd, 0);
        if (world == MAP_FAILED || tree_make(&tree, SLABS, NULL, why, sizeof(why)) != 0)
                fail_msg("no memory for the tree");
        tree.head->nnodes = 1;
        for (uint32_t i = 0; i < SLABS; i++)
                tree.head->slab[i] = (struct tree_slab){
                        .kind = SLAB_REMOTE, .pages = PAGES, .places = 1
                };
        tree.head->nslabs = SLABS;
        assert_int_equal(tree_join(&tree), 0);
        world->plant = plant;
        world->seed = wanted_seed;
        random_state = wanted_seed * 0x9e3779b97f4a7c15ull | 1;
        node_begin(&tree);
}

/* All others have ended: no slot may be left to them. */
static void check_leaks(void)
{
        for (uint32_t i = 0; i < SLABS; i++)
                for (uint32_t p = 0; p < PAGES; p++)
                        if (tree_map(tree.units, i)->word[p] != SLOT_FREE)
                                failure("slot %u of slab %u leaked: word %#x", p, i,
                                        tree_map(tree.units, i)->word[p]);
}

static void end_all(void)
{
        bool alone = false;

        for (unsigned i = 0; i < FAMILIES; i++)
                if (family[i])
                        end_family(&family[i]);
        for (int64_t end = now_ms() + END_MS; !alone && now_ms() < end; usleep(1000)) {
                bury_for_slots(&tree);
                tree_lock(&tree);
                alone = tree_alone_locked(&tree);
                tree_unlock(&tree);
        }
        if (!alone)
                failure("a dead process cannot be buried");
        if (!world->failures)
                check_leaks();
        /* The process that failed may have been killed while it wrote its text. */
        if (world->failures && !world->said)
                strcpy(world->text, "it was killed before it could say more");
}

/* Until `reads` pages were read, or something failed. */
static void run(enum plant plant, uint64_t reads)
{
        uint64_t done = 0, next = 0;
        int64_t limit = 0;

        begin(plant);
        while ((done = atomic_load(&world->reads)) < reads && !world->failures) {
                node_turn();
                atomic_store(&world->living, living());
                if (done < next && now_ms() < limit)
                        continue;
                strike();
                /* Some bugs show when a process dies: those are looked for with more deaths. */
                next = done + rnd(&random_state, plant == NO_PLANT ? QUIET : QUIET / 4);
                limit = now_ms() + QUIET_MS;
        }
        if (world->failures && !world->said)
                usleep(100000);
        end_all();
}

static void forget(void)
{
        tree_close(&tree);
        munmap(world, sizeof(*world));
        close(world_fd);
}

#define COUNT(what) ((unsigned long long)atomic_load(&world->what))

static void report(int64_t took_ms)
{
        print_message("# seed %llu: %llu page reads, of which %llu of pieces, and %llu writes in "
                      "%.1f s\n",
                      (unsigned long long)world->seed, COUNT(reads), COUNT(pieces), COUNT(writes),
                      (double)took_ms / 1e3);
        print_message("# %llu forks, %llu execs, %llu ends, %llu kills, %llu cuts, %llu burials; "
                      "%llu slots shared, %llu released, %llu times none was free\n",
                      COUNT(forks), COUNT(execs), COUNT(ends), COUNT(kills), COUNT(cuts),
                      (unsigned long long)tree.head->births - 1, COUNT(shared), COUNT(released),
                      COUNT(wanted));
        print_message("# %llu false alarms, %llu alarms, %llu wrong pages with a right sum\n",
                      COUNT(false_alarms), COUNT(alarms), COUNT(missed));
}

/* ---- the tests ---- */

static void sums_hold(void **state)
{
        int64_t began = now_ms();

        (void)state;
        run(wanted_plant, wanted_reads);
        report(now_ms() - began);
        uint64_t failures = world->failures;
        char text[sizeof(world->text)];
        memcpy(text, world->text, sizeof(text));
        bool enough = world->forks && world->kills && world->shared && world->released &&
                      world->pieces;
        forget();
        if (failures)
                fail_msg("%s (and %llu more)", text, (unsigned long long)failures - 1);
        assert_true(enough);
}

static bool is_found(unsigned finding)
{
        switch (finding) {
        case FALSE_ALARM: return world->false_alarms > 0;
        case ALARM:       return world->alarms > 0;
        case MISSED:      return world->missed > 0;
        default:          return world->false_alarms + world->alarms + world->missed > 0;
        }
}

static void finds_each_bug(void **state)
{
        (void)state;
        for (enum plant p = NO_PLANT + 1; p < PLANTS; p++) {
                int64_t began = now_ms();
                run(p, BUG_LIMIT);
                bool found = is_found(plants[p].finding);
                print_message("# %s, after %llu reads and %.2f s: %s\n", plants[p].name,
                              COUNT(reads), (double)(now_ms() - began) / 1e3,
                              found ? world->text : "not found");
                forget();
                assert_true(found);
        }
}

/* ---- the command line ---- */

static int usage(void)
{
        fprintf(stderr, "usage: test_sum_soak [--full] [--plant NAME] [READS [SEED]]\nplants:");
        for (enum plant p = NO_PLANT; p < PLANTS; p++)
                fprintf(stderr, " %s", plants[p].name);
        fputc('\n', stderr);
        return 2;
}

static bool choose_plant(const char *name)
{
        for (wanted_plant = NO_PLANT; wanted_plant < PLANTS; wanted_plant++)
                if (name && strcmp(plants[wanted_plant].name, name) == 0)
                        return true;
        return false;
}

static bool read_number(const char *text, uint64_t *n)
{
        char *end;

        *n = strtoull(text, &end, 0);
        return *text >= '0' && *text <= '9' && *end == 0;
}

int main(int argc, char **argv)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(sums_hold),
                cmocka_unit_test(finds_each_bug),
        };
        const struct CMUnitTest one[] = { cmocka_unit_test(sums_hold) };
        uint64_t *const numbers[] = { &wanted_reads, &wanted_seed };
        unsigned n = 0;
        bool all = true;

        memfd_init(open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC));
        if (argc == 3 && strcmp(argv[1], "--actor") == 0)
                actor_again(argv[2]);
        for (char **a = argv + 1; *a; a++) {
                if (strcmp(*a, "--full") == 0)
                        wanted_reads = FULL;
                else if (strcmp(*a, "--plant") == 0 ? !choose_plant(*++a)
                                                    : n == 2 || !read_number(*a, numbers[n++]))
                        return usage();
                all = false;
        }
        /* Processes whose parents die become children of this one. */
        prctl(PR_SET_CHILD_SUBREAPER, 1);
        return all ? cmocka_run_group_tests_name("sum soak", tests, NULL, NULL)
                   : cmocka_run_group_tests_name("sum soak", one, NULL, NULL);
}
