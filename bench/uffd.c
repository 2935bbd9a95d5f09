/*
 * The pattern of pattern.h on userfaultfd: pages beyond a local share are dropped in FIFO order and
 * brought back from a store in memory, as a far-memory library in user space does without the cost
 * of a network.
 *
 *   --local PAGES   how many pages may be present
 *   --thread        a thread reads the faults and answers them; default: SIGBUS in the faulting
 *                   thread itself, which saves two context switches
 *
 * With --write every page that is dropped is stored first: without write-protection faults it is
 * not known which pages are dirty.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "pattern.h"

static struct pattern pt;
static uint64_t *store;                 /* pages that are not present are here */
static int uffd;
static uint64_t *fifo; /* the present pages, oldest at `oldest`; a ring of `local` */
static uint64_t local, present, oldest;

static void bring(uint64_t page)
{
        char *data = (char *)pt.data;

        if (present == local) {
                uint64_t victim = fifo[oldest];
                if (pt.write)
                        memcpy((char *)store + victim * PAGE, data + victim * PAGE, PAGE);
                if (madvise(data + victim * PAGE, PAGE, MADV_DONTNEED) != 0)
                        fail("madvise");
                present--;
        }
        fifo[oldest] = page;
        oldest = oldest + 1 == local ? 0 : oldest + 1;
        present++;

        struct uffdio_copy c = {
                .dst = (uint64_t)(data + page * PAGE),
                .src = (uint64_t)((char *)store + page * PAGE),
                .len = PAGE,
        };
        if (ioctl(uffd, UFFDIO_COPY, &c) != 0)
                fail("UFFDIO_COPY");
}

static void on_sigbus(int sig, siginfo_t *si, void *context)
{
        (void)sig;
        (void)context;
        uint64_t off = (uint64_t)si->si_addr - (uint64_t)pt.data;
        if (off >= (uint64_t)PAGE << pt.log2_pages)
                abort();
        bring(off / PAGE);
}

static void *serve(void *arg)
{
        struct uffd_msg m;

        (void)arg;
        while (read(uffd, &m, sizeof(m)) == sizeof(m))
                if (m.event == UFFD_EVENT_PAGEFAULT)
                        bring((m.arg.pagefault.address - (uint64_t)pt.data) / PAGE);
        fail("read of the userfaultfd");
        return NULL;
}

int main(int argc, char **argv)
{
        bool thread = false;
        int i;

        pattern_default(&pt);
        for (i = 1; i < argc; i++) {
                if (pattern_option(&pt, argc, argv, &i))
                        continue;
                if (strcmp(argv[i], "--thread") == 0)
                        thread = true;
                else if (strcmp(argv[i], "--local") == 0 && i + 1 < argc)
                        local = strtoull(argv[++i], NULL, 10);
                else
                        break;
        }
        if (i < argc || local == 0) {
                fprintf(stderr, "usage: uffd " PATTERN_OPTIONS " --local PAGES [--thread]\n");
                return 2;
        }
        size_t size = (size_t)PAGE << pt.log2_pages;
        pt.data = map_anonymous(size);
        store = map_anonymous(size);
        fifo = map_anonymous(local * sizeof(*fifo));
        memset(fifo, 0, local * sizeof(*fifo));
        fill(&pt, store);

        uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
        if (uffd < 0)
                fail("userfaultfd");
        struct uffdio_api api = { .api = UFFD_API, .features = thread ? 0 : UFFD_FEATURE_SIGBUS };
        if (ioctl(uffd, UFFDIO_API, &api) != 0)
                fail("UFFDIO_API");
        struct uffdio_register r = { .range = { (uint64_t)pt.data, size },
                                     .mode = UFFDIO_REGISTER_MODE_MISSING };
        if (ioctl(uffd, UFFDIO_REGISTER, &r) != 0)
                fail("UFFDIO_REGISTER");
        if (thread) {
                pthread_t id;
                int err = pthread_create(&id, NULL, serve, NULL);
                if (err) {
                        errno = err;
                        fail("pthread_create");
                }
        } else {
                struct sigaction sa = { .sa_sigaction = on_sigbus, .sa_flags = SA_SIGINFO };
                sigaction(SIGBUS, &sa, NULL);
        }
        measure(&pt);
        return 0;
}
