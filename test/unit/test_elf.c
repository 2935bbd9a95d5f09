/*
 * The ELF parser: good files give the right plan, each kind of bad file its own errno and sentence,
 * and no bytes whatever make it crash (run it with sanitizers). SEED=n repeats a run of the
 * mutation test.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "load/elf.h"
#include "layout.h"
#include "mkelf.h"

static struct mkelf m;
static struct elf_info info;
static const char *why;

static int parse(void)
{
        int fd = mkelf_fd(&m);
        int ret = elf_parse(fd, &info, &why);
        close(fd);
        return ret ? ret : info.unloadable;
}

/* ---- Good files ---- */

static void good_exec(void **state)
{
        (void)state;
        static const char loader[] = "/lib64/ld-linux-x86-64.so.2";
        mkelf_init(&m, ET_EXEC);
        mkelf_interp(&m, loader, sizeof(loader));
        mkelf_add(&m, PT_GNU_STACK, PF_R | PF_W, 0, 0, 0, 0);
        assert_int_equal(parse(), 0);
        assert_int_equal(info.type, ET_EXEC);
        assert_true(info.is_elf);
        assert_false(info.foreign);
        assert_int_equal(info.entry, 0x401000);
        assert_true(info.entry_mapped);
        assert_true(info.phdr_mapped);
        assert_int_equal(info.phdr_vaddr, 0x400040);
        assert_int_equal(info.phnum, 4);
        assert_true(info.gnu_stack);
        assert_false(info.exec_stack);
        assert_true(info.has_interp);
        assert_string_equal(info.interp, loader);
        assert_int_equal(info.nsegments, 2);
        assert_int_equal(info.low, 0x400000);
        assert_int_equal(info.high, 0x406000);
        assert_int_equal(info.align, 0x1000);
        const struct elf_segment *s = &info.segment[1];
        assert_int_equal(s->offset, 0x2010);
        assert_int_equal(s->vaddr, 0x402010);
        assert_int_equal(s->filesz, 0x300);
        assert_int_equal(s->memsz, 0x3000);
        assert_int_equal(s->flags, PF_R | PF_W);
}

static void good_dyn(void **state)
{
        (void)state;
        mkelf_init(&m, ET_DYN);
        m.ph[0].p_align = 0x200000;
        m.ph[1].p_align = 12345;                /* Linux ignores what is no power of two */
        mkelf_add(&m, PT_GNU_STACK, PF_R | PF_W | PF_X, 0, 0, 0, 0);
        assert_int_equal(parse(), 0);
        assert_int_equal(info.type, ET_DYN);
        assert_false(info.has_interp);
        assert_true(info.exec_stack);
        assert_int_equal(info.low, 0);
        assert_int_equal(info.align, 0x200000);
}

