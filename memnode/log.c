#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "common/line.h"
#include "common/message.h"
#include "log.h"

#define PREFIX "memnode: "

/* Does standard error go to journald?  systemd.exec(5): the variable names its device and inode. */
static bool goes_to_journal(void)
{
        const char *stream = getenv("JOURNAL_STREAM");
        unsigned long long device, inode;
        struct stat st;

        return stream && sscanf(stream, "%llu:%llu", &device, &inode) == 2 &&
               fstat(STDERR_FILENO, &st) == 0 && st.st_dev == device && st.st_ino == inode;
}

/* sd-daemon(3).  journald itself names the program, and has the time. */
static void level_head(enum message_level level, char *to, size_t n)
{
        snprintf(to, n, "<%d>", level);
}

/* As ISO 8601 has it, in local time: 2026-11-29T16:13:00.123+0100. */
static void time_head(enum message_level level, char *to, size_t n)
{
        char seconds[24], zone[8];
        struct timespec now;
        struct tm tm;

        (void)level;
        clock_gettime(CLOCK_REALTIME, &now);
        localtime_r(&now.tv_sec, &tm);
        strftime(seconds, sizeof(seconds), "%FT%T", &tm);
        strftime(zone, sizeof(zone), "%z", &tm);
        snprintf(to, n, "%s.%03ld%s " PREFIX, seconds, now.tv_nsec / 1000000, zone);
}

static bool journal;

void log_begin(void)
{
        message_prefix(PREFIX);
        journal = goes_to_journal();
        if (journal)
                message_head(level_head);
}

void log_open(void)
{
        /* A descriptor that never blocks, if fd 2 allows it. */
        int fd = line_open(STDERR_FILENO);

        if (fd >= 0)
                message_to(fd);
        if (!journal)
                message_head(time_head);
}
