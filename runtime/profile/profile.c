/*
 * Where the two files of a profile go, and when they are written.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "abi_control.h"
#include "base/message.h"
#include "base/options.h"
#include "base/privfd.h"
#include "marshal/proc_path.h"
#include "memory/files_entry.h"
#include "memory/files_read.h"
#include "profile/profile.h"
#include "profile/texts.h"
#include "vm/vcpu.h"

static struct outfile place = OUTFILE_NONE;

void profile_init(void)
{
        int err = opt.profile ? outfile_open(&place, opt.profile, privfd_move) : 0;

        if (err)
                die_(EXIT_VMRUN_FAILED, "--profile %s: cannot be written: %s: %s", opt.profile,
                     strerror(-err), outfile_cure(err));
}

void profile_keep(struct outfile *o)
{
        *o = place;
        o->execs++;
}

void profile_adopt(const struct outfile *o) { place = *o; }

/* ---- mappings ---- */

static void add_map(const struct map_entry *e, void *arg)
{
        struct code *c = arg;
        struct file f;
        char path[PATH_MAX] = "";
        dev_t dev;
        ino_t ino;

        if (e->file == FILE_NONE || code_object(c, e->file)) {
                code_add(c, e, NULL, -1);
                return;
        }
        if (file_describe(e->file, path, sizeof(path), &dev, &ino) != 0)
                path[0] = 0;
        bool pinned = files_pin(e->file, &f) == 0;
        code_add(c, e, path, pinned ? f.fd : -1);
        if (pinned && (f.fd < 0 || !code_object(c, e->file)))
                files_unpin(e->file);
}

/* Lets go of the files that add_map() has pinned. */
static void unmap_all(struct code *c)
{
        for (size_t i = 0; i < c->nobjects; i++)
                if (c->object[i]->fd >= 0)
                        files_unpin(c->object[i]->id);
        code_free(c);
}

/* ---- the files ---- */

typedef int text_fn(const struct profile_of *of, FILE *f);

static int write_text(const struct profile_of *of, text_fn *fn, const char *name)
{
        char *text = NULL;
        size_t size = 0;
        FILE *f = open_memstream(&text, &size);

        if (!f)
                return -errno;
        int err = fn(of, f);
        bool bad = ferror(f);
        bad |= fclose(f) != 0;
        if (!err)
                err = bad ? -ENOMEM : outfile_replace(&place, name, text, size);
        free(text);
        return err;
}

static int write_both(const struct profile_of *of)
{
        char name[NAME_MAX + 1], table[NAME_MAX + 5];

        outfile_name(&place, strlen(place.name), name);
        snprintf(table, sizeof(table), "%s.txt", name);
        int err = write_text(of, profile_folded, name);
        return err ? err : write_text(of, profile_table, table);
}

void profile_write(struct thread *t)
{
        /* The program may have written over the address, or the table. */
        const struct profile *p =
                opt.profile ? kern_pointer(t, CONTROL->profile, sizeof(*p)) : NULL;
        struct code code = { .map = NULL };
        struct stacks stacks;

        if (!p)
                return;
        procfs_each_map(t, add_map, &code);
        int err = code.failed ? -ENOMEM : stacks_read(&stacks, p, &code);
        if (!err) {
                const struct profile_of of = {
                        .stacks = &stacks, .cut = p->cut, .lost = p->lost,
                        .lost_ticks = p->lost_ticks, .code = &code,
                        .program = opt.argv[0] ? opt.argv[0] : "", .pid = getpid(),
                        .tsc_khz = CONTROL->tsc_khz
                };
                err = write_both(&of);
                free(stacks.s);
        }
        if (err)
                warnx_("--profile %s: could not be written: %s", opt.profile, strerror(-err));
        unmap_all(&code);
}