/* Files that look odd, but that Linux runs. */
static void good_oddities(void **state)
{
        (void)state;
        mkelf_init(&m, ET_EXEC);
        m.eh.e_entry = 0x12345;                 /* only noted */
        m.eh.e_shoff = 0x7fffffffff;            /* section headers play no part */
        m.eh.e_shnum = 30;
        /* bss alone: its offset means nothing */
        mkelf_add(&m, PT_LOAD, PF_R | PF_W, 0x777, 0x410333, 0, 0x100);
        mkelf_add(&m, PT_LOAD, PF_R, 0x1ffff0000, 0x420000, 0, 0);              /* empty: dropped */
        assert_int_equal(parse(), 0);
        assert_false(info.entry_mapped);
        assert_int_equal(info.nsegments, 3);
        assert_int_equal(info.segment[2].vaddr, 0x410333);

        mkelf_init(&m, ET_EXEC);                /* headers outside the segments */
        m.ph[0].p_offset = 0x1000;
        m.ph[0].p_filesz = m.ph[0].p_memsz = 0x800;
        assert_int_equal(parse(), 0);
        assert_false(info.phdr_mapped);

        mkelf_init(&m, ET_EXEC);                /* two segments in one page, no byte shared */
        m.ph[1].p_vaddr = 0x401810;
        m.ph[1].p_offset = 0x2810;
        assert_int_equal(parse(), 0);

        mkelf_init(&m, ET_EXEC);                /* all of its bytes twice */
        m.ph[1] = m.ph[0];
        assert_int_equal(parse(), 0);
        assert_int_equal(info.nsegments, 2);

        mkelf_init(&m, ET_EXEC);                /* the last segment that has the headers counts */
        mkelf_add(&m, PT_LOAD, PF_R, 0, 0x500000, 0x100, 0x100);
        assert_int_equal(parse(), 0);
        assert_int_equal(info.phdr_vaddr, 0x500040);

        mkelf_init(&m, ET_EXEC);                /* magic, type and machine alone count */
        memset(m.eh.e_ident + SELFMAG, 0xee, EI_NIDENT - SELFMAG);
        m.eh.e_version = m.eh.e_ehsize = 77;
        assert_int_equal(parse(), 0);
        m.eh.e_ident[EI_CLASS] = ELFCLASS32;
        m.eh.e_ident[EI_DATA] = ELFDATA2MSB;
        assert_int_equal(parse(), 0);

        mkelf_init(&m, ET_EXEC);                /* cut off: before its bss, within the last page */
        m.size = 0x2001;
        assert_int_equal(parse(), 0);
        assert_int_equal(info.segment[1].filesz, 0x300);
        m.ph[1].p_memsz = m.ph[1].p_filesz;     /* without a bss, anywhere */
        m.size = 0x100;
        assert_int_equal(parse(), 0);
        mkelf_init(&m, ET_EXEC);                /* with a bss that begins with a page */
        m.ph[1].p_filesz = 0xff0;
        m.size = 0x100;
        assert_int_equal(parse(), 0);
        mkelf_init(&m, ET_EXEC);                /* or is not writable */
        m.ph[1].p_flags = PF_R;
        m.size = 0x100;
        assert_int_equal(parse(), 0);

        mkelf_init(&m, ET_EXEC);                /* descending addresses */
        Elf64_Phdr ph = m.ph[0];
        m.ph[0] = m.ph[1];
        m.ph[1] = ph;
        assert_int_equal(parse(), 0);
        assert_int_equal(info.low, 0x400000);
        assert_int_equal(info.high, 0x406000);

        mkelf_init(&m, ET_DYN);                 /* prelinked into vmrun's range: only a distance */
        m.ph[0].p_vaddr += WINDOW;
        m.ph[1].p_vaddr += WINDOW;
        assert_int_equal(parse(), 0);
}

static void real_programs(void **state)
{
        (void)state;
        static const char *const path[] = { "/proc/self/exe", "/usr/bin/true", "/bin/sh",
                                            "/bin/busybox", "/sbin/ldconfig" };
        for (size_t i = 0; i < sizeof(path) / sizeof(path[0]); i++) {
                int fd = open(path[i], O_RDONLY | O_CLOEXEC);
                if (fd < 0)
                        continue;
                if (elf_parse(fd, &info, &why))
                        fail_msg("%s: %s", path[i], why);
                close(fd);
        }
}

/* ---- Bad files: a good one, bent ---- */

