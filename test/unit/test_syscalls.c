/*
 * Forwarded system calls without a VM.
 *
 * The kernel's syscall user dispatch sends every system call of this process to a handler, which
 * gives it to syscall_forward. Program and vmrun are one process here. process_vm_readv and
 * process_vm_writev on this process stand for gmem: they refuse just what copy_to_user would. Calls
 * that kern serves, and those for processes, go to the kernel.
 *
 *   as a preloaded library (-shared -fPIC -DPRELOAD): LD_PRELOAD=this.so any single-threaded
 *       dynamic program
 *   as a program: runs the test program named by its first argument natively and through itself and
 *       compares the outputs
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>
#include "abi_control.h"
#include "exits.h"
#include "base/message.h"
#include "base/options.h"
#include "base/own_thread.h"
#include "base/privfd.h"
#include "marshal/proc_path.h"
#include "memory/files.h"
#include "memory/files_read.h"
#include "memory/gmem.h"
#include "signal/signals.h"
#include "process/alone.h"
#include "process/service.h"
#include "syscalls/dispatch.h"
#include "syscalls/handlers.h"
#include "marshal/call.h"
#include "marshal/row.h"
#include "process/start.h"
#include "process/threads.h"
#include "process/vfork.h"
#include "vm/vcpu.h"

#ifndef PR_SET_SYSCALL_USER_DISPATCH
#define PR_SET_SYSCALL_USER_DISPATCH 59
#endif

#ifdef PRELOAD
struct options opt;
static struct thread self;
static char block[VCPU_BLOCK] __attribute__((aligned(PAGE_SIZE)));
static volatile char selector;
static char names[256][256];
static unsigned nnames;

/* --- gmem, over plain memory --- */

static long copy(bool write, uint64_t prog, void *host, size_t len)
{
        struct iovec l = { host, len }, r = { (void *)(uintptr_t)prog, len };

        if (!len)
                return 0;
        return sys_raw(write ? __NR_process_vm_writev : __NR_process_vm_readv, (uint64_t)getpid(),
                       P(&l), 1, P(&r), 1, 0);
}
int gmem_read(struct thread *t, void *dst, uint64_t src, size_t len)
{
        (void)t;
        return copy(false, src, dst, len) == (long)len ? 0 : -EFAULT;
}
int gmem_write(struct thread *t, uint64_t dst, const void *src, size_t len)
{
        (void)t;
        return copy(true, dst, (void *)(uintptr_t)src, len) == (long)len ? 0 : -EFAULT;
}
int gmem_check(struct thread *t, uint64_t addr, size_t len, bool write)
{
        char c;

        for (size_t at = 0; at < len; at += PAGE_SIZE - ((addr + at) & (PAGE_SIZE - 1)))
                if (gmem_read(t, &c, addr + at, 1) || (write && gmem_write(t, addr + at, &c, 1)))
                        return -EFAULT;
        return 0;
}
long gmem_string(struct thread *t, char *dst, uint64_t src, size_t max)
{
        for (size_t n = 0; n < max;) {
                size_t page = PAGE_SIZE - ((src + n) & (PAGE_SIZE - 1));
                if (page > max - n)
                        page = max - n;
                if (gmem_read(t, dst + n, src + n, page))
                        return -EFAULT;
                char *nul = memchr(dst + n, 0, page);
                if (nul)
                        return nul - dst;
                n += page;
        }
        return -ENAMETOOLONG;
}
long gmem_pin(struct thread *t, struct gmem_pins *p, uint64_t addr, size_t len, bool write)
{
        size_t done = 0;

        p->n = 0;
        p->write = write;
        while (done < len && p->n < GMEM_PIN_MAX) {
                size_t page = PAGE_SIZE - ((addr + done) & (PAGE_SIZE - 1));
                if (page > len - done)
                        page = len - done;
                if (gmem_check(t, addr + done, 1, write))
                        break;
                p->iov[p->n++] = (struct iovec){ (void *)(uintptr_t)(addr + done), page };
                done += page;
        }
        return done ? (long)done : -EFAULT;
}
void gmem_unpin(struct thread *t, struct gmem_pins *p, size_t used)
{
        (void)t;
        (void)used;
        p->n = 0;
}

