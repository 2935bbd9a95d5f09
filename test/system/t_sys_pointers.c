/*
 * Every pointer of nearly every system call, one after the other, at each kind of address that a
 * program can get wrong.
 *
 * The calls are data (t_sys_pointers_*.c): their arguments, and which of them are buffers of what
 * size. For each buffer and each kind of address the call is made with that buffer there and all
 * others in good memory, and a line tells its result: run natively and under vmrun, the outputs
 * must be equal. The effect of a call that succeeds is undone where it would change later results;
 * a call that would harm the machine is made only with addresses that cannot work. Argument: a
 * directory to work in.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <mqueue.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <unistd.h>
#include "t_sys_pointers.h"

#define PG 4096

/* ---- where a buffer may be ---- */

/*
 * A room for each buffer of a call: four pages to write to, a hole, a page to read, one for
 * nothing.
 */
#define ROOM_PAGES 8
enum { PAGE_HOLE = 4, PAGE_READ = 5, PAGE_NONE = 6 };
static char *room[BUFS];

static void make_room(int i)
{
        room[i] = mmap(room[i], ROOM_PAGES * PG, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | (room[i] ? MAP_FIXED : 0), -1, 0);
        munmap(room[i] + PAGE_HOLE * PG, PG);
        mprotect(room[i] + PAGE_READ * PG, PG, PROT_READ);
        mprotect(room[i] + PAGE_NONE * PG, PG, PROT_NONE);
}

enum where { GOOD, ACROSS, EDGE, READ_ONLY, BEYOND, HALF, HOLE, NONE, FIXED };
static const struct { const char *name; enum where where; uint64_t addr;
} kinds[] = {
        { "good", GOOD, 0 },
        { "across two pages", ACROSS, 0 },
        { "up to the hole", EDGE, 0 },
        { "read-only", READ_ONLY, 0 },
        { "one byte into the hole", BEYOND, 0 },
        { "half in the hole", HALF, 0 },
        { "hole", HOLE, 0 },
        { "PROT_NONE", NONE, 0 },
        { "NULL", FIXED, 0 },
        { "1", FIXED, 1 },
        { "4095", FIXED, 4095 },
        { "not canonical", FIXED, 0x1234567812345678 },
        /* whether the very first byte there counts depends on the kernel's version */
        { "behind user space", FIXED, 0x7ffffffff008 },
        { "beyond user space", FIXED, 0x800000000000 },
        { "kernel", FIXED, 0xffff888000000000 },
        { "last byte of all", FIXED, 0xffffffffffffffff },
        /* Where vmrun keeps its own: nothing for a program. */
        { "vCPU block", FIXED, 0x67fffffe0000 },
        { "window", FIXED, 0x680000000000 },
        { "far window", FIXED, 0x6a0000000000 },
        { "arena", FIXED, 0x6e0000000000 },
        { "tree", FIXED, 0x6ff000000000 },
        { "last byte of the window", FIXED, 0x6fffffffffff },
};
#define KINDS ((int)(sizeof(kinds) / sizeof(kinds[0])))

/*
 * Puts buffer i at that kind of place; its address, or 0 with *skip where the kind has no meaning
 * for it.
 */
