/*
 * From a path to a process image: PATH search, permissions, "#!" lines (against what the kernel
 * under this test does), and where things are placed. The first stack is in test_stack.c, loading
 * in test_load.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include "load/image.h"
#include "load/script.h"
#include "memory/gmem.h"
#include "mkelf.h"
#include "vm/thread.h"
#include "base/message.h"
#include "base/options.h"
#include "base/privfd.h"

/* image.c is linked whole; nothing here loads. */
int64_t thread_upcall(struct thread *t, enum upcall_op op, uint64_t a0, uint64_t a1, uint64_t a2)
{
        (void)t, (void)op, (void)a0, (void)a1, (void)a2;
        abort();
}
int gmem_write(struct thread *t, uint64_t dst, const void *src, size_t len)
{
        (void)t, (void)dst, (void)src, (void)len;
        abort();
}
void info_(const char *fmt, ...) { (void)fmt; }

static char dir[64];
static struct image im;
static struct why why;
static struct mkelf m;
static const struct image_config config = { .mmap_top = 0x7ffff7fff000,
                                            .mmap_min = 0x10000,
                                            .rlimit_stack = 8 << 20,
                                            .hwcap = 1,
                                            .hwcap2 = 2,
                                            .minsigstksz = 2048 };
static char *const argv2[] = { (char *)"prog", (char *)"one", NULL };
static char *const no_env[] = { NULL };

/* ---- PATH ---- */

static const char *in_dir(const char *name)
{
        static char buf[4][PATH_MAX];
        static int k;
        char *p = buf[k++ % 4];
        snprintf(p, PATH_MAX, "%s/%s", dir, name);
        return p;
}

static void find(void **state)
{
        (void)state;
        char out[PATH_MAX], list[512];
        mkdir(in_dir("p1"), 0755);
        mkdir(in_dir("p2"), 0755);
        mkdir(in_dir("p1/cmd"), 0755);                  /* a directory is no program */
        bytes_file("x", 1, in_dir("p2/cmd"));
        bytes_file("x", 1, in_dir("p1/plain"));
        assert_int_equal(chmod(in_dir("p1/plain"), 0644), 0);
        snprintf(list, sizeof(list), "/nonexistent:%s:%s", in_dir("p1"), in_dir("p2"));
        assert_int_equal(program_find(out, "cmd", list, &why), 0);
        assert_string_equal(out, in_dir("p2/cmd"));
        assert_int_equal(program_find(out, "plain", list, &why), -EACCES);
        assert_non_null(strstr(why.text, "p1/plain: found in PATH"));
        assert_int_equal(image_exit_status(-EACCES), 126);
        assert_int_equal(program_find(out, "none", list, &why), -ENOENT);
        assert_non_null(strstr(why.text, "none: not found in PATH"));
        assert_int_equal(image_exit_status(-ENOENT), 127);
        assert_int_equal(program_find(out, "", list, &why), -ENOENT);
        assert_int_equal(program_find(out, "./a/b", list, &why), 0);
        assert_string_equal(out, "./a/b");
        assert_int_equal(program_find(out, "sh", NULL, &why), 0);

        char cwd[PATH_MAX];
        assert_non_null(getcwd(cwd, sizeof(cwd)));
        assert_int_equal(chdir(in_dir("p2")), 0);
        assert_int_equal(program_find(out, "cmd", "/nonexistent::/bin", &why), 0);
        assert_string_equal(out, "cmd");                /* an empty element: here */
        assert_int_equal(program_find(out, "cmd", "", &why), 0);
        assert_int_equal(program_find(out, "cmd", "/bin:", &why), 0);
        assert_int_equal(chdir(cwd), 0);
}

/* ---- "#!" lines, as this kernel treats them ---- */

/* As the interpreter of a script: writes its arguments to fd 9. */
static int show_argv(char **argv)
{
        for (; *argv; argv++)
                if (write(9, *argv, strlen(*argv) + 1) < 0)
                        return 1;
        return 0;
}