int gmem_word(struct thread *t, uint64_t addr, bool write, struct gmem_word *w)
{
        *w = (struct gmem_word){ .host = (uint32_t *)(uintptr_t)addr };
        return gmem_check(t, addr, 4, write);
}
bool gmem_word_here(struct thread *t, uint64_t addr, struct gmem_word *w)
{
        return gmem_word(t, addr, false, w) == 0;
}
bool gmem_word_shared(const struct gmem_word *w) { return w->frame != 0; }
void gmem_word_drop(struct thread *t, const struct gmem_word *w, bool wrote)
{
        (void)t, (void)w, (void)wrote;
}

/* --- threads: they are the kernel's own here --- */

_Thread_local struct thread *thread_self;
_Thread_local _Atomic uint32_t sys_put_off;
_Atomic uint32_t threads_stopping;
void threads_tell_stopper(void) { }
bool vcpu_is_kick(struct thread *t, const siginfo_t *info) { (void)t, (void)info; return false; }
void threads_wait_to_go(struct thread *t) { (void)t; }
struct thread *threads_find(struct thread *t, pid_t tid) { return tid == gettid() ? t : NULL; }
unsigned threads_count(const struct thread *t) { (void)t; return 1; }
int alone_begin(struct thread *t) { (void)t; return -EINVAL; }
void alone_end(struct thread *t) { (void)t; }
void io_keep_rights(void) {}
void service_ensure(struct vm *vm) { (void)vm; }
void own_threads_set_apart(void) {}
void threads_count_cpus(void) {}
bool threads_single(void) { return false; }
void gmem_count(struct thread *t, uint64_t start, uint64_t end, bool anonymous,
                struct gmem_count *c)
{
        (void)t, (void)start, (void)end, (void)anonymous, (void)c;
}
long threads_make(struct thread *t, const struct clone_request *rq)
{
        (void)t, (void)rq;
        return -ENOSYS;
}
static _Noreturn void program_exit(struct thread *t, int status)
{
        (void)t;
        for (;;)
                sys_raw(__NR_exit_group, (uint64_t)status, 0, 0, 0, 0, 0);
}

long threads_end(struct thread *t, int status) { program_exit(t, status); }
long vfork_make(struct thread *t, const struct clone_request *rq)
{
        (void)t, (void)rq;
        return -ENOSYS;
}

/* --- the rest of vmrun --- */

int file_describe(uint32_t id, char *path, size_t n, dev_t *dev, ino_t *ino)
{
        unsigned major_, minor_;
        unsigned long inode;

        if (sscanf(names[id], "%x:%x %lu", &major_, &minor_, &inode) != 3)
                return -EBADF;
        snprintf(path, n, "%s", strchr(names[id], '\n') + 1);
        *dev = makedev(major_, minor_);
        *ino = inode;
        return 0;
}

/* Nothing is mapped private that vmrun would have to look after. */
uint32_t files_next_private(uint32_t id, dev_t dev, ino_t ino)
{
        (void)id, (void)dev, (void)ino;
        return FILE_NONE;
}
int64_t files_pages_left(uint32_t id, uint64_t off) { (void)id, (void)off; return -EBADF; }

