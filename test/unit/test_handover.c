/*
 * What one vmrun hands over to the next: this program executes itself as vmrun does, and tells by
 * its exit status what it found.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include "base/privfd.h"
#include "base/message.h"
#include "process/handover.h"
#include "settings/absolute.h"

struct options opt;

enum { FOUND_ALL = 40, FOUND_NONE, FOUND_WRONG };

const struct handover *found;           /* for LeakSanitizer: it lives for ever */
static struct handover sample;
static const uint32_t hidden_sample[] = { 3, 7, 70000 };

static void make_sample(void)
{
        sample = (struct handover) {
                .opt = { .cache = 1 << 20, .nnodes = 2, .follow = true, .stats_file = "", .nodes = {
                        { .url = "mem:1G", .name = "mem:1G", .origin = "--node mem:1G",
                          .weight = 3, .gid_index = -1 },
                        { .url = "rdma://m1", .name = "m1", .origin = "/etc/vmrun.conf:7: node m1",
                          .keys = "/a b/keys", .client = "alice", .device = "mlx5_0" },
                } },
                .path = "./program", .mask = 0x1234, .nhidden = 3, .program = 5,
                .kvm = 1000, .message = 1001, .limits.nofile = { 100, 200 },
        };
}

static bool same(const char *a, const char *b) { return !a == !b && (!a || strcmp(a, b) == 0); }

/* In the program that was executed. */
static int look(void)
{
        const uint32_t *hidden;
        int vmrun = -1;
        const struct handover *h = found = handover_find(&hidden, &vmrun);

        if (!h)
                return FOUND_NONE;
        make_sample();
        bool good = same(h->opt.stats_file, "") && !h->opt.config && h->opt.nnodes == 2 &&
                    h->opt.cache == sample.opt.cache && h->opt.follow;
        for (unsigned i = 0; good && i < 2; i++) {
                const struct node_option *a = &h->opt.nodes[i], *b = &sample.opt.nodes[i];
                good = same(a->url, b->url) && same(a->name, b->name) &&
                       same(a->origin, b->origin) && same(a->keys, b->keys) &&
                       same(a->client, b->client) &&
                       same(a->device, b->device) && a->weight == b->weight &&
                       a->gid_index == b->gid_index;
        }
        good = good && same(h->path, sample.path) && h->mask == sample.mask && h->nhidden == 3 &&
               memcmp(hidden, hidden_sample, sizeof(hidden_sample)) == 0;
        good = good && h->program == 5 && h->kvm == 1000 && h->message == 1001 &&
               h->limits.nofile[0] == 100 && h->limits.nofile[1] == 200;
        /* Its own file is there, what was handed over is closed. */
        good = good && fcntl(vmrun, F_GETFD) == 0 && fcntl(vmrun - 1, F_GETFD) < 0;
        return good ? FOUND_ALL : FOUND_WRONG;
}

