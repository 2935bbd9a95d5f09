/*
 * A program that writes where only kern may, then does a little work and ends with status 7. It
 * knows the address map: the test is about the part of vmrun's memory that it hits (wild.sh).
 *
 *   t_wild PLACE [VALUE]     one word (default: a wild one); fills a place of several words with it
 *   t_wild list              the places, a line each: how many words, name
 *   t_wild spin              says so, and makes kern wait in vain for this very thread; it has a
 *                            handler for SIGTERM
 */
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include "abi_control.h"
#include "abi_image.h"
#include "abi_vcpu.h"

#define KERN ((const struct kern_header *)WINDOW)
#define BLOCK0 (WINDOW + VCPUS_OFF)
#define WORD(field) { "self." #field, VCPU_SELF + offsetof(struct vcpu, field), 8 }
#define FIXED(field)                                                                             \
        { "fixed." #field, VCPU_SELF + VCPU_FIXED_OFF + offsetof(struct vcpu_fixed, field), 8 }
#define CONTROL_WORD(field)                                                                      \
        { "control." #field, WINDOW + CONTROL_OFF + offsetof(struct control, field), 8 }

struct place {
        const char *name;
        uint64_t at, size;
};

static const struct place places[] = {
        /* Code and tables that the CPU and kern read. */
        { "header", WINDOW, 8 },
        { "text", WINDOW + 0x1000, 8 },
        { "gdt", VCPU_SELF + VCPU_GDT_OFF + SEL_KERN_CS, 8 },
        { "idt", VCPU_SELF + VCPU_IDT_OFF + 14 * 16, 16 },
        { "idt.all", VCPU_SELF + VCPU_IDT_OFF, 512 },
        { "tss", VCPU_SELF + VCPU_TSS_OFF, 104 },
        { "pml4", VCPU_SELF + VCPU_PML4_OFF, PAGE_SIZE / 2 },
        { "pml4.next", VCPU_SELF + VCPU_PML4_OFF + 300 * 8, 8 },
        { "pdpt", WINDOW + PDPT_OFF(0x555555555000 >> 39), PAGE_SIZE },
        { "ram.pd", WINDOW + RAM_PD_OFF, 64 },
        { "guard", VCPU_SELF + VCPU_GUARD_OFF, 8 },
        /* All words that a memset hits if it goes too far. */
        { "self", VCPU_SELF, sizeof(struct vcpu) },
        { "self.first", VCPU_SELF, 64 },
        { "self.512", VCPU_SELF + 512, 64 },
        { "block0", BLOCK0, sizeof(struct vcpu) },
        { "block0.all", BLOCK0, VCPU_BLOCK },
        { "control", WINDOW + CONTROL_OFF, offsetof(struct control, slabs) },
        { "control.first", WINDOW + CONTROL_OFF, 64 },
        { "stats", VCPU_SELF + VCPU_STATS_OFF, VCPU_STATS_SIZE },
        { "xfer", VCPU_SELF + VCPU_XFER_OFF, 0x1000 },
        { "stack", VCPU_SELF + VCPU_STACK_TOP - 0x1000, 0x1000 },
        { "ist", VCPU_SELF + VCPU_IST_OFF, 0x1000 },
        { "rings", WINDOW + RINGS_OFF, RINGS_SIZE },
        { "pool", WINDOW + POOL_OFF + 0x200000, 0x10000 },
        /* Words. */
        WORD(mode),
        WORD(flushed),
        WORD(faulting),
        WORD(cr2),
        WORD(entry_tsc),
        FIXED(number),
        FIXED(level),
        FIXED(fs_base),
        FIXED(frame3_pf),
        FIXED(frame3_trap),
        FIXED(pid),
        WORD(exit),
        WORD(upcall),
        WORD(regs.rip),
        WORD(regs.rsp),
        WORD(regs.ss),
        WORD(frames),
        WORD(sweeper.cold_hand),
        CONTROL_WORD(abi_version),
        CONTROL_WORD(stats_on),
        CONTROL_WORD(overcommit),
        CONTROL_WORD(nframes),
        CONTROL_WORD(frames_off),
        CONTROL_WORD(frame_table),
        CONTROL_WORD(pool_next),
        CONTROL_WORD(far_pages),
        CONTROL_WORD(mmap_top),
        CONTROL_WORD(nvcpus),
        CONTROL_WORD(frames_waiters),
        CONTROL_WORD(service_seq),
        CONTROL_WORD(service_hold),
        CONTROL_WORD(flush_epoch),
        CONTROL_WORD(time),
        CONTROL_WORD(nslabs),
};
enum { PLACES = sizeof(places) / sizeof(*places) };

static volatile sig_atomic_t signals;
static void on_signal(int sig) { (void)sig, signals++; }

static void *thread(void *arg)
{
        memset(arg, 1, 64 * PAGE_SIZE);
        return arg;
}

/* Something of everything that kern does. */
static void work(void)
{
        char *m = mmap(NULL, 256 * PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                       -1, 0);
        pthread_t t;
        unsigned long sum = 0;
        int status = 0;

        if (m == MAP_FAILED)
                _exit(8);
        for (unsigned i = 0; i < 256; i++)
                m[i * PAGE_SIZE] = (char)i;
        if (pthread_create(&t, NULL, thread, m) || pthread_join(t, NULL))
                _exit(9);
        mprotect(m, 128 * PAGE_SIZE, PROT_READ);
        munmap(m + 200 * PAGE_SIZE, PAGE_SIZE);
        signal(SIGUSR1, on_signal);
        raise(SIGUSR1);
        pid_t pid = fork();
        if (pid == 0)
                _exit(m[0] + 2);
        waitpid(pid, &status, 0);
        for (unsigned i = 0; i < 256; i++)
                sum += i == 200 ? 0 : (unsigned char)m[i * PAGE_SIZE];
        printf("%lu %d %d\n", sum, (int)signals, WEXITSTATUS(status));
        fflush(stdout);
}

/* kern's munmap waits for vCPUs that seem to be in a fault there (pt_wait_faults). */
static int spin(void)
{
        char *m = mmap(NULL, 64 * PAGE_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                       -1, 0);
        uint64_t ret = SYS_munmap;

        signal(SIGTERM, on_signal);
        memset(m, 1, 64 * PAGE_SIZE);
        puts("spins");
        fflush(stdout);
        /* No fault comes in between, which would take the address back. */
        __asm__ volatile("mov %[at], (%[faulting]); syscall"
                         : "+a"(ret)
                         : [at] "r"(m + 32 * PAGE_SIZE + 1),
                           [faulting] "r"(VCPU_SELF + offsetof(struct vcpu, faulting)), "D"(m),
                           "S"(64 * PAGE_SIZE)
                         : "rcx", "r11", "memory");
        return 7;
}

int main(int argc, char **argv)
{
        uint64_t value = argc > 2 ? strtoull(argv[2], NULL, 0) : 0x4141414141414141;

        if (argc < 2) {
                work();
                return 7;
        }
        if (strcmp(argv[1], "spin") == 0)
                return spin();
        for (unsigned i = 0; i < PLACES; i++) {
                const struct place *p = &places[i];
                if (strcmp(argv[1], "list") == 0)
                        printf("%lu %s\n", p->size / 8, p->name);
                else if (strcmp(argv[1], p->name) == 0) {
                        for (uint64_t at = p->at; at < p->at + p->size; at += 8)
                                *(volatile uint64_t *)at = value;
                        work();
                        return 7;
                }
        }
        return strcmp(argv[1], "list") == 0 ? 0 : 2;
}
