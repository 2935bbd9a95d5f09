/*
 * A recorded order: the pages that a program waited for, by object, and its file format.
 *
 * Pure: no descriptors, no messages.  The format, all numbers little-endian:
 *
 *   8 bytes   "vmrunord"
 *   4         version: 1
 *   4         number of files
 *   8         number of events
 *   8         sum of all other bytes of the file (order_sum)
 *   texts     path of the program, then one of each file; each ends with a 0 byte
 *   threads   for each, in ascending order: its number, how many events it has, and its events
 *   an event  two numbers: the object; and how many pages further it is than the object's event
 *             before (the first: than page 0), with the sign in bit 0
 *
 * Numbers of threads and events have 7 bits a byte, the lowest first, and the top bit set in all
 * but the last byte.
 */
#ifndef VMRUN_ORDER_H
#define VMRUN_ORDER_H

#include <stddef.h>
#include <stdint.h>

/* Objects.  Their pages are counted from a place that each run has. */
enum order_object {
        ORDER_LOW,                      /* the program and its heap: from the heap's start */
        ORDER_MAPPED,                   /* below mmap's base: from that base */
        ORDER_STACK,                    /* above mmap's base: from the top of the address space */
        ORDER_FILE                      /* ORDER_FILE + n: file n, from its start */
};
#define ORDER_FILES_MAX 60000u
#define ORDER_THREADS_MAX 1024u
#define ORDER_PATH_MAX  4096            /* bytes of a path, with its 0 */

/* Object in the low 16 bits; above them the page, signed. */
typedef uint64_t order_event;
#define ORDER_PAGE_MAX (1ll << 46)
static inline order_event order_make(unsigned object, int64_t page)
{
        return (uint64_t)page << 16 | object;
}
static inline unsigned order_object(order_event e) { return e & 0xffff; }
static inline int64_t order_page(order_event e) { return (int64_t)e >> 16; }

struct order {
        char *program;                  /* path */
        char **file;                    /* paths */
        uint32_t files;
        uint32_t events, threads;
        order_event *event;             /* events of one thread stand together */
        struct order_thread { uint32_t number, events; } *thread;
};

/* The number of this file, which is added if there is none.  -ENOMEM; -ENOSPC: there are too many,
 * or the path is too long. */
int order_file(struct order *o, const char *path);
/* Room for n events.  0 or -ENOMEM. */
int order_reserve(struct order *o, uint32_t n);
/* Puts the events of each thread together; by: numbers of the threads, by event.  0 or -ENOMEM. */
int order_group(struct order *o, const uint16_t *by);
void order_free(struct order *o);

/* The file's content.  *bytes: to be freed.  0 or -ENOMEM. */
int order_print(const struct order *o, uint8_t **bytes, size_t *n);
/* Reads a file's content; any bytes may come.  0; -EINVAL, with *why a sentence to follow the
 * file's name; -ENOMEM.  On error *o is empty. */
int order_parse(struct order *o, const uint8_t *bytes, size_t n, const char **why);
/* The sum that these bytes should have: FNV-1a, 64 bits, of all but the sum itself. */
uint64_t order_sum(const uint8_t *bytes, size_t n);

#endif
