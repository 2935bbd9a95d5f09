/*
 * A function may have several names, and a place within a function may have a name, too.  So the
 * names are sorted, and the best name of each address is kept.
 */
#include <gelf.h>
#include <libelf.h>
#include <stdlib.h>
#include <string.h>
#include "profile/symbols.h"

struct symbol {
        uint64_t start, size;
        const char *name;
        unsigned char binding;          /* STB_* */
        bool open;                      /* size is only up to the end of the section */
};

struct segment { uint64_t offset, address, size; };

struct symbols {
        Elf *elf;                       /* owns the names */
        struct segment *segment;
        size_t nsegments;
        struct symbol *symbol;          /* by start; no two starts are equal */
        size_t nsymbols;
};

/* ---- reading ---- */

static bool read_segments(struct symbols *s)
{
        size_t n;
        GElf_Phdr ph;

        if (elf_getphdrnum(s->elf, &n) != 0)
                return false;
        s->segment = calloc(n ? n : 1, sizeof(*s->segment));
        for (size_t i = 0; s->segment && i < n; i++)
                if (gelf_getphdr(s->elf, (int)i, &ph) && ph.p_type == PT_LOAD)
                        s->segment[s->nsegments++] =
                                (struct segment){ ph.p_offset, ph.p_vaddr, ph.p_filesz };
        return s->segment;
}

static Elf_Scn *section(Elf *elf, uint32_t type, GElf_Shdr *sh)
{
        for (Elf_Scn *at = elf_nextscn(elf, NULL); at; at = elf_nextscn(elf, at))
                if (gelf_getshdr(at, sh) && sh->sh_type == type)
                        return at;
        return NULL;
}

static bool is_function(const GElf_Sym *y)
{
        int type = GELF_ST_TYPE(y->st_info);
        return (type == STT_FUNC || type == STT_GNU_IFUNC) && y->st_shndx != SHN_UNDEF;
}

/* Assembly code often has no sizes. */
static uint64_t up_to_the_end(Elf *elf, const GElf_Sym *y)
{
        GElf_Shdr sh;
        Elf_Scn *in = y->st_shndx < SHN_LORESERVE ? elf_getscn(elf, y->st_shndx) : NULL;

        return in && gelf_getshdr(in, &sh) && y->st_value - sh.sh_addr < sh.sh_size
                       ? sh.sh_addr + sh.sh_size - y->st_value : 0;
}

static bool read_symbols(struct symbols *s)
{
        GElf_Shdr sh;
        GElf_Sym y;
        Elf_Scn *table = section(s->elf, SHT_SYMTAB, &sh);

        if (!table)
                table = section(s->elf, SHT_DYNSYM, &sh);
        Elf_Data *data = table ? elf_getdata(table, NULL) : NULL;
        if (!data || !sh.sh_entsize)
                return true;            /* there are no names */
        size_t n = data->d_size / sh.sh_entsize;
        s->symbol = calloc(n ? n : 1, sizeof(*s->symbol));
        for (size_t i = 0; s->symbol && i < n; i++) {
                if (!gelf_getsym(data, (int)i, &y) || !is_function(&y))
                        continue;
                const char *name = elf_strptr(s->elf, sh.sh_link, y.st_name);
                if (name && *name)
                        s->symbol[s->nsymbols++] = (struct symbol){
                                y.st_value, y.st_size ? y.st_size : up_to_the_end(s->elf, &y),
                                name, GELF_ST_BIND(y.st_info), !y.st_size
                        };
        }
        return s->symbol;
}

/* ---- the best name ---- */

static int three_way(uint64_t a, uint64_t b) { return (a > b) - (a < b); }

/* STB_GLOBAL before STB_WEAK before STB_LOCAL and the rest. */
static int rank(const struct symbol *y)
{
        return y->binding == STB_GLOBAL ? 0 : y->binding == STB_WEAK ? 1 : 2;
}

/* By address; the best name first. */
static int compare(const void *a, const void *b)
{
        const struct symbol *x = a, *y = b;
        int order = three_way(x->start, y->start);

        if (!order)
                order = x->open - y->open;
        if (!order)
                order = rank(x) - rank(y);
        if (!order)
                order = three_way(strspn(x->name, "_"), strspn(y->name, "_"));
        return order ? order : strcmp(x->name, y->name);
}

static void sort(struct symbols *s)
{
        size_t kept = 0;

        qsort(s->symbol, s->nsymbols, sizeof(*s->symbol), compare);
        for (size_t i = 0; i < s->nsymbols; i++)
                if (!kept || s->symbol[i].start != s->symbol[kept - 1].start)
                        s->symbol[kept++] = s->symbol[i];
        s->nsymbols = kept;
}

struct symbols *symbols_read(int fd)
{
        struct symbols *s = calloc(1, sizeof(*s));

        if (!s || elf_version(EV_CURRENT) == EV_NONE)
                goto fail;
        s->elf = elf_begin(fd, ELF_C_READ, NULL);
        if (!s->elf || elf_kind(s->elf) != ELF_K_ELF || !read_segments(s) || !read_symbols(s))
                goto fail;
        if (s->nsymbols)
                sort(s);
        return s;
fail:
        symbols_free(s);
        return NULL;
}

void symbols_free(struct symbols *s)
{
        if (!s)
                return;
        free(s->segment);
        free(s->symbol);
        elf_end(s->elf);
        free(s);
}

/* ---- asking ---- */

bool symbols_address(const struct symbols *s, uint64_t offset, uint64_t *address)
{
        for (size_t i = 0; i < s->nsegments; i++) {
                const struct segment *g = &s->segment[i];
                if (offset - g->offset < g->size) {
                        *address = g->address + (offset - g->offset);
                        return true;
                }
        }
        return false;
}

#define NESTED 64                       /* names looked at whose function may enclose another's */

const char *symbols_find(const struct symbols *s, uint64_t address, uint64_t *into)
{
        size_t low = 0, high = s->nsymbols;

        while (low < high) {            /* the first symbol that begins behind the address */
                size_t mid = low + (high - low) / 2;
                if (s->symbol[mid].start <= address)
                        low = mid + 1;
                else
                        high = mid;
        }
        for (size_t i = low; i-- > 0 && low - i <= NESTED;) {
                const struct symbol *y = &s->symbol[i];
                /* A symbol without a size of its own lasts until the next symbol begins. */
                if (address - y->start < y->size && (!y->open || i == low - 1)) {
                        *into = address - y->start;
                        return y->name;
                }
        }
        return NULL;
}
