/*
 * The VM and its memory: opening KVM, guest-physical layout, memory slots, the first page tables.
 */
#include <asm/kvm_para.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/kvm.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "abi_control.h"
#include "abi_image.h"
#include "base/host.h"
#include "base/privfd.h"
#include "include/fault_profile.h"
#include "pager/pte.h"
#include "vm/kvm.h"
#include "vm/space.h"

extern const char kern_image[], kern_image_end[];       /* kern_image.S */

#define MiB (1ull << 20)
#define GiB (1ull << 30)
#define LARGE (2 * MiB)
#define ROUND_UP(x, a) (((x) + (a) - 1) / (a) * (a))

static const struct kern_header *kern(void) { return (const struct kern_header *)kern_image; }

/* Before Linux 5.16 such a flush could be forgotten, and before 6.0 a vCPU was said not to run in
 * the middle of an instruction that KVM emulates. */
static bool flushes_for_guests(const struct vm *vm, uint32_t features)
{
        const uint32_t needed = 1u << KVM_FEATURE_STEAL_TIME | 1u << KVM_FEATURE_PV_TLB_FLUSH;
        const int since_6_0 = KVM_CAP_X86_TRIPLE_FAULT_EVENT;

        return (features & needed) == needed &&
               ioctl(vm->kvm_fd, KVM_CHECK_EXTENSION, since_6_0) > 0;
}

static int get_cpuid(struct vm *vm)
{
        const unsigned max = 256;
        struct kvm_cpuid2 *c = calloc(1, sizeof(*c) + max * sizeof(c->entries[0]));

        if (!c)
                return -ENOMEM;
        c->nent = max;
        vm->cpuid = c;
        if (ioctl(vm->kvm_fd, KVM_GET_SUPPORTED_CPUID, c) < 0)
                return -errno;
        vm->phys_bits = host_cpuid_space_bits(c);
        for (unsigned i = 0; i < c->nent; i++) {
                const struct kvm_cpuid_entry2 *e = &c->entries[i];
                if (e->function == 0xd && e->index == 0)
                        vm->xcr0 = e->eax | (uint64_t)e->edx << 32;
                if (e->function == 7 && e->index == 0)
                        vm->fsgsbase = e->ebx & 1;
                if (e->function == KVM_CPUID_FEATURES)
                        vm->flushes = flushes_for_guests(vm, e->eax);
        }
        return 0;
}

static int device = -1;                 /* /dev/kvm, if it is open already */

void vm_use_device(int fd) { device = fd; }

/*
 * Where KVM offers it, PAUSE makes no exit.  Linux advises this for vCPUs that have a CPU each: by
 * the exits of a vCPU that spins in ring 0, KVM lets another vCPU of the VM run first.  But a
 * program's loops have no such help natively, and kern's own loops yield (env_relax()).
 */
static void let_pause(int fd)
{
        struct kvm_enable_cap c = { .cap = KVM_CAP_X86_DISABLE_EXITS,
                                    .args[0] = KVM_X86_DISABLE_EXITS_PAUSE };
        int offered = ioctl(fd, KVM_CHECK_EXTENSION, KVM_CAP_X86_DISABLE_EXITS);

        if (offered > 0 && (offered & KVM_X86_DISABLE_EXITS_PAUSE))
                ioctl(fd, KVM_ENABLE_CAP, &c);
}

/* KVM_CREATE_VM registers a notifier of the address space, which Linux gives up (EINTR) if a signal
 * is pending that is not blocked.  SIGSTOP and a freezer cannot be blocked, so the VM is made
 * again. */
static int create_vm(int kvm_fd)
{
        const uint64_t all = ~0ull;
        uint64_t mask;
        int fd;

        syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, &mask, sizeof(mask));
        do
                fd = PRIVFD_NEW(ioctl(kvm_fd, KVM_CREATE_VM, 0));
        while (fd == -EINTR);
        if (fd >= 0)
                let_pause(fd);
        syscall(SYS_rt_sigprocmask, SIG_SETMASK, &mask, NULL, sizeof(mask));
        return fd;
}

