/*
 * t_odd: calls of memory and of processes with odd arguments, chosen by a seed: lengths that wrap,
 * addresses at the borders, unknown bits, structs of odd sizes. A case is one call. Its line has
 * the arguments, the result and the effect, and the native run is the oracle.
 *
 *   t_odd memory|clone [SEED [CASES]]
 *
 * A process of its own makes each BLOCK cases, so that none of them harms the next block.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "t_draw.h"
#include "t_odd.h"

#define BLOCK 50ul

static uint64_t rng;

uint64_t draw(uint64_t below) { return draw_from(&rng, below); }

struct part { const char *name; void (*begin)(void), (*one)(void); };

static void block(const struct part *p, uint64_t seed, uint64_t cases)
{
        p->begin();
        for (uint64_t n = seed; n < seed + cases; n++) {
                rng = n << 32;
                printf("%lu: ", n);
                p->one();
        }
        fflush(stdout);
        _exit(0);
}

static int run(const struct part *p, uint64_t seed, uint64_t cases)
{
        int status;

        for (uint64_t done = 0; done < cases; done += BLOCK) {
                fflush(stdout);
                pid_t child = fork();
                if (child < 0) {
                        perror("fork");
                        return 2;
                }
                if (!child)
                        block(p, seed + done, cases - done < BLOCK ? cases - done : BLOCK);
                if (waitpid(child, &status, 0) != child || status) {
                        printf("the process of these cases ended with status %#x\n", status);
                        return 1;
                }
        }
        return 0;
}

int main(int argc, char **argv)
{
        static const struct part parts[] = {
                { "memory", memory_begin, memory_case },
                { "clone", clone_begin, clone_case },
        };
        uint64_t seed = argc > 2 ? strtoul(argv[2], NULL, 0) : 1;
        uint64_t cases = argc > 3 ? strtoul(argv[3], NULL, 0) : 1000;

        static char buffer[1 << 12];    /* not in the heap, of which brk takes parts away */

        setvbuf(stdout, buffer, _IOLBF, sizeof(buffer));
        close_range(3, ~0U, 0);
        for (size_t i = 0; argc > 1 && i < COUNT(parts); i++)
                if (strcmp(argv[1], parts[i].name) == 0)
                        return run(&parts[i], seed, cases);
        fprintf(stderr, "t_odd: see the head of t_odd.c\n");
        return 2;
}
