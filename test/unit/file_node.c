#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "base/privfd.h"
#include "file_node.h"

struct file_nodes file_nodes;
static pid_t tester;                    /* the process that runs the tests */

_Noreturn void harness_wrong(const char *fmt, ...)
{
        char text[600];
        va_list ap;

        va_start(ap, fmt);
        vsnprintf(text, sizeof(text), fmt, ap);
        va_end(ap);
        if (getpid() == tester)
                fail_msg("%s", text);
        fprintf(stderr, "# in a child: %s\n", text);
        _exit(1);
}

bool file_nodes_init(const struct far_driver *driver, const char *template)
{
        tester = getpid();
        file_nodes.driver = driver;
        snprintf(file_nodes.folder, sizeof(file_nodes.folder), "%s", template);
        if (!mkdtemp(file_nodes.folder))
                return false;
        snprintf(file_nodes.path, sizeof(file_nodes.path), "%s/far", file_nodes.folder);
        privfd_init();
        return true;
}

void file_nodes_end(void)
{
        unlink(file_nodes.path);
        rmdir(file_nodes.folder);
}

int file_node_open(struct far_node *n, const char *file)
{
        static char url[128];

        snprintf(url, sizeof(url), "%s:%s", file_nodes.driver->scheme, file);
        file_nodes.option.url = url;
        file_nodes.option.weight = 1;
        *n = (struct far_node){ .driver = file_nodes.driver, .option = &file_nodes.option,
                                .url = url };
        file_nodes.why[0] = 0;
        int err = n->driver->check(n->option, file, file_nodes.why);
        return err ? err : n->driver->open(n, file, file_nodes.why);
}

void file_node_refused(const char *file, int err, const char *words)
{
        struct far_node n;

        assert_int_equal(file_node_open(&n, file), err);
        if (!strstr(file_nodes.why, words) || strlen(file_nodes.why) + 1 >= FAR_WHY)
                fail_msg("'%s' instead of '%s'", file_nodes.why, words);
        assert_int_equal(privfd_next(0), -1);
}

void file_node_close(struct far_node *n)
{
        n->driver->close(n);
        assert_int_equal(privfd_next(0), -1);
}
