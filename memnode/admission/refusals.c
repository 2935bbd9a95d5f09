#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include "admission/budget.h"
#include "admission/origin.h"
#include "admission/refusals.h"
#include "common/clock.h"
#include "common/message.h"

/* origins that are remembered: those with the last lines */
#define REMEMBERED 256

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* Guarded by it: */
static uint64_t counts[REFUSALS];
static struct remembered {
        char origin[ORIGIN_TEXT];
        int64_t said;                   /* now_ms() of its last line; 0: the entry is free */
        uint64_t silent;                /* refusals without a line since */
} remembered[REMEMBERED];
static struct budget budget;            /* of all origins together */

/* With the lock.  The entry of an origin, or the one whose line is the oldest. */
static struct remembered *recall(const char *origin)
{
        struct remembered *oldest = &remembered[0];

        for (unsigned i = 0; i < REMEMBERED; i++) {
                struct remembered *r = &remembered[i];
                if (r->said && strcmp(r->origin, origin) == 0)
                        return r;
                if (r->said < oldest->said)
                        oldest = r;
        }
        *oldest = (struct remembered){ .said = 0 };
        snprintf(oldest->origin, sizeof(oldest->origin), "%s", origin);
        return oldest;
}

/* With the lock.  Whether this one has a line, and how many had none before it. */
static bool may_say(const char *origin, int64_t now, uint64_t *before, uint64_t *elsewhere)
{
        struct remembered *r = recall(origin);

        *before = *elsewhere = 0;
        if (r->said && now - r->said < BUDGET_MS) {
                r->silent++;
                return false;
        }
        if (!budget_take(&budget, REFUSAL_LINES, now, elsewhere))
                return false;
        *before = r->silent;
        r->silent = 0;
        r->said = now;
        return true;
}

void refused(enum refusal cause, const char *origin, const char *who, const char *fmt, ...)
{
        char text[400], more[120] = "";
        uint64_t before, elsewhere;
        va_list ap;

        va_start(ap, fmt);
        vsnprintf(text, sizeof(text), fmt, ap);
        va_end(ap);
        pthread_mutex_lock(&lock);
        counts[cause]++;
        bool say = may_say(origin, now_ms(), &before, &elsewhere);
        pthread_mutex_unlock(&lock);
        if (!say) {
                info_("%s: refused: %s", who, text);
                return;
        }
        if (before)
                snprintf(more, sizeof(more), " (and %llu times before, without a line)",
                         (unsigned long long)before);
        warnx_("%s: refused: %s%s", who, text, more);
        if (elsewhere)
                warnx_("%llu clients more were refused without a line: see the statistics",
                       (unsigned long long)elsewhere);
}

const char *const refusal_names[REFUSALS] = {
        [REFUSED_KEY] = "key",           [REFUSED_SLOW] = "slow",
        [REFUSED_CROWD] = "crowd",       [REFUSED_LIMIT] = "limit",
        [REFUSED_PROTOCOL] = "protocol", [REFUSED_REQUEST] = "request",
};

void refusals_count(uint64_t to[REFUSALS])
{
        pthread_mutex_lock(&lock);
        memcpy(to, counts, sizeof(counts));
        pthread_mutex_unlock(&lock);
}

void refusals_print(FILE *to)
{
        uint64_t c[REFUSALS];

        refusals_count(c);
        fprintf(to, "refused: %llu without a valid key, %llu too slow, %llu too many at once, %llu "
                    "above a limit, %llu not the protocol, %llu requests\n",
                (unsigned long long)c[REFUSED_KEY], (unsigned long long)c[REFUSED_SLOW],
                (unsigned long long)c[REFUSED_CROWD], (unsigned long long)c[REFUSED_LIMIT],
                (unsigned long long)c[REFUSED_PROTOCOL], (unsigned long long)c[REFUSED_REQUEST]);
}
