/*
 * Entries of the registry of mapped files (files.h), for the files that make it up.
 */
#ifndef VMRUN_FILES_ENTRY_H
#define VMRUN_FILES_ENTRY_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum file_kind { FILE_FREE, FILE_PRIVATE, FILE_SHARED, FILE_ANONYMOUS, FILE_SEGMENT };

struct file {
        enum file_kind kind;
        int fd;                         /* private fd; -1 for FILE_ANONYMOUS and FILE_SEGMENT */
        bool endless;                   /* no regular file: fstat reports no end of its memory */
        /* overlayfs: one inode number may stand for two files (before and after a write) */
        bool copied_up;
        uint64_t refs;                  /* private: VMAs.  Otherwise: pages in the arena */
        uint32_t readers;               /* uses in progress */
        dev_t dev;
        ino_t ino;
        int mode;                       /* open flags that tell two entries of one inode apart */
        uint64_t size;                  /* bytes, if there is no fd */
        uint32_t key;                   /* FILE_SEGMENT: System V's */
        bool no_exec;                   /* FILE_PRIVATE: a mapping must not become executable */
        uint64_t probed_end;            /* FILE_PRIVATE: mmap was allowed up to this offset */
        uint32_t next;                  /* in its hash chain, or in the free list */
};

/* Copies entry id to *copy; between this and files_unpin its fd stays open, whatever happens to the
 * mappings.  0 or -EBADF. */
int files_pin(uint32_t id, struct file *copy);
void files_unpin(uint32_t id);

#endif
