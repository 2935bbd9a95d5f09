/*
 * See settings.h: the values of settings and of nodes, and messages about wrong ones.
 */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "abi.h"
#include "base/host.h"
#include "base/options.h"
#include "pager/lookahead.h"
#include "common/size.h"
#include "settings/settings.h"

/* 64 frames a vCPU: with fewer, a fault could need more frames than there are. */
#define CACHE_MIN  (64ull * PAGE_SIZE)
#define WEIGHT_MAX 1000
#define PRIORITY_MAX 1000
#define SECONDS_MAX 3600

/* --- kinds of values --- */

/* A decimal number from least to most, without sign or blanks. */
static int number_parse(const char *text, unsigned least, unsigned most, unsigned *number,
                        char why[SETTING_WHY])
{
        size_t digits = strspn(text, "0123456789");
        unsigned long n = digits && digits < 10 ? strtoul(text, NULL, 10) : ~0ul;

        if (text[digits] || n < least || n > most) {
                snprintf(why, SETTING_WHY, "give a whole number from %u to %u", least, most);
                return -EINVAL;
        }
        *number = (unsigned)n;
        return 0;
}

/* Seconds, "10" or "0.5", to milliseconds. */
static int seconds_parse(const char *text, unsigned *ms, char why[SETTING_WHY])
{
        size_t whole = strspn(text, "0123456789");
        const char *fraction = text[whole] == '.' ? text + whole + 1 : text + whole;
        size_t places = strspn(fraction, "0123456789");

        if (!whole || whole > 6 || places > 3 || fraction[places] ||
            (text[whole] == '.' && !places))
                goto bad;
        unsigned long n = strtoul(text, NULL, 10) * 1000, unit = 100;
        for (size_t i = 0; i < places; i++, unit /= 10)
                n += unit * (unsigned long)(fraction[i] - '0');
        if (n < 100 || n > SECONDS_MAX * 1000ul)
                goto bad;
        *ms = (unsigned)n;
        return 0;
bad:
        snprintf(why, SETTING_WHY, "give seconds from 0.1 to %u, as in 10 or 0.5", SECONDS_MAX);
        return -EINVAL;
}

/* One of `words`, which end with NULL: its number. */
static int word_parse(const char *text, const char *const words[], int *number,
                      char why[SETTING_WHY])
{
        for (int i = 0; words[i]; i++)
                if (strcmp(words[i], text) == 0) {
                        *number = i;
                        return 0;
                }
        size_t at = (size_t)snprintf(why, SETTING_WHY, "give ");
        for (int i = 0; words[i]; i++)
                at += (size_t)snprintf(why + at, SETTING_WHY - at, "%s%s",
                                       !i             ? ""
                                       : words[i + 1] ? ", "
                                                      : " or ",
                                       words[i]);
        return -EINVAL;
}

static int flag_parse(const char *text, bool *flag, char why[SETTING_WHY])
{
        static const char *const words[] = { "no", "yes", NULL };
        int n, err = word_parse(text, words, &n, why);
        if (!err)
                *flag = n;
        return err;
}

static int text_parse(const char *text, const char **copy, char why[SETTING_WHY])
{
        if (!*text) {
                snprintf(why, SETTING_WHY,
                         "the value is missing: give one, or leave the whole setting out");
                return -EINVAL;
        }
        *copy = strdup(text);
        if (*copy)
                return 0;
        snprintf(why, SETTING_WHY, "out of memory: free some on this host");
        return -ENOMEM;
}

/* --- keys that do not exist --- */

#define NEAR_MOST 31                    /* bytes of a word that are compared */

/* How many bytes must be changed, added or removed to make b of a (Levenshtein). */
static unsigned distance(const char *a, const char *b)
{
        unsigned row[NEAR_MOST + 1], n = (unsigned)strlen(b);

        for (unsigned j = 0; j <= n; j++)
                row[j] = j;
        for (unsigned i = 1; *a; a++, i++) {
                unsigned corner = row[0];
                row[0] = i;
                for (unsigned j = 1; j <= n; j++) {
                        unsigned change = corner + (*a != b[j - 1]);
                        unsigned add = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
                        corner = row[j];
                        row[j] = change < add ? change : add;
                }
        }
        return row[n];
}

