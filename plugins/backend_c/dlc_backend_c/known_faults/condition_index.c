/* An index that is 0 or 1 is taken for a mask of -1: gcc 11 to 13, from eight iterations on. See condition_indices.py. */
#include <stdint.h>
#include <stddef.h>

__attribute__((noinline)) static void k(const float *restrict x, const int32_t *restrict table, int32_t *restrict r)
{
    for (ptrdiff_t i = 0; i < 16; ++i) {
        int64_t t = x[2 * i] < x[2 * i + 1] ? 1 : 0;
        r[i] = table[t];
    }
}

int main(void)
{
    float x[32];
    int32_t table[4] = {0, 0, 10, 20}, r[16];
    int bad = 0, i;
    unsigned s = 1;
    for (i = 0; i < 32; i++) {
        s = s * 1664525u + 1013904223u;
        x[i] = (float)(s >> 8) / 16777216.0f;
    }
    k(x, table + 2, r);
    for (i = 0; i < 16; i++)
        bad += r[i] != (x[2 * i + 1] > x[2 * i] ? 20 : 10);
    return bad != 0;
}
