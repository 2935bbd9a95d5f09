/*
 * t_elf: a good ELF file, and the ways to make it odd.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "t_elf.h"

static uint64_t state;

void draw_start(uint64_t seed) { state = seed * 0x9e3779b97f4a7c15ul + 0x1234567; }

uint64_t draw(uint64_t below)
{
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        return (state >> 11) % below;
}

static Elf64_Phdr *add(struct odd *o, uint32_t type, uint32_t flags, uint64_t off, uint64_t vaddr,
                       uint64_t filesz, uint64_t memsz)
{
        if (o->nph == PHDRS)
                return &o->ph[PHDRS - 1];
        Elf64_Phdr *ph = &o->ph[o->nph++];
        *ph = (Elf64_Phdr){ .p_type = type,
                            .p_flags = flags,
                            .p_offset = off,
                            .p_vaddr = vaddr,
                            .p_paddr = vaddr,
                            .p_filesz = filesz,
                            .p_memsz = memsz,
                            .p_align = PG };
        o->eh.e_phnum = (uint16_t)o->nph;
        return ph;
}

/* Headers and code, and data with a bss. */
static void good(struct odd *o, unsigned type, uint64_t base, const char *interp)
{
        memset(o, 0, sizeof(*o));
        o->eh = (Elf64_Ehdr){ .e_type = (uint16_t)type,
                              .e_machine = EM_X86_64,
                              .e_version = EV_CURRENT,
                              .e_entry = base + CODE_PAGE * PG,
                              .e_phoff = sizeof(o->eh),
                              .e_ehsize = sizeof(o->eh),
                              .e_phentsize = sizeof(Elf64_Phdr) };
        memcpy(o->eh.e_ident, ELFMAG "\2\1\1", SELFMAG + 3);
        o->size = FILE_PAGES * PG;
        add(o, PT_LOAD, PF_R, 0, base, PG, PG);
        add(o, PT_LOAD, PF_R | PF_X, PG, base + PG, PG, PG);
        add(o, PT_LOAD, PF_R | PF_W, 2 * PG + 0x10, base + 2 * PG + 0x10, PG + 0x300, 3 * PG);
        if (interp) {
                snprintf(o->interp, sizeof(o->interp), "%s", interp);
                add(o, PT_INTERP, PF_R, INTERP_AT, base + INTERP_AT, strlen(interp) + 1,
                    strlen(interp) + 1);
        }
}

static void say(struct odd *o, const char *what)
{
        if (!strstr(o->what, what))
                snprintf(o->what + strlen(o->what), sizeof(o->what) - strlen(o->what), " %s", what);
}

/* --- ways to be odd --- */

static Elf64_Phdr *some_load(struct odd *o)
{
        for (;;) {
                Elf64_Phdr *ph = &o->ph[draw(o->nph)];
                if (ph->p_type == PT_LOAD)
                        return ph;
        }
}

static uint64_t base_of(const struct odd *o) { return o->eh.e_entry - CODE_PAGE * PG; }

/* One more segment, over others or behind them, of pages that the file may not have. */
static void segment(struct odd *o)
{
        uint64_t page = draw(9), from = draw(3) ? draw(FILE_PAGES) : draw(2 * FILE_PAGES);
        uint64_t skip = draw(2) ? 0 : draw(PG);
        uint64_t filesz = draw(3) ? draw(3 * PG) : draw(3) * PG;
        uint64_t memsz = filesz + (draw(2) ? 0 : draw(3 * PG));

        /* Over the code only now and then: then nothing is seen. */
        if (page <= CODE_PAGE && draw(8))
                page += 2;
        say(o, "segment");
        add(o, PT_LOAD, draw(4) ? PF_R | (uint32_t)draw(8) : (uint32_t)draw(8), from * PG + skip,
            base_of(o) + page * PG + skip, filesz, memsz);
}

static void bss_alone(struct odd *o)
{
        uint64_t page = 2 + draw(9), skip = draw(PG);

        say(o, "bss");
        add(o, PT_LOAD, (uint32_t)draw(8), draw(1ul << 40), base_of(o) + page * PG + skip, 0,
            1 + draw(2 * PG));
}

static void empty_segment(struct odd *o)
{
        say(o, "empty");
        add(o, PT_LOAD, PF_R, draw(1ul << 40), base_of(o) + draw(5 * PG), 0, 0);
}

static void longer(struct odd *o)
{
        Elf64_Phdr *ph = &o->ph[1 + draw(2)];
        uint64_t more = draw(12 * PG);

        say(o, "longer");
        ph->p_filesz += more;
        ph->p_memsz += more;
}