const char *near_word(const char *text, const char *const words[], size_t n)
{
        char low[NEAR_MOST + 1];
        const char *nearest = NULL;
        unsigned least = 3;
        size_t len = strlen(text);

        if (len > NEAR_MOST)
                return NULL;
        for (size_t i = 0; i <= len; i++)
                low[i] = text[i] == '_' ? '-' : (char)tolower((unsigned char)text[i]);
        for (size_t i = 0; i < n; i++) {
                size_t whole = strlen(words[i]);
                bool begins = whole > 3 && strncmp(low, words[i], whole) == 0;
                unsigned d = begins ? 0 : distance(low, words[i]);
                if (d < least && d <= whole / 2) {
                        nearest = words[i];
                        least = d;
                }
        }
        return nearest;
}

/* For "cache-mb" and "512" instead of "cache": M, and so on; 0: no unit, or no plain number. */
static char unit_of(const char *text, const char *word, const char *value)
{
        const char *unit = strlen(text) > strlen(word) ? text + strlen(word) + 1 : "";
        char first = (char)toupper((unsigned char)*unit);

        if (!first || !strchr("KMGT", first) || !*value || value[strspn(value, "0123456789")])
                return 0;
        unit++;
        return !*unit || strcasecmp(unit, "b") == 0 || strcasecmp(unit, "ib") == 0 ? first : 0;
}

/* Why the key is refused, which is none of the words; `where`: its place. */
static void say_unknown(const char *key, const char *value, const char *const words[], size_t n,
                        const char *where, char why[SETTING_WHY])
{
        const char *word = near_word(key, words, n);
        char unit = word ? unit_of(key, word, value) : 0;

        size_t at = (size_t)snprintf(why, SETTING_WHY, "unknown key%s: %s", where,
                                     word ? "" : "give ");

        if (unit)
                snprintf(why + at, SETTING_WHY - at, "did you mean %s = %s%c?", word, value, unit);
        else if (word)
                snprintf(why + at, SETTING_WHY - at, "did you mean %s?", word);
        for (size_t i = 0; !word && i < n; i++)
                at += (size_t)snprintf(why + at, SETTING_WHY - at, "%s%s", words[i],
                                       i + 2 < n ? ", " : i + 1 < n ? " or " : "");
}

/* --- settings --- */

static int set_cache(struct options *o, const char *text, char why[SETTING_WHY])
{
        uint64_t bytes, memory = host_memory_total();
        char a[32], b[32];

        int err = size_parse(text, &bytes);
        if (err == -EINVAL)
                snprintf(why, SETTING_WHY,
                         "this is no size: give a whole number with K, M, G or T, as in 4G");
        else if (!err && bytes < CACHE_MIN)
                snprintf(why, SETTING_WHY,
                         "too small, a program needs at least 64 pages here: give 256K or more");
        else if (err || (memory && bytes > memory))
                snprintf(why, SETTING_WHY,
                         "larger than this host's memory of %s: give less, %s is available now; "
                         "what does not fit goes "
                         "to the far tier (--node)",
                         size_text(memory, a), size_text(host_memory_available(), b));
        else if (bytes / PAGE_SIZE > UINT32_MAX)
                snprintf(why, SETTING_WHY, "more pages than vmrun can number: give less than 16T");
        else {
                o->cache = bytes & ~(uint64_t)(PAGE_SIZE - 1);
                return 0;
        }
        return err ? err : -ERANGE;
}

uint64_t cache_default(void)
{
        uint64_t bytes = host_memory_available() / 4 & ~(uint64_t)(PAGE_SIZE - 1);
        return bytes < CACHE_MIN ? CACHE_MIN : bytes;
}

static int set_stats(struct options *o, const char *text, char why[SETTING_WHY])
{
        bool yes = strcmp(text, "yes") == 0, no = strcmp(text, "no") == 0,
             table = strcmp(text, "table") == 0;

        if (*text && !yes && !no && !table && !strchr(text, '/')) { /* a word, or a file's name? */
                snprintf(why, SETTING_WHY, "give yes, no, table, or the path of a file with a / in "
                         "it, as in ./%.64s", text);
                return -EINVAL;
        }
        o->stats = !no;
        o->stats_table = table;
        free((void *)o->stats_file);
        o->stats_file = NULL;
        return yes || no || table ? 0 : text_parse(text, &o->stats_file, why);
}

