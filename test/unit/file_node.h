/*
 * Nodes in a file, for the tests of drivers: a folder of the test's own, nodes that are opened
 * there, and refusals.  With cmocka: a harness that finds the driver wrong fails the test, or ends
 * the forked child.
 */
#ifndef TEST_UNIT_FILE_NODE_H
#define TEST_UNIT_FILE_NODE_H

#include "test/drivers/harness.h"

struct file_nodes {
        const struct far_driver *driver;
        struct node_option option;      /* of the next node; the test may change it */
        char folder[64], path[80];      /* path: of the file that most tests use */
        char why[FAR_WHY];              /* from the last open() */
};
extern struct file_nodes file_nodes;

/* Makes the folder: template as of mkdtemp().  False: it cannot be made, and errno says why. */
bool file_nodes_init(const struct far_driver *driver, const char *template);
void file_nodes_end(void);
int file_node_open(struct far_node *n, const char *file);
/* Opening the file must fail so, with these words in the driver's sentence, and leave no
 * descriptor. */
void file_node_refused(const char *file, int err, const char *words);
void file_node_close(struct far_node *n);

#endif
