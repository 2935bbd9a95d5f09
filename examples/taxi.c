/*
 * taxi: queries over a year of generated taxi trips that lie in memory by columns, as in a data
 * frame, with OpenMP. After the analysis of New York's taxi trips that far-memory papers have in
 * common (AIFM, OSDI 2020; DiLOS, EuroSys 2023).
 *
 * A trip follows from seed and row alone. The queries see the columns only; the check sees the
 * generator too: it compares all columns with it, computes all answers in another way, a trip at a
 * time, and compares these. Money, time and distance are whole numbers, so sums are exact and
 * standard output depends on the arguments only, and not on the number of threads. Exit status: 0
 * all is right, 1 wrong result, 2 usage or no memory.
 */
#include <getopt.h>
#include <omp.h>
#include <stddef.h>

#define PROGRAM "taxi"
#include "example.h"

#define BLOCK           (1 << 14)       /* rows that one thread does in a row */
#define DAY             (24 * 60 * 60)
#define DAYS            365
#define ZONES           265
#define BOROUGHS        6
#define MAX_PASSENGERS  6
#define DISTANCES       8               /* powers of two of kilometres, the last open */
#define ZONE_SLOTS      1024            /* of the hash table; a power of two */
#define LONG_METRES     5000            /* more is a long trip */
#define TOP             5
#define ERRORS_SHOWN    10

/* The zone table, which trips are joined with. */
static struct zone { uint16_t id, borough; } zones[ZONES];
static const char *const borough_names[BOROUGHS] = {
        "Manhattan", "Queens", "Brooklyn", "Bronx", "Staten Island", "Newark",
};

/* A row. Seconds since the year began, metres, cents, indices into the zone table. */
struct trip {
        uint32_t pickup, dropoff, distance, fare, tip;
        uint16_t from, to;
        uint8_t passengers;
};

/* The columns, [rows] each. Zones are those of the trip as the zone table's ids. */
static uint32_t *pickup, *dropoff, *distance, *fare, *tip;
static uint16_t *from_id, *to_id;
static uint8_t *passengers;
static uint64_t rows = 2 << 20, seed = 1, errors;
static bool show_time;
static uint64_t *longest;               /* long trips as sort keys */
static uint64_t nlongest;

/* What the queries answer: counts and sums only, so answers of parts can be added. */
struct answers {
        struct { uint64_t trips, fare; } hours[24][MAX_PASSENGERS];
        struct { uint64_t fare, tip; } zones[ZONES];
        uint64_t distances[7][DISTANCES];
        struct { uint64_t trips, paid; } boroughs[BOROUGHS][BOROUGHS];
        struct { uint64_t trips, hashes; } longest;
};

static void wrong(const char *what, uint64_t row, uint64_t got, uint64_t want)
{
        uint64_t n;
        #pragma omp atomic capture
        n = errors++;
        if (n < ERRORS_SHOWN)
                fprintf(stderr, "taxi: %s %" PRIu64 ": %" PRIu64 ", expected %" PRIu64 "\n", what,
                        row, got, want);
}

static void make_zones(void)
{
        static const unsigned ends[BOROUGHS] = { 69, 138, 199, 242, 262, ZONES };
        unsigned borough = 0;
        for (unsigned z = 0; z < ZONES; z++) {
                borough += z == ends[borough];
                zones[z].id = (uint16_t)((z + 1) * 7919 % 65521);       /* a prime: ids differ */
                zones[z].borough = (uint16_t)borough;
        }
}

static uint64_t pick(uint64_t *state, uint64_t n) { return below(next_random(state), n); }

/* The smaller of two random zones: the first zones are the busiest. */
static uint16_t zone_of(uint64_t *state)
{
        uint64_t a = pick(state, ZONES), b = pick(state, ZONES);
        return (uint16_t)(a < b ? a : b);
}