static uint64_t place(const struct buf *b, int i, int kind, bool *skip)
{
        char *p = room[i], *content;

        *skip = false;
        switch (kinds[kind].where) {
        case GOOD:      content = p + PG / 4; break;
        case ACROSS:    content = p + PG - b->size / 2; *skip = b->size < 2; break;
        case EDGE:      content = p + PAGE_HOLE * PG - b->size; break;
        case READ_ONLY: content = p + PAGE_READ * PG; *skip = b->size > PG; break;
        case BEYOND:    content = p + PAGE_HOLE * PG - b->size + 1; *skip = b->size < 2; break;
        case HALF:      content = p + PAGE_HOLE * PG - b->size / 2; *skip = b->size < 4; break;
        case HOLE:      return (uint64_t)(uintptr_t)(p + PAGE_HOLE * PG);
        case NONE:      return (uint64_t)(uintptr_t)(p + PAGE_NONE * PG + 64);
        default:        return kinds[kind].addr;
        }
        if (*skip)
                return 0;
        size_t n = b->size;
        if (content < p + PAGE_HOLE * PG && content + n > p + PAGE_HOLE * PG)
                n = (size_t)(p + PAGE_HOLE * PG - content);
        if (kinds[kind].where == READ_ONLY)
                mprotect(p + PAGE_READ * PG, PG, PROT_READ | PROT_WRITE);
        if (b->data)
                memcpy(content, b->data, n);
        else
                memset(content, 0, n);
        if (kinds[kind].where == READ_ONLY)
                mprotect(p + PAGE_READ * PG, PG, PROT_READ);
        return (uint64_t)(uintptr_t)content;
}

/* Does this kind hold for a call that must not succeed? */
static bool cannot_work(int kind) { return kinds[kind].where >= HOLE; }

/* ---- what the calls work on ---- */

static char queue_name[32];
static int msg_queue, semaphores;
static long values[VAR_COUNT];          /* what a table cannot know */

static void at(int want, int fd)
{
        close(want);
        if (fd >= 0) {
                dup2(fd, want);
                close(fd);
        }
}

static void make_file(const char *name)
{
        int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
        char page[PG];

        memset(page, 'f', sizeof(page));
        if (write(fd, page, sizeof(page)) != PG || write(fd, page, sizeof(page)) != PG)
                perror(name);
        close(fd);
}

static void pair(int type, int a, int b)
{
        int s[2];

        socketpair(AF_UNIX, type | SOCK_NONBLOCK, 0, s);
        /* Out of the way of the numbers to come. */
        dup2(s[0], 200);
        dup2(s[1], 201);
        close(s[0]);
        close(s[1]);
        at(a, 200);
        at(b, 201);
}

static void make_world(void)
{
        struct sockaddr_un un = { .sun_family = AF_UNIX, .sun_path = "listening" };
        struct sockaddr_in in = { .sin_family = AF_INET,
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
        struct epoll_event ev = { .events = EPOLLIN };
        struct mq_attr attr = { .mq_maxmsg = 4, .mq_msgsize = 64 };
        sigset_t set;
        int p[2];

        close_range(3, ~0U, 0);
        /* Whatever is opened later gets a number from FD_FREE on. */
        for (int fd = 3; fd < FD_FREE; fd++)
                dup2(1, fd);
        make_file("file");
        make_file("other");
        at(FD_FILE, open("file", O_RDWR));
        at(FD_OTHER, open("other", O_RDWR));
        at(FD_DIR, open(".", O_RDONLY | O_DIRECTORY));
        if (pipe2(p, O_NONBLOCK))
                perror("pipe");
        dup2(p[1], 201);
        at(FD_PIPE_R, p[0]);
        close(p[1]);
        at(FD_PIPE_W, 201);
        if (pipe2(p, O_NONBLOCK))
                perror("pipe");
        dup2(p[1], 201);
        at(FD_PIPE2_R, p[0]);
        close(p[1]);
        at(FD_PIPE2_W, 201);
        pair(SOCK_STREAM, FD_STREAM_A, FD_STREAM_B);
        pair(SOCK_DGRAM, FD_DGRAM_A, FD_DGRAM_B);
        at(FD_LISTEN, socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0));
        bind(FD_LISTEN, (void *)&un, sizeof(un));
        listen(FD_LISTEN, 5);
        at(FD_INET, socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0));
        bind(FD_INET, (void *)&in, sizeof(in));
        at(FD_EVENT, eventfd(1, EFD_NONBLOCK));
        at(FD_EPOLL, epoll_create1(0));
        epoll_ctl(FD_EPOLL, EPOLL_CTL_ADD, FD_EVENT, &ev);
        at(FD_TIMER, timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK));
        at(FD_INOTIFY, inotify_init1(IN_NONBLOCK));
        at(FD_ZERO, open("/dev/zero", O_RDWR));
        at(FD_PTY, posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK));
        snprintf(queue_name, sizeof(queue_name), "/t_sys_pointers.%d", getpid());
        at(FD_QUEUE, mq_open(queue_name, O_RDWR | O_CREAT | O_NONBLOCK, 0600, &attr));
        msg_queue = msgget(IPC_PRIVATE, 0600);
        semaphores = semget(IPC_PRIVATE, 2, 0600);
        sigemptyset(&set);
        sigaddset(&set, SIGUSR1);
        sigprocmask(SIG_BLOCK, &set, NULL);
        signal(SIGPIPE, SIG_IGN);
        signal(SIGUSR2, SIG_IGN);
        timer_t timer = NULL;
        timer_create(CLOCK_MONOTONIC, &(struct sigevent){ .sigev_notify = SIGEV_NONE }, &timer);
        values[VAR_PID] = getpid();
        values[VAR_MSG] = msg_queue;
        values[VAR_SEM] = semaphores;
        values[VAR_TIMER] = (long)(intptr_t)timer;
}

