/*
 * Each line is written over the one before, and what is left of that erased (ECMA-48), with one
 * write(2) a screen: so nothing flickers.
 */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>
#include "common/clock.h"
#include "control/client/screen.h"

/* After these the terminal must be as it was. */
static const int ends[] = { SIGINT, SIGTERM, SIGQUIT, SIGHUP };
#define ENDS (sizeof(ends) / sizeof(ends[0]))

static volatile sig_atomic_t over;
static bool is_there;
static bool keys;                       /* of standard input, which is in the mode for them */
static struct termios before;

static void on_signal(int sig) { (void)sig, over = 1; }

bool screen_is_there(void) { return is_there; }
bool screen_is_over(void) { return over; }

void screen_begin(bool wanted)
{
        struct sigaction end = { .sa_handler = on_signal }, ignore = { .sa_handler = SIG_IGN };

        for (size_t i = 0; i < ENDS; i++)
                sigaction(ends[i], &end, NULL);
        sigaction(SIGPIPE, &ignore, NULL);
        is_there = wanted && isatty(STDOUT_FILENO);
        if (!is_there)
                return;
        /* In the background the terminal is another program's. */
        keys = tcgetpgrp(STDIN_FILENO) == getpgrp() && tcgetattr(STDIN_FILENO, &before) == 0;
        if (keys) {
                struct termios now = before;
                now.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
                tcsetattr(STDIN_FILENO, TCSANOW, &now);
        }
        fputs("\033[2J", stdout);
}

void screen_end(void)
{
        if (keys)
                tcsetattr(STDIN_FILENO, TCSANOW, &before);
        keys = false;
}

/* The bytes of a line that fit; of a character in UTF-8 all or none. */
static size_t fitting(const char *line, size_t n, size_t columns)
{
        size_t at = 0;

        for (size_t column = 0; at < n; at++) {
                column += ((unsigned char)line[at] & 0xc0) != 0x80;
                if (column > columns)
                        break;
        }
        return at;
}

bool screen_show(const char *text)
{
        struct winsize size = { 0 };

        if (!is_there) {
                fputs(text, stdout);
                return fflush(stdout) == 0;
        }
        ioctl(STDOUT_FILENO, TIOCGWINSZ, &size);
        unsigned rows = size.ws_row > 1 ? size.ws_row : 24;
        unsigned columns = size.ws_col ? size.ws_col : 80;
        char *screen = NULL;
        size_t bytes;
        FILE *f = open_memstream(&screen, &bytes);
        if (!f)
                return true;
        fputs("\033[H", f);
        /* the last row is for the cursor */
        for (unsigned row = 1; *text && row < rows; row++) {
                size_t n = strcspn(text, "\n");
                fprintf(f, "%.*s\033[K\n", (int)fitting(text, n, columns), text);
                text += n + (text[n] != 0);
        }
        fputs("\033[J", f);
        if (fclose(f) == 0)
                fwrite(screen, 1, bytes, stdout);
        free(screen);
        return fflush(stdout) == 0;
}

bool screen_wait(unsigned ms)
{
        int64_t end = now_ms() + ms;
        sigset_t all, other;

        /* A signal must not come between the look at `over` and the sleep. */
        sigemptyset(&all);
        for (size_t i = 0; i < ENDS; i++)
                sigaddset(&all, ends[i]);
        sigprocmask(SIG_BLOCK, &all, &other);
        for (int64_t left; !over && (left = end - now_ms()) > 0; ) {
                const struct timespec t = { left / 1000, left % 1000 * 1000000 };
                struct pollfd p = { .fd = keys ? STDIN_FILENO : -1, .events = POLLIN };
                char key;
                if (ppoll(&p, 1, &t, &other) <= 0)
                        continue;
                if (read(STDIN_FILENO, &key, 1) != 1)
                        keys = false;   /* it has hung up */
                else if (key == 'q')
                        over = 1;
        }
        sigprocmask(SIG_SETMASK, &other, NULL);
        return over;
}