/* Its VMAs are this process's. */
int64_t thread_upcall(struct thread *t, enum upcall_op op, uint64_t a0, uint64_t a1, uint64_t a2)
{
        struct map_entry *e = vcpu_xfer(t->v);
        FILE *f = fopen("/proc/self/maps", "r");
        char line[512];
        int64_t n = 0;

        (void)op; (void)a1; (void)a2;
        nnames = 1;
        while (f && fgets(line, sizeof(line), f) && n < (int64_t)(PAGE_SIZE / sizeof(*e))) {
                unsigned long start, end, off, ino;
                char p[8], dev[16], path[256] = "";
                if (sscanf(line, "%lx-%lx %7s %lx %15s %lu %255s", &start, &end, p, &off, dev, &ino,
                           path) < 6 ||
                    end <= a0)
                        continue;
                e[n] = (struct map_entry){ .start = start,
                                           .end = end,
                                           .off = off,
                                           .prot = (p[0] == 'r') * PROT_READ |
                                                   (p[1] == 'w') * PROT_WRITE |
                                                   (p[2] == 'x') * PROT_EXEC,
                                           .flags = p[3] == 's' ? MAP_SHARED : MAP_PRIVATE };
                if (!strcmp(path, "[stack]"))
                        e[n].flags |= MAP_ENTRY_STACK;
                else if (!strcmp(path, "[heap]"))
                        e[n].flags |= MAP_ENTRY_HEAP;
                else if (ino && nnames < 256) {
                        snprintf(names[nnames], sizeof(names[0]), "%s %lu\n%.200s", dev, ino, path);
                        e[n].file = nnames++;
                }
                n++;
        }
        if (f)
                fclose(f);
        return n;
}

/* execve is the kernel's. */
long sys_execve(struct thread *t, const struct sys_row *row, const uint64_t a[6])
{
        (void)t, (void)row, (void)a;
        abort();
}
long sys_execveat(struct thread *t, const struct sys_row *row, const uint64_t a[6])
{
        (void)t, (void)row, (void)a;
        abort();
}

static bool of_kern(long nr)
{
        switch (nr) {
        case __NR_mmap: case __NR_munmap: case __NR_mprotect: case __NR_mremap: case __NR_brk:
        case __NR_madvise: case __NR_mincore: case __NR_msync: case __NR_mlock: case __NR_munlock:
        case __NR_arch_prctl: case __NR_rt_sigreturn: case __NR_clone: case __NR_clone3:
        case __NR_fork: case __NR_vfork: case __NR_execve: case __NR_execveat:
        case __NR_clock_gettime: case __NR_gettimeofday: case __NR_time:
                return true;
        }
        return false;
}

/* The return from the handler lies in a section of their own: the range that is not dispatched. */
__asm__(".pushsection .sudtext, \"ax\"\n"
        ".globl sud_start, sud_restore, sud_end\n"
        ".hidden sud_start, sud_restore, sud_end\n"
        "sud_start:\nsud_restore: mov $15, %eax\n syscall\n nop\nsud_end: nop\n"
        ".popsection\n");
extern char sud_start[], sud_restore[], sud_end[];

static void on_syscall(int sig, siginfo_t *si, void *ctx)
{
        ucontext_t *uc = ctx;
        greg_t *g = uc->uc_mcontext.gregs;
        long nr = (int)g[REG_RAX];              /* as kern and exits.c take it */
        uint64_t a[6] = { (uint64_t)g[REG_RDI], (uint64_t)g[REG_RSI], (uint64_t)g[REG_RDX],
                          (uint64_t)g[REG_R10], (uint64_t)g[REG_R8],  (uint64_t)g[REG_R9] };

        (void)sig;
        (void)si;
        selector = 0;
        int saved = errno;
        if (nr == __NR_rt_sigaction && getenv("SUD_HANDLERS"))
                g[REG_RAX] = sys_raw(nr, a[0], a[1], a[2], a[3], 0, 0);
        else if (of_kern(nr))
                g[REG_RAX] = sys_raw(nr, a[0], a[1], a[2], a[3], a[4], a[5]);
        else
                g[REG_RAX] = syscall_forward(&self, nr, a);
        if (self.end.how)
                program_exit(&self,
                             self.end.how == END_PROGRAM ? self.end.status : EXIT_VMRUN_FAILED);
        if (nr == __NR_rt_sigprocmask) {
                uint64_t mask = 0;
                sys_raw(__NR_rt_sigprocmask, 0, 0, P(&mask), 8, 0, 0);
                mask &= ~(1ull << (SIGSYS - 1));
                memcpy(&uc->uc_sigmask, &mask, 8);
        }
        errno = saved;
        selector = 1;
}

