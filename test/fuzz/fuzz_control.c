/*
 * Fuzzes what the control socket and vmctl make of bytes (runtime/control/protocol.c) with
 * libFuzzer.  Built and run by ./run, never by make.
 *
 * Threat model.  Only the user and root can connect to the socket of a vmrun, and only they can
 * listen on a socket that vmctl asks.  So this is about accidents: another program that connects,
 * half a line, a vmctl of another version.  What must hold:
 *   - no read or write outside of the buffers (the sanitizers see to it);
 *   - the lines do not depend on how the bytes are cut into receives;
 *   - a line is refused with a reason, or its argument is within the line;
 *   - the size that an answer's head names is bounded.
 */
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "control/protocol.h"

#define FAIL(what) do { fprintf(stderr, "fuzz: %s\n", what); abort(); } while (0)

static void look_at(const char *line)
{
        size_t n = strlen(line), size;
        char *copy = strdup(line), why[REQUEST_WHY] = "";
        struct request r;
        bool ok;

        if (head_parse(copy, &ok, &size) == 0 && size > ANSWER_MOST)
                FAIL("an answer that is too large");
        if (request_parse(copy, &r, why) != 0) {
                if (!*why || !memchr(why, 0, sizeof(why)))
                        FAIL("no reason");
        } else if (r.argument < copy || r.argument > copy + n || r.verb > VERB_SCRUB ||
                   r.form > FORM_PROM) {
                FAIL("a request that makes no sense");
        }
        free(copy);
}

/* Takes lines until one is refused; a hash of all.  step: bytes received at a time. */
static uint64_t take(const uint8_t *data, size_t n, size_t step)
{
        struct inbox *in = calloc(1, sizeof(*in));
        uint64_t hash = 1;
        int err = 0;

        while (!err) {
                char *line = inbox_line(in, &err);
                if (line) {
                        size_t used = strlen(line) + 1;
                        for (const char *c = line; *c; c++)
                                hash = hash * 31 + (unsigned char)*c;
                        hash = hash * 31 + '\n';
                        look_at(line);
                        inbox_next(in, used);
                        continue;
                }
                size_t got = n < step ? n : step, room = sizeof(in->text) - in->have;
                got = got < room ? got : room;
                if (err || !got)
                        break;
                memcpy(in->text + in->have, data, got);
                in->have += got;
                data += got;
                n -= got;
        }
        free(in);
        return hash * 31 + (unsigned)-err;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
        if (take(data, n, 1) != take(data, n, REQUEST_MOST))
                FAIL("how the bytes are cut matters");
        return 0;
}
