/*
 * A node under construction, from the keys of a section or of a URL's query.
 */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "common/size.h"
#include "layout.h"
#include "settings/node_draft.h"
#include "settings/unknown.h"
#include "settings/values.h"

#define WEIGHT_MAX   1000
#define PRIORITY_MAX 1000
#define LATENCY_MAX  500000000          /* ns */

enum node_key {
        KEY_URL,
        KEY_SIZE,
        KEY_WEIGHT,
        KEY_DOMAIN,
        KEY_KEYS,
        KEY_CLIENT,
        KEY_DEVICE,
        KEY_GID_INDEX,
        KEY_OVERWRITE,
        KEY_LATENCY,
        KEY_BANDWIDTH,
        KEY_PRIORITY,
        KEY_NIC,
        KEYS
};
static const char *const node_keys[KEYS] = {
        "url", "size", "weight", "domain", "keys", "client", "device", "gid-index", "overwrite",
        "latency", "bandwidth", "priority", "nic",
};

void node_draft_init(struct node_draft *d)
{
        *d = (struct node_draft){ .node = { .weight = 1, .gid_index = -1 } };
}

bool node_is_service(const char *url)
{
        const char *colon = strchr(url, ':');

        return colon && colon - url >= 4 && strncmp(colon - 4, "+srv://", 7) == 0;
}

static bool has_scheme(const char *url, const char *scheme)
{
        size_t n = strlen(scheme);
        if (strncmp(url, scheme, n) != 0)
                return false;
        return url[n] == ':' || (node_is_service(url) && strncmp(url + n, "+srv:", 5) == 0);
}

/* "%2F" to "/", in place; -EINVAL: no two hexadecimal digits follow a %, or they are 00. */
static int percent_decode(char *text)
{
        char *to = text;
        for (const char *s = text; *s; s++) {
                if (*s != '%') {
                        *to++ = *s;
                        continue;
                }
                if (!isxdigit((unsigned char)s[1]) || !isxdigit((unsigned char)s[2]))
                        return -EINVAL;
                char hex[3] = { s[1], s[2], 0 };
                *to = (char)strtoul(hex, NULL, 16);
                if (!*to++)
                        return -EINVAL;
                s += 2;
        }
        *to = '\0';
        return 0;
}

/* Does a pair of the query belong to the URL itself and not to vmrun?
 * nbd+unix:///EXPORT?socket=PATH is a URL for libnbd. */
static bool belongs_to_url(const char *url, const char *pair)
{
        return has_scheme(url, "nbd+unix") && strncmp(pair, "socket=", 7) == 0;
}

static int set_from_query(struct node_draft *d, char *pair, char why[SETTING_WHY])
{
        char *value = strchr(pair, '='), reason[SETTING_WHY];
        int err;

        if (!value) {
                snprintf(why, SETTING_WHY,
                         "'%.64s' after the ? has no value: give size=, weight=, priority=, "
                         "domain=, keys=, client=, device=, gid-index=, overwrite=, latency=, "
                         "bandwidth= or nic=",
                         pair);
                return -EINVAL;
        }
        *value++ = '\0';
        if (percent_decode(value) != 0) {
                snprintf(why, SETTING_WHY,
                         "%.64s=%.64s: a %% must be followed by two hexadecimal digits: give %%25 "
                         "for itself",
                         pair, value);
                return -EINVAL;
        }
        err = strcmp(pair, "url") == 0 ? -ENOENT : node_draft_set(d, pair, value, reason);
        if (err == -ENOENT)
                snprintf(why, SETTING_WHY,
                         "unknown option '%.64s' after the ?: give size, weight, priority, "
                         "domain, keys, client, device, gid-index, overwrite, latency, "
                         "bandwidth or nic",
                         pair);
        else if (err)
                snprintf(why, SETTING_WHY, "%.32s=%.64s: %.200s", pair, value, reason);
        return err == -ENOENT ? -EINVAL : err;
}

/* Removes vmrun's own options from the URL's query. */
static int set_url(struct node_draft *d, const char *text, char why[SETTING_WHY])
{
        const char *copy;
        char *query, *kept, *next;
        int err = text_parse(text, &copy, why);

        if (err)
                return err;
        d->node.url = copy;
        kept = strchr(copy, '?');
        if (!kept)
                return 0;
        *kept = '\0';
        query = strdup(text + (kept - copy) + 1);
        if (!query) {
                snprintf(why, SETTING_WHY, "out of memory: free some on this host");
                return -ENOMEM;
        }
        char mark = '?';
        for (char *pair = query; pair && !err; pair = next) {
                next = strchr(pair, '&');
                if (next)
                        *next++ = '\0';
                if (belongs_to_url(copy, pair)) {
                        /* there is room: the mark was in the text, here or later */
                        *kept++ = mark;
                        mark = '&';
                        kept = stpcpy(kept, pair);
                } else {
                        err = set_from_query(d, pair, why);
                }
        }
        free(query);
        return err;
}

static int set_size(struct node_draft *d, const char *text, char why[SETTING_WHY])
{
        uint64_t bytes;
        int err = size_parse(text, &bytes);

        if (!err && bytes >= PAGE_SIZE) {
                d->node.size = bytes & ~(uint64_t)(PAGE_SIZE - 1);
                return 0;
        }
        if (err == -EINVAL)
                snprintf(why, SETTING_WHY,
                         "this is no size: give a whole number with K, M, G or T, as in 4G");
        else
                snprintf(why, SETTING_WHY, "too %s",
                         err ? "large: give less than 8388608T"
                             : "small: give at least one page of 4K");
        return -EINVAL;
}