/* What execve makes of path: its errno, or 0 and the NUL-ended arguments in out. */
static int native(const char *path, char *const argv[], char *out, size_t size, size_t *len)
{
        int pipes[2], status;
        assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
        pid_t pid = fork();
        if (pid == 0) {
                char *env[] = { (char *)"VMRUN_SHOW_ARGV=1", NULL };
                dup2(pipes[1], 9);
                execve(path, argv, env);
                _exit(errno);
        }
        close(pipes[1]);
        ssize_t n;
        for (*len = 0; (n = read(pipes[0], out + *len, size - *len)) > 0;)
                *len += (size_t)n;
        close(pipes[0]);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status));
        return WEXITSTATUS(status);
}

static void compare_script(const char *path)
{
        static char theirs[65536], ours[65536];
        size_t n, k = 0;
        int err = native(path, argv2, theirs, sizeof(theirs), &n);
        struct program p;
        int ret = program_open(&p, &(struct program_place){ AT_FDCWD, path, 0 }, path, argv2, &why);
        if (ret != -err)
                fail_msg("%s: %d (%s), execve says %d", path, ret, ret ? why.text : "", -err);
        if (ret) {
                assert_true(*why.text != '\0');
                return;
        }
        for (char **a = p.argv; *a; k += strlen(*a++) + 1)
                memcpy(ours + k, *a, strlen(*a) + 1);
        program_close(&p);
        assert_int_equal(k, n);
        assert_memory_equal(ours, theirs, n);
}

static void scripts(void **state)
{
        (void)state;
        /* SHOW stands for this very program, as a short path */
        static const char *const lines[] = {
                "#!SHOW\n", "#!SHOW", "#! \t SHOW \t \n", "#!SHOW arg\n", "#!SHOW  two words \t\n",
                "#!SHOW\targ\nSHOW other\n", "#!SHOW ", "#!SHOW arg", "#!\n", "#!   \n", "#!",
                "#!   ", "#!/nonexistent/interpreter\n", "#!/\n", "#!SHOW\r\n", "#!/etc/passwd\n",
                "#!sub/none\n",
        };
        char show[PATH_MAX], body[2048], self[PATH_MAX];
        assert_non_null(realpath("/proc/self/exe", self));
        snprintf(show, sizeof(show), "%s", in_dir("show"));
        assert_int_equal(symlink(self, show), 0);
        const char *script = in_dir("script");
        for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
                const char *at = strstr(lines[i], "SHOW");
                size_t before = at ? (size_t)(at - lines[i]) : strlen(lines[i]);
                memcpy(body, lines[i], before);
                strcpy(stpcpy(body + before, at ? show : ""), at ? at + 4 : "");
                bytes_file(body, strlen(body), script);
                compare_script(script);
        }
        for (size_t len = 240; len < 270; len++) {      /* around the 256 bytes Linux looks at */
                for (int kind = 0; kind < 3; kind++) {
                        /* a long argument, a short name and blanks, a name that ends at len */
                        memset(body, kind == 0 ? 'x' : kind == 1 ? ' ' : '/', sizeof(body));
                        memcpy(body, "#!", 2);
                        size_t at = kind == 2 ? len - strlen(show) : 2;
                        memcpy(body + at, show, strlen(show));
                        if (kind < 2)
                                body[at + strlen(show)] = ' ';
                        body[len] = '\n';
                        bytes_file(body, len + 1, script);
                        compare_script(script);
                        bytes_file(body, len, script);          /* no newline at all */
                        compare_script(script);
                }
        }
}

