/*
 * Records the order of a run, or hands a recorded one to kern.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "abi_control.h"
#include "abi_exits.h"
#include "base/message.h"
#include "base/options.h"
#include "base/privfd.h"
#include "memory/files_read.h"
#include "replay/order.h"
#include "replay/replay.h"
#include "replay/table.h"

static struct places places;
/* Guards the variables below, once the program runs. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct order order;              /* recorded, or replayed */
static struct table table;
static int record_fd = -1;
static uint64_t drained;                /* events of the log that are in the order */
static uint16_t *vcpu_of;               /* of each event that is recorded */
/* By id of a file: its number in the order + 1; 0: not known. */
static uint32_t *number_of, numbers;

/* ---- the start ---- */

static void open_record(void)
{
        struct stat st;

        record_fd = PRIVFD_NEW(open(opt.record, O_RDWR | O_CREAT | O_CLOEXEC, 0666));
        if (record_fd < 0)
                die_(EXIT_VMRUN_FAILED, "--record %s: cannot be opened: %s: name a file that can "
                                        "be written", opt.record, strerror(-record_fd));
        if (fstat(record_fd, &st) != 0 || !S_ISREG(st.st_mode))
                die_(EXIT_VMRUN_FAILED, "--record %s: this is no regular file: name one",
                     opt.record);
}

/* More bytes than any record can have. */
#define BYTES_MOST (1ll << 31)

static void read_record(void)
{
        const char *why;
        struct stat st;
        uint8_t *bytes;

        int fd = PRIVFD_NEW(open(opt.replay, O_RDONLY | O_CLOEXEC | O_NONBLOCK));
        if (fd < 0)
                die_(EXIT_VMRUN_FAILED, "--replay %s: cannot be opened: %s: name a file that "
                                        "--record has made", opt.replay, strerror(-fd));
        if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size > BYTES_MOST)
                die_(EXIT_VMRUN_FAILED, "--replay %s: it is no record of vmrun --record",
                     opt.replay);
        size_t n = (size_t)st.st_size, have = 0;
        bytes = malloc(n + 1);
        for (ssize_t got = 1; bytes && have < n && got > 0; have += (size_t)(got > 0 ? got : 0))
                got = read(fd, bytes + have, n - have);
        int err = bytes ? order_parse(&order, bytes, have, &why) : -ENOMEM;
        if (!err)
                err = table_number(&table, &order);
        if (err)
                die_(EXIT_VMRUN_FAILED, "--replay %s: %s", opt.replay,
                     err == -ENOMEM ? "out of memory: free some on this host" : why);
        free(bytes);
        privfd_close(fd);
}

void replay_init(void)
{
        if (opt.record && opt.replay)
                die_(EXIT_VMRUN_FAILED, "--record and --replay exclude each other: a run that "
                                        "fetches ahead does not show what it would have waited "
                                        "for: give one of them");
        if (opt.replay)
                read_record();
        if (opt.record)
                open_record();
}

/* Frames that a program needs at least (settings/settings.c). */
#define FRAMES_LEAST 64

uint64_t replay_frames(void)
{
        uint64_t frames = opt.cache / PAGE_SIZE;

        if (opt.record)
                frames /= 2;
        return frames < FRAMES_LEAST ? FRAMES_LEAST : frames;
}

uint64_t replay_room(void)
{
        return opt.record ? sizeof(struct record_log) : opt.replay ? table_size(&table) : 0;
}

static void *room(void) { return (void *)(WINDOW + CONTROL->extra_off); }

static void start_record(const char *exe)
{
        order.program = strdup(exe);
        if (!order.program)
                die_(EXIT_VMRUN_FAILED, "out of memory: free some on this host");
        CONTROL->record = (uint64_t)room();
}

static void start_replay(const char *exe)
{
        if (strcmp(exe, order.program) != 0) {
                warnx_("--replay %s: this is a record of %s, not of %s: it is not used",
                       opt.replay, order.program, exe);
                return;
        }
        table_make(&table, &order, &places, room());
        CONTROL->replay = (uint64_t)room();
        info_("--replay %s: %u events of %u pages", opt.replay, table.events, table.pages);
        /* Kern has them now. */
        free(order.event);
        order.event = NULL;
        free(table.number);
        table.number = NULL;
}

void replay_start(const char *exe, uint64_t heap)
{
        places = (struct places){ .low = heap / PAGE_SIZE,
                                  .mapped = CONTROL->mmap_top / PAGE_SIZE,
                                  .stack = TASK_SIZE / PAGE_SIZE };
        if (opt.record)
                start_record(exe);
        if (opt.replay)
                start_replay(exe);
}

/* ---- files ---- */