int vm_open(struct vm *vm, char *why, size_t n)
{
        const char *reason;
        int err = device >= 0 ? 0 : host_check_kvm(&reason);

        memset(vm, 0, sizeof(*vm));
        vm->kvm_fd = vm->fd = -1;
        pthread_mutex_init(&vm->lock, NULL);
        if (err) {
                snprintf(why, n, "%s", reason);
                return err;
        }
        vm->kvm_fd = device >= 0 ? device : PRIVFD_NEW(open("/dev/kvm", O_RDWR | O_CLOEXEC));
        if (vm->kvm_fd < 0)
                return snprintf(why, n, "/dev/kvm: %s", strerror(-vm->kvm_fd)), vm->kvm_fd;
        vm->fd = create_vm(vm->kvm_fd);
        if (vm->fd < 0) {
                err = vm->fd;
                snprintf(why, n, "KVM cannot make a virtual machine: %s", strerror(-err));
                goto fail;
        }
        vm->run_size = ioctl(vm->kvm_fd, KVM_GET_VCPU_MMAP_SIZE, 0);
        int xsave = ioctl(vm->fd, KVM_CHECK_EXTENSION, KVM_CAP_XSAVE2);
        vm->xsave2 = xsave > 0;
        vm->xsave_size = xsave > 4096 ? (uint32_t)xsave : 4096;
        int most = ioctl(vm->kvm_fd, KVM_CHECK_EXTENSION, KVM_CAP_MAX_VCPUS);
        vm->vcpus_max = most > 4 && most < VCPUS_MAX ? (unsigned)most : most <= 4 ? 4 : VCPUS_MAX;
        err = get_cpuid(vm);
        if (err) {
                snprintf(why, n, "KVM does not tell its CPU features: %s", strerror(-err));
                goto fail;
        }
        err = host_check_phys_bits(host_phys_bits(), host_cpuid_phys_bits(vm->cpuid), &reason);
        if (err) {
                snprintf(why, n, "%s", reason);
                goto fail;
        }
        return 0;
fail:
        vm_close(vm);
        return err;
}

void vm_close(struct vm *vm)
{
        if (vm->fd >= 0)
                privfd_close(vm->fd);
        if (vm->kvm_fd >= 0)
                privfd_close(vm->kvm_fd);
        free(vm->cpuid);
        vm->cpuid = NULL;
        free(vm->slot);
        vm->slot = NULL;
        vm->fd = vm->kvm_fd = -1;
        munmap((void *)WINDOW, WINDOW_END - WINDOW);
}

void vm_refuse_msrs(struct vm *vm)
{
        /* a filter must have a range: one MSR is refused by name, all others by default */
        uint8_t none[1] = { 0 };
        struct kvm_msr_filter f = {
                .flags = KVM_MSR_FILTER_DEFAULT_DENY,
                .ranges[0] = { .flags = KVM_MSR_FILTER_READ | KVM_MSR_FILTER_WRITE,
                               .nmsrs = 1,
                               .bitmap = none },
        };

        ioctl(vm->fd, KVM_X86_SET_MSR_FILTER, &f);
}

int vm_make_again(struct vm *vm, char *why, size_t n)
{
        vm->fd = create_vm(vm->kvm_fd);
        if (vm->fd < 0)
                snprintf(why, n, "KVM cannot make a virtual machine again: %s", strerror(-vm->fd));
        return vm->fd < 0 ? vm->fd : 0;
}

/* Room for one more memory slot.  Under lock. */
static struct kvm_userspace_memory_region *new_slot(struct vm *vm)
{
        if (vm->next_slot == vm->slot_room) {
                uint32_t room = vm->slot_room ? 2 * vm->slot_room : 16;
                struct kvm_userspace_memory_region *more = realloc(vm->slot, room * sizeof(*more));
                if (!more)
                        return NULL;
                vm->slot = more;
                vm->slot_room = room;
        }
        return &vm->slot[vm->next_slot];
}

int vm_add_memory(struct vm *vm, uint64_t gpa, void *host, uint64_t size)
{
        int err = -ENOMEM;

        pthread_mutex_lock(&vm->lock);
        struct kvm_userspace_memory_region *r = new_slot(vm);
        if (r) {
                *r = (struct kvm_userspace_memory_region){
                        .slot = vm->next_slot,
                        .guest_phys_addr = gpa,
                        .memory_size = size,
                        .userspace_addr = (uint64_t)host,
                };
                err = ioctl(vm->fd, KVM_SET_USER_MEMORY_REGION, r) < 0 ? -errno : 0;
        }
        if (!err)
                vm->next_slot++;
        pthread_mutex_unlock(&vm->lock);
        return err;
}

static struct kvm_userspace_memory_region *find_slot(const struct vm *vm, uint64_t gpa)
{
        for (uint32_t i = 0; i < vm->next_slot; i++)
                if (vm->slot[i].guest_phys_addr == gpa)
                        return &vm->slot[i];
        return NULL;
}

int vm_replace_memory(struct vm *vm, uint64_t gpa, void *host, uint64_t size)
{
        int err = 0;

        pthread_mutex_lock(&vm->lock);
        struct kvm_userspace_memory_region *r = find_slot(vm, gpa);
        if (r && r->memory_size) {      /* KVM moves no memory of a slot */
                r->memory_size = 0;
                err = ioctl(vm->fd, KVM_SET_USER_MEMORY_REGION, r) < 0 ? -errno : 0;
        }
        if (r && !err && size) {
                r->memory_size = size;
                r->userspace_addr = (uint64_t)host;
                err = ioctl(vm->fd, KVM_SET_USER_MEMORY_REGION, r) < 0 ? -errno : 0;
                r->memory_size = err ? 0 : size;
        }
        pthread_mutex_unlock(&vm->lock);
        return r || !size ? err : vm_add_memory(vm, gpa, host, size);
}

