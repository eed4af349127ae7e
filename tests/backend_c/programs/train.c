/* Trains on the batches of data.h, checking on the way what the interface promises; prints every loss, then outputs.
 * Memory is of exactly the sizes that the header tells, so that a sanitizer sees every byte too many. */
#include "net.h"
#include "data.h"
#include <stdio.h>
#include <string.h>

#ifdef HEAP
/* Behind each of these a sanitizer watches. */
#include <stdlib.h>
int posix_memalign(void **, size_t, size_t);
static void *bytes(size_t size)
{
    void *found = NULL;
    return size == 0 || posix_memalign(&found, NET_ARENA_ALIGN, size) != 0 ? NULL : found;
}
#else
static unsigned char pool[NET_PARAMETERS_BYTES + NET_STATE_BYTES + NET_GRADIENTS_BYTES + NET_ARENA_BYTES + 5 * NET_ARENA_ALIGN];
static size_t used;
static void *bytes(size_t size)
{
    used += (size_t)(-(uintptr_t)(pool + used) % NET_ARENA_ALIGN);
    used += size;
    return size == 0 ? NULL : pool + used - size;
}
#endif

#define CHECK(wanted) if (!(wanted)) { printf("line %d: %s\n", __LINE__, #wanted); return 1; }

static unsigned char before[NET_CHECKPOINT_BYTES], after[NET_CHECKPOINT_BYTES];
static float out[NET_OUTPUT_0_SIZE];

static int unchanged(const net_training *t)
{
    return net_save(t, after) == NET_OK && memcmp(before, after, sizeof before) == 0;
}

static int refusals(const net_training *given)
{
    static union { float x[NET_INPUT_0_SIZE + 1]; int64_t y[NET_LABEL_SIZE + 1]; } odd;
    net_training t = *given;
    int64_t y[NET_LABEL_SIZE];
    float loss = 7.0f;
    size_t k;

    CHECK(net_save(&t, before) == NET_OK);
    CHECK(net_init(NULL) == NET_ERROR_NULL && net_save(NULL, before) == NET_ERROR_NULL);
    CHECK(net_train_step(NULL, data_x[0], data_y[0], &loss) == NET_ERROR_NULL);
    CHECK(net_predict(NULL, data_x[0], out) == NET_ERROR_NULL);
    CHECK(net_train_step(&t, NULL, data_y[0], &loss) == NET_ERROR_NULL);
    CHECK(net_train_step(&t, data_x[0], NULL, &loss) == NET_ERROR_NULL);
    CHECK(net_train_step(&t, data_x[0], data_y[0], NULL) == NET_ERROR_NULL);
    CHECK(net_train_step_run(&t, NULL, NULL) == NET_ERROR_NULL);
    CHECK(net_train_step(&t, (const float *)(const void *)((const char *)odd.x + 1), data_y[0], &loss) == NET_ERROR_ALIGNMENT);
    CHECK(net_evaluate(&t, data_x[0], (const int64_t *)(const void *)((const char *)odd.y + 4), &loss, out) == NET_ERROR_ALIGNMENT);
    t.parameters = NULL;
    CHECK(net_train_step(&t, data_x[0], data_y[0], &loss) == NET_ERROR_NULL);
    CHECK(net_predict(&t, data_x[0], out) == NET_ERROR_NULL && net_init(&t) == NET_ERROR_NULL);
    CHECK(net_load(&t, before, sizeof before) == NET_ERROR_NULL);
    t.parameters = (char *)given->parameters + 4;
    CHECK(net_train_step(&t, data_x[0], data_y[0], &loss) == NET_ERROR_ALIGNMENT);
    CHECK(net_load(&t, before, sizeof before) == NET_ERROR_ALIGNMENT);
    t = *given;
    t.state = NULL;
    CHECK(net_train_step(&t, data_x[0], data_y[0], &loss) == NET_ERROR_NULL);
    CHECK(net_predict(&t, data_x[0], out) == NET_OK);
    t = *given;
    if (NET_GRADIENTS_BYTES) {
        t.gradients = NULL;
        CHECK(net_train_step(&t, data_x[0], data_y[0], &loss) == NET_ERROR_NULL);
        CHECK(net_predict(&t, data_x[0], out) == NET_OK);
        t = *given;
    }
#ifndef OWN_ARENA
    t.arena = NULL;
    CHECK(net_train_step(&t, data_x[0], data_y[0], &loss) == NET_ERROR_NULL);
    CHECK(net_predict(&t, data_x[0], out) == NET_ERROR_NULL);
#endif
    t.arena = (char *)given->parameters + 8;
    CHECK(net_train_step(&t, data_x[0], data_y[0], &loss) == NET_ERROR_ALIGNMENT);
    t = *given;
    for (k = 0; k < NET_LABEL_SIZE; k++) {
        memcpy(y, data_y[0], sizeof y);
        y[k] = k % 2 ? -1 : NET_CLASSES;
        CHECK(net_train_step(&t, data_x[0], y, &loss) == NET_ERROR_LABEL);
        CHECK(net_evaluate(&t, data_x[0], y, &loss, out) == NET_ERROR_LABEL);
    }
    CHECK(loss == 7.0f && unchanged(&t));
    return 0;
}