void replay_file_mapped(uint32_t id, uint64_t off, uint64_t len, uint64_t addr)
{
        char path[PATH_MAX + 16];
        dev_t dev;
        ino_t ino;

        if (!CONTROL->replay || file_describe(id, path, sizeof(path), &dev, &ino) != 0)
                return;
        pthread_mutex_lock(&lock);
        for (uint32_t i = 0; i < order.files; i++)
                if (strcmp(order.file[i], path) == 0)
                        table_mapped(&table, i, off / PAGE_SIZE, len / PAGE_SIZE,
                                     addr / PAGE_SIZE);
        pthread_mutex_unlock(&lock);
}

static bool room_for_number(uint32_t id)
{
        if (id < numbers)
                return true;
        uint32_t n = id < 64 ? 64 : 2 * id;
        uint32_t *more = realloc(number_of, n * sizeof(*more));
        if (!more)
                return false;
        memset(more + numbers, 0, (n - numbers) * sizeof(*more));
        number_of = more;
        numbers = n;
        return true;
}

/* The file's number in the order, or -errno.  Under the lock. */
static int number_for(uint32_t id)
{
        char path[PATH_MAX + 16];
        dev_t dev;
        ino_t ino;

        if (!room_for_number(id))
                return -ENOMEM;
        if (!number_of[id]) {
                int n = file_describe(id, path, sizeof(path), &dev, &ino);
                if (n == 0)
                        n = order_file(&order, path);
                if (n < 0)
                        return n;
                number_of[id] = (uint32_t)n + 1;
        }
        return (int)number_of[id] - 1;
}

/* ---- the record ---- */

static bool translate(uint64_t noted, order_event *e)
{
        uint64_t page = noted & ((1ull << RECORD_PAGE_BITS) - 1);
        uint32_t id = (uint32_t)(noted >> RECORD_PAGE_BITS) & ((1u << RECORD_FILE_BITS) - 1);

        if (id == FILE_NONE) {
                *e = place_of(&places, page);
                return page != 0;
        }
        int n = number_for(id);
        *e = order_make(ORDER_FILE + (unsigned)(n < 0 ? 0 : n), (int64_t)page);
        return n >= 0;
}

/* Takes new events from the log, before any file id in them can stand for another file.  Under the
 * lock. */
static void drain(void)
{
        const struct record_log *log = (const struct record_log *)CONTROL->record;
        uint64_t tail = atomic_load_explicit(&log->tail, memory_order_relaxed);

        if (tail > RECORD_EVENTS_MAX)
                tail = RECORD_EVENTS_MAX;
        uint16_t *more = tail <= drained ? NULL : realloc(vcpu_of, tail * sizeof(*more));
        if (!more)
                return;
        vcpu_of = more;
        if (order_reserve(&order, (uint32_t)tail) != 0)
                return;
        for (; drained < tail; drained++) {
                uint64_t noted = atomic_load_explicit(&log->event[drained], memory_order_relaxed);
                order_event e;
                if (!translate(noted, &e))
                        continue;
                vcpu_of[order.events] = (uint16_t)(noted >> RECORD_VCPU_AT);
                order.event[order.events++] = e;
        }
}

void replay_file_goes(uint32_t id)
{
        if (!CONTROL->record)
                return;
        pthread_mutex_lock(&lock);
        drain();
        if (id < numbers)
                number_of[id] = 0;
        pthread_mutex_unlock(&lock);
}

static int store(const uint8_t *bytes, size_t n)
{
        for (size_t at = 0; at < n;) {
                ssize_t put = pwrite(record_fd, bytes + at, n - at, (off_t)at);
                if (put < 0 && errno != EINTR)
                        return -errno;
                at += put > 0 ? (size_t)put : 0;
        }
        return ftruncate(record_fd, (off_t)n) == 0 ? 0 : -errno;
}

static void write_record(void)
{
        const struct record_log *log = (const struct record_log *)CONTROL->record;
        uint64_t tail = atomic_load(&log->tail);
        uint8_t *bytes;
        size_t n;

        drain();
        int err = order_group(&order, vcpu_of);
        if (!err)
                err = order_print(&order, &bytes, &n);
        if (!err) {
                err = store(bytes, n);
                free(bytes);
        }
        if (err)
                warnx_("--record %s: it cannot be written: %s", opt.record, strerror(-err));
        else if (!order.events)
                warnx_("--record %s: the record is empty, since the program waited for no page: "
                       "pages of mem: and dax: nodes are copied at once, unless they have a "
                       "latency", opt.record);
        if (tail > RECORD_EVENTS_MAX)
                warnx_("--record %s: only the first %u of %llu waits are in it", opt.record,
                       RECORD_EVENTS_MAX, (unsigned long long)tail);
}

void replay_end(void)
{
        if (!CONTROL->record)
                return;
        pthread_mutex_lock(&lock);
        write_record();
        CONTROL->record = 0;            /* if an execve fails, the program continues unrecorded */
        pthread_mutex_unlock(&lock);
}

/* The child's VM was made without a log or a table. */
void replay_forked(void)
{
        if (record_fd >= 0)
                privfd_close(record_fd);
        record_fd = -1;
}