static void magic(void)        { m.eh.e_ident[1] = 'F'; }
static void class32(void)      { m.eh.e_ident[EI_CLASS] = ELFCLASS32; m.eh.e_machine = EM_386; }
static void x32(void)          { m.eh.e_ident[EI_CLASS] = ELFCLASS32; m.eh.e_phentsize = 32; }
static void aarch64(void)      { m.eh.e_machine = EM_AARCH64; }
static void s390(void) { m.eh.e_ident[EI_DATA] = ELFDATA2MSB; m.eh.e_machine = EM_S390 << 8; }
static void alien(void)        { m.eh.e_machine = 4711; }
static void big_endian(void)
{
        m.eh.e_ident[EI_DATA] = ELFDATA2MSB;
        m.eh.e_machine = EM_X86_64 << 8;
}
static void relocatable(void)  { m.eh.e_type = ET_REL; }
static void core(void)         { m.eh.e_type = ET_CORE; }
static void type99(void)       { m.eh.e_type = 99; }
static void empty(void)        { m.size = 0; }
static void tiny(void)         { m.size = 3; }
static void short_ident(void)  { m.size = 10; }
static void short_header(void) { m.size = 55; }
static void short_phdrs(void)  { m.size = 64 + 56 + 20; }
static void far_phdrs(void)    { m.eh.e_phoff = 0xffffffffffffff00; }
static void past_phdrs(void)   { m.eh.e_phoff = 0x2ff0; }
static void no_phdrs(void)     { m.eh.e_phnum = 0; }
static void phentsize(void)    { m.eh.e_phentsize = 32; }
static void many_phdrs(void)   { m.eh.e_phnum = 1171; m.size = 0x20000; }
static void xnum(void)         { m.eh.e_phnum = PN_XNUM; m.size = 0x400000; }
static void no_load(void)      { m.ph[0].p_type = m.ph[1].p_type = PT_NOTE; }
static void empty_loads(void)
{
        m.ph[0].p_filesz = m.ph[0].p_memsz = m.ph[1].p_filesz = m.ph[1].p_memsz = 0;
}
static void filesz(void)       { m.ph[1].p_memsz = 0x2ff; }
static void cut_off(void)      { m.size = 0x2000; }
static void far_offset(void)   { m.ph[1].p_offset = 0xfffffffffffff010; }
static void last_offset(void)  { m.ph[1].p_offset = 0x7fffffffffffe010; }
static void wraps(void)        { m.ph[1].p_vaddr = 0xfffffffffffff010; }
static void wraps_memsz(void)  { m.ph[1].p_memsz = 0xffffffffffffffff; }
static void above(void)        { m.ph[1].p_vaddr = 0x7fffffffe010; }
static void kernel_half(void)  { m.ph[1].p_vaddr = 0xffffffff80000010; }
static void congruence(void)   { m.ph[1].p_offset = 0x2020; }
static void reserved(void)     { m.ph[1].p_vaddr = WINDOW + 0x2010; }
static void reserved_low(void) { m.ph[1].p_vaddr = RESERVED_START - 0x1ff0; }
static void reserved_top(void) { m.ph[1].p_vaddr = RESERVED_END - 0xff0; }
static void reserved_span(void)
{
        m.ph[1].p_vaddr = 0x600000000010;
        m.ph[1].p_memsz = 0x180000000000;
}
static void interp_empty(void) { mkelf_interp(&m, "", 1); }
static void interp_long(void)
{
        static char path[4097];
        memset(path, 'x', 4096);
        mkelf_interp(&m, path, 4097);
}
static void interp_nul(void)   { mkelf_interp(&m, "/lib/ld", 7); }
static void interp_cut(void)   { mkelf_interp(&m, "/lib/ld", 8)->p_offset = 0x2ffc; }
static void interp_far(void)   { mkelf_interp(&m, "/lib/ld", 8)->p_offset = 0xfffffffffffffffc; }

