/*
 * A node under construction, from the keys of a section, or of the query that follows a URL on the
 * command line.
 */
#ifndef VMRUN_SETTINGS_NODE_DRAFT_H
#define VMRUN_SETTINGS_NODE_DRAFT_H

#include "settings/settings.h"

struct node_draft {
        struct node_option node;
        unsigned given;                 /* bit n: key number n was given */
};
void node_draft_init(struct node_draft *d);
/* -ENOENT: no such key; -EEXIST: given twice.  "url" also takes the options in the URL's query,
 * rdma://m1?size=4G&weight=2. */
int node_draft_set(struct node_draft *d, const char *key, const char *value, char why[SETTING_WHY]);
/* Checks that need all keys together. */
int node_draft_check(const struct node_draft *d, char why[SETTING_WHY]);
/* Does the URL name a service in DNS, whose nodes are to be looked up (service.h)? */
bool node_is_service(const char *url);
/* Frees what a node holds. */
void node_option_free(struct node_option *n);

#endif
