/* Calls mlp.pt2, built by dlc, for two rows: those for which export.py prints what PyTorch computes. */
#include <stdio.h>

#include "mlp.h"

static _Alignas(MLP_ARENA_ALIGN) unsigned char arena[MLP_ARENA_BYTES];

int main(void)
{
    const float x[2][8] = {{1, 0, 0, 0, 0, 0, 0, 0}, {0, 1, 0, 0, 0, 0, 0, 0}};
    float y[2][3];
    const int64_t batch = 2;
    int status = mlp_call(&x[0][0], &batch, &y[0][0], arena);
    if (status != MLP_OK)
        return status;
    for (int row = 0; row < 2; row++)
        printf("%.4f %.4f %.4f\n", y[row][0], y[row][1], y[row][2]);
    return 0;
}
