/*
 * Touches pages in an order that no policy foresees, but that is the same in each run: the use of
 * --record and --replay.  Prints sums of the words, and "wrong" for a wrong sum.
 *
 * usage: t_replay PAGES ROUNDS [THREADS [SEED]]
 *        t_replay fork PAGES ROUNDS
 * Each thread has pages of its own.  A file of pages, `t_replay` itself, is mapped privately and
 * written to, so that pages of files are far too.
 */
#include <pthread.h>
#include <sys/wait.h>
#include "t_memory.h"

struct work {
        pthread_t thread;
        uint64_t seed, sum;
        unsigned long pages, rounds;
        char *at;
};

static uint64_t step(uint64_t *x)
{
        *x ^= *x << 13;
        *x ^= *x >> 7;
        *x ^= *x << 17;
        return *x;
}

/* Each page's first word holds its number, and how often it was touched. */
static void *wander(void *arg)
{
        struct work *w = arg;
        uint64_t x = w->seed;

        for (unsigned long i = 0; i < w->pages * w->rounds; i++) {
                unsigned long n = step(&x) % w->pages;
                uint64_t *word = (uint64_t *)(w->at + n * PG);
                if (*word >> 32 != n) {
                        printf("wrong: page %lu has %llx\n", n, (unsigned long long)*word);
                        exit(1);
                }
                w->sum += n ^ ++*word;
        }
        return NULL;
}

static void prepare(struct work *w)
{
        w->at = mmap(NULL, w->pages * PG, RW, ANON, -1, 0);
        if (w->at == MAP_FAILED) {
                perror("mmap");
                exit(1);
        }
        for (uint64_t n = 0; n < w->pages; n++)
                *(uint64_t *)(w->at + n * PG) = n << 32;
}

/* Pages of a file with private changes, far when they are read again. */
static uint64_t change_file(const char *self, const struct work *w)
{
        int fd = open(self, O_RDONLY);
        uint64_t sum = 0;
        char *at = mmap(NULL, 4 * PG, RW, MAP_PRIVATE, fd, 0);

        if (fd < 0 || at == MAP_FAILED) {
                perror(self);
                exit(1);
        }
        close(fd);
        for (int i = 0; i < 4; i++)
                at[i * PG] = (char)i;
        for (unsigned long n = 0; n < w->pages; n++)
                sum += *(uint64_t *)(w->at + n * PG) & 0xffffffff;
        for (int i = 3; i >= 0; i--)
                if (at[i * PG] != i)
                        printf("wrong: page %d of the file\n", i);
        munmap(at, 4 * PG);
        return sum;
}

static unsigned long number(char **argv, int argc, int i, unsigned long otherwise)
{
        return i < argc ? strtoul(argv[i], NULL, 0) : otherwise;
}

int main(int argc, char **argv)
{
        int first = argc > 1 && strcmp(argv[1], "fork") == 0 ? 2 : 1;
        unsigned long threads = first == 2 ? 1 : number(argv, argc, 3, 1);
        struct work w[16] = { { .sum = 0 } };
        uint64_t sum = 0;
        pid_t child = 1;

        if (argc < 3 || threads < 1 || threads > 16)
                return 2;
        for (unsigned long i = 0; i < threads; i++) {
                w[i].pages = number(argv, argc, first, 64);
                w[i].rounds = number(argv, argc, first + 1, 1);
                w[i].seed = 88172645463325252ull + i + number(argv, argc, 4, 0);
                prepare(&w[i]);
        }
        if (first == 2)
                child = fork();
        for (unsigned long i = 1; i < threads; i++)
                if (pthread_create(&w[i].thread, NULL, wander, &w[i]) != 0)
                        return 2;
        wander(&w[0]);
        for (unsigned long i = 1; i < threads; i++)
                pthread_join(w[i].thread, NULL);
        for (unsigned long i = 0; i < threads; i++)
                sum += w[i].sum;
        sum += change_file(argv[0], &w[0]);
        if (child == 0)
                _exit((int)(sum & 63));
        int status = 0;
        if (first == 2 && (waitpid(child, &status, 0) != child ||
                           WEXITSTATUS(status) != (int)(sum & 63)))
                printf("wrong: the child\n");
        printf("%llu\n", (unsigned long long)sum);
        return 0;
}
