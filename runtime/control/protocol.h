/*
 * The protocol of vmrun and vmctl; the section PROTOCOL of vmctl(1) describes it.
 *
 * A request is a line of text: a verb, for some a form, and for some an argument, which may have
 * blanks.  The answer is a line, "ok N" or "error N", and N bytes: the result, or a sentence with
 * the reason.  Requests of a connection are answered one after the other.
 *
 * Pure functions of bytes that may be anything.
 */
#ifndef VMRUN_CONTROL_PROTOCOL_H
#define VMRUN_CONTROL_PROTOCOL_H

#include <stdbool.h>
#include <stddef.h>

#define REQUEST_MOST 4096               /* bytes, with the newline */
#define ANSWER_MOST  (64ul << 20)       /* bytes that a client believes */
#define HEAD_MOST    32                 /* bytes of an answer's first line, with the newline */

enum verb {
        VERB_ABOUT, VERB_STATS, VERB_RESET, VERB_SAMPLE, VERB_GET, VERB_SET, VERB_NODES, VERB_FROM,
        VERB_ADD, VERB_SCRUB
};
enum form { FORM_TEXT, FORM_JSON, FORM_FLAT, FORM_PROM };

struct request {
        enum verb verb;
        enum form form;                 /* FORM_TEXT for verbs that have none */
        const char *argument;           /* in the line; "": none */
};
#define REQUEST_WHY 160
/* Takes a line apart, in place.  0, or -EINVAL with why. */
int request_parse(char *line, struct request *r, char why[REQUEST_WHY]);

/* Bytes that have come over a connection and were not used yet. */
struct inbox { char text[REQUEST_MOST]; size_t have; };
/* The first line, ended by a NUL instead of its newline; NULL: it is not whole yet.  -EMSGSIZE in
 * *err: it is too long; -EINVAL: it has a NUL; else 0. */
char *inbox_line(struct inbox *in, int *err);
/* Drops that line: its length as inbox_line() returned it, and one. */
void inbox_next(struct inbox *in, size_t used);

/* The first line of an answer, without its newline.  0: *ok and *size are set; else -EPROTO. */
int head_parse(const char *line, bool *ok, size_t *size);

#endif