static int set_stats_interval(struct options *o, const char *text, char why[SETTING_WHY])
{
        if (strcmp(text, "0") != 0)
                return seconds_parse(text, &o->stats_interval_ms, why);
        o->stats_interval_ms = 0;
        return 0;
}

static int set_profile(struct options *o, const char *text, char why[SETTING_WHY])
{
        if (strcmp(text, "yes") == 0) {
                snprintf(why, SETTING_WHY, "give no, or the path of a file, as in ./profile");
                return -EINVAL;
        }
        free((void *)o->profile);
        o->profile = NULL;
        return strcmp(text, "no") == 0 ? 0 : text_parse(text, &o->profile, why);
}

static int set_verbose(struct options *o, const char *text, char why[SETTING_WHY])
{
        return flag_parse(text, &o->verbose, why);
}

static int set_overcommit(struct options *o, const char *text, char why[SETTING_WHY])
{
        return flag_parse(text, &o->overcommit, why);
}

static int set_verify(struct options *o, const char *text, char why[SETTING_WHY])
{
        return flag_parse(text, &o->verify, why);
}

static int set_follow(struct options *o, const char *text, char why[SETTING_WHY])
{
        return flag_parse(text, &o->follow, why);
}

static const char *const policies[] = { [LOOKAHEAD_NONE] = "none",
                                        [LOOKAHEAD_READAHEAD] = "readahead",
                                        [LOOKAHEAD_TREND] = "trend",
                                        [LOOKAHEAD_AUTO] = "auto",
                                        [LOOKAHEAD_POINTERS] = "pointers",
                                        NULL };

static int set_prefetch(struct options *o, const char *text, char why[SETTING_WHY])
{
        int n, err = word_parse(text, policies, &n, why);
        if (!err)
                o->prefetch = (uint32_t)n;
        return err;
}

static int set_prefetch_window(struct options *o, const char *text, char why[SETTING_WHY])
{
        return number_parse(text, 1, LOOKAHEAD_MOST, &o->prefetch_window, why);
}

static int set_prefetch_history(struct options *o, const char *text, char why[SETTING_WHY])
{
        return number_parse(text, 4, LOOKAHEAD_HISTORY, &o->prefetch_history, why);
}

static int set_far(struct options *o, const char *text, char why[SETTING_WHY])
{
        static const char *const words[] = { "off", "on", NULL };
        int n, err = word_parse(text, words, &n, why);

        if (!err)
                o->far = n;
        return err;
}

static int set_control(struct options *o, const char *text, char why[SETTING_WHY])
{
        return flag_parse(text, &o->control, why);
}

static const char *const placements[] = { [PLACE_WEIGHTED] = "weighted",
                                          [PLACE_LINEAR] = "linear",
                                          [PLACE_FREE] = "free",
                                          NULL };

static int set_placement(struct options *o, const char *text, char why[SETTING_WHY])
{
        int n, err = word_parse(text, placements, &n, why);
        if (!err)
                o->placement = (enum placement)n;
        return err;
}

#define BANDWIDTH_MIN 1000000
#define BANDWIDTH_MAX 1000000000000000

/* Bytes a second, "12.5G", with the powers of 1000 that networks have. */
static int bandwidth_parse(const char *text, uint64_t *rate, char why[SETTING_WHY])
{
        static const char units[] = "KMGT";
        size_t whole = strspn(text, "0123456789");
        const char *fraction = text[whole] == '.' ? text + whole + 1 : text + whole;
        size_t places = strspn(fraction, "0123456789");
        const int last = toupper((unsigned char)fraction[places]);
        const char *unit = last ? strchr(units, last) : NULL;

        if (!whole || whole > 15 || places > 3 || (text[whole] == '.' && !places) ||
            (fraction[places] && (!unit || fraction[places + 1])))
                goto bad;
        uint64_t thousandths = strtoull(text, NULL, 10) * 1000;
        for (size_t i = 0, each = 100; i < places; i++, each /= 10)
                thousandths += (uint64_t)(fraction[i] - '0') * each;
        for (const char *u = units; unit && u <= unit; u++)
                if (__builtin_mul_overflow(thousandths, 1000, &thousandths))
                        goto bad;
        if (thousandths / 1000 < BANDWIDTH_MIN || thousandths / 1000 > BANDWIDTH_MAX)
                goto bad;
        *rate = thousandths / 1000;
        return 0;
bad:
        snprintf(why, SETTING_WHY,
                 "give bytes a second, from 1M to 1000T with K, M, G or T for powers of 1000, as "
                 "in 12.5G");
        return -EINVAL;
}