static void larger(struct odd *o)
{
        say(o, "larger");
        some_load(o)->p_memsz += draw(4 * PG);
}

static void cut(struct odd *o)
{
        say(o, "cut");
        o->size = (CODE_PAGE + 1) * PG + draw((FILE_PAGES - 2) * PG);
}

static void ident(struct odd *o)
{
        unsigned n = 1 + (unsigned)draw(4);

        say(o, "ident");
        while (n--)
                o->eh.e_ident[EI_CLASS + draw(EI_NIDENT - EI_CLASS)] = (unsigned char)draw(256);
}

static void header(struct odd *o)
{
        say(o, "header");
        o->eh.e_version = (uint32_t)draw(3);
        o->eh.e_ehsize = (uint16_t)draw(65536);
        o->eh.e_flags = (uint32_t)draw(1ul << 32);
        o->eh.e_shoff = draw(1ul << 40);
        o->eh.e_shnum = (uint16_t)draw(65536);
        o->eh.e_shentsize = (uint16_t)draw(65536);
        o->eh.e_shstrndx = (uint16_t)draw(65536);
}

static void other_headers(struct odd *o)
{
        static const uint32_t type[] = { PT_NULL,      PT_NOTE, PT_TLS,   PT_GNU_STACK,
                                         PT_GNU_RELRO, PT_PHDR, PT_SHLIB, 0x12345 };

        say(o, "others");
        for (unsigned n = 1 + (unsigned)draw(3); n--;)
                add(o, type[draw(8)], (uint32_t)draw(8), draw(1ul << 40), draw(1ul << 47),
                    draw(1ul << 40), draw(1ul << 40));
}

/* The first one stays: by it Linux places the others. */
static void shuffle(struct odd *o)
{
        say(o, "shuffle");
        for (unsigned i = 2; i < o->nph; i++) {
                unsigned k = 1 + (unsigned)draw(i);
                Elf64_Phdr ph = o->ph[i];
                o->ph[i] = o->ph[k];
                o->ph[k] = ph;
        }
}

/* For a file that is placed as it is linked, or with a loader, any may be the first. */
static void last_first(struct odd *o)
{
        if (o->eh.e_type == ET_DYN && !*o->interp)
                return;
        say(o, "last-first");
        Elf64_Phdr ph = o->ph[0];
        o->ph[0] = o->ph[o->nph - 1];
        o->ph[o->nph - 1] = ph;
}

static void alignment(struct odd *o)
{
        static const uint64_t align[] = { 0, 1, 3, 64, 0x2000, 0x10000, 0x200000, 12345 };

        say(o, "align");
        some_load(o)->p_align = align[draw(8)];
}

static void protection(struct odd *o)
{
        say(o, "flags");
        o->ph[draw(2) * 2].p_flags = (uint32_t)draw(1 + draw(256));
}

static void wrong(struct odd *o)
{
        Elf64_Phdr *ph = some_load(o);

        say(o, "wrong");
        switch (draw(12)) {
        case 0: ph->p_offset += 1 + draw(PG - 1); break;
        case 1: ph->p_memsz = draw(ph->p_filesz + 1); break;
        case 2: ph->p_vaddr += 1ul << 47; break;
        case 3: ph->p_memsz = -draw(1ul << 50); break;
        case 4: ph->p_offset += (7ul << 60); break;
        case 5: o->eh.e_type = (uint16_t)draw(6); break;
        case 6: o->eh.e_machine = (uint16_t)draw(256); break;
        case 7: o->eh.e_phentsize = (uint16_t)draw(128); break;
        case 8: o->eh.e_phnum = (uint16_t)draw(65536); break;
        case 9: o->eh.e_phoff = o->size - draw(3 * PG); break;
        case 10: o->eh.e_ident[draw(4)] ^= (unsigned char)(1 + draw(255)); break;
        case 11: o->size = draw(3 * PG); break;
        }
}

void odd_make(struct odd *o, unsigned type, uint64_t base, const char *interp)
{
        static void (*const way[])(struct odd *) = {
                segment, segment,    segment,   bss_alone,  empty_segment, longer,
                larger,  cut,        cut,       ident,      header,        other_headers,
                shuffle, last_first, alignment, protection,
        };

        good(o, type, base, interp);
        for (unsigned n = 1 + (unsigned)draw(4); n--;)
                way[draw(sizeof(way) / sizeof(way[0]))](o);
        if (draw(10) == 0)
                wrong(o);
}
