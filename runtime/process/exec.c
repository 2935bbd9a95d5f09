/*
 * See exec.h: the checks of an execve, the end of one vmrun, and the start of the next.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>
#include "base/message.h"
#include "base/options.h"
#include "base/privfd.h"
#include "far/far.h"
#include "far/memfd.h"
#include "marshal/call.h"
#include "marshal/proc_path.h"
#include "process/end.h"
#include "process/exec.h"
#include "process/service.h"
#include "process/threads.h"
#include "process/vfork.h"
#include "profile/profile.h"
#include "signal/signals.h"
#include "vm/kvm.h"

/* ---- the room ---- */

struct exec_room *exec_room(struct thread *t)
{
        exec_room_free(t);
        void *p = mmap(NULL, sizeof(struct exec_room), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p == MAP_FAILED)
                return NULL;
        madvise(p, sizeof(struct exec_room), MADV_NOHUGEPAGE);
        t->exec_room = p;
        return p;
}

void exec_room_free(struct thread *t)
{
        if (t->exec_room)
                munmap(t->exec_room, sizeof(struct exec_room));
        t->exec_room = NULL;
}

/* ---- what runs natively ---- */

/* Would the file give this process rights that it does not have?  vmrun could not give these. */
static bool gives_rights(const struct program *p)
{
        bool set_uid = (p->st.st_mode & S_ISUID) && p->st.st_uid != geteuid();
        bool set_gid = (p->st.st_mode & (S_ISGID | S_IXGRP)) == (S_ISGID | S_IXGRP) &&
                       p->st.st_gid != getegid();
        bool capable = geteuid() != 0 && fgetxattr(p->fd, "security.capability", NULL, 0) > 0;
        struct statvfs fs;

        if (!set_uid && !set_gid && !capable)
                return false;
        return prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1 &&
               !(fstatvfs(p->fd, &fs) == 0 && (fs.f_flag & ST_NOSUID));
}

/* Execution is allowed, reading is not. */
static bool only_unreadable(const struct program_place *at)
{
        return faccessat(at->dirfd, at->path, X_OK, AT_EACCESS | at->flags) == 0 &&
               faccessat(at->dirfd, at->path, R_OK, AT_EACCESS | at->flags) != 0;
}

/* ---- the way out ---- */

/* This program ends; or a child of vfork stops using its parent's program. */
static void end(struct thread *t, bool goodbye)
{
        if (t->vforked)
                threads_let_go(t);
        else
                program_executes(t);
        if (goodbye)
                program_goodbye();
}

static void inherit(int fd) { fcntl(fd, F_SETFD, 0); }
static void keep_back(int fd) { fcntl(fd, F_SETFD, FD_CLOEXEC); }

static uint64_t strings_size(char *const *v)
{
        uint64_t n = 0;
        for (; *v; v++)
                n += strlen(*v) + 1 + sizeof(*v);
        return n;
}

/* The host checks its own limit of the stack; the program may have a higher one.  *old: the
 * previous limit. */
static int make_room_for_strings(uint64_t need, uint64_t *old)
{
        const uint64_t least = 131072, most = 6u << 20;
        struct rlimit r;

        getrlimit(RLIMIT_STACK, &r);
        *old = r.rlim_cur;
        if (need <= least || (need <= most && need <= r.rlim_cur / 4))
                return 0;
        if (need > most || need > r.rlim_max / 4)
                return -E2BIG;
        r.rlim_cur = need * 4;
        return setrlimit(RLIMIT_STACK, &r) == 0 ? 0 : -E2BIG;
}

static void give_back_stack(uint64_t soft)
{
        struct rlimit r;

        if (getrlimit(RLIMIT_STACK, &r) == 0 && r.rlim_cur != soft) {
                r.rlim_cur = soft;
                setrlimit(RLIMIT_STACK, &r);
        }
}

/* vmrun's own loader and libc must not use these variables: they are for the program's, which gets
 * them back.  One "LD_" variable could end vmrun before it starts (LD_TRACE_LOADED_OBJECTS). */