static void script_chain(void **state)
{
        (void)state;
        char body[PATH_MAX], name[16];
        for (int i = 0; i <= SCRIPTS_MAX + 1; i++) {
                snprintf(name, sizeof(name), "chain%d", i - 1);
                int n = snprintf(body, sizeof(body), "#!%s %d\n",
                                 i == 0 ? in_dir("show") : in_dir(name), i);
                snprintf(name, sizeof(name), "chain%d", i);
                bytes_file(body, (size_t)n, in_dir(name));
                compare_script(in_dir(name));
        }
        assert_non_null(strstr(why.text, "more than 5 scripts"));
        bytes_file("#!/no/such\r\n", 12, in_dir("dos"));
        assert_int_equal(image_open(&im, in_dir("dos"), argv2, no_env, &config), -ENOENT);
        assert_non_null(strstr(im.why.text, "CR LF"));
        bytes_file("echo hello\n", 11, in_dir("text"));
        assert_int_equal(image_open(&im, in_dir("text"), argv2, no_env, &config), -ENOEXEC);
        assert_non_null(
                strstr(im.why.text, "not an ELF file; if it is a shell script, give it a #! line"));
        snprintf(body, sizeof(body), "#!%s\n", in_dir("show"));
        bytes_file(body, strlen(body), in_dir("good"));
        assert_int_equal(image_open(&im, in_dir("good"), argv2, no_env, &config), 0);
        assert_string_equal(im.execfn, in_dir("good"));
        assert_string_equal(im.comm, "good");
        char self[PATH_MAX];
        assert_non_null(realpath("/proc/self/exe", self));
        assert_string_equal(im.exe, self);
        image_close(&im);
}

/* ---- Permissions and bad files ---- */

static void open_fails(const char *path, int err, const char *says)
{
        int ret = image_open(&im, path, argv2, no_env, &config);
        if (ret != -err || !strstr(im.why.text, says))
                fail_msg("%s: %d \"%s\"; expected %d \"%s\"", path, ret, im.why.text, -err, says);
        image_close(&im);               /* harmless */
}

static void permissions(void **state)
{
        (void)state;
        const char *path = in_dir("perm");
        uid_t uid = geteuid();
        mkelf_init(&m, ET_EXEC);
        mkelf_file(&m, path);
        if (uid == 0)
                assert_int_equal(seteuid(65534), 0);
        open_fails(in_dir("nothing"), ENOENT, "No such file");
        open_fails(in_dir("perm/x"), ENOTDIR, "Not a directory");
        open_fails(dir, EACCES, "is a directory");
        open_fails("/dev/null", EACCES, "not a regular file");
        assert_int_equal(seteuid(uid), 0);
        chmod(path, 0644);
        open_fails(path, EACCES, "chmod +x");
        if (uid == 0) {
                chmod(path, 0711);
                assert_int_equal(seteuid(65534), 0);
                open_fails(path, EACCES, "may be executed, but not read");
                assert_int_equal(seteuid(0), 0);
        }
        chmod(path, 04755);
        assert_int_equal(image_open(&im, path, argv2, no_env, &config), 0);
        assert_true(im.set_id);
        image_close(&im);
}

static void interpreters(void **state)
{
        (void)state;
        const char *ld = in_dir("ld"), *prog = in_dir("dynamic");
        mkelf_init(&m, ET_DYN);
        mkelf_interp(&m, ld, strlen(ld) + 1);
        mkelf_file(&m, prog);
        open_fails(prog, ENOENT, "ld (the program interpreter (PT_INTERP) of ");
        bytes_file("text", 4, ld);
        open_fails(prog, ELIBBAD, "ld: not an ELF file");
        chmod(ld, 0644);
        open_fails(prog, EACCES, "not executable");
        mkelf_init(&m, ET_DYN);
        m.eh.e_machine = EM_AARCH64;
        mkelf_file(&m, ld);
        open_fails(prog, ELIBBAD, "for machine 183");
        mkelf_init(&m, ET_DYN);
        mkelf_file(&m, ld);
        assert_int_equal(image_open(&im, prog, argv2, no_env, &config), 0);
        assert_string_equal(im.interp, ld);
        assert_int_equal(im.start, IMAGE_PIE_BASE);
        assert_int_equal(im.base, config.mmap_top - 0x6000);
        assert_int_equal(im.first_rip, im.base + 0x1000);
        assert_int_equal(im.entry, IMAGE_PIE_BASE + 0x1000);
        image_close(&im);
}

/* ---- Placement ---- */

