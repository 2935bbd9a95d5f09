/*
 * The key by which vmrun proves to a node who it is (keys=, common/keys.h).
 *
 * It is read once, before the program runs, and then lies in a sealed memory file of vmrun's own.
 * So a node is reached again after the program has changed its root or its user, and after execve;
 * and libnbd, which reads keys from a file at each connection, has one to read.
 */
#ifndef VMRUN_FAR_KEY_H
#define VMRUN_FAR_KEY_H

#include "common/keys.h"
#include "far/node.h"

struct node_option;
/* Reads the key of a node with keys=, and sets o->key_fd, which is private and belongs to *o and
 * its copies.  0, also for a node without; or -errno with why. */
int key_read(struct node_option *o, char why[FAR_WHY]);
/* The key that key_read() has found.  0, or -errno with why.  The caller overwrites it. */
int key_get(const struct node_option *o, struct key *k, char why[FAR_WHY]);

/* The calling thread, which is vmrun's own, gets a working folder of its own, from which
 * key_path() finds the file whatever the root of the program is. */
void key_thread_apart(void);
/* The name of the file for the calling thread. */
#define KEY_PATH 40
void key_path(const struct node_option *o, char path[KEY_PATH]);

#endif
