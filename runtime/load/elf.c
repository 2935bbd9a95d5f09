/*
 * Reading of ELF executables (elf.h).
 *
 * The headers are read by hand and the checks are those of Linux's fs/binfmt_elf.c, which looks at
 * the magic, the type and the machine only: libelf refuses files that Linux runs.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "layout.h"
#include "load/elf.h"

_Static_assert(sizeof(Elf64_Phdr) == 56, "ELF_PHDRS_MAX counts headers of 56 bytes");

#define NOT_WHOLE ": the file is not whole, so copy or make it again"

__attribute__((format(printf, 3, 4)))
static int refuse(struct elf_info *out, int err, const char *fmt, ...)
{
        va_list ap;
        va_start(ap, fmt);
        vsnprintf(out->text, sizeof(out->text), fmt, ap);
        va_end(ap);
        return err;
}

/* Bytes read, fewer than len where the file ends, or -errno. */
static ssize_t read_at(int fd, void *buf, size_t len, uint64_t off)
{
        size_t done = 0;
        while (done < len) {
                ssize_t n = pread(fd, (char *)buf + done, len - done, (off_t)(off + done));
                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return -errno;
                if (n == 0)
                        break;
                done += (size_t)n;
        }
        return (ssize_t)done;
}

static const char *machine_name(unsigned machine)
{
        static const struct { uint16_t machine; const char *name;
        } names[] = {
                { EM_386, "i386" },         { EM_X86_64, "x86-64" }, { EM_AARCH64, "AArch64" },
                { EM_ARM, "ARM" },          { EM_RISCV, "RISC-V" },  { EM_PPC64, "64-bit PowerPC" },
                { EM_PPC, "PowerPC" },      { EM_S390, "S/390" },    { EM_MIPS, "MIPS" },
                { EM_SPARCV9, "SPARC V9" }, { EM_IA_64, "Itanium" }, { 258, "LoongArch" },
        };
        for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
                if (names[i].machine == machine)
                        return names[i].name;
        return "unknown";
}

/* The file's machine is not this one. */
static int refuse_machine(const Elf64_Ehdr *eh, struct elf_info *out)
{
        bool big = eh->e_ident[EI_DATA] == ELFDATA2MSB;
        unsigned machine = big ? __builtin_bswap16(eh->e_machine) : eh->e_machine;

        if (eh->e_ident[EI_CLASS] == ELFCLASS32)
                return refuse(out, -ENOEXEC,
                              "32-bit (%s): vmrun runs 64-bit x86-64 programs: build it as one",
                              machine_name(machine));
        if (machine == EM_X86_64)
                return refuse(out, -ENOEXEC, "byte order %u is not x86-64's (little endian)",
                              eh->e_ident[EI_DATA]);
        return refuse(out, -ENOEXEC,
                      "for machine %u (%s); this host runs x86-64: build it for that",
                      machine, machine_name(machine));
}

static int check_type(unsigned type, struct elf_info *out)
{
        switch (type) {
        case ET_EXEC: case ET_DYN:
                return 0;
        case ET_REL:
                return refuse(out, -ENOEXEC, "an object file (.o), not a program: link it first");
        case ET_CORE:
                return refuse(out, -ENOEXEC, "a core dump, not a program");
        default:
                return refuse(out, -ENOEXEC, "ELF type %u is not a program", type);
        }
}

/* Checks where the program headers are said to be.  have: how many bytes of eh the file has. */
static int check_table(const Elf64_Ehdr *eh, size_t have, struct elf_info *out)
{
        bool good = eh->e_phentsize == sizeof(Elf64_Phdr);

        if (have < sizeof(*eh) && (!good || eh->e_phnum == 0))
                return refuse(out, -ENOEXEC, "ELF header cut off at byte %zu" NOT_WHOLE, have);
        if (!good && eh->e_ident[EI_CLASS] == ELFCLASS32) {
                out->foreign = true;
                return refuse(out, -ENOEXEC,
                              "32-bit (x32): vmrun runs 64-bit x86-64 programs only");
        }
        if (!good)
                return refuse(out, -ENOEXEC, "program headers of %u bytes each; ELF64 has %zu",
                              eh->e_phentsize, sizeof(Elf64_Phdr));
        if (eh->e_phnum == 0)
                return refuse(out, -ENOEXEC, "no program headers: nothing to load");
        if (eh->e_phnum > ELF_PHDRS_MAX)
                return refuse(out, -ENOEXEC, "%u program headers; Linux takes at most %d",
                              eh->e_phnum, ELF_PHDRS_MAX);
        return 0;
}

