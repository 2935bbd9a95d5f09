/*
 * Leases that outlive memnode: taken from the file of memnode/resume.h at the start, and added to
 * its list at the end.
 */
#ifndef MEMNODE_NBD_KEPT_H
#define MEMNODE_NBD_KEPT_H

#include "memnode/nbd/export.h"
#include "memnode/resume.h"

/* server.take_over and server.kept (memnode/server.h). */
int nbd_take_over(struct resume_lease *from, char *why, size_t n);
int nbd_kept(struct resume_list *list);
/* Awaits the member of this connection, which breaks because memnode ends. */
void nbd_export_await(struct nbd_export *e, const struct nbd_who *who);
/* The grace time of leases that were taken over begins. */
void nbd_begin_grace(void);

#endif