static bool is_for_libc(const char *s)
{
        return strncmp(s, "LD_", 3) == 0 || strncmp(s, "MALLOC_", 7) == 0 ||
               strncmp(s, "GLIBC_TUNABLES=", 15) == 0;
}

#define HIDDEN_BYTE 1

static uint32_t hide(char **envp, uint32_t *hidden)
{
        uint32_t n = 0;
        for (uint32_t i = 0; envp[i]; i++)
                if (is_for_libc(envp[i]))
                        hidden[n++] = i;
        return n;
}

/* A hidden string has another first byte. */
static void set_hidden(char **envp, const uint32_t *hidden, uint32_t n, bool hide_them)
{
        for (uint32_t i = 0; i < n; i++) {
                char *s = envp[hidden[i]];
                *s = hide_them ? HIDDEN_BYTE : s[1] == 'D' ? 'L' : s[1] == 'A' ? 'M' : 'G';
        }
}

/* Fills in everything that the next vmrun must know.  True: program_goodbye() must be called. */
static bool fill(struct thread *t, struct exec_room *r, uint64_t mask, int program)
{
        struct handover *h = &r->handover;
        /* Acquire: nodes below the number are complete, also if one is being added (far_add). */
        unsigned nnodes = __atomic_load_n(&opt.nnodes, __ATOMIC_ACQUIRE);

        h->opt = opt;
        h->opt.nnodes = nnodes;
        h->opt.argv = NULL;
        h->opt.record = h->opt.replay = NULL;
        h->mask = mask;
        h->program = program;
        h->kvm = t->vm->kvm_fd;
        h->message = message_fd();
        h->nhidden = hide(r->envp, r->hidden);
        limits_keep(&h->limits);
        stats_keep(&h->stats);
        profile_keep(&h->profile);
        ctl_keep(&h->ctl, t->vforked);
        return far_keep(&h->far, t->vforked ? &t->next : NULL);
}

/* The host's execve, which ends all other threads.  Before it, children of vfork that share this
 * address space continue: they outlive the execve, and no thread would let them continue later.  If
 * the execve fails, threads_go() lets all continue. */
static long host_exec(struct thread *t, int dirfd, const char *path, char *const *argv,
                      char *const *envp, int flags)
{
        if (!t->vforked) {
                threads_stop_for_good();
                far_leaves(service_hold(STILL_MS));
        }
        signals_end_kicks(t);           /* no kick will come: this vCPU is not in the program */
        long err = sys_own(__NR_execveat, (uint64_t)dirfd, P(path), P(argv), P(envp),
                           (uint64_t)flags, 0);
        signals_expect_kicks(t);
        if (!t->vforked) {
                far_leaves(false);
                service_release();
        }
        return err;
}

/* All checks are over: only the kernel can still refuse, and only for lack of memory. */
static long replace(struct thread *t, struct exec_room *r, const struct handover_fds *fds,
                    bool goodbye)
{
        struct handover *h = &r->handover;

        handover_private_fds(h, inherit);
        inherit(h->program);
        end(t, goodbye);
        set_hidden(r->envp, r->hidden, h->nhidden, true);
        long err = host_exec(t, fds->vmrun, "", r->words, r->envp, AT_EMPTY_PATH);
        if (goodbye)
                die_(EXIT_VMRUN_FAILED,
                     "%s: cannot be executed: %s; the memory nodes were told goodbye already, so "
                     "the program ends",
                     r->path, strerror((int)-err));
        handover_private_fds(h, keep_back);
        if (!t->vforked)
                stats_goes_on();
        return err;
}

static long hand_over(struct thread *t, struct exec_room *r, bool goodbye)
{
        struct handover *h = &r->handover;
        struct handover_fds fds;

        long err = make_room_for_strings(strings_size(r->words) + strings_size(r->envp) + 32,
                                         &h->host_stack);
        if (err)
                return err;
        err = handover_make(h, r->hidden, &fds);
        if (!err) {
                err = replace(t, r, &fds, goodbye);
                handover_drop(&fds);
        }
        give_back_stack(h->host_stack);
        return err;
}

