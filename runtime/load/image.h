/*
 * The process image: from a program's path, arguments and environment to memory and registers at
 * its first instruction.
 *
 * image_open does everything that can fail because of the program (permissions, #! lines, bad
 * files, too many arguments) and touches nothing but files; image_load applies the result through
 * kern.  So image_open alone is the check of an execve before its point of no return.
 *
 * Layout as Linux without address randomisation: ET_EXEC where linked, PIE and static PIE at
 * IMAGE_PIE_BASE, the interpreter (dynamic loader) below CONTROL->mmap_top, the heap right after
 * the program's bss, the stack below TASK_SIZE.
 */
#ifndef VMRUN_IMAGE_H
#define VMRUN_IMAGE_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include "abi_control.h"
#include "abi_exits.h"
#include "load/script.h"
#include "load/stack.h"

struct thread;

#define IMAGE_PIE_BASE 0x555555554000   /* two thirds of TASK_SIZE, as Linux's ELF_ET_DYN_BASE */

struct image_config {
        uint64_t mmap_top, mmap_min;    /* as in struct control */
        uint64_t rlimit_stack;
        uint64_t hwcap;                 /* AT_HWCAP: of CPUID.1:EDX what Linux uses */
        uint64_t hwcap2;                /* AT_HWCAP2: bit 1: rdfsbase and the like may be used */
        uint64_t minsigstksz;           /* AT_MINSIGSTKSZ; 0: leave it out */
};
/* Fills the rest of c from what Linux tells vmrun itself about this CPU.  The caller may change the
 * fields afterwards. */
void image_config_init(struct image_config *c, uint64_t mmap_top, uint64_t mmap_min,
                       uint64_t rlimit_stack);

struct image {
        /* Kept after the load, for /proc/self and the like. */
        char execfn[PATH_MAX];          /* the path as it was given (AT_EXECFN) */
        /* absolute path of the ELF file that runs; for a script, of its interpreter */
        char exe[PATH_MAX];
        char interp[PATH_MAX];          /* its PT_INTERP, "" if static */
        char comm[16];                  /* thread name: of a script, the script's */
        /* has a set-uid or set-gid bit, which vmrun does not honour */
        bool set_id;
        uint64_t start, end;            /* the main program's span, page-aligned */
        /* Linux counts as code the executable segments, and as data all segments from the last one
         * on; */
        uint64_t code_start, code_end;
        uint64_t data_start, data_end;  /* the ends without bss */
        uint64_t base;                  /* the interpreter's base (AT_BASE), 0 if static */
        uint64_t entry;                 /* the program's entry point */
        uint64_t first_rip;             /* the interpreter's, or entry */
        uint64_t brk;                   /* where the heap starts */
        /* lowest address of the first stack mapping; its end is TASK_SIZE */
        uint64_t stack_low;
        struct stack_image stack;       /* bytes: NULL after the load */

        /* The plan. */
        int fd, interp_fd;              /* -1 after the load */
        struct mm_op *ops;
        unsigned nops;
        /* tails of file pages where a bss begins */
        struct zero {
                uint64_t addr, len;
                unsigned next_op;       /* the first operation that comes after it */
        } *zero;
        unsigned nzero;
        unsigned wx;                    /* segments that are writable and executable */
        bool exec_stack, entry_mapped;

        /* ENOEXEC, but another kind of host, or binfmt_misc, may run this file: it is for another
         * machine, or not an ELF file */
        bool foreign;

        struct why why;                 /* set whenever image_open or image_load fail */
};

/* path: as to execve, no PATH search.  envp NULL: empty.  0; or -errno, im->why set, and nothing to
 * close.  The errno values are execve's: ENOENT EACCES ENOEXEC ELIBBAD E2BIG ELOOP ENAMETOOLONG
 * ..., ENOMEM if addresses are not available. */
int image_open(struct image *im, const char *path, char *const argv[], char *const envp[],
               const struct image_config *c);
/* image_open() for a program that is open.  im takes it over even if this fails.  path: as for
 * program_open. */
int image_take(struct image *im, const char *path, struct program *p, char *const envp[],
               const struct image_config *c);
/* Maps everything, writes the first stack, sets t's registers (not cs, ss) and closes the files.
 * Called once, within EXIT_READY.  0, or -errno and im->why. */
int image_load(struct thread *t, struct image *im);
/* Frees everything that is still held; the fields "kept after the load" stay readable.  May be
 * called again. */
void image_close(struct image *im);

/* vmrun's exit status for an error of program_find or image_open: as in shells 126, 127, or 125. */
int image_exit_status(int err);

#endif
