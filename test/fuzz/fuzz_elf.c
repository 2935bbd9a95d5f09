/*
 * Fuzzer of the loader: elf.c, script.c, stack.c and image.c of runtime/load, from the bytes of a
 * file to the plan of a process image.
 *
 * Threat model. The user trusts the program as far as a shell does, but not each file that he might
 * name by mistake: a file that is cut off, damaged, made for something else, or made to look like a
 * program. Such a file must be refused with a sentence, and never
 *   - make vmrun read or write memory that is not its own, or loop, or leak memory or descriptors
 *     (a shell may try execve in a loop);
 *   - get something mapped where the program may have nothing: in what vmrun keeps for itself,
 *     beyond user space, below mmap_min_addr;
 *   - leave a plan that image_load could not carry out: unaligned, empty or overflowing ranges.
 * Out of scope: what the program does once it runs; files that change while they are read (elf.c
 * reads, and does not map, for that).
 *
 * The first byte of an input chooses limits, and the next two are the length of the program's file.
 * The loader's file follows that. "/self" and "/loader" name the two, and there are no other files.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "../../runtime/load/elf.h"
#include "../../runtime/load/image.h"
#include "../../runtime/vm/thread.h"
#include "../../runtime/memory/gmem.h"
#include "../../runtime/base/message.h"
#include "../../runtime/base/options.h"
#include "../../runtime/base/privfd.h"

#define FAIL(what) do { fprintf(stderr, "fuzz: %s\n", what); abort(); } while (0)

/* ---- the only two files ---- */

static int files[2] = { -1, -1 };

static int file_named(const char *path)
{
        int i = !strcmp(path, "/self") ? 0 : !strcmp(path, "/loader") ? 1 : -1;

        if (i < 0 || files[i] < 0) {
                errno = strlen(path) >= PATH_MAX ? ENAMETOOLONG : ENOENT;
                return -1;
        }
        return files[i];
}

/* What test/fuzz/run has the loader call in place of openat, fstatat and faccessat. */
int fuzz_openat(int dir, const char *path, int flags, ...)
{
        char link[64];

        (void)dir;
        if ((flags & O_ACCMODE) != O_RDONLY || (flags & (O_CREAT | O_TRUNC)))
                FAIL("a program is opened to be changed");
        int fd = file_named(path);
        if (fd < 0)
                return -1;
        snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
        return open(link, O_RDONLY | O_CLOEXEC);
}

int fuzz_fstatat(int dir, const char *path, struct stat *st, int flags)
{
        int fd = file_named(path);

        (void)dir, (void)flags;
        return fd < 0 ? -1 : fstat(fd, st);
}

int fuzz_faccessat(int dir, const char *path, int mode, int flags)
{
        (void)dir, (void)mode, (void)flags;
        return file_named(path) < 0 ? -1 : 0;
}

static int make_file(const uint8_t *bytes, size_t n)
{
        int fd = memfd_create("fuzz", MFD_CLOEXEC);

        if (fd < 0 || write(fd, bytes, n) != (ssize_t)n || fchmod(fd, 0755))
                FAIL("no file for the input");
        return fd;
}

/* ---- kern, which maps nothing ---- */

static struct image im;
static struct thread thread;
static struct image_config config;

static bool reserved(uint64_t start, uint64_t end)
{
        return start < RESERVED_END && end > RESERVED_START;
}

/* Pages behind the end of the file are the program's affair. */
static void check_file_range(const struct mm_op *op)
{
        if (op->off % PAGE_SIZE || op->off > INT64_MAX - op->len)
                FAIL("pages that no file can have are mapped");
}

static void check_op(const struct mm_op *op)
{
        /* In an unmapped range, wherever it is, the program has nothing. */
        if (op->op == MM_BRK || op->op == MM_UNMAP)
                return;
        if (op->op != MM_MAP && op->op != MM_STACK)
                FAIL("an operation that no loading needs");
        if (!op->len || op->addr % PAGE_SIZE || op->len % PAGE_SIZE)
                FAIL("a range that is empty or not of pages");
        if (op->addr < config.mmap_min || op->addr > TASK_SIZE || op->len > TASK_SIZE - op->addr ||
            reserved(op->addr, op->addr + op->len))
                FAIL("a range where the program may have nothing");
        if (op->fd >= 0)
                check_file_range(op);
}

int64_t thread_upcall(struct thread *t, enum upcall_op op, uint64_t a0, uint64_t a1, uint64_t a2)
{
        struct mm_op *ops = vcpu_xfer(t->v);

        (void)a1, (void)a2;
        if (op != UPCALL_MM || a0 == 0 || a0 > MM_OPS_MAX)
                FAIL("an upcall that kern would not understand");
        for (uint64_t i = 0; i < a0; i++) {
                check_op(&ops[i]);
                ops[i].ret = (int64_t)ops[i].addr;
        }
        return 0;
}

int gmem_write(struct thread *t, uint64_t dst, const void *src, size_t len)
{
        volatile uint8_t sum = 0;

        (void)t;
        for (size_t i = 0; i < len; i++)        /* all of it is there to be read */
                sum = (uint8_t)(sum + ((const uint8_t *)src)[i]);
        if (dst > TASK_SIZE || len > TASK_SIZE - dst || reserved(dst, dst + len))
                FAIL("bytes are stored where the program has nothing");
        return 0;
}

void info_(const char *fmt, ...) { (void)fmt; }

/* ---- a run ---- */

static int lowest_free(void)
{
        int fd = dup(2);

        close(fd);
        return fd;
}

static void play(void)
{
        static char *const argv[] = { "self", "an argument", NULL };
        static char *const envp[] = { "A=b", NULL };
        int free_before = lowest_free();

        int err = image_open(&im, "/self", argv, envp, &config);
        if (err > 0 || err < -4095 || (err && !*im.why.text))
                FAIL("neither an errno nor a sentence");
        if (!err) {
                if (im.stack.sp % 16 || im.stack.sp < im.stack_low || im.stack.sp >= TASK_SIZE ||
                    im.stack.top != TASK_SIZE)
                        FAIL("a stack pointer that points nowhere");
                if (im.brk < im.start || im.end < im.start)
                        FAIL("a program that ends before it begins");
                err = image_load(&thread, &im);
                if (err > 0 || (err && !*im.why.text))
                        FAIL("neither an errno nor a sentence of the load");
        }
        image_close(&im);
        if (lowest_free() != free_before)
                FAIL("a descriptor is left over");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        static char block[VCPU_BLOCK] __attribute__((aligned(PAGE_SIZE)));

        if (size < 3)
                return 0;
        size_t n = data[1] | (size_t)data[2] << 8, rest = size - 3;
        if (n > rest)
                n = rest;
        thread.v = (struct vcpu *)block;
        config = (struct image_config){ .mmap_top = 0x7ffff7fff000,
                                        .mmap_min = 65536,
                                        .rlimit_stack = 8 << 20 };
        if (data[0] & 1)
                config.rlimit_stack = 256 << 10;
        if (data[0] & 2)
                config.mmap_top = 0x700000100000;       /* right above what vmrun keeps */
        if (data[0] & 4)
                config.mmap_min = 0x400000;
        files[0] = make_file(data + 3, n);
        files[1] = rest > n ? make_file(data + 3 + n, rest - n) : -1;
        play();
        for (int i = 0; i < 2; i++)
                if (files[i] >= 0)
                        close(files[i]);
        return 0;
}
