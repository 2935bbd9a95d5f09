/*
 * Makes, writes and reads an order; its bytes are checked before they are believed.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include "recorded.h"
#include "replay/order.h"

static const char magic[] = "vmrunord";
#define VERSION 1

enum { AT_VERSION = 8, AT_FILES = 12, AT_EVENTS = 16, AT_SUM = 24, HEAD = 32 };

int order_file(struct order *o, const char *path)
{
        for (uint32_t i = 0; i < o->files; i++)
                if (strcmp(o->file[i], path) == 0)
                        return (int)i;
        if (o->files == ORDER_FILES_MAX || strlen(path) >= ORDER_PATH_MAX || !*path)
                return -ENOSPC;
        if ((o->files & (o->files - 1)) == 0) { /* a power of two: it is full */
                char **more = realloc(o->file, 2 * (o->files + 1) * sizeof(*more));
                if (!more)
                        return -ENOMEM;
                o->file = more;
        }
        o->file[o->files] = strdup(path);
        return o->file[o->files] ? (int)o->files++ : -ENOMEM;
}

int order_reserve(struct order *o, uint32_t n)
{
        order_event *e = realloc(o->event, (n ? n : 1) * sizeof(*e));

        if (!e)
                return -ENOMEM;
        o->event = e;
        return 0;
}

static int keep_threads(struct order *o, const uint32_t end[ORDER_THREADS_MAX + 1])
{
        free(o->thread);
        o->threads = 0;
        o->thread = calloc(ORDER_THREADS_MAX, sizeof(*o->thread));
        if (!o->thread)
                return -ENOMEM;
        for (uint32_t t = 0, before = 0; t < ORDER_THREADS_MAX; before = end[t++])
                if (end[t] > before)
                        o->thread[o->threads++] = (struct order_thread){ t, end[t] - before };
        return 0;
}

int order_group(struct order *o, const uint16_t *by)
{
        order_event *grouped = malloc((o->events + 1ul) * sizeof(*grouped));
        uint32_t at[ORDER_THREADS_MAX + 1] = { 0 };

        if (!grouped)
                return -ENOMEM;
        for (uint32_t i = 0; i < o->events; i++)
                at[by[i] % ORDER_THREADS_MAX + 1]++;
        for (uint32_t t = 1; t <= ORDER_THREADS_MAX; t++)
                at[t] += at[t - 1];
        for (uint32_t i = 0; i < o->events; i++)        /* at[t] moves from its begin to its end */
                grouped[at[by[i] % ORDER_THREADS_MAX]++] = o->event[i];
        free(o->event);
        o->event = grouped;
        return keep_threads(o, at);
}

void order_free(struct order *o)
{
        for (uint32_t i = 0; i < o->files; i++)
                free(o->file[i]);
        free(o->file);
        free(o->program);
        free(o->event);
        free(o->thread);
        *o = (struct order){ 0 };
}

/* ---- bytes ---- */

static void put(uint8_t *at, uint64_t v, unsigned n)
{
        for (unsigned i = 0; i < n; i++)
                at[i] = (uint8_t)(v >> 8 * i);
}

static uint64_t get(const uint8_t *at, unsigned n)
{
        uint64_t v = 0;

        for (unsigned i = 0; i < n; i++)
                v |= (uint64_t)at[i] << 8 * i;
        return v;
}

uint64_t order_sum(const uint8_t *bytes, size_t n)
{
        uint64_t h = 0xcbf29ce484222325ull;

        for (size_t i = 0; i < n; i++)
                if (i < AT_SUM || i >= HEAD)
                        h = (h ^ bytes[i]) * 0x100000001b3ull;
        return h;
}

#define NUMBER_BYTES 10                 /* of a number of 64 bits */

static uint8_t *put_number(uint8_t *at, uint64_t v)
{
        for (; v >= 0x80; v >>= 7)
                *at++ = (uint8_t)(v | 0x80);
        *at++ = (uint8_t)v;
        return at;
}

static uint64_t fold(int64_t v) { return (uint64_t)v << 1 ^ (uint64_t)(v >> 63); }
static int64_t unfold(uint64_t v) { return (int64_t)(v >> 1 ^ -(v & 1)); }

/* ---- printing ---- */

static size_t texts_size(const struct order *o)
{
        size_t n = strlen(o->program) + 1;

        for (uint32_t i = 0; i < o->files; i++)
                n += strlen(o->file[i]) + 1;
        return n;
}

static uint8_t *put_text(uint8_t *at, const char *text)
{
        return (uint8_t *)stpcpy((char *)at, text) + 1;
}

int order_print(const struct order *o, uint8_t **bytes, size_t *n)
{
        int64_t *last = calloc(ORDER_FILE + o->files, sizeof(*last));
        const size_t numbers = 2 * ((size_t)o->events + o->threads);
        uint8_t *b = malloc(HEAD + texts_size(o) + numbers * NUMBER_BYTES), *at = b;
        const order_event *e = o->event;

        if (!last || !b) {
                free(last);
                free(b);
                return -ENOMEM;
        }
        memcpy(b, magic, AT_VERSION);
        put(b + AT_VERSION, VERSION, 4);
        put(b + AT_FILES, o->files, 4);
        put(b + AT_EVENTS, o->events, 8);
        at = put_text(b + HEAD, o->program);
        for (uint32_t i = 0; i < o->files; i++)
                at = put_text(at, o->file[i]);
        for (uint32_t t = 0; t < o->threads; t++) {
                at = put_number(at, o->thread[t].number);
                at = put_number(at, o->thread[t].events);
                for (uint32_t i = 0; i < o->thread[t].events; i++, e++) {
                        unsigned object = order_object(*e);
                        at = put_number(at, object);
                        at = put_number(at, fold(order_page(*e) - last[object]));
                        last[object] = order_page(*e);
                }
        }
        free(last);
        *bytes = b;
        *n = (size_t)(at - b);
        put(b + AT_SUM, order_sum(b, *n), 8);
        return 0;
}