static const struct { const char *name; void (*bend)(void); int err; const char *says; } bad[] = {
#define BAD(f, err, says) { #f, f, -err, says }
        BAD(magic, ENOEXEC, "not an ELF file"),
        BAD(class32, ENOEXEC, "32-bit (i386)"),
        BAD(x32, ENOEXEC, "32-bit (x32)"),
        BAD(aarch64, ENOEXEC, "for machine 183 (AArch64); this host runs x86-64"),
        BAD(s390, ENOEXEC, "for machine 22 (S/390)"),
        BAD(alien, ENOEXEC, "for machine 4711 (unknown)"),
        BAD(big_endian, ENOEXEC, "byte order"),
        BAD(relocatable, ENOEXEC, "object file"),
        BAD(core, ENOEXEC, "core dump"),
        BAD(type99, ENOEXEC, "ELF type 99"),
        BAD(empty, ENOEXEC, "empty"),
        BAD(tiny, ENOEXEC, "not an ELF file"),
        BAD(short_ident, ENOEXEC, "ELF header cut off at byte 10"),
        BAD(short_header, ENOEXEC, "ELF header cut off at byte 55"),
        BAD(short_phdrs, ENOEXEC, "program headers cut off at byte 140"),
        BAD(far_phdrs, ENOEXEC, "program headers cut off"),
        BAD(past_phdrs, ENOEXEC, "program headers cut off"),
        BAD(no_phdrs, ENOEXEC, "no program headers"),
        BAD(phentsize, ENOEXEC, "program headers of 32 bytes"),
        BAD(many_phdrs, ENOEXEC, "1171 program headers"),
        BAD(xnum, ENOEXEC, "65535 program headers"),
        BAD(no_load, EINVAL, "no loadable segment"),
        BAD(empty_loads, EINVAL, "no loadable segment"),
        BAD(filesz, EINVAL, "segment 1 has more bytes in the file (0x300) than in memory (0x2ff)"),
        BAD(cut_off, EFAULT, "segment 1 is cut off: its bss begins at offset 0x2310"),
        BAD(far_offset, EOVERFLOW, "no file has bytes at offset"),
        BAD(last_offset, EOVERFLOW, "no file has bytes at offset"),
        BAD(wraps, EINVAL, "wraps around"),
        BAD(wraps_memsz, EINVAL, "wraps around"),
        BAD(above, EINVAL, "ends above"),
        BAD(kernel_half, EINVAL, "ends above"),
        BAD(congruence, EINVAL, "segment 1 cannot be mapped"),
        BAD(reserved, ENOMEM, "the range vmrun keeps for itself"),
        BAD(reserved_low, ENOMEM, "the range vmrun keeps for itself"),
        BAD(reserved_top, ENOMEM, "the range vmrun keeps for itself"),
        BAD(reserved_span, ENOMEM, "the range vmrun keeps for itself"),
        BAD(interp_empty, ENOEXEC, "interpreter (PT_INTERP) is empty"),
        BAD(interp_long, ENOEXEC, "too long: 4097 bytes"),
        BAD(interp_nul, ENOEXEC, "does not end in a NUL"),
        BAD(interp_cut, EIO, "(PT_INTERP) is cut off"),
        BAD(interp_far, EINVAL, "(PT_INTERP) cannot be read"),
};

static void bad_files(void **state)
{
        (void)state;
        for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
                mkelf_init(&m, ET_EXEC);
                assert_int_equal(parse(), 0);
                bad[i].bend();
                int err = parse();
                if (err != bad[i].err || !strstr(why, bad[i].says))
                        fail_msg("%s: %d \"%s\"; expected %d \"%s\"", bad[i].name, err, why,
                                 bad[i].err, bad[i].says);
        }
}

/* Files that another host might run. */
static void foreign_files(void **state)
{
        static void (*const bend[])(void) = { magic, class32, x32, aarch64, s390, big_endian, empty,
                                              phentsize, relocatable, short_header, no_phdrs };

        (void)state;
        for (size_t i = 0; i < sizeof(bend) / sizeof(bend[0]); i++) {
                mkelf_init(&m, ET_EXEC);
                bend[i]();
                assert_int_equal(parse(), -ENOEXEC);
                assert_int_equal(info.is_elf, bend[i] != magic && bend[i] != empty);
                assert_int_equal(info.foreign, i < 7);
        }
}

static void not_files(void **state)
{
        (void)state;
        int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
        assert_int_equal(elf_parse(fd, &info, &why), -EACCES);
        assert_non_null(strstr(why, "not a regular file"));
        close(fd);
        fd = open("/", O_RDONLY | O_CLOEXEC);
        assert_int_equal(elf_parse(fd, &info, &why), -EACCES);
        close(fd);
        assert_int_equal(elf_parse(-1, &info, &why), -EBADF);
}

/* ---- Any bytes whatever ---- */

