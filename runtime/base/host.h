/*
 * This host: its memory, its address bits, and whether KVM can be used.
 */
#ifndef VMRUN_HOST_H
#define VMRUN_HOST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct kvm_cpuid2;

/* Bytes; the smaller of the machine's and the control groups'.  0 if neither can be read. */
uint64_t host_memory_total(void);
uint64_t host_memory_available(void);
/* The file with the control groups' limit, where that is below the machine's memory; else NULL. */
const char *host_memory_limit(void);
/* The number in a small file, as in sysfs; false if it cannot be read or is not a number. */
bool host_number(const char *path, uint64_t *v);
/* Its first line, without the newline; false if it cannot be read. */
bool host_line(const char *path, char *line, size_t n);

/* The cure of an error of mmap, as the end of a message: ": raise ..." if a limit of this process
 * may be the cause, else "". */
const char *host_memory_cure(int err);

/* Whether this CPU shows VMX, SVM. */
bool host_has_vmx(void), host_has_svm(void);
/* The CPU's model, as in "AMD EPYC 7763 64-Core Processor"; "unknown model". */
void host_cpu_model(char *text, size_t n);

/* The kind of KVM, by its module. */
struct host_kvm {
        const char *module;             /* NULL: none for this CPU */
        const char *paging;             /* "EPT", "NPT"; NULL: KVM has page tables of its own */
        bool on;                        /* EPT or NPT is used */
};
struct host_kvm host_kvm(void);
/* Names of RDMA devices, with blanks between them; "": none. */
void host_rdma_devices(char *text, size_t n);

/* Does KVM keep page tables of its own, so that each change that the guest makes to a page table
 * costs a trap? */
bool host_has_shadow_paging(void);

/* Can /dev/kvm be used?  0, or -errno with *why a sentence that names cause and cure (static
 * storage).  Cheap: it leaves out host_check_phys_bits, since asking KVM for a guest's CPUID takes
 * longer than all other checks, and vm_open asks anyway. */
int host_check_kvm(const char **why);
/* MAXPHYADDR of the host, and of guests: from an answer of KVM_GET_SUPPORTED_CPUID, or through an
 * open /dev/kvm, by asking again; 0 if unknown. */
unsigned host_phys_bits(void);
unsigned host_cpuid_phys_bits(const struct kvm_cpuid2 *c);
/* How many of these bits a guest's memory may use.  *space is OUT, and has that number too. */
unsigned host_cpuid_space_bits(const struct kvm_cpuid2 *c);
unsigned host_guest_phys_bits(int kvm_fd, unsigned *space);
/* 0, or -errno with *why as above: if guests have fewer bits than the host, KVM would intercept
 * every page fault. */
int host_check_phys_bits(unsigned host, unsigned guest, const char **why);

#endif
