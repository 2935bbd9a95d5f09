/*
 * A model check of docs/protocol.md: processes of a tree, a node that keeps their pages, and a
 * network that delays what it likes for as long as it likes, also after a connection is closed.
 *
 * The node's rules are memnode/members.c itself; the rest is modelled, one small step at a time, in
 * an order that a seed chooses: a process writes, reads, loses a connection, is stopped, is killed;
 * the network delivers the oldest message of some connection, or the request for a connection once
 * more; a thread of the node takes half of a page; the node is restarted without its memory.  A
 * process that reads what it did not write is an error.
 *
 * Then the same with a rule left out, each in turn: every time an error must be found.  What cannot
 * be found so, because other rules cover it, is not in the list: that a thread which is cut serves
 * nothing more (its successor waits for it anyway), and that a member which was cut is refused later
 * (it sends pages only after an answer, and it is dead).
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "memnode/members.h"

enum { PROCESSES = 4, SLOTS = 6, CONNECTIONS = 64, QUEUE = 12 };

/* The rules that can be left out, by their numbers in docs/protocol.md. */
enum rule {
        NO_BUG,
        GENERATION_TWICE,               /* 2: the same generation is admitted again */
        GENERATION_BACK,                /* 2: an older one is admitted */
        OLDER_LIVES,                    /* 3: the older connection is not ended */
        ANSWERED_EARLY,                 /* 3: the answer does not wait for the older one's thread */
        CUT_ENDS_NOTHING,               /* 5: the dead member's connections live on */
        SENT_BEFORE_ANSWER,             /* 6: pages are sent again before the answer */
        NOT_SENT_AGAIN,                 /* 6: what was not answered is forgotten */
        BURIED_UNCUT,                   /* 7: slots of the dead are used before the CUT's answer */
        ANY_INCARNATION,                /* 1, 9: the incarnation is not compared */
        RULES
};
static const char *const names[] = {
        "no bug", "a generation is admitted twice", "an older generation is admitted",
        "the older connection lives on", "the answer does not wait",
        "CUT ends no connection",
        "pages are sent before the answer",
        "what was not answered is not sent again", "the dead are buried uncut",
        "any incarnation will do",
};
static enum rule bug;

/* A page has two halves, so that it can be torn. */
struct page { uint32_t half[2]; };

struct message { enum { WRITE, READ } kind; unsigned slot; struct page page; uint32_t number; };

/* A connection, at both ends and between them. */
struct connection {
        enum { UNUSED, USED } state;
        uint64_t member;
        uint32_t generation;
        uint64_t incarnation;           /* that it names */
        /* the client's end */
        bool closed;
        /* the network: the request for it, which may come again later; what the client has sent */
        bool asked, again;
        struct message sent[QUEUE];
        unsigned nsent;
        /* the node's end */
        bool admitted, answered, cut, left;
        unsigned half;                  /* of the page that its thread takes now */
        bool slice;                     /* it is within a receive, whatever is said meanwhile */
        struct message answer[QUEUE];   /* on the way back */
        unsigned nanswer;
        bool ack;                       /* the answer to the request is on the way */
};

struct process {
        uint64_t birth;                 /* 0: nobody */
        bool dead, stopped;
        uint32_t generation;
        struct connection *link;        /* NULL: to be made */
        bool up;
        struct message wait[QUEUE];     /* not answered yet */
        unsigned nwait;
        uint32_t number;
};

static struct connection connection[CONNECTIONS];
static struct process process[PROCESSES];
static uint64_t births;
static struct { unsigned owner; struct page page; bool written; } slot[SLOTS];  /* owner: 1 + who */
static struct { struct members members; struct page page[SLOTS]; uint64_t incarnation; } node;
static struct { bool under_way; uint64_t first, last; unsigned who; } cut;
static uint64_t known_incarnation;
static uint32_t version;
static uint64_t reads, rejoins, buried;
static const char *error;
static bool over;                       /* the program has ended with a message, as it may */

