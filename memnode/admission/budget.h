/*
 * How many lines a subject may put into the log in a minute.  The caller's lock guards it.
 */
#ifndef MEMNODE_BUDGET_H
#define MEMNODE_BUDGET_H

#include <stdbool.h>
#include <stdint.h>

#define BUDGET_MS 60000

struct budget {
        int64_t minute;                 /* now_ms() when the minute of `lines` began */
        unsigned lines;
        uint64_t unsaid;                /* that found no room in that minute */
};

/* Whether there is room for one more of at most `most`; *before: how many found none in the last
 * minute. */
static inline bool budget_take(struct budget *b, unsigned most, int64_t now, uint64_t *before)
{
        *before = 0;
        if (now - b->minute >= BUDGET_MS || !b->minute) {
                *before = b->unsaid;
                *b = (struct budget){ .minute = now };
        }
        if (b->lines == most) {
                b->unsaid++;
                return false;
        }
        b->lines++;
        return true;
}

#endif
