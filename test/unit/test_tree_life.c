/*
 * Which processes of a tree are alive (runtime/far/tree_life.c), with real processes: one forks,
 * executes a program, or has a child of vfork execute one, natively too, or in vain.  In each round
 * it or its child stops, or is killed, before or after one of the system calls on that way; then
 * the other one may be killed.  Meanwhile an observer buries dead processes: no slot is freed that
 * a process still reads, and none is kept when no process does.
 *
 *   SEED=n ROUNDS=n test_tree_life [--full]
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <cmocka.h>
#include "base/privfd.h"
#include "common/clock.h"
#include "tree_actor.h"

/* ---- where a process stops or dies: around each system call of the code under test ---- */

static void at(void);
#define around(call) ({ at(); __auto_type r_ = (call); at(); r_; })
#define fcntl(...)       around(fcntl(__VA_ARGS__))
#define memfd_again(fd)  around(memfd_again(fd))
#define privfd_close(fd) around((privfd_close(fd), 0))
#include "far/tree_life.c"
#undef fcntl
#undef memfd_again
#undef privfd_close

/* ---- a round ---- */

#define FEW   8                         /* slots of a process */
#define STEPS 16                        /* no way has more */

enum role { PARENT, CHILD, ROLES };     /* CHILD: or the program after execve */
static struct round {
        enum { FORK, EXEC, VFORK, KINDS } kind;
        /* EXEC, VFORK: the program that is executed knows no tree; is no file */
        bool natively, in_vain;
        enum role victim;
        unsigned step;                  /* which one, of the victim's */
        bool kills;
        _Atomic bool struck, executed;
        struct {
                _Atomic enum { NOT_YET, LIVES, READY, OVER } state;
                _Atomic bool doomed;    /* it was killed, or is just being killed */
                _Atomic int pid;
                _Atomic uint32_t number;
                unsigned n;
                uint64_t slot[FEW];
        } of[ROLES];
} *round_;
static int round_fd;
static enum role role = ROLES;          /* of this process; ROLES: the observer */
static unsigned steps;

static void enter(enum role r, int state)
{
        role = r;
        steps = 0;
        alarm(100);                     /* the observer may have ended */
        round_->of[r].pid = (int)syscall(SYS_getpid);
        round_->of[r].state = state;
}

static void at(void)
{
        if (role == ROLES || role != round_->victim || ++steps != round_->step)
                return;
        round_->struck = true;
        if (round_->kills)
                round_->of[role].doomed = true;
        syscall(SYS_kill, syscall(SYS_getpid), round_->kills ? SIGKILL : SIGSTOP);
}

static void hold(enum role r, const struct actor *a)
{
        round_->of[r].number = a->tree.self;
        round_->of[r].n = a->n;
        memcpy(round_->of[r].slot, a->slot, a->n * sizeof(a->slot[0]));
}

/* The way is over, or it was none: the process reads its slots until it is killed. */
static _Noreturn void read_on(struct actor *a)
{
        role = ROLES;
        for (;; usleep(200))
                for (unsigned i = 0; i < a->n; i++)
                        check(a, i);
}

/* ---- what vmrun does ---- */

static int execute(const struct actor *a, const struct tree_child *c)
{
        char text[80];

        snprintf(text, sizeof(text), "%d %d %d %u %d", round_fd, world_fd, a->tree.fd, c->number,
                 c->life);
        at();
        if (!round_->in_vain) {         /* from here on it may be another program */
                round_->executed = true;
                if (role == PARENT)
                        round_->of[PARENT].state = OVER;
        }
        execl(round_->in_vain ? "/nothing" : "/proc/self/exe", "test_tree_life",
              round_->natively ? "--native" : "--program", text, NULL);
        return -1;
}

/* As process/handover.c does. */
static void pass_on(const struct actor *a, const struct tree_child *c, int flags)
{
        fcntl(a->tree.fd, F_SETFD, flags);
        fcntl(c->life, F_SETFD, flags);
        at();
}

static void do_fork(struct actor *a)
{
        struct tree_child c;

        if (tree_child(&a->tree, &c) != 0 || tree_share(&a->tree, c.number, a->slot, a->n) != 0)
                _exit(3);
        hold(CHILD, a);
        round_->of[CHILD].number = c.number;
        at();
        if (fork() == 0) {
                enter(CHILD, LIVES);
                at();
                tree_be_child(&a->tree, &c);
                at();
                round_->of[CHILD].state = READY;
                read_on(a);
        }
        at();
        tree_child_left(&c);
}

static void do_exec(struct actor *a)
{
        struct tree_child c = { .life = -1 };

        if (!round_->natively && tree_child(&a->tree, &c) != 0)
                _exit(3);
        round_->of[CHILD].number = c.number;
        if (!round_->natively)
                pass_on(a, &c, 0);
        execute(a, &c);
        pass_on(a, &c, FD_CLOEXEC);
        tree_child_left(&c);
}