static void open_elf(const struct image_config *c, int expected)
{
        const char *path = in_dir("placed");
        mkelf_file(&m, path);
        int err = image_open(&im, path, argv2, no_env, c);
        if (err != expected)
                fail_msg("%d \"%s\"; expected %d", err, im.why.text, expected);
}

static void placement(void **state)
{
        (void)state;
        mkelf_init(&m, ET_EXEC);
        open_elf(&config, 0);
        assert_int_equal(im.start, 0x400000);
        assert_int_equal(im.brk, 0x406000);
        assert_int_equal(im.nops, 5);                   /* text, data, bss, stack, brk */
        assert_int_equal(im.nzero, 1);
        assert_int_equal(im.zero[0].addr, 0x402310);
        assert_int_equal(im.zero[0].len, 0xcf0);
        assert_int_equal(im.ops[2].addr, 0x403000);
        assert_int_equal(im.ops[2].len, 0x3000);
        assert_int_equal(im.ops[2].flags, MAP_PRIVATE | MAP_FIXED | MAP_ANONYMOUS);
        assert_int_equal(im.ops[3].op, MM_STACK);
        assert_int_equal(im.ops[3].addr, TASK_SIZE - 0x21000);
        assert_int_equal(im.ops[3].len, 0x21000);
        assert_int_equal(im.ops[3].off, 8 << 20);
        assert_int_equal(im.ops[4].op, MM_BRK);
        assert_int_equal(im.ops[4].addr, 0x406000);
        image_close(&im);

        /* read-only: its tail is not zeroed; its bss is writable, as in Linux */
        m.ph[1].p_flags = PF_R;
        open_elf(&config, 0);
        assert_int_equal(im.nzero, 0);
        assert_int_equal(im.ops[2].prot, PROT_READ | PROT_WRITE);
        image_close(&im);

        mkelf_init(&m, ET_EXEC); /* a later segment takes the page of an earlier one's tail */
        mkelf_add(&m, PT_LOAD, PF_R | PF_W | PF_X, 0x2800, 0x402800, 0x100, 0x100);
        m.ph[1].p_memsz = 0x400;
        open_elf(&config, 0);
        assert_int_equal(im.nzero, 0);
        assert_int_equal(im.wx, 1);
        image_close(&im);

        mkelf_init(&m, ET_DYN);
        m.ph[0].p_align = 0x200000;
        open_elf(&config, 0);
        assert_int_equal(im.start, IMAGE_PIE_BASE & ~0x1fffffull);
        image_close(&im);

        mkelf_init(&m, ET_DYN);                 /* the first segment is placed, not the lowest */
        Elf64_Phdr ph = m.ph[0];
        m.ph[0] = m.ph[1];
        m.ph[1] = ph;
        open_elf(&config, 0);
        assert_int_equal(im.start, IMAGE_PIE_BASE - 0x3000);
        image_close(&im);

        struct image_config small = config;
        small.rlimit_stack = 0x8000;
        open_elf(&small, 0);
        assert_int_equal(im.stack_low, TASK_SIZE - 0x8000);
        image_close(&im);

        mkelf_init(&m, ET_EXEC);
        m.ph[0].p_vaddr = 0x8000;
        open_elf(&config, -EPERM);
        mkelf_init(&m, ET_EXEC);                        /* into the stack */
        m.ph[1].p_vaddr = TASK_SIZE - 0x4ff0 ;
        open_elf(&config, -ENOMEM);
        mkelf_init(&m, ET_DYN);                         /* 20 TiB of bss: reaches vmrun's range */
        m.ph[1].p_memsz = 20ull << 40;
        open_elf(&config, -ENOMEM);
        assert_non_null(strstr(im.why.text, "the range vmrun keeps for itself"));
        mkelf_init(&m, ET_DYN);
        m.ph[0].p_align = 1ull << 62;
        open_elf(&config, -EPERM);
}