uint64_t vm_take_gpa(struct vm *vm, uint64_t size)
{
        uint64_t gpa;

        size = ROUND_UP(size, LARGE);
        pthread_mutex_lock(&vm->lock);
        gpa = vm->next_gpa;
        if (size > CONTROL->arena_gpa - gpa)
                gpa = 0;
        else
                vm->next_gpa += size;
        pthread_mutex_unlock(&vm->lock);
        return gpa;
}

/* Bytes of the frames, and of the bounce pages and those of repairs and scrubs behind them. */
static uint64_t frames_bytes(uint64_t nframes)
{
        return ROUND_UP((nframes + bounce_pages(nframes) + REPAIR_FRAMES + SCRUB_FRAMES) *
                                PAGE_SIZE, LARGE);
}

uint64_t vm_gpa_room(const struct vm *vm, uint64_t nframes)
{
        uint64_t top = space_far_most(vm->phys_bits);
        uint64_t ram = RAM_GPA + POOL_OFF + nframes * PAGE_SIZE;
        /* The pool takes 1/64 of the tiers' size, and both must fit. */
        return ram + 4 * GiB < top ? (top - ram - 4 * GiB) / 65 * 64 : 0;
}

uint64_t vm_far_room(const struct vm *vm)
{
        uint64_t most = space_pool_pages(CONTROL->pool_max - POOL_OFF);
        uint64_t have = CONTROL->nframes + CONTROL->far_pages;

        (void)vm;
        return most > have ? most - have : 0;
}

/* Anonymous memory at a fixed address of the window, and its KVM memory slot.  advice:
 * MADV_HUGEPAGE or MADV_NOHUGEPAGE. */
static int add_ram(struct vm *vm, uint64_t off, uint64_t size, int advice)
{
        void *at = (void *)(WINDOW + off);
        void *p = mmap(at, size, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);

        if (p == MAP_FAILED)
                return -errno;
        if (p != at) {                  /* a kernel that takes the address as a hint */
                munmap(p, size);
                return -EEXIST;
        }
        madvise(p, size, MADV_DONTDUMP);
        madvise(p, size, MADV_DONTFORK);
        madvise(p, size, advice);
        return vm_add_memory(vm, RAM_GPA + off, p, size);
}

/* May kern write there?  Not to the vCPU blocks, which each vCPU writes at VCPU_SELF, nor to these
 * tables. */
static bool is_writable(uint64_t off)
{
        return off >= POOL_OFF || (off >= RINGS_OFF && off < RAM_PD_OFF);
}

/* Fills in the directories of the window for [from, to), multiples of 2 MiB.  No TLB keeps entries
 * that are not present, so this is also done while the guest runs (docs/architecture.md, invariant
 * 10). */
static void map_ram(int level, uint64_t from, uint64_t to)
{
        uint64_t *pd = (uint64_t *)(WINDOW + RAM_PD_OFF);

        for (uint64_t off = from; off < to; off += LARGE)
                pd[off / LARGE] = pte_make_window(RAM_GPA + off, level) &
                                  ~(is_writable(off) ? 0 : PTE_W);
}

int64_t vm_grow_pool(struct vm *vm, uint64_t size)
{
        if (size % LARGE != 0 || size > CONTROL->pool_max - CONTROL->pool_end)
                return -EINVAL;
        int err = add_ram(vm, CONTROL->pool_end, size, MADV_HUGEPAGE);
        if (!err)
                map_ram(vm->level, CONTROL->pool_end, CONTROL->pool_end + size);
        return err;
}

/*
 * Page tables of the window.  The first 2 MiB (kern's image and CONTROL) have small pages, so that
 * only its text is executable.  What kern never writes is mapped without W, so that a wild store of
 * the program faults.
 */