static struct trip trip_of(uint64_t row)
{
        /* Of 256 trips, those that begin before this hour ends. */
        static const uint8_t hours[24] = {
                9,   15,  19,  22,  24,  27,  33,  43,  55,  67,  79,  91,
                104, 117, 131, 145, 158, 173, 190, 207, 221, 234, 245, 255,
        };
        uint64_t state = random_at(seed, row), day = row * DAYS / rows, hour = 0;
        uint64_t when = pick(&state, 256);
        while (hour < 23 && when >= hours[hour])
                hour++;
        struct trip t = { .from = zone_of(&state), .to = zone_of(&state) };
        t.pickup = (uint32_t)(day * DAY + hour * 3600 + pick(&state, 3600));
        t.distance = (uint32_t)(400 + (pick(&state, 1000) << pick(&state, 7)));
        uint32_t speed = (uint32_t)((hour > 6 && hour < 20 ? 3 : 6) + pick(&state, 8)); /* m/s */
        uint32_t duration = 60 + t.distance / speed;
        t.dropoff = t.pickup + duration;
        t.fare = 300 + t.distance * 155 / 1000 + duration * 35 / 60;
        if (pick(&state, 100) < 65)
                t.tip = (uint32_t)(t.fare * (10 + pick(&state, 20) + t.from % 7u) / 100);
        t.passengers = (uint8_t)(pick(&state, 10) < 7 ? 1 : 1 + pick(&state, MAX_PASSENGERS));
        return t;
}

static unsigned weekday_of(uint32_t second) { return (second / DAY + 1) % 7; }

static unsigned distance_class(uint32_t metres)
{
        unsigned km = metres / 1000, class = km ? 32 - (unsigned)__builtin_clz(km) : 0;
        return class < DISTANCES ? class : DISTANCES - 1;
}

/* Ascending keys are descending distances, and rows in their order among equals. */
static uint64_t key_of(uint32_t metres, uint64_t row) { return (uint64_t)~metres << 32 | row; }
static uint64_t row_of(uint64_t key) { return key & UINT32_MAX; }

static void generate(struct answers *a, uint64_t first, uint64_t end)
{
        (void)a;
        for (uint64_t i = first; i < end; i++) {
                struct trip t = trip_of(i);
                pickup[i] = t.pickup;
                dropoff[i] = t.dropoff;
                distance[i] = t.distance;
                fare[i] = t.fare;
                tip[i] = t.tip;
                from_id[i] = zones[t.from].id;
                to_id[i] = zones[t.to].id;
                passengers[i] = t.passengers;
        }
}

/* The queries: each over rows [first, end), adding to what a has. */
static void fares_by_hour(struct answers *a, uint64_t first, uint64_t end)
{
        for (uint64_t i = first; i < end; i++) {
                unsigned hour = pickup[i] % DAY / 3600, n = passengers[i] - 1u;
                a->hours[hour][n % MAX_PASSENGERS].trips++;
                a->hours[hour][n % MAX_PASSENGERS].fare += fare[i];
        }
}

static void trips_by_distance(struct answers *a, uint64_t first, uint64_t end)
{
        for (uint64_t i = first; i < end; i++)
                a->distances[weekday_of(pickup[i])][distance_class(distance[i])]++;
}

/* The zone table's index by id, for the joins. */
static struct { uint16_t id, zone_plus_1; } zone_index[ZONE_SLOTS];

static void index_zones(void)
{
        for (unsigned z = 0; z < ZONES; z++) {
                unsigned slot = scramble(zones[z].id) % ZONE_SLOTS;
                while (zone_index[slot].zone_plus_1)
                        slot = (slot + 1) % ZONE_SLOTS;
                zone_index[slot].id = zones[z].id;
                zone_index[slot].zone_plus_1 = (uint16_t)(z + 1);
        }
}

/* ZONES if there is no such id. */
static unsigned find_zone(uint16_t id)
{
        unsigned slot = scramble(id) % ZONE_SLOTS;
        for (; zone_index[slot].zone_plus_1; slot = (slot + 1) % ZONE_SLOTS)
                if (zone_index[slot].id == id)
                        return zone_index[slot].zone_plus_1 - 1u;
        return ZONES;
}

