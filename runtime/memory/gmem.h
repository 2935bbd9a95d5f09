/*
 * The program's memory, as forwarded system calls see it.
 *
 * Every pointer argument goes through here; no other code of the runtime may access program
 * addresses.  If a page is not resident, kern is asked to fault it in (UPCALL_POPULATE), so only
 * kern checks VMAs, permissions and stack growth.  All functions: 0 (or a length) on success,
 * -EFAULT for what Linux would refuse; partial effects as with copy_to_user.
 */
#ifndef VMRUN_GMEM_H
#define VMRUN_GMEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>
#include "vm/thread.h"

int gmem_read(struct thread *t, void *dst, uint64_t src, size_t len);
int gmem_write(struct thread *t, uint64_t dst, const void *src, size_t len);
/* Checks that the program may access [addr, addr+len): 0 or -EFAULT.  Brings each page into the
 * cache (UPCALL_POPULATE) and changes none. */
int gmem_check(struct thread *t, uint64_t addr, size_t len, bool write);

/* Adds the pages of [start, end) to c; anonymous: the mapping is neither of a file nor shared.  A
 * snapshot, for /proc. */
struct gmem_count { uint64_t resident, dirty, referenced, anonymous, shared, far; };
void gmem_count(struct thread *t, uint64_t start, uint64_t end, bool anonymous,
                struct gmem_count *c);

/* A string of less than max bytes: its length, copied with its NUL; -EFAULT; -ENAMETOOLONG when no
 * NUL came. */
long gmem_string(struct thread *t, char *dst, uint64_t src, size_t max);

/* Bulk data without a copy: pins pages from addr on and describes them in iov.  Returns the bytes
 * covered (at most len, at most what GMEM_PIN_MAX pages hold), or -EFAULT if not even the first
 * byte is accessible.  write: the host will store into them. */
#define GMEM_PIN_MAX 256
struct gmem_pins {
        struct iovec iov[GMEM_PIN_MAX];
        uint32_t frame[GMEM_PIN_MAX];   /* FRAME_NONE for pages of the MAP_SHARED arena */
        int n;
        bool write;
};
long gmem_pin(struct thread *t, struct gmem_pins *p, uint64_t addr, size_t len, bool write);
void gmem_unpin(struct thread *t, struct gmem_pins *p, size_t used);

/* An aligned word for the host's futex.  Its host address is constant until it is dropped: its
 * frame is pinned, or it lies in the MAP_SHARED arena, which other processes may see too. */
struct gmem_word { uint32_t *host; uint32_t frame; };
int gmem_word(struct thread *t, uint64_t addr, bool write, struct gmem_word *w);
/* gmem_word() for a resident page only: a word that a thread waits on is resident. */
bool gmem_word_here(struct thread *t, uint64_t addr, struct gmem_word *w);
/* The byte at addr, or -1 if its page is not resident. */
int gmem_peek(struct thread *t, uint64_t addr);
bool gmem_word_shared(const struct gmem_word *w);
void gmem_word_drop(struct thread *t, const struct gmem_word *w, bool wrote);

#endif
