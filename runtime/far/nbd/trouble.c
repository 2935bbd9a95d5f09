/*
 * When links fail: time-outs, and the loss of the node.
 *
 * A node that hands back (far_driver) is never lost by a time-out.  All its links go down together:
 * each is then made again with a higher generation, so memnode has ended all older ones when the
 * last is up.  libnbd reads and writes memory only within its functions, so a closed link touches
 * no frame.  A server that cannot fence may carry out an old write even later: the owner must not
 * use the slots of the writes that it got back.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "far/nbd/data.h"
#include "far/nbd/link.h"
#include "far/nbd/node.h"
#include "far/nbd/trouble.h"

/* Takes down a node that is up, and that hands back. */
static void down(struct nbd_node *d, const char *why)
{
        for (unsigned i = 0; i < d->nlinks; i++) {
                struct nbd_link *l = &d->link[i];
                nbd_give_back(l);
                nbd_link_close(l);
        }
        far_down(d->far, why);
        for (unsigned i = 0; i < d->nlinks; i++)
                nbd_slots_fail(&d->link[i]);
        for (unsigned i = 0; i < d->nlinks; i++)
                d->link[i].until = d->clock + far_pause(d->far, NBD_PAUSE_MS);
}

/*
 * The node will not come back.  Its owner needs to know whether pages of the program may be there.
 * [I] lease() and this function each store their own flag before they read the other's, so they
 * cannot both miss the other.
 */
__attribute__((format(printf, 2, 3)))
static void lost(struct nbd_node *d, const char *fmt, ...)
{
        char why[FAR_WHY];
        va_list ap;

        va_start(ap, fmt);
        vsnprintf(why, sizeof(why), fmt, ap);
        va_end(ap);
        atomic_store(&d->lost, true);
        if (d->far->hands_back && !nbd_is_down(d->far))
                down(d, why);
        far_lost(d->far, atomic_load(&d->leased), "%s", why);
        for (unsigned i = 0; i < d->nlinks; i++) {
                nbd_link_close(&d->link[i]);
                nbd_slots_fail(&d->link[i]);
        }
}

/* When the oldest transfer under way was posted; 0: there is none. */
static uint64_t oldest(const struct nbd_link *l, int *error)
{
        uint64_t since = 0;

        for (unsigned i = 0; l->used && i < NBD_DEPTH; i++)
                if (l->slot[i].r && (!since || l->slot[i].since < since)) {
                        since = l->slot[i].since;
                        *error = l->slot[i].error;
                }
        return since;
}

/* Ends an attempt to connect that takes too long. */
static void limit_attempt(struct nbd_link *l)
{
        struct nbd_node *d = l->node;
        char why[FAR_WHY];

        if (l->state <= LINK_CONNECTING || l->state == LINK_UP || d->clock < l->until)
                return;
        nbd_explain_silence(l, d->set.connect_timeout_ms, why);
        nbd_link_fail(l, -ETIMEDOUT, "%s", why);
}

/* Checks time-outs, and sends again the transfers that the server failed. */
void nbd_judge(struct nbd_link *l)
{
        struct nbd_node *d = l->node;
        uint64_t limit = d->set.timeout_ms;
        unsigned long long s = (limit + 999) / 1000;
        int error = 0;

        if (nbd_link_is_over(l))
                return lost(d, "%s", l->why);
        if (d->lease && l->refused >= NBD_REFUSALS && !d->status.keeps)
                return lost(d, "its memnode has ended: nothing listens there any more");
        if (d->far->hands_back)
                return limit_attempt(l);
        uint64_t since = oldest(l, &error);
        bool late = since && d->clock - since > limit;
        if (l->state != LINK_UP && (late || d->clock - l->trouble > limit)) {
                /* Else the last attempt was answered, and failed: that says more. */
                if (l->state != LINK_DOWN && d->clock - l->tried >= NBD_SILENT_MS)
                        nbd_explain_silence(l, d->clock - l->tried, l->why);
                return lost(d,
                            "the connection broke and could not be made again within %llu s: %s", s,
                            l->why);
        }
        if (error == ESHUTDOWN && d->lease)
                return lost(d, "its memnode was stopped (it said goodbye)");
        if (late && error)
                return lost(d,
                            "the server has failed a transfer again and again for %llu s (%s): see "
                            "its log",
                            s, strerror(error));
        if (late)
                return lost(d,
                            "%s has not answered for %llu s while %u transfers wait: see whether "
                            "host and network are up, or raise --timeout",
                            d->target.name, s, l->used);
        if (l->state != LINK_UP || !l->failed)
                return;
        l->failed = 0;
        for (unsigned i = 0; i < NBD_DEPTH; i++)
                if (l->slot[i].r && l->slot[i].error)
                        nbd_transfer(&l->slot[i]);
}

/* The error of a link's transfers: ESHUTDOWN before others, 0 if none failed. */
static int worst_answer(const struct nbd_link *l)
{
        int error = 0;

        for (unsigned i = 0; l->used && i < NBD_DEPTH && error != ESHUTDOWN; i++)
                if (l->slot[i].r && l->slot[i].error)
                        error = l->slot[i].error;
        return error;
}

/* Is there a reason why the node is down now?  Its links were up. */
static bool fails(struct nbd_link *l, int error, char why[FAR_WHY])
{
        struct nbd_node *d = l->node;

        /* libnbd ends transfers with an error, too, when their connection breaks. */
        if (l->state == LINK_UP && error)
                nbd_link_broken(l);
        if (l->state != LINK_UP)
                memcpy(why, l->why, FAR_WHY);
        else if (error)
                snprintf(why, FAR_WHY, "the server has failed a transfer (%s): see its log",
                         strerror(error));
        else if (l->used && d->clock - l->heard >= NBD_SILENT_MS)
                snprintf(why, FAR_WHY, "%s has not answered for %llu ms while %u transfers wait",
                         d->target.name, (unsigned long long)(d->clock - l->heard), l->used);
        else
                return false;
        return true;
}

void nbd_watch(struct nbd_node *d)
{
        char why[FAR_WHY];
        bool all = true;

        for (unsigned i = 0; i < d->nlinks; i++) {
                struct nbd_link *l = &d->link[i];
                int error = l->state == LINK_UP && !l->failed ? 0 : worst_answer(l);

                all &= l->state == LINK_UP;
                if (nbd_is_down(d->far))
                        continue;
                if (error == ESHUTDOWN && d->lease)
                        return lost(d, "its memnode was stopped (it said goodbye)");
                if (fails(l, error, why))
                        return down(d, why);
        }
        if (all && nbd_is_down(d->far))
                far_up(d->far);
}
