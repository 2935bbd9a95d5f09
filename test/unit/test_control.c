/*
 * The control socket: requests and answers as bytes, and the folder of sockets.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>
#include "common/json.h"
#include "control/place.h"
#include "control/protocol.h"
#include "stats/read.h"

/* ---- requests ---- */

static int parse(const char *text, struct request *r, char why[REQUEST_WHY])
{
        static char line[REQUEST_MOST];

        snprintf(line, sizeof(line), "%s", text);
        return request_parse(line, r, why);
}

static void requests(void **state)
{
        static const struct {
                const char *line; enum verb verb; enum form form; const char *argument;
        } good[] = {
                { "about text", VERB_ABOUT, FORM_TEXT, "" },
                { "about json", VERB_ABOUT, FORM_JSON, "" },
                { "stats prom", VERB_STATS, FORM_PROM, "" },
                { "stats flat", VERB_STATS, FORM_FLAT, "" },
                { "reset", VERB_RESET, FORM_TEXT, "" },
                { "sample", VERB_SAMPLE, FORM_TEXT, "" },
                { "get text", VERB_GET, FORM_TEXT, "" },
                { "get json ", VERB_GET, FORM_JSON, "" },
                { "get json cache", VERB_GET, FORM_JSON, "cache" },
                { "set far=off", VERB_SET, FORM_TEXT, "far=off" },
                { "set a = b c", VERB_SET, FORM_TEXT, "a = b c" },
                { "nodes json", VERB_NODES, FORM_JSON, "" },
                { "from /a b/ c", VERB_FROM, FORM_TEXT, "/a b/ c" },
                { "add mem:1G", VERB_ADD, FORM_TEXT, "mem:1G" },
                { "scrub flat", VERB_SCRUB, FORM_FLAT, "" },
                { "scrub json start 10M", VERB_SCRUB, FORM_JSON, "start 10M" },
        };
        static const char *const bad[][2] = {
                { "", "'' is no request" }, { " ", "is no request" }, { "abou", "no request" },
                { "about", "there is no form ''" }, { "about flat", "no form 'flat'" },
                { "about  text", "no form ''" }, { "stats table", "no form 'table'" },
                { "about text x", "takes no argument" }, { "reset x", "takes no argument" },
                { "set", "argument is missing" }, { "set ", "argument is missing" },
                { "add", "argument is missing" }, { "STATS json", "is no request" },
                { "stats json\r", "no form" }, { "scrub start", "no form 'start'" },
        };
        struct request r;
        char why[REQUEST_WHY];

        (void)state;
        for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
                assert_int_equal(parse(good[i].line, &r, why), 0);
                assert_int_equal(r.verb, good[i].verb);
                assert_int_equal(r.form, good[i].form);
                assert_string_equal(r.argument, good[i].argument);
        }
        for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
                assert_int_equal(parse(bad[i][0], &r, why), -EINVAL);
                if (!strstr(why, bad[i][1]))
                        fail_msg("'%s': '%s'", bad[i][0], why);
        }
}

/* ---- lines ---- */

static void feed(struct inbox *in, const void *bytes, size_t n)
{
        assert_true(in->have + n <= sizeof(in->text));
        memcpy(in->text + in->have, bytes, n);
        in->have += n;
}

static void lines(void **state)
{
        static struct inbox in;
        int err;
        char *line;

        (void)state;
        in.have = 0;
        assert_null(inbox_line(&in, &err));
        assert_int_equal(err, 0);
        feed(&in, "res", 3);
        assert_null(inbox_line(&in, &err));
        assert_int_equal(err, 0);
        feed(&in, "et\n\nabout text\nst", 17);
        line = inbox_line(&in, &err);
        assert_string_equal(line, "reset");
        inbox_next(&in, 6);
        line = inbox_line(&in, &err);
        assert_string_equal(line, "");
        inbox_next(&in, 1);
        line = inbox_line(&in, &err);
        assert_string_equal(line, "about text");
        inbox_next(&in, 11);
        assert_null(inbox_line(&in, &err));
        assert_int_equal(err, 0);
        assert_int_equal(in.have, 2);
        feed(&in, "\0\n", 2);
        assert_null(inbox_line(&in, &err));
        assert_int_equal(err, -EINVAL);
        /* The longest line, and one byte more. */
        in.have = sizeof(in.text) - 1;
        memset(in.text, 'x', in.have);
        assert_null(inbox_line(&in, &err));
        assert_int_equal(err, 0);
        in.text[in.have++] = '\n';
        assert_int_equal(strlen(inbox_line(&in, &err)), sizeof(in.text) - 1);
        memset(in.text, 'x', sizeof(in.text));
        assert_null(inbox_line(&in, &err));
        assert_int_equal(err, -EMSGSIZE);
}

/* ---- answers ---- */

