/*
 * A key-value store in memory for threads: a hash table of fixed capacity with chains and striped
 * locks. Records lie behind each other in the order in which they came, values have one size.
 */
#ifndef KVSTORE_H
#define KVSTORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct store;

/*
 * A store for up to capacity records, with values of value_size bytes, a multiple of 8. Does not
 * return if there is no memory: exit status 2. Nothing is ever removed, so nothing frees it.
 */
struct store *store_new(size_t capacity, size_t value_size);

/*
 * The value of this key, locked: the caller may read and write it until it calls store_unlock(). A
 * new key gets zeros if create is set. NULL, and nothing locked, if there is no such key or, with
 * create, no room.
 */
void *store_lock(struct store *s, uint64_t key, bool create);
void store_unlock(struct store *s, uint64_t key);

/* How many records there are; to be called when no thread creates one. */
size_t store_count(struct store *s);

#endif
