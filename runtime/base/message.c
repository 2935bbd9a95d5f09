#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include "base/message.h"

#define KEYS 256                        /* remembered; messages with further keys are dropped */

void info_once(unsigned long key, const char *fmt, ...)
{
        static _Atomic unsigned long said[KEYS];        /* key + 1, or 0 */
        char text[200];
        va_list ap;
        unsigned i;

        for (i = 0; i < KEYS; i++) {
                unsigned long seen = 0;
                /* Relaxed: the key publishes no other data. */
                if (atomic_compare_exchange_strong_explicit(&said[i], &seen, key + 1,
                                                            memory_order_relaxed,
                                                            memory_order_relaxed))
                        break;
                if (seen == key + 1)
                        return;
        }
        if (i == KEYS)
                return;
        va_start(ap, fmt);
        vsnprintf(text, sizeof(text), fmt, ap);
        va_end(ap);
        info_("%s", text);
}
