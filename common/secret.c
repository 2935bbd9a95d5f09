#include <stdint.h>
#include "common/secret.h"

bool secret_same(const void *a, const void *b, size_t n)
{
        /* volatile: the compiler may not end the loop early */
        const volatile uint8_t *x = a, *y = b;
        unsigned differ = 0;

        for (size_t i = 0; i < n; i++)
                differ |= x[i] ^ y[i];
        return differ == 0;
}
