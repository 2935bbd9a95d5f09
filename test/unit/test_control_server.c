/*
 * The thread of the control socket (runtime/control/server.c), with requests of its own: clients
 * that behave and clients that do not, while other threads hold it, end it and start it again;
 * fork; execve.  Under the thread sanitizer, too.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include "base/message.h"
#include "base/options.h"
#include "base/privfd.h"
#include "control/control.h"
#include "control/session.h"

struct options opt;

/* ---- requests ---- */

static unsigned served;                 /* under the server's lock; TSan sees whether it is held */
static _Atomic unsigned ended, children;
static size_t size = 10;                /* of an answer */

int request_serve(struct session *s, const struct request *r, FILE *f, char why[CTL_WHY])
{
        served++;
        s->samples = true;
        if (r->verb == VERB_RESET) {
                snprintf(why, CTL_WHY, "not now");
                return -EBUSY;
        }
        for (size_t i = 0; i < size; i++)
                putc('a' + (int)(i % 26), f);
        return 0;
}

void session_end(struct session *s)
{
        ended++;
        s->samples = false;
}

void sessions_forked(void) { children++; }

/* ---- clients ---- */

static char runtime[] = "/tmp/vmrun-test.XXXXXX";

static int client(pid_t pid)
{
        struct sockaddr_un a = { .sun_family = AF_UNIX };
        struct timeval limit = { .tv_sec = 20 };

        snprintf(a.sun_path, sizeof(a.sun_path), "%s/vmrun/%d", runtime, pid);
        for (int tries = 0; tries < 2000; tries++) {
                int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
                if (connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0) {
                        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
                        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
                        return fd;
                }
                close(fd);
                usleep(5000);
        }
        return -1;
}

static void say(int fd, const char *text)
{
        assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), strlen(text));
}

/* Exactly this comes. */
static void expect(int fd, const char *text)
{
        char got[256];
        size_t n = strlen(text);

        assert_int_equal(recv(fd, got, n, MSG_WAITALL), n);
        assert_memory_equal(got, text, n);
}

/* The server has closed the connection; the bytes that it sent before do not matter. */
static bool is_closed(int fd)
{
        char bytes[4096];
        ssize_t n;

        while ((n = recv(fd, bytes, sizeof(bytes), 0)) > 0)
                ;
        return n == 0 || errno == ECONNRESET;
}

/* ---- tests ---- */

static void answers(void **state)
{
        (void)state;
        ctl_start(NULL);
        int fd = client(getpid());
        say(fd, "about text\n");
        expect(fd, "ok 10\nabcdefghij");
        say(fd, "reset\nabout json\n");
        expect(fd, "error 7\nnot nowok 10\nabcdefghij");
        say(fd, "about");
        usleep(20000);
        say(fd, " text\nbogus\n");
        expect(fd, "ok 10\nabcdefghijerror ");
        close(fd);
}

static void large_answers(void **state)
{
        (void)state;
        char *got = malloc(8 << 20);

        ctl_hold();
        size = 8 << 20;
        ctl_release();
        int fd = client(getpid());
        say(fd, "about text\nabout text\n");
        for (int turn = 0; turn < 2; turn++) {
                expect(fd, "ok 8388608\n");
                assert_int_equal(recv(fd, got, 8 << 20, MSG_WAITALL), 8 << 20);
                assert_int_equal(got[26], 'a');
        }
        close(fd);
        /* A client that asks and does not read holds up no other client, and is dropped. */
        int deaf = client(getpid());
        char byte;
        say(deaf, "about text\n");
        assert_int_equal(recv(deaf, &byte, 1, 0), 1);
        ctl_hold();
        size = 10;
        ctl_release();
        fd = client(getpid());
        say(fd, "about text\n");
        expect(fd, "ok 10\nabcdefghij");
        unsigned before = ended;
        for (int tries = 0; tries < 2000 && ended == before; tries++)
                usleep(5000);
        assert_int_equal(ended, before + 1);
        close(deaf);
        close(fd);
        free(got);
}