static void heads(void **state)
{
        static const char *const bad[] = {
                "", "ok", "ok ", "error", "error ", "OK 1", "ok -1", "ok +1", "ok 1 ", "ok 0x1",
                "ok 1\r", "ok 99999999999", "ok 67108865", "error 18446744073709551616", "okay 1",
        };
        size_t size;
        bool ok;

        (void)state;
        assert_int_equal(head_parse("ok 0", &ok, &size), 0);
        assert_true(ok && size == 0);
        assert_int_equal(head_parse("error 123", &ok, &size), 0);
        assert_true(!ok && size == 123);
        assert_int_equal(head_parse("ok 67108864", &ok, &size), 0);
        assert_int_equal(size, ANSWER_MOST);
        for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
                if (head_parse(bad[i], &ok, &size) != -EPROTO)
                        fail_msg("'%s' is taken", bad[i]);
}

static void flat(void **state)
{
        const char *text = "a.b 12\na.bc 13\nname some words\nlast 9";
        char to[8];

        (void)state;
        assert_int_equal(flat_number(text, "a.b"), 12);
        assert_int_equal(flat_number(text, "a.bc"), 13);
        assert_int_equal(flat_number(text, "last"), 9);
        assert_int_equal(flat_number(text, "b"), 0);
        assert_int_equal(flat_number("", "a"), 0);
        assert_string_equal(flat_text(text, "name", to, sizeof(to)), "some wo");
        assert_string_equal(flat_text(text, "nam", to, sizeof(to)), "");
}

static void json(void **state)
{
        char *text = NULL;
        size_t size;
        FILE *f = open_memstream(&text, &size);

        (void)state;
        json_string(f, "a\"b\\c\nd\x1f" "\xc3\xa9");
        fclose(f);
        assert_string_equal(text, "\"a\\\"b\\\\c\\u000ad\\u001f\xc3\xa9\"");
        free(text);
}

/* ---- the folder ---- */

static void folder(void **state)
{
        char dir[] = "/tmp/vmrun-test.XXXXXX", mine[64], in_tmp[PATH_MAX], why[PLACE_WHY];
        char name[PLACE_NAME];
        char list[PLACES][PATH_MAX];
        const unsigned is_user = geteuid() != 0;
        struct stat st;

        (void)state;
        assert_non_null(mkdtemp(dir));
        snprintf(mine, sizeof(mine), "%s/vmrun", dir);
        setenv("XDG_RUNTIME_DIR", dir, 1);
        assert_int_equal(place_list(list), 2 + is_user);
        assert_string_equal(list[0], mine);
        assert_string_equal(list[1], "/run/vmrun");
        place_in_tmp(in_tmp, geteuid());
        assert_true(!is_user || strcmp(list[2], in_tmp) == 0);
        place_in_tmp(in_tmp, 4294967294u);
        assert_string_equal(in_tmp, "/tmp/vmrun-4294967294");
        /* It is made, and found again. */
        for (int turn = 0; turn < 2; turn++) {
                int fd = place_open(why);
                assert_true(fd >= 0);
                assert_int_equal(fstat(fd, &st), 0);
                assert_int_equal(st.st_mode & 07777, 0700);
                close(fd);
                assert_int_equal(stat(mine, &st), 0);
        }
        assert_int_equal(place_enter(mine, geteuid()), 0);
        assert_int_equal(place_enter(mine, 4294967294u), -ENOENT);
        assert_int_equal(place_enter("/nosuch", geteuid()), -ENOENT);
        /* Others may enter it, or it is a link: then it is not used. */
        assert_int_equal(chmod(mine, 0755), 0);
        int fd = place_open(why);
        if (fd >= 0) {                  /* root has another */
                struct stat other;
                assert_int_equal(fstat(fd, &other), 0);
                assert_int_equal(stat(mine, &st), 0);
                assert_true(other.st_ino != st.st_ino);
                close(fd);
        }
        assert_int_equal(rmdir(mine), 0);
        assert_int_equal(symlink("/tmp", mine), 0);
        fd = place_open(why);
        if (fd >= 0) {
                assert_int_equal(fstat(fd, &st), 0);
                assert_int_equal(st.st_mode & 07777, 0700);
                close(fd);
        }
        assert_int_equal(unlink(mine), 0);
        assert_int_equal(rmdir(dir), 0);
        setenv("XDG_RUNTIME_DIR", "relative", 1);
        assert_int_equal(place_list(list), 1 + is_user);
        unsetenv("XDG_RUNTIME_DIR");
        assert_int_equal(place_list(list), 1 + is_user);
        assert_string_equal(place_name(name, 17, 0), "17");
        assert_string_equal(place_name(name, 17, 2), "17-2");
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(requests), cmocka_unit_test(lines), cmocka_unit_test(heads),
                cmocka_unit_test(flat), cmocka_unit_test(json), cmocka_unit_test(folder),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
