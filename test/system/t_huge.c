/*
 * t_huge: files of huge pages, and shared pages for which there is no memory.
 *
 * usage: t_huge pages       neighbours, borders, fork, execve; needs 8 free huge pages
 *        t_huge empty       a pool that is empty: takes all of it
 *        t_huge full FILE   a file on a file system of less than 16 free pages
 */
#include <setjmp.h>
#include "t_child.h"

#define HUGE (2 * MiB)
#define SHARED(fd, flags) mmap(NULL, HUGE, RW, MAP_SHARED | (flags), fd, 0)

static sigjmp_buf back;
static siginfo_t seen;

static void on_fault(int signo, siginfo_t *info, void *context)
{
        (void)context;
        seen = *info;
        siglongjmp(back, signo);
}

/* Loads or stores a byte. 0, or SIGBUS, which must say where. */
static int touch(volatile char *p, bool write)
{
        int signo = sigsetjmp(back, 0);
        if (signo) {
                CHECK(signo == SIGBUS && seen.si_code == BUS_ADRERR && seen.si_addr == p);
                return signo;
        }
        if (write)
                *p = 1;
        else
                (void)*p;
        return 0;
}

static int huge_file(void)
{
        int fd = memfd_create("t_huge", MFD_HUGETLB);
        CHECK(fd >= 0);
        return fd;
}

/* Linux maps 2 MiB, however little was asked for: the mapping must lie over nothing else. */
static void neighbours(void)
{
        char *a = mmap(NULL, PG, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0),
             *b = mmap(NULL, PG, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        int fd = huge_file();

        CHECK(a != MAP_FAILED && b != MAP_FAILED);
        strcpy(b, "still here");
        CHECK(munmap(a, PG) == 0);
        char *h = mmap(NULL, PG, RW, MAP_SHARED, fd, 0);
        CHECK(h != MAP_FAILED);
        strcpy(h + HUGE - 16, "huge");
        printf("neighbour: %s\n", b);
        CHECK(munmap(b, PG) == 0 && munmap(h, HUGE) == 0);
        close(fd);
}

static void borders(char *h)
{
        CHECK((uintptr_t)h % HUGE == 0);
        FAILS(EINVAL, munmap(h, PG));
        FAILS(EINVAL, munmap(h + PG, HUGE - PG));
        FAILS(EINVAL, mprotect(h, PG, PROT_READ));
        FAILS(EINVAL, madvise(h + PG, PG, MADV_DONTNEED));
        FAILS(EINVAL, mremap(h, HUGE, 2 * HUGE, MREMAP_MAYMOVE));
        h[PG] = 7;
        CHECK(mmap(h, PG, RW, ANON | MAP_FIXED, -1, 0) == MAP_FAILED && h[PG] == 7);
}

/* The private mapping reads the file by pages, and has pages of its own. */
static void private(int fd, char *shared)
{
        char *p = mmap(NULL, HUGE, RW, MAP_PRIVATE, fd, 0);
        CHECK(p != MAP_FAILED);
        strcpy(shared + 5 * PG, "of the file");
        CHECK(strcmp(p + 5 * PG, "of the file") == 0);
        strcpy(p + 5 * PG, "my own");
        printf("private: %s, shared: %s\n", p + 5 * PG, shared + 5 * PG);
        FAILS(EINVAL, munmap(p, PG));
        CHECK(munmap(p, HUGE) == 0);
}

static void pages(const char *self)
{
        char number[16];
        int fd = huge_file();

        neighbours();
        FAILS(EINVAL, mmap(NULL, HUGE, RW, MAP_SHARED, fd, PG));
        char *h = SHARED(fd, MAP_HUGETLB);
        CHECK(h != MAP_FAILED);
        borders(h);
        private(fd, h);
        pid_t child = start_child();
        if (!child) {
                borders(h);
                strcpy(h, "from the child");
                CHECK(munmap(h, HUGE) == 0);
                snprintf(number, sizeof(number), "%d", fd);
                execl(self, self, "executed", number, NULL);
                _exit(9);
        }
        reap(child, 0);
        printf("%s, %s\n", h, h + PG);
}

static void executed(int fd)
{
        char *h = SHARED(fd, 0);
        CHECK(h != MAP_FAILED && strcmp(h, "from the child") == 0);
        borders(h);
        strcpy(h + PG, "from the program it executed");
}

/* No page is left, and the program neither ends nor loses another page. */
static void empty(void)
{
        unsigned long pages_left = 0, reserved = 0;
        char text[100], *word = mmap(NULL, PG, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        FILE *f = fopen("/proc/meminfo", "r");
        int all = huge_file(), fd = huge_file();

        CHECK(f && word != MAP_FAILED);
        strcpy(word, "still here");
        while (fgets(text, sizeof(text), f)) {
                sscanf(text, "HugePages_Free: %lu", &pages_left);
                sscanf(text, "HugePages_Rsvd: %lu", &reserved);
        }
        pages_left -= reserved;
        char *rest = mmap(NULL, pages_left * HUGE, RW, MAP_SHARED, all, 0);
        CHECK(rest != MAP_FAILED);
        FAILS(ENOMEM, SHARED(fd, 0));
        char *h = SHARED(fd, MAP_NORESERVE);
        CHECK(h != MAP_FAILED);
        for (int round = 0; round < 3; round++) {
                CHECK(touch(h + 3 * PG + 1, round % 2) == SIGBUS);
                CHECK(touch(h, !(round % 2)) == SIGBUS);
        }
        FAILS(EFAULT, pread(open("/proc/self/exe", O_RDONLY), h, 64, 0));
        CHECK(touch(rest, true) == 0 && touch(rest + (pages_left - 1) * HUGE, true) == 0);
        CHECK(munmap(rest, pages_left * HUGE) == 0 && close(all) == 0);
        CHECK(touch(h + 3 * PG + 1, false) == 0 && touch(h, true) == 0 && h[0] == 1);
        printf("an empty pool: %s\n", word);
}

/* A page that was read is written, in a file without a block for it: the store is SIGBUS, too. */
static void full(const char *name)
{
        int fd = open(name, O_RDWR | O_CREAT | O_EXCL, 0600), there = 0, last = 0;

        CHECK(fd >= 0 && ftruncate(fd, 64 * PG) == 0);
        char *p = mmap(NULL, 64 * PG, RW, MAP_SHARED, fd, 0);
        CHECK(p != MAP_FAILED);
        for (unsigned long i = 0; i < 64; i++) {
                last = touch(p + i * PG, true);
                there += !last;
        }
        CHECK(there > 0 && there < 16 && last == SIGBUS);
        CHECK(p[0] == 1);
        FAILS(EFAULT, read(open("/proc/self/exe", O_RDONLY), p + 63 * PG, 64));
        CHECK(ftruncate(fd, 0) == 0 && unlink(name) == 0);
        printf("a full file system: no harm\n");
}

int main(int argc, char **argv)
{
        struct sigaction a = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_NODEFER };

        CHECK(argc > 1);
        CHECK(sigaction(SIGBUS, &a, NULL) == 0);
        if (strcmp(argv[1], "pages") == 0)
                pages(argv[0]);
        else if (strcmp(argv[1], "executed") == 0)
                executed(atoi(argv[2]));
        else if (strcmp(argv[1], "empty") == 0)
                empty();
        else
                full(argv[2]);
        return 0;
}
