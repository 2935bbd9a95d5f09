/*
 * The process image (image.h): chooses all addresses, and maps and fills the image.
 *
 * All addresses are chosen here, none by kern, so that the whole program with its interpreter,
 * stack and heap is normally one batch of operations (one upcall).  There is no address
 * randomisation: runs are repeatable, and the VM protects nothing from the program anyway.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>
#include "base/message.h"
#include "hints.h"
#include "load/auxv.h"
#include "load/elf.h"
#include "load/image.h"
#include "load/script.h"
#include "load/stack.h"
#include "memory/gmem.h"
#include "vm/thread.h"

#ifndef AT_MINSIGSTKSZ
#define AT_MINSIGSTKSZ 51
#endif
#define HWCAP2_FSGSBASE 2

#define STACK_ROOM      0x20000         /* mapped below the arguments, as Linux does */

void image_config_init(struct image_config *c, uint64_t mmap_top, uint64_t mmap_min,
                       uint64_t rlimit_stack)
{
        *c = (struct image_config){
                .mmap_top = mmap_top,
                .mmap_min = mmap_min,
                .rlimit_stack = rlimit_stack,
                .hwcap = auxv_value(AT_HWCAP),
                .hwcap2 = auxv_value(AT_HWCAP2) & HWCAP2_FSGSBASE,
                .minsigstksz = auxv_value(AT_MINSIGSTKSZ),
        };
}

int image_exit_status(int err)
{
        switch (err) {
        case -ENOENT:
                return EXIT_NOT_FOUND;
        case -EMFILE: case -ENFILE:
                return EXIT_VMRUN_FAILED;
        default:
                return EXIT_NOT_EXECUTABLE;
        }
}

/* ---- Placement ---- */

/* A file and its place: its addresses plus bias, modulo 2^64. */
struct placed {
        struct elf_info elf;
        uint64_t bias;
        const char *file;
        int fd;
};
static uint64_t low(const struct placed *p)  { return p->elf.low + p->bias; }
static uint64_t high(const struct placed *p) { return p->elf.high + p->bias; }
static bool meet(uint64_t lo, uint64_t hi, uint64_t from, uint64_t to)
{
        return lo < to && from < hi;
}

/* May the program have this range?  stack_low: start of the stack's first mapping. */
static int check_range(const struct placed *p, const struct image_config *c, uint64_t stack_low,
                       struct why *why)
{
        uint64_t lo = low(p), hi = high(p);
        if (lo < c->mmap_min)
                return refuse(why, -EPERM,
                              "%s: begins at %#lx, and the lowest address allowed is %#lx (sysctl "
                              "vm.mmap_min_addr)",
                              p->file, lo, c->mmap_min);
        if (hi > TASK_SIZE || hi < lo)
                return refuse(why, -ENOMEM, "%s: too large for its place: %#lx bytes at %#lx",
                              p->file, hi - lo, lo);
        if (meet(lo, hi, RESERVED_START, RESERVED_END))
                return refuse(
                        why, -ENOMEM,
                        "%s: spans %#lx-%#lx, across the range vmrun keeps for itself (%#lx-%#lx)",
                        p->file, lo, hi, RESERVED_START, RESERVED_END);
        if (hi > stack_low)
                return refuse(why, -ENOMEM,
                              "%s: spans %#lx-%#lx, which leaves no room for its stack", p->file,
                              lo, hi);
        return 0;
}

static void place_main(struct placed *p)
{
        uint64_t mask = ~(p->elf.align - 1);
        p->bias = p->elf.type == ET_EXEC ? 0 : PAGE_DOWN((IMAGE_PIE_BASE & mask) - p->elf.first);
}

/* The highest place below mmap_top that overlaps neither the program nor vmrun's own range, or
 * where it is linked to. */
static int place_interp(struct placed *in, const struct placed *prog, const struct image_config *c,
                        struct why *why)
{
        uint64_t span = in->elf.high - in->elf.low, top = c->mmap_top;

