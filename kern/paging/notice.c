/*
 * Notices (pager/notices.h) of this cache.
 */
#include "base/state.h"
#include "far/slots.h"
#include "pager/pager.h"
#include "paging/notice.h"

/* At most as many notices as one vCPU may have pages under way, since each notice pins a page. */
static uint32_t most(void)
{
        uint32_t n = pager.nframes / 16;

        return n < NOTICES ? n : NOTICES;
}

bool counted_room(void) { return notice_read(&pager.notices.table->count) < most(); }

bool counted_add(const struct counted *c, pte_slot_t *pte)
{
        return notice_add(&pager.notices, pte, c->word, c->frame, most());
}

void notice_wait(const struct notice *n)
{
        frame_t frame = notice_read(&n->frame);
        pte_t p;

        if (!notice_waits(&pager.notices, n, &p)) {
                notices_over(&pager.notices, frame);
                env_relax(1);
                return;
        }
        if ((p & (PTE_PREF | PTE_WAITERS)) == PTE_PREF)
                slots_promote(frame);
        page_wait(notice_entry(n), p);
}

void notices_settle(void)
{
        struct notice *n;

        for (uint32_t i = 0; (n = notice_find(pager.notices.table, &i, NULL)) != NULL; )
                notice_wait(n);
}
