/*
 * A thread of its own feeds the watchdog.  It looks whether the others have shown that they go on
 * (pulse.h), and takes the servers' locks itself, so that it stands still with a thread that never
 * gives one back.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <systemd/sd-daemon.h>
#include "common/message.h"
#include "every.h"
#include "pool.h"
#include "pulse.h"
#include "server.h"
#include "watchdog.h"

static unsigned limit_ms;               /* systemd's; 0: it does not watch.  Constant. */
static _Atomic bool ended;              /* relaxed: it publishes nothing */

static void look(void)
{
        static bool said;
        struct server_figures f;

        if (atomic_load_explicit(&ended, memory_order_relaxed))
                return;
        const char *late = pulse_late(limit_ms / 2);
        if (late && !said)
                warnx_("the %s thread has stood still for %u ms: systemd is not told that all is "
                       "well", late, limit_ms / 2);
        said = late;
        if (late)
                return;
        for (unsigned i = 0; i < SERVERS; i++)
                servers[i]->count(&f);
        (void)pool_left();
        sd_notify(0, "WATCHDOG=1");
}

void watchdog_open(void)
{
        uint64_t us;

        if (sd_watchdog_enabled(0, &us) <= 0)
                return;
        limit_ms = us / 1000 > INT32_MAX ? INT32_MAX : (unsigned)(us / 1000);
        if (limit_ms < 4)
                limit_ms = 4;
        pulse_watch(limit_ms / 4);
}

void watchdog_begin(void)
{
        int err = limit_ms ? every(limit_ms / 4, look) : 0;

        if (err)
                warnx_("systemd's watchdog is not fed: no thread can be made: %s", strerror(-err));
}

void watchdog_end(void) { atomic_store_explicit(&ended, true, memory_order_relaxed); }
