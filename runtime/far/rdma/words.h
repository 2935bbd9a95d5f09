/*
 * Why a connection failed: a sentence in why, and the kind of failure.
 */
#ifndef VMRUN_RDMA_WORDS_H
#define VMRUN_RDMA_WORDS_H

#include "far/rdma/rdma.h"

/* What memnode says in private data, as far as it can be read.  REPLY_VERSION: of *p only the
 * version is right. */
enum rdma_reply { REPLY_NONE, REPLY_VERSION, REPLY_WHOLE };
enum rdma_reply rdma_words_reply(const void *bytes, size_t n, struct node_private *p);

enum rdma_failure rdma_words_errno(const union rdma_sockaddr *peer, int err, const char *doing,
                                   char why[FAR_WHY]);
enum rdma_failure rdma_words_event(const union rdma_sockaddr *peer, const struct rdma_cm_event *ev,
                                   char why[FAR_WHY]);
/* found: the address and the route had been resolved. */
enum rdma_failure rdma_words_silent(const union rdma_sockaddr *peer, bool found, unsigned ms,
                                    char why[FAR_WHY]);
const char *rdma_words_address(const union rdma_sockaddr *a, char text[80]);
/* "; the limit of locked memory is 64K: raise it ..." if the limit is so low that it may be the
 * cause, else "". */
const char *rdma_words_memlock(char text[128]);

#endif