static int set_replicas(struct options *o, const char *text, char why[SETTING_WHY])
{
        return number_parse(text, 1, REPLICAS_MAX, &o->replicas, why);
}

static int set_rebuild_rate(struct options *o, const char *text, char why[SETTING_WHY])
{
        return strcmp(text, "0") == 0 ? (o->rebuild_rate = 0, 0)
                                      : bandwidth_parse(text, &o->rebuild_rate, why);
}

static int set_replicas_required(struct options *o, const char *text, char why[SETTING_WHY])
{
        return flag_parse(text, &o->replicas_required, why);
}

static int set_timeout(struct options *o, const char *text, char why[SETTING_WHY])
{
        return seconds_parse(text, &o->timeout_ms, why);
}

static int set_connect_timeout(struct options *o, const char *text, char why[SETTING_WHY])
{
        return seconds_parse(text, &o->connect_timeout_ms, why);
}

static const char *const io_words[] = {
        [IO_THREAD] = "thread", [IO_INLINE] = "inline", [IO_AUTO] = "auto", NULL
};

static int set_io(struct options *o, const char *text, char why[SETTING_WHY])
{
        int n, err = word_parse(text, io_words, &n, why);
        if (!err)
                o->io = n == IO_INLINE ? IO_INLINE : n == IO_THREAD ? IO_THREAD : IO_AUTO;
        return err;
}

/* --- what is set, as text that would set it --- */

/* True: a number. */
static bool show_flag(bool flag, char text[SETTING_TEXT])
{
        strcpy(text, flag ? "yes" : "no");
        return false;
}

static bool show_seconds(unsigned ms, char text[SETTING_TEXT])
{
        snprintf(text, SETTING_TEXT, ms % 1000 ? "%u.%03u" : "%u", ms / 1000, ms % 1000);
        return true;
}

static bool show_word(const char *word, char text[SETTING_TEXT])
{
        snprintf(text, SETTING_TEXT, "%s", word);
        return false;
}

static bool show_cache(const struct options *o, char text[SETTING_TEXT])
{
        snprintf(text, SETTING_TEXT, "%llu", (unsigned long long)o->cache);
        return true;
}

static bool show_stats(const struct options *o, char text[SETTING_TEXT])
{
        return show_word(!o->stats       ? "no"
                         : o->stats_file ? o->stats_file
                                         : o->stats_table ? "table"
                                                          : "yes",
                         text);
}

static bool show_stats_interval(const struct options *o, char text[SETTING_TEXT])
{
        return show_seconds(o->stats_interval_ms, text);
}

static bool show_profile(const struct options *o, char text[SETTING_TEXT])
{
        return show_word(o->profile ? o->profile : "no", text);
}

static bool show_verbose(const struct options *o, char text[SETTING_TEXT])
{
        return show_flag(o->verbose, text);
}

static bool show_overcommit(const struct options *o, char text[SETTING_TEXT])
{
        return show_flag(o->overcommit, text);
}

static bool show_follow(const struct options *o, char text[SETTING_TEXT])
{
        return show_flag(o->follow, text);
}

static bool show_verify(const struct options *o, char text[SETTING_TEXT])
{
        return show_flag(o->verify, text);
}

static bool show_number(uint32_t n, char text[SETTING_TEXT])
{
        snprintf(text, SETTING_TEXT, "%u", n);
        return true;
}

static bool show_prefetch(const struct options *o, char text[SETTING_TEXT])
{
        return show_word(policies[o->prefetch], text);
}

/* Leap's own for the policies that are not ours. */
uint32_t prefetch_window(const struct options *o)
{
        return o->prefetch_window                   ? o->prefetch_window
               : lookahead_has_streams(o->prefetch) ? LOOKAHEAD_MOST
                                                    : 8;
}

static bool show_prefetch_window(const struct options *o, char text[SETTING_TEXT])
{
        return show_number(prefetch_window(o), text);
}

static bool show_prefetch_history(const struct options *o, char text[SETTING_TEXT])
{
        return show_number(o->prefetch_history, text);
}

