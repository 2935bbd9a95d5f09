/*
 * Pages that a page points to (pointers.h).
 *
 * A page that was used earns its place a point, a page that was not used costs it two: so a place
 * is kept while two of three of its pages are used.  A tree's children, of which one in two is
 * used, are left alone: a page that is fetched for nothing costs as much as a page that is waited
 * for.
 */
#include "pager/pointers.h"

#define PAGE_WORDS 512
#define SHIFT      12                   /* from an address to its page */
#define BEST  8
#define WORST (-8)
/* No program has memory below it, and small numbers are no addresses. */
#define LOWEST 0x10000ull

static void judge(struct pointers *p, uint32_t place, bool used)
{
        int trust = p->trust[place] + (used ? 1 : -2);

        p->trust[place] = (int8_t)(trust > BEST ? BEST : trust < WORST ? WORST : trust);
        if (trust < 0)
                p->lead &= ~(1ull << place);
}

/* Notes that place led to page; judges the oldest noted page, which has had its time to be used. */
static void note(struct pointers *p, uint32_t place, uint64_t page, const struct pointers_env *env)
{
        uint32_t at = p->asked++ % POINTERS_ASKED;

        p->lead |= 1ull << place;
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

/* The places that lie within the page, if `touched` is where place POINTERS_BEFORE is. */
static uint64_t within(uint32_t touched)
{
        uint64_t places = ~0ull;

        if (touched < POINTERS_BEFORE)
                places <<= POINTERS_BEFORE - touched;
        if (touched + POINTERS_AFTER > PAGE_WORDS)
                places &= ~0ull >> (touched + POINTERS_AFTER - PAGE_WORDS);
        return places;
}

/* Looks at these places.  Returns how many pages were asked for. */
static uint32_t look(struct pointers *p, uint64_t places, const uint64_t *words, uint32_t touched,
                     const struct pointers_env *env)
{
        uint32_t asked = 0;

        for (; places && asked < POINTERS_MOST; places &= places - 1) {
                uint32_t place = (uint32_t)__builtin_ctzll(places);
                /* Volatile: other threads may write the word meanwhile, so it is read once. */
                uint64_t word = *(const volatile uint64_t *)(words + touched + place -
                                                             POINTERS_BEFORE);
                if (word < LOWEST || word >> 47 || p->trust[place] < 0)
                        continue;
                enum pointers_answer a = env->ask(env->arg, word);
                if (a == POINTERS_FULL)
                        break;
                if (a == POINTERS_YES) {
                        asked++;
                        note(p, place, word >> SHIFT, env);
                }
        }
        return asked;
}

uint32_t pointers_follow(struct pointers *p, const uint64_t *words, uint32_t touched,
                         const struct pointers_env *env)
{
        bool all = p->lead == 0 || p->turn % POINTERS_ALL == 0;

        if (p->rest) {
                p->rest--;
                return 0;
        }
        p->turn++;
        if (all)
                try_again(p);
        uint32_t asked = look(p, within(touched) & (all ? ~0ull : p->lead), words, touched, env);
        if (asked) {
                p->nowhere = 0;
        } else if (++p->nowhere >= POINTERS_PATIENCE) {
                uint32_t more = p->nowhere - POINTERS_PATIENCE;
                p->rest = more < POINTERS_REST ? more : POINTERS_REST - 1;
        }
        return asked;
}
