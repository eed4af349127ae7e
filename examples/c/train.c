/* Learns to read digits: examples/digits/lenet.onnx, built by dlc with --train, called from C.
 *
 *     train TRAINING.bin TEST.bin CHECKPOINT
 *
 * A file of pictures is 65 bytes for each of them: 8 x 8 grey values from 0 to 16, and the digit. Training goes on from
 * CHECKPOINT if there is such a file, and writes it in the end. All memory is static.
 */
#include <stdio.h>

#include "lenet.h"

#define BATCH LENET_LABEL_SIZE
#define PICTURE (LENET_INPUT_0_SIZE / BATCH)
#define CLASSES LENET_CLASSES
#define EPOCHS 10
#define LARGEST 2048 /* pictures in a file */

#if defined(__GNUC__)
#define ALIGNED __attribute__((aligned(LENET_ARENA_ALIGN)))
#else
#define ALIGNED
#endif

ALIGNED static unsigned char parameters[LENET_PARAMETERS_BYTES];
ALIGNED static unsigned char state[LENET_STATE_BYTES];
ALIGNED static unsigned char gradients[LENET_GRADIENTS_BYTES];
ALIGNED static unsigned char arena[LENET_ARENA_BYTES];
static const lenet_training net = { parameters, state, gradients, arena, NULL, NULL };

static unsigned char training[LARGEST][PICTURE + 1], test[LARGEST][PICTURE + 1];
static unsigned char checkpoint[LENET_CHECKPOINT_BYTES + 1]; /* one more, to see that a file is too long */
static float x[BATCH * PICTURE], scores[BATCH * CLASSES];
static int64_t y[BATCH];

/* Bytes of a file that were read, at most `size`. */
static size_t read_file(const char *path, void *to, size_t size)
{
    size_t count = 0;
    FILE *file = fopen(path, "rb");
    if (file != NULL) {
        count = fread(to, 1, size, file);
        fclose(file);
    }
    return count;
}

static int write_file(const char *path, const void *from, size_t size)
{
    FILE *file = fopen(path, "wb");
    size_t count;
    if (file == NULL)
        return 0;
    count = fwrite(from, 1, size, file);
    return fclose(file) == 0 && count == size;
}

/* Puts a picture into a place of the batch. */
static void place(int at, const unsigned char *picture)
{
    int i;
    for (i = 0; i < PICTURE; i++)
        x[at * PICTURE + i] = (float)picture[i];
    y[at] = picture[PICTURE];
}

/* Rows in a new order; the numbers are those of xorshift32 (Marsaglia 2003). */
static void shuffle(size_t rows)
{
    static uint32_t random = 2463534242u;
    unsigned char held;
    size_t i, k, at;
    for (i = rows - 1; i > 0; i--) {
        random ^= random << 13;
        random ^= random >> 17;
        random ^= random << 5;
        at = random % (i + 1);
        for (k = 0; k <= PICTURE; k++) {
            held = training[i][k];
            training[i][k] = training[at][k];
            training[at][k] = held;
        }
    }
}

/* How many of the test pictures are read rightly, or -1. */
static long right(size_t rows)
{
    long count = 0;
    size_t start;
    int i, k, best, filled;
    for (start = 0; start < rows; start += BATCH) {
        filled = rows - start < BATCH ? (int)(rows - start) : BATCH;
        for (i = 0; i < BATCH; i++)
            place(i, test[i < filled ? start + i : start]);
        if (lenet_predict(&net, x, scores) != LENET_OK)
            return -1;
        for (i = 0; i < filled; i++) {
            for (best = 0, k = 1; k < CLASSES; k++)
                if (scores[i * CLASSES + k] > scores[i * CLASSES + best])
                    best = k;
            count += best == y[i];
        }
    }
    return count;
}

int main(int argc, char **argv)
{
    size_t rows, tests, start, held;
    float loss = 0, sum;
    int epoch, i, error;

    rows = argc == 4 ? read_file(argv[1], training, sizeof training) / (PICTURE + 1) : 0;
    tests = argc == 4 ? read_file(argv[2], test, sizeof test) / (PICTURE + 1) : 0;
    if (rows < BATCH || tests == 0) {
        fprintf(stderr, "usage: train TRAINING.bin TEST.bin CHECKPOINT   (at least %d pictures)\n", BATCH);
        return 2;
    }
    held = read_file(argv[3], checkpoint, sizeof checkpoint);
    error = held ? lenet_load(&net, checkpoint, held) : lenet_init(&net);
    if (error != LENET_OK) {
        fprintf(stderr, "%s is no checkpoint of this program: error %d\n", argv[3], error);
        return 1;
    }
    for (epoch = 1; epoch <= EPOCHS; epoch++) {
        shuffle(rows);
        for (sum = 0, start = 0; start + BATCH <= rows; start += BATCH) {
            for (i = 0; i < BATCH; i++)
                place(i, training[start + i]);
            error = lenet_train_step(&net, x, y, &loss);
            if (error != LENET_OK) {
                fprintf(stderr, "epoch %d, row %lu: error %d\n", epoch, (unsigned long)start, error);
                return 1;
            }
            sum += loss;
        }
        printf("epoch %d: loss %.4f\n", epoch, sum / (float)(rows / BATCH));
    }
    printf("%ld of %lu test pictures are read rightly\n", right(tests), (unsigned long)tests);
    if (lenet_save(&net, checkpoint) != LENET_OK || !write_file(argv[3], checkpoint, LENET_CHECKPOINT_BYTES)) {
        fprintf(stderr, "%s cannot be written\n", argv[3]);
        return 1;
    }
    return 0;
}