/* Reads and checks the ELF header.  What the file lacks of it is zeros, as for Linux. */
static int read_ehdr(int fd, Elf64_Ehdr *eh, struct elf_info *out)
{
        memset(eh, 0, sizeof(*eh));
        ssize_t have = read_at(fd, eh, sizeof(*eh), 0);
        if (have < 0)
                return refuse(out, (int)have, "cannot be read: %s", strerror((int)-have));
        if (have == 0)
                return refuse(out, -ENOEXEC, "the file is empty");
        if (memcmp(eh->e_ident, ELFMAG, SELFMAG))
                return refuse(out, -ENOEXEC, "not an ELF file");
        out->is_elf = true;
        if (eh->e_machine != EM_X86_64 && have >= (ssize_t)offsetof(Elf64_Ehdr, e_version))
                return refuse_machine(eh, out);
        out->foreign = false;
        if (eh->e_machine != EM_X86_64)
                return refuse(out, -ENOEXEC, "ELF header cut off at byte %zd" NOT_WHOLE, have);
        int err = check_type(eh->e_type, out);
        if (err)
                return err;
        out->type = eh->e_type;
        out->entry = eh->e_entry;
        out->phnum = eh->e_phnum;
        return check_table(eh, (size_t)have, out);
}

/* The loader of the program zeroes a bss that begins within a page of the file: that page must
 * exist. */
static bool bss_page_is_missing(const Elf64_Phdr *ph, uint64_t size)
{
        uint64_t data_end = ph->p_offset + ph->p_filesz;
        return (ph->p_flags & PF_W) && ph->p_filesz && ph->p_memsz > ph->p_filesz &&
               data_end % PAGE_SIZE && PAGE_DOWN(data_end) >= size;
}

/* Pages behind the end of the file are SIGBUS when they are touched: no error. */
static int check_file_part(const Elf64_Phdr *ph, unsigned i, uint64_t size, struct elf_info *out)
{
        if ((ph->p_offset - ph->p_vaddr) % PAGE_SIZE)
                return refuse(out, -EINVAL,
                              "segment %u cannot be mapped: file offset %#lx and address %#lx "
                              "differ within a page",
                              i, ph->p_offset, ph->p_vaddr);
        if (ph->p_offset > INT64_MAX - 2 * PAGE_SIZE - ph->p_filesz)
                return refuse(out, -EOVERFLOW,
                              "segment %u cannot be mapped: no file has bytes at offset %#lx", i,
                              ph->p_offset);
        if (bss_page_is_missing(ph, size))
                return refuse(out, -EFAULT,
                              "segment %u is cut off: its bss begins at offset %#lx, but the file "
                              "ends at %#lx",
                              i, ph->p_offset + ph->p_filesz, size);
        return 0;
}

static int check_segment(const Elf64_Phdr *ph, unsigned i, uint64_t size, struct elf_info *out)
{
        uint64_t end;
        if (ph->p_filesz > ph->p_memsz)
                return refuse(out, -EINVAL,
                              "segment %u has more bytes in the file (%#lx) than in memory (%#lx)",
                              i, ph->p_filesz, ph->p_memsz);
        if (__builtin_add_overflow(ph->p_vaddr, ph->p_memsz, &end))
                return refuse(out, -EINVAL,
                              "segment %u wraps around the end of the address space (%#lx + %#lx)",
                              i, ph->p_vaddr, ph->p_memsz);
        if (end > TASK_SIZE)
                return refuse(out, -EINVAL,
                              "segment %u (%#lx-%#lx) ends above a program's last address, %#lx", i,
                              ph->p_vaddr, end, TASK_SIZE);
        /* The vaddr of a position-independent file is only a distance. */
        if (out->type == ET_EXEC && ph->p_memsz && ph->p_vaddr < RESERVED_END &&
            PAGE_UP(end) > RESERVED_START)
                return refuse(out, -ENOMEM,
                              "segment %u (%#lx-%#lx) is linked into the range vmrun keeps for "
                              "itself (%#lx-%#lx): link the "
                              "program elsewhere or as PIE",
                              i, ph->p_vaddr, end, RESERVED_START, RESERVED_END);
        return ph->p_filesz ? check_file_part(ph, i, size, out) : 0;
}

static int add_segment(const Elf64_Phdr *ph, unsigned i, uint64_t size, struct elf_info *out)
{
        int err = check_segment(ph, i, size, out);
        if (err)
                return err;
        uint64_t end = ph->p_vaddr + ph->p_memsz;
        if (ph->p_align > out->align && (ph->p_align & (ph->p_align - 1)) == 0)
                out->align = ph->p_align;
        if (!out->has_first)
                out->first = ph->p_vaddr;
        out->has_first = true;
        if (ph->p_memsz == 0)
                return 0;
        if (out->nsegments == 0 || PAGE_DOWN(ph->p_vaddr) < out->low)
                out->low = PAGE_DOWN(ph->p_vaddr);
        if (PAGE_UP(end) > out->high)
                out->high = PAGE_UP(end);
        out->segment[out->nsegments++] = (struct elf_segment){
                .offset = ph->p_offset,
                .vaddr = ph->p_vaddr,
                .filesz = ph->p_filesz,
                .memsz = ph->p_memsz,
                .flags = ph->p_flags,
        };
        return 0;
}