struct spawn { struct actor *a; int number; };
static int be_spawned(void *arg)
{
        const struct spawn *s = arg;
        struct tree_child c = { .life = -1 };

        enter(CHILD, LIVES);
        at();
        if (!round_->natively) {
                c = tree_expected(&s->a->tree, s->number);
                pass_on(s->a, &c, 0);
        }
        execute(s->a, &c);
        round_->of[CHILD].state = OVER;
        at();
        _exit(0);
}

static void do_vfork(struct actor *a)
{
        static _Alignas(64) char stack[64 << 10];
        struct spawn s = { a, tree_expect(&a->tree) };

        if (s.number < 0)
                _exit(3);
        round_->of[CHILD].number = (uint32_t)s.number;
        mend(&a->tree);                 /* as another thread may */
        at();
        unsigned own = steps;
        clone(be_spawned, stack + sizeof(stack), CLONE_VM | CLONE_VFORK | SIGCHLD, &s);
        role = PARENT;
        steps = own;
        at();
        tree_expect_end(&a->tree, s.number);
}

static _Noreturn void be_parent(struct actor *a, const struct tree_child *c)
{
        static void (*const way[])(struct actor *) = { do_fork, do_exec, do_vfork };

        setpgid(0, 0);
        tree_be_child(&a->tree, c);
        start(a, (uint64_t)getpid());
        while (a->n < FEW)
                take(a);
        hold(PARENT, a);
        enter(PARENT, LIVES);
        way[round_->kind](a);
        round_->of[PARENT].state = READY;
        read_on(a);
}

static void *map_file(int fd, size_t size)
{
        void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (p == MAP_FAILED)
                _exit(3);
        return p;
}

/* A program that was executed. */
static _Noreturn void be_program(const char *text, bool natively)
{
        static struct actor a;
        struct tree_child c;
        char why[256];
        int fd;

        if (sscanf(text, "%d %d %d %u %d", &round_fd, &world_fd, &fd, &c.number, &c.life) != 5)
                _exit(3);
        round_ = map_file(round_fd, sizeof(*round_));
        world = map_file(world_fd, sizeof(*world));
        enter(CHILD, natively ? READY : LIVES);
        while (natively)
                pause();
        at();
        if (privfd_adopt(fd) != 0 || privfd_adopt(c.life) != 0 ||
            tree_attach(&a.tree, fd, NULL, why, sizeof(why)) != 0)
                die_(3, "the tree was not inherited");
        at();
        tree_be_child(&a.tree, &c);
        for (uint32_t i = 0; i < SLABS; i++)
                slabs[i] = (struct slab){ .kind = SLAB_MEMORY, .pages = PAGES };
        start(&a, (uint64_t)getpid());
        while (a.n < FEW)
                take(&a);
        hold(CHILD, &a);
        round_->of[CHILD].state = READY;
        read_on(&a);
}

/* ---- the observer ---- */

/* Does a process run, for certain, with the slots of r? */
static bool is_there(enum role r)
{
        bool runs = (round_->of[r].state == LIVES || round_->of[r].state == READY) &&
                    !round_->of[r].doomed;

        if (r == PARENT && round_->kind == VFORK && !round_->executed && is_there(CHILD))
                return true;            /* in its parent's memory */
        return runs && !(r == CHILD && round_->natively && round_->executed);
}

/* A process that is there before and after was there meanwhile.  One that has stopped may have the
 * tree's lock. */
static void look(struct actor *a)
{
        if (tree_lock_within(&a->tree, 5)) {
                tree_mend_locked(&a->tree);
                tree_unlock(&a->tree);
        }
        for (enum role r = PARENT; r < ROLES; r++) {
                bool was = is_there(r), freed = false;
                uint32_t p = round_->of[r].number;
                for (unsigned i = 0; was && i < round_->of[r].n; i++)
                        freed |= *slot_word(a->tree.units, round_->of[r].slot[i]) == SLOT_FREE;
                freed |= was && a->tree.head->record[p].state != RECORD_USED;
                if (freed && is_there(r))
                        wrong(a, "freed too early", round_->of[r].slot[0], p, r);
        }
}

static void kill_role(enum role r)
{
        round_->of[r].doomed = true;
        if (round_->kind == EXEC)       /* one process */
                round_->of[!r].doomed = true;
        if (round_->of[r].pid)
                kill(round_->of[r].pid, SIGKILL);
}

static bool is_over(enum role r)
{
        return round_->of[r].state >= READY || round_->of[r].doomed;
}

/* It has stopped (T), as it said it would, or has ended and waits for its parent (Z). */
static void wait_for_state(pid_t pid, char state)
{
        char path[32], text[64];
        const char *is;

        snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
        for (int64_t end = now_ms() + 20000;; usleep(20)) {
                int fd = open(path, O_RDONLY);
                ssize_t n = read(fd, text, sizeof(text) - 1);
                close(fd);
                text[n > 0 ? n : 0] = '\0';
                is = strchr(text, ')');
                if (is && is[2] == state)
                        return;
                if (now_ms() > end)
                        fail_msg("process %d is not in state %c: %s", (int)pid, state, text);
        }
}