static int checkpoints(const net_training *t)
{
    static unsigned char shifted[NET_CHECKPOINT_BYTES + 1];
    float one, other;
    size_t k;

    CHECK(net_save(t, before) == NET_OK);
    for (k = 0; k < sizeof before; k += k < 80 ? 1 : 37) {
        memcpy(shifted, before, sizeof before);
        shifted[k] ^= 16;
        CHECK(net_load(t, shifted, sizeof before) == NET_ERROR_CHECKPOINT);
    }
    CHECK(net_load(t, before, sizeof before - 1) == NET_ERROR_CHECKPOINT);
    CHECK(net_load(t, before, 0) == NET_ERROR_CHECKPOINT);
    CHECK(net_load(t, NULL, sizeof before) == NET_ERROR_NULL && net_save(t, NULL) == NET_ERROR_NULL);
    CHECK(unchanged(t));
    CHECK(net_train_step(t, data_x[1], data_y[1], &one) == NET_OK);
    CHECK(net_train_step(t, data_x[2], data_y[2], &one) == NET_OK && !unchanged(t));
    memcpy(shifted + 1, before, sizeof before);
    CHECK(net_load(t, shifted + 1, sizeof before) == NET_OK && unchanged(t));
    CHECK(net_train_step(t, data_x[1], data_y[1], &other) == NET_OK);
    CHECK(net_train_step(t, data_x[2], data_y[2], &other) == NET_OK && memcmp(&one, &other, sizeof one) == 0);
    return 0;
}

int main(void)
{
    static net_training t; /* what it points to is no leak */
    float loss;
    size_t k;

    t.parameters = bytes(NET_PARAMETERS_BYTES);
    t.state = bytes(NET_STATE_BYTES);
    t.gradients = bytes(NET_GRADIENTS_BYTES);
#ifndef OWN_ARENA
    t.arena = bytes(NET_ARENA_BYTES);
#endif
    SETUP
    CHECK(net_init(&t) == NET_OK);
    CHECK(refusals(&t) == 0);
    CHECK(checkpoints(&t) == 0);
    CHECK(net_init(&t) == NET_OK);
    for (k = 0; k < STEPS; k++) {
        CHECK(net_train_step(&t, data_x[k], data_y[k], &loss) == NET_OK);
        printf("%.9g\n", (double)loss);
    }
    CHECK(net_predict(&t, data_x[0], out) == NET_OK);
    for (k = 0; k < NET_OUTPUT_0_SIZE; k++) {
        printf("%.9g\n", (double)out[k]);
    }
    return 0;
}
