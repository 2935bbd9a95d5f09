/*
 * Memory that a program shares with others: its output is the same natively and under vmrun.
 *
 * usage: t_shm             System V's segments (here), then mappings and truncated files
 *                          (t_shm_files.c)
 *        t_shm count ID N  does segment ID have N attachments, of which none is this process's?
 * Writes files into the current folder and /dev/shm, and removes them.
 */
#include <grp.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include "t_shm.h"

#define SEGMENT 6                       /* pages, and a little less */

static int new_segment(void)
{
        int id = shmget(IPC_PRIVATE, SEGMENT * PG - 100, IPC_CREAT | 0600);
        CHECK(id >= 0);
        return id;
}

static char *attach(int id, const void *at, int flags)
{
        char *p = shmat(id, at, flags);
        CHECK(p != (char *)-1);
        return p;
}

static unsigned long attached(int id)
{
        struct shmid_ds ds;
        CHECK(shmctl(id, IPC_STAT, &ds) == 0);
        return ds.shm_nattch;
}

static bool is_gone(int id)
{
        struct shmid_ds ds;
        return shmctl(id, IPC_STAT, &ds) == -1 && (errno == EINVAL || errno == EIDRM);
}

static void test_attach(void)
{
        int id = new_segment();
        char *p = attach(id, NULL, 0), *q = attach(id, NULL, SHM_RDONLY);

        CHECK(p != q && attached(id) == 2);
        verify("fresh", p, 0, SEGMENT, 0);
        fill(p, 0, SEGMENT, 1);
        verify("the same, elsewhere", q, 0, SEGMENT, 1);
        FAILS(EACCES, mprotect(q, PG, RW));
        CHECK(mprotect(q, SEGMENT * PG, PROT_READ | PROT_EXEC) == 0 &&
              mprotect(q, SEGMENT * PG, PROT_READ) == 0);
        CHECK(mprotect(p, SEGMENT * PG, PROT_NONE) == 0 && mprotect(p, SEGMENT * PG, RW) == 0);
        int fd = open("t_shm.tmp", O_RDWR | O_CREAT | O_EXCL, 0600);
        CHECK(fd >= 0 && unlink("t_shm.tmp") == 0);
        CHECK(pwrite(fd, q, SEGMENT * PG, 0) == SEGMENT * PG);          /* by the system's hand */
        FAILS(EFAULT, pread(fd, q, PG, 0));
        fill(p, 0, SEGMENT, 2);
        CHECK(pread(fd, p + PG, 2 * PG, PG) == 2 * PG);
        verify("read into", q + PG, 1, 2, 1);
        close(fd);

        FAILS(EINVAL, shmdt(p + PG));
        FAILS(EINVAL, shmdt(p + 1));
        FAILS(EINVAL, shmdt(p - PG));
        FAILS(EINVAL, shmdt(NULL));
        CHECK(shmdt(p) == 0 && attached(id) == 1);
        FAILS(EINVAL, shmdt(p));
        verify("what the other sees", q + PG, 1, 2, 1);
        CHECK(touch(p, false) == SIGSEGV && touch(q, true) == SIGSEGV && touch(q, false) == 0);
        CHECK(shmdt(q) == 0 && attached(id) == 0);
        p = attach(id, NULL, SHM_EXEC);
        verify("content stays", p + PG, 1, 2, 1);
        p[0] = (char)0xc3;              /* RET */
        ((void (*)(void))p)();
        CHECK(shmdt(p) == 0 && shmctl(id, IPC_RMID, NULL) == 0 && is_gone(id));
}

