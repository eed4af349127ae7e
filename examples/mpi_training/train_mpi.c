/* Learns to read digits on several processes: examples/digits/lenet.onnx, built by dlc with --train, and MPI.
 *
 *     mpiexec -n 4 train_mpi TRAINING.bin CHECKPOINT STEPS
 *
 * A file of pictures is 65 bytes for each of them: 8 x 8 grey values from 0 to 16, and the digit. Each rank reads its
 * part of every batch; together they make the steps of one process whose batch is as large as all parts. Training goes
 * on from CHECKPOINT if there is such a file, up to STEPS steps in all; rank 0 reads and writes it.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lenet.h"

#define BATCH LENET_LABEL_SIZE
#define PICTURE (LENET_INPUT_0_SIZE / BATCH)

#if defined(__GNUC__)
#define ALIGNED __attribute__((aligned(LENET_ARENA_ALIGN)))
#else
#define ALIGNED
#endif

ALIGNED static unsigned char parameters[LENET_PARAMETERS_BYTES];
ALIGNED static unsigned char state[LENET_STATE_BYTES];
ALIGNED static unsigned char gradients[LENET_GRADIENTS_BYTES];
ALIGNED static unsigned char arena[LENET_ARENA_BYTES];

static unsigned char checkpoint[LENET_CHECKPOINT_BYTES + 1]; /* one more, to see that a file is too long */
static float x[BATCH * PICTURE];
static int64_t y[BATCH];

/* The hook: the mean over all ranks of all gradients, which lie in one buffer; one operation for the whole of it. */
static void average(void *buffer, size_t bytes, void *user)
{
    const MPI_Comm *all = user;
    float *g = buffer;
    const size_t count = bytes / sizeof *g;
    size_t i;
    int ranks;
    MPI_Comm_size(*all, &ranks);
    MPI_Allreduce(MPI_IN_PLACE, g, (int)count, MPI_FLOAT, MPI_SUM, *all);
    for (i = 0; i < count; i++)
        g[i] /= (float)ranks;
}

/* Ends all ranks: the others would wait for this one for ever. */
static void fail(const char *what, int error)
{
    fprintf(stderr, "%s: error %d\n", what, error);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

/* Numbers of rows in the order of an epoch, which is the same on all ranks; xorshift32 (Marsaglia 2003). */
static void shuffle(long *order, long rows, long epoch)
{
    uint32_t random = 2463534242u + (uint32_t)epoch * 2654435769u;
    long i, at, held;
    for (i = 0; i < rows; i++)
        order[i] = i;
    for (i = rows - 1; i > 0; i--) {
        random ^= random << 13;
        random ^= random >> 17;
        random ^= random << 5;
        at = (long)(random % (uint32_t)(i + 1));
        held = order[i];
        order[i] = order[at];
        order[at] = held;
    }
}

/* Reads one picture into a place of the batch. */
static int read_picture(FILE *file, long row, int at)
{
    unsigned char bytes[PICTURE + 1];
    int i;
    if (fseek(file, row * (long)sizeof bytes, SEEK_SET) != 0 || fread(bytes, sizeof bytes, 1, file) != 1)
        return 0;
    for (i = 0; i < PICTURE; i++)
        x[at * PICTURE + i] = (float)bytes[i];
    y[at] = bytes[PICTURE];
    return 1;
}

/* Weights and state as rank 0 finds them in the checkpoint, or initial ones. */
static void start(const lenet_training *net, const char *path, int rank)
{
    long held = 0;
    int error;
    FILE *file = rank == 0 ? fopen(path, "rb") : NULL;
    if (file != NULL) {
        held = (long)fread(checkpoint, 1, sizeof checkpoint, file);
        fclose(file);
    }
    MPI_Bcast(&held, 1, MPI_LONG, 0, MPI_COMM_WORLD);
    MPI_Bcast(checkpoint, (int)held, MPI_BYTE, 0, MPI_COMM_WORLD);
    error = held ? lenet_load(net, checkpoint, (size_t)held) : lenet_init(net);
    if (error != LENET_OK)
        fail(path, error);
}

int main(int argc, char **argv)
{
    MPI_Comm all = MPI_COMM_WORLD;
    const lenet_training net = { parameters, state, gradients, arena, average, &all };
    int rank, ranks, i, error;
    long rows, steps, last, per_epoch, epoch = -1, *order;
    int64_t done;
    float loss = 0;
    double sum, mean;
    FILE *file;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(all, &rank);
    MPI_Comm_size(all, &ranks);
    if (argc != 4) {
        if (rank == 0)
            fprintf(stderr, "usage: train_mpi TRAINING.bin CHECKPOINT STEPS\n");
        MPI_Finalize();
        return 2;
    }
    last = strtol(argv[3], NULL, 10);
    file = fopen(argv[1], "rb");
    if (file == NULL || fseek(file, 0, SEEK_END) != 0)
        fail(argv[1], 1);
    rows = ftell(file) / (PICTURE + 1);
    per_epoch = rows / ((long)BATCH * ranks);
    order = malloc((size_t)rows * sizeof *order);
    if (per_epoch < 1 || order == NULL)
        fail("too few pictures", 1);
    start(&net, argv[2], rank);
    memcpy(&done, state + LENET_STEP_OFFSET, sizeof done);
    for (steps = (long)done; steps < last; steps++) {
        if (steps / per_epoch != epoch)
            shuffle(order, rows, epoch = steps / per_epoch);
        for (i = 0; i < BATCH; i++)
            if (!read_picture(file, order[(steps % per_epoch * ranks + rank) * BATCH + i], i))
                fail(argv[1], 1);
        error = lenet_train_step(&net, x, y, &loss);
        if (error != LENET_OK)
            fail("train_step", error);
        sum = loss;
        MPI_Reduce(&sum, &mean, 1, MPI_DOUBLE, MPI_SUM, 0, all);
        if (rank == 0 && (steps + 1) % 10 == 0)
            printf("step %ld: loss %.4f\n", steps + 1, mean / ranks);
    }
    fclose(file);
    free(order);
    if (rank == 0) {
        if (lenet_save(&net, checkpoint) != LENET_OK)
            fail("save", 1);
        file = fopen(argv[2], "wb");
        if (file == NULL || fwrite(checkpoint, LENET_CHECKPOINT_BYTES, 1, file) != 1 || fclose(file) != 0)
            fail(argv[2], 1);
    }
    MPI_Finalize();
    return 0;
}
