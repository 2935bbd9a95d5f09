/*
 * Registers of a card as memory of a guest: the guest rings a doorbell without an exit, and the
 * card writes into a frame of the guest.  The card is QEMU's `edu` (QEMU's docs/specs/edu), the
 * guest a few instructions with page tables, whose entry for the register is uncached as kern's
 * would be.  To be run in the lab:
 *
 *   lab/lab --mem 2048 --qemu=-device --qemu=edu,dma_mask=0xffffffff -- build/test/rdma/bar
 *
 * KVM's own counters say how often the guest was left (debugfs, per virtual machine).  TAP.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/kvm.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE 4096
#define BELLS 20000u                    /* stores to a register of the card */

/* edu's registers, all in the first page of its BAR 0. */
#define EDU_CHECK 0x04                  /* gives back the complement of what is written */
#define EDU_FROM  0x80
#define EDU_TO    0x88
#define EDU_COUNT 0x90
#define EDU_START 0x98                  /* 1: begin, until the card clears it; 2: card to RAM */
#define EDU_BUFFER 0x40000              /* its own memory, as DMA names it: a page */
#define TRANSFER (PAGE - 8)             /* QEMU refuses one that ends with the buffer */

static _Noreturn void fail(const char *fmt, ...)
{
        va_list ap;

        printf("Bail out! ");
        va_start(ap, fmt);
        vprintf(fmt, ap);
        va_end(ap);
        printf("\n");
        exit(1);
}

static int check(int result, const char *what)
{
        if (result < 0)
                fail("%s: %s", what, strerror(errno));
        return result;
}

static unsigned number;
static bool failed;
static void result(bool good, const char *name, uint64_t value)
{
        failed |= !good;
        printf("%sok %u - %s # %llu\n", good ? "" : "not ", ++number, name,
               (unsigned long long)value);
}

/* --- the card --- */

static uint32_t number_in(const char *folder, const char *file)
{
        char path[300], text[32] = "";
        snprintf(path, sizeof(path), "/sys/bus/pci/devices/%.200s/%s", folder, file);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd >= 0 && read(fd, text, sizeof(text) - 1) < 0)
                text[0] = '\0';
        if (fd >= 0)
                close(fd);
        return (uint32_t)strtoul(text, NULL, 0);
}

static int open_in(const char *folder, const char *file)
{
        char path[300];
        snprintf(path, sizeof(path), "/sys/bus/pci/devices/%.200s/%s", folder, file);
        return check(open(path, O_RDWR | O_CLOEXEC), path);
}

/* Enables the card, which no driver has, and maps its registers. */
static volatile uint32_t *open_card(void)
{
        DIR *dir = opendir("/sys/bus/pci/devices");
        struct dirent *e;
        uint16_t command;

        while (dir && (e = readdir(dir)))
                if (number_in(e->d_name, "vendor") == 0x1234 &&
                    number_in(e->d_name, "device") == 0x11e8)
                        break;
        if (!dir || !e)
                fail("there is no edu: --qemu=-device --qemu=edu,dma_mask=0xffffffff");
        int enable = open_in(e->d_name, "enable"), config = open_in(e->d_name, "config"),
            bar = open_in(e->d_name, "resource0");
        check((int)write(enable, "1", 1), "enable");
        /* It may read and write memory (PCI, command register, bit 2). */
        check((int)pread(config, &command, 2, 4), "command");
        command |= 4;
        check((int)pwrite(config, &command, 2, 4), "command");
        void *p = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, bar, 0);
        check(p == MAP_FAILED ? -1 : 0, "resource0");
        closedir(dir);
        return p;
}

/* The physical address of a page that is here, and stays. */
static uint64_t physical(const void *page)
{
        uint64_t entry;
        int fd = check(open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC), "pagemap");
        check((int)pread(fd, &entry, 8, (off_t)((uintptr_t)page / PAGE * 8)), "pagemap");
        close(fd);
        return (entry & ((1ull << 55) - 1)) * PAGE;
}