static void test_places(void)
{
        int id = new_segment();
        char *room = map_pages(32, RW, MAP_PRIVATE), *p;

        fill(room, 0, 32, 1);
        FAILS(EINVAL, shmat(id, room, 0));                              /* something is there */
        FAILS(EINVAL, shmat(id, room + 1, SHM_REMAP));
        FAILS(EINVAL, shmat(id, NULL, SHM_REMAP));
        FAILS(EINVAL, shmat(id, (char *)100, SHM_REMAP | SHM_RND));     /* rounded to NULL */
        FAILS(EINVAL, shmat(id, (char *)-PG, 0));
        FAILS(ENOMEM, shmat(id, (char *)0x7ffffffff000, 0));
        FAILS(EINVAL, shmat(-1, NULL, 0));
        FAILS(EINVAL, shmat(id + 1, room + 1, 0));
        CHECK(attached(id) == 0);
        p = attach(id, room + 8 * PG + 123, SHM_REMAP | SHM_RND);
        CHECK(p == room + 8 * PG && attached(id) == 1);
        verify("before it", room, 0, 8, 1);
        verify("it", p, 0, SEGMENT, 0);
        verify("behind it", p + SEGMENT * PG, 8 + SEGMENT, 32 - 8 - SEGMENT, 1);
        CHECK(munmap(room + 20 * PG, 12 * PG) == 0);
        p = attach(id, room + 24 * PG, 0);
        CHECK(p == room + 24 * PG && attached(id) == 2);
        CHECK(attach(id, room + 8 * PG, SHM_REMAP) == room + 8 * PG &&
              attached(id) == 2); /* in its own place */
        fill(p, 0, SEGMENT, 2);
        verify("one", room + 8 * PG, 0, SEGMENT, 2);
        CHECK(munmap(room, 8 * PG) == 0 && shmdt(room + 8 * PG) == 0 &&
              munmap(room + 14 * PG, 6 * PG) == 0 && attached(id) == 1);

        /* By parts: each counts.  shmdt takes the parts that are left, also without the first. */
        CHECK(munmap(p + 2 * PG, PG) == 0 && attached(id) == 2);
        CHECK(munmap(p, PG) == 0 && attached(id) == 2);
        CHECK(touch(p, false) == SIGSEGV && touch(p + PG, false) == 0);
        verify("a part", p + 3 * PG, 3, 3, 2);
        CHECK(shmdt(p) == 0 && attached(id) == 0);
        CHECK(touch(p + PG, false) == SIGSEGV && touch(p + 3 * PG, false) == SIGSEGV);
        p = attach(id, NULL, 0);
        CHECK(munmap(p, SEGMENT * PG) == 0 && attached(id) == 0);       /* munmap detaches, too */

        /* Moved, it is detached by its new address. */
        p = attach(id, NULL, 0);
        room = map_pages(16, PROT_NONE, MAP_PRIVATE);
        CHECK(remap(p, SEGMENT * PG, SEGMENT * PG, MREMAP_MAYMOVE | MREMAP_FIXED, room) == room &&
              attached(id) == 1);
        verify("moved", room, 0, SEGMENT, 2);
        FAILS(EINVAL, shmdt(p));
        CHECK(shmdt(room) == 0 && attached(id) == 0);
        CHECK(shmctl(id, IPC_RMID, NULL) == 0 && munmap(room + SEGMENT * PG, 10 * PG) == 0);
}

static void test_calls(void)
{
        key_t key = (key_t)(0x52000000 | getpid());
        struct shmid_ds ds;
        struct shm_info info;
        struct shminfo limits;

        FAILS(ENOENT, shmget(key, PG, 0));
        FAILS(EINVAL, shmget(key, 0, IPC_CREAT | 0600));
        int id = shmget(key, 3 * PG + 1, IPC_CREAT | IPC_EXCL | 0640);
        CHECK(id >= 0 && shmget(key, 0, 0) == id && shmget(key, 3 * PG + 1, IPC_CREAT) == id);
        FAILS(EEXIST, shmget(key, PG, IPC_CREAT | IPC_EXCL));
        FAILS(EINVAL, shmget(key, 3 * PG + 2, 0));
        char *p = attach(id, NULL, 0);
        CHECK(shmctl(id, IPC_STAT, &ds) == 0 && ds.shm_segsz == 3 * PG + 1 && ds.shm_nattch == 1);
        CHECK(ds.shm_cpid == getpid() && ds.shm_lpid == getpid() &&
              (ds.shm_perm.mode & 0777) == 0640 && ds.shm_atime != 0);
        ds.shm_perm.mode = 0600;
        CHECK(shmctl(id, IPC_SET, &ds) == 0 && shmctl(id, IPC_STAT, &ds) == 0 &&
              (ds.shm_perm.mode & 0777) == 0600);
        CHECK(shmctl(0, SHM_INFO, (struct shmid_ds *)&info) >= 0 && info.used_ids >= 1 &&
              info.shm_tot >= 4);
        CHECK(shmctl(0, IPC_INFO, (struct shmid_ds *)&limits) >= 0 && limits.shmmin == 1);
        FAILS(EFAULT, shmctl(id, IPC_STAT, (struct shmid_ds *)16));
        FAILS(EINVAL, shmctl(id, 4711, &ds));
        CHECK(shmctl(id, SHM_LOCK, NULL) == 0 && shmctl(id, SHM_UNLOCK, NULL) == 0);
        expect_maps(p, 4, "rw-s 00000000 00:01 %d", id, "/SYSV%08x (deleted)", (unsigned)key);

        /* Removed, it lives as long as a process is attached, and its key is free. */
        fill(p, 0, 3, 1);
        CHECK(shmctl(id, IPC_RMID, NULL) == 0);
        FAILS(ENOENT, shmget(key, PG, 0));
        CHECK(shmctl(id, IPC_STAT, &ds) == 0 && (ds.shm_perm.mode & SHM_DEST) &&
              ds.shm_nattch == 1);
        char *q = attach(id, NULL, SHM_RDONLY);
        verify("a removed segment", q, 0, 3, 1);
        CHECK(shmdt(p) == 0 && attached(id) == 1 && shmdt(q) == 0 && is_gone(id));
        FAILS(EINVAL, shmat(id, NULL, 0));
        FAILS(EINVAL, shmctl(id, IPC_RMID, NULL));
}

