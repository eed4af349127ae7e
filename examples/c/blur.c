/* A kernel called by name: examples/blur.kernel, compiled by dlc.
 *
 * The picture is B[i][j] = i * i + j, so the mean of three rows is (i * i + (i + 1) * (i + 1) + (i + 2) * (i + 2)) / 3 + j.
 */
#include <math.h>
#include <stdio.h>

#include "blur.h"

static const int rows_columns_in[BLUR_INPUT_0_RANK] = BLUR_INPUT_0_DIMS;
static const int rows_columns_out[BLUR_OUTPUT_0_RANK] = BLUR_OUTPUT_0_DIMS;
static float B[BLUR_INPUT_0_SIZE];
static float A[BLUR_OUTPUT_0_SIZE];

int main(void)
{
    int i, j;
    double largest = 0.0;
    for (i = 0; i < rows_columns_in[0]; i++)
        for (j = 0; j < rows_columns_in[1]; j++)
            B[i * rows_columns_in[1] + j] = (float)(i * i + j);

    /* Inputs in their order, then outputs. There is no arena: this kernel needs no working memory. */
    if (blur_call(B, A) != BLUR_OK)
        return 1;

    for (i = 0; i < rows_columns_out[0]; i++)
        for (j = 0; j < rows_columns_out[1]; j++) {
            double mean = (i * i + (i + 1) * (i + 1) + (i + 2) * (i + 2)) / 3.0 + j;
            largest = fmax(largest, fabs(mean - (double)A[i * rows_columns_out[1] + j]));
        }
    printf("%d x %d means, the largest error is %.0e\n", rows_columns_out[0], rows_columns_out[1], largest);
    return largest < 1e-5 ? 0 : 1;
}
