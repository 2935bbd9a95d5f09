/*
 * Mapped files and their functions, by address, and calls in their machine code.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "profile/code.h"
#include "profile/symbols.h"

/* ---- mappings ---- */

/* Room for one more element; NULL: no memory. */
static void *more(void *array, size_t n, size_t *room, size_t size)
{
        if (n < *room)
                return array;
        void *larger = realloc(array, (2 * n + 16) * size);
        if (larger)
                *room = 2 * n + 16;
        return larger;
}

struct code_object *code_object(struct code *c, uint32_t id)
{
        for (size_t i = 0; i < c->nobjects; i++)
                if (c->object[i]->id == id)
                        return c->object[i];
        return NULL;
}

static struct code_object *add_object(struct code *c, uint32_t id, const char *path, int fd)
{
        void *room = more(c->object, c->nobjects, &c->objects_room, sizeof(*c->object));
        struct code_object *o = calloc(1, sizeof(*o));

        if (room)
                c->object = room;
        if (o)
                *o = (struct code_object){ .id = id, .fd = fd, .path = strdup(path) };
        if (!room || !o || !o->path) {
                c->failed = true;
                free(o);
                return NULL;
        }
        return c->object[c->nobjects++] = o;
}

void code_add(struct code *c, const struct map_entry *e, const char *path, int fd)
{
        struct code_object *o = NULL;

        if (e->file != FILE_NONE) {
                o = code_object(c, e->file);
                if (!o)
                        o = add_object(c, e->file, path, fd);
        }
        void *room = more(c->map, c->nmaps, &c->maps_room, sizeof(*c->map));
        if (!room) {
                c->failed = true;
                return;
        }
        c->map = room;
        c->map[c->nmaps++] = (struct code_map){ *e, o };
}

void code_free(struct code *c)
{
        for (size_t i = 0; i < c->nobjects; i++) {
                symbols_free(c->object[i]->symbols);
                free(c->object[i]->path);
                free(c->object[i]);
        }
        free(c->object);
        free(c->map);
        *c = (struct code){ .map = NULL };
}

static const struct code_map *map_of(const struct code *c, uint64_t addr)
{
        size_t low = 0, high = c->nmaps;

        while (low < high) {            /* the first mapping that ends behind addr */
                size_t mid = low + (high - low) / 2;
                if (c->map[mid].e.end <= addr)
                        low = mid + 1;
                else
                        high = mid;
        }
        return low < c->nmaps && c->map[low].e.start <= addr ? &c->map[low] : NULL;
}

/* ---- functions ---- */

static const struct symbols *symbols_of(struct code_object *o)
{
        if (!o->read && o->fd >= 0)
                o->symbols = symbols_read(o->fd);
        o->read = true;
        return o->symbols;
}

static uint64_t file_offset(const struct code_map *m, uint64_t addr)
{
        return addr - m->e.start + m->e.off;
}

void code_place(struct code *c, uint64_t addr, struct place *p)
{
        const struct code_map *m = map_of(c, addr);

        *p = (struct place){ .object = !m ? "[unmapped]" : m->object ? m->object->path : "[anon]",
                             .address = addr };
        const struct symbols *s = m && m->object ? symbols_of(m->object) : NULL;
        if (s && symbols_address(s, file_offset(m, addr), &p->address))
                p->symbol = symbols_find(s, p->address, &p->into);
        else if (m && m->object)
                p->address = file_offset(m, addr);
}

/* ---- calls ---- */

#define CALL_MOST 7                     /* bytes of a call that are looked at */

/* CALL with a register or with memory, FF /2, of any length. */
static bool is_indirect(const uint8_t *end)
{
        static const uint8_t lengths[] = { 2, 3, 4, 6, 7 };

        for (size_t i = 0; i < sizeof(lengths); i++)
                if (end[-lengths[i]] == 0xff && (end[1 - lengths[i]] >> 3 & 7) == 2)
                        return true;
        return false;
}

/* A direct call there leads to the function, or to code without a name, such as a PLT, from where
 * it may go anywhere. */
static bool leads_to(struct code *c, uint64_t target, uint64_t inner)
{
        struct place to, in;

        code_place(c, target, &to);
        code_place(c, inner, &in);
        return !to.symbol || (in.symbol && to.object == in.object &&
                              to.address - to.into == in.address - in.into);
}

bool code_calls(struct code *c, uint64_t ret, uint64_t inner)
{
        const struct code_map *from = map_of(c, ret - 1), *to = map_of(c, inner);
        uint8_t byte[CALL_MOST];
        int32_t distance;

        if (!from || !to || !from->object || from->object->fd < 0 ||
            ret - from->e.start < CALL_MOST ||
            pread(from->object->fd, byte, CALL_MOST,
                  (off_t)file_offset(from, ret - CALL_MOST)) != CALL_MOST)
                return false;
        const uint8_t *end = byte + CALL_MOST;
        if (end[-5] == 0xe8) {          /* CALL rel32 */
                memcpy(&distance, end - 4, sizeof(distance));
                if (leads_to(c, ret + (uint64_t)(int64_t)distance, inner))
                        return true;
        }
        /* The target of that call is not known: another file is likely, as with -fno-plt. */
        return from->object != to->object && is_indirect(end);
}

/* ---- memory ---- */

const char *code_region(const struct code *c, uint64_t addr, char text[CODE_REGION])
{
        const struct code_map *m = map_of(c, addr);

        if (!m)
                return "[unmapped]";
        if (m->object) {
                const char *slash = strrchr(m->object->path, '/');
                snprintf(text, CODE_REGION, "%.*s", CODE_REGION - 1,
                         slash ? slash + 1 : m->object->path);
                return text;
        }
        if (m->e.flags & MAP_ENTRY_STACK)
                return "[stack]";
        if (m->e.flags & MAP_ENTRY_HEAP)
                return "[heap]";
        uint64_t kib = (m->e.end - m->e.start) >> 10;
        unsigned unit = kib < 10240 ? 0 : kib < 10240 << 10 ? 1 : 2;
        snprintf(text, CODE_REGION, "anon %llu%c", (unsigned long long)(kib >> 10 * unit),
                 "KMG"[unit]);
        return text;
}
