/*
 * See sum.h.  CRC32C (RFC 3720, appendix B.4) by ISA-L, which takes what the CPU has for it.
 */
#include <isa-l/crc.h>
#include "far/sum.h"

uint32_t far_sum(uint32_t begun, const void *bytes, size_t n)
{
        return crc32_iscsi((unsigned char *)bytes, (int)n, begun);
}
