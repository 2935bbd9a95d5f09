/*
 * Clients that outlive memnode (memnode/resume.h).
 */
#ifndef MEMNODE_RDMA_KEPT_H
#define MEMNODE_RDMA_KEPT_H

#include "memnode/rdma/rdma.h"
#include "memnode/resume.h"

/* server.take_over and server.kept (memnode/server.h). */
int rdma_take_over(struct resume_lease *from, char *why, size_t n);
int rdma_kept(struct resume_list *list);
/* server.lose() */
void rdma_lose(bool are_kept);
void clients_begin_grace(void);         /* of those that were taken over */
/* memnode ends, with --resume: ends the connections of clients that will be back, without a word,
 * and puts them by for rdma_kept(). */
void clients_keep(void);

#endif
