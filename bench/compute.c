/*
 * Compute-bound: a matrix product (floating point, vectors) and a CRC (integers, a table) of data
 * that fits a CPU's caches.
 */
#include "section.h"

#define N 96
#define BYTES (64 << 10)

static double a[N][N], b[N][N], c[N][N];
static unsigned char text[BYTES];
static uint32_t table[256];

static uint64_t product(void)
{
        for (int i = 0; i < N; i++) {
                for (int j = 0; j < N; j++)
                        c[i][j] = 0;
                for (int k = 0; k < N; k++)
                        for (int j = 0; j < N; j++)
                                c[i][j] += a[i][k] * b[k][j];
        }
        return (uint64_t)c[N / 2][N / 3];
}

static uint64_t crc(void)
{
        uint32_t r = ~0u;
        for (unsigned i = 0; i < BYTES; i++)
                r = table[(r ^ text[i]) & 255] ^ r >> 8;
        return ~r;
}

static uint64_t both(void) { return product() + crc(); }

int main(int argc, char **argv)
{
        unsigned rounds = rounds_given(argc, argv);

        for (int i = 0; i < N * N; i++) {
                a[i / N][i % N] = i % 17;
                b[i / N][i % N] = i % 23;
        }
        for (unsigned i = 0; i < BYTES; i++)
                text[i] = (unsigned char)(i * 31 + (i >> 8));
        for (uint32_t i = 0; i < 256; i++) {
                table[i] = i;
                for (int bit = 0; bit < 8; bit++)
                        table[i] = table[i] & 1 ? 0xedb88320u ^ table[i] >> 1 : table[i] >> 1;
        }
        printf("sum %lu\n", section("compute", both, rounds));
        return 0;
}