static void garbage(void **state)
{
        char many[2 * REQUEST_MOST];
        int fd[40];

        (void)state;
        memset(many, 'x', sizeof(many));
        fd[0] = client(getpid());
        send(fd[0], many, sizeof(many), MSG_NOSIGNAL);
        assert_true(is_closed(fd[0]));
        fd[1] = client(getpid());
        assert_int_equal(send(fd[1], "about\0text\n", 11, MSG_NOSIGNAL), 11);
        assert_true(is_closed(fd[1]));
        fd[2] = client(getpid());
        say(fd[2], "about text");
        assert_true(is_closed(fd[2]));  /* after a while */
        for (int i = 0; i < 3; i++)
                close(fd[i]);
        /* More than there are places. */
        for (int i = 0; i < 40; i++)
                fd[i] = client(getpid());
        say(fd[39], "about text\n");
        expect(fd[39], "ok 10\nabcdefghij");
        assert_true(is_closed(fd[0]));
        for (int i = 0; i < 40; i++)
                close(fd[i]);
}

static void held(void **state)
{
        int fd = client(getpid());

        (void)state;
        for (int turn = 0; turn < 200; turn++) {
                say(fd, "about text\n");
                ctl_hold();
                served++;
                ctl_release();
                expect(fd, "ok 10\nabcdefghij");
        }
        /* Ended and made again, with the connection. */
        for (int turn = 0; turn < 20; turn++) {
                say(fd, "about text\n");
                ctl_rest();
                ctl_start(NULL);
                expect(fd, "ok 10\nabcdefghij");
        }
        close(fd);
}

static int child(int up)
{
        char byte;

        privfd_forked();
        ctl_forked(NULL);
        if (children != 1 || read(up, &byte, 1) != 0)
                return 2;
        ctl_end();
        return 0;
}

static void forked(void **state)
{
#ifdef __SANITIZE_THREAD__
        skip();                         /* it allows no thread after fork */
#endif
        int mine = client(getpid()), status, up[2];

        (void)state;
        say(mine, "about text\n");
        expect(mine, "ok 10\nabcdefghij");
        assert_int_equal(pipe(up), 0);
        ctl_hold();
        pid_t pid = fork();
        if (pid == 0) {
                close(up[1]);
                _exit(child(up[0]));
        }
        ctl_release();
        int its = client(pid);
        say(its, "about text\n");
        expect(its, "ok 10\nabcdefghij");
        say(mine, "about text\n");      /* the child has not got it */
        expect(mine, "ok 10\nabcdefghij");
        close(up[1]);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
        assert_true(is_closed(its));
        char path[64];
        snprintf(path, sizeof(path), "%s/vmrun/%d", runtime, pid);
        assert_int_equal(access(path, F_OK), -1);
        snprintf(path, sizeof(path), "%s/vmrun/%d", runtime, getpid());
        assert_int_equal(access(path, F_OK), 0);
        close(its);
        close(mine);
        close(up[0]);
}

static void handed_over(void **state)
{
        struct ctl_kept k, none;

        (void)state;
        ctl_keep(&k, false);
        ctl_keep(&none, true);
        char name[PLACE_NAME];
        assert_string_equal(k.name, place_name(name, getpid(), 0));
        assert_true(k.dir_fd >= 0 && k.listen_fd >= 0 && none.dir_fd == k.dir_fd);
        assert_true(none.listen_fd == -1 && !*none.name && k.since > 0);
        ctl_rest();
        int waits = client(getpid());   /* between two programs */
        say(waits, "about text\n");
        ctl_adopt(&k);
        ctl_start(NULL);
        expect(waits, "ok 10\nabcdefghij");
        close(waits);
}

static void over(void **state)
{
        char path[64];

        (void)state;
        snprintf(path, sizeof(path), "%s/vmrun/%d", runtime, getpid());
        assert_int_equal(access(path, F_OK), 0);
        ctl_end();
        assert_int_equal(access(path, F_OK), -1);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(answers), cmocka_unit_test(held), cmocka_unit_test(garbage),
                cmocka_unit_test(large_answers), cmocka_unit_test(forked),
                cmocka_unit_test(handed_over), cmocka_unit_test(over),
        };
        opt.control = true;
        message_prefix("");
        privfd_init();
        if (!mkdtemp(runtime) || setenv("XDG_RUNTIME_DIR", runtime, 1) != 0)
                return 1;
        int failed = cmocka_run_group_tests(tests, NULL, NULL);
        char path[64];
        snprintf(path, sizeof(path), "%s/vmrun", runtime);
        rmdir(path);
        rmdir(runtime);
        /* The thread stays where ctl_end() left it. */
        fflush(stdout);
        _exit(failed != 0);
}
