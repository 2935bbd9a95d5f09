/* The kern image: a flat binary at the start of the window, its header first (abi_image.h). */
#include "layout.h"

OUTPUT_FORMAT("elf64-x86-64")
ENTRY(kern_start_asm)

vcpu_self = VCPU_SELF;
vcpu_self_stats = VCPU_SELF + VCPU_STATS_OFF;
vcpu_self_xfer  = VCPU_SELF + VCPU_XFER_OFF;
vcpu_self_fixed = VCPU_SELF + VCPU_FIXED_OFF;
vcpu_self_guide_stack = VCPU_SELF + VCPU_GUIDE_STACK;
vcpu_self_guide_xsave = VCPU_SELF + VCPU_GUIDE_XSAVE;
vcpu_self_guide = VCPU_SELF + VCPU_GUIDE_RUN;
control = WINDOW + CONTROL_OFF;

SECTIONS
{
        . = WINDOW;
        .text : {
                kern_image = .;
                KEEP(*(.header))
                *(.text .text.*)
                . = ALIGN(PAGE_SIZE);
                kern_text_end = .;
        }
        .rodata : { *(.rodata .rodata.*) . = ALIGN(PAGE_SIZE); kern_constant_end = .; }
        .data : { *(.data .data.*) }
        .bss : { *(.bss .bss.* COMMON) . = ALIGN(PAGE_SIZE); }
        kern_image_end = .;
        ASSERT(kern_image_end <= WINDOW + RAM_PT_OFF, "kern has outgrown its room (RAM_PT_OFF)")
        /DISCARD/ : { *(.comment) *(.note*) *(.eh_frame*) *(.gnu*) }
}