/* A page that the card can reach with 32 bits. */
static char *low_page(void)
{
        for (unsigned tries = 0; tries < 4096; tries++) {
                char *p = mmap(NULL, PAGE, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_LOCKED | MAP_POPULATE, -1, 0);
                check(p == MAP_FAILED ? -1 : 0, "a page");
                if (physical(p) && physical(p) < 0x100000000ull)
                        return p;       /* else it is kept, so that the next is another */
        }
        fail("no page below 4 GiB: lab/lab --mem 2048");
}

/* --- the guest: 32 bits, with page tables --- */

enum { CODE = 0x1000, DIRECTORY = 0x2000, TABLE = 0x3000, FRAME = 0x4000, REGISTER = 0x5000,
       GUEST_PAGES = 4 };
#define PTE_FLAGS 3u                    /* present, writable */
#define PTE_PCD   0x10u                 /* uncached */

static char *guest;                     /* its first four pages */
static uint8_t *code;                   /* where the next instruction goes */
static void emit(const void *bytes, size_t n) { memcpy(code, bytes, n); code += n; }
static void emit8(uint8_t b) { emit(&b, 1); }
static void emit32(uint32_t v) { emit(&v, 4); }
/* mov dword [address], value */
static void store(uint32_t address, uint32_t value)
{
        emit8(0xc7), emit8(0x05), emit32(address), emit32(value);
}
/* again: test dword [address], mask; jnz again */
static void wait_clear(uint32_t address, uint32_t mask)
{
        emit8(0xf7), emit8(0x05), emit32(address), emit32(mask);
        emit8(0x75), emit8(0xf4);       /* 12 bytes back */
}
/* out %al, $port: an exit by which this program goes on */
static void out(uint8_t port) { emit8(0xe6), emit8(port); }
static void dma(uint32_t from, uint32_t to, uint32_t start)
{
        store(REGISTER + EDU_FROM, from);
        store(REGISTER + EDU_TO, to);
        store(REGISTER + EDU_COUNT, TRANSFER);
        store(REGISTER + EDU_START, start);
        wait_clear(REGISTER + EDU_START, 1);
}

static void write_guest(uint32_t source, uint32_t frame)
{
        uint32_t *table = (uint32_t *)(guest + TABLE - CODE);

        *(uint32_t *)(guest + DIRECTORY - CODE) = TABLE | PTE_FLAGS;
        for (uint32_t page = CODE; page < REGISTER; page += PAGE)
                table[page / PAGE] = page | PTE_FLAGS;
        table[REGISTER / PAGE] = REGISTER | PTE_FLAGS | PTE_PCD;
        code = (uint8_t *)guest;
        store(REGISTER + EDU_CHECK, 0);         /* KVM makes its mapping */
        out(1);
        emit8(0xb9), emit32(BELLS);             /* mov ecx, BELLS */
        store(REGISTER + EDU_CHECK, 0x12345678);
        emit8(0xe2), emit8(0xf4);               /* loop: 12 bytes back */
        emit8(0xa1), emit32(REGISTER + EDU_CHECK);      /* mov eax, [register] */
        out(2);
        dma(source, EDU_BUFFER, 1);
        dma(EDU_BUFFER, frame, 3);
        emit8(0xa1), emit32(FRAME);             /* mov eax, [frame] */
        out(3);
}

static void add_slot(int vm, uint32_t slot, uint32_t gpa, const volatile void *at, size_t bytes)
{
        struct kvm_userspace_memory_region r = { .slot = slot, .guest_phys_addr = gpa,
                                                 .memory_size = bytes,
                                                 .userspace_addr = (uintptr_t)at };
        check(ioctl(vm, KVM_SET_USER_MEMORY_REGION, &r), "KVM_SET_USER_MEMORY_REGION");
}

