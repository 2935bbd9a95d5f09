/*
 * See copies_model.h: held.c, repair.c, walk.c and whole.c, as they are.  Their state is swapped
 * together with that of request.c.
 */
#include <errno.h>
#include <string.h>
#include <guest_ram.h>
#include "base/message.h"
#include "base/options.h"
#include "common/clock.h"
#include "far/copies.h"
#include "far/held.h"
#include "far/node.h"
#include "far/repair.h"
#include "include/allocator.h"
#include "vm/vm.h"
#include "copies_hooks.h"

/* The lock of held.c is between the program and the I/O side. */
static bool lock_is_free(void *seat) { return !((struct seat *)seat)->held_owner; }

static void lock_held(void)
{
        struct seat *s = self();

        crash_point();
        while (s->held_owner)
                wait_until(lock_is_free, s);
        s->held_owner = running;
}

static void unlock_held(void)
{
        self()->held_owner = NULL;
        crash_point();
}

static char *window(void) { return units; }

#undef CONTROL
#define CONTROL control_of_self()
#undef TREE_WINDOW
#define TREE_WINDOW window()
#undef pthread_mutex_lock
#undef pthread_mutex_unlock
#define pthread_mutex_lock(m)    lock_held()
#define pthread_mutex_unlock(m)  unlock_held()
#define pthread_mutex_init(m, a) ((void)(m))
#define bounce_pages(n)          HELD

#include "far/held.c"
#include "far/walk.c"
#include "far/whole.c"
/* A scan that begins. */
#define whole_look(now) (scan.next_slab ? (void)0 : see_copies(), (whole_look)(now))
#include "far/repair.c"

static struct { struct held held; struct repair repair; struct scan scan; } memory[SEATS];

void repair_memory_out(unsigned seat)
{
        memcpy(&memory[seat].held, &held, sizeof(held));
        memcpy(&memory[seat].repair, &repair, sizeof(repair));
        memory[seat].scan = scan;
}

void repair_memory_in(unsigned seat)
{
        memcpy(&held, &memory[seat].held, sizeof(held));
        memcpy(&repair, &memory[seat].repair, sizeof(repair));
        scan = memory[seat].scan;
        held_in(&seats[seat].tree);
}

void repair_memory_reset(unsigned seat)
{
        memset((void *)&memory[seat], 0, sizeof(memory[0]));
        seats[seat].held_owner = NULL;
}

static const struct held *held_of(const struct seat *s)
{
        return memory_is_loaded(s) ? &held : &memory[s - seats].held;
}

void repairs_die(const struct seat *s)
{
        const struct held *h = held_of(s);

        /* It may have freed the slot meanwhile; or the copy has just not begun, or is over. */
        for (const struct hold *c = h->hold; c < h->hold + HELD_MOST; c++)
                if (c->owned && *(uint16_t *)slot_word(units, c->slot) & SLOT_DUE)
                        abandoned[index_of(c->slot)] = true;
        for (uint64_t i = 0; i < SLOTS; i++) {
                uint64_t slot = i / PAGES << SLAB_SHIFT | i % PAGES;
                uint16_t word = *(uint16_t *)slot_word(units, slot);
                if (word == (SLOT_OWNED | SLOT_DUE | s->tree.self))
                        abandoned[i] = true;
                /* take() has made one DUE, which was freed before it could note that */
                if (word == SLOT_DUE && s->held_owner)
                        abandoned[i] = true;
        }
}

uint64_t repairs_made(void) { return *(const uint64_t *)&repair.pages; }

unsigned repairs_of(const struct seat *s) { return *(const unsigned *)&held_of(s)->under_way; }

void check_still(const struct seat *s)
{
        const struct held *h = held_of(s);

        for (unsigned i = 0; i < HELD_MOST; i++)
                if (h->hold[i].used)
                        sched_fail("process %u has said that it copies nothing, but holds slot "
                                   "%#lx", s->tree.self, (unsigned long)h->hold[i].slot);
}

static const struct hold *hold_of(const struct seat *s, uint64_t slot)
{
        const struct held *h = held_of(s);

        for (const struct hold *c = h->hold; c < h->hold + HELD_MOST; c++)
                if (c->used && c->slot == slot && !c->owned)
                        return c;
        return NULL;
}

/* Rule 15. */
void check_repairer(uint64_t slot)
{
        if (!hold_of(self(), slot))
                return;
        for (const struct seat *s = seats; s < seats + SEATS; s++)
                if (s != self() && s->alive && s->attached && hold_of(s, slot))
                        sched_fail("processes %u and %u copy the shared slot %#lx",
                                   self()->tree.self, s->tree.self, (unsigned long)slot);
}
