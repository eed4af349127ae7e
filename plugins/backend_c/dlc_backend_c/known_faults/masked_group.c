/* Elements of a group of conditional loads have the masks of others: gcc before 14 (GCC PR 114375). See masks.py. */
#include <stddef.h>

__attribute__((noinline)) static void k(const float *restrict p, float *restrict r)
{
    for (ptrdiff_t i = 0; i < 41; ++i)
        for (ptrdiff_t j = 0; j < 2; ++j)
            r[2 * i + j] = i >= 2 ? p[2 * i + j - 4] : 0.0f;
}

int main(void)
{
    float p[78], r[82];
    int bad = 0, i;
    for (i = 0; i < 78; i++)
        p[i] = (float)(i + 1);
    k(p, r);
    for (i = 0; i < 82; i++)
        bad += r[i] != (i < 4 ? 0.0f : p[i - 4]);
    return bad != 0;
}
