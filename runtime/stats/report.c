/*
 * Where --stats goes: the last report, and the reports of --stats-interval.
 *
 * A file is replaced as a whole (common/outfile.h), so that a program that waits for it sees a
 * whole report or none.  A pipe or a terminal is written to.  Other threads may report at any time
 * (interval.c); the lock makes them take turns.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/message.h"
#include "base/options.h"
#include "base/privfd.h"
#include "common/clock.h"
#include "common/put.h"
#include "stats/model.h"
#include "stats/report.h"
#include "stats/write.h"

#define READER_MS 5000          /* the longest wait for a reader that takes nothing */

/* Where the report goes. */
static struct stats_place place = { .file = OUTFILE_NONE, .direct_fd = -1 };

pthread_mutex_t stats_lock = PTHREAD_MUTEX_INITIALIZER;
/* Under stats_lock: */
static bool over;                       /* the last report was printed */
static char ended[8];                   /* how the program ended; "": it runs */

bool stats_has_file(void) { return opt.stats_file && place.direct_fd < 0; }

/* The suffix that decides the format, with its dot; "": none. */
static const char *suffix_of(const char *name, enum stats_format *format)
{
        static const struct { const char *suffix; enum stats_format format;
        } known[] = { { ".json", STATS_JSON }, { ".prom", STATS_PROM } };
        size_t n = strlen(name);

        *format = STATS_FLAT;
        for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
                size_t len = strlen(known[i].suffix);
                if (n > len && strcmp(name + n - len, known[i].suffix) == 0) {
                        *format = known[i].format;
                        return name + n - len;
                }
        }
        return name + n;
}

/* The name of the file that this process writes. */
static void file_name(char name[NAME_MAX + 1])
{
        enum stats_format format;

        outfile_name(&place.file, (size_t)(suffix_of(place.file.name, &format) - place.file.name),
                     name);
}

/* --- the process that the report is of --- */

/* That of its file, so that two files of a folder have two; without a file the process id. */
static void add_name(struct stats *s)
{
        static const struct stats_kind kind = { .key = "name", .type = STATS_TEXT };
        enum stats_format format;
        char name[NAME_MAX + 1];

        if (stats_has_file()) {
                file_name(name);
                name[suffix_of(name, &format) - name] = 0;
        } else {
                snprintf(name, sizeof(name), "%d", getpid());
        }
        stats_text(s, &kind, NULL, name, false);
}

static void add_identity(struct stats *s)
{
        static const struct stats_kind version = {
                .key = "vmrun_statistics", .type = STATS_GAUGE,
                .help = "Version of the flat format",
        }, pid = {
                .key = "pid", .type = STATS_GAUGE, .help = "Process id",
        }, execs = {
                .key = "execs", .type = STATS_GAUGE, .help = "Calls of execve since the start",
        }, end = {
                .key = "ended", .type = STATS_GAUGE, .metric = "ended", .label = "status",
                .help = "1 with its exit status if the program has ended, or with execve",
        };

        stats_count(s, &version, NULL, 1);
        stats_count(s, &pid, NULL, (uint64_t)getpid());
        stats_count(s, &execs, NULL, place.file.execs);
        stats_count(s, &end, ended, *ended != 0);
        add_name(s);
}

/* --- where it goes --- */

static _Noreturn void cannot_write(int err)
{
        die_(EXIT_VMRUN_FAILED, "--stats=%s: cannot be written: %s: %s", opt.stats_file,
             strerror(-err), outfile_cure(err));
}

void stats_init(void)
{
        struct stat st;

        if (!opt.stats)
                return;
        if (!opt.stats_file) {
                place.format = opt.stats_table || (message_fd() >= 0 && isatty(message_fd()))
                                       ? STATS_TABLE : STATS_FLAT;
                return;
        }
        const char *slash = strrchr(opt.stats_file, '/');
        suffix_of(slash ? slash + 1 : opt.stats_file, &place.format);
        if (stat(opt.stats_file, &st) == 0 && !S_ISREG(st.st_mode)) {
                place.direct_fd = PRIVFD_NEW(open(opt.stats_file, O_WRONLY | O_CLOEXEC | O_NOCTTY));
                if (place.direct_fd < 0)
                        cannot_write(S_ISDIR(st.st_mode) ? -EISDIR : place.direct_fd);
                return;
        }
        int err = outfile_open(&place.file, opt.stats_file, privfd_move);
        if (err)
                cannot_write(err);
}

void stats_register_identity(void) { stats_register(add_identity); }

void stats_keep(struct stats_place *p)
{
        *p = place;
        p->file.execs++;
}

void stats_adopt(const struct stats_place *p)
{
        place = *p;
}

/* 0, or -errno; the caller frees *text. */
static int make_text(char **text, size_t *size)
{
        FILE *f = open_memstream(text, size);
        if (!f)
                return -errno;
        int err = stats_put(f, place.format);
        bool bad = ferror(f);
        bad |= fclose(f) != 0;
        return err ? err : bad ? -ENOMEM : 0;
}

static void replace_file(bool last)
{
        static bool failed;             /* said once, and at the end */
        char name[NAME_MAX + 1], *text = NULL;
        size_t size = 0;

        file_name(name);
        int err = make_text(&text, &size);
        if (!err)
                err = outfile_replace(&place.file, name, text, size);
        free(text);
        if (err && (last || !failed))
                warnx_("--stats=%s: could not be written: %s", opt.stats_file, strerror(-err));
        failed = err;
}

static void print_to(int fd)
{
        char *text = NULL;
        size_t size = 0;

        int err = make_text(&text, &size);
        if (!err && !put_all(fd, text, size, READER_MS))
                err = -errno;
        free(text);
        if (err)
                warnx_("the statistics could not be written: %s", strerror(-err));
}

void stats_print_report(bool last)
{
        if (over)
                return;
        over = last;
        if (stats_has_file())
                replace_file(last);
        else
                print_to(opt.stats_file ? place.direct_fd : message_fd());
}

int stats_snapshot(struct stats *s)
{
        pthread_mutex_lock(&stats_lock);
        int err = stats_collect(s);
        pthread_mutex_unlock(&stats_lock);
        return err;
}

int stats_write(FILE *f, enum stats_format format)
{
        pthread_mutex_lock(&stats_lock);
        int err = stats_put(f, format);
        pthread_mutex_unlock(&stats_lock);
        return err;
}

int stats_reset(void)
{
        pthread_mutex_lock(&stats_lock);
        int err = stats_rebase();
        pthread_mutex_unlock(&stats_lock);
        return err;
}

void stats_report(int status)
{
        /* A thread that reports meanwhile may wait for its reader. */
        if (!opt.stats || !lock_within(&stats_lock, READER_MS))
                return;
        if (status == STATS_EXECVE)
                strcpy(ended, "execve");
        else
                snprintf(ended, sizeof(ended), "%d", status & 255);
        stats_print_report(true);
        pthread_mutex_unlock(&stats_lock);
}

bool stats_is_over(void) { return over; }

void stats_goes_on(void)
{
        pthread_mutex_lock(&stats_lock);
        over = false;
        *ended = 0;
        pthread_mutex_unlock(&stats_lock);
}
