/*
 * Loading, against a fake kern that keeps the operations and answers reads from them. The result is
 * compared with Linux's for that program: a traced child stopped after its execve, before its first
 * instruction.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>
#undef PAGE_SHIFT                       /* <sys/user.h> has its own */
#undef PAGE_SIZE
#include "memory/gmem.h"
#include "load/auxv.h"
#include "load/image.h"
#include "mkelf.h"
#include "vm/thread.h"
#include "base/message.h"
#include "base/options.h"
#include "base/privfd.h"
#include "hints.h"

/* ---- The fake kern ---- */

static struct mm_op ops[4096];          /* fd: a dup, since image_load closes its own */
static unsigned nops, upcalls, fail_op = UINT32_MAX;
static struct stored { uint64_t at, len; uint8_t *bytes; } stored[4096];
static unsigned nstored;

int64_t thread_upcall(struct thread *t, enum upcall_op op, uint64_t a0, uint64_t a1, uint64_t a2)
{
        (void)a1, (void)a2;
        struct mm_op *xfer = vcpu_xfer(t->v);
        assert_int_equal(op, UPCALL_MM);
        assert_true(a0 > 0 && a0 <= MM_OPS_MAX);
        upcalls++;
        for (uint64_t i = 0; i < a0; i++) {
                if (nops == fail_op)
                        return xfer[i].ret = -ENOMEM;
                assert_int_equal(xfer[i].addr % PAGE_SIZE, 0);
                assert_int_equal(xfer[i].len % PAGE_SIZE, 0);
                xfer[i].ret = xfer[i].op == MM_MAP ? (int64_t)xfer[i].addr : 0;
                ops[nops] = xfer[i];
                if (xfer[i].fd >= 0)
                        ops[nops].fd = dup(xfer[i].fd);
                nops++;
        }
        return 0;
}

/* The operation that decides about an address: the last of those that cover it. */
static const struct mm_op *op_at(uint64_t at)
{
        for (unsigned i = nops; i-- > 0;)
                if (ops[i].op != MM_BRK && at >= ops[i].addr && at - ops[i].addr < ops[i].len)
                        return &ops[i];
        return NULL;
}

int gmem_write(struct thread *t, uint64_t dst, const void *src, size_t len)
{
        (void)t;
        for (uint64_t at = dst; at < dst + len; at = (at | (PAGE_SIZE - 1)) + 1) {
                const struct mm_op *op = op_at(at);
                if (!op || !(op->prot & PROT_WRITE))
                        return -EFAULT;
        }
        stored[nstored].at = dst;
        stored[nstored].len = len;
        stored[nstored].bytes = memcpy(malloc(len), src, len);
        nstored++;
        return 0;
}

/* One page of the loaded program. */
static void read_page(uint64_t at, uint8_t page[PAGE_SIZE])
{
        const struct mm_op *op = op_at(at);
        assert_non_null(op);
        memset(page, 0, PAGE_SIZE);
        if (op->fd >= 0)
                assert_true(pread(op->fd, page, PAGE_SIZE, (off_t)(op->off + (at - op->addr))) >=
                            0);
        for (unsigned i = 0; i < nstored; i++)
                for (uint64_t k = stored[i].at > at ? stored[i].at : at;
                     k < stored[i].at + stored[i].len && k < at + PAGE_SIZE; k++)
                        page[k - at] = stored[i].bytes[k - stored[i].at];
}

static char said[4096];
void info_(const char *fmt, ...)
{
        va_list ap;
        size_t n = strlen(said);
        va_start(ap, fmt);
        vsnprintf(said + n, sizeof(said) - n, fmt, ap);
        va_end(ap);
}

static struct image im;
static struct thread thread;
static struct image_config config;
static struct mkelf m;

