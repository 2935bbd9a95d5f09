/*
 * t_maps: shared, private, huge and anonymous mappings at random, in two processes: mmap, mremap,
 * munmap, mprotect, madvise, truncation, writes by store and by call. The program knows no right
 * answers: it prints what it sees, and the native run is the oracle. The processes take turns, so
 * all depends on the seed alone.
 *
 * usage: t_maps [--seed N] [--steps N] [--plain] [--trace FIRST-LAST]
 *   --plain   without huge pages. With them the pool must have POOL_PAGES free ones
 *   --trace   prints these steps, rather than a sum over each hundred
 *
 * To find a step that differs: --trace of the hundred steps before the first sum that differs,
 * natively and under vmrun.
 */
#include <stdarg.h>
#include <sys/wait.h>
#include "t_draw.h"
#include "t_maps.h"

#define SUM_STEPS  100                  /* a line of output for each of these */
#define FORK_STEPS 250                  /* a child lives for about this number */
#define CONSTANT_PAGES 1024ul
#define HUGE_FILE      4ul              /* huge pages of HUGE_CONSTANT */

struct settings set = { .seed = 1, .steps = 1000, .huge = true };
static char line[1 << 14];
static size_t length;
static uint64_t rng, sum;
static const char *self;

void draw_start(uint64_t step)
{
        rng = (set.seed << 32) + step * 0x9e3779b97f4a7c15ull;
}

uint64_t draw(uint64_t below) { return draw_from(&rng, below); }

void say(const char *format, ...)
{
        va_list list;
        va_start(list, format);
        int n = vsnprintf(line + length, sizeof(line) - length, format, list);
        va_end(list);
        CHECK(n >= 0 && (size_t)n < sizeof(line) - length);
        length += (size_t)n;
}

void say_result(long result)
{
        if (result == -1)
                say(" %s", strerrorname_np(errno));
        else
                say(" %ld", result);
}

/* --- objects --- */

static void keep_as(int fd, int number)
{
        CHECK(fd >= 0 && (fd == number || (dup2(fd, number) == number && close(fd) == 0)));
}

static int on_disk(void)
{
        int fd = open("t_maps.tmp", O_RDWR | O_CREAT | O_EXCL, 0600);
        CHECK(fd >= 0 && unlink("t_maps.tmp") == 0);
        return fd;
}

static void make_objects(void)
{
        static uint64_t page[PG / 8];
        char name[40];

        keep_as(memfd_create("t_maps", 0), FD_AT + MEMORY);
        keep_as(on_disk(), FD_AT + ON_DISK);
        keep_as(on_disk(), FD_AT + CONSTANT);
        keep_as(on_disk(), FD_OTHER);
        for (uint64_t p = 0; p < CONSTANT_PAGES; p++) {
                page[0] = page[PG / 8 - 1] = 0xc000 + p;
                CHECK(pwrite(FD_AT + CONSTANT, page, PG, (off_t)(p * PG)) == (ssize_t)PG);
        }
        if (!set.huge)
                return;
        keep_as(memfd_create("t_maps", MFD_HUGETLB), FD_AT + HUGE_SHARED);
        snprintf(name, sizeof(name), "/proc/self/fd/%d", FD_AT + HUGE_SHARED);
        keep_as(open(name, O_RDONLY), FD_AT + HUGE_READ);
        keep_as(memfd_create("t_maps", MFD_HUGETLB), FD_AT + HUGE_CONSTANT);
        uint64_t *p = mmap(NULL, HUGE_FILE * HUGE, RW, MAP_SHARED, FD_AT + HUGE_CONSTANT, 0);
        CHECK(p != MAP_FAILED);
        /* One huge page stays a hole. */
        for (uint64_t i = 0; i < (HUGE_FILE - 1) * HUGE_PAGES; i++)
                p[i * PG / 8] = p[(i + 1) * PG / 8 - 1] = 0xd000 + i;
        CHECK(munmap(p, HUGE_FILE * HUGE) == 0);
}

