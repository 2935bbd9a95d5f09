/*
 * Messages to readers that do not read: neither a blocked pipe nor a stopped terminal may stop the
 * writer, and what was dropped is counted.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>
#include <cmocka.h>
#include "common/line.h"
#include "common/put.h"

#define LIMIT_S 20              /* a write that blocks ends the test by SIGALRM */

static void say(int fd, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void say(int fd, const char *fmt, ...)
{
        va_list ap;
        va_start(ap, fmt);
        line_say(fd, "test: ", fmt, ap);
        va_end(ap);
}

/* All that can be read now, as one string. */
static const char *reads(int fd)
{
        static char text[1 << 17];
        size_t n = 0;
        ssize_t r;

        fcntl(fd, F_SETFL, O_NONBLOCK);
        while ((r = read(fd, text + n, sizeof(text) - 1 - n)) > 0)
                n += (size_t)r;
        text[n] = 0;
        return text;
}

static void check_blocked(int in, int out, int to)
{
        alarm(LIMIT_S);
        for (unsigned i = 0; i < 2000; i++)
                say(to, "%04u: a line, long enough for 2000 not to have room in any buffer", i);
        const char *text = reads(in);
        unsigned lines = 0;
        for (const char *s = text; (s = strchr(s, '\n')); s++)
                lines++;
        assert_in_range(lines, 1, 1999);
        say(to, "again");
        char wanted[200];
        text = reads(in);
        snprintf(wanted, sizeof(wanted),
                 "test: %u lines were dropped before this one: the reader took none", 2000 - lines);
        assert_non_null(strstr(text, wanted));
        assert_non_null(strstr(text, "\ntest: again"));
        say(to, "and again");
        text = reads(in);
        assert_null(strstr(text, "dropped"));
        assert_non_null(strstr(text, "and again"));
        alarm(0);
        if (to != out)
                close(to);
        close(in);
        close(out);
}

static void pipe_as_it_is(void **state)
{
        int p[2];

        (void)state;
        assert_int_equal(pipe(p), 0);
        check_blocked(p[0], p[1], p[1]);
}

static void pipe_of_our_own(void **state)
{
        int p[2];

        (void)state;
        assert_int_equal(pipe(p), 0);
        int to = line_open(p[1]);
        assert_true(to >= 0);
        assert_true(fcntl(to, F_GETFL) & O_NONBLOCK);
        assert_false(fcntl(p[1], F_GETFL) & O_NONBLOCK);        /* that is everybody's */
        check_blocked(p[0], p[1], to);
}

static int terminal(int *master)
{
        struct termios t;

        *master = posix_openpt(O_RDWR | O_NOCTTY);
        assert_true(*master >= 0);
        assert_int_equal(grantpt(*master) | unlockpt(*master), 0);
        int slave = open(ptsname(*master), O_RDWR | O_NOCTTY);
        assert_true(slave >= 0);
        assert_int_equal(tcgetattr(slave, &t), 0);
        cfmakeraw(&t);
        assert_int_equal(tcsetattr(slave, TCSANOW, &t), 0);
        return slave;
}

static void stopped_terminal(void **state)
{
        int master, slave = terminal(&master), to = line_open(slave);

        (void)state;
        assert_true(to >= 0);
        alarm(LIMIT_S);
        assert_int_equal(tcflow(slave, TCOOFF), 0);
        for (unsigned i = 0; i < 100; i++)
                say(to, "a line for nobody");
        assert_string_equal(reads(master), "");
        assert_int_equal(tcflow(slave, TCOON), 0);
        line_end(to, "test: ");
        assert_string_equal(reads(master),
                            "test: 100 lines were dropped before this one: the reader took none\n");
        line_end(to, "test: ");
        assert_string_equal(reads(master), "");
        alarm(0);
        close(to);
        close(slave);
        close(master);
}

static void no_pipe(void **state)
{
        FILE *f = tmpfile();

        (void)state;
        assert_non_null(f);
        assert_int_equal(line_open(fileno(f)), -1);
        assert_int_equal(line_open(-1), -1);
        say(fileno(f), "to a file");
        say(-1, "to nobody");
        say(fileno(f), "%05000d", 1);
        char text[4096] = "";
        rewind(f);
        size_t n = fread(text, 1, sizeof(text) - 1, f);
        text[n] = 0;
        const char *first = "test: to a file\n"
                            "test: 1 line was dropped before this one: the reader took none\n"
                            "test: 000";
        assert_memory_equal(text, first, strlen(first));
        /* cut, and a line all the same */
        assert_true(n < strlen(first) + 2100 && text[n - 1] == '\n');
        fclose(f);
}

static void put_waits(void **state)
{
        static char much[300000];
        int p[2];

        (void)state;
        memset(much, 'x', sizeof(much));
        assert_int_equal(pipe(p), 0);
        alarm(LIMIT_S);
        assert_false(put_all(p[1], much, sizeof(much), 100));
        pid_t reader = fork();
        if (reader == 0) {
                close(p[1]);
                while (read(p[0], much, 100000) > 0)
                        usleep(1000);
                _exit(0);
        }
        assert_true(put_all(p[1], much, sizeof(much), 10000));
        alarm(0);
        close(p[0]);
        close(p[1]);
}

static void cleaned(const char *text, const char *wanted)
{
        char s[100];

        snprintf(s, sizeof(s), "%s", text);
        line_clean(s, strlen(s));
        assert_string_equal(s, wanted);
}

static void control_characters(void **state)
{
        (void)state;
        cleaned("plain ~", "plain ~");
        cleaned("\1\33[31m\7\177\n", "??[31m???");
        cleaned("a\x80z\x9b" "31m\x9f", "a?z?31m?");    /* C1, as 8-bit terminals take it */
        cleaned("a\xc2\x80z\xc2\x9b" "31m\xc2\x9f", "a??z??31m??");     /* C1 in UTF-8 */
        cleaned("\xc2\xa0\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80",
                "\xc2\xa0\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80");
        cleaned("\xe9t\xe9", "?t?");                                    /* Latin-1 */
        /* C1 in forms that are too long; surrogates, and beyond Unicode */
        cleaned("\xc0\x9b\xe0\x82\x9b\xf0\x80\x82\x9b", "?????????");
        cleaned("\xed\xa0\x80 \xf4\x90\x80\x80 \xff", "??? ???? ?");
        cleaned("cut \xe2\x82", "cut ??");
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(pipe_as_it_is),
                cmocka_unit_test(pipe_of_our_own),
                cmocka_unit_test(stopped_terminal),
                cmocka_unit_test(no_pipe),
                cmocka_unit_test(put_waits),
                cmocka_unit_test(control_characters),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
