/*
 * The table of include/recorded.h: made of an order, in room that kern sees, and kept up while
 * files are mapped.
 *
 * Pure but for its own memory: one thread at a time, beside vCPUs that read the table.
 */
#ifndef VMRUN_TABLE_H
#define VMRUN_TABLE_H

#include "recorded.h"
#include "replay/order.h"

/* Where the objects' pages are counted from, as page numbers. */
struct places { uint64_t low, mapped, stack; };

/* The object of an address that belongs to no file, and its page there. */
order_event place_of(const struct places *p, uint64_t page);

/* The host's knowledge of a table. */
struct table {
        uint32_t events, pages;
        uint32_t *number;               /* by event: its page */
        order_event *page;              /* by page: an event of it */
        uint32_t streams;
        struct replay *replay;
        uint32_t used;                  /* entries of the hash */
        uint32_t *file_page;            /* pages of files, by file and page in it */
        uint32_t file_pages;
};

/* Numbers the order's pages.  0 or -ENOMEM. */
int table_number(struct table *t, const struct order *o);
/* Bytes of room that it needs for kern's part, whole pages. */
size_t table_size(const struct table *t);
/* Makes kern's part in zeroed room, aligned to pages. */
void table_make(struct table *t, const struct order *o, const struct places *p, void *room);
/* Pages [first, first + n) of file number `file` are at page number `at` now. */
void table_mapped(struct table *t, uint32_t file, uint64_t first, uint64_t n, uint64_t at);
void table_free(struct table *t);

#endif
