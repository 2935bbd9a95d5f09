/*
 * Guides: the library pins their memory, and makes them again in children of fork.
 *
 * A guide may use memory only that is here, so its code and data are pinned.  A child of fork has
 * neither pins nor guides, so both are made there again, from kern's list of its parent's guides.
 * Another thread may have had a lock of the dynamic linker's at the fork, and the child would wait
 * for it for ever: so where an object lies is looked up once, before its guide is made.
 */
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include "call.h"
#include "hints.h"
#include "vmguest.h"

/* Of an object larger than PIN_WHOLE, only PIN_CODE bytes from the guide's function on are
 * pinned. */
#define PIN_WHOLE (1ul << 20)
#define PIN_CODE  (16ul << 10)

#define PINS   32                       /* segments of two objects */
#define GUIDES 64                       /* as many as kern has room for */

/* What a function needs that is a guide. */
struct object {
        uintptr_t fn;                   /* 0: none */
        char name[HINTS_NAME];
        struct iovec pin[PINS];
        int pins;
};

/* Of the functions of all guides, and of some that were guides. */
static struct object object[GUIDES];
/* The guides of a process that forks, and how many they are.  Only kern knows which guides a
 * process has, since kern ends some. */
static struct hint_guide table[GUIDES];
static int guides;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;        /* guards these, and `handlers` */

_Static_assert(sizeof(struct vmg_fault) == sizeof(struct hint_fault) &&
               offsetof(struct vmg_fault, reg) == offsetof(struct hint_fault, reg) &&
               VMG_AGAIN == HINT_AGAIN && (int)VMG_USED == (int)HINT_USED,
               "vmguest.h and hints.h agree");

/* --- pins --- */

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

/* False: of has no room. */
static bool add_pin(struct object *of, uintptr_t addr, size_t len)
{
        uintptr_t start = addr & ~((uintptr_t)VMG_PAGE - 1);

        if (of->pins == PINS)
                return false;
        of->pin[of->pins++] = (struct iovec){ (void *)start, addr + len - start };
        return true;
}

static bool add_object(struct object *of, const struct dl_phdr_info *o, uintptr_t fn, size_t size)
{
        bool room = true;

        for (int i = 0; i < o->dlpi_phnum && room; i++) {
                const ElfW(Phdr) *p = &o->dlpi_phdr[i];
                uintptr_t start = o->dlpi_addr + p->p_vaddr;
                if (p->p_type != PT_LOAD)
                        continue;
                if (size <= PIN_WHOLE)
                        room = add_pin(of, start, p->p_memsz);
                else if (fn - start < p->p_memsz)
                        room = add_pin(of, fn, start + p->p_memsz - fn < PIN_CODE
                                                       ? start + p->p_memsz - fn
                                                       : PIN_CODE);
        }
        return room;
}

/* Adds the guide's object, and the object of this library, whose calls the guide makes. */
static int add_if(struct dl_phdr_info *o, size_t info_size, void *arg)
{
        struct object *of = arg;
        bool room = true;
        size_t size;

        (void)info_size;
        if (has(o, of->fn, &size)) {
                const char *slash = strrchr(o->dlpi_name, '/');
                const char *name = slash ? slash + 1 : o->dlpi_name;
                snprintf(of->name, sizeof(of->name), "%.40s+0x%lx", *name ? name : "program",
                         (unsigned long)(of->fn - o->dlpi_addr));
                room = add_object(of, o, of->fn, size);
        }
        if (has(o, (uintptr_t)vmg_peek, &size) && room)
                room = add_object(of, o, (uintptr_t)vmg_peek, size);
        return room ? 0 : -ENOMEM;
}

/* --- guides, under the lock --- */

static bool is_guide(uintptr_t fn)
{
        for (int i = 0; i < guides; i++)
                if (table[i].fn == fn)
                        return true;
        return false;
}

static void list_guides(void)
{
        for (guides = 0; guides < GUIDES; guides++) {
                struct hint_guide *g = &table[guides];
                g->order = guides ? g[-1].order : 0;
                if (call(HINT_GUIDES, (uintptr_t)g, 0, 0) != 1)
                        break;
        }
}

static struct object *object_of(uintptr_t fn)
{
        for (int i = 0; i < GUIDES; i++)
                if (object[i].fn == fn)
                        return &object[i];
        return NULL;
}

/* A place for an object.  NULL: all guides that there may be exist, each with a function of its
 * own. */
static struct object *unused_object(void)
{
        struct object *o = object_of(0);

        if (o)
                return o;
        list_guides();
        for (int i = 0; i < GUIDES; i++)
                if (!is_guide(object[i].fn))
                        return &object[i];
        return NULL;
}

static int begin(const struct hint_guide *g, const struct object *of)
{
        int err = 0;

        for (int i = 0; i < of->pins && !err; i++)
                err = (int)call(SYS_mlock, (uintptr_t)of->pin[i].iov_base, of->pin[i].iov_len, 0);
        if (err)
                return err;
        return (int)call6(HINT_GUIDE, g->start, g->len, g->fn, g->arg, (uintptr_t)of->name, 0);
}

static int begin_first(const struct hint_guide *g, const struct object *of)
{
        struct object *o = object_of(g->fn);

        /* The function may be another object's than before. */
        if (!o && !(o = unused_object()))
                return -ENOSPC;
        *o = *of;
        return begin(g, o);
}

static void before_fork(void)
{
        pthread_mutex_lock(&lock);
        list_guides();
}

static void after_fork(void) { pthread_mutex_unlock(&lock); }

/* A guide that cannot be made again is missing: the child is slower, and no less right. */
static void in_child(void)
{
        for (int i = 0; i < guides; i++) {
                const struct object *of = object_of(table[i].fn);
                if (of)
                        begin(&table[i], of);
        }
        pthread_mutex_unlock(&lock);
}

static int handle_forks(void)
{
        static bool handlers;
        int err = handlers ? 0 : -pthread_atfork(before_fork, after_fork, in_child);

        handlers |= !err;
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
        struct object of = { .fn = g.fn };
        int err = dl_iterate_phdr(add_if, &of);
        if (err)
                return err;
        pthread_mutex_lock(&lock);
        err = handle_forks();
        if (!err)
                err = begin_first(&g, &of);
        pthread_mutex_unlock(&lock);
        return err;
}

/* The pages stay pinned: other guides may be in the object. */
PUBLIC int vmg_unguide(const void *addr, size_t len)
{
        if (vmg_version() < 2)
                return vmg_version() ? -ENOSYS : 0;
        return (int)call(HINT_UNGUIDE, (uintptr_t)addr, len, 0);
}
