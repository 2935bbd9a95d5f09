/*
 * Runs of neighbours: which requests share one work request.
 */
#include "far/rdma/run.h"

static void reverse(struct ibv_sge *sge, unsigned n)
{
        for (unsigned i = 0; i < n / 2; i++) {
                struct ibv_sge other = sge[i];
                sge[i] = sge[n - 1 - i];
                sge[n - 1 - i] = other;
        }
}

struct rdma_run rdma_run(const struct far_request *r, unsigned max_pages, unsigned max_sge,
                         struct ibv_sge *sge)
{
        struct rdma_run run = { .pages = 1, .pieces = 1, .lowest = r->page };
        const struct far_request *next = r->next;
        bool down = next && next->page + 1 == r->page;

        sge[0] = (struct ibv_sge){ .addr = r->cookie[0], .length = PAGE_SIZE };
        for (; next && run.pages < max_pages; r = next, next = next->next, run.pages++) {
                const struct far_request *low = down ? next : r, *high = down ? r : next;
                if (next->place != r->place || high->page != low->page + 1)
                        break;
                if (high->cookie[0] == low->cookie[0] + PAGE_SIZE) {
                        struct ibv_sge *last = &sge[run.pieces - 1];
                        last->length += PAGE_SIZE;
                        last->addr -= down ? PAGE_SIZE : 0;
                } else if (run.pieces < max_sge) {
                        sge[run.pieces++] = (struct ibv_sge){ .addr = next->cookie[0],
                                                              .length = PAGE_SIZE };
                } else {
                        break;
                }
                run.lowest = down ? next->page : run.lowest;
        }
        if (down)
                reverse(sge, run.pieces);
        return run;
}