        in->bias = 0;
        if (in->elf.type == ET_EXEC)
                return 0;
        for (int tries = 0; tries < 4 && top >= span; tries++) {
                in->bias = (top - in->elf.high) & ~(in->elf.align - 1);
                if (meet(low(in), high(in), RESERVED_START, RESERVED_END))
                        top = RESERVED_START;
                else if (meet(low(in), high(in), low(prog), high(prog)))
                        top = low(prog);
                else
                        return 0;
        }
        return refuse(why, -ENOMEM, "%s: no room for its %#lx bytes below %#lx", in->file, span,
                      c->mmap_top);
}

/* ---- The plan ---- */

static uint32_t prot_of(uint32_t flags)
{
        return (flags & PF_R ? PROT_READ : 0) | (flags & PF_W ? PROT_WRITE : 0) |
               (flags & PF_X ? PROT_EXEC : 0);
}

static void add_op(struct image *im, enum mm_op_kind kind, uint64_t addr, uint64_t len,
                   uint32_t prot, int fd, uint64_t off)
{
        uint32_t flags = MAP_PRIVATE | (fd < 0 ? MAP_ANONYMOUS : 0) |
                         (kind == MM_STACK ? MAP_GROWSDOWN : MAP_FIXED);
        im->ops[im->nops++] = (struct mm_op){ .op = kind,
                                              .prot = prot,
                                              .flags = flags,
                                              .fd = fd,
                                              .addr = addr,
                                              .len = len,
                                              .off = off };
}

/* File pages, then anonymous ones for the bss; the rest of the last file page is zeroed if it is
 * writable (Linux's padzero). */
static void plan_file(struct image *im, const struct placed *p)
{
        for (unsigned k = 0; k < p->elf.nsegments; k++) {
                const struct elf_segment *s = &p->elf.segment[k];
                uint64_t data_end = s->vaddr + s->filesz;
                uint64_t page = PAGE_DOWN(s->vaddr),
                         file_end = s->filesz ? PAGE_UP(data_end) : page,
                         end = PAGE_UP(s->vaddr + s->memsz);
                if (s->filesz)
                        add_op(im, MM_MAP, page + p->bias, file_end - page, prot_of(s->flags),
                               p->fd, PAGE_DOWN(s->offset));
                if (s->filesz && s->memsz > s->filesz && (s->flags & PF_W) && data_end < file_end)
                        im->zero[im->nzero++] = (struct zero){ .addr = data_end + p->bias,
                                                               .len = file_end - data_end,
                                                               .next_op = im->nops };
                if (end > file_end)
                        add_op(im, MM_MAP, file_end + p->bias, end - file_end,
                               PROT_READ | PROT_WRITE | (s->flags & PF_X ? PROT_EXEC : 0), -1, 0);
                if ((s->flags & PF_W) && (s->flags & PF_X))
                        im->wx++;
        }
}

/* An interpreter that is linked to a fixed address replaces what the program has there: as on
 * Linux, everything from its first segment on is unmapped first. */
static void plan_interp(struct image *im, const struct placed *in)
{
        if (in->elf.type == ET_EXEC)
                add_op(im, MM_UNMAP, PAGE_DOWN(in->elf.first), in->elf.high - in->elf.low, 0, -1,
                       0);
        plan_file(im, in);
}

/* Where segments share a page the later segment gets it, as in Linux.  All tails are zeroed after
 * the last operation, so tails whose page a later operation replaces are left out. */
static void drop_replaced(struct image *im)
{
        unsigned kept = 0;
        for (unsigned i = 0; i < im->nzero; i++) {
                const struct zero z = im->zero[i];
                const struct mm_op *op = im->ops + z.next_op, *end = im->ops + im->nops;
                while (op < end && !meet(z.addr, z.addr + z.len, op->addr, op->addr + op->len))
                        op++;
                if (op == end)
                        im->zero[kept++] = z;
        }
        im->nzero = kept;
}

static void note_segments(struct image *im, const struct placed *p)
{
        im->code_start = UINT64_MAX;
        for (unsigned i = 0; i < p->elf.nsegments; i++) {
                const struct elf_segment *s = &p->elf.segment[i];
                uint64_t at = s->vaddr + p->bias, end = at + s->filesz;
                if ((s->flags & PF_X) && at < im->code_start)
                        im->code_start = at;
                if ((s->flags & PF_X) && end > im->code_end)
                        im->code_end = end;
                if (at > im->data_start)
                        im->data_start = at;
                if (end > im->data_end)
                        im->data_end = end;
        }
}

