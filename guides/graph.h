/*
 * What a program with a graph in compressed rows can tell guides/graph, if that is loaded:
 *
 *      void (*tell)(const struct graph_rows *) = dlsym(RTLD_DEFAULT, "graph_rows");
 *      if (tell)
 *              tell(&rows);
 */
#ifndef GUIDES_GRAPH_H
#define GUIDES_GRAPH_H

#include <stddef.h>
#include <stdint.h>

/* The program goes through targets[] upwards, and looks at values[targets[i]], of value_size bytes,
 * for each i.  Both arrays stay where they are until the program unmaps values. */
struct graph_rows {
        const uint32_t *targets;
        uint64_t edges;
        const void *values;
        uint64_t vertices;
        size_t value_size;
};

/* At most 16 (then, or with no guides, nothing happens).  Not from several threads at a time. */
void graph_rows(const struct graph_rows *rows);

#endif
