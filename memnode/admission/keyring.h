/*
 * The keys of --keys: who may use this memnode.  Any thread.
 */
#ifndef MEMNODE_KEYRING_H
#define MEMNODE_KEYRING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "common/keys.h"

/* Reads the file, in place of the keys that were there.  0, or -errno with one sentence in why[n]
 * that does not name the file; then they stay.  Main thread. */
int keyring_load(const char *path, char *why, size_t n);
/* Must clients prove themselves? */
bool keyring_is_used(void);
/* A copy of the key of that name, which the caller overwrites.  False: there is none. */
bool keyring_find(const char *name, size_t len, struct key *k);
/* The same by proof_mark() of the name, in a time that does not tell whether there is one. */
bool keyring_find_mark(uint64_t mark, struct key *k);

#endif