static void tips_by_zone(struct answers *a, uint64_t first, uint64_t end)
{
        for (uint64_t i = first; i < end; i++) {
                unsigned z = find_zone(from_id[i]);
                if (z == ZONES)
                        continue;       /* comparing the columns will tell */
                a->zones[z].fare += fare[i];
                a->zones[z].tip += tip[i];
        }
}

static void join_boroughs(struct answers *a, uint64_t first, uint64_t end)
{
        for (uint64_t i = first; i < end; i++) {
                unsigned from = find_zone(from_id[i]), to = find_zone(to_id[i]);
                if (from == ZONES || to == ZONES)
                        continue;
                unsigned x = zones[from].borough, y = zones[to].borough;
                a->boroughs[x][y].trips++;
                a->boroughs[x][y].paid += fare[i] + tip[i];
        }
}

/* Long trips of more than one passenger; their order is made afterwards. */
static void filter_longest(struct answers *a, uint64_t first, uint64_t end)
{
        (void)a;
        uint64_t found = 0, at;
        for (uint64_t i = first; i < end; i++)
                found += distance[i] > LONG_METRES && passengers[i] > 1;
        #pragma omp atomic capture
        { at = nlongest; nlongest += found; }
        for (uint64_t i = first; i < end; i++)
                if (distance[i] > LONG_METRES && passengers[i] > 1)
                        longest[at++] = key_of(distance[i], i);
}

static int by_key(const void *a, const void *b)
{
        uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
        return x < y ? -1 : x > y;
}

/* Compares the columns with the generator, and answers all queries from the generator alone. */
static void recompute(struct answers *a, uint64_t first, uint64_t end)
{
        for (uint64_t i = first; i < end; i++) {
                struct trip t = trip_of(i);
                const struct { const char *name; uint64_t got, want; } columns[] = {
                        { "pickup of row", pickup[i], t.pickup },
                        { "dropoff of row", dropoff[i], t.dropoff },
                        { "distance of row", distance[i], t.distance },
                        { "fare of row", fare[i], t.fare },
                        { "tip of row", tip[i], t.tip },
                        { "pickup zone of row", from_id[i], zones[t.from].id },
                        { "dropoff zone of row", to_id[i], zones[t.to].id },
                        { "passengers of row", passengers[i], t.passengers },
                };
                for (unsigned c = 0; c < sizeof(columns) / sizeof(columns[0]); c++)
                        if (columns[c].got != columns[c].want)
                                wrong(columns[c].name, i, columns[c].got, columns[c].want);
                unsigned hour = t.pickup / 3600 % 24, class = 0;
                for (unsigned km = t.distance / 1000; km && class < DISTANCES - 1; km /= 2)
                        class++;
                unsigned x = zones[t.from].borough, y = zones[t.to].borough;
                a->hours[hour][t.passengers - 1].trips++;
                a->hours[hour][t.passengers - 1].fare += t.fare;
                a->zones[t.from].fare += t.fare;
                a->zones[t.from].tip += t.tip;
                a->distances[weekday_of(t.pickup)][class]++;
                a->boroughs[x][y].trips++;
                a->boroughs[x][y].paid += t.fare + t.tip;
                if (t.distance > LONG_METRES && t.passengers > 1) {
                        a->longest.trips++;
                        a->longest.hashes += scramble(key_of(t.distance, i));
                }
        }
}

/* A pass over all rows by blocks, which adds to the answers. */
struct pass { const char *name; void (*f)(struct answers *, uint64_t first, uint64_t end); };

static const struct pass passes[] = {
        { "generation", generate },
        { "fares by hour", fares_by_hour },
        { "tips by zone", tips_by_zone },
        { "trips by distance", trips_by_distance },
        { "join with boroughs", join_boroughs },
        { "filter of long trips", filter_longest },
};