static void drain(int fd)
{
        char buf[PG];

        while (read(fd, buf, sizeof(buf)) > 0)
                ;
}

/* Before each call: gives the objects that its flags name their content again. */
static void restore(unsigned flags)
{
        static const char text[64] = "to be read by whatever reads: the rest is zeros";
        struct sockaddr_un un = { .sun_family = AF_UNIX, .sun_path = "listening" };

        if (flags & SETS_FILE) {
                lseek(FD_FILE, 0, SEEK_SET);
                lseek(FD_OTHER, 0, SEEK_SET);
                if (ftruncate(FD_FILE, 2 * PG) || ftruncate(FD_OTHER, 2 * PG))
                        perror("truncate");
                lseek(FD_DIR, 0, SEEK_SET);
        }
        if (flags & SETS_PIPE) {
                drain(FD_PIPE_R);
                drain(FD_PIPE2_R);
                if (write(FD_PIPE_W, text, sizeof(text)) != sizeof(text))
                        perror("pipe");
        }
        if (flags & SETS_SOCKET) {
                const int fds[4] = { FD_STREAM_A, FD_STREAM_B, FD_DGRAM_A, FD_DGRAM_B };
                for (int i = 0; i < 4; i++)
                        drain(fds[i]);
                for (int i = 0; i < 4; i++)
                        send(fds[i], text, sizeof(text), 0);
        }
        if (flags & SETS_CONNECTION) {
                int s = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
                connect(s, (void *)&un, sizeof(un));
                close(s);
        }
        if (flags & SETS_EVENT) {
                uint64_t one = 1;
                drain(FD_EVENT);
                if (write(FD_EVENT, &one, 8) != 8)
                        perror("eventfd");
        }
        if (flags & SETS_SIGNAL)
                raise(SIGUSR1);
        if (flags & SETS_MESSAGE) {
                struct { long type; char text[64]; } m = { 1, "message" };
                while (msgrcv(msg_queue, &m, sizeof(m.text), 0, IPC_NOWAIT) >= 0)
                        ;
                m.type = 1;
                msgsnd(msg_queue, &m, 32, IPC_NOWAIT);
                char text64[64];
                while (mq_receive(FD_QUEUE, text64, sizeof(text64), NULL) >= 0)
                        ;
                mq_send(FD_QUEUE, "queued", 6, 1);
        }
}

static void undo(unsigned flags)
{
        if (flags & MAKES_FD)
                close_range(FD_FREE, ~0U, 0);
        if (flags & SETS_CONNECTION) {
                int s;
                while ((s = accept(FD_LISTEN, NULL, NULL)) >= 0)
                        close(s);
        }
        if (flags & SETS_SIGNAL) {
                sigset_t set;
                sigemptyset(&set);
                sigaddset(&set, SIGUSR1);
                while (sigtimedwait(&set, NULL, &(struct timespec){ 0, 0 }) > 0)
                        ;
        }
}