/* The interpreter is placed apart from the program and vmrun's own range. */
static void interp_placement(void **state)
{
        (void)state;
        const char *ld = in_dir("ld2");
        mkelf_init(&m, ET_DYN);
        mkelf_file(&m, ld);
        mkelf_init(&m, ET_EXEC);
        mkelf_interp(&m, ld, strlen(ld) + 1);
        m.ph[1].p_vaddr = config.mmap_top - 0x4ff0;
        m.ph[0].p_vaddr = config.mmap_top - 0x7000;
        open_elf(&config, 0);
        assert_int_equal(im.base, config.mmap_top - 0xd000);
        image_close(&im);

        struct image_config c = config;
        c.mmap_top = RESERVED_END + 0x3000;
        m.ph[0].p_vaddr = 0x400000;
        m.ph[1].p_vaddr = 0x402010;
        open_elf(&c, 0);
        assert_int_equal(im.base, RESERVED_START - 0x6000);
        image_close(&im);

        /* Both linked to one place: the interpreter, mapped later, gets it. */
        mkelf_init(&m, ET_EXEC);
        mkelf_file(&m, ld);
        mkelf_interp(&m, ld, strlen(ld) + 1);
        open_elf(&config, 0);
        assert_int_equal(im.base, 0);
        assert_int_equal(im.nops, 3 + 1 + 3 + 2);
        assert_int_equal(im.ops[3].op, MM_UNMAP);
        assert_int_equal(im.ops[3].addr, 0x400000);
        assert_int_equal(im.ops[3].len, 0x6000);
        assert_int_equal(im.ops[4].fd, im.interp_fd);
        assert_int_equal(im.nzero, 1);                  /* its own */
        image_close(&im);
}

/* Of two files that are both at fault Linux names the interpreter first: it maps segments last. */
static void order_of_errors(void **state)
{
        (void)state;
        const char *ld = in_dir("ld3");
        mkelf_init(&m, ET_DYN);
        m.eh.e_machine = EM_AARCH64;
        mkelf_file(&m, ld);
        mkelf_init(&m, ET_EXEC);
        mkelf_interp(&m, ld, strlen(ld) + 1);
        m.ph[1].p_memsz = 1;
        open_elf(&config, -ELIBBAD);
        mkelf_init(&m, ET_DYN);
        m.ph[1].p_offset++;
        mkelf_file(&m, ld);
        mkelf_init(&m, ET_EXEC);
        mkelf_interp(&m, ld, strlen(ld) + 1);
        open_elf(&config, -EINVAL);
        assert_non_null(strstr(im.why.text, "ld3: segment 1 cannot be mapped"));
}

static void many_segments(void **state)
{
        (void)state;
        mkelf_init(&m, ET_EXEC);
        m.nph = 0;
        m.size = 0x20000;
        mkelf_add(&m, PT_LOAD, PF_R | PF_X, 0, 0x400000, 0x20000, 0x20000);
        while (m.nph < 1170)
                mkelf_add(&m, PT_LOAD, PF_R | PF_W, 0, 0x800000 + m.nph * 0x4000ull, 0x10, 0x3000);
        open_elf(&config, 0);
        assert_int_equal(im.nops, 1 + 2 * 1169 + 2);
        assert_int_equal(im.nzero, 1169);
        image_close(&im);
}

static int make_dir(void **state)
{
        (void)state;
        strcpy(dir, "/tmp/vmrun-image-XXXXXX");
        return !mkdtemp(dir) || chmod(dir, 0755);
}

static int remove_dir(void **state)
{
        (void)state;
        char command[128];
        snprintf(command, sizeof(command), "rm -rf '%s'", dir);
        return system(command);
}

int main(int argc, char **argv)
{
        (void)argc;
        if (getenv("VMRUN_SHOW_ARGV"))
                return show_argv(argv);
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(find), cmocka_unit_test(scripts), cmocka_unit_test(script_chain),
                cmocka_unit_test(permissions), cmocka_unit_test(interpreters),
                cmocka_unit_test(placement), cmocka_unit_test(interp_placement),
                cmocka_unit_test(order_of_errors), cmocka_unit_test(many_segments),
        };
        return cmocka_run_group_tests_name("image", tests, make_dir, remove_dir);
}
