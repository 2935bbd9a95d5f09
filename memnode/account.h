/*
 * Accounts: a client of either protocol has one, for what it holds and for the memory itself.  Any
 * thread.
 */
#ifndef MEMNODE_ACCOUNT_H
#define MEMNODE_ACCOUNT_H

#include <stdint.h>
#include <stdio.h>

struct account;
struct party;
/* A lease of a party, or with NULL an export of memnode's own.  name: for the log and the
 * statistics.  NULL: there are too many, or no memory is left. */
struct account *account_open(const char *name, struct party *party);
/* For whom it counts: party_name(); "" for none. */
const char *account_party(const struct account *a);
/* what it still holds goes back to the pool, zeroed */
void account_close(struct account *a);
/* Zeroed memory for a client: 0; -ENOSPC: not free, or kept for other clients; -EDQUOT: more than a
 * client may have. */
int account_take(struct account *a, uint64_t bytes, char **at);
/* The same in steps, without a wait: a claim, which counts as held (0, -ENOSPC or -EDQUOT); then
 * any number of tries: 0; -EAGAIN: memory is being zeroed that may do; -ENOSPC ends the claim, as
 * account_unclaim() does. */
int account_claim(struct account *a, uint64_t bytes);
int account_try(struct account *a, uint64_t bytes, char **at);
void account_unclaim(struct account *a, uint64_t bytes);
void account_give(struct account *a, char *at, uint64_t bytes);
/* bytes it may hold in all, as things stand */
uint64_t account_limit(const struct account *a);
/* For the statistics. */
void account_count(struct account *a, uint64_t reads, uint64_t writes, uint64_t read_bytes,
                   uint64_t written_bytes);
void account_print(FILE *to);
/* How many there are, and what clients read and wrote since the start. */
struct account_totals { unsigned accounts; uint64_t reads, writes, read_bytes, written_bytes; };
struct account_totals account_totals(void);

#endif
