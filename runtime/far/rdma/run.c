/*
 * Runs of neighbours: which requests share one work request.
 */
#include "far/rdma/rdma.h"

unsigned rdma_run(const struct far_request *r, unsigned max_pages, unsigned max_sge,
                  struct ibv_sge *sge, int *nsge)
{
        unsigned pages = 1;
        int k = 0;

        sge[0] = (struct ibv_sge){ .addr = r->cookie[0], .length = PAGE_SIZE };
        for (const struct far_request *next = r->next; next && pages < max_pages;
             r = next, next = next->next, pages++) {
                if (next->place != r->place || next->page != r->page + 1)
                        break;
                if (next->cookie[0] == r->cookie[0] + PAGE_SIZE)
                        sge[k].length += PAGE_SIZE;
                else if ((unsigned)k + 1 < max_sge)
                        sge[++k] = (struct ibv_sge){ .addr = next->cookie[0], .length = PAGE_SIZE };
                else
                        break;
        }
        *nsge = k + 1;
        return pages;
}
