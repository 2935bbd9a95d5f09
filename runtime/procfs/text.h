/*
 * Text of /proc/self, for the files that write it.
 */
#ifndef VMRUN_TEXT_H
#define VMRUN_TEXT_H

#include <stdbool.h>
#include <stddef.h>

/* A text buffer; the caller frees p. The text is cut off where memory ran out. */
struct text { char *p; size_t n, room; };
void text_add(struct text *x, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

struct map_entry;
/* The page of vsyscalls, which is no mapping, but the last line of maps. */
extern const struct map_entry procfs_vsyscall;
/* Appends the line of maps for one entry. */
void procfs_map_line(const struct map_entry *e, struct text *x);

#endif