/* Exit status of this program, executed after before() in the child; -1 if it could not be. */
static int executed(void (*before)(struct handover_fds *fds))
{
        static char *const argv[] = { (char *)"--look", NULL };
        int status = -1;

        fflush(stdout);
        pid_t pid = fork();
        if (pid == 0) {
                struct handover_fds fds = { -1, -1 };
                before(&fds);
                syscall(SYS_execveat, fds.vmrun, "", argv, environ, AT_EMPTY_PATH);
                _exit(99);
        }
        waitpid(pid, &status, 0);
        return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void hand_over(struct handover_fds *fds)
{
        make_sample();
        if (handover_make(&sample, hidden_sample, fds) != 0)
                _exit(98);
}

static void hand_over_among_others(struct handover_fds *fds)
{
        /* Every second number is taken. */
        for (int fd = privfd_base(); fd < privfd_base() + 40; fd += 2)
                dup2(0, fd);
        hand_over(fds);
        if (fds->vmrun != fds->settings + 1)
                _exit(97);
}

static void just_execute(struct handover_fds *fds)
{
        fds->vmrun = open("/proc/self/exe", O_RDONLY);
}

static void with_a_file_beside(struct handover_fds *fds)
{
        int fd = memfd_create("vmrun-exec", MFD_ALLOW_SEALING);

        make_sample();
        sample.magic = ~0ull;
        if (write(fd, &sample, sizeof(sample)) != sizeof(sample))
                _exit(98);
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
        dup2(fd, 50);
        just_execute(fds);
        fds->vmrun = dup2(fds->vmrun, 51);
}

/* Right in all but its seals: a file that others could still change. */
static void without_seals(struct handover_fds *fds)
{
        static char bytes[1 << 16];

        hand_over(fds);
        ssize_t n = pread(fds->settings, bytes, sizeof(bytes), 0);
        int fd = memfd_create("vmrun-exec", MFD_ALLOW_SEALING);
        if (n <= 0 || write(fd, bytes, (size_t)n) != n)
                _exit(98);
        dup2(fd, fds->settings);
}

/* Another version's: refused, not misread. */
static void of_another_version(struct handover_fds *fds)
{
        static char bytes[1 << 16];

        hand_over(fds);
        ssize_t n = pread(fds->settings, bytes, sizeof(bytes), 0);
        if (n <= 0)
                _exit(98);
        ((struct handover *)bytes)->version++;
        if (pwrite(fds->settings, bytes, (size_t)n, 0) != n)
                _exit(98);
}

static void test_found(void **state)
{
        (void)state;
        assert_int_equal(executed(hand_over), FOUND_ALL);
        assert_int_equal(executed(hand_over_among_others), FOUND_ALL);
}

static void test_not_found(void **state)
{
        (void)state;
        assert_int_equal(executed(just_execute), FOUND_NONE);
        assert_int_equal(executed(with_a_file_beside), FOUND_NONE);
        assert_int_equal(executed(without_seals), FOUND_NONE);
        const uint32_t *hidden;
        int vmrun;
        assert_null(handover_find(&hidden, &vmrun));
}

static void test_refused(void **state)
{
        (void)state;
        assert_int_equal(executed(of_another_version), EXIT_VMRUN_FAILED);
}

static int passed[64];
static unsigned npassed;
static void note(int fd) { passed[npassed++] = fd; }
static bool is_passed(int fd)
{
        for (unsigned i = 0; i < npassed; i++)
                if (passed[i] == fd)
                        return true;
        return false;
}

/* The descriptors that are open over execve: among them the descriptor that keeps the next program
 * alive in the process tree. */
static void test_descriptors(void **state)
{
        (void)state;
        make_sample();
        sample.far.tree = sample.far.next.life = sample.far.proc = -1;
        for (unsigned i = 0; i < NODES_MAX; i++)
                sample.far.node[i].fd = -1;
        sample.stats.file.dir_fd = sample.stats.direct_fd = sample.profile.dir_fd = -1;
        sample.ctl.dir_fd = sample.ctl.listen_fd = -1;
        npassed = 0;
        handover_private_fds(&sample, note);
        assert_int_equal(npassed, 2);
        assert_true(is_passed(1000) && is_passed(1001));
        sample.far.tree = 1002;
        sample.far.next = (struct tree_child){ .number = 7, .life = 1003 };
        sample.far.proc = 1004;
        npassed = 0;
        handover_private_fds(&sample, note);
        assert_int_equal(npassed, 5);
        assert_true(is_passed(1002) && is_passed(1003) && is_passed(1004));
}

static void test_absolute(void **state)
{
        (void)state;
        static struct options o;
        o = (struct options) { .nnodes = 5, .nodes = {
                { .url = "dax:far", .keys = "secret/keys" },
                { .url = "dax:/abs", .keys = "/abs" }, { .url = "mem:1G" },
                { .url = "nbd+unix:///x?socket=s&tls=no" }, { .url = "nbd+unix:///?socket=%2Fabs" },
        } };
        char dir[] = "/tmp/vmrun test&XXXXXX", path[100];

        assert_non_null(mkdtemp(dir));
        assert_int_equal(chdir(dir), 0);
        options_make_absolute(&o, NULL);
        assert_int_equal(chdir("/"), 0);
        assert_int_equal(rmdir(dir), 0);
        snprintf(path, sizeof(path), "dax:%s/far", dir);
        assert_string_equal(o.nodes[0].url, path);
        snprintf(path, sizeof(path), "%s/secret/keys", dir);
        assert_string_equal(o.nodes[0].keys, path);
        assert_string_equal(o.nodes[1].url, "dax:/abs");
        assert_string_equal(o.nodes[1].keys, "/abs");
        assert_string_equal(o.nodes[2].url, "mem:1G");
        snprintf(path, sizeof(path), "nbd+unix:///x?socket=/tmp/vmrun%%20test%%26%s/s&tls=no",
                 dir + strlen("/tmp/vmrun test&"));
        assert_string_equal(o.nodes[3].url, path);
        assert_string_equal(o.nodes[4].url, "nbd+unix:///?socket=%2Fabs");
        /* The texts that were made live as long as the settings: let go, so that nothing leaks. */
        free((char *)o.nodes[0].url);
        o.nodes[0].url = "dax:far";
        options_make_absolute(&o, "/elsewhere");
        assert_string_equal(o.nodes[0].url, "dax:/elsewhere/far");
}

int main(int argc, char **argv)
{
        if (argc == 1 && strcmp(argv[0], "--look") == 0)
                return look();
        privfd_init();
        handover_init(open("/proc/self/exe", O_PATH | O_CLOEXEC));
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_found), cmocka_unit_test(test_not_found),
                cmocka_unit_test(test_refused), cmocka_unit_test(test_descriptors),
                cmocka_unit_test(test_absolute),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