static int plan(struct image *im, const struct placed *prog, const struct placed *in,
                const struct image_config *c)
{
        unsigned n = prog->elf.nsegments + (in ? in->elf.nsegments : 0);
        im->ops = calloc(2 * n + 3, sizeof(*im->ops));
        im->zero = calloc(n, sizeof(*im->zero));
        if (!im->ops || !im->zero)
                return refuse(&im->why, -ENOMEM, "%s: no memory for the plan of %u segments",
                              im->execfn, n);
        plan_file(im, prog);
        if (in)
                plan_interp(im, in);
        drop_replaced(im);
        uint32_t prot = PROT_READ | PROT_WRITE | (im->exec_stack ? PROT_EXEC : 0);
        add_op(im, MM_STACK, im->stack_low, TASK_SIZE - im->stack_low, prot, -1, c->rlimit_stack);
        add_op(im, MM_BRK, im->brk, 0, 0, -1, 0);
        return 0;
}

/* ---- The stack ---- */

static int build_stack(struct image *im, const struct placed *prog, const struct image_config *c,
                       char *const argv[], char *const envp[])
{
        struct stack_input in = { .top = TASK_SIZE,
                                  .rlimit = c->rlimit_stack,
                                  .argv = argv,
                                  .envp = envp,
                                  .execfn = im->execfn };
        if (getrandom(in.random, sizeof(in.random), 0) != sizeof(in.random))
                return refuse(&im->why, -EIO, "%s: no random bytes: %s", im->execfn,
                              strerror(errno));
        /* In Linux's order.  Left out: AT_SYSINFO_EHDR (the vDSO's clock would read a page that
         * only exists on the host) and AT_RSEQ_* (rseq is ENOSYS). */
        const struct aux aux[] = {
                { AT_MINSIGSTKSZ, c->minsigstksz },
                { AT_HWCAP, c->hwcap },
                { AT_PAGESZ, PAGE_SIZE },
                { AT_CLKTCK, (uint64_t)sysconf(_SC_CLK_TCK) },
                { AT_PHDR, prog->elf.phdr_mapped ? prog->elf.phdr_vaddr + prog->bias : 0 },
                { AT_PHENT, sizeof(Elf64_Phdr) },
                { AT_PHNUM, prog->elf.phnum },
                { AT_BASE, im->base },
                { AT_FLAGS, 0 },
                { AT_ENTRY, im->entry },
                { AT_UID, getuid() },
                { AT_EUID, geteuid() },
                { AT_GID, getgid() },
                { AT_EGID, getegid() },
                { AT_SECURE, 0 },
                { AT_RANDOM, 0 },
                { AT_HWCAP2, c->hwcap2 },
                { AT_EXECFN, 0 },
                { AT_PLATFORM, 0 },
                { HINTS_AUX, HINTS_VERSION },
        };
        _Static_assert(sizeof(aux) / sizeof(aux[0]) <= IMAGE_AUX_MAX,
                       "struct stack_input has room for all");
        for (size_t i = 0; i < sizeof(aux) / sizeof(aux[0]); i++)
                if (aux[i].key != AT_MINSIGSTKSZ || aux[i].value)
                        in.aux[in.naux++] = aux[i];
        return stack_build(&im->stack, &in, &im->why);
}

/* The lowest address of the stack's first mapping. */
static uint64_t stack_low(const struct image *im, const struct image_config *c)
{
        uint64_t size = TASK_SIZE - PAGE_DOWN(im->stack.sp) + STACK_ROOM;
        uint64_t limit = PAGE_DOWN(c->rlimit_stack);
        return TASK_SIZE - (size < limit ? size : limit);
}

/* ---- Open ---- */

/* as_loader: execve reports ELIBBAD for a loader that is not a program. */
static int parse(struct placed *p, struct image *im, bool as_loader)
{
        const char *text;
        int err = elf_parse(p->fd, &p->elf, &text);
        if (!err)
                return 0;
        im->foreign = err == -ENOEXEC && !as_loader && p->elf.foreign;
        const char *hint = !p->elf.is_elf && err == -ENOEXEC && !as_loader
                                   ? "; if it is a shell script, give it a #! line"
                                   : "";
        return refuse(&im->why, err == -ENOEXEC && as_loader ? -ELIBBAD : err, "%s: %s%s", p->file,
                      text, hint);
}