static int reset(void **state)
{
        (void)state;
        for (unsigned i = 0; i < nops; i++)
                if (ops[i].fd >= 0)
                        close(ops[i].fd);
        for (unsigned i = 0; i < nstored; i++)
                free(stored[i].bytes);
        nops = nstored = upcalls = 0;
        fail_op = UINT32_MAX;
        said[0] = '\0';
        free(thread.v);
        thread.v = aligned_alloc(PAGE_SIZE, VCPU_BLOCK);
        memset(thread.v, 0x55, VCPU_BLOCK);
        struct rlimit limit;
        assert_int_equal(getrlimit(RLIMIT_STACK, &limit), 0);
        image_config_init(&config, 0x7ffff7fff000, 0x10000, limit.rlim_cur);
        return 0;
}
static int release(void **state)
{
        reset(state);
        free(thread.v);
        thread.v = NULL;
        return 0;
}

static int open_fds(void)
{
        int n = 0;
        for (int fd = 0; fd < 256; fd++)
                n += fcntl(fd, F_GETFD) >= 0;
        return n;
}

/* ---- Against Linux ---- */

static char *const run_argv[] = { (char *)"first", (char *)"", (char *)"third argument", NULL };
static char *const run_env[] = { (char *)"PATH=/bin", (char *)"EMPTY=", (char *)"A=1", NULL };

