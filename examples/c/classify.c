/* Which digit is on a picture? The model of examples/mnist.onnx, compiled by dlc, called from C.
 *
 *     classify PICTURE.pgm        28 x 28 grey values, white on black
 */
#include <stdio.h>

#include "mnist.h"

static float picture[MNIST_INPUT_0_SIZE];
static float scores[MNIST_OUTPUT_0_SIZE];
/* The caller owns the working memory. Here it is static; a thread would have its own. */
#if defined(__GNUC__)
__attribute__((aligned(MNIST_ARENA_ALIGN)))
#endif
static unsigned char arena[MNIST_ARENA_BYTES];

/* Reads a binary PGM file of exactly the model's size; returns 0 when it is something else. */
static int read_picture(const char *path)
{
    static unsigned char grey[MNIST_INPUT_0_SIZE];
    unsigned width, height, largest;
    size_t i;
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return 0;
    i = 0;
    if (fscanf(file, "P5 %u %u %u", &width, &height, &largest) == 3 && width == 28 && height == 28 && largest == 255
        && fgetc(file) != EOF)
        i = fread(grey, 1, sizeof grey, file);
    fclose(file);
    if (i != sizeof grey)
        return 0;
    for (i = 0; i < sizeof grey; i++)
        picture[i] = (float)grey[i];
    return 1;
}

int main(int argc, char **argv)
{
    int best = 0, i;
    if (argc != 2 || !read_picture(argv[1])) {
        fprintf(stderr, "usage: classify PICTURE.pgm   (28 x 28 grey values)\n");
        return 2;
    }
    if (mnist_call(picture, scores, arena) != MNIST_OK)
        return 1;
    for (i = 1; i < MNIST_OUTPUT_0_SIZE; i++)
        if (scores[i] > scores[best])
            best = i;
    printf("%s is a %d\n", argv[1], best);
    return 0;
}
