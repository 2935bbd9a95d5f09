/*
 * Pages that a page points to (pointers.h).
 *
 * A page that was used earns its place a point, one that was not costs it two: so a place is kept
 * while two of three of its pages are used.  A tree's children, of which one in two is used, are
 * left alone: what is fetched for nothing costs as much as what is waited for.
 */
#include "pager/pointers.h"

#define PAGE_WORDS 512
#define SHIFT      12                   /* from an address to its page */
#define BEST  8
#define WORST (-8)
/* No program has anything below, nor do small numbers mean addresses. */
#define LOWEST 0x10000ull

static void judge(struct pointers *p, uint32_t place, bool used)
{
        int trust = p->trust[place] + (used ? 1 : -2);

        p->trust[place] = (int8_t)(trust > BEST ? BEST : trust < WORST ? WORST : trust);
}

/* Notes that place led to page; the oldest noted is judged, since it had its time. */
static void note(struct pointers *p, uint32_t place, uint64_t page, const struct pointers_env *env)
{
        uint32_t at = p->asked++ % POINTERS_ASKED;

        if (p->page1[at])
                judge(p, p->place[at], env->used(env->arg, p->page1[at] - 1));
        p->page1[at] = page + 1;
        p->place[at] = (uint8_t)place;
}

/* A place in which the program has lost trust is tried again from time to time. */
static void try_again(struct pointers *p)
{
        p->next = (p->next + 1) % POINTERS_PLACES;
        if (p->trust[p->next] < 0)
                p->trust[p->next]++;
}

uint32_t pointers_follow(struct pointers *p, const uint64_t *words, uint32_t touched,
                         const struct pointers_env *env)
{
        uint32_t first = touched > POINTERS_BEFORE ? touched - POINTERS_BEFORE : 0;
        uint32_t end = touched + POINTERS_AFTER;
        uint32_t asked = 0;

        if (p->rest) {
                p->rest--;
                return 0;
        }
        if (end > PAGE_WORDS)
                end = PAGE_WORDS;
        try_again(p);
        for (uint32_t w = first; w < end && asked < POINTERS_MOST; w++) {
                uint32_t place = w + POINTERS_BEFORE - touched;
                /* Volatile: others may write it meanwhile; it is read once. */
                uint64_t word = *(const volatile uint64_t *)(words + w);
                if (p->trust[place] < 0 || word < LOWEST || word >> 47)
                        continue;
                enum pointers_answer a = env->ask(env->arg, word);
                if (a == POINTERS_FULL)
                        break;
                if (a == POINTERS_YES) {
                        asked++;
                        note(p, place, word >> SHIFT, env);
                }
        }
        if (asked) {
                p->skip = 0;
        } else {
                p->skip = p->skip ? 2 * p->skip : 1;
                if (p->skip > POINTERS_REST)
                        p->skip = POINTERS_REST;
                p->rest = p->skip - 1;
        }
        return asked;
}