/* A child that has become the program and executed nothing of it; -1: not possible here. */
static pid_t start_native(const char *path)
{
        int status;
        pid_t pid = fork();
        if (pid == 0) {
                personality(ADDR_NO_RANDOMIZE);
                if (ptrace(PTRACE_TRACEME, 0, NULL, NULL))
                        _exit(99);
                execve(path, run_argv, run_env);
                _exit(98);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        return WIFSTOPPED(status) ? pid : -1;
}

static struct native {
        pid_t pid;
        int mem;
        struct user_regs_struct regs;
        uint64_t start_brk, arg_start, arg_end, env_start, env_end;
        uint64_t aux[64][2];
        unsigned naux;
} native;

static uint64_t native_word(uint64_t at)
{
        uint64_t w;
        assert_int_equal(pread(native.mem, &w, sizeof(w), (off_t)at), sizeof(w));
        return w;
}

static uint64_t *find_aux(uint64_t key)
{
        for (unsigned i = 0; i < native.naux; i++)
                if (native.aux[i][0] == key)
                        return &native.aux[i][1];
        return NULL;
}
static uint64_t aux(uint64_t key)
{
        uint64_t *value = find_aux(key);
        return value ? *value : 0;
}

static void read_native(void)
{
        char name[64], line[4096];
        snprintf(name, sizeof(name), "/proc/%d/mem", native.pid);
        native.mem = open(name, O_RDONLY | O_CLOEXEC);
        assert_true(native.mem >= 0);
        assert_int_equal(ptrace(PTRACE_GETREGS, native.pid, NULL, &native.regs), 0);
        snprintf(name, sizeof(name), "/proc/%d/stat", native.pid);
        FILE *f = fopen(name, "re");
        assert_non_null(fgets(line, sizeof(line), f));
        fclose(f);
        char *p = strrchr(line, ')');
        for (int field = 2; field < 47; field++)
                p = strchr(p + 1, ' ');
        assert_int_equal(sscanf(p, "%" SCNu64 "%" SCNu64 "%" SCNu64 "%" SCNu64 "%" SCNu64,
                                &native.start_brk, &native.arg_start, &native.arg_end,
                                &native.env_start, &native.env_end),
                         5);
        uint64_t at = native.regs.rsp + 8;
        for (int zeros = 0; zeros < 2; at += 8)
                zeros += native_word(at) == 0;
        for (native.naux = 0; native.naux < 64; at += 16) {
                native.aux[native.naux][0] = native_word(at);
                native.aux[native.naux][1] = native_word(at + 8);
                if (native.aux[native.naux++][0] == AT_NULL)
                        break;
        }
}

/* Linux's mapping that holds an address: its permissions, and its offset there. */
static bool native_map(uint64_t at, char perms[5], uint64_t *off, bool *file)
{
        char name[64], line[PATH_MAX + 256];
        bool found = false;
        snprintf(name, sizeof(name), "/proc/%d/maps", native.pid);
        FILE *f = fopen(name, "re");
        assert_non_null(f);
        while (!found && fgets(line, sizeof(line), f)) {
                uint64_t lo, hi;
                assert_int_equal(
                        sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s %" SCNx64, &lo, &hi, perms, off),
                        4);
                found = at >= lo && at < hi;
                if (found) {
                        *off += at - lo;
                        *file = strchr(line, '/');
                }
        }
        fclose(f);
        return found;
}

static bool in_stack(const struct mm_op *op) { return op->op == MM_STACK; }

/* Each page of ours is in Linux at its object's delta, with equal permissions and bytes. */
static void compare_pages(uint64_t main_delta, uint64_t interp_delta)
{
        for (unsigned i = 0; i < nops; i++) {
                if (ops[i].op == MM_BRK || in_stack(&ops[i]))
                        continue;
                for (uint64_t at = ops[i].addr; at < ops[i].addr + ops[i].len; at += PAGE_SIZE) {
                        bool of_main = at >= im.start && at < im.end;
                        uint64_t theirs = at + (of_main ? main_delta : interp_delta), off = 0;
                        char perms[5] = "", ours[5];
                        bool file = false;
                        uint8_t a[PAGE_SIZE], b[PAGE_SIZE];
                        const struct mm_op *op = op_at(at);
                        snprintf(ours, sizeof(ours), "%c%c%cp", op->prot & PROT_READ ? 'r' : '-',
                                 op->prot & PROT_WRITE ? 'w' : '-',
                                 op->prot & PROT_EXEC ? 'x' : '-');
                        if (!native_map(theirs, perms, &off, &file) || strcmp(perms, ours))
                                fail_msg("page %#lx (Linux: %#lx): %s, Linux: %s", at, theirs, ours,
                                         perms);
                        assert_int_equal(file, op->fd >= 0);
                        if (file)
                                assert_int_equal(off, op->off + (at - op->addr));
                        read_page(at, a);
                        assert_int_equal(pread(native.mem, b, PAGE_SIZE, (off_t)theirs), PAGE_SIZE);
                        assert_memory_equal(a, b, PAGE_SIZE);
                }
        }
}

/* The number of pages Linux mapped from files: none is missing from ours. */
static uint64_t native_file_pages(void)
{
        char name[64], line[PATH_MAX + 256];
        uint64_t pages = 0;
        snprintf(name, sizeof(name), "/proc/%d/maps", native.pid);
        FILE *f = fopen(name, "re");
        while (fgets(line, sizeof(line), f)) {
                uint64_t lo, hi;
                if (strchr(line, '/') && sscanf(line, "%" SCNx64 "-%" SCNx64, &lo, &hi) == 2)
                        pages += (hi - lo) / PAGE_SIZE;
        }
        fclose(f);
        return pages;
}

/* Keys that Linux passes and vmrun does not: the vDSO, and rseq. */
static bool left_out(uint64_t key) { return key == AT_SYSINFO_EHDR || key == 27 || key == 28; }

static void compare_aux(uint64_t main_delta, uint64_t interp_delta)
{
        unsigned k = 0;
        for (unsigned i = 0; i < native.naux; i++) {
                uint64_t key = native.aux[i][0], theirs = native.aux[i][1];
                if (left_out(key))
                        continue;
                if (key == AT_NULL) {           /* vmrun's own entry is the last */
                        assert_int_equal(im.stack.aux[k].key, HINTS_AUX);
                        assert_int_equal(im.stack.aux[k++].value, HINTS_VERSION);
                }
                assert_true(k < im.stack.naux);
                assert_int_equal(im.stack.aux[k].key, key); /* equal keys in equal order */
                uint64_t ours = im.stack.aux[k++].value;
                if (key == AT_PHDR || key == AT_ENTRY)
                        ours += main_delta;
                else if (key == AT_BASE && ours)
                        ours += interp_delta;
                else if (key == AT_RANDOM || key == AT_PLATFORM)
                        ours = theirs;  /* Linux leaves a gap of its own above them */
                else if (key == AT_HWCAP2)
                        theirs &= 2;
                if (ours != theirs)
                        fail_msg("auxv key %lu: %#lx, Linux: %#lx", key, ours, theirs);
        }
        assert_int_equal(k, im.stack.naux);
}

static void compare_stack(void)
{
        assert_int_equal(im.stack.sp % 16, 0);
        assert_int_equal(native.regs.rsp % 16, 0);
        assert_int_equal(im.stack.arg_start, native.arg_start);
        assert_int_equal(im.stack.arg_end, native.arg_end);
        assert_int_equal(im.stack.env_start, native.env_start);
        assert_int_equal(im.stack.env_end, native.env_end);
        const struct stored *s = &stored[nstored - 1];
        assert_int_equal(s->at, im.stack.sp);
        uint64_t words = 1 + 3 + 1 + 3 + 1;     /* argc, argv, envp: the very same pointers, too */
        for (uint64_t i = 0; i < words; i++) {
                uint64_t ours;
                memcpy(&ours, s->bytes + 8 * i, 8);
                assert_int_equal(ours, native_word(native.regs.rsp + 8 * i));
        }
        uint8_t theirs[4096];
        uint64_t len = TASK_SIZE - im.stack.arg_start;
        assert_true(len < sizeof(theirs));
        assert_int_equal(pread(native.mem, theirs, len, (off_t)im.stack.arg_start), len);
        assert_memory_equal(s->bytes + (im.stack.arg_start - im.stack.sp), theirs, len);
}

static void compare_regs(uint64_t delta)
{
        const struct regs *r = &thread.v->regs;
        assert_int_equal(r->rip + delta, native.regs.rip);
        assert_int_equal(r->rsp, im.stack.sp);
        assert_int_equal(r->rflags, RFLAGS_PROGRAM);
        assert_int_equal(r->cs, 0x5555555555555555);            /* the caller's */
        assert_int_equal(r->ss, 0x5555555555555555);
        assert_int_equal(r->rax | r->rbx | r->rcx | r->rdx | r->rsi | r->rdi | r->rbp | r->r8 |
                                 r->r9 | r->r10 | r->r11 | r->r12 | r->r13 | r->r14 | r->r15,
                         0);
}

static void compare_with_linux(const char *path)
{
        int fds = open_fds();
        int err = image_open(&im, path, run_argv, run_env, &config);
        if (err)
                fail_msg("%s: %s", path, im.why.text);
        err = image_load(&thread, &im);
        if (err)
                fail_msg("%s: %s", path, im.why.text);
        assert_int_equal(upcalls, 1);
        image_close(&im);
        uint64_t pages = 0, main_delta, interp_delta = 0;
        int dups = 0;
        for (unsigned i = 0; i < nops; i++) {
                for (uint64_t at = ops[i].addr; ops[i].fd >= 0 && at < ops[i].addr + ops[i].len;
                     at += PAGE_SIZE)
                        pages += op_at(at) == &ops[i];  /* else a later one replaced it */
                dups += ops[i].fd >= 0;
        }
        assert_int_equal(open_fds(), fds + dups);

        native.pid = start_native(path);
        if (native.pid < 0)
                skip();                         /* no ptrace, or no personality, in this sandbox */
        read_native();
        main_delta = aux(AT_ENTRY) - im.entry;
        if (im.base)
                interp_delta = aux(AT_BASE) - im.base;
        compare_pages(main_delta, interp_delta);
        assert_int_equal(native_file_pages(), pages);
        compare_stack();
        compare_aux(main_delta, interp_delta);
        compare_regs(im.base ? interp_delta : main_delta);
        if (*im.interp || main_delta == 0) {
                /* PIE at the address Linux uses without randomisation */
                assert_int_equal(main_delta, 0);
                assert_int_equal(im.brk, native.start_brk);
        }
        kill(native.pid, SIGKILL);
        waitpid(native.pid, NULL, 0);
        close(native.mem);
}

static void pie(void **state)        { (void)state; compare_with_linux("/usr/bin/true"); }
static void static_pie(void **state)
{
        (void)state;
        if (access("/sbin/ldconfig", X_OK))
                skip();
        compare_with_linux("/sbin/ldconfig");
}
static void fixed(void **state)
{
        (void)state;
        if (access("/bin/busybox", X_OK))
                skip();
        compare_with_linux("/bin/busybox");
}

/* Files whose bss begins in a page of the file, odd permissions, bss alone, a shared page. */
static void made(void **state)
{
        char path[] = "/tmp/vmrun-load-XXXXXX";
        close(mkstemp(path));
        for (int kind = 0; kind < 5; kind++) {
                mkelf_init(&m, kind == 1 ? ET_DYN : ET_EXEC);
                if (kind == 2)
                        m.ph[1].p_flags = PF_R | PF_W | PF_X;
                if (kind == 3)
                        mkelf_add(&m, PT_LOAD, PF_R | PF_W, 0, 0x410333, 0, 0x1234);
                if (kind == 4) {
                        m.ph[1].p_memsz = 0x400;
                        mkelf_add(&m, PT_LOAD, PF_R | PF_W, 0x2800, 0x402800, 0x100, 0x900);
                }
                mkelf_add(&m, PT_GNU_STACK, PF_R | PF_W | (kind == 2 ? PF_X : 0), 0, 0, 0, 0);
                mkelf_file(&m, path);
                compare_with_linux(path);
                if (kind == 2) {
                        assert_non_null(strstr(said, "writable and executable"));
                        assert_non_null(strstr(said, "executable stack"));
                        assert_int_equal(op_at(TASK_SIZE - 1)->prot,
                                         PROT_READ | PROT_WRITE | PROT_EXEC);
                }
                reset(state);
        }
        unlink(path);
}

/* ---- Failures ---- */

static void kern_refuses(void **state)
{
        int fds = open_fds();
        for (unsigned i = 0; i < 6; i++) {
                assert_int_equal(image_open(&im, "/usr/bin/true", run_argv, run_env, &config), 0);
                fail_op = i;
                assert_int_equal(image_load(&thread, &im), -ENOMEM);
                assert_non_null(strstr(im.why.text, "cannot be mapped for "));
                assert_non_null(strstr(im.why.text, "Cannot allocate memory"));
                reset(state);
                assert_int_equal(open_fds(), fds);
        }
}

static void many_batches(void **state)
{
        (void)state;
        char path[] = "/tmp/vmrun-load-XXXXXX";
        close(mkstemp(path));
        mkelf_init(&m, ET_EXEC);
        while (m.nph < 500)
                mkelf_add(&m, PT_LOAD, PF_R | PF_W, 0, 0x800000 + m.nph * 0x4000ull, 0x10, 0x3000);
        m.ph[0].p_filesz = m.ph[0].p_memsz = 0;
        m.ph[1].p_vaddr = 0x780010;
        m.ph[1].p_offset = 0x10;
        m.size = 0x10000;
        mkelf_file(&m, path);
        assert_int_equal(image_open(&im, path, run_argv, run_env, &config), 0);
        unsigned n = im.nops;
        assert_int_equal(image_load(&thread, &im), 0);
        assert_int_equal(upcalls, (n + MM_OPS_MAX - 1) / MM_OPS_MAX);
        assert_int_equal(nops, n);
        unlink(path);
}

int main(void)
{
        auxv_take(environ);
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(pie, reset, release),
                cmocka_unit_test_setup_teardown(static_pie, reset, release),
                cmocka_unit_test_setup_teardown(fixed, reset, release),
                cmocka_unit_test_setup_teardown(made, reset, release),
                cmocka_unit_test_setup_teardown(kern_refuses, reset, release),
                cmocka_unit_test_setup_teardown(many_batches, reset, release),
        };
        return cmocka_run_group_tests_name("load", tests, NULL, NULL);
}