static void report_time(const char *name, double since)
{
        if (show_time)
                fprintf(stderr, "taxi: %s %.3f s\n", name, seconds() - since);
}

static void run_pass(const struct pass *pass, struct answers *total)
{
        double t0 = seconds();
        uint64_t nblocks = (rows + BLOCK - 1) / BLOCK;
        #pragma omp parallel
        {
                struct answers mine;
                memset(&mine, 0, sizeof(mine));
                #pragma omp for schedule(dynamic)
                for (uint64_t b = 0; b < nblocks; b++)
                        pass->f(&mine, b * BLOCK, b + 1 < nblocks ? (b + 1) * BLOCK : rows);
                #pragma omp critical
                for (size_t i = 0; i < sizeof(mine) / sizeof(uint64_t); i++)
                        ((uint64_t *)total)[i] += ((const uint64_t *)&mine)[i];
        }
        report_time(pass->name, t0);
}

/*
 * Sorts the long trips, checks their order and adds them to the answers. Returns the time that the
 * longest hundredth of them took, in seconds: rows from all over the columns.
 */
static uint64_t sort_longest(struct answers *a)
{
        double t0 = seconds();
        uint64_t time = 0;
        qsort(longest, nlongest, sizeof(*longest), by_key);
        for (uint64_t i = 0; i < (nlongest + 99) / 100; i++)
                time += dropoff[row_of(longest[i])] - pickup[row_of(longest[i])];
        report_time("sort of long trips", t0);
        for (uint64_t i = 0; i < nlongest; i++) {
                if (i > 0 && longest[i - 1] >= longest[i])
                        wrong("order of long trip", i, longest[i], longest[i - 1] + 1);
                a->longest.trips++;
                a->longest.hashes += scramble(longest[i]);
        }
        return time;
}

/* The other way to that time: from the generator, for the rows that the sort has found. */
static void check_time(uint64_t time)
{
        uint64_t want = 0;
        for (uint64_t i = 0; i < (nlongest + 99) / 100; i++) {
                struct trip t = trip_of(row_of(longest[i]));
                want += t.dropoff - t.pickup;
        }
        if (time != want)
                wrong("time of long trips", nlongest, time, want);
}

static double ratio(uint64_t a, uint64_t b) { return b ? (double)a / (double)b : 0; }

/* The zones with the best tips, of equals the first. */
static void print_zones(const struct answers *a)
{
        double share[ZONES];
        for (unsigned z = 0; z < ZONES; z++)
                share[z] = 100 * ratio(a->zones[z].tip, a->zones[z].fare);
        puts("tips, of 100 paid as fares, by zone:");
        for (int n = 0; n < TOP; n++) {
                unsigned best = 0;
                for (unsigned z = 1; z < ZONES; z++)
                        best = share[z] > share[best] ? z : best;
                printf("%8u %6.2f\n", zones[best].id, share[best]);
                share[best] = -1;
        }
}

static void print_answers(const struct answers *a, uint64_t time)
{
        puts("mean fare by hour, for 1, 2, ... passengers:");
        for (unsigned h = 0; h < 24; h++) {
                printf("%8u", h);
                for (unsigned n = 0; n < MAX_PASSENGERS; n++)
                        printf(" %6.2f", ratio(a->hours[h][n].fare, a->hours[h][n].trips) / 100);
                puts("");
        }
        print_zones(a);
        puts("trips by weekday, below 1, 2, 4, ... km:");
        for (unsigned d = 0; d < 7; d++) {
                printf("%8u", d);
                for (unsigned c = 0; c < DISTANCES; c++)
                        printf(" %8" PRIu64, a->distances[d][c]);
                puts("");
        }
        puts("mean paid from borough to borough:");
        for (unsigned x = 0; x < BOROUGHS; x++) {
                printf("%14s", borough_names[x]);
                for (unsigned y = 0; y < BOROUGHS; y++)
                        printf(" %6.2f", ratio(a->boroughs[x][y].paid, a->boroughs[x][y].trips) /
                                                 100);
                puts("");
        }
        printf("%" PRIu64 " long trips of several passengers, %" PRIu64
               " s for the longest hundredth; longest:\n",
               nlongest, time);
        for (uint64_t i = 0; i < TOP && i < nlongest; i++)
                printf("  row %10" PRIu64 " %6u m %5u.%02u\n", row_of(longest[i]),
                       distance[row_of(longest[i])], fare[row_of(longest[i])] / 100,
                       fare[row_of(longest[i])] % 100);
}