/* Another user has the rights of the mode. */
static void test_rights(void)
{
        int id = new_segment(), theirs = shmget(IPC_PRIVATE, PG, IPC_CREAT | 0604);

        if (geteuid() == 0) {
                pid_t child = start_child();
                if (!child) {
                        CHECK(setgroups(0, NULL) == 0 && setgid(12345) == 0 && setuid(12345) == 0);
                        FAILS(EACCES, shmat(id, NULL, SHM_RDONLY));
                        FAILS(EACCES, shmat(theirs, NULL, 0));
                        FAILS(EACCES, shmat(theirs, NULL, SHM_RDONLY | SHM_EXEC));
                        CHECK(*attach(theirs, NULL, SHM_RDONLY) == 0);
                        FAILS(EPERM, shmctl(theirs, IPC_RMID, NULL));
                        _exit(0);
                }
                reap(child, 0);
        }
        CHECK(attached(theirs) == 0 && shmctl(id, IPC_RMID, NULL) == 0 &&
              shmctl(theirs, IPC_RMID, NULL) == 0);
}

/*
 * Attachments are inherited, and counted, and gone after exec and at the end, however that comes.
 */
static void test_fork(const char *self)
{
        int id = new_segment(), go[2], done[2];
        char *p = attach(id, NULL, 0), c = 0, number[16];

        CHECK(pipe(go) == 0 && pipe(done) == 0);
        fill(p, 0, 3, 1);
        pid_t child = start_child();
        if (!child) {
                verify("the parent's", p, 0, 3, 1);
                fill(p + 3 * PG, 3, 3, 2);              /* a page that neither has touched */
                char *q = attach(id, NULL, SHM_RDONLY);
                CHECK(write(done[1], &c, 1) == 1 && read(go[0], &c, 1) == 1);
                verify("what the parent wrote then", q, 0, SEGMENT, 3);
                CHECK(shmdt(p) == 0 && attached(id) == 2);
                CHECK(write(done[1], &c, 1) == 1 && read(go[0], &c, 1) == 1);
                _exit(7);
        }
        CHECK(read(done[0], &c, 1) == 1 && attached(id) == 3);
        verify("the child's", p + 3 * PG, 3, 3, 2);
        fill(p, 0, SEGMENT, 3);
        CHECK(write(go[1], &c, 1) == 1 && read(done[0], &c, 1) == 1 && attached(id) == 2);
        CHECK(write(go[1], &c, 1) == 1);
        reap(child, 7 << 8);
        CHECK(attached(id) == 1);

        child = start_child();
        if (!child) {
                CHECK(write(done[1], &c, 1) == 1);
                pause();
        }
        CHECK(read(done[0], &c, 1) == 1 && attached(id) == 2 && kill(child, SIGKILL) == 0);
        reap(child, SIGKILL);
        CHECK(attached(id) == 1);

        child = start_child();
        if (!child) {
                snprintf(number, sizeof(number), "%d", id);
                execl(self, self, "count", number, "1", (char *)NULL);
                _exit(1);
        }
        reap(child, 0);
        child = vfork();
        if (!child) {
                bool mine = shmdt(p) == 0;              /* and so it is the parent's no more */
                _exit(mine ? 0 : 1);
        }
        reap(child, 0);
        CHECK(attached(id) == 0);

        p = attach(id, NULL, 0);
        CHECK(madvise(p, SEGMENT * PG, MADV_DONTFORK) == 0);
        child = start_child();
        if (!child) {
                CHECK(attached(id) == 1 && touch(p, false) == SIGSEGV);
                _exit(0);
        }
        reap(child, 0);
        verify("after all", p, 0, SEGMENT, 3);
        CHECK(madvise(p, SEGMENT * PG, MADV_DOFORK) == 0 && shmctl(id, IPC_RMID, NULL) == 0);
        child = start_child();                          /* the last one to hold it */
        if (!child) {
                CHECK(read(go[0], &c, 1) == 1 && attached(id) == 1);
                verify("the last one's", p, 0, SEGMENT, 3);
                _exit(0);
        }
        CHECK(shmdt(p) == 0 && attached(id) == 1 && write(go[1], &c, 1) == 1);
        reap(child, 0);
        CHECK(is_gone(id));
}

static int count(const char *id, const char *n)
{
        CHECK(attached(atoi(id)) == strtoul(n, NULL, 10));
        return 0;
}

int main(int argc, char **argv)
{
        if (argc == 4 && strcmp(argv[1], "count") == 0)
                return count(argv[2], argv[3]);
        test_attach();
        printf("attach: ok\n");
        test_places();
        printf("places: ok\n");
        test_calls();
        printf("calls: ok\n");
        test_rights();
        printf("rights: ok\n");
        test_fork(argv[0]);
        printf("fork: ok\n");
        shared_files_tests();
        return 0;
}
