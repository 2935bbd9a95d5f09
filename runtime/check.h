/*
 * What this host offers: vmrun --check, the test that KVM can be used, and the memory it has.
 */
#ifndef VMRUN_CHECK_H
#define VMRUN_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct kvm_cpuid2;

/* Bytes; the smaller of the machine's and the control group's.  0 if neither can be read. */
uint64_t host_memory_total(void);
uint64_t host_memory_available(void);
/* The number that a small file holds, as those of sysfs do; false if it cannot be read or is none. */
bool host_number(const char *path, uint64_t *v);

/* Can /dev/kvm be used?  0, or -errno with *why a sentence that names cause and cure (static storage).  Cheap: what it leaves
 * out is check_phys_bits, since asking KVM for the CPUID of a guest takes longer than all the rest, and vm_open asks anyway. */
int check_kvm_usable(const char **why);
/* MAXPHYADDR of the host, and of guests: by what KVM_GET_SUPPORTED_CPUID said, or through an open /dev/kvm (which asks
 * it again); 0 if unknown. */
unsigned check_host_phys_bits(void);
unsigned check_cpuid_phys_bits(const struct kvm_cpuid2 *c);
unsigned check_guest_phys_bits(int kvm_fd);
/* 0, or -errno with *why as above: with a guest's below the host's, KVM would intercept every page fault. */
int check_phys_bits(unsigned host, unsigned guest, const char **why);

/* The privilege level that programs run at here: 0, 3, or -errno with why.  (kvm.c) */
int kvm_probe_level(char *why, size_t n);

/* vmrun --check: prints the report, tries the nodes of opt; returns the exit status. */
int check_report(void);

#endif
