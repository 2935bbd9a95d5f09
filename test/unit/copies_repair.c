/*
 * See copies_model.h: repair.c and walk.c, as they are.  What it keeps for its process is swapped
 * together with that of request.c.
 */
#include <errno.h>
#include <string.h>
#include <window.h>
#include "base/message.h"
#include "base/options.h"
#include "common/clock.h"
#include "far/copies.h"
#include "far/node.h"
#include "far/repair.h"
#include "include/tree.h"
#include "vm/vm.h"
#include "copies_hooks.h"

/* Its lock is between the program and the I/O side. */
static bool lock_is_free(void *seat) { return !((struct seat *)seat)->repair_owner; }

static void lock_repair(void)
{
        struct seat *s = self();

        crash_point();
        while (s->repair_owner)
                wait_until(lock_is_free, s);
        s->repair_owner = running;
}

static void unlock_repair(void)
{
        self()->repair_owner = NULL;
        crash_point();
}

static char *window(void) { return units; }

#undef CONTROL
#define CONTROL control_of_self()
#undef TREE_WINDOW
#define TREE_WINDOW window()
#undef pthread_mutex_lock
#undef pthread_mutex_unlock
#define pthread_mutex_lock(m)    lock_repair()
#define pthread_mutex_unlock(m)  unlock_repair()
#define pthread_mutex_init(m, a) ((void)(m))
#define bounce_pages(n)          HELD
/* The model has functions of these names. */
#define hold(...)   hold_copy(__VA_ARGS__)
#define let_go(...) let_go_of_copy(__VA_ARGS__)

#include "far/walk.c"
#include "far/whole.c"
/* A look that begins. */
#define whole_look(now) (next_slab ? (void)0 : see_copies(), (whole_look)(now))
#include "far/repair.c"

static struct repair_memory {
        struct copy copying[COPYING];
        unsigned under_way;
        bool stopped, passing, found, wanted, again, needy, is_free, ended, repairer;
        uint64_t pages, cursor, copied, seen_leaving;
        int64_t since, next_look, next_tree_look;
        int64_t moves_until;
        uint32_t seen_missed, next_slab;
        unsigned next_copy;
} memory[SEATS];

void repair_memory_out(unsigned seat)
{
        struct repair_memory *m = &memory[seat];

        memcpy(m->copying, copying, sizeof(m->copying));
        m->under_way = under_way;
        m->stopped = stopped;
        m->passing = passing;
        m->found = found;
        m->wanted = wanted;
        m->again = again;
        m->needy = needy;
        m->is_free = is_free;
        m->ended = ended;
        m->repairer = repairer;
        m->seen_leaving = seen_leaving;
        m->pages = pages;
        m->cursor = cursor;
        m->copied = copied;
        m->since = since;
        m->next_look = next_look;
        m->moves_until = moves_until;
        m->seen_missed = seen_missed;
        m->next_slab = next_slab;
        m->next_tree_look = next_tree_look;
        m->next_copy = next_copy;
}

void repair_memory_in(unsigned seat)
{
        const struct repair_memory *m = &memory[seat];

        repair_in(&seats[seat].tree);
        memcpy(copying, m->copying, sizeof(m->copying));
        under_way = m->under_way;
        stopped = m->stopped;
        passing = m->passing;
        found = m->found;
        wanted = m->wanted;
        again = m->again;
        needy = m->needy;
        is_free = m->is_free;
        ended = m->ended;
        repairer = m->repairer;
        seen_leaving = m->seen_leaving;
        pages = m->pages;
        cursor = m->cursor;
        copied = m->copied;
        since = m->since;
        next_look = m->next_look;
        moves_until = m->moves_until;
        seen_missed = m->seen_missed;
        next_slab = m->next_slab;
        next_tree_look = m->next_tree_look;
        next_copy = m->next_copy;
}

void repair_memory_reset(unsigned seat)
{
        memset(&memory[seat], 0, sizeof(memory[0]));
        seats[seat].repair_owner = NULL;
}

void repairs_die(const struct seat *s)
{
        const struct copy *c = memory_is_loaded(s) ? copying : memory[s - seats].copying;

        /* It may have freed the slot meanwhile; or the copy has just not begun, or is over. */
        for (unsigned i = 0; i < COPYING; i++)
                if (c[i].owned && *(uint16_t *)slot_word(units, c[i].slot) & SLOT_DUE)
                        abandoned[index_of(c[i].slot)] = true;
        for (uint64_t i = 0; i < SLOTS; i++) {
                uint64_t slot = i / PAGES << SLAB_SHIFT | i % PAGES;
                uint16_t word = *(uint16_t *)slot_word(units, slot);
                if (word == (SLOT_OWNED | SLOT_DUE | s->tree.self))
                        abandoned[i] = true;
                /* hold() has made one DUE, which was freed before it could note that */
                if (word == SLOT_DUE && s->repair_owner)
                        abandoned[i] = true;
        }
}

unsigned repairs_of(const struct seat *s)
{
        return memory_is_loaded(s) ? *(unsigned *)&under_way : memory[s - seats].under_way;
}
