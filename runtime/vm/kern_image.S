/*
 * The kern image, as made by objcopy, in vmrun's read-only data: [kern_image, kern_image_end).
 * Page-aligned, so that it is copied into guest RAM page by page.
 */
        .section .rodata
        .balign 4096
        .globl kern_image, kern_image_end
        .hidden kern_image, kern_image_end
        .type kern_image, @object
kern_image:
        .incbin KERN_BIN
        .size kern_image, . - kern_image
kern_image_end:

        .section .note.GNU-stack, "", @progbits
