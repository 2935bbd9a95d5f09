# The boot sector of a machine with VMX: loads the image that vmx.py has laid out behind it, and
# enters the kernel as PVH has it (include/xen/interface/hvm/start_info.h of Linux), without
# decompression.
#
# Everything goes straight to its place by the disk controller's programmed I/O, for which hardly
# any instructions are emulated. vmx.py fills in the table at the end. Memory is all zeroes at
# power-on, so nothing here clears a bss.

        .set    info, 0x8000            # struct hvm_start_info; vmx.py puts it there
        .set    info_memmap_entries, 48
        .set    memmap, 0x9000          # where its memory map is

        .code16
        .globl  _start
_start:
        cli
        cld
        xorw    %ax, %ax
        movw    %ax, %ds
        movw    %ax, %es
        movw    %ax, %ss
        movw    $0x7c00, %sp

        # The BIOS's memory map has the format that PVH wants, but for a word more in each entry.
        movw    $memmap, %di
        xorl    %ebx, %ebx
        xorl    %ebp, %ebp
1:      movl    $0xe820, %eax
        movl    $0x534d4150, %edx       # SMAP
        movl    $20, %ecx
        int     $0x15
        jc      2f
        incl    %ebp
        addw    $24, %di
        testl   %ebx, %ebx
        jnz     1b

2:      inb     $0x92, %al              # A20
        orb     $2, %al
        outb    %al, $0x92
        lgdt    gdt_pointer
        movl    %cr0, %eax
        orb     $1, %al
        movl    %eax, %cr0
        ljmp    $8, $3f

        .code32
3:      movl    $16, %eax
        movl    %eax, %ds
        movl    %eax, %es
        movl    %eax, %ss
        movw    $0x3f6, %dx             # no interrupts from the disk
        movb    $2, %al
        outb    %al, %dx
        movl    $1, %ebx                # the next sector
        movl    $loads, %esi
next_load:
        lodsl
        movl    %eax, %edi              # where to
        lodsl
        movl    %eax, %ecx              # sectors
        jecxz   start
4:      pushl   %ecx
        cmpl    $128, %ecx
        jbe     5f
        movl    $128, %ecx
5:      subl    %ecx, (%esp)
        movw    $0x1f2, %dx
        movb    %cl, %al
        outb    %al, %dx                # how many
        movl    %ebx, %eax
        incl    %edx
        outb    %al, %dx                # 28 bits of which, low byte first
        shrl    $8, %eax
        incl    %edx
        outb    %al, %dx
        shrl    $8, %eax
        incl    %edx
        outb    %al, %dx
        shrl    $8, %eax
        orb     $0xe0, %al
        incl    %edx
        outb    %al, %dx
        movb    $0x20, %al              # READ SECTORS
        incl    %edx
        outb    %al, %dx
        addl    %ecx, %ebx
6:      movw    $0x1f7, %dx
        inb     %dx, %al
        testb   $0x80, %al              # busy
        jnz     6b
        testb   $0x08, %al              # data
        jz      6b
        pushl   %ecx
        movw    $0x1f0, %dx
        movl    $128, %ecx
        rep insl
        popl    %ecx
        loop    6b
        popl    %ecx
        jecxz   next_load
        jmp     4b
start:
        movl    %ebp, info + info_memmap_entries
        movl    $info, %ebx
        jmp     *entry

gdt:    .quad   0
        .quad   0x00cf9b000000ffff
        .quad   0x00cf93000000ffff
gdt_pointer:
        .word   . - gdt - 1
        .long   gdt

        # From here on, vmx.py's: the kernel's entry; of each load its address and its sectors, to
        # one without any.
        .balign 4
entry:  .long   0
loads:
        .org    510
        .word   0xaa55