static uint64_t seed;
static uint32_t rnd(uint32_t n)
{
        seed = seed * 6364136223846793005ull + 1442695040888963407ull;
        return (uint32_t)(seed >> 33) % n;
}

/* ---- the node ---- */

static bool stale(const struct connection *c)
{
        return !members_is_current(&node.members, c->member, 0, c->generation) ||
               members_is_cut(&node.members, c->member);
}

static int admit(const struct connection *c)
{
        struct members *m = &node.members;
        int err = members_admit(m, c->member, 0, c->generation);

        if (err == -ESTALE && bug == GENERATION_TWICE &&
            members_is_current(m, c->member, 0, c->generation))
                return 0;
        if (err == -ESTALE && bug == GENERATION_BACK) {
                for (size_t i = 0; i < m->nknown; i++)
                        if (m->known[i].number == c->member)
                                m->known[i].generation[0] = c->generation;
                return 0;
        }
        return err;
}

/* Marks what is stale; true: all of it has left, except self. */
static bool ended(const struct connection *self)
{
        bool all = true;

        for (unsigned i = 0; i < CONNECTIONS; i++) {
                struct connection *c = &connection[i];
                if (c == self || c->state != USED || !c->admitted || c->left)
                        continue;
                bool older = bug == GENERATION_BACK || bug == GENERATION_TWICE
                                     ? self && c->member == self->member
                                     : stale(c);
                if (!older || (self ? bug == OLDER_LIVES : bug == CUT_ENDS_NOTHING))
                        continue;
                c->cut = true;
                all = false;
        }
        return all || bug == ANSWERED_EARLY;
}

/* The request for a connection arrives. */
static void request(struct connection *c)
{
        bool first = c->asked;

        if (!first && rnd(2))
                c->again = false;
        c->asked = false;
        if (c->admitted && !c->left)
                return;                 /* the network repeats it, and the node knows */
        if (c->incarnation != node.incarnation && bug != ANY_INCARNATION)
                goto refuse;
        if (admit(c) != 0)
                goto refuse;
        c->admitted = true;
        c->cut = c->left = false;
        return;
refuse:
        if (first) {                    /* the client learns it */
                for (unsigned i = 0; i < PROCESSES; i++)
                        if (process[i].link == c && !process[i].dead) {
                                if (c->incarnation != node.incarnation)
                                        over = true;
                                process[i].link = NULL;
                                c->closed = true;
                        }
        }
        c->left = true;
}

/* A thread of the node does a step for its connection. */
static void serve(struct connection *c)
{
        if (!c->admitted || c->left)
                return;
        if (!c->answered) {
                bool all = ended(c);
                if (c->cut || (stale(c) && bug != GENERATION_BACK && bug != GENERATION_TWICE))
                        c->left = true;
                else if (all)
                        c->answered = c->ack = true;
                return;
        }
        if (c->cut && !c->slice) {
                c->left = true;
                return;
        }
        if (!c->nsent) {
                c->left |= c->cut || c->closed;         /* the end of the stream */
                return;
        }
        struct message *m = &c->sent[0];
        c->slice = !c->slice;
        if (c->slice)
                return;                 /* it ends later */
        if (m->kind == WRITE)
                node.page[m->slot].half[c->half] = m->page.half[c->half];
        else
                m->page.half[c->half] = node.page[m->slot].half[c->half];
        if (c->half++ == 0)
                return;
        c->half = 0;
        if (c->nanswer < QUEUE)
                c->answer[c->nanswer++] = *m;
        memmove(&c->sent[0], &c->sent[1], --c->nsent * sizeof(*m));
}

static void restart_node(void)
{
        members_free(&node.members);
        memset(node.page, 0, sizeof(node.page));
        node.incarnation++;
        cut.under_way = false;
        for (unsigned i = 0; i < CONNECTIONS; i++)
                if (connection[i].admitted) {
                        connection[i].left = true;
                        connection[i].closed = true;
                        for (unsigned p = 0; p < PROCESSES; p++)
                                if (process[p].link == &connection[i])
                                        process[p].link = NULL;
                }
}

