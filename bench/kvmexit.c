/*
 * The least that an exit costs: a virtual machine whose program is `out; jmp`, run again and again.
 * The cost of a forwarded system call, less this and the system call itself, is vmrun's own.
 *
 *   kvmexit [COUNT]
 *
 * Prints `KEY VALUE` lines: exit_p50, exit_p99 in ns, from KVM_RUN to the next. Real mode: needs
 * VMX or SVM.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/kvm.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include "samples.h"

static int check(int result, const char *what)
{
        if (result >= 0)
                return result;
        fprintf(stderr, "kvmexit: %s: %s\n", what, strerror(errno));
        exit(1);
}

int main(int argc, char **argv)
{
        static const uint8_t program[] = { 0xe6, 0x10, 0xeb,
                                           0xfc }; /* again: out %al, $0x10; jmp again */
        unsigned count = argc > 1 ? (unsigned)atoi(argv[1]) : 2000;
        struct samples s;

        if (!samples_init(&s, count)) {
                fputs("usage: kvmexit [COUNT]\n", stderr);
                return 2;
        }
        int kvm = check(open("/dev/kvm", O_RDWR | O_CLOEXEC), "/dev/kvm");
        int vm = check(ioctl(kvm, KVM_CREATE_VM, 0), "KVM_CREATE_VM");
        void *ram = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        check(ram == MAP_FAILED ? -1 : 0, "a page");
        memcpy(ram, program, sizeof(program));
        struct kvm_userspace_memory_region r = { .guest_phys_addr = 0x1000,
                                                 .memory_size = 4096,
                                                 .userspace_addr = (uint64_t)(uintptr_t)ram };
        check(ioctl(vm, KVM_SET_USER_MEMORY_REGION, &r), "KVM_SET_USER_MEMORY_REGION");
        int vcpu = check(ioctl(vm, KVM_CREATE_VCPU, 0), "KVM_CREATE_VCPU");
        size_t size =
                (size_t)check(ioctl(kvm, KVM_GET_VCPU_MMAP_SIZE, 0), "KVM_GET_VCPU_MMAP_SIZE");
        struct kvm_run *run = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, vcpu, 0);
        check(run == MAP_FAILED ? -1 : 0, "the vCPU's page");
        struct kvm_sregs sregs;
        check(ioctl(vcpu, KVM_GET_SREGS, &sregs), "KVM_GET_SREGS");
        sregs.cs.base = sregs.cs.selector = 0;
        check(ioctl(vcpu, KVM_SET_SREGS, &sregs), "KVM_SET_SREGS");
        const struct kvm_regs regs = { .rip = 0x1000, .rflags = 2 };
        check(ioctl(vcpu, KVM_SET_REGS, &regs), "KVM_SET_REGS");
        for (unsigned i = 0; i < count; i++) {
                uint64_t begin = samples_now();
                check(ioctl(vcpu, KVM_RUN, 0), "KVM_RUN");
                samples_add(&s, samples_now() - begin);
                if (run->exit_reason != KVM_EXIT_IO) {
                        fprintf(stderr, "kvmexit: exit reason %u\n", run->exit_reason);
                        return 1;
                }
        }
        samples_print(&s, "exit");
        return 0;
}
