/*
 * ELF files as no linker makes them.  The system's treatment of each is printed, so that a native
 * run and a run under vmrun can be compared.
 *
 *   t_elf [SEED [COUNT]]   COUNT files, from that seed on; files are made in the working directory
 *
 * A file that runs prints the addresses and the content of its segments, and its auxiliary vector.
 * Linux kills a program whose segments it cannot map, after the old program is gone; vmrun finds
 * such segments before, and execve fails: both are "does not start".
 */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "t_elf.h"

/*
 * The program, at any address.  It writes to standard output, a file:
 *   page 0             the results of the writes, the last one first; before them two biases
 *   page 1 + n         the page that list[n] names, if it can be read
 *   from page LIST + 1 on  the auxiliary vector; a page later, /proc/self/maps
 */
#define AUX_AT     ((LIST + 1) * PG)
#define MAPS_AT    (AUX_AT + PG)
#define AUX_BYTES  (20 * 16)
#define STRING_(x) #x
#define STRING(x)  STRING_(x)

extern const char code[], code_probe[], code_end[];
asm(".pushsection .rodata\n"
    ".globl code, code_probe, code_end\n"
    "code:   movq (%rsp), %rcx\n"
    "        leaq 16(%rsp,%rcx,8), %rsi\n"
    "1:      lodsq\n"                                   /* behind the environment */
    "        testq %rax, %rax\n"
    "        jnz 1b\n"
    "        movq %rsi, %r14\n"
    "2:      lodsq\n"
    "        movq %rax, %rcx\n"
    "        lodsq\n"
    "        cmpq $9, %rcx\n"                           /* AT_ENTRY */
    "        jne 2b\n"
    "        movq %rax, %r15\n"
    "        subq code_probe+8(%rip), %r15\n"           /* bias of the program */
    "        leaq code(%rip), %r13\n"
    "        subq code_probe(%rip), %r13\n"             /* bias of this file */
    "        movq %r14, %rsi\n"
    "        movl $" STRING(AUX_BYTES) ", %edx\n"
    "        movl $((" STRING(LIST) " + 1) * 4096), %r10d\n"
    "        call 9f\n"
    "        xorl %ebp, %ebp\n"
    "3:      cmpq code_probe+16(%rip), %rbp\n"
    "        jae 4f\n"
    "        leaq code_probe+32(%rip), %rax\n"
    "        movq (%rax,%rbp,8), %rsi\n"
    "        incl %ebp\n"
    "        movl %ebp, %r10d\n"
    "        shll $12, %r10d\n"
    "        movl $4096, %edx\n"
    "        call 8f\n"
    "        pushq %rax\n"
    "        jmp 3b\n"
    "4:      pushq %r13\n"
    "        pushq %r15\n"
    "        movq %rsp, %rsi\n"
    "        leal 16(,%rbp,8), %edx\n"
    "        xorl %r10d, %r10d\n"
    "        call 9f\n"
    "        leaq 7f(%rip), %rdi\n"
    "        xorl %esi, %esi\n"
    "        movl $2, %eax\n"                           /* open */
    "        syscall\n"
    "        movl %eax, %r12d\n"
    "        movl $((" STRING(LIST) " + 2) * 4096), %ebx\n"
    "        subq $4096, %rsp\n"
    "5:      movl %r12d, %edi\n"
    "        movq %rsp, %rsi\n"
    "        movl $4096, %edx\n"
    "        xorl %eax, %eax\n"                         /* read */
    "        syscall\n"
    "        movl %eax, %edx\n"
    "        movl %ebx, %r10d\n"
    "        addl %eax, %ebx\n"
    "        testl %eax, %eax\n"
    "        jle 6f\n"
    "        call 9f\n"
    "        jmp 5b\n"
    "6:      movq code_probe+24(%rip), %rsi\n"
    "        testq %rsi, %rsi\n"
    "        jz 10f\n"
    "        movb (%rsi,%r13), %al\n"
    "10:     movl $42, %edi\n"
    "        movl $60, %eax\n"                          /* exit */
    "        syscall\n"
    "7:      .asciz \"/proc/self/maps\"\n"
    "8:      movq %r13, %rcx\n"                         /* writes from an address of the list */
    "        btrq $63, %rsi\n"
    "        cmovc %r15, %rcx\n"
    "        addq %rcx, %rsi\n"
    "9:      movl $1, %edi\n"
    "        movl $18, %eax\n"                          /* pwrite64 */
    "        syscall\n"
    "        ret\n"
    "        .balign 8\n"
    "code_probe:\n"
    ".popsection\n");

