/* Included by test_lookahead.c: programs in the simulation. */

static const struct sim_wire fast = { 2400, 330 };      /* 100 Gbit/s and RDMA */
static const struct sim_wire slow = { 90000, 40000 };   /* RDMA by software, on one CPU */
#define FAST_STEP 500
#define SLOW_STEP 50000

#define ACCESSES 24000
#define PAGES    16384          /* of programs that come back to their pages */
#define FRAMES   4096           /* a quarter */

/* The page of access i. */
typedef uint64_t program(uint64_t i);

static uint64_t sequential(uint64_t i) { return i; }
static uint64_t backwards(uint64_t i) { return 1000000 - i; }
static uint64_t stride_7(uint64_t i) { return 5 + 7 * i; }
static uint64_t stride_1000(uint64_t i) { return 77 + 1000 * i; }
static uint64_t four_loops(uint64_t i) { return i % 4 * 1000003 + i / 4; }
static uint64_t two_threads(uint64_t i)         /* in turns of 100 pages, one forward, one back */
{
        uint64_t n = i / 200 * 100 + i % 100;
        return i % 200 < 100 ? 500 + n : 9000000 - 3 * n;
}
static uint64_t uniform(uint64_t i)
{
        (void)i;
        return draw(PAGES);
}
static uint64_t uniform_few(uint64_t i)
{
        (void)i;
        return draw(5000);
}
static uint64_t with_random(uint64_t i) { return i % 2 ? LIMIT / 2 + draw(PAGES) : i / 2; }
static uint64_t with_random_near(uint64_t i)
{
        return 50000 + (i % 2 ? draw(PAGES) : i / 2);
}
static uint64_t stops(uint64_t i)               /* after 1000 pages, and begins elsewhere */
{
        static uint64_t from;
        if (i % 1000 == 0)
                from = draw(LIMIT / 2);
        return from + i % 1000;
}
static uint64_t short_runs(uint64_t i)          /* objects of six pages */
{
        static uint64_t from;
        if (i % 6 == 0)
                from = draw(PAGES / 6) * 6;
        return from + i % 6;
}
static uint64_t turns(uint64_t i)               /* to and fro over twice the cache */
{
        uint64_t n = i % (4 * FRAMES);
        return 100000 + (n < 2 * FRAMES ? n : 4 * FRAMES - 1 - n);
}

static double zipf_sum[PAGES];
static uint64_t zipf(uint64_t i)
{
        (void)i;
        if (zipf_sum[0] == 0)
                for (unsigned n = 0; n < PAGES; n++)
                        zipf_sum[n] = (n ? zipf_sum[n - 1] : 0) + pow(n + 1, -0.99);
        double x = (double)draw(1u << 30) / (1u << 30) * zipf_sum[PAGES - 1];
        unsigned lo = 0, hi = PAGES - 1;
        while (lo < hi) {
                unsigned mid = (lo + hi) / 2;
                if (zipf_sum[mid] < x)
                        lo = mid + 1;
                else
                        hi = mid;
        }
        return lo;
}
static uint64_t zipf_spread(uint64_t i) { return zipf(i) * 7919 % PAGES; }

struct run {
        const char *name;
        program *next;
        struct sim_wire wire;
        uint64_t step;
        enum lookahead_policy policy;
        bool shadow, evict;             /* sim.shadow, not sim.spare */
        uint32_t frames;                /* 0: FRAMES */
        /* Pages resident before are in runs of this length; 1: half, at random; 0: none is. */
        unsigned resident;
};

struct result { double waits, wasted, coverage, ns; };

static void preload(struct sim *s, unsigned run)
{
        for (uint64_t p = 0; p < 2 * FRAMES; p++)
                if (run == 1 ? draw(2) : p / run % 2)
                        sim_preload(s, p);
}

/* Runs the program; the first eighth of it is not counted. */
static struct result simulate(const struct run *r)
{
        static struct sim s;
        struct lookahead_rule sim_rule = {
                r->policy, r->policy == LOOKAHEAD_AUTO ? 64 : 8, 32, 0
        };
        uint64_t n = r->resident ? 2 * FRAMES : ACCESSES, start = 0;

        sim_begin(&s, &sim_rule, r->wire, r->step, r->frames ? r->frames : FRAMES);
        s.shadow = r->shadow;
        s.spare = !r->evict;
        if (r->resident)
                preload(&s, r->resident);
        for (uint64_t i = 0; i < n; i++) {
                if (i == n / 8) {
                        sim_count_anew(&s);
                        start = s.now;
                }
                sim_access(&s, r->next(i));
        }
        uint64_t waits = s.misses + s.late, wasted = sim_wasted(&s);
        struct result out = {
                .waits = (double)waits / (double)s.accesses,
                .wasted = s.fetched ? (double)wasted / (double)s.fetched : 0,
                .coverage = s.fetched ? 1 - (double)s.misses / (double)(s.fetched - wasted) : 0,
                .ns = (double)(s.now - start) / (double)s.accesses,
        };
        static const char *const policies[] = { "none", "readahead", "trend", "auto" };
        print_message("# %-20s %-9s %4.1f us%s%s: %.4f waits an access, 1 in %.1f; "
                      "%.2f %% wasted; %.2f %% covered; %.0f ns; %.4f markers\n",
                      r->name, policies[r->policy], (double)r->wire.latency / 1000,
                      r->shadow ? ", A hidden" : "", r->evict ? ", not spared" : "", out.waits,
                      waits ? 1 / out.waits : 0.0, 100 * out.wasted, 100 * out.coverage, out.ns,
                      (double)s.markers / (double)s.accesses);
        sim_end(&s);
        return out;
}