static bool show_far(const struct options *o, char text[SETTING_TEXT])
{
        return show_word(o->far ? "on" : "off", text);
}

static bool show_control(const struct options *o, char text[SETTING_TEXT])
{
        return show_flag(o->control, text);
}

static bool show_placement(const struct options *o, char text[SETTING_TEXT])
{
        return show_word(placements[o->placement], text);
}

static bool show_replicas(const struct options *o, char text[SETTING_TEXT])
{
        return show_number(o->replicas, text);
}

static bool show_rebuild_rate(const struct options *o, char text[SETTING_TEXT])
{
        snprintf(text, SETTING_TEXT, "%llu", (unsigned long long)o->rebuild_rate);
        return true;
}

static bool show_replicas_required(const struct options *o, char text[SETTING_TEXT])
{
        return show_flag(o->replicas_required, text);
}

static bool show_timeout(const struct options *o, char text[SETTING_TEXT])
{
        return show_seconds(o->timeout_ms, text);
}

static bool show_connect_timeout(const struct options *o, char text[SETTING_TEXT])
{
        return show_seconds(o->connect_timeout_ms, text);
}

static bool show_io(const struct options *o, char text[SETTING_TEXT])
{
        return show_word(io_words[o->io], text);
}

static const struct {
        const char *name;
        int (*set)(struct options *o, const char *text, char why[SETTING_WHY]);
        bool (*show)(const struct options *o, char text[SETTING_TEXT]);
} settings[] = {
        { "cache", set_cache, show_cache },
        { "stats", set_stats, show_stats },
        { "stats-interval", set_stats_interval, show_stats_interval },
        { "profile", set_profile, show_profile },
        { "verbose", set_verbose, show_verbose },
        { "overcommit", set_overcommit, show_overcommit },
        { "follow", set_follow, show_follow },
        { "verify", set_verify, show_verify },
        { "prefetch", set_prefetch, show_prefetch },
        { "prefetch-window", set_prefetch_window, show_prefetch_window },
        { "prefetch-history", set_prefetch_history, show_prefetch_history },
        { "far", set_far, show_far },
        { "control", set_control, show_control },
        { "placement", set_placement, show_placement },
        { "replicas", set_replicas, show_replicas },
        { "replicas-required", set_replicas_required, show_replicas_required },
        { "rebuild-rate", set_rebuild_rate, show_rebuild_rate },
        { "timeout", set_timeout, show_timeout },
        { "connect-timeout", set_connect_timeout, show_connect_timeout },
        { "io", set_io, show_io },
};
_Static_assert(sizeof(settings) / sizeof(settings[0]) <= SETTINGS_MAX, "raise SETTINGS_MAX");

int setting_find(const char *name)
{
        for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++)
                if (strcmp(settings[i].name, name) == 0)
                        return (int)i;
        return -ENOENT;
}

void setting_unknown(const char *key, const char *value, char why[SETTING_WHY])
{
        const size_t n = sizeof(settings) / sizeof(settings[0]);
        const char *words[SETTINGS_MAX];

        for (size_t i = 0; i < n; i++)
                words[i] = settings[i].name;
        if (strncmp(key, "node", 4) == 0 || strcmp(key, "url") == 0)
                snprintf(why, SETTING_WHY, "unknown key in [vmrun]: a node has a section of its "
                         "own: [node NAME], and below it url = %.64s", value);
        else
                say_unknown(key, value, words, n, " in [vmrun]", why);
}

int setting_set(struct options *o, int number, const char *value, char why[SETTING_WHY])
{
        return settings[number].set(o, value, why);
}

const char *setting_name(int number)
{
        return (size_t)number < sizeof(settings) / sizeof(settings[0]) ? settings[number].name
                                                                       : NULL;
}

bool setting_show(const struct options *o, int number, char text[SETTING_TEXT])
{
        return settings[number].show(o, text);
}

void settings_default(struct options *o)
{
        o->placement = PLACE_WEIGHTED;
        o->replicas = 1;
        o->rebuild_rate = 100000000;
        o->timeout_ms = 10000;
        o->connect_timeout_ms = 5000;
        o->io = IO_AUTO;
        o->follow = true;
        o->verify = true;
        o->prefetch = LOOKAHEAD_AUTO;
        o->prefetch_history = 32;
        o->far = true;
        o->control = true;
}

