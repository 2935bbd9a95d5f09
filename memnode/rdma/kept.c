/*
 * Clients that outlive memnode (memnode/resume.h): taken from the file before the first client
 * comes, and put by for the file after the last client has gone.
 *
 * A client is kept as long as a member of it may come back: a member that had not moved away when
 * its connection ended (members_await).
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/clock.h"
#include "common/message.h"
#include "common/size.h"
#include "account.h"
#include "admission/party.h"
#include "rdma/client.h"
#include "rdma/connection.h"
#include "rdma/kept.h"

_Static_assert(RESUME_DIGITS == 2 * NODE_SECRET, "a byte of the secret is two digits");
_Static_assert(RESUME_NAME == NODE_NAME_MAX && RESUME_PARTY >= PARTY_NAME &&
                       RESUME_PIECES >= LEASES_MAX && RESUME_LEASES >= CLIENTS_MAX,
               "the file has room");

/* Of the RDMA thread, and once that has ended of the main thread. */
static struct client *kept;
static bool lost;                       /* a client that could not be kept */

/* ---- at the start: no other thread is there yet ---- */

static uint8_t value(char digit)
{
        return (uint8_t)(digit <= '9' ? digit - '0' : digit - 'a' + 10);
}

static int take_piece(struct client *cl, struct resume_piece *p, char *why, size_t n)
{
        struct lease *l = calloc(1, sizeof(*l));
        int err = l ? account_take(cl->account, p->size, &l->at) : -ENOMEM;

        if (err) {
                free(l);
                snprintf(why, n,
                         "a lease of %llu bytes does not fit: give as large a --size and "
                         "--max-per-client as before; without the file, programs whose pages are "
                         "in it lose them",
                         (unsigned long long)p->size);
                return err;
        }
        *l = (struct lease){ p->slab, l->at, p->size, NULL, cl->leases };
        cl->leases = l;
        cl->nleases++;
        cl->bytes += p->size;
        p->base = l->at;
        atomic_fetch_add_explicit(&rdma_counts.leases, 1, memory_order_relaxed);
        return 0;
}

int rdma_take_over(struct resume_lease *from, char *why, size_t n)
{
        struct client *cl = clients;
        char a[32];
        int err = 0;

        while (cl && cl->id != from->incarnation)
                cl = cl->next;
        if (cl) {
                snprintf(why, n, "it has a client twice: remove it to start without");
                return -EEXIST;
        }
        struct party *party = *from->party ? party_named(from->party) : NULL;
        if (*from->party && !party) {
                snprintf(why, n, "no memory is left: free some on this host");
                return -ENOMEM;
        }
        cl = client_taken_over(from->name, party, why, n);
        if (party)
                party_put(party);
        if (!cl)
                return -ENOMEM;
        cl->id = from->incarnation;
        for (unsigned i = 0; i < NODE_SECRET; i++)
                cl->secret[i] = (uint8_t)(value(from->digits[2 * i]) << 4 |
                                          value(from->digits[2 * i + 1]));
        cl->last_slab = from->last_slab;
        cl->restarts = from->restarts + 1;
        for (uint32_t k = 0; k < from->npieces && !err; k++)
                err = take_piece(cl, &from->piece[k], why, n);
        if (err) {
                client_end(cl);
                return err;
        }
        cl->members = from->members;
        notice_("%s is served again, with %s", cl->name, size_text(cl->bytes, a));
        return 0;
}

void clients_begin_grace(void)
{
        for (struct client *cl = clients; cl; cl = cl->next)
                cl->gone_at = now_ms();
}

/* ---- at the end ---- */

static void await_connected(const struct client *cl)
{
        for (struct connection *c = connections; c; c = c->next)
                if (c->kind == NODE_CONTROL && c->client == cl && !c->moved)
                        members_await(&c->client->members, c->member);
}

static void end_connections(const struct client *cl)
{
        for (struct connection *c = connections; c; c = c->next)
                if (c->client == cl)
                        connection_end(c);
}

static bool is_kept(const struct client *cl)
{
        return cl->nleases && members_awaits(&cl->members);
}

void clients_keep(void)
{
        for (struct client *cl = clients; cl; cl = cl->next) {
                await_connected(cl);
                client_attach_stop(cl);
                if (is_kept(cl))
                        end_connections(cl);
        }
        worker_wait();                  /* from here on it does nothing with them */
        for (struct client *cl = clients, *next; cl; cl = next) {
                next = cl->next;
                if (!is_kept(cl))
                        continue;
                if (!client_detach(cl)) {               /* its memory may still be written */
                        warnx_("%s cannot be kept, and loses what it has here", cl->name);
                        lost = true;
                        continue;
                }
                cl->next = kept;
                kept = cl;
        }
}

static int add(struct resume_list *list, const struct client *cl)
{
        struct resume_piece *piece = calloc(cl->nleases, sizeof(*piece));
        struct resume_lease to = { .kind = RESUME_RDMA,
                                   .incarnation = cl->id,
                                   .last_slab = cl->last_slab,
                                   .restarts = cl->restarts,
                                   .members = cl->members };
        uint32_t n = 0;

        if (!piece)
                return -ENOMEM;
        snprintf(to.name, sizeof(to.name), "%s", cl->name);
        snprintf(to.party, sizeof(to.party), "%s", cl->party ? party_name(cl->party) : "");
        for (unsigned i = 0; i < RESUME_DIGITS; i++)
                to.digits[i] = "0123456789abcdef"[cl->secret[i / 2] >> (i % 2 ? 0 : 4) & 15];
        for (const struct lease *l = cl->leases; l; l = l->next)
                piece[n++] = (struct resume_piece){ l->slab, l->bytes, l->at };
        int err = resume_add(list, &to, piece, n);
        free(piece);
        return err;
}

void rdma_lose(bool are_kept)
{
        for (const struct client *cl = kept; cl && !are_kept; cl = cl->next)
                client_loses(cl);
}

int rdma_kept(struct resume_list *list)
{
        int err = 0;

        list->lost |= lost;
        for (const struct client *cl = kept; cl && !err; cl = cl->next)
                err = add(list, cl);
        return err;
}
