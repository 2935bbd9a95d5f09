/*
 * Memory and string functions, without vector registers: those belong to the program.
 */
#include <stdint.h>
#include "base/string.h"
#include "layout.h"

/* Up to this many bytes, plain moves are over before `rep movs` has begun. */
#define SMALL 128

typedef uint64_t word __attribute__((may_alias, aligned(1)));

void *memcpy(void *restrict d, const void *restrict s, size_t n)
{
        void *r = d;

        if (n <= SMALL)
                for (; n >= 2 * sizeof(word); n -= 2 * sizeof(word)) {
                        word a = ((const word *)s)[0], b = ((const word *)s)[1];
                        ((word *)d)[0] = a;
                        ((word *)d)[1] = b;
                        s = (const word *)s + 2;
                        d = (word *)d + 2;
                }
        __asm__ volatile("rep movsb" : "+D"(d), "+S"(s), "+c"(n) :: "memory");
        return r;
}

/* used: the compiler may call it when it has already dropped what no source calls (LTO). */
__attribute__((used)) void *memset(void *d, int c, size_t n)
{
        void *r = d;
        __asm__ volatile("rep stosb" : "+D"(d), "+c"(n) : "a"(c) : "memory");
        return r;
}

void copy_page(void *restrict d, const void *restrict s)
{
        size_t n = PAGE_SIZE / 8;
        __asm__ volatile("rep movsq" : "+D"(d), "+S"(s), "+c"(n) :: "memory");
}

void zero_page(void *d)
{
        size_t n = PAGE_SIZE / 8;
        __asm__ volatile("rep stosq" : "+D"(d), "+c"(n) : "a"(0ul) : "memory");
}

void *memmove(void *d, const void *s, size_t n)
{
        if ((uintptr_t)d - (uintptr_t)s >= n)
                return memcpy(d, s, n);
        for (unsigned char *dp = d; n > 0; n--)
                dp[n - 1] = ((const unsigned char *)s)[n - 1];
        return d;
}

int memcmp(const void *a, const void *b, size_t n)
{
        const unsigned char *p = a, *q = b;
        for (; n > 0; n--, p++, q++)
                if (*p != *q)
                        return *p - *q;
        return 0;
}

size_t strlen(const char *s)
{
        size_t n = 0;
        while (s[n])
                n++;
        return n;
}
