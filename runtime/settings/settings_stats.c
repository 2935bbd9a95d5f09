/*
 * The settings of this run, as a part of --stats.
 */
#include "settings/settings.h"
#include "settings/settings_stats.h"
#include "stats/stats.h"

void settings_stats(struct stats *s)
{
        static const struct stats_kind setting = {
                .key = "setting.%", .type = STATS_TEXT, .help = "Settings of this run",
        };
        char text[SETTING_TEXT];

        for (int n = 0; setting_name(n); n++) {
                bool number = setting_show(&opt, n, text);
                stats_text(s, &setting, setting_name(n), text, number);
        }
        if (opt.config)
                stats_text(s, &setting, "config", opt.config, false);
}