/* ---- the calls ---- */

static void one(const struct call *c, int which, int kind)
{
        uint64_t a[6], where[BUFS];
        bool skip = false;

        for (int i = 0; i < 6; i++)
                a[i] = (uint64_t)(c->a[i] >= VAR_BASE && c->a[i] < VAR_BASE + VAR_COUNT
                                          ? values[c->a[i] - VAR_BASE]
                                          : c->a[i]);
        restore(c->flags);
        for (int i = 0; i < BUFS && c->b[i].size; i++) {
                const struct buf *b = &c->b[i];

                where[i] = place(b, i, i == which ? kind : GOOD, &skip);
                if (skip)
                        return;
                if (b->in < 0)
                        a[b->at] = where[i];
        }
        /* Pointers in buffers, where the buffer is there to hold them. */
        for (int i = 0; i < BUFS && c->b[i].size; i++) {
                const struct buf *b = &c->b[i];
                if (b->in < 0)
                        continue;
                char *p = (char *)(uintptr_t)where[(int)b->in];
                enum where w = (int)b->in == which ? kinds[kind].where : GOOD;

                if (w >= BEYOND)
                        continue; /* not to be read as a whole: what is in it does not matter */
                if (w == READ_ONLY)
                        mprotect(room[which] + PAGE_READ * PG, PG, PROT_READ | PROT_WRITE);
                memcpy(p + b->at, &where[i], 8);
                if (w == READ_ONLY)
                        mprotect(room[which] + PAGE_READ * PG, PG, PROT_READ);
        }
        errno = 0;
        long ret = syscall(c->nr, a[0], a[1], a[2], a[3], a[4], a[5]);
        int err = errno;
        printf("%s, pointer %d, %s: ", c->name, which, kinds[kind].name);
        if (ret < 0)
                printf("%s\n", strerrorname_np(err));
        else if (c->flags & ANY_RESULT)
                printf("succeeds\n");
        else
                printf("%ld\n", ret);
        undo(c->flags);
        if (c->flags & ADDRESS)
                for (int i = 0; i < BUFS; i++)
                        make_room(i);
}

static void all(const struct call *calls, size_t n)
{
        for (size_t k = 0; k < n; k++)
                for (int i = 0; i < BUFS && calls[k].b[i].size; i++)
                        for (int kind = 0; kind < KINDS; kind++)
                                if (cannot_work(kind) || !(calls[k].flags & HARMFUL))
                                        one(&calls[k], i, kind);
}

int main(int argc, char **argv)
{
        char dir[4096];

        setvbuf(stdout, NULL, _IOLBF, 0);     /* where it hangs or dies must be seen */
        snprintf(dir, sizeof(dir), "%s/t_sys_pointers.XXXXXX", argc > 1 ? argv[1] : "/tmp");
        if (!mkdtemp(dir) || chdir(dir)) {
                perror(dir);
                return 2;
        }
        for (int i = 0; i < BUFS; i++)
                make_room(i);
        make_world();
        all(file_calls, n_file_calls);
        all(io_calls, n_io_calls);
        all(other_calls, n_other_calls);
        msgctl(msg_queue, IPC_RMID, NULL);
        semctl(semaphores, 0, IPC_RMID);
        mq_unlink(queue_name);
        /* No fork here, so what was made is removed by hand. */
        static const char *const made[] = { "file",  "other", "new",     "created",   "hard",
                                            "soft",  "fifo",  "renamed", "listening", "bound",
                                            "soft2", "hard2", "fifo2" };
        for (size_t i = 0; i < sizeof(made) / sizeof(made[0]); i++)
                unlink(made[i]);
        rmdir("dir");
        rmdir("dir2");
        if (chdir("..") || rmdir(dir))
                printf("left over: %s\n", strerrorname_np(errno));
        printf("all calls made\n");
        return 0;
}