static long follow(struct thread *t, struct exec_room *r, uint64_t mask, int program)
{
        long err = hand_over(t, r, fill(t, r, mask, program));

        far_unkeep(&r->handover.far);
        return err;
}

/* Until execve our handler could take a signal that has a handler, and lose it.  So such signals
 * get their default action, as if they came after execve. */
static void handlers(struct ksigaction old[SIGNALS_MAX + 1], bool away)
{
        const struct ksigaction dfl = { 0 };

        for (uint64_t sig = 1; sig <= SIGNALS_MAX; sig++) {
                if (away && sys_own(__NR_rt_sigaction, sig, 0, P(&old[sig]), 8, 0, 0) != 0)
                        old[sig].handler = 0;
                if (old[sig].handler > P(SIG_IGN))
                        sys_own(__NR_rt_sigaction, sig, away ? P(&dfl) : P(&old[sig]), 0, 8, 0, 0);
        }
}

/* certain: the file passed all checks, so this program ends here, and is reported as ended. */
static long run_natively(struct thread *t, struct exec_room *r, const struct program_place *at,
                         uint64_t mask, bool certain)
{
        struct limits_kept limits, old, undone;
        struct ksigaction action[SIGNALS_MAX + 1];
        const uint64_t all = ~0ull;
        bool goodbye = certain && far_keep(&r->handover.far, t->vforked ? &t->next : NULL);

        if (certain) {
                far_unkeep(&r->handover.far);   /* that program needs none of it */
                end(t, goodbye);
        }
        limits_keep(&limits);
        limits_to_host(&limits, certain, &old);
        handlers(action, true);
        sys_own(__NR_rt_sigprocmask, SIG_SETMASK, P(&mask), 0, 8, 0, 0);
        long err = host_exec(t, at->dirfd, at->path, r->argv, r->envp, at->flags);
        sys_own(__NR_rt_sigprocmask, SIG_SETMASK, P(&all), 0, 8, 0, 0);
        handlers(action, false);
        limits_to_host(&old, false, &undone);
        if (goodbye)
                die_(EXIT_VMRUN_FAILED,
                     "%s: cannot be executed: %s; the memory nodes were told goodbye already, so "
                     "the program ends",
                     r->path, strerror((int)-err));
        if (certain && !t->vforked)
                stats_goes_on();
        return err;
}

/* ---- the checks ---- */

/* The name of a program that was executed by descriptor, as Linux makes it. */
static const char *name_of(const struct exec_room *r, char name[PATH_MAX + 32])
{
        if (r->dirfd == AT_FDCWD || *r->path == '/')
                snprintf(name, PATH_MAX + 32, "%s", r->path);
        else
                snprintf(name, PATH_MAX + 32, "/dev/fd/%d%s%s", r->dirfd, *r->path ? "/" : "",
                         r->path);
        return name;
}

static void copy_words(struct exec_room *r, char *const *argv)
{
        r->words = r->pointer + r->npointers;
        for (; *argv; argv++)
                r->pointer[r->npointers++] = *argv;
        r->pointer[r->npointers++] = NULL;
}

enum way { UNDER_VMRUN, NATIVE, NATIVE_IF_KNOWN };

static const char *why_natively(const struct exec_room *r, bool rights)
{
        return !opt.follow ? "--no-follow was given"
               : rights
                       ? "it is set-uid or set-gid, or has capabilities, which vmrun cannot give it"
               : r->image.foreign ? "it is no x86-64 program"
                                  : "it may be executed, but not read";
}

