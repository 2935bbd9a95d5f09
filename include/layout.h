/*
 * The address map of the guest's virtual and physical space.
 *
 * Guest RAM has one virtual address for both the guest and the vmrun process (the "window"), so a
 * pointer into it is valid on both sides.  Guest-physical and window addresses differ by one
 * constant.  Shared by C on both sides and by kern's assembly: plain numbers only.
 *
 *   virtual                        what
 *   0x0000000000000000..           the program
 *   0x000067fffffe0000 128 KiB     VCPU_SELF: this vCPU's own block (each has its own PML4[207])
 *   0x0000680000000000 WINDOW      guest RAM: kern image, control page, vCPU blocks, pool, frames
 *   0x00006a0000000000 FAR_WINDOW  far tiers that are plain memory, mapped slab by slab
 *   0x00006e0000000000 ARENA       MAP_SHARED mappings, in the host only; programs see them at
 *                                  their own addresses
 *   0x00006ff000000000 TREE_WINDOW the slots of the far tiers and their holders (allocator.h),
 *                                  mapped in doubling steps
 *   0x00006fff00000000 NIC_WINDOW  rings of queues that kern drives by itself (abi_direct.h)
 *   0x0000700000000000             end of the range that vmrun keeps for itself
 *   0x00007ffffffff000             top of the program's stack
 *
 *   offset in RAM                  what
 *   0                              kern image (header first, see abi_image.h)
 *   CONTROL_OFF                    struct control
 *   VCPUS_OFF                      vCPU blocks, VCPU_BLOCK bytes each
 *   RINGS_OFF                      rings of far memory, a struct io_rings a vCPU, RINGS_SIZE apart
 *   RAM_PD_OFF                     page directories of the window
 *   POOL_OFF                       page tables, VMAs, frame table: grows up to control.pool_max
 *   control.frames_off             the cache frames, then a bounce page a vCPU (bounce_pages())
 */
#ifndef VMRUN_LAYOUT_H
#define VMRUN_LAYOUT_H

#define PAGE_SHIFT      12
#define PAGE_SIZE       4096
#define CACHE_LINE      64

#define WINDOW          0x680000000000
#define WINDOW_END      0x6a0000000000
#define FAR_WINDOW      0x6a0000000000
#define FAR_WINDOW_END  0x6e0000000000
#define ARENA           0x6e0000000000
#define ARENA_END       0x6ff000000000
#define TREE_WINDOW     0x6ff000000000
#define TREE_WINDOW_END 0x6fff00000000
#define NIC_WINDOW      0x6fff00000000
#define RESERVED_START  0x678000000000  /* PML4[207]: the private slot of each vCPU */
#define RESERVED_END    0x700000000000
#define TASK_SIZE       0x7ffffffff000
#define VSYSCALL        0xffffffffff600000      /* a page: runtime/signal/vsyscall.h */

#define RAM_GPA         0x100000000     /* 4 GiB: clear of every legacy hole */

#define CONTROL_OFF     0x100000
#define VCPUS_OFF       0x200000
#define RINGS_OFF       0x8200000
#define RINGS_SIZE      0x4000
#define POOL_OFF        0xa000000
#define VCPUS_MAX       1024            /* KVM's usual limit; fits below POOL_OFF */

/* Page tables of the window, which the guest cannot write: the page table of its first 2 MiB, and
 * the page directories of RAM, which together are one array of 2 MiB entries. */
#define RAM_PT_OFF      0xff000         /* between kern's image and CONTROL */
#define RAM_PD_OFF      0x9200000

/* The pool begins with the PDPT of each lower-half PML4 slot, shared by all vCPUs. */
#define PDPT_OFF(slot)  (POOL_OFF + (slot) * PAGE_SIZE)
#define POOL_PDPTS      256

/* A vCPU block, and the offsets of its parts. */
#define VCPU_BLOCK      0x20000
#define VCPU_SELF       (WINDOW - VCPU_BLOCK)
#define VCPU_STATS_OFF  0x1000          /* struct vcpu_stats */
#define VCPU_STATS_SIZE 0xa000
#define VCPU_XFER_OFF   0xb000          /* bulk arguments and answers of an upcall, 4 KiB */
#define VCPU_TSS_OFF    0xc000
/* Top of the stack of all exceptions but #PF: grows down from 0xd000+PAGE_SIZE */
#define VCPU_IST_OFF    0xd000
/* GDT, IDT and struct vcpu_fixed: one page that the guest cannot write. */
#define VCPU_GDT_OFF    0xe000
#define VCPU_IDT_OFF    0xe100
#define VCPU_FIXED_OFF  0xe800
#define VCPU_GUARD_OFF  0xf000          /* not mapped at VCPU_SELF: kern's stack ends here */
#define VCPU_STACK_TOP  0x14000         /* kern's stack grows down from here to the guard page */
/* This vCPU's own page tables: the guest cannot write them. */
#define VCPU_TABLES_OFF 0x14000
#define VCPU_PML4_OFF   0x14000
#define VCPU_PDPT_OFF   0x15000
#define VCPU_PD_OFF     0x16000
#define VCPU_PT_OFF     0x17000
/* Room for a guide (kern/paging/guide.h): a page that is not mapped, its stack, the program's
 * extended state meanwhile, and a struct guide_run. */
#define VCPU_GUIDE_OFF   0x18000
#define VCPU_GUIDE_STACK 0x19000
#define VCPU_GUIDE_STACK_TOP 0x1d000
#define VCPU_GUIDE_XSAVE 0x1d000
#define VCPU_GUIDE_XSAVE_SIZE 0x2000
#define VCPU_GUIDE_RUN   0x1f000

/* The port whose OUT is an exit; honoured only with RIP in kern's image. */
#define EXIT_PORT       0x10
/* The port whose OUTB wakes the I/O thread, inside KVM (an ioeventfd): no exit to vmrun.  If the
 * program writes to this port, the I/O thread wakes up, and no more happens. */
#define DOORBELL_PORT   0x14

/* Selectors: Linux's own layout.  Program and kern share a level: the KERN pair at p = 0, the USER
 * pair at p = 3. */
#define SEL_KERN_CS     0x10
#define SEL_KERN_SS     0x18
#define SEL_USER_CS32   0x23
#define SEL_USER_SS     0x2b
#define SEL_USER_CS     0x33
#define SEL_TSS         0x40

#endif