__attribute__((constructor)) static void start(void)
{
        struct {
                uint64_t handler, flags, restorer, mask;
        } act = { P((void *)on_syscall), 0x04000000 | SA_SIGINFO | SA_NODEFER, P(sud_restore), 0 };
        struct control *c = CONTROL;
        char exe[4096];
        ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
        uint64_t lim[2];
        int border = open("/dev/null", O_RDONLY);

        if (mmap(c, sizeof(*c), PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE | MAP_NORESERVE, -1, 0) != c)
                _exit(125);
        c->nframes = 1 << 20;
        c->far_pages = 1 << 22;
        self.v = (struct vcpu *)block;
        self.tid = self.pid = getpid();
        signals_thread_start(&self);
        sys_raw(__NR_prlimit64, 0, 9, 0, P(lim), 0, 0), c->rlimit_as = lim[0];
        sys_raw(__NR_prlimit64, 0, 2, 0, P(lim), 0, 0), c->rlimit_data = lim[0];
        sys_raw(__NR_prlimit64, 0, 3, 0, P(lim), 0, 0), c->rlimit_stack = lim[0];
        sys_raw(__NR_prlimit64, 0, 8, 0, P(lim), 0, 0), c->rlimit_memlock = lim[0];
        privfd_init();
        opt.verbose = getenv("SUD_VERBOSE") != NULL;
        message_to(privfd_dup(STDERR_FILENO));
        privfd_move(border);            /* one more descriptor to be hidden */
        exe[n > 0 ? n : 0] = 0;
        procfs_set_exe(exe);
        unsetenv("LD_PRELOAD");
        sys_raw(__NR_rt_sigaction, SIGSYS, P(&act), 0, 8, 0, 0);
        if (prctl(PR_SET_SYSCALL_USER_DISPATCH, 1, sud_start, sud_end - sud_start, &selector)) {
                fprintf(stderr, "no syscall user dispatch here\n");
                _exit(77);
        }
        selector = 1;
}

#else

/* Runs a command; its output is in out, its status is returned. */
static int run(char **argv, const char *preload, const char *out)
{
        pid_t pid = fork();
        int status;

        if (!pid) {
                int fd = open(out, O_CREAT | O_WRONLY | O_TRUNC, 0600);
                dup2(fd, 1);
                close(fd);
                if (preload)
                        setenv("LD_PRELOAD", preload, 1);
                execv(argv[0], argv);
                _exit(127);
        }
        waitpid(pid, &status, 0);
        return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* test_syscalls LIBRARY PROGRAM ARG...: natively and forwarded, status 0 and equal output. */
int main(int argc, char **argv)
{
        const char *dir = getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp";
        char a[256], b[256], cmd[600];
        int native, forwarded, same;

        if (argc < 3) {
                fprintf(stderr, "usage: test_syscalls LIBRARY PROGRAM [ARG...]\n");
                return 2;
        }
        snprintf(a, sizeof(a), "%s/native.out", dir);
        snprintf(b, sizeof(b), "%s/forwarded.out", dir);
        native = run(argv + 2, NULL, a);
        forwarded = run(argv + 2, argv[1], b);
        snprintf(cmd, sizeof(cmd), "diff -u %s %s", a, b);
        same = system(cmd);
        printf("native %d, forwarded %d, outputs %s\n", native, forwarded,
               same ? "differ" : "equal");
        if (forwarded == 77)
                return 77;
        return native || forwarded || same;
}
#endif
