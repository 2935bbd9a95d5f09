/*
 * Where --stats goes: the last report, and those of --stats-interval.
 *
 * A file is replaced as a whole, so that whoever waits for it sees all of it or nothing.  A pipe or
 * a terminal is written to.  Other threads may report at any time (interval.c); the lock makes them
 * take turns.
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

#define READER_MS 5000          /* the longest wait for a reader that takes nothing */

/* Where the report goes. */
static struct stats_place place = { .dir_fd = -1, .direct_fd = -1 };

pthread_mutex_t stats_lock = PTHREAD_MUTEX_INITIALIZER;
static bool over;                       /* the last report was printed; under stats_lock */

/* --- what the report is of --- */

static void add_identity(struct stats *s)
{
        static const struct stats_kind version = {
                .key = "vmrun_statistics", .type = STATS_GAUGE,
                .help = "Version of the flat format",
        }, pid = {
                .key = "pid", .type = STATS_GAUGE, .help = "Process id",
        }, execs = {
                .key = "execs", .type = STATS_GAUGE, .help = "Calls of execve since the start",
        };

        stats_count(s, &version, NULL, 1);
        stats_count(s, &pid, NULL, (uint64_t)getpid());
        stats_count(s, &execs, NULL, place.execs);
}

/* --- where it goes --- */

static _Noreturn void cannot_write(int err)
{
        const char *cure = err == EISDIR ? "name a file in it" :
                           err == ENOENT || err == ENOTDIR ? "make its folder first" :
                           err == ENAMETOOLONG ? "give a shorter name" :
                           "name a file where this user may write";
        die_(EXIT_VMRUN_FAILED, "--stats=%s: cannot be written: %s: %s", opt.stats_file,
             strerror(err), cure);
}

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

void stats_init(void)
{
        char *real, *slash;
        struct stat st;

        if (!opt.stats)
                return;
        if (!opt.stats_file) {
                place.format = opt.stats_table || (message_fd() >= 0 && isatty(message_fd()))
                                       ? STATS_TABLE : STATS_FLAT;
                return;
        }
        slash = strrchr(opt.stats_file, '/');
        suffix_of(slash ? slash + 1 : opt.stats_file, &place.format);
        /* replace what a link points to, not the link */
        real = realpath(opt.stats_file, NULL);
        if (real && stat(real, &st) == 0 && !S_ISREG(st.st_mode)) {
                place.direct_fd = PRIVFD_NEW(open(real, O_WRONLY | O_CLOEXEC | O_NOCTTY));
                if (place.direct_fd < 0)
                        cannot_write(S_ISDIR(st.st_mode) ? EISDIR : -place.direct_fd);
                free(real);
                return;
        }
        if (!real && !(real = strdup(opt.stats_file)))
                cannot_write(ENOMEM);
        slash = strrchr(real, '/');
        const char *name = slash ? slash + 1 : real;
        if (!*name || strlen(name) > NAME_MAX - STATS_SUFFIX)
                cannot_write(*name ? ENAMETOOLONG : EISDIR);
        strcpy(place.name, name);
        place.pid = getpid();
        if (slash)
                *(slash == real ? slash + 1 : slash) = 0;
        place.dir_fd = open(slash ? real : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (place.dir_fd < 0 || faccessat(place.dir_fd, ".", W_OK | X_OK, AT_EACCESS) != 0)
                cannot_write(errno);
        place.dir_fd = privfd_move(place.dir_fd);
        if (place.dir_fd < 0)
                cannot_write(-place.dir_fd);
        place.mode = umask(0);
        umask(place.mode);
        place.mode = 0666 & ~place.mode;
        free(real);
}

void stats_register_identity(void) { stats_register(add_identity); }

void stats_keep(struct stats_place *p)
{
        *p = place;
        p->execs++;
}

void stats_adopt(const struct stats_place *p)
{
        place = *p;
}

bool stats_has_file(void) { return opt.stats_file && place.direct_fd < 0; }

static bool print_to(int fd)
{
        char *text = NULL;
        size_t size = 0;
        FILE *f = open_memstream(&text, &size);
        if (!f)
                return false;
        int err = stats_put(f, place.format);
        bool good = !ferror(f);
        good &= fclose(f) == 0;
        if (err)
                errno = -err;
        good = good && !err && put_all(fd, text, size, READER_MS);
        free(text);
        return good;
}

/* The file's own name, or that with the process and the number of its execve calls, before the
 * suffix: what collects files does so by their suffix. */
static void choose_name(char name[NAME_MAX + 1])
{
        enum stats_format format;
        const char *suffix = suffix_of(place.name, &format);

        if (getpid() == place.pid && !place.execs)
                snprintf(name, NAME_MAX + 1, "%s", place.name);
        else
                snprintf(name, NAME_MAX + 1, "%.*s.%d.%u%s", (int)(suffix - place.name),
                         place.name, getpid(), place.execs, suffix);
}

static void replace_file(bool last)
{
        static bool failed;             /* said once, and at the end */
        char temporary[NAME_MAX + 1], name[NAME_MAX + 1];

        snprintf(temporary, sizeof(temporary), ".%.*s.%d", NAME_MAX - 16, place.name,
                 getpid() % 10000000);
        choose_name(name);
        int fd = openat(place.dir_fd, temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        bool good = fd >= 0 && print_to(fd) && fchmod(fd, place.mode) == 0 &&
                    renameat(place.dir_fd, temporary, place.dir_fd, name) == 0;
        if (!good) {
                if (last || !failed)
                        warnx_("--stats=%s: could not be written: %s", opt.stats_file,
                               strerror(errno));
                unlinkat(place.dir_fd, temporary, 0);
        }
        failed = !good;
        if (fd >= 0)
                close(fd);
}

void stats_print_report(bool last)
{
        if (over)
                return;
        over = last;
        if (stats_has_file())
                replace_file(last);
        else if (!print_to(opt.stats_file ? place.direct_fd : message_fd()))
                warnx_("the statistics could not be written: %s", strerror(errno));
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

void stats_report(void)
{
        /* A thread that reports meanwhile may wait for its reader. */
        if (!opt.stats || !lock_within(&stats_lock, READER_MS))
                return;
        stats_print_report(true);
        pthread_mutex_unlock(&stats_lock);
}

bool stats_is_over(void) { return over; }

void stats_goes_on(void)
{
        pthread_mutex_lock(&stats_lock);
        over = false;
        pthread_mutex_unlock(&stats_lock);
}