static int read_interp(int fd, const Elf64_Phdr *ph, struct elf_info *out)
{
        if (ph->p_filesz < 2)
                return refuse(out, -ENOEXEC, "the path of its interpreter (PT_INTERP) is empty");
        if (ph->p_filesz > sizeof(out->interp))
                return refuse(out, -ENOEXEC,
                              "the path of its interpreter (PT_INTERP) is too long: %lu bytes, at "
                              "most %zu",
                              ph->p_filesz, sizeof(out->interp));
        ssize_t n = ph->p_offset > INT64_MAX - sizeof(out->interp)
                            ? -EINVAL
                            : read_at(fd, out->interp, ph->p_filesz, ph->p_offset);
        if (n < 0)
                return refuse(out, (int)n,
                              "the path of its interpreter (PT_INTERP) cannot be read: %s",
                              strerror((int)-n));
        if ((uint64_t)n < ph->p_filesz)
                return refuse(out, -EIO,
                              "the path of its interpreter (PT_INTERP) is cut off at byte %lu"
                              NOT_WHOLE,
                              ph->p_offset + (uint64_t)n);
        if (out->interp[ph->p_filesz - 1] != '\0')
                return refuse(out, -ENOEXEC,
                              "the path of its interpreter (PT_INTERP) does not end in a NUL byte");
        out->has_interp = true;
        return 0;
}

/* Takes the segments, up to the first that cannot be mapped. */
static int take_segments(const Elf64_Phdr *ph, uint64_t size, struct elf_info *out)
{
        int err = 0;

        for (unsigned i = 0; i < out->phnum && !err; i++)
                if (ph[i].p_type == PT_LOAD)
                        err = add_segment(&ph[i], i, size, out);
        if (!err && out->nsegments == 0)
                return refuse(out, -EINVAL, "no loadable segment (PT_LOAD): nothing to run");
        return err;
}

static int take_phdrs(int fd, const Elf64_Phdr *ph, uint64_t size, struct elf_info *out)
{
        int err = 0;

        for (unsigned i = 0; i < out->phnum && !out->has_interp && !err; i++)
                if (ph[i].p_type == PT_INTERP)
                        err = read_interp(fd, &ph[i], out);
        if (err)
                return err;
        for (unsigned i = 0; i < out->phnum; i++) {
                if (ph[i].p_type == PT_GNU_STACK) {
                        out->gnu_stack = true;
                        out->exec_stack = ph[i].p_flags & PF_X;
                }
        }
        out->unloadable = take_segments(ph, size, out);
        return 0;
}

/* Finds the program headers and the entry point in memory.  As in Linux, the last segment that
 * holds the headers counts. */
static void locate(uint64_t phoff, struct elf_info *out)
{
        for (unsigned k = 0; k < out->nsegments; k++) {
                const struct elf_segment *s = &out->segment[k];
                if (phoff >= s->offset && phoff - s->offset < s->filesz) {
                        out->phdr_mapped = true;
                        out->phdr_vaddr = phoff - s->offset + s->vaddr;
                }
                if (out->entry >= s->vaddr && out->entry - s->vaddr < s->memsz)
                        out->entry_mapped = true;
        }
}

static int parse(int fd, uint64_t size, struct elf_info *out)
{
        Elf64_Ehdr eh;
        int err = read_ehdr(fd, &eh, out);
        if (err)
                return err;

        size_t bytes = eh.e_phnum * sizeof(Elf64_Phdr);
        Elf64_Phdr *ph = malloc(bytes);
        if (!ph)
                return refuse(out, -ENOMEM, "no memory for its program headers");
        ssize_t n = eh.e_phoff > INT64_MAX - bytes ? 0 : read_at(fd, ph, bytes, eh.e_phoff);
        if (n < (ssize_t)bytes)
                err = refuse(out, -ENOEXEC,
                             "program headers cut off at byte %lu (%zu bytes at %#lx)" NOT_WHOLE,
                             size, bytes, eh.e_phoff);
        else
                err = take_phdrs(fd, ph, size, out);
        free(ph);
        if (!err)
                locate(eh.e_phoff, out);
        return err;
}

int elf_parse(int fd, struct elf_info *out, const char **why)
{
        struct stat st;
        memset(out, 0, sizeof(*out));
        out->align = PAGE_SIZE;
        out->foreign = true;
        *why = out->text;
        if (fstat(fd, &st))
                return refuse(out, -errno, "cannot be examined: %s", strerror(errno));
        if (!S_ISREG(st.st_mode))
                return refuse(out, -EACCES, "not a regular file");
        return parse(fd, (uint64_t)st.st_size, out);
}
