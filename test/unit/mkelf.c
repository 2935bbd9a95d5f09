#include <err.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "mkelf.h"

void mkelf_init(struct mkelf *m, uint16_t type)
{
        uint64_t base = type == ET_EXEC ? 0x400000 : 0;
        memset(m, 0, sizeof(*m));
        memcpy(m->eh.e_ident, ELFMAG, SELFMAG);
        m->eh.e_ident[EI_CLASS] = ELFCLASS64;
        m->eh.e_ident[EI_DATA] = ELFDATA2LSB;
        m->eh.e_ident[EI_VERSION] = EV_CURRENT;
        m->eh.e_type = type;
        m->eh.e_machine = EM_X86_64;
        m->eh.e_version = EV_CURRENT;
        m->eh.e_entry = base + 0x1000;
        m->eh.e_phoff = sizeof(m->eh);
        m->eh.e_ehsize = sizeof(m->eh);
        m->eh.e_phentsize = sizeof(Elf64_Phdr);
        m->eh.e_shentsize = sizeof(Elf64_Shdr);
        m->size = 0x3000;
        mkelf_add(m, PT_LOAD, PF_R | PF_X, 0, base, 0x1800, 0x1800);
        mkelf_add(m, PT_LOAD, PF_R | PF_W, 0x2010, base + 0x2010, 0x300, 0x3000);
}

Elf64_Phdr *mkelf_add(struct mkelf *m, uint32_t type, uint32_t flags, uint64_t off, uint64_t vaddr,
                      uint64_t filesz, uint64_t memsz)
{
        if (m->nph == MKELF_PHDRS)
                errx(1, "mkelf: too many program headers");
        Elf64_Phdr *ph = &m->ph[m->nph++];
        *ph = (Elf64_Phdr){ .p_type = type,
                            .p_flags = flags,
                            .p_offset = off,
                            .p_vaddr = vaddr,
                            .p_paddr = vaddr,
                            .p_filesz = filesz,
                            .p_memsz = memsz,
                            .p_align = type == PT_LOAD ? 0x1000 : 1 };
        m->eh.e_phnum = (uint16_t)m->nph;
        return ph;
}

Elf64_Phdr *mkelf_interp(struct mkelf *m, const char *path, size_t len)
{
        memcpy(m->interp, path, len);
        m->interp_len = len;
        return mkelf_add(m, PT_INTERP, PF_R, MKELF_INTERP_OFF, MKELF_INTERP_OFF, len, len);
}

/* Copies what fits: a file may be shorter than its headers. */
static void put(unsigned char *file, size_t size, size_t off, const void *src, size_t n)
{
        if (off < size)
                memcpy(file + off, src, n < size - off ? n : size - off);
}

static unsigned char *build(const struct mkelf *m)
{
        unsigned char *file = malloc(m->size + 1);
        if (!file)
                err(1, "mkelf");
        for (size_t i = 0; i < m->size; i++)
                file[i] = (unsigned char)(0x41 + i % 23);
        put(file, m->size, m->eh.e_phoff == sizeof(m->eh) ? m->eh.e_phoff : m->size, m->ph,
            m->nph * sizeof(m->ph[0]));
        put(file, m->size, 0, &m->eh, sizeof(m->eh));
        put(file, m->size, MKELF_INTERP_OFF, m->interp, m->interp_len);
        return file;
}

static void write_all(int fd, const void *bytes, size_t n)
{
        for (size_t done = 0; done < n;) {
                ssize_t k = write(fd, (const char *)bytes + done, n - done);
                if (k <= 0)
                        err(1, "mkelf: write");
                done += (size_t)k;
        }
}

int bytes_fd(const void *bytes, size_t n)
{
        int fd = memfd_create("mkelf", MFD_CLOEXEC);
        if (fd < 0)
                err(1, "mkelf: memfd_create");
        write_all(fd, bytes, n);
        return fd;
}

void bytes_file(const void *bytes, size_t n, const char *path)
{
        unlink(path);
        int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0755);
        if (fd < 0)
                err(1, "mkelf: %s", path);
        write_all(fd, bytes, n);
        close(fd);
}

int mkelf_fd(const struct mkelf *m)
{
        unsigned char *file = build(m);
        int fd = bytes_fd(file, m->size);
        free(file);
        return fd;
}

void mkelf_file(const struct mkelf *m, const char *path)
{
        unsigned char *file = build(m);
        bytes_file(file, m->size, path);
        free(file);
}
