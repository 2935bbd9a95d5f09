/*
 * Guides are preloaded: the program's dynamic linker loads the libraries that LD_PRELOAD names, and
 * programs that the program executes inherit the variable.
 */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/message.h"
#include "settings/guide.h"

#define LD_PRELOAD "LD_PRELOAD"

static char *list;                      /* paths with colons between; NULL: none */

/* NULL, or why this file cannot be preloaded. */
static const char *flaw(const char *path)
{
        Elf64_Ehdr e;
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        ssize_t n = fd < 0 ? -1 : read(fd, &e, sizeof(e));
        int err = errno;

        if (fd >= 0)
                close(fd);
        if (n < 0)
                return err == EISDIR ? "it is a directory: give the path of a library"
                                     : "it cannot be read: make it readable";
        if (n < (ssize_t)sizeof(e) || memcmp(e.e_ident, ELFMAG, SELFMAG) != 0 ||
            e.e_ident[EI_CLASS] != ELFCLASS64 || e.e_machine != EM_X86_64 || e.e_type != ET_DYN)
                return "it is no shared library for x86-64: give one, or a guide that ships with "
                       "vmrun: graph, malloc or redis";
        return strpbrk(path, ": ") ? "the dynamic linker takes no name with a colon or a space: "
                                     "rename it"
                                   : NULL;
}

/* Looks in the folders of the guides that ship with vmrun: of the build tree, of an installed tree
 * that was moved, and of the prefix. */
static bool find_shipped(const char *name, char path[PATH_MAX])
{
        static const char *const folders[] = { "../guides", "../lib/vmrun/guides", GUIDE_DIR };
        char exe[PATH_MAX];
        ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
        int dir = 0;

        for (int i = 0; i < n; i++)
                if (exe[i] == '/')
                        dir = i + 1;
        for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
                snprintf(path, PATH_MAX, "%.*s%s/%s.so", *folders[i] == '/' ? 0 : dir, exe,
                         folders[i], name);
                if (access(path, F_OK) == 0)
                        return true;
        }
        return false;
}

void guide_add(const char *given)
{
        char found[PATH_MAX], path[PATH_MAX];
        bool shipped = !strchr(given, '/') && find_shipped(given, found);
        char *more;

        if (!realpath(shipped ? found : given, path))
                die_(EXIT_VMRUN_FAILED, "--guide %s: %s: give the path of a library, or a guide "
                     "that ships with vmrun: graph, malloc or redis", given, strerror(errno));
        const char *why = flaw(path);
        if (why)
                die_(EXIT_VMRUN_FAILED, "--guide %s: %s", given, why);
        if (asprintf(&more, "%s%s%s", list ? list : "", list ? ":" : "", path) < 0)
                die_(EXIT_VMRUN_FAILED, "out of memory: free some on this host");
        free(list);
        list = more;
}

void guide_preload(void)
{
        const char *old = getenv(LD_PRELOAD);
        char *all;

        if (!list)
                return;
        if (asprintf(&all, "%s%s%s", list, old && *old ? ":" : "", old ? old : "") < 0 ||
            setenv(LD_PRELOAD, all, 1) != 0)
                die_(EXIT_VMRUN_FAILED, "out of memory: free some on this host");
        free(all);
}

void guide_missed(const char *program)
{
        if (list)
                warnx_("--guide: %s is static, so it has no dynamic linker that could load a guide "
                       "(programs that it executes may have one)", program);
}
