/*
 * See sum.h.  CRC32C (RFC 3720, appendix B.4) by ISA-L, which takes what the CPU has for it.
 */
#include <isa-l/crc.h>
#include "far/sum.h"
#include "layout.h"

uint32_t far_sum(uint64_t slot, const void *page)
{
        /* Slots have 30 bits.  The complement: else a page of zeroes in slot 0 had the sum 0, as
         * one that nobody ever summed. */
        return crc32_iscsi((unsigned char *)page, PAGE_SIZE, ~(unsigned)slot);
}
