/*
 * The pool: 4 KiB pages for metadata, outside the cache.  The host grows it in doubling steps; it
 * never shrinks.  A freed page goes to the free list of its kind, so a page that was once a page
 * table is only ever a page table (type-stable).  The link is a page address in the first word: as
 * a PTE it is in no known state (pager/pte.h), so a late reader of a freed table leaves it alone.
 */
#include "base/exit.h"
#include "base/kern.h"
#include "base/lock.h"
#include "base/pool.h"
#include "base/string.h"

static struct lock pool_lock;           /* guards free lists, control.pool_next and pool_end */
/* Linked through the first word. */
static struct { void *head; uint64_t n; } free_pages[POOL_KINDS];

static bool grow(void)
{
        uint64_t step = control.pool_end - POOL_OFF;    /* doubles */
        if (step > control.pool_max - control.pool_end)
                step = control.pool_max - control.pool_end;
        if (step == 0 || vmexit(EXIT_GROW_POOL, step, 0, 0) != 0)
                return false;
        control.pool_end += step;       /* the host has mapped it */
        return true;
}

void *pool_page(enum pool_kind kind)
{
        lock_take(&pool_lock);
        void *p = free_pages[kind].head;
        if (p) {
                free_pages[kind].head = *(void **)p;
                free_pages[kind].n--;
        } else if (control.pool_next < control.pool_end || grow()) {
                p = (void *)(WINDOW + control.pool_next);
                control.pool_next += PAGE_SIZE;
                lock_drop(&pool_lock);
                return p;               /* never used: zeroed by the host */
        }
        lock_drop(&pool_lock);
        if (p)
                zero_page(p);
        return p;
}

void pool_page_free(enum pool_kind kind, void *page)
{
        lock_take(&pool_lock);
        *(void **)page = free_pages[kind].head;
        free_pages[kind].head = page;
        free_pages[kind].n++;
        lock_drop(&pool_lock);
}
