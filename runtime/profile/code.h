/*
 * From the program's addresses to functions of files, and to kinds of memory.
 */
#ifndef VMRUN_CODE_H
#define VMRUN_CODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "abi_exits.h"

struct symbols;

/* A file that is mapped. */
struct code_object {
        uint32_t id;                    /* of the file (memory/files.h) */
        int fd;                         /* the caller's; -1: it cannot be read */
        char *path;
        bool read;                      /* its symbols were read: */
        struct symbols *symbols;        /* NULL: it has none */
};

struct code_map {
        struct map_entry e;
        struct code_object *object;     /* NULL: anonymous memory */
};

/* Zeroed: nothing is mapped. */
struct code {
        struct code_map *map;           /* by address */
        size_t nmaps, maps_room;
        struct code_object **object;
        size_t nobjects, objects_room;
        bool failed;                    /* there was no memory for all of it */
};

/* Adds a mapping; they come by address.  path, fd: of a file that was not added before. */
struct code_object *code_object(struct code *c, uint32_t id);
void code_add(struct code *c, const struct map_entry *e, const char *path, int fd);
void code_free(struct code *c);

struct place {
        const char *symbol;             /* the function; NULL: not known */
        uint64_t into;                  /* how far in it */
        /* Path of the file; or "[anon]", as for code that the program has made, or "[unmapped]". */
        const char *object;
        uint64_t address;               /* in the file's own terms; without one, as it is */
};
/* Finds the place of addr.  The texts live as long as c. */
void code_place(struct code *c, uint64_t addr, struct place *p);

/* Was the function at `inner`, which keeps no frame, called from before `ret`?  That is so if a
 * call stands before ret that may lead there.  (ret is a word on the stack, perhaps an old one.) */
bool code_calls(struct code *c, uint64_t ret, uint64_t inner);

/* The memory at addr in a word or two: "[heap]", "anon 64M", a file's name. */
#define CODE_REGION 24
const char *code_region(const struct code *c, uint64_t addr, char text[CODE_REGION]);

#endif