/* Linux maps segments after all other checks, when the old program is gone. */
static int loadable(const struct placed *p, struct why *why)
{
        int err = p->elf.unloadable;
        return err ? refuse(why, err, "%s: %s", p->file, p->elf.text) : 0;
}

/* The absolute path of an open file. */
static int real_path(int fd, char out[PATH_MAX])
{
        char link[64];
        snprintf(link, sizeof(link), "/proc/thread-self/fd/%d", fd);
        ssize_t n = readlink(link, out, PATH_MAX - 1);
        if (n < 0)
                return -errno;
        out[n] = '\0';
        return 0;
}

static int set_names(struct image *im, const char *path, const struct program *p)
{
        const char *slash = strrchr(path, '/');
        strcpy(im->execfn, path);
        snprintf(im->comm, sizeof(im->comm), "%.15s", slash ? slash + 1 : path);
        if (real_path(p->fd, im->exe) && !realpath(p->file, im->exe))
                return refuse(&im->why, -errno,
                              "%s: its absolute path cannot be found: %s (is /proc mounted?)", path,
                              strerror(errno));
        im->set_id = (p->st.st_mode & S_ISUID) ||
                     (p->st.st_mode & (S_ISGID | S_IXGRP)) == (S_ISGID | S_IXGRP);
        return 0;
}

static int open_interp(struct image *im, struct placed *in, const struct placed *prog,
                       const struct image_config *c)
{
        struct stat st;
        int fd = program_open_file(prog->elf.interp, "program interpreter (PT_INTERP)", prog->file,
                                   &st, &im->why);
        if (fd < 0)
                return fd;
        im->interp_fd = in->fd = fd;
        in->file = strcpy(im->interp, prog->elf.interp);
        int err = parse(in, im, true);
        if (!err)
                err = place_interp(in, prog, c, &im->why);
        if (!err) {
                im->base = in->bias;
                im->first_rip = in->elf.entry + in->bias;
        }
        return err;
}

/* Makes the complete plan for an open program.  room: two structs, too large for the stack. */
static int make(struct image *im, struct placed room[2], const struct program *p,
                char *const envp[], const struct image_config *c)
{
        struct placed *prog = &room[0], *in = NULL;
        prog->fd = im->fd;
        prog->file = p->file;
        int err = parse(prog, im, false);
        if (err)
                return err;
        place_main(prog);
        im->start = low(prog);
        im->end = im->brk = high(prog);
        im->first_rip = im->entry = prog->elf.entry + prog->bias;
        note_segments(im, prog);
        im->exec_stack = prog->elf.exec_stack;
        im->entry_mapped = prog->elf.entry_mapped;
        if (prog->elf.has_interp) {
                in = &room[1];
                err = open_interp(im, in, prog, c);
        }
        if (!err)
                err = loadable(prog, &im->why);
        if (!err && in)
                err = loadable(in, &im->why);
        if (!err)
                err = build_stack(im, prog, c, p->argv, envp);
        if (err)
                return err;
        im->stack_low = stack_low(im, c);
        err = check_range(prog, c, im->stack_low, &im->why);
        if (!err && in)
                err = check_range(in, c, im->stack_low, &im->why);
        return err ? err : plan(im, prog, in, c);
}

static void init(struct image *im)
{
        memset(im, 0, sizeof(*im));
        im->fd = im->interp_fd = -1;
}

int image_open(struct image *im, const char *path, char *const argv[], char *const envp[],
               const struct image_config *c)
{
        const struct program_place at = { AT_FDCWD, path, 0 };
        struct program p;

        init(im);
        if (strlen(path) >= PATH_MAX)
                return refuse(&im->why, -ENAMETOOLONG, "%.64s...: path longer than %d bytes: "
                              "give a shorter one", path, PATH_MAX - 1);
        int err = program_open(&p, &at, path, argv, &im->why);
        return err ? err : image_take(im, path, &p, envp, c);
}