static void fail(const char *what)
{
        perror(what);
        exit(2);
}

/* --- files --- */

/* Each page of the file is known by its bytes; a CPU that executes them traps. */
static void write_file(const struct odd *o, const char *name)
{
        static unsigned char bytes[FILE_PAGES * PG];
        const size_t code_size = (size_t)(code_probe - code);

        for (size_t i = 0; i < sizeof(bytes); i++)
                bytes[i] = i % PG < 16 ? 0xcc : (unsigned char)(i / PG * 31 + i % 251);
        memcpy(bytes + CODE_PAGE * PG, code, code_size);
        memcpy(bytes + CODE_PAGE * PG + code_size, &o->probe, sizeof(o->probe));
        memcpy(bytes, &o->eh, sizeof(o->eh));
        memcpy(bytes + sizeof(o->eh), o->ph, o->nph * sizeof(o->ph[0]));
        memcpy(bytes + INTERP_AT, o->interp, sizeof(o->interp));
        unlink(name);
        int fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0755);
        if (fd < 0 || write(fd, bytes, o->size) != (ssize_t)o->size || close(fd) != 0)
                fail(name);
}

static void list_page(struct probe *p, uint64_t page, uint64_t flag)
{
        for (uint64_t i = 0; i < p->count; i++)
                if (p->list[i] == (page | flag))
                        return;
        if (p->count < LIST)
                p->list[p->count++] = page | flag;
}

/* Pages of each segment, and those around it where the system puts nothing by itself. */
static void list_pages(struct probe *p, const struct odd *o, uint64_t flag)
{
        uint64_t around = o->eh.e_type == ET_EXEC ? PG : 0;

        for (unsigned i = 0; i < o->nph; i++) {
                const Elf64_Phdr *ph = &o->ph[i];
                uint64_t start = (ph->p_vaddr & -PG) - around;
                uint64_t end = ph->p_vaddr + ph->p_memsz + around;
                if (ph->p_type != PT_LOAD || end < start || end >> 47)
                        continue;
                for (uint64_t at = start; at < end; at += PG)
                        if (at < start + 16 * PG || at >= end - 2 * PG)
                                list_page(p, at, flag);
        }
}

/* --- what a run left --- */

struct run { int err, status; size_t size; char *text; };

static struct run run(const char *name)
{
        char *argv[] = { (char *)name, NULL }, *envp[] = { (char *)"A=b", NULL };
        volatile int err = 0;
        struct run r = { 0 };
        struct stat st;