int node_draft_set(struct node_draft *d, const char *key, const char *value, char why[SETTING_WHY])
{
        unsigned number;
        int k = 0, err;

        while (k < KEYS && strcmp(node_keys[k], key) != 0)
                k++;
        if (k == KEYS) {
                unknown_say(key, value, node_keys, KEYS, "unknown key", why);
                return -ENOENT;
        }
        if (d->given & 1u << k) {
                snprintf(why, SETTING_WHY, "given twice for this node: leave one out");
                return -EEXIST;
        }
        d->given |= 1u << k;
        switch ((enum node_key)k) {
        case KEY_URL:
                return set_url(d, value, why);
        case KEY_SIZE:
                return set_size(d, value, why);
        case KEY_WEIGHT:
                return number_parse(value, 1, WEIGHT_MAX, &d->node.weight, why);
        case KEY_DOMAIN:
                return text_parse(value, &d->node.domain, why);
        case KEY_KEYS:
                return text_parse(value, &d->node.keys, why);
        case KEY_CLIENT:
                return text_parse(value, &d->node.client, why);
        case KEY_DEVICE:
                return text_parse(value, &d->node.device, why);
        case KEY_GID_INDEX:
                err = number_parse(value, 0, 65535, &number, why);
                if (!err)
                        d->node.gid_index = (int)number;
                return err;
        case KEY_OVERWRITE:
                return flag_parse(value, &d->node.overwrite, why);
        case KEY_LATENCY:
                err = number_parse(value, 0, LATENCY_MAX, &number, why);
                if (err)
                        snprintf(why, SETTING_WHY, "give nanoseconds, a whole number from 0 to %u",
                                 LATENCY_MAX);
                else
                        d->node.latency = number;
                return err;
        case KEY_BANDWIDTH:
                return bandwidth_parse(value, &d->node.bandwidth, why);
        case KEY_PRIORITY:
                return number_parse(value, 0, PRIORITY_MAX, &d->node.priority, why);
        case KEY_NIC:
                d->node.card = strcmp(value, "mlx5") == 0;
                if (!d->node.card)
                        snprintf(why, SETTING_WHY, "unknown: there is mlx5 only");
                return d->node.card ? 0 : -EINVAL;
        default:
                return -ENOENT;
        }
}

int node_draft_check(const struct node_draft *d, char why[SETTING_WHY])
{
        const struct node_option *n = &d->node;

        if (!n->url)
                snprintf(why, SETTING_WHY, "the node has no url: give one, as in url = rdma://m1");
        else if (node_is_service(n->url) && d->given & (1u << KEY_WEIGHT | 1u << KEY_PRIORITY))
                snprintf(why, SETTING_WHY, "weight and priority come from DNS: leave them out");
        else if (node_is_service(n->url) && !has_scheme(n->url, "rdma") &&
                 !has_scheme(n->url, "nbd") && !has_scheme(n->url, "nbds"))
                snprintf(why, SETTING_WHY, "DNS can name rdma+srv://, nbd+srv:// and nbds+srv:// "
                         "only");
        else if (n->client && !n->keys)
                snprintf(why, SETTING_WHY,
                         "client= says which key of keys= is ours: give keys=FILE as well");
        else if (n->keys && !has_scheme(n->url, "nbds") && !has_scheme(n->url, "rdma"))
                snprintf(why, SETTING_WHY, "keys= is for nbds:// and rdma:// only: %s",
                         has_scheme(n->url, "nbd") ? "give nbds:// for nbd://" : "leave it out");
        else if (!n->keys && has_scheme(n->url, "nbds"))
                snprintf(why, SETTING_WHY, "nbds:// needs keys=FILE: give the file of keys that "
                         "the server has, or nbd:// for a server without");
        else if ((n->device || n->gid_index >= 0) && !has_scheme(n->url, "rdma"))
                snprintf(why, SETTING_WHY,
                         "device and gid-index are for rdma:// only: leave them out");
        else if ((d->given & 1u << KEY_OVERWRITE) && !has_scheme(n->url, "dax") &&
                 !has_scheme(n->url, "file"))
                snprintf(why, SETTING_WHY, "overwrite is for dax: and file: only: leave it out");
        else if ((d->given & (1u << KEY_LATENCY | 1u << KEY_BANDWIDTH)) &&
                 !has_scheme(n->url, "mem") && !has_scheme(n->url, "dax"))
                snprintf(why, SETTING_WHY,
                         "latency and bandwidth are for mem: and dax: only: a node has its own, so "
                         "leave them out");
        else if (n->card && !n->latency && !n->bandwidth)
                snprintf(why, SETTING_WHY,
                         "nic is for mem: and dax: with a latency or a bandwidth only: leave it "
                         "out, or give latency= as well");
        else
                return 0;
        return -EINVAL;
}

void node_option_free(struct node_option *n)
{
        /* The name is the url if the user gave no other. */
        if (n->name != n->url)
                free((void *)n->name);
        free((void *)n->url);
        free((void *)n->origin);
        free((void *)n->domain);
        free((void *)n->keys);
        free((void *)n->client);
        free((void *)n->device);
        *n = (struct node_option){ .weight = 1, .gid_index = -1 };
}