/* --- nodes --- */

enum node_key {
        KEY_URL,
        KEY_SIZE,
        KEY_WEIGHT,
        KEY_DOMAIN,
        KEY_TOKEN_FILE,
        KEY_DEVICE,
        KEY_GID_INDEX,
        KEY_OVERWRITE,
        KEY_LATENCY,
        KEY_BANDWIDTH,
        KEY_PRIORITY,
        KEYS
};
static const char *const node_keys[KEYS] = {
        "url", "size", "weight", "domain", "token-file", "device", "gid-index", "overwrite",
        "latency", "bandwidth", "priority",
};

void node_draft_init(struct node_draft *d)
{
        *d = (struct node_draft){ .node = { .weight = 1, .gid_index = -1 } };
}

static bool has_scheme(const char *url, const char *scheme)
{
        size_t n = strlen(scheme);
        return strncmp(url, scheme, n) == 0 && url[n] == ':';
}

/* "%2F" to "/", in place; -EINVAL: no two hexadecimal digits follow a %, or they are 00. */
static int percent_decode(char *text)
{
        char *to = text;
        for (const char *s = text; *s; s++) {
                if (*s != '%') {
                        *to++ = *s;
                        continue;
                }
                if (!isxdigit((unsigned char)s[1]) || !isxdigit((unsigned char)s[2]))
                        return -EINVAL;
                char hex[3] = { s[1], s[2], 0 };
                *to = (char)strtoul(hex, NULL, 16);
                if (!*to++)
                        return -EINVAL;
                s += 2;
        }
        *to = '\0';
        return 0;
}

/* Does a pair of the query belong to the URL itself and not to vmrun?
 * nbd+unix:///EXPORT?socket=PATH is a URL for libnbd. */
static bool belongs_to_url(const char *url, const char *pair)
{
        return has_scheme(url, "nbd+unix") && strncmp(pair, "socket=", 7) == 0;
}

static int set_from_query(struct node_draft *d, char *pair, char why[SETTING_WHY])
{
        char *value = strchr(pair, '='), reason[SETTING_WHY];
        int err;

        if (!value) {
                snprintf(why, SETTING_WHY,
                         "'%.64s' after the ? has no value: give size=, weight=, priority=, "
                         "domain=, "
                         "token-file=, device=, gid-index=, overwrite=, latency= or bandwidth=",
                         pair);
                return -EINVAL;
        }
        *value++ = '\0';
        if (percent_decode(value) != 0) {
                snprintf(why, SETTING_WHY,
                         "%.64s=%.64s: a %% must be followed by two hexadecimal digits: give %%25 "
                         "for itself",
                         pair, value);
                return -EINVAL;
        }
        err = strcmp(pair, "url") == 0 ? -ENOENT : node_draft_set(d, pair, value, reason);
        if (err == -ENOENT)
                snprintf(why, SETTING_WHY,
                         "unknown option '%.64s' after the ?: give size, weight, priority, "
                         "domain, token-file, device, gid-index, overwrite, latency or bandwidth",
                         pair);
        else if (err)
                snprintf(why, SETTING_WHY, "%.32s=%.64s: %.200s", pair, value, reason);
        return err == -ENOENT ? -EINVAL : err;
}

/* Removes vmrun's own options from the URL's query. */
static int set_url(struct node_draft *d, const char *text, char why[SETTING_WHY])
{
        const char *copy;
        char *query, *kept, *next;
        int err = text_parse(text, &copy, why);

        if (err)
                return err;
        d->node.url = copy;
        kept = strchr(copy, '?');
        if (!kept)
                return 0;
        *kept = '\0';
        query = strdup(text + (kept - copy) + 1);
        if (!query) {
                snprintf(why, SETTING_WHY, "out of memory: free some on this host");
                return -ENOMEM;
        }
        char mark = '?';
        for (char *pair = query; pair && !err; pair = next) {
                next = strchr(pair, '&');
                if (next)
                        *next++ = '\0';
                if (belongs_to_url(copy, pair)) {
                        /* there is room: the mark was in the text, here or later */
                        *kept++ = mark;
                        mark = '&';
                        kept = stpcpy(kept, pair);
                } else {
                        err = set_from_query(d, pair, why);
                }
        }
        free(query);
        return err;
}

