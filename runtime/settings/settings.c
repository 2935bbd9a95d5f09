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
#include "common/size.h"
#include "settings/settings.h"

/* 64 frames a vCPU: with fewer, a fault could need more frames than there are. */
#define CACHE_MIN  (64ull * PAGE_SIZE)
#define WEIGHT_MAX 1000
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
        bool yes = strcmp(text, "yes") == 0, no = strcmp(text, "no") == 0;

        if (*text && !yes && !no && !strchr(text, '/')) {       /* a word, or the name of a file? */
                snprintf(why, SETTING_WHY, "give yes, no, or the path of a file with a / in it, "
                         "as in ./%.64s", text);
                return -EINVAL;
        }
        o->stats = !no;
        free((void *)o->stats_file);
        o->stats_file = NULL;
        return yes || no ? 0 : text_parse(text, &o->stats_file, why);
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

static int set_prefetch(struct options *o, const char *text, char why[SETTING_WHY])
{
        (void)o;
        if (strcmp(text, "none") == 0)
                return 0;
        snprintf(why, SETTING_WHY, "this version fetches pages on demand only: give none");
        return -EINVAL;
}

static int set_placement(struct options *o, const char *text, char why[SETTING_WHY])
{
        static const char *const words[] = { [PLACE_WEIGHTED] = "weighted",
                                             [PLACE_LINEAR] = "linear",
                                             [PLACE_FREE] = "free",
                                             NULL };
        int n, err = word_parse(text, words, &n, why);
        if (!err)
                o->placement = (enum placement)n;
        return err;
}

static int set_timeout(struct options *o, const char *text, char why[SETTING_WHY])
{
        return seconds_parse(text, &o->timeout_ms, why);
}

static int set_connect_timeout(struct options *o, const char *text, char why[SETTING_WHY])
{
        return seconds_parse(text, &o->connect_timeout_ms, why);
}

static int set_io(struct options *o, const char *text, char why[SETTING_WHY])
{
        static const char *const words[] = { [IO_THREAD] = "thread", [IO_INLINE] = "inline", NULL };
        int n, err = word_parse(text, words, &n, why);
        if (!err)
                o->io = n == IO_INLINE ? IO_INLINE : IO_THREAD;
        return err;
}

static const struct {
        const char *name;
        int (*set)(struct options *o, const char *text, char why[SETTING_WHY]);
} settings[] = {
        { "cache", set_cache },
        { "stats", set_stats },
        { "verbose", set_verbose },
        { "overcommit", set_overcommit },
        { "follow", set_follow },
        { "verify", set_verify },
        { "prefetch", set_prefetch },
        { "placement", set_placement },
        { "timeout", set_timeout },
        { "connect-timeout", set_connect_timeout },
        { "io", set_io },
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

void settings_default(struct options *o)
{
        o->placement = PLACE_WEIGHTED;
        o->timeout_ms = 10000;
        o->connect_timeout_ms = 5000;
        o->io = IO_THREAD;
        o->follow = true;
        o->verify = true;
}

/* --- nodes --- */

enum node_key {
        KEY_URL,
        KEY_SIZE,
        KEY_WEIGHT,
        KEY_TOKEN_FILE,
        KEY_DEVICE,
        KEY_GID_INDEX,
        KEY_OVERWRITE,
        KEYS
};
static const char *const node_keys[KEYS] = {
        "url", "size", "weight", "token-file", "device", "gid-index", "overwrite",
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
                         "'%.64s' after the ? has no value: give size=, weight=, token-file=, "
                         "device=, gid-index= or overwrite=",
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
                         "unknown option '%.64s' after the ?: give size, weight, token-file, "
                         "device, gid-index or overwrite",
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
        default:
                return -ENOENT;
        }
}

int node_draft_check(const struct node_draft *d, char why[SETTING_WHY])
{
        const struct node_option *n = &d->node;

        if (!n->url)
                snprintf(why, SETTING_WHY, "the node has no url: give one, as in url = rdma://m1");
        else if (n->token_file && (has_scheme(n->url, "mem") || has_scheme(n->url, "dax")))
                snprintf(why, SETTING_WHY, "memory of this host takes no token-file: leave it out");
        else if ((n->device || n->gid_index >= 0) && !has_scheme(n->url, "rdma"))
                snprintf(why, SETTING_WHY,
                         "device and gid-index are for rdma:// only: leave them out");
        else if ((d->given & 1u << KEY_OVERWRITE) && !has_scheme(n->url, "dax"))
                snprintf(why, SETTING_WHY, "overwrite is for dax: only: leave it out");
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
        free((void *)n->token_file);
        free((void *)n->device);
        *n = (struct node_option){ .weight = 1, .gid_index = -1 };
}
