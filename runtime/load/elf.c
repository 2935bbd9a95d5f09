/*
 * Reading of ELF executables (elf.h).
 *
 * libelf decodes the headers; all checks are made here.  They follow Linux's fs/binfmt_elf.c and
 * are stricter where Linux would start a program only to kill it: cut-off segments, overlaps,
 * addresses that are not available.
 */
#include <errno.h>
#include <fcntl.h>
#include <libelf.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "layout.h"
#include "load/elf.h"

_Static_assert(sizeof(Elf64_Phdr) == 56, "ELF_PHDRS_MAX counts headers of 56 bytes");

__attribute__((format(printf, 3, 4)))
static int refuse(struct elf_info *out, int err, const char *fmt, ...)
{
        va_list ap;
        va_start(ap, fmt);
        vsnprintf(out->text, sizeof(out->text), fmt, ap);
        va_end(ap);
        return err;
}

static int read_at(int fd, void *buf, size_t len, uint64_t off)
{
        for (size_t done = 0; done < len;) {
                ssize_t n = pread(fd, (char *)buf + done, len - done, (off_t)(off + done));
                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return -errno;
                if (n == 0)
                        return -ENOEXEC;        /* it shrank since we asked for its size */
                done += (size_t)n;
        }
        return 0;
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

/* Checks the first bytes.  Done by hand, because libelf gives the same "not ELF" for all these
 * errors. */
static int check_ident(int fd, uint64_t size, struct elf_info *out)
{
        /* e_ident, e_type, e_machine: the same in both classes */
        unsigned char head[20] = { 0 };
        if (size == 0)
                return refuse(out, -ENOEXEC, "the file is empty");
        size_t have = size < sizeof(head) ? size : sizeof(head);
        int err = read_at(fd, head, have, 0);
        if (err)
                return refuse(out, err, "cannot be read: %s", strerror(-err));
        if (have < SELFMAG || memcmp(head, ELFMAG, SELFMAG))
                return refuse(out, -ENOEXEC, "not an ELF file");
        if (have < sizeof(head))
                return refuse(out, -ENOEXEC, "ELF header cut off at byte %zu", have);

        bool big = head[EI_DATA] == ELFDATA2MSB;
        out->class = head[EI_CLASS];
        out->machine = (uint16_t)(big ? head[18] << 8 | head[19] : head[19] << 8 | head[18]);
        if (out->class != ELFCLASS32 && out->class != ELFCLASS64)
                return refuse(out, -ENOEXEC, "unknown ELF class %u", out->class);
        if (out->class == ELFCLASS32)
                return refuse(out, -ENOEXEC, "32-bit (%s): vmrun runs 64-bit x86-64 programs only",
                              out->machine == EM_X86_64 ? "x32" : machine_name(out->machine));
        if (out->machine != EM_X86_64)
                return refuse(out, -ENOEXEC, "for machine %u (%s); this host runs x86-64",
                              out->machine, machine_name(out->machine));
        if (head[EI_DATA] != ELFDATA2LSB)
                return refuse(out, -ENOEXEC, "byte order %u is not x86-64's (little endian)",
                              head[EI_DATA]);
        if (head[EI_VERSION] != EV_CURRENT)
                return refuse(out, -ENOEXEC, "unknown ELF version %u", head[EI_VERSION]);
        if (size < sizeof(Elf64_Ehdr))
                return refuse(out, -ENOEXEC, "ELF header cut off at byte %lu", (unsigned long)size);
        return 0;
}

static int check_ehdr(const Elf64_Ehdr *eh, uint64_t size, struct elf_info *out)
{
        switch (eh->e_type) {
        case ET_EXEC: case ET_DYN:
                break;
        case ET_REL:
                return refuse(out, -ENOEXEC, "an object file (.o), not a program: link it first");
        case ET_CORE:
                return refuse(out, -ENOEXEC, "a core dump, not a program");
        default:
                return refuse(out, -ENOEXEC, "ELF type %u is not a program", eh->e_type);
        }
        out->type = eh->e_type;
        out->entry = eh->e_entry;
        out->phnum = eh->e_phnum;
        if (eh->e_phnum == 0)
                return refuse(out, -ENOEXEC, "no program headers: nothing to load");
        if (eh->e_phentsize != sizeof(Elf64_Phdr))
                return refuse(out, -ENOEXEC, "program headers of %u bytes each; ELF64 has %zu",
                              eh->e_phentsize, sizeof(Elf64_Phdr));
        if (eh->e_phnum > ELF_PHDRS_MAX)
                return refuse(out, -ENOEXEC, "%u program headers; Linux takes at most %d",
                              eh->e_phnum, ELF_PHDRS_MAX);
        uint64_t bytes = eh->e_phnum * sizeof(Elf64_Phdr);
        if (eh->e_phoff > size || bytes > size - eh->e_phoff)
                return refuse(
                        out, -ENOEXEC, "program headers cut off at byte %lu (%lu bytes at %#lx)",
                        (unsigned long)size, (unsigned long)bytes, (unsigned long)eh->e_phoff);
        return 0;
}

static int check_segment(const Elf64_Phdr *ph, unsigned i, uint64_t size, struct elf_info *out)
{
        uint64_t end;
        if (ph->p_filesz > ph->p_memsz)
                return refuse(out, -ENOEXEC,
                              "segment %u has more bytes in the file (%#lx) than in memory (%#lx)",
                              i, ph->p_filesz, ph->p_memsz);
        if (ph->p_filesz && (ph->p_offset > size || ph->p_filesz > size - ph->p_offset))
                return refuse(out, -ENOEXEC,
                              "segment %u is cut off: %#lx bytes at offset %#lx, but the file ends "
                              "at %#lx",
                              i, ph->p_filesz, ph->p_offset, size);
        if (__builtin_add_overflow(ph->p_vaddr, ph->p_memsz, &end))
                return refuse(out, -ENOEXEC,
                              "segment %u wraps around the end of the address space (%#lx + %#lx)",
                              i, ph->p_vaddr, ph->p_memsz);
        if (end > TASK_SIZE)
                return refuse(out, -ENOEXEC,
                              "segment %u (%#lx-%#lx) ends above a program's last address, %#lx", i,
                              ph->p_vaddr, end, TASK_SIZE);
        if (ph->p_filesz && (ph->p_offset - ph->p_vaddr) % PAGE_SIZE)
                return refuse(out, -ENOEXEC,
                              "segment %u cannot be mapped: file offset %#lx and address %#lx "
                              "differ within a page",
                              i, ph->p_offset, ph->p_vaddr);
        /* The vaddr of a position-independent file is only a distance. */
        if (out->type == ET_EXEC && ph->p_memsz && ph->p_vaddr < RESERVED_END &&
            PAGE_UP(end) > RESERVED_START)
                return refuse(out, -ENOMEM,
                              "segment %u (%#lx-%#lx) is linked into the range vmrun keeps for "
                              "itself (%#lx-%#lx): link the "
                              "program elsewhere or as PIE",
                              i, ph->p_vaddr, end, RESERVED_START, RESERVED_END);
        return 0;
}

static int add_segment(const Elf64_Phdr *ph, unsigned i, uint64_t size, struct elf_info *out)
{
        int err = check_segment(ph, i, size, out);
        if (err || ph->p_memsz == 0)
                return err;
        uint64_t end = ph->p_vaddr + ph->p_memsz;
        for (unsigned k = 0; k < out->nsegments; k++) {
                const struct elf_segment *s = &out->segment[k];
                if (ph->p_vaddr < s->vaddr + s->memsz && s->vaddr < end)
                        return refuse(out, -ENOEXEC,
                                      "segments %u (%#lx-%#lx) and %u (%#lx-%#lx) overlap", s->phdr,
                                      s->vaddr, s->vaddr + s->memsz, i, ph->p_vaddr, end);
        }
        if (out->nsegments == 0 || PAGE_DOWN(ph->p_vaddr) < out->low)
                out->low = PAGE_DOWN(ph->p_vaddr);
        if (PAGE_UP(end) > out->high)
                out->high = PAGE_UP(end);
        if (ph->p_align > out->align && (ph->p_align & (ph->p_align - 1)) == 0)
                out->align = ph->p_align;
        out->segment[out->nsegments++] = (struct elf_segment){
                .offset = ph->p_offset,
                .vaddr = ph->p_vaddr,
                .filesz = ph->p_filesz,
                .memsz = ph->p_memsz,
                .flags = ph->p_flags,
                .phdr = i,
        };
        return 0;
}

static int read_interp(int fd, const Elf64_Phdr *ph, uint64_t size, struct elf_info *out)
{
        if (ph->p_filesz < 2)
                return refuse(out, -ENOEXEC, "the path of its interpreter (PT_INTERP) is empty");
        if (ph->p_filesz > sizeof(out->interp))
                return refuse(out, -ENOEXEC,
                              "the path of its interpreter (PT_INTERP) is too long: %lu bytes, at "
                              "most %zu",
                              ph->p_filesz, sizeof(out->interp));
        if (ph->p_offset > size || ph->p_filesz > size - ph->p_offset)
                return refuse(out, -ENOEXEC,
                              "the path of its interpreter (PT_INTERP) is cut off at byte %lu",
                              size);
        int err = read_at(fd, out->interp, ph->p_filesz, ph->p_offset);
        if (err)
                return refuse(out, err, "cannot be read: %s", strerror(-err));
        if (out->interp[ph->p_filesz - 1] != '\0')
                return refuse(out, -ENOEXEC,
                              "the path of its interpreter (PT_INTERP) does not end in a NUL byte");
        out->has_interp = true;
        return 0;
}

static int take_phdrs(int fd, const Elf64_Phdr *ph, uint64_t size, struct elf_info *out)
{
        for (unsigned i = 0; i < out->phnum; i++) {
                int err = 0;
                if (ph[i].p_type == PT_LOAD) {
                        err = add_segment(&ph[i], i, size, out);
                } else if (ph[i].p_type == PT_INTERP && !out->has_interp) {
                        err = read_interp(fd, &ph[i], size, out);
                } else if (ph[i].p_type == PT_GNU_STACK) {
                        out->gnu_stack = true;
                        out->exec_stack = ph[i].p_flags & PF_X;
                }
                if (err)
                        return err;
        }
        if (out->nsegments == 0)
                return refuse(out, -ENOEXEC, "no loadable segment (PT_LOAD): nothing to run");
        return 0;
}

/* Finds the program headers and the entry point in memory.  As in Linux, the first segment that
 * holds the headers counts. */
static void locate(uint64_t phoff, struct elf_info *out)
{
        for (unsigned k = 0; k < out->nsegments; k++) {
                const struct elf_segment *s = &out->segment[k];
                if (!out->phdr_mapped && phoff >= s->offset && phoff - s->offset < s->filesz) {
                        out->phdr_mapped = true;
                        out->phdr_vaddr = phoff - s->offset + s->vaddr;
                }
                if (out->entry >= s->vaddr && out->entry - s->vaddr < s->memsz)
                        out->entry_mapped = true;
        }
}

static int parse(Elf *elf, int fd, uint64_t size, struct elf_info *out)
{
        const Elf64_Ehdr *eh = elf && elf_kind(elf) == ELF_K_ELF ? elf64_getehdr(elf) : NULL;
        if (!eh)
                return refuse(out, -ENOEXEC, "bad ELF header: %s", elf_errmsg(-1));
        int err = check_ehdr(eh, size, out);
        if (err)
                return err;
        const Elf64_Phdr *ph = elf64_getphdr(elf);
        if (!ph)
                return refuse(out, -ENOEXEC, "bad program headers: %s", elf_errmsg(-1));
        err = take_phdrs(fd, ph, size, out);
        if (!err)
                locate(eh->e_phoff, out);
        return err;
}

int elf_parse(int fd, struct elf_info *out, const char **why)
{
        struct stat st;
        memset(out, 0, sizeof(*out));
        out->align = PAGE_SIZE;
        *why = out->text;
        if (fstat(fd, &st))
                return refuse(out, -errno, "cannot be examined: %s", strerror(errno));
        if (!S_ISREG(st.st_mode))
                return refuse(out, -EACCES, "not a regular file");
        uint64_t size = (uint64_t)st.st_size;
        int err = check_ident(fd, size, out);
        if (err)
                return err;

        /* ELF_C_READ, not its mmap variant: a file truncated by another process must not raise
         * SIGBUS here. */
        elf_version(EV_CURRENT);
        Elf *elf = elf_begin(fd, ELF_C_READ, NULL);
        err = parse(elf, fd, size, out);
        elf_end(elf);
        return err;
}