/* ---- processes ---- */

static void send_on(struct connection *c, const struct message *m)
{
        if (c->nsent < QUEUE)
                c->sent[c->nsent++] = *m;
        else
                error = "the model's queue is too short";
}

static void connect_(struct process *p)
{
        struct connection *c = NULL;

        for (unsigned i = 0; i < CONNECTIONS && !c; i++) {
                struct connection *o = &connection[rnd(CONNECTIONS)];
                /* an end that nobody hears of any more may be used again */
                if (o->state == UNUSED || (o->closed && o->left && !o->again && !o->asked))
                        c = o;
        }
        if (!c)
                return;
        *c = (struct connection){ .state = USED, .member = p->birth, .asked = true,
                                  .again = rnd(3) == 0, .generation = ++p->generation,
                                  .incarnation = known_incarnation };
        p->link = c;
        p->up = false;
        rejoins += p->generation > 1;
        if (bug == SENT_BEFORE_ANSWER) {
                /* on whatever connection there was: the page goes out before the older ones ended */
                c->answered = c->admitted = true;
        }
}

static void come_up(struct process *p)
{
        struct connection *c = p->link;

        if (!c->ack && bug != SENT_BEFORE_ANSWER)
                return;
        c->ack = false;
        p->up = true;
        if (bug == NOT_SENT_AGAIN) {
                for (unsigned i = 0; i < p->nwait; i++)
                        if (p->wait[i].kind == WRITE)
                                slot[p->wait[i].slot].written = true;
                p->nwait = 0;
        }
        for (unsigned i = 0; i < p->nwait; i++)
                send_on(c, &p->wait[i]);
}

static bool is_under_way(const struct process *p, unsigned s)
{
        for (unsigned i = 0; i < p->nwait; i++)
                if (p->wait[i].slot == s)
                        return true;
        return false;
}

static void post(struct process *p, struct message m)
{
        m.number = ++p->number;
        p->wait[p->nwait++] = m;
        send_on(p->link, &m);
}

static void take_answer(struct process *p)
{
        struct connection *c = p->link;
        struct message m = c->answer[0];

        memmove(&c->answer[0], &c->answer[1], --c->nanswer * sizeof(m));
        for (unsigned i = 0; i < p->nwait; i++) {
                if (p->wait[i].number != m.number)
                        continue;
                memmove(&p->wait[i], &p->wait[i + 1], (--p->nwait - i) * sizeof(m));
                if (m.kind == WRITE) {
                        slot[m.slot].written = true;
                } else {
                        reads++;
                        if (memcmp(&m.page, &slot[m.slot].page, sizeof(m.page)) != 0)
                                error = "a process read what it had not written";
                }
                return;
        }
}

static void break_link(struct process *p)
{
        p->link->closed = true;
        p->link = NULL;
}

/* Something that a program does. */
static void use(struct process *p, unsigned me)
{
        unsigned s = rnd(SLOTS);

        if (p->nwait >= QUEUE / 2 || is_under_way(p, s))
                return;
        if (slot[s].owner == 0 && rnd(3) == 0) {
                slot[s].owner = me + 1;
                slot[s].written = false;
        }
        if (slot[s].owner != me + 1)
                return;
        if (slot[s].written && rnd(2)) {
                post(p, (struct message){ READ, s, { { 0 } }, 0 });
        } else if (slot[s].written && rnd(8) == 0) {
                slot[s].owner = 0;      /* its last write was answered */
        } else {
                version++;
                slot[s].page = (struct page){ { version, ~version } };
                slot[s].written = false;
                post(p, (struct message){ WRITE, s, slot[s].page, 0 });
        }
}

static void bury(unsigned who)
{
        for (unsigned s = 0; s < SLOTS; s++)
                if (slot[s].owner == who + 1)
                        slot[s].owner = 0;
        process[who].birth = 0;
        buried++;
}