/* ---- parsing ---- */

struct cursor { const uint8_t *at, *end; };

static bool take_number(struct cursor *c, uint64_t *v)
{
        *v = 0;
        for (unsigned shift = 0; shift < 64 && c->at < c->end; shift += 7) {
                uint8_t b = *c->at++;
                *v |= (uint64_t)(b & 0x7f) << shift;
                if (!(b & 0x80))
                        return true;
        }
        return false;
}

/* The text's length with its 0; 0: there is none. */
static size_t text_here(const struct cursor *c)
{
        size_t left = (size_t)(c->end - c->at);
        const uint8_t *end = memchr(c->at, 0, left < ORDER_PATH_MAX ? left : ORDER_PATH_MAX);

        return end && end > c->at ? (size_t)(end - c->at) + 1 : 0;
}

/* 0, -EINVAL or -ENOMEM. */
static int take_texts(struct order *o, struct cursor *c, uint32_t files)
{
        size_t n = text_here(c);

        if (!n)
                return -EINVAL;
        o->program = strdup((const char *)c->at);
        /* Each text takes two bytes at least: no room is made for more texts than can come. */
        if ((size_t)(c->end - c->at) / 2 < files)
                return -EINVAL;
        o->file = calloc((size_t)files + 1, sizeof(*o->file));
        if (!o->program || !o->file)
                return -ENOMEM;
        for (c->at += n; o->files < files; c->at += n) {
                n = text_here(c);
                if (!n)
                        return -EINVAL;
                o->file[o->files] = strdup((const char *)c->at);
                if (!o->file[o->files])
                        return -ENOMEM;
                o->files++;
        }
        return 0;
}

/* n more events. */
static bool take_thread(struct order *o, struct cursor *c, uint64_t n, int64_t *last)
{
        for (; n > 0; n--) {
                uint64_t object, step;
                if (!take_number(c, &object) || !take_number(c, &step) ||
                    object >= ORDER_FILE + o->files)
                        return false;
                int64_t page = (int64_t)((uint64_t)last[object] + (uint64_t)unfold(step));
                if (page <= -ORDER_PAGE_MAX || page >= ORDER_PAGE_MAX)
                        return false;
                last[object] = page;
                o->event[o->events++] = order_make((unsigned)object, page);
        }
        return true;
}

static bool take_threads(struct order *o, struct cursor *c, uint64_t events, int64_t *last)
{
        uint64_t number, n, least = 0;

        while (o->events < events) {
                if (!take_number(c, &number) || !take_number(c, &n) || number < least ||
                    number >= ORDER_THREADS_MAX || n == 0 || n > events - o->events)
                        return false;
                o->thread[o->threads++] = (struct order_thread){ (uint32_t)number, (uint32_t)n };
                if (!take_thread(o, c, n, last))
                        return false;
                least = number + 1;
        }
        return c->at == c->end;
}

static int take_events(struct order *o, struct cursor *c, uint64_t events)
{
        int64_t *last = calloc(ORDER_FILE + o->files, sizeof(*last));
        int err = -ENOMEM;

        o->thread = calloc(ORDER_THREADS_MAX, sizeof(*o->thread));
        if (last && o->thread && order_reserve(o, (uint32_t)events) == 0)
                err = take_threads(o, c, events, last) ? 0 : -EINVAL;
        free(last);
        return err;
}

int order_parse(struct order *o, const uint8_t *bytes, size_t n, const char **why)
{
        struct cursor c = { bytes + HEAD, bytes + n };
        int err;

        *o = (struct order){ 0 };
        *why = "it is empty: the program that was recorded did not come to its end";
        if (n == 0)
                return -EINVAL;
        *why = "it is no record of vmrun --record";
        if (n < AT_VERSION || memcmp(bytes, magic, AT_VERSION) != 0)
                return -EINVAL;
        *why = "it is damaged or cut short: record the program again";
        if (n < HEAD)
                return -EINVAL;
        if (get(bytes + AT_VERSION, 4) != VERSION) {
                *why = "it is of another version of vmrun: record the program again";
                return -EINVAL;
        }
        uint64_t files = get(bytes + AT_FILES, 4), events = get(bytes + AT_EVENTS, 8);
        /* An event takes two bytes at least. */
        if (get(bytes + AT_SUM, 8) != order_sum(bytes, n) || files > ORDER_FILES_MAX ||
            events > RECORD_EVENTS_MAX || events > (n - HEAD) / 2)
                return -EINVAL;
        err = take_texts(o, &c, (uint32_t)files);
        if (!err)
                err = take_events(o, &c, events);
        if (err)
                order_free(o);
        return err;
}
