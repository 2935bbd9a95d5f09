/*
 * The pool: zeroed 4 KiB pages outside the cache, for page tables and other metadata.
 */
#ifndef VMRUN_POOL_H
#define VMRUN_POOL_H

/* A page is reused only for the purpose it was first taken for, which makes it type-stable. */
enum pool_kind { POOL_PT, POOL_VMA, POOL_CARD, POOL_KINDS };

/* NULL when the pool cannot grow. */
void *pool_page(enum pool_kind kind);
void pool_page_free(enum pool_kind kind, void *page);

#endif
