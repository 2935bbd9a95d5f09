/*
 * Names for addresses of the guest (lines_guest.h): fields of the structs that all vCPUs share, and
 * for all else the symbols of this program's own file.
 */
#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "allocator.h"
#include "base/kern.h"
#include "base/state.h"
#include "lines_guest.h"

struct field { unsigned at; const char *name; };
#define FIELD(type, field) { offsetof(struct type, field), #field }

static const struct field in_pager[] = {
        FIELD(pager, frames),
        FIELD(pager, nframes),
        FIELD(pager, pfn0),
        FIELD(pager, blind),
        FIELD(pager, low),
        FIELD(pager, high),
        FIELD(pager, batch),
        FIELD(pager, list),
        FIELD(pager, nfree),
        FIELD(pager, fresh),
        FIELD(pager, passed),
        FIELD(pager, passed_tail),
        FIELD(pager, passed_head),
        FIELD(pager, hand),
        FIELD(pager, hot_hand),
        FIELD(pager, nhot),
        FIELD(pager, evicted),
        FIELD(pager, target),
        FIELD(pager, balance),
        FIELD(pager, next_flush),
        FIELD(pager, cleared),
        FIELD(pager, passed_covered),
        FIELD(pager, cleaner),
        FIELD(pager, slot_hand),
        FIELD(pager, slot_pause),
        FIELD(pager, writing),
        FIELD(pager, freed),
        FIELD(pager, unwritable),
        FIELD(pager, locked),
        FIELD(pager, notices),
};
static const struct field in_control[] = {
        FIELD(control, canary0),
        FIELD(control, one_cpu),
        FIELD(control, fetch_mask),
        FIELD(control, nframes),
        FIELD(control, nvcpus),
        FIELD(control, frames_seq),
        FIELD(control, frames_waiters),
        FIELD(control, frames_wishers),
        FIELD(control, starved),
        FIELD(control, service_seq),
        FIELD(control, service_asleep),
        FIELD(control, service_hold),
        FIELD(control, service_held),
        FIELD(control, io_asleep),
        FIELD(control, stopping),
        FIELD(control, wait_ticks),
        FIELD(control, io_news),
        FIELD(control, wire_copied),
        FIELD(control, pool_next),
        FIELD(control, pool_end),
        FIELD(control, canary2),
        FIELD(control, flush_epoch),
        FIELD(control, canary3),
        FIELD(control, time),
        FIELD(control, tsc_khz),
        FIELD(control, nslabs),
        FIELD(control, slabs),
};
static const struct field in_vcpu[] = {
        FIELD(vcpu, canary0),
        FIELD(vcpu, mode),
        FIELD(vcpu, event),
        FIELD(vcpu, flushed),
        FIELD(vcpu, faulting),
        FIELD(vcpu, cr2),
        FIELD(vcpu, exit),
        FIELD(vcpu, upcall),
        FIELD(vcpu, regs),
        FIELD(vcpu, frames),
        FIELD(vcpu, sweeper),
        FIELD(vcpu, lookahead),
};
static const struct field in_tree[] = {
        FIELD(tree_common, numbers),
        FIELD(tree_common, process),
};

static bool in_struct(const char *name, const struct field *field, unsigned n, uint64_t at,
                      char *text, size_t size)
{
        const struct field *best = field;

        for (const struct field *f = field; f < field + n; f++)
                if (f->at <= at && f->at >= best->at)
                        best = f;
        if (at - best->at < 8)
                snprintf(text, size, "%s.%s", name, best->name);
        else
                snprintf(text, size, "%s.%s + %u", name, best->name, (unsigned)at - best->at);
        return false;
}
#define IN(name, table, at) in_struct(name, table, sizeof(table) / sizeof(table[0]), at, text, size)

/* The symbol at or below an address. */
static void symbol(uint64_t addr, char *text, size_t size)
{
        extern const char __executable_start;
        static const char *file;
        struct stat st;
        uint64_t at = 0;

        snprintf(text, size, "%#lx", (unsigned long)addr);
        int fd = file ? -1 : open("/proc/self/exe", O_RDONLY);
        if (fd >= 0 && fstat(fd, &st) == 0)
                file = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (!file || file == MAP_FAILED)
                return;
        const Elf64_Ehdr *e = (const void *)file;
        const Elf64_Shdr *s = (const void *)(file + e->e_shoff);
        uint64_t base = e->e_type == ET_DYN ? (uint64_t)&__executable_start : 0;
        for (unsigned i = 0; i < e->e_shnum; i++) {
                const Elf64_Sym *y = (const void *)(file + s[i].sh_offset);
                const char *names = file + s[s[i].sh_link].sh_offset;
                if (s[i].sh_type != SHT_SYMTAB)
                        continue;
                for (; (const char *)y < file + s[i].sh_offset + s[i].sh_size; y++) {
                        if (ELF64_ST_TYPE(y->st_info) != STT_OBJECT || y->st_value < at ||
                            base + y->st_value > addr)
                                continue;
                        at = y->st_value;
                        snprintf(text, size, "%s + %u", names + y->st_name,
                                 (unsigned)(addr - base - at));
                }
        }
}

bool lines_name(uint64_t addr, char *text, size_t size)
{
        const char *own = lines_page_part(addr);

        if (own) {
                snprintf(text, size, "%s", own);
                return true;
        }
        if (addr - (uint64_t)&pager < sizeof(pager))
                return IN("pager", in_pager, addr - (uint64_t)&pager);
        if (addr - (uint64_t)&control < sizeof(control))
                return IN("control", in_control, addr - (uint64_t)&control);
        if (addr - TREE_WINDOW < SLAB_MAP_SIZE)
                return IN("tree_common", in_tree, addr - TREE_WINDOW);
        if (addr - (WINDOW + VCPUS_OFF) < (uint64_t)SIM_CPUS * VCPU_BLOCK) {
                uint64_t at = (addr - WINDOW - VCPUS_OFF) % VCPU_BLOCK;
                if (at < sizeof(struct vcpu))
                        return IN("vcpu", in_vcpu, at);
                snprintf(text, size, "vcpu block + %u", (unsigned)at);
                return false;
        }
        symbol(addr, text, size);
        return false;
}
