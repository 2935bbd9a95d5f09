/*
 * Leases that outlive memnode (memnode/resume.h): leases of members are taken from the file before
 * the first client comes, and go there after the last client has gone.  Leases that other NBD
 * clients made, and named exports, last as long as memnode.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "account.h"
#include "admission/party.h"
#include "common/message.h"
#include "nbd/kept.h"
#include "nbd/lease.h"

_Static_assert(RESUME_DIGITS == NBD_LEASE_HEX, "the file has secrets as names have them");

static bool is_known(const char digits[RESUME_DIGITS])
{
        const struct lease *l = nbd_leases;

        while (l && memcmp(l->hex, digits, RESUME_DIGITS) != 0)
                l = l->next;
        return l != NULL;
}

/* The main thread is alone, so nothing is locked. */
int nbd_take_over(struct resume_lease *from, char *why, size_t n)
{
        bool twice = is_known(from->digits);
        struct lease *l = twice ? NULL : calloc(1, sizeof(*l));
        char owner[64], lease[NBD_EXPORT_TEXT];
        const char *text;

        if (!l) {
                snprintf(why, n, twice ? "it has a lease twice: remove it to start without"
                                       : "no memory is left: free some on this host");
                return twice ? -EEXIST : -ENOMEM;
        }
        l->e.size = from->piece[0].size;
        l->e.used = true;
        snprintf(owner, sizeof(owner), "NBD lease %.*s...", NBD_LEASE_MARK, from->digits);
        struct party *party = *from->party ? party_named(from->party) : NULL;
        uint32_t error = nbd_export_take(&l->e, owner, party, &text);
        if (party)
                party_put(party);       /* the account has it */
        if (error) {
                snprintf(why, n,
                         "a lease of %llu bytes does not fit: %s; without the file, programs whose "
                         "pages are in it lose them",
                         (unsigned long long)l->e.size, text);
                free(l);
                return -ENOSPC;
        }
        memcpy(l->hex, from->digits, sizeof(l->hex));
        l->incarnation = from->incarnation;
        l->members = from->members;
        l->until = INT64_MAX;           /* nbd_begin_grace() sets it */
        from->piece[0].base = l->e.base;
        l->next = nbd_leases;
        nbd_leases = l;
        notice_("%s: served again", nbd_lease_text(l, lease));
        return 0;
}

void nbd_begin_grace(void)
{
        pthread_mutex_lock(&nbd_leases_lock);
        for (struct lease *l = nbd_leases; l; l = l->next)
                nbd_lease_let_go(l);
        pthread_mutex_unlock(&nbd_leases_lock);
}

void nbd_export_await(struct nbd_export *e, const struct nbd_who *who)
{
        pthread_mutex_lock(&nbd_leases_lock);
        members_await(&((struct lease *)e)->members, who->member);
        pthread_mutex_unlock(&nbd_leases_lock);
}

/* No other thread is left, so nothing is locked. */
int nbd_kept(struct resume_list *list)
{
        int err = 0;

        for (const struct lease *l = nbd_leases; l && !err; l = l->next) {
                struct resume_lease to = { .kind = RESUME_NBD,
                                           .incarnation = l->incarnation,
                                           .members = l->members };
                const struct resume_piece all = { .size = l->e.size, .base = l->e.base };
                memcpy(to.digits, l->hex, sizeof(l->hex));
                snprintf(to.party, sizeof(to.party), "%s", account_party(l->e.account));
                if (l->incarnation)
                        err = resume_add(list, &to, &all, 1);
        }
        return err;
}
