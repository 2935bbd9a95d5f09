/*
 * Sizes as people write them.
 */
#ifndef COMMON_SIZE_H
#define COMMON_SIZE_H

#include <stdint.h>

/* "4G", "512M", "64KiB", plain bytes: 0, -EINVAL or -ERANGE (more than 2^63-1). */
int size_parse(const char *text, uint64_t *bytes);
/* For people: "4G", "1.5G", at most one decimal. */
const char *size_text(uint64_t bytes, char buf[32]);

#endif
