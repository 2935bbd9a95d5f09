/*
 * Settings of a program that runs: names, values and messages are those of options.
 *
 * opt is changed by this thread alone.  What other threads read of it meanwhile are single words,
 * which order nothing.
 */
#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include "abi_control.h"
#include "base/message.h"
#include "base/options.h"
#include "common/json.h"
#include "common/size.h"
#include "control/running.h"
#include "settings/settings.h"
#include "stats/interval.h"
#include "vm/vm.h"

static void store(_Atomic uint32_t *word, uint32_t v)
{
        atomic_store_explicit(word, v, memory_order_relaxed);
}

void running_apply(void)
{
        struct control *c = CONTROL;

        store(&c->prefetch_policy, opt.prefetch);
        store(&c->prefetch_window, prefetch_window(&opt));
        store(&c->prefetch_history, opt.prefetch_history);
        store(&c->far_off, !opt.far);
}

/* ---- what can change ---- */

#define TAKE(field, to, from) __atomic_store_n(&(to)->field, (from)->field, __ATOMIC_RELAXED)

static int take_prefetch(struct vm *vm, const struct options *o, char why[CTL_WHY])
{
        (void)vm, (void)why;
        TAKE(prefetch, &opt, o);
        TAKE(prefetch_window, &opt, o);
        TAKE(prefetch_history, &opt, o);
        running_apply();
        return 0;
}

static int take_far(struct vm *vm, const struct options *o, char why[CTL_WHY])
{
        (void)why;
        TAKE(far, &opt, o);
        running_apply();
        vm->calls->wake_service();
        return 0;
}

static int take_verbose(struct vm *vm, const struct options *o, char why[CTL_WHY])
{
        (void)vm, (void)why;
        TAKE(verbose, &opt, o);
        message_verbose(opt.verbose);
        return 0;
}

static int take_interval(struct vm *vm, const struct options *o, char why[CTL_WHY])
{
        (void)vm;
        if (!opt.stats) {
                snprintf(why, CTL_WHY, "the program was started without --stats, so nothing is "
                         "reported: use vmctl PID stats or vmctl PID watch");
                return -EINVAL;
        }
        stats_interval_rest();
        TAKE(stats_interval_ms, &opt, o);
        stats_interval_start();
        return 0;
}

static const struct {
        const char *name;
        int (*take)(struct vm *vm, const struct options *o, char why[CTL_WHY]);
} changes[] = {
        { "prefetch", take_prefetch },
        { "prefetch-window", take_prefetch },
        { "prefetch-history", take_prefetch },
        { "far", take_far },
        { "verbose", take_verbose },
        { "stats-interval", take_interval },
};
#define CHANGES (sizeof(changes) / sizeof(changes[0]))

static int change_of(const char *name)
{
        for (size_t i = 0; i < CHANGES; i++)
                if (strcmp(changes[i].name, name) == 0)
                        return (int)i;
        return -1;
}

/* ---- requests ---- */

static int find(const char *name, const char *value, char why[CTL_WHY])
{
        char reason[SETTING_WHY];
        int n = setting_find(name);

        if (n < 0) {
                setting_unknown(name, value, "no such setting", reason);
                snprintf(why, CTL_WHY, "%.64s: %s", name, reason);
        }
        return n;
}

/* For people: with its unit, and "4M" where that is exact. */
static void print_value(int n, const char *text, FILE *f)
{
        const char *unit = setting_unit(n);
        uint64_t bytes, again;
        char size[32];

        if (unit && strcmp(unit, "bytes") == 0 && size_parse(text, &bytes) == 0 &&
            size_parse(size_text(bytes, size), &again) == 0 && again == bytes)
                fprintf(f, "%s\n", size);
        else
                fprintf(f, "%s%s%s\n", text, unit ? " " : "", unit ? unit : "");
}

static void print(int n, enum form form, const char *before, FILE *f)
{
        char text[SETTING_TEXT];
        bool number = setting_show(&opt, n, text);

        if (form != FORM_JSON) {
                fprintf(f, "%s%s=", before, setting_name(n));
                print_value(n, text, f);
                return;
        }
        fputs(before, f);
        json_string(f, setting_name(n));
        fputs(": ", f);
        if (number)
                fputs(text, f);
        else
                json_string(f, text);
}

int running_get(const char *name, enum form form, FILE *f, char why[CTL_WHY])
{
        const char *const between = form == FORM_JSON ? ",\n  " : "";
        int only = *name ? find(name, "", why) : -1;

        if (*name && only < 0)
                return only;
        fputs(form == FORM_JSON ? "{\n  " : "", f);
        for (int n = 0; setting_name(n); n++)
                if (only < 0 || n == only)
                        print(n, form, n && n != only ? between : "", f);
        fputs(form == FORM_JSON ? "\n}\n" : "", f);
        return 0;
}

int running_set(struct vm *vm, const char *setting, char why[CTL_WHY])
{
        char name[64], reason[SETTING_WHY];
        const char *value = strchr(setting, '=');
        struct options o = opt;

        if (!value || value == setting || (size_t)(value - setting) >= sizeof(name)) {
                snprintf(why, CTL_WHY,
                         "'%.64s' is no setting: give NAME=VALUE, as in prefetch=none", setting);
                return -EINVAL;
        }
        snprintf(name, sizeof(name), "%.*s", (int)(value - setting), setting);
        int n = find(name, ++value, why);
        if (n < 0)
                return n;
        int c = change_of(name);
        if (c < 0) {
                snprintf(why, CTL_WHY, "%s: it cannot be changed while the program runs, only at "
                         "its start: with --%s, or in the configuration file; what can be changed: "
                         "prefetch, prefetch-window, prefetch-history, far, verbose and "
                         "stats-interval", name, name);
                return -EPERM;
        }
        int err = setting_set(&o, n, value, reason);
        if (err) {
                snprintf(why, CTL_WHY, "%s=%.64s: %s", name, value, reason);
                return err;
        }
        char cause[CTL_WHY - 80];
        err = changes[c].take(vm, &o, cause);
        if (err)
                snprintf(why, CTL_WHY, "%s: %s", name, cause);
        return err;
}