/* --- two processes --- */

enum { LEAVE = UINT32_MAX };

static void new_line(void)
{
        length = 0;
        line[0] = '\0';
}

static void serve(void)
{
        uint64_t step;

        catch_faults();
        while (read(FD_TO, &step, sizeof(step)) == sizeof(step) && step != LEAVE) {
                new_line();
                step_here(step);
                CHECK(write(FD_FROM + 1, line, length + 1) == (ssize_t)length + 1);
        }
        _exit(0);
}

/* A child; one in four executes this program again, so that nothing is mapped in it. */
static pid_t new_child(uint64_t step)
{
        char seed[24];

        draw_start(step);
        bool executes = draw(4) == 0;
        pid_t pid = start_child();
        if (pid)
                return pid;
        if (!executes)
                serve();
        snprintf(seed, sizeof(seed), "%lu", set.seed);
        execl(self, self, set.huge ? "--serve" : "--serve-plain", seed, NULL);
        _exit(9);
}

static void end_child(pid_t pid)
{
        uint64_t step = LEAVE;
        CHECK(write(FD_TO + 1, &step, sizeof(step)) == sizeof(step));
        reap(pid, 0);
}

static void step_there(uint64_t step)
{
        CHECK(write(FD_TO + 1, &step, sizeof(step)) == sizeof(step));
        do {
                ssize_t n = read(FD_FROM, line + length, sizeof(line) - length);
                CHECK(n > 0);
                length += (size_t)n;
        } while (line[length - 1]);
        length--;
}

static void show(uint64_t step)
{
        for (size_t i = 0; i < length; i++)
                sum = (sum ^ (unsigned char)line[i]) * 0x100000001b3ull;
        if (set.from <= step && step <= set.to)
                printf("%lu:%s\n", step, line);
        if (step % SUM_STEPS == SUM_STEPS - 1 && !set.to)
                printf("to step %lu: %016lx\n", step, sum);
        new_line();
}

static void run(void)
{
        int ends[2];

        for (int i = FD_TO; i <= FD_FROM; i += 2) {
                CHECK(pipe(ends) == 0);
                keep_as(ends[1], i + 1);
                keep_as(ends[0], i);
        }
        make_objects();
        catch_faults();
        pid_t child = new_child(set.steps);
        for (uint64_t step = 0; step < set.steps; step++) {
                draw_start(step);
                if (draw(FORK_STEPS) == 0) {
                        end_child(child);
                        child = new_child(set.steps + step);
                }
                draw_start(step);
                if (draw(2))
                        step_here(step);
                else
                        step_there(step);
                show(step);
        }
        end_child(child);
        look_at_all();
        printf("seed %lu, %lu steps:%s\n", set.seed, set.steps, line);
}

int main(int argc, char **argv)
{
        self = argv[0];
        for (int i = 1; i < argc; i++) {
                const char *value = i + 1 < argc ? argv[i + 1] : "";
                if (strcmp(argv[i], "--plain") == 0) {
                        set.huge = false;
                        continue;
                }
                i++;
                if (strncmp(argv[i - 1], "--serve", 7) == 0) {
                        set.huge = strcmp(argv[i - 1], "--serve") == 0;
                        set.seed = strtoull(value, NULL, 0);
                        forget_window();
                        serve();
                } else if (strcmp(argv[i - 1], "--seed") == 0) {
                        set.seed = strtoull(value, NULL, 0);
                } else if (strcmp(argv[i - 1], "--steps") == 0) {
                        set.steps = strtoull(value, NULL, 0);
                } else if (strcmp(argv[i - 1], "--trace") != 0 ||
                           sscanf(value, "%lu-%lu", &set.from, &set.to) != 2) {
                        fprintf(stderr, "t_maps: see the head of t_maps.c\n");
                        return 2;
                }
        }
        setvbuf(stdout, NULL, _IOLBF, 0);
        run();
        return 0;
}