static bool is_settled(pid_t pid)
{
        siginfo_t info = { 0 };

        if (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid)
                return true;
        if (round_->of[PARENT].state == READY)
                return round_->in_vain || is_over(CHILD);
        return round_->kind == EXEC && round_->of[CHILD].state == READY;
}

static void expect(struct actor *a, enum role r, bool alive)
{
        uint32_t p = round_->of[r].number;
        bool is = alive;

        /* A process that has ended may have a sanitizer's thread for a moment. */
        for (int64_t end = now_ms() + 5000; p; usleep(100)) {
                mend(&a->tree);
                is = a->tree.head->record[p].state == RECORD_USED;
                if (is == alive || now_ms() > end)
                        break;
        }
        if (is != alive)
                wrong(a, alive ? "is not kept" : "is kept for no process", 0, p, r);
}

/* In a round without a strike: neither process keeps the other one alive when that has ended. */
static void look_at_end(struct actor *a)
{
        bool program = !round_->natively && !round_->in_vain;

        if (round_->kind == EXEC) {
                expect(a, PARENT, round_->in_vain);
                expect(a, CHILD, program);
                return;
        }
        if (round_->in_vain)            /* its parent went on before its end was complete */
                wait_for_state(round_->of[CHILD].pid, 'Z');
        enum role first = rnd(a, ROLES);
        kill_role(first);
        wait_for_state(round_->of[first].pid, 'Z');
        expect(a, first, false);
        expect(a, !first, first == CHILD || program);
}

static void draw(struct actor *a)
{
        memset(round_, 0, sizeof(*round_));
        round_->kind = rnd(a, KINDS);
        round_->natively = round_->kind != FORK && rnd(a, 4) == 0;
        round_->in_vain = round_->kind != FORK && rnd(a, 4) == 0;
        round_->victim = rnd(a, ROLES);
        round_->step = rnd(a, STEPS);   /* 0: none */
        round_->kills = rnd(a, 2);
}

/* The victim is killed, or it stops: then it is continued, or one of the two is killed. */
static void see_the_strike(struct actor *a)
{
        if (!round_->kills)
                wait_for_state(round_->of[round_->victim].pid, 'T');
        look(a);
        if (round_->kills)
                return;
        if (rnd(a, 2))
                kill_role(rnd(a, ROLES));
        look(a);
        usleep(rnd(a, 300));
        look(a);
        for (enum role r = PARENT; r < ROLES; r++)
                if (round_->of[r].pid)
                        kill(round_->of[r].pid, SIGCONT);
}

/* True: a process was struck. */
static bool one_round(struct actor *a)
{
        struct tree_child c;
        bool struck = false;

        draw(a);
        if (tree_child(&a->tree, &c) != 0)
                fail_msg("no number");
        pid_t pid = fork();
        if (pid == 0)
                be_parent(a, &c);
        setpgid(pid, pid);
        tree_child_left(&c);
        for (int64_t end = now_ms() + 20000; !is_settled(pid); usleep(20)) {
                if (now_ms() > end)
                        fail_msg("kind %d, step %u: it hangs", round_->kind, round_->step);
                if (atomic_exchange(&round_->struck, false)) {  /* the program, too, has steps */
                        struck = true;
                        see_the_strike(a);
                }
                if (round_->of[PARENT].doomed || round_->of[CHILD].doomed)
                        break;
        }
        struck |= round_->struck;
        look(a);
        usleep(struck ? rnd(a, 300) : 0);       /* the process that is left runs meanwhile */
        look(a);
        if (!struck)
                look_at_end(a);
        look(a);
        kill(-pid, SIGKILL);
        while (waitpid(-1, NULL, 0) > 0 || errno == EINTR)
                ;
        if (!tree_alone(&a->tree))
                wrong(a, "kept for no process", 0, round_->kind, round_->step);
        return struck;
}

static bool full;

static void lives(void **state)
{
        static struct actor a;
        unsigned stops = 0, kills = 0;

        (void)state;
        round_fd = memfd_create("round", 0);
        if (round_fd < 0 || ftruncate(round_fd, sizeof(*round_)) != 0)
                fail_msg("no memory file");
        round_ = map_file(round_fd, sizeof(*round_));
        prctl(PR_SET_CHILD_SUBREAPER, 1);
        begin(&a);
        for (unsigned n = number("ROUNDS", full ? 10000 : 500); n-- && !world->failures;) {
                if (one_round(&a))
                        *(round_->kills ? &kills : &stops) += 1;
        }
        print_message("# %u stopped, %u killed\n", stops, kills);
        if (world->failures)
                fail_msg("%s: kind %d%s%s, victim %d, step %u", world->text, round_->kind,
                         round_->natively ? ", natively" : "", round_->in_vain ? ", in vain" : "",
                         round_->victim, round_->step);
        count_all(&a);
        assert_true(stops && kills);
        tree_close(&a.tree);
}

int main(int argc, char **argv)
{
        const struct CMUnitTest tests[] = { cmocka_unit_test(lives) };

        if (argc == 3)
                be_program(argv[2], strcmp(argv[1], "--native") == 0);
        full = argc == 2;
        return cmocka_run_group_tests_name("tree life", tests, setup, NULL);
}