static void check(const struct answers *got)
{
        struct answers want = { 0 };
        run_pass(&(struct pass){ "check", recompute }, &want);
        const struct { const char *name; size_t from, to; } parts[] = {
                { "answers by hour", offsetof(struct answers, hours),
                  offsetof(struct answers, zones) },
                { "answers by zone", offsetof(struct answers, zones),
                  offsetof(struct answers, distances) },
                { "answers by distance", offsetof(struct answers, distances),
                  offsetof(struct answers, boroughs) },
                { "answers by borough", offsetof(struct answers, boroughs),
                  offsetof(struct answers, longest) },
                { "long trips", offsetof(struct answers, longest), sizeof(struct answers) },
        };
        for (unsigned p = 0; p < sizeof(parts) / sizeof(parts[0]); p++)
                for (size_t i = parts[p].from / 8; i < parts[p].to / 8; i++)
                        if (((const uint64_t *)got)[i] != ((const uint64_t *)&want)[i])
                                wrong(parts[p].name, i - parts[p].from / 8,
                                      ((const uint64_t *)got)[i], ((const uint64_t *)&want)[i]);
}

static void usage(FILE *f)
{
        fputs("usage: taxi [OPTION...]\n"
              "  --rows N     trips, of 25 bytes; N with a suffix K, M or G (default 2M)\n"
              "  --threads N  (default 4)\n"
              "  --seed N     (default 1)\n"
              "  --time       how long each query took, on standard error\n",
              f);
}

int main(int argc, char **argv)
{
        static const struct option options[] = {
                { "help", no_argument, NULL, 'h' },
                { "rows", required_argument, NULL, 'r' },
                { "seed", required_argument, NULL, 's' },
                { "threads", required_argument, NULL, 'n' },
                { "time", no_argument, NULL, 't' },
                { NULL, 0, NULL, 0 }
        };
        unsigned nthreads = 4;
        for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;)
                switch (c) {
                case 'h': usage(stdout); return RIGHT;
                case 'n': nthreads = parse_threads(optarg); break;
                case 'r': rows = parse_number("--rows", optarg, true, 1, UINT32_MAX); break;
                case 's': seed = parse_number("--seed", optarg, false, 0, UINT64_MAX); break;
                case 't': show_time = true; break;
                default: usage(stderr); return CANNOT;
                }
        if (optind != argc) {
                usage(stderr);
                return CANNOT;
        }
        omp_set_num_threads((int)nthreads);
        make_zones();
        index_zones();
        uint32_t **const wide[] = { &pickup, &dropoff, &distance, &fare, &tip };
        for (unsigned c = 0; c < sizeof(wide) / sizeof(wide[0]); c++)
                *wide[c] = reserve(rows, sizeof(**wide[c]));
        from_id = reserve(rows, sizeof(*from_id));
        to_id = reserve(rows, sizeof(*to_id));
        passengers = reserve(rows, sizeof(*passengers));
        longest = reserve(rows, sizeof(*longest));

        struct answers answers = { 0 };
        for (unsigned i = 0; i < sizeof(passes) / sizeof(passes[0]); i++)
                run_pass(&passes[i], &answers);
        uint64_t time = sort_longest(&answers);
        check(&answers);
        check_time(time);

        printf("taxi: %" PRIu64 " trips, seed %" PRIu64 ", %" PRIu64 " errors\n", rows, seed,
               errors);
        print_answers(&answers, time);
        return errors ? WRONG : RIGHT;
}