static void begin_guest(int vcpu)
{
        const struct kvm_regs regs = { .rip = CODE, .rflags = 2 };
        struct kvm_sregs s;

        check(ioctl(vcpu, KVM_GET_SREGS, &s), "KVM_GET_SREGS");
        struct kvm_segment flat = { .limit = ~0u, .present = 1, .s = 1, .db = 1, .g = 1,
                                    .type = 3, .selector = 16 };
        s.ds = s.es = s.ss = flat;
        flat.type = 11, flat.selector = 8;
        s.cs = flat;
        s.cr3 = DIRECTORY;
        s.cr0 = 0x80000001;             /* paging, protection; caches are on */
        check(ioctl(vcpu, KVM_SET_SREGS, &s), "KVM_SET_SREGS");
        check(ioctl(vcpu, KVM_SET_REGS, &regs), "KVM_SET_REGS");
}

/* Runs the guest until it is at `port`.  Returns its EAX. */
static uint32_t run_to(int vcpu, const struct kvm_run *run, uint8_t port)
{
        struct kvm_regs regs;

        while (ioctl(vcpu, KVM_RUN, 0) < 0)
                if (errno != EINTR)
                        fail("KVM_RUN: %s", strerror(errno));
        if (run->exit_reason != KVM_EXIT_IO || run->io.port != port)
                fail("exit reason %u, not port %u", run->exit_reason, port);
        check(ioctl(vcpu, KVM_GET_REGS, &regs), "KVM_GET_REGS");
        return (uint32_t)regs.rax;
}

/* --- KVM's counters of this virtual machine --- */

static uint64_t counter(int vm, const char *name)
{
        char path[200], text[32] = "";

        snprintf(path, sizeof(path), "/sys/kernel/debug/kvm/%d-%d/%s", getpid(), vm, name);
        int fd = check(open(path, O_RDONLY | O_CLOEXEC), path);
        check((int)read(fd, text, sizeof(text) - 1), path);
        close(fd);
        return strtoull(text, NULL, 10);
}

/* Exits but for interrupts of this machine. */
static uint64_t exits(int vm) { return counter(vm, "exits") - counter(vm, "irq_exits"); }

int main(void)
{
        setvbuf(stdout, NULL, _IOLBF, 0);
        volatile uint32_t *card = open_card();
        char *source = low_page(), *frame = low_page();

        int kvm = check(open("/dev/kvm", O_RDWR | O_CLOEXEC), "/dev/kvm");
        int vm = check(ioctl(kvm, KVM_CREATE_VM, 0), "KVM_CREATE_VM");
        int vcpu = check(ioctl(vm, KVM_CREATE_VCPU, 0), "KVM_CREATE_VCPU");
        size_t size =
                (size_t)check(ioctl(kvm, KVM_GET_VCPU_MMAP_SIZE, 0), "KVM_GET_VCPU_MMAP_SIZE");
        struct kvm_run *run = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, vcpu, 0);
        check(run == MAP_FAILED ? -1 : 0, "the vCPU's page");
        guest = mmap(NULL, GUEST_PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                     -1, 0);
        check(guest == MAP_FAILED ? -1 : 0, "memory");
        add_slot(vm, 0, CODE, guest, FRAME - CODE);
        add_slot(vm, 1, FRAME, frame, PAGE);
        add_slot(vm, 2, REGISTER, card, PAGE);
        memset(source, 0x5a, PAGE);
        write_guest((uint32_t)physical(source), (uint32_t)physical(frame));
        begin_guest(vcpu);

        run_to(vcpu, run, 1);
        uint64_t before = exits(vm), mmio = counter(vm, "mmio_exits");
        uint32_t read = run_to(vcpu, run, 2);
        result(read == ~0x12345678u, "the card has what the guest stored", read);
        uint64_t made = exits(vm) - before;
        /* That to port 2, and one that was under way when the counter was read. */
        result(made <= 2, "exits for 20,000 stores to a register", made);
        before = exits(vm);
        read = run_to(vcpu, run, 3);
        result(read == 0x5a5a5a5a && memcmp(frame, source, TRANSFER) == 0,
               "the card has written into the guest's frame", read);
        made = exits(vm) - before;
        /* And the first touch of the frame. */
        result(made <= 3, "exits for two transfers and their waits", made);
        result(counter(vm, "mmio_exits") == mmio, "no access was emulated", mmio);
        printf("1..%u\n", number);
        return failed;
}