int image_take(struct image *im, const char *path, struct program *p, char *const envp[],
               const struct image_config *c)
{
        init(im);
        im->fd = p->fd;
        struct placed *room = calloc(2, sizeof(*room));
        int err = room ? set_names(im, path, p)
                       : refuse(&im->why, -ENOMEM, "%s: no memory to read its headers", path);
        if (!err)
                err = make(im, room, p, envp, c);
        free(room);
        p->fd = -1;                     /* im owns it now */
        program_close(p);
        if (err)
                image_close(im);
        return err;
}

static void close_fd(int *fd)
{
        if (*fd >= 0)
                close(*fd);
        *fd = -1;
}

void image_close(struct image *im)
{
        close_fd(&im->fd);
        close_fd(&im->interp_fd);
        free(im->ops);
        free(im->zero);
        free(im->stack.bytes);
        im->ops = NULL;
        im->zero = NULL;
        im->stack.bytes = NULL;
        im->nops = im->nzero = 0;
}

/* ---- Load ---- */

static int op_failed(struct image *im, const struct mm_op *op, int err)
{
        const char *of = op->op == MM_STACK        ? "the stack"
                         : op->op == MM_BRK        ? "the heap"
                         : op->fd < 0              ? "its bss"
                         : op->fd == im->interp_fd ? im->interp
                                                   : im->exe;
        return refuse(&im->why, err, "%s: %#lx-%#lx cannot be mapped for %s: %s", im->execfn,
                      op->addr, op->addr + op->len, of, strerror(-err));
}

static int map_all(struct thread *t, struct image *im)
{
        struct mm_op *xfer = vcpu_xfer(t->v);
        for (unsigned done = 0, n; done < im->nops; done += n) {
                n = im->nops - done < MM_OPS_MAX ? im->nops - done : MM_OPS_MAX;
                memcpy(xfer, im->ops + done, n * sizeof(*xfer));
                int64_t ret = thread_upcall(t, UPCALL_MM, n, 0, 0);
                for (unsigned i = 0; i < n; i++) {
                        const struct mm_op *op = &im->ops[done + i];
                        if (xfer[i].ret < 0)
                                return op_failed(im, op, (int)xfer[i].ret);
                        if (ret == 0 && op->op == MM_MAP && (uint64_t)xfer[i].ret != op->addr)
                                return op_failed(im, op, -EEXIST);
                }
                if (ret < 0)
                        return refuse(&im->why, (int)ret, "%s: cannot be mapped: %s", im->execfn,
                                      strerror((int)-ret));
        }
        return 0;
}

static int write_all(struct thread *t, struct image *im)
{
        static const char zeros[PAGE_SIZE];
        int err = 0;
        for (unsigned i = 0; i < im->nzero && !err; i++)
                err = gmem_write(t, im->zero[i].addr, zeros, im->zero[i].len);
        if (!err)
                err = gmem_write(t, im->stack.sp, im->stack.bytes, im->stack.top - im->stack.sp);
        return err ? refuse(&im->why, err, "%s: its first memory cannot be written: %s", im->execfn,
                            strerror(-err))
                   : 0;
}

static void tell(const struct image *im)
{
        info_("%s: %s at %#lx-%#lx, entry %#lx%s%s", im->execfn, im->exe, im->start, im->end,
              im->entry, *im->interp ? ", interpreter " : "", im->interp);
        if (im->interp_fd >= 0)
                info_("%s: interpreter at %#lx", im->execfn, im->base);
        if (im->wx)
                info_("%s: %u segment%s both writable and executable: mapped so, as Linux does",
                      im->execfn, im->wx, im->wx > 1 ? "s are" : " is");
        if (im->exec_stack)
                info_("%s: asks for an executable stack (PT_GNU_STACK): mapped so, as Linux does",
                      im->execfn);
        if (!im->entry_mapped)
                info_("%s: its entry point %#lx is outside all of its segments", im->execfn,
                      im->entry);
        if (im->set_id)
                info_("%s: set-uid or set-gid bits are not honoured", im->execfn);
}

int image_load(struct thread *t, struct image *im)
{
        int err = map_all(t, im);
        if (!err)
                err = write_all(t, im);
        if (!err) {
                struct regs *r = &t->v->regs;
                *r = (struct regs){ .rip = im->first_rip,
                                    .rsp = im->stack.sp,
                                    .rflags = RFLAGS_PROGRAM,
                                    .cs = r->cs,
                                    .ss = r->ss };
                tell(im);
        }
        image_close(im);
        return err;
}
