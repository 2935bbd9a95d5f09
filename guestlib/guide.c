/*
 * Guides: the library pins their memory, and makes them again in children of fork.
 *
 * A guide may use memory only that is here, so its code and data are pinned.  A child of fork has
 * neither pins nor guides, so both are made there again, from kern's list of its parent's guides.
 */
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include "call.h"
#include "hints.h"
#include "vmguest.h"

/* Of an object larger than PIN_WHOLE, only PIN_CODE bytes from the guide's function on are
 * pinned. */
#define PIN_WHOLE (1ul << 20)
#define PIN_CODE  (16ul << 10)

#define GUIDES 64                       /* as many as kern has room for */
/* The guides of a process that forks, and how many they are.  Only kern knows which guides a
 * process has, since kern ends some. */
static struct hint_guide table[GUIDES];
static int guides;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;        /* guards both, and `handlers` */

_Static_assert(sizeof(struct vmg_fault) == sizeof(struct hint_fault) &&
               offsetof(struct vmg_fault, reg) == offsetof(struct hint_fault, reg) &&
               VMG_AGAIN == HINT_AGAIN && (int)VMG_USED == (int)HINT_USED,
               "vmguest.h and hints.h agree");

/* --- pins --- */

struct object { uintptr_t fn; char name[HINTS_NAME]; int err; };

static bool has(const struct dl_phdr_info *o, uintptr_t addr, size_t *size)
{
        bool found = false;

        *size = 0;
        for (int i = 0; i < o->dlpi_phnum; i++) {
                const ElfW(Phdr) *p = &o->dlpi_phdr[i];
                if (p->p_type != PT_LOAD)
                        continue;
                *size += p->p_memsz;
                found |= addr - (o->dlpi_addr + p->p_vaddr) < p->p_memsz;
        }
        return found;
}

static int pin(uintptr_t addr, size_t len)
{
        uintptr_t start = addr & ~((uintptr_t)VMG_PAGE - 1);

        return (int)call(SYS_mlock, start, addr + len - start, 0);
}

static int pin_object(const struct dl_phdr_info *o, uintptr_t fn, size_t size)
{
        int err = 0;

        for (int i = 0; i < o->dlpi_phnum && !err; i++) {
                const ElfW(Phdr) *p = &o->dlpi_phdr[i];
                uintptr_t start = o->dlpi_addr + p->p_vaddr;
                if (p->p_type != PT_LOAD)
                        continue;
                if (size <= PIN_WHOLE)
                        err = pin(start, p->p_memsz);
                else if (fn - start < p->p_memsz)
                        err = pin(fn, start + p->p_memsz - fn < PIN_CODE
                                              ? start + p->p_memsz - fn
                                              : PIN_CODE);
        }
        return err;
}

/* Pins the guide's object, and the object of this library, whose calls the guide makes. */
static int pin_if(struct dl_phdr_info *o, size_t info_size, void *arg)
{
        struct object *of = arg;
        size_t size;

        (void)info_size;
        if (has(o, of->fn, &size)) {
                const char *slash = strrchr(o->dlpi_name, '/');
                const char *name = slash ? slash + 1 : o->dlpi_name;
                snprintf(of->name, sizeof(of->name), "%.40s+0x%lx", *name ? name : "program",
                         (unsigned long)(of->fn - o->dlpi_addr));
                of->err = pin_object(o, of->fn, size);
        }
        if (has(o, (uintptr_t)vmg_peek, &size) && !of->err)
                of->err = pin_object(o, (uintptr_t)vmg_peek, size);
        return of->err;
}

/* --- guides --- */

static int begin(const struct hint_guide *g)
{
        struct object of = { .fn = g->fn };

        dl_iterate_phdr(pin_if, &of);
        if (of.err)
                return of.err;
        return (int)call6(HINT_GUIDE, g->start, g->len, g->fn, g->arg, (uintptr_t)of.name, 0);
}

static void before_fork(void)
{
        pthread_mutex_lock(&lock);
        for (guides = 0; guides < GUIDES; guides++) {
                struct hint_guide *g = &table[guides];
                g->order = guides ? g[-1].order : 0;
                if (call(HINT_GUIDES, (uintptr_t)g, 0, 0) != 1)
                        break;
        }
}

static void after_fork(void) { pthread_mutex_unlock(&lock); }

/* A guide that cannot be made again is missing: the child is slower, and no less right. */
static void in_child(void)
{
        for (int i = 0; i < guides; i++)
                begin(&table[i]);
        pthread_mutex_unlock(&lock);
}

static int handle_forks(void)
{
        static bool handlers;
        int err = 0;

        pthread_mutex_lock(&lock);
        if (!handlers)
                err = -pthread_atfork(before_fork, after_fork, in_child);
        handlers |= !err;
        pthread_mutex_unlock(&lock);
        return err;
}

PUBLIC int vmg_guide(const void *addr, size_t len, vmg_guide_fn *fn, void *arg)
{
        const struct hint_guide g = { .start = (uintptr_t)addr, .len = len, .fn = (uintptr_t)fn,
                                      .arg = (uintptr_t)arg };

        if (len == 0)
                return -EINVAL;
        if (!fn)
                return -EFAULT;
        if (vmg_version() < 2)
                return vmg_version() ? -ENOSYS : 0;
        int err = handle_forks();
        return err ? err : begin(&g);
}

/* The pages stay pinned: other guides may be in the object. */
PUBLIC int vmg_unguide(const void *addr, size_t len)
{
        if (vmg_version() < 2)
                return vmg_version() ? -ENOSYS : 0;
        return (int)call(HINT_UNGUIDE, (uintptr_t)addr, len, 0);
}