static int set_size(struct node_draft *d, const char *text, char why[SETTING_WHY])
{
        uint64_t bytes;
        int err = size_parse(text, &bytes);

        if (!err && bytes >= PAGE_SIZE) {
                d->node.size = bytes & ~(uint64_t)(PAGE_SIZE - 1);
                return 0;
        }
        if (err == -EINVAL)
                snprintf(why, SETTING_WHY,
                         "this is no size: give a whole number with K, M, G or T, as in 4G");
        else
                snprintf(why, SETTING_WHY, "too %s",
                         err ? "large: give less than 8388608T"
                             : "small: give at least one page of 4K");
        return -EINVAL;
}

#define LATENCY_MAX   500000000         /* ns */
int node_draft_set(struct node_draft *d, const char *key, const char *value, char why[SETTING_WHY])
{
        unsigned number;
        int k = 0, err;

        while (k < KEYS && strcmp(node_keys[k], key) != 0)
                k++;
        if (k == KEYS) {
                say_unknown(key, value, node_keys, KEYS, "", why);
                return -ENOENT;
        }
        if (d->given & 1u << k) {
                snprintf(why, SETTING_WHY, "given twice for this node: leave one out");
                return -EEXIST;
        }
        d->given |= 1u << k;
        switch ((enum node_key)k) {
        case KEY_URL:
                return set_url(d, value, why);
        case KEY_SIZE:
                return set_size(d, value, why);
        case KEY_WEIGHT:
                return number_parse(value, 1, WEIGHT_MAX, &d->node.weight, why);
        case KEY_DOMAIN:
                return text_parse(value, &d->node.domain, why);
        case KEY_TOKEN_FILE:
                return text_parse(value, &d->node.token_file, why);
        case KEY_DEVICE:
                return text_parse(value, &d->node.device, why);
        case KEY_GID_INDEX:
                err = number_parse(value, 0, 65535, &number, why);
                if (!err)
                        d->node.gid_index = (int)number;
                return err;
        case KEY_OVERWRITE:
                return flag_parse(value, &d->node.overwrite, why);
        case KEY_LATENCY:
                err = number_parse(value, 0, LATENCY_MAX, &number, why);
                if (!err)
                        d->node.latency = number;
                return err;
        case KEY_BANDWIDTH:
                return bandwidth_parse(value, &d->node.bandwidth, why);
        case KEY_PRIORITY:
                return number_parse(value, 0, PRIORITY_MAX, &d->node.priority, why);
        default:
                return -ENOENT;
        }
}

int node_draft_check(const struct node_draft *d, char why[SETTING_WHY])
{
        const struct node_option *n = &d->node;

        if (!n->url)
                snprintf(why, SETTING_WHY, "the node has no url: give one, as in url = rdma://m1");
        else if (n->token_file && (has_scheme(n->url, "mem") || has_scheme(n->url, "dax") ||
                                   has_scheme(n->url, "file")))
                snprintf(why, SETTING_WHY, "%s takes no token-file: leave it out",
                         has_scheme(n->url, "file") ? "a file" : "memory of this host");
        else if ((n->device || n->gid_index >= 0) && !has_scheme(n->url, "rdma"))
                snprintf(why, SETTING_WHY,
                         "device and gid-index are for rdma:// only: leave them out");
        else if ((d->given & 1u << KEY_OVERWRITE) && !has_scheme(n->url, "dax") &&
                 !has_scheme(n->url, "file"))
                snprintf(why, SETTING_WHY, "overwrite is for dax: and file: only: leave it out");
        else if ((d->given & (1u << KEY_LATENCY | 1u << KEY_BANDWIDTH)) &&
                 !has_scheme(n->url, "mem") && !has_scheme(n->url, "dax"))
                snprintf(why, SETTING_WHY,
                         "latency and bandwidth are for mem: and dax: only: a node has its own, so "
                         "leave them out");
        else
                return 0;
        return -EINVAL;
}

void node_option_free(struct node_option *n)
{
        /* The name is the url if the user gave no other. */
        if (n->name != n->url)
                free((void *)n->name);
        free((void *)n->url);
        free((void *)n->origin);
        free((void *)n->domain);
        free((void *)n->token_file);
        free((void *)n->device);
        *n = (struct node_option){ .weight = 1, .gid_index = -1 };
}
