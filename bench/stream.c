/*
 * Memory-bound: a pointer chase through 64 MiB in random order, and streams over these 64 MiB.
 */
#include <sys/mman.h>
#include "section.h"

#define LINE 64
#define LINES ((64u << 20) / LINE)

static struct line { uint64_t next, value[7]; } *lines;

/* An eighth of the lines in a cycle that visits pages in no order. */
static uint64_t chase(void)
{
        uint64_t at = 0, sum = 0;
        for (unsigned i = 0; i < LINES / 8; i++) {
                at = lines[at].next;
                sum += at;
        }
        return sum;
}

static uint64_t stream(void)
{
        uint64_t sum = 0;
        for (unsigned i = 0; i < LINES; i++) {
                sum += lines[i].value[0];
                lines[i].value[1] = sum;
        }
        return sum;
}

int main(int argc, char **argv)
{
        unsigned rounds = rounds_given(argc, argv);

        lines = mmap(NULL, (size_t)LINES * LINE, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (lines == MAP_FAILED) {
                perror("mmap");
                return 1;
        }
        /* The step of a full-period generator modulo a power of two: one cycle through all. */
        for (unsigned i = 0; i < LINES; i++) {
                lines[i].next = (i * 0x9e3779b5u + 0x7f4a7c15u) % LINES;
                lines[i].value[0] = i;
        }
        uint64_t sum = section("chase", chase, rounds);
        sum += section("stream", stream, rounds);
        printf("sum %lu\n", sum);
        return 0;
}
