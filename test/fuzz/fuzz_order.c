/*
 * Fuzzes what --replay makes of a file (runtime/replay/order.c) and of the table that kern follows
 * (table.c, kern/pager/replay.c) with libFuzzer.  Built and run by ./run, never by make.
 *
 * Threat model.  The user names the file, so this is about accidents: another file, a file that was
 * cut short, and a file that another vmrun wrote.  What must hold:
 *   - no read or write outside of the bytes and of the table (the sanitizers see to it);
 *   - bytes are refused with a reason, or are what printing the order gives again;
 *   - memory is in proportion to the bytes;
 *   - following the table ends, whatever faults there are.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "pager/replay.h"
#include "replay/order.h"
#include "replay/table.h"

#define FAIL(what) do { fprintf(stderr, "fuzz: %s\n", what); abort(); } while (0)

/* Numbers of more bytes than they need come out shorter: then their second printing must agree. */
static void print_again(const struct order *o, size_t n)
{
        struct order back;
        const char *why;
        uint8_t *bytes;
        size_t m;

        if (order_print(o, &bytes, &m) != 0)
                return;
        if (m > n)
                FAIL("it became longer");
        if (order_parse(&back, bytes, m, &why) != 0)
                FAIL("what was printed is refused");
        if (back.events != o->events || back.threads != o->threads || back.files != o->files ||
            strcmp(back.program, o->program) != 0 ||
            (o->events && memcmp(back.event, o->event, o->events * sizeof(*o->event)) != 0))
                FAIL("it is another order");
        order_free(&back);
        free(bytes);
}

static void follow(const struct order *o, const uint8_t *data, size_t n)
{
        const struct places places = { .low = 0x1000, .mapped = 0x7ffff7fff, .stack = 0x7ffffffff };
        struct table t;

        if (table_number(&t, o) != 0)
                return;
        size_t size = table_size(&t);
        void *room = aligned_alloc(PAGE_SIZE, size);
        memset(room, 0, size);
        table_make(&t, o, &places, room);
        struct replay *r = room;
        for (size_t i = 0; i + 1 < n; i += 2) {
                uint32_t file = data[i] % (o->files + 1);
                table_mapped(&t, file, data[i + 1], data[i], 0x500000 + data[i + 1]);
                uint32_t id = r->pages ? data[i] % r->pages : 0;
                uint64_t page = r->pages ? r->addr[id] : 1;
                if (r->streams == 0)
                        break;
                struct replay_stream *s = &r->stream[data[i + 1] % r->streams];
                replay_at(r, s, page + data[i + 1] % 3, data[i + 1] & 4);
                for (unsigned k = 0; k < data[i + 1] % 8u; k++)
                        if (replay_next(r, s) >= 1ull << RECORD_PAGE_BITS)
                                FAIL("a page beyond the address space");
                if (s->cursor < s->begin || s->cursor > s->end || s->ahead > s->end)
                        FAIL("it left its stream");
        }
        table_free(&t);
        free(room);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        struct order o;
        const char *why = NULL;
        uint8_t *bytes = malloc(size ? size : 1);

        memcpy(bytes, data, size);
        /* No fuzzer guesses a sum: inputs that begin with the magic get a right one. */
        if (size >= 32 && memcmp(bytes, "vmrunord", 8) == 0 && bytes[31] != 0xff) {
                uint64_t h = order_sum(bytes, size);
                for (unsigned i = 0; i < 8; i++)
                        bytes[24 + i] = (uint8_t)(h >> 8 * i);
        }
        int err = order_parse(&o, bytes, size, &why);
        if (err == -EINVAL) {
                if (!why || !*why || o.event || o.file || o.program)
                        FAIL("refused without a reason, or something is left over");
        } else if (err == 0) {
                if (o.events > size || o.files > size)
                        FAIL("more than the bytes can hold");
                print_again(&o, size);
                follow(&o, data, size);
                order_free(&o);
        }
        free(bytes);
        return 0;
}