void vm_map_window(struct vm *vm)
{
        uint64_t *pdpt = (uint64_t *)(WINDOW + PDPT_OFF(WINDOW >> 39));
        uint64_t *pd = (uint64_t *)(WINDOW + RAM_PD_OFF), *pt = (uint64_t *)(WINDOW + RAM_PT_OFF);
        uint64_t user = vm->level == 3 ? PTE_ACCESS : 0;
        uint64_t ram_end = CONTROL->extra_end;
        uint64_t text = kern()->text_end - WINDOW, constant = kern()->constant_end - WINDOW;

        /* A large cache needs more than one PML4 slot: their PDPTs are neighbours too. */
        for (uint64_t off = 0; off < ram_end; off += GiB)
                pdpt[off / GiB] = (RAM_GPA + RAM_PD_OFF + off / GiB * PAGE_SIZE) | PTE_TABLE | user;
        for (uint64_t off = 0; off < LARGE; off += PAGE_SIZE) {
                uint64_t writable = off < constant || off == RAM_PT_OFF ? 0 : PTE_W;
                uint64_t no_exec = off < text ? 0 : PTE_NX;
                pt[off / PAGE_SIZE] = (RAM_GPA + off) | PTE_WINDOW | writable | user | no_exec;
        }
        pd[0] = (RAM_GPA + RAM_PT_OFF) | PTE_TABLE | user;
        map_ram(vm->level, LARGE, CONTROL->pool_end);
        map_ram(vm->level, CONTROL->frames_off, ram_end);
}

int vm_make_ram(struct vm *vm, const struct vm_config *c, char *why, size_t n)
{
        uint64_t frames_size = frames_bytes(c->nframes);
        uint64_t extra = ROUND_UP(c->extra, LARGE);
        uint64_t pool_max = c->parent ? c->parent->pool_max
                                      : POOL_OFF + space_pool(c->nframes, c->far_pages);
        const uint64_t tables = POOL_PDPTS * PAGE_SIZE;
        const uint64_t profile = c->profile ? ROUND_UP(sizeof(struct profile), PAGE_SIZE) : 0;
        uint64_t pool_end =
                POOL_OFF + ROUND_UP(tables + c->nframes * 32 + profile + 4 * MiB, LARGE);
        int err;

        if (kern()->magic != KERN_MAGIC || kern()->abi_version != ABI_VERSION) {
                snprintf(why, n,
                         "the kern image in this vmrun has another ABI version: build it again");
                return -EINVAL;
        }
        if (pool_max < pool_end)
                pool_max = ROUND_UP(pool_end, GiB);
        if (WINDOW + pool_max + frames_size + extra > WINDOW_END ||
            RAM_GPA + pool_max + frames_size + extra > space_far_most(vm->phys_bits)) {
                snprintf(why, n,
                         "a cache of %llu MiB does not fit the guest's %u physical address bits: "
                         "use a smaller --cache",
                         (unsigned long long)(c->nframes * PAGE_SIZE / MiB), vm->phys_bits);
                return -E2BIG;
        }
        /* The start of a program touches some seventy scattered pages of the first part: clearing
         * huge pages for them took two thirds of the instructions of `vmrun /bin/true`
         * (bench/startup.sh). */
        if ((err = add_ram(vm, 0, pool_end, MADV_NOHUGEPAGE)) != 0 ||
            (err = add_ram(vm, pool_max, frames_size, MADV_HUGEPAGE)) != 0 ||
            (extra &&
             (err = add_ram(vm, pool_max + frames_size, extra, MADV_NOHUGEPAGE)) != 0)) {
                snprintf(why, n, "guest memory cannot be had at its place (%s): %s%s",
                         err == -EEXIST ? "address in use" : "KVM or mmap", strerror(-err),
                         host_memory_cure(err));
                return err;
        }
        /* No huge page is larger than the rest of the cache: behind the cache are bounce pages, of
         * which few are used. */
        uint64_t huge = c->nframes * PAGE_SIZE / LARGE * LARGE;
        madvise((void *)(WINDOW + pool_max + huge), frames_size - huge, MADV_NOHUGEPAGE);
        memcpy((void *)WINDOW, kern_image, (size_t)(kern_image_end - kern_image));

        struct control *k = CONTROL;
        k->canary0 = k->canary1 = k->canary2 = k->canary3 = k->canary4 = k->canary5 = CANARY;
        k->abi_version = ABI_VERSION;
        k->nframes = c->nframes;
        k->frames_off = pool_max;
        k->pool_end = pool_end;
        k->xsave = vm->xcr0 != 0;
        k->pool_max = pool_max;
        k->frame_table = WINDOW + POOL_OFF + tables;
        k->pool_next = ROUND_UP(k->frame_table - WINDOW + c->nframes * 32, PAGE_SIZE);
        k->profile = profile ? WINDOW + k->pool_next : 0;
        k->pool_next += profile;
        k->extra_off = pool_max + frames_size;
        k->extra_end = k->extra_off + extra;
        vm->next_gpa = ROUND_UP(RAM_GPA + k->extra_end, GiB);
        const struct space_arena arena =
                c->parent ? (struct space_arena){ c->parent->arena_gpa, c->parent->arena_size }
                          : space_arena(vm->phys_bits, vm->next_gpa, pool_max - POOL_OFF);
        k->arena_gpa = arena.gpa;
        k->arena_size = arena.size;
        vm_map_window(vm);
        return 0;
}