/* All checks.  *program: the open file, for UNDER_VMRUN. */
static long check(struct exec_room *r, const struct program_place *at, enum way *way, int *program)
{
        struct image_config c;
        char *name = r->handover.path;
        bool rights = false;

        *program = -1;
        *way = UNDER_VMRUN;
        image_config_init(&c, CONTROL->mmap_top, CONTROL->mmap_min, CONTROL->rlimit_stack);
        long err = program_open(&r->program, at, name_of(r, name), r->argv, &r->image.why);
        if (err == -EACCES && only_unreadable(at))
                *way = NATIVE_IF_KNOWN;
        if (err == 0) {
                rights = gives_rights(&r->program);
                copy_words(r, r->program.argv);
                err = image_take(&r->image, name, &r->program, r->envp, &c);
                if (err == 0) {
                        *program = r->image.fd;
                        r->image.fd = -1;
                        image_close(&r->image);
                        *way = rights || !opt.follow ? NATIVE : UNDER_VMRUN;
                } else if (r->image.foreign) {
                        *way = NATIVE_IF_KNOWN;
                }
        }
        if (*way != UNDER_VMRUN)
                info_once(0x60000 + !opt.follow + 2 * rights + 4 * r->image.foreign,
                          "%s is left to the host: %s", name, why_natively(r, rights));
        return *way == NATIVE_IF_KNOWN ? 0 : err;
}

long exec_run(struct thread *t, struct exec_room *r)
{
        /* A link that must not be followed is passed unchanged. */
        const struct program_place at = { privfd_is(r->dirfd) ? INT_MAX : r->dirfd,
                                          *r->path && !(r->flags & AT_SYMLINK_NOFOLLOW)
                                                  ? procfs_follow(r->dirfd, r->path)
                                                  : r->path,
                                          r->flags };
        enum way way;
        int program;

        /* A child may also share its parent's descriptors (CLONE_FILES).  Linux unshares them at
         * this call as well, though only if it succeeds. */
        if (t->vforked) {
                privfd_parting();
                if (sys_own(__NR_unshare, CLONE_FILES, 0, 0, 0, 0, 0) == 0)
                        privfd_parted();
        }
        long err = check(r, &at, &way, &program);
        if (err)
                return err;
        /* No signal may be taken from here on: it would be lost with this program.  It stays
         * pending for the next one. */
        uint64_t mask = signals_hold(t);
        err = sys_put_off ? -SYS_PUT_OFF : 0;
        if (!err) {
                if (!t->vforked) {
                        threads_stop(t);
                        ctl_hold();
                }
                err = way == UNDER_VMRUN ? follow(t, r, mask, program)
                                         : run_natively(t, r, &at, mask, way == NATIVE);
                if (!t->vforked) {
                        ctl_release();
                        threads_go();
                }
        }
        signals_release(t, mask);
        if (program >= 0)
                close(program);
        return err;
}

/* ---- the way in ---- */

static void adopt(int fd)
{
        if (privfd_adopt(fd) != 0)
                die_(EXIT_VMRUN_FAILED,
                     "descriptor %d of the program before is gone: a bug in vmrun", fd);
}

const struct handover *exec_resume(char **argv)
{
        const uint32_t *hidden;
        int self;
        const struct handover *h = handover_find(&hidden, &self);

        if (!h)
                return NULL;
        message_to(h->message);
        const char *slash = strrchr(h->path, '/');
        prctl(PR_SET_NAME, slash ? slash + 1 : h->path);        /* "N" until now */
        set_hidden(environ, hidden, h->nhidden, false);
        privfd_init_seen(h->limits.nofile[0], h->limits.nofile[1]);
        handover_private_fds(h, adopt);
        adopt(self);
        handover_init(self);
        keep_back(h->program);
        give_back_stack(h->host_stack);
        opt = h->opt;
        message_verbose(opt.verbose);
        opt.argv = argv;
        far_adopt(&h->far);
        stats_adopt(&h->stats);
        profile_adopt(&h->profile);
        ctl_adopt(&h->ctl);
        vm_use_device(h->kvm);
        sys_own(__NR_rt_sigprocmask, SIG_SETMASK, P(&h->mask), 0, 8, 0, 0);
        return h;
}

void exec_init(void)
{
        handover_init(PRIVFD_NEW(open("/proc/self/exe", O_PATH | O_CLOEXEC)));
        memfd_init(PRIVFD_NEW(open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC)));
}