static const struct { const char *name; program *next; } regular[] = {
        { "sequential", sequential }, { "backwards", backwards }, { "stride 7", stride_7 },
        { "stride 1000", stride_1000 }, { "four loops", four_loops },
        { "two threads", two_threads },
};
#define REGULAR (sizeof(regular) / sizeof(regular[0]))

/* Streams wait at most once in 64 pages, and run at the program's own speed. */
static void test_sim_regular(void **state)
{
        (void)state;
        for (unsigned i = 0; i < REGULAR; i++) {
                struct run r = { regular[i].name, regular[i].next, fast, FAST_STEP,
                                 LOOKAHEAD_AUTO, .shadow = false };
                struct result q = simulate(&r);
                assert_true(q.waits <= 1.0 / 64);
                assert_true(q.wasted <= 0.02);
                assert_true(q.ns <= FAST_STEP * 1.05);
                r.wire = slow;
                r.step = SLOW_STEP;
                q = simulate(&r);
                assert_true(q.waits <= 1.0 / 64);
                assert_true(q.ns <= SLOW_STEP * 1.06);
                for (r.policy = LOOKAHEAD_NONE; r.policy < LOOKAHEAD_AUTO; r.policy++) {
                        r.wire = fast;
                        r.step = FAST_STEP;
                        simulate(&r);
                }
        }
}

/* A program that is faster than the wire gets all of its bandwidth. */
static void test_sim_wire_bound(void **state)
{
        (void)state;
        for (unsigned i = 0; i < REGULAR; i++) {
                struct run r = { regular[i].name, regular[i].next, slow, FAST_STEP,
                                 LOOKAHEAD_AUTO, .shadow = false };
                assert_true(simulate(&r).ns <= (double)slow.page * 1.05);
        }
}

/* Streams among random accesses. */
static void test_sim_mixed(void **state)
{
        static const struct { const char *name; program *next; } mixed[] = {
                { "with random ones", with_random }, { "with random ones near", with_random_near },
        };

        (void)state;
        for (unsigned i = 0; i < 2; i++) {
                struct run r = { mixed[i].name, mixed[i].next, fast, FAST_STEP, LOOKAHEAD_NONE,
                                 .shadow = false };
                double none = simulate(&r).waits;
                r.policy = LOOKAHEAD_AUTO;
                struct result q = simulate(&r);
                assert_true(none - q.waits >= 0.45 * (i == 0 ? 1 : none));
                assert_true(q.wasted <= 0.02);
        }
}

/* Random accesses are left alone. */
static void test_sim_irregular(void **state)
{
        static const struct { const char *name; program *next; } irregular[] = {
                { "uniform", uniform }, { "uniform, 5000 pages", uniform_few },
                { "Zipf", zipf }, { "Zipf, spread", zipf_spread },
        };

        (void)state;
        for (unsigned i = 0; i < 4; i++) {
                for (unsigned shadow = 0; shadow < 2; shadow++) {
                        struct run r = { irregular[i].name, irregular[i].next, fast, FAST_STEP,
                                         LOOKAHEAD_AUTO, .shadow = shadow };
                        assert_true(simulate(&r).wasted <= 0.01);
                }
                for (enum lookahead_policy p = LOOKAHEAD_NONE; p < LOOKAHEAD_AUTO; p++) {
                        struct run r = { irregular[i].name, irregular[i].next, fast, FAST_STEP, p,
                                         .shadow = false };
                        simulate(&r);
                }
        }
}

/* Streams that end, turn round, or pass over resident pages. */
static void test_sim_ends(void **state)
{
        (void)state;
        struct run r = { "stops after 1000", stops, fast, FAST_STEP, LOOKAHEAD_AUTO,
                         .shadow = false };
        struct result q = simulate(&r);
        assert_true(q.waits <= 1.0 / 64);
        assert_true(q.wasted <= 0.12);
        r.name = "six pages each";
        r.next = short_runs;
        q = simulate(&r);
        assert_true(q.wasted <= 0.3);
        r.name = "turns";
        r.next = turns;
        q = simulate(&r);
        assert_true(q.waits <= 1.0 / 64);
        assert_true(q.wasted <= 0.03);
        r.name = "half is resident";
        r.next = sequential;
        r.resident = 1;
        q = simulate(&r);
        assert_true(q.waits <= 1.0 / 64);
        assert_true(q.wasted <= 0.02);
        r.name = "runs are resident";
        r.resident = 100;
        q = simulate(&r);
        assert_true(q.waits <= 1.0 / 64);
}

/* A hand that evicts prefetched pages before their use, as it does any page with A=0, costs waits:
 * a marker's window of pages each time it has gone round. */
static void test_sim_not_spared(void **state)
{
        (void)state;
        for (unsigned i = 0; i < REGULAR; i++) {
                struct run r = { regular[i].name, regular[i].next, fast, FAST_STEP,
                                 LOOKAHEAD_AUTO, .evict = true };
                assert_true(simulate(&r).waits <= 0.1);
        }
}

/* The regular programs where use cannot be known. */
static void test_sim_unknown(void **state)
{
        (void)state;
        for (unsigned i = 0; i < REGULAR; i++) {
                struct run r = { regular[i].name, regular[i].next, fast, FAST_STEP,
                                 LOOKAHEAD_AUTO, .shadow = true };
                struct result q = simulate(&r);
                assert_true(q.waits <= 1.0 / 64);
        }
}

/* In a small cache little may be under way, and batches are cut. */
static void test_sim_small_cache(void **state)
{
        (void)state;
        for (unsigned i = 0; i < REGULAR; i++) {
                struct run r = { regular[i].name, regular[i].next, fast, FAST_STEP,
                                 LOOKAHEAD_AUTO, .frames = 256 };
                struct result q = simulate(&r);
                assert_true(q.waits <= 1.0 / 8);
        }
}