/* Checks all that image.c relies on, for a file of any content. */
static void check_plan(void)
{
        assert_true(info.nsegments > 0 && info.nsegments <= ELF_PHDRS_MAX);
        assert_true(info.low < info.high && info.high <= TASK_SIZE);
        assert_true(info.align >= PAGE_SIZE && (info.align & (info.align - 1)) == 0);
        for (unsigned i = 0; i < info.nsegments; i++) {
                const struct elf_segment *s = &info.segment[i];
                assert_true(s->memsz > 0 && s->filesz <= s->memsz);
                assert_true(s->vaddr >= info.low && s->vaddr + s->memsz <= info.high);
                assert_true(s->filesz == 0 || (s->offset - s->vaddr) % PAGE_SIZE == 0);
        }
}

static void parse_bytes(const void *bytes, size_t n)
{
        int fd = bytes_fd(bytes, n);
        why = NULL;
        int err = elf_parse(fd, &info, &why);
        close(fd);
        assert_true(err <= 0);
        if (err || info.unloadable)
                assert_true(*why != '\0');
        else
                check_plan();
}

static unsigned char *slurp(const char *path, size_t *n)
{
        FILE *f = fopen(path, "re");
        if (!f)
                return NULL;
        assert_int_equal(fseek(f, 0, SEEK_END), 0);
        *n = (size_t)ftell(f);
        rewind(f);
        unsigned char *bytes = malloc(*n);
        assert_int_equal(fread(bytes, 1, *n, f), *n);
        fclose(f);
        return bytes;
}

static const char *const victims[] = { "/usr/bin/true", "/bin/busybox", "/sbin/ldconfig" };

static void truncated(void **state)
{
        (void)state;
        for (size_t v = 0; v < sizeof(victims) / sizeof(victims[0]); v++) {
                size_t n;
                unsigned char *bytes = slurp(victims[v], &n);
                if (!bytes)
                        continue;
                for (size_t cut = 0; cut <= 4096 && cut < n; cut++) {
                        int fd = bytes_fd(bytes, cut);
                        int err = elf_parse(fd, &info, &why);
                        close(fd);
                        const Elf64_Ehdr *eh = (const Elf64_Ehdr *)(const void *)bytes;
                        if (cut < eh->e_phoff + eh->e_phnum * sizeof(Elf64_Phdr))
                                assert_int_equal(err, -ENOEXEC);
                        else
                                assert_true(err == 0 || err == -EIO);   /* EIO: in PT_INTERP */
                }
                free(bytes);
        }
}

static void mutated(void **state)
{
        (void)state;
        unsigned seed =
                getenv("SEED") ? (unsigned)strtoul(getenv("SEED"), NULL, 0) : (unsigned)time(NULL);
        print_message("# SEED=%u\n", seed);
        for (size_t v = 0; v < sizeof(victims) / sizeof(victims[0]); v++) {
                size_t n;
                unsigned char *bytes = slurp(victims[v], &n);
                if (!bytes)
                        continue;
                srandom(seed);
                for (int round = 0; round < 1000; round++) {
                        unsigned char kept[1024];
                        memcpy(kept, bytes, sizeof(kept));
                        for (long k = 1 + random() % 8; k > 0; k--)     /* mostly in the headers */
                                bytes[(size_t)random() %
                                      (random() % 4 ? 64 + 13 * 56 : sizeof(kept))] =
                                        (unsigned char)random();
                        memcpy(bytes, kept, round % 8 ? 20 : 0); /* else most end at the magic */
                        parse_bytes(bytes, n);
                        memcpy(bytes, kept, sizeof(kept));
                }
                free(bytes);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(good_exec), cmocka_unit_test(good_dyn),
                cmocka_unit_test(good_oddities), cmocka_unit_test(real_programs),
                cmocka_unit_test(bad_files), cmocka_unit_test(foreign_files),
                cmocka_unit_test(not_files),
                cmocka_unit_test(truncated), cmocka_unit_test(mutated),
        };
        return cmocka_run_group_tests_name("elf", tests, NULL, NULL);
}