/* Another process has the dead cut off: the question, and later its answer. */
static void cut_dead(unsigned who)
{
        if (bug == BURIED_UNCUT) {
                bury(who);
        } else if (!cut.under_way) {
                cut.under_way = true;
                cut.who = who;
                cut.first = cut.last = process[who].birth;
                assert_int_equal(members_cut(&node.members, cut.first, cut.last), 0);
        } else if (cut.who == who && ended(NULL)) {
                cut.under_way = false;
                bury(who);
        }
}

static void be(unsigned me)
{
        struct process *p = &process[me];

        if (!p->birth) {
                if (rnd(10) == 0)
                        *p = (struct process){ .birth = ++births };
        } else if (p->dead) {
                cut_dead(me);
        } else if (rnd(300) == 0) {
                p->dead = true;         /* killed; what it has sent is on its way */
                if (p->link)
                        p->link->closed = true;
                p->link = NULL;
        } else if (p->stopped) {
                p->stopped = rnd(40) != 0;
        } else if (rnd(200) == 0) {
                p->stopped = true;
        } else if (!p->link) {
                connect_(p);
        } else if (rnd(60) == 0) {
                break_link(p);
        } else if (!p->up) {
                come_up(p);
        } else if (p->link->nanswer && rnd(2)) {
                take_answer(p);
        } else {
                use(p, me);
        }
}

/* ---- all of it ---- */

static void step(void)
{
        struct connection *c = &connection[rnd(CONNECTIONS)];

        switch (rnd(4)) {
        case 0:
        case 1:
                be(rnd(PROCESSES));
                return;
        default:
                break;
        }
        for (unsigned i = 0; i < CONNECTIONS && c->state != USED; i++)
                c = &connection[rnd(CONNECTIONS)];
        if (c->state != USED)
                return;
        if (c->asked || (c->again && rnd(20) == 0))
                request(c);
        else if (!c->closed || rnd(6) == 0)     /* what was closed comes late */
                serve(c);
        if (!c->asked && c->closed && !c->admitted)
                c->left = true;
        if (rnd(200000) == 0)
                restart_node();
}

static void begin(uint64_t s)
{
        memset(connection, 0, sizeof(connection));
        memset(process, 0, sizeof(process));
        memset(slot, 0, sizeof(slot));
        members_free(&node.members);
        memset(node.page, 0, sizeof(node.page));
        node.incarnation = known_incarnation = s * 1000 + 1;
        memset(&cut, 0, sizeof(cut));
        births = version = 0;
        error = NULL;
        over = false;
        seed = s;
}

/* Runs many trees; the steps until an error was found, 0: none. */
static uint64_t run(uint64_t steps)
{
        uint64_t done = 0;

        for (uint64_t s = 1; done < steps; s++) {
                begin(s);
                for (unsigned i = 0; i < 20000 && !error && !over; i++, done++)
                        step();
                if (error)
                        return done;
        }
        return 0;
}

static void holds(void **state)
{
        const char *wanted = getenv("STEPS");

        (void)state;
        bug = NO_BUG;
        reads = rejoins = buried = 0;
        uint64_t found = run(wanted ? strtoull(wanted, NULL, 0) : 20000000);
        if (found)
                print_error("after %llu steps: %s\n", (unsigned long long)found, error);
        print_message("# %llu reads, %llu rejoins, %llu buried\n", (unsigned long long)reads,
                      (unsigned long long)rejoins, (unsigned long long)buried);
        assert_int_equal(found, 0);
        assert_true(reads > 10000 && rejoins > 10000 && buried > 10000);
        members_free(&node.members);
}

static void finds_each_bug(void **state)
{
        (void)state;
        for (bug = NO_BUG + 1; bug < RULES; bug++) {
                uint64_t found = run(20000000);
                print_message("# %s: %s after %llu steps\n", names[bug],
                              found ? error : "not found", (unsigned long long)found);
                assert_true(found);
        }
        members_free(&node.members);
}

int main(void)
{
        const struct CMUnitTest tests[] = { cmocka_unit_test(holds),
                                            cmocka_unit_test(finds_each_bug) };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
