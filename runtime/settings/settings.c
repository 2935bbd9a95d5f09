/*
 * The settings of the section [vmrun], each with how it is set and shown.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/host.h"
#include "base/options.h"
#include "layout.h"
#include "pager/lookahead.h"
#include "common/size.h"
#include "settings/settings.h"
#include "settings/unknown.h"
#include "settings/values.h"

/* 64 frames a vCPU: with fewer, a fault could need more frames than there are. */
#define CACHE_MIN (64ull * PAGE_SIZE)

/* "25%": of the host's memory, or of the control group's limit.  -ENOENT: no such value. */
static int percent_parse(const char *text, uint64_t memory, uint64_t *bytes)
{
        const size_t digits = strspn(text, "0123456789");
        unsigned long n = digits && digits <= 3 ? strtoul(text, NULL, 10) : 0;

        if (strcmp(text + digits, "%") != 0)
                return -ENOENT;
        *bytes = memory / 100 * n + memory % 100 * n / 100;
        return n >= 1 && n <= 100 ? 0 : -EDOM;
}

static void say_too_large(uint64_t memory, char why[SETTING_WHY])
{
        const char *limit = host_memory_limit();
        char a[32], b[32];

        size_text(memory, a);
        size_text(host_memory_available(), b);
        if (limit)
                snprintf(why, SETTING_WHY, "larger than the %s that its control group may use "
                         "(%.100s): give less, %s is free now, or raise that limit; what does not "
                         "fit goes to the far tier (--node)", a, limit, b);
        else
                snprintf(why, SETTING_WHY, "larger than this host's memory of %s: give less, %s is "
                         "available now; what does not fit goes to the far tier (--node)", a, b);
}

static int set_cache(struct options *o, const char *text, char why[SETTING_WHY])
{
        uint64_t bytes, memory = host_memory_total();

        int err = percent_parse(text, memory, &bytes);
        if (err == -ENOENT)
                err = size_parse(text, &bytes);
        if (err == -EINVAL)
                snprintf(why, SETTING_WHY, "this is no size: give a whole number with K, M, G or "
                         "T, as in 4G, or a part of this host's memory, as in 25%%");
        else if (err == -EDOM)
                snprintf(why, SETTING_WHY, "give a whole number from 1%% to 100%%");
        else if (!err && bytes < CACHE_MIN)
                snprintf(why, SETTING_WHY,
                         "too small, a program needs at least 64 pages here: give 256K or more");
        else if (err || (memory && bytes > memory))
                say_too_large(memory, why);
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

static const char *const direct_words[] = {
        [DIRECT_AUTO] = "auto", [DIRECT_ON] = "on", [DIRECT_OFF] = "off", NULL
};

static int set_direct(struct options *o, const char *text, char why[SETTING_WHY])
{
        int n, err = word_parse(text, direct_words, &n, why);
        if (!err)
                o->direct = (enum direct_mode)n;
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

/* By default a policy without streams has Leap's own window. */
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

static bool show_direct(const struct options *o, char text[SETTING_TEXT])
{
        return show_word(direct_words[o->direct], text);
}

static const struct {
        const char *name;
        int (*set)(struct options *o, const char *text, char why[SETTING_WHY]);
        bool (*show)(const struct options *o, char text[SETTING_TEXT]);
        const char *unit;
} settings[] = {
        { "cache", set_cache, show_cache, "bytes" },
        { "stats", set_stats, show_stats, NULL },
        { "stats-interval", set_stats_interval, show_stats_interval, "seconds" },
        { "profile", set_profile, show_profile, NULL },
        { "verbose", set_verbose, show_verbose, NULL },
        { "overcommit", set_overcommit, show_overcommit, NULL },
        { "follow", set_follow, show_follow, NULL },
        { "verify", set_verify, show_verify, NULL },
        { "prefetch", set_prefetch, show_prefetch, NULL },
        { "prefetch-window", set_prefetch_window, show_prefetch_window, "pages" },
        { "prefetch-history", set_prefetch_history, show_prefetch_history, "faults" },
        { "far", set_far, show_far, NULL },
        { "control", set_control, show_control, NULL },
        { "placement", set_placement, show_placement, NULL },
        { "replicas", set_replicas, show_replicas, NULL },
        { "replicas-required", set_replicas_required, show_replicas_required, NULL },
        { "rebuild-rate", set_rebuild_rate, show_rebuild_rate, "bytes a second" },
        { "timeout", set_timeout, show_timeout, "seconds" },
        { "connect-timeout", set_connect_timeout, show_connect_timeout, "seconds" },
        { "io", set_io, show_io, NULL },
        { "direct", set_direct, show_direct, NULL },
};
_Static_assert(sizeof(settings) / sizeof(settings[0]) <= SETTINGS_MAX, "raise SETTINGS_MAX");

int setting_find(const char *name)
{
        for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++)
                if (strcmp(settings[i].name, name) == 0)
                        return (int)i;
        return -ENOENT;
}

void setting_unknown(const char *key, const char *value, const char *what, char why[SETTING_WHY])
{
        const size_t n = sizeof(settings) / sizeof(settings[0]);
        const char *words[SETTINGS_MAX];

        for (size_t i = 0; i < n; i++)
                words[i] = settings[i].name;
        unknown_say(key, value, words, n, what, why);
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

const char *setting_unit(int number) { return settings[number].unit; }

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