        int fd = open("out", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        if (fd < 0)
                fail("out");
        pid_t pid = vfork();
        if (pid == 0) {
                dup2(fd, 1);
                execve(name, argv, envp);
                err = errno;
                _exit(0);
        }
        if (pid < 0 || waitpid(pid, &r.status, 0) != pid || fstat(fd, &st) != 0)
                fail("vfork");
        r.err = err;
        r.size = (size_t)st.st_size;
        r.text = calloc(1, r.size + 1);
        if (!r.text || pread(fd, r.text, r.size, 0) != (ssize_t)r.size)
                fail("out");
        close(fd);
        return r;
}

/* The mapping of a page, by the lines of /proc/self/maps. */
struct mapping { unsigned long start, end, off, ino; char prot[5]; };

static bool find_mapping(const char *maps, uint64_t page, struct mapping *m)
{
        for (const char *at = maps; at && *at; at = strchr(at, '\n'), at += at != NULL)
                if (sscanf(at, "%lx-%lx %4s %lx %*s %lu", &m->start, &m->end, m->prot, &m->off,
                           &m->ino) == 5 &&
                    page >= m->start && page < m->end)
                        return true;
        return false;
}

/* Where the CPU has protection keys, Linux lets nobody read what may only be executed; vmrun has
 * none. */
static bool is_execute_only(const struct mapping *m) { return strncmp(m->prot, "--x", 3) == 0; }

static uint64_t hash(const char *bytes, size_t n)
{
        uint64_t h = 0xcbf29ce484222325ul;
        for (size_t i = 0; i < n; i++)
                h = (h ^ (unsigned char)bytes[i]) * 0x100000001b3ul;
        return h;
}

static void show_pages(const struct run *r, const struct probe *p)
{
        const int64_t *word = (const int64_t *)(const void *)r->text;
        const char *maps = r->size > MAPS_AT ? r->text + MAPS_AT : "";
        const uint64_t bias[2] = { (uint64_t)word[1], (uint64_t)word[0] };

        for (uint64_t i = 0; i < p->count; i++) {
                uint64_t page = p->list[i] & ~OF_PROGRAM;
                bool of_program = p->list[i] & OF_PROGRAM;
                int64_t n = word[2 + p->count - 1 - i];
                struct mapping m = { .prot = "none" };
                bool found = find_mapping(maps, (page + bias[of_program]) & (OF_PROGRAM - 1), &m);
                printf("  %s%lx: %s", of_program ? "program " : "", page, m.prot);
                if (found && m.ino)             /* a page of the file */
                        printf(" %lx", (page + bias[of_program] - m.start + m.off) / PG);
                else if (found)
                        printf(" anon");
                if (found && is_execute_only(&m))
                        printf("\n");
                else if (n == (int64_t)PG && r->size >= (i + 2) * PG)
                        printf(" %016lx\n", hash(r->text + (i + 1) * PG, PG));
                else
                        printf(" %s\n", n < 0 ? strerrorname_np((int)-n) : "?");
        }
}

static void show_aux(const struct run *r, bool fixed)
{
        const uint64_t *word = (const uint64_t *)(const void *)r->text;
        const Elf64_auxv_t *a = (const Elf64_auxv_t *)(const void *)(r->text + AUX_AT);
        uint64_t own = word[1], program = word[0];

        for (size_t i = 0; i < AUX_BYTES / sizeof(*a) && a[i].a_type != AT_NULL; i++) {
                uint64_t v = a[i].a_un.a_val;
                switch (a[i].a_type) {
                case AT_PHDR: v -= v ? program : 0; break;
                case AT_ENTRY: v -= program; break;
                case AT_BASE: v -= v ? own : 0; break;
                case AT_PHENT: case AT_PHNUM: case AT_FLAGS: case AT_PAGESZ: case AT_SECURE: break;
                default: continue;
                }
                printf("  aux %lu: %lx\n", a[i].a_type, v);
        }
        if (fixed)
                printf("  program at %lx\n", program);
}

static bool would_kill(int err)
{
        return err == EINVAL || err == ENOMEM || err == EPERM || err == EFAULT ||
               err == EOVERFLOW || err == EEXIST;
}

/* Does it end by the touch of such a page, or not? */
static bool touches_execute_only(const struct run *r, const struct probe *p)
{
        const uint64_t *word = (const uint64_t *)(const void *)r->text;
        struct mapping m;

        return p->touch && r->size > MAPS_AT &&
               find_mapping(r->text + MAPS_AT, p->touch + word[1], &m) && is_execute_only(&m);
}

static void show(const struct run *r, const struct probe *p, bool fixed)
{
        bool dead = WIFSIGNALED(r->status);
        int signal = dead ? WTERMSIG(r->status) : 0;

        /* SIGBUS: its first instruction is behind the file's end, in memory that is not executable;
         * under vmrun the latter counts. */
        if (would_kill(r->err) || ((signal == SIGSEGV || signal == SIGBUS) && !r->size)) {
                printf("does not start\n");
                return;
        }
        if (r->err) {
                printf("%s\n", strerrorname_np(r->err));
                return;
        }
        if (touches_execute_only(r, p))
                printf("touches what it may only execute\n");
        else
                printf("%s %d\n", dead ? "signal" : "exit status",
                       dead ? signal : WEXITSTATUS(r->status));
        if (r->size < MAPS_AT)
                return;
        show_aux(r, fixed);
        show_pages(r, p);
}

/* --- a file --- */

static void name_code(struct odd *o, const struct odd *program)
{
        o->probe.own_entry = o->eh.e_entry;
        o->probe.program_entry = program->eh.e_entry;
        list_pages(&o->probe, o, 0);
        if (o != program)
                list_pages(&o->probe, program, OF_PROGRAM);
        uint64_t touch = o->probe.count ? o->probe.list[draw(o->probe.count)] : 0;
        if (draw(3) == 0 && !(touch & OF_PROGRAM))
                o->probe.touch = touch;
}

static void one(uint64_t seed)
{
        static struct odd program, loader;
        static const struct { unsigned program, loader; } kind[] = {
                { ET_EXEC, 0 }, { ET_EXEC, 0 }, { ET_DYN, 0 }, { ET_DYN, ET_DYN },
                { ET_EXEC, ET_DYN }, { ET_DYN, ET_EXEC }, { ET_EXEC, ET_EXEC },
        };

        draw_start(seed);
        for (int i = 0; i < 8; i++)
                draw(2);
        uint64_t k = draw(sizeof(kind) / sizeof(kind[0]));
        bool linked = kind[k].program == ET_EXEC, has_loader = kind[k].loader;
        odd_make(&program, kind[k].program, linked ? 0x400000 : 0, has_loader ? "./loader" : NULL);
        if (has_loader) {
                /* A program and a loader at fixed addresses overlap by some pages. */
                odd_make(&loader, kind[k].loader,
                         kind[k].loader == ET_EXEC ? 0x404000 : draw(2) * 0x10000, NULL);
                /* execve answers such a loader with an error, or kills its program; vmrun with
                 * another error. */
                loader.eh.e_type = (uint16_t)kind[k].loader;
                if (loader.size < sizeof(loader.eh))
                        loader.size = sizeof(loader.eh);
                name_code(&loader, &program);
                program.probe.own_entry = program.eh.e_entry;
                write_file(&loader, "loader");
        } else {
                name_code(&program, &program);
        }
        write_file(&program, "odd");
        if (program.eh.e_type == ET_EXEC && !linked) {
                printf("%lu: linked to address 0, where vmrun lets not even root map\n", seed);
                return;
        }
        struct run r = run("./odd");
        printf("%lu: %s,%s", seed, linked ? "linked" : "pie", program.what);
        if (has_loader)
                printf("; %s loader,%s", kind[k].loader == ET_EXEC ? "linked" : "pie", loader.what);
        printf(": ");
        show(&r, has_loader ? &loader.probe : &program.probe,
             program.eh.e_type == ET_EXEC || has_loader);
        free(r.text);
}

int main(int argc, char **argv)
{
        uint64_t seed = argc > 1 ? strtoul(argv[1], NULL, 0) : 1;
        uint64_t count = argc > 2 ? strtoul(argv[2], NULL, 0) : 200;

        _Static_assert(sizeof(struct probe) <= 3 * PG / 4, "the code is in the same page");
        personality(ADDR_NO_RANDOMIZE);
        for (uint64_t i = 0; i < count; i++)
                one(seed + i);
        unlink("odd");
        unlink("loader");
        unlink("out");
        return 0;
}
