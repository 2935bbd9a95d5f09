/*
 * list: walks linked lists whose nodes lie anywhere, and verifies what they hold.
 *
 * Prefetching by strides cannot help such a walk: only a node says where the next one is. Each node
 * has a page of content, and a pointer to the next. vmrun --prefetch pointers follows it while the
 * content is looked at. With --jump N each node also knows the node N steps on, and the walk asks
 * for it (vmg_prefetch). With --guide the walk says nothing: a function that runs when the walk
 * waits asks for the next node (vmg_guide). Standard output depends on the arguments only; with
 * --time, standard error says what a node took. Exit status: 0 all was right, 1 not, 2 usage or no
 * memory.
 */
#include <getopt.h>
#define PROGRAM "list"
#include "example.h"
#include "vmguest.h"

#define WORDS (VMG_PAGE / sizeof(uint64_t))

struct node {
        struct node *next, *jump;
        uint64_t number;                /* in the order of the list */
        uint64_t content[WORDS - 3];
};

static struct node *nodes;
static uint64_t count, wrong;

static uint64_t word_of(uint64_t number, uint64_t w) { return scramble(number * WORDS + w); }

/* A random cycle through all nodes (Sattolo): place[i] is where the node that follows i lies. */
static struct node *build(uint64_t jump)
{
        uint32_t *order = reserve(count, sizeof(*order));
        uint64_t state = 7;

        for (uint64_t i = 0; i < count; i++)
                order[i] = (uint32_t)i;
        for (uint64_t i = count - 1; i > 0; i--) {
                uint64_t j = below(next_random(&state), i);
                uint32_t t = order[i];
                order[i] = order[j];
                order[j] = t;
        }
        for (uint64_t i = 0; i < count; i++) {
                struct node *n = &nodes[order[i]];
                n->next = i + 1 < count ? &nodes[order[i + 1]] : NULL;
                n->jump = jump && i + jump < count ? &nodes[order[i + jump]] : NULL;
                n->number = i;
                for (uint64_t w = 0; w < WORDS - 3; w++)
                        n->content[w] = word_of(i, w);
        }
        struct node *first = &nodes[order[0]];
        munmap(order, count * sizeof(*order));
        return first;
}

static uint64_t walk(const struct node *n)
{
        uint64_t steps = 0;

        for (; n; n = n->next, steps++) {
                if (n->jump)
                        vmg_prefetch(n->jump, sizeof(*n));
                wrong += n->number != steps;
                for (uint64_t w = 0; w < WORDS - 3; w++)
                        wrong += n->content[w] != word_of(steps, w);
        }
        return steps;
}

/* The page that the walk is at is here (VMG_CAME, VMG_USED), and so says which is next. */
static long look_ahead(const struct vmg_fault *f, void *arg)
{
        const struct node *at = (const struct node *)(f->addr & ~(VMG_PAGE - 1ul)), *next;

        (void)arg;
        if (vmg_peek(&next, &at->next, sizeof(next)) != 0)
                return VMG_AGAIN;       /* it is on its way: when it has come */
        if (next)
                vmg_prefetch(next, sizeof(*next));
        return 0;
}

static void usage(FILE *to)
{
        fputs("usage: list [--size BYTES] [--walks N] [--jump N] [--guide] [--time]\n"
              "  --size   of all nodes (16M); K, M and G may follow\n"
              "  --walks  how often the list is walked (2)\n"
              "  --jump   ask for the node N steps on (0: do not)\n"
              "  --guide  ask for the next node from a guide\n"
              "  --time   what a node took in the last walk, ns, on standard error\n", to);
}

int main(int argc, char **argv)
{
        static const struct option options[] = { { "guide", no_argument, NULL, 'g' },
                                                 { "help", no_argument, NULL, 'h' },
                                                 { "jump", required_argument, NULL, 'j' },
                                                 { "size", required_argument, NULL, 's' },
                                                 { "time", no_argument, NULL, 't' },
                                                 { "walks", required_argument, NULL, 'w' },
                                                 { NULL, 0, NULL, 0 } };
        uint64_t size = 16 << 20, walks = 2, jump = 0, steps = 0;
        double took = 0;
        bool timed = false, guided = false;
        int o;

        while ((o = getopt_long(argc, argv, "", options, NULL)) != -1) {
                switch (o) {
                case 'g': guided = true; break;
                case 'j': jump = parse_number("--jump", optarg, false, 0, 1000); break;
                case 's': size = parse_number("--size", optarg, true, VMG_PAGE, 1ull << 42); break;
                case 't': timed = true; break;
                case 'w': walks = parse_number("--walks", optarg, false, 1, 1000); break;
                case 'h': usage(stdout); return RIGHT;
                default: usage(stderr); return CANNOT;
                }
        }
        if (optind != argc) {
                usage(stderr);
                return CANNOT;
        }
        count = size / sizeof(struct node);
        nodes = reserve(count, sizeof(*nodes));
        const struct node *first = build(jump);
        if (guided && vmg_guide(nodes, count * sizeof(*nodes), look_ahead, NULL) != 0) {
                fputs("list: there can be no guide\n", stderr);
                return CANNOT;
        }
        for (uint64_t i = 0; i < walks; i++) {
                double begun = seconds();
                steps += walk(first);
                took = seconds() - begun;
        }
        if (timed)
                fprintf(stderr, "%.1f ns\n", took * 1e9 / (double)count);
        printf("nodes %" PRIu64 ", steps %" PRIu64 ", words wrong %" PRIu64 "\n", count, steps,
               wrong);
        return wrong || steps != walks * count ? WRONG : RIGHT;
}
