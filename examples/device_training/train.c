/* Learns to read digits on the device: the network starts with random weights, and every step of the training runs here.
 *
 * A device of your own has examples from its sensors, labelled by its user; here pictures.bin is linked into flash.
 */
#include "board.h"
#include "net.h"

#define BATCH NET_LABEL_SIZE
#define PIXELS (NET_INPUT_0_SIZE / BATCH)
#define TRAINING 320 /* pictures; those of the test lie behind them */
#define EPOCHS 6

extern const unsigned char pictures[][PIXELS + 1];
extern const unsigned char pictures_end[];

#define ALIGNED __attribute__((aligned(NET_ARENA_ALIGN)))
ALIGNED static unsigned char parameters[NET_PARAMETERS_BYTES];
ALIGNED static unsigned char state[NET_STATE_BYTES];
ALIGNED static unsigned char gradients[NET_GRADIENTS_BYTES];
ALIGNED static unsigned char arena[NET_ARENA_BYTES];
static const net_training net = { parameters, state, gradients, arena, NULL, NULL };

static float x[BATCH * PIXELS], scores[BATCH * NET_CLASSES];
static int64_t y[BATCH];

/* Fills the batch with the pictures from `first` on; behind the last one it is the last one again. */
static void fill(int first, int count)
{
    int i, k;
    for (i = 0; i < BATCH; i++) {
        const unsigned char *picture = pictures[first + i < count ? first + i : count - 1];
        for (k = 0; k < PIXELS; k++)
            x[i * PIXELS + k] = (float)picture[k];
        y[i] = picture[PIXELS];
    }
}

/* Prints how many of the test pictures are recognised. */
static int test(int count)
{
    int first, i, k, right = 0;
    for (first = TRAINING; first < count; first += BATCH) {
        fill(first, count);
        if (net_predict(&net, x, scores) != NET_OK)
            return 0;
        for (i = 0; i < BATCH && first + i < count; i++) {
            const float *row = scores + i * NET_CLASSES;
            int best = 0;
            for (k = 1; k < NET_CLASSES; k++)
                if (row[k] > row[best])
                    best = k;
            right += best == y[i];
        }
    }
    put_number(right);
    put_text(" of ");
    put_number(count - TRAINING);
    put_text(" test pictures are recognised\n");
    return 1;
}

int main(void)
{
    const int count = (int)((size_t)(pictures_end - pictures[0]) / sizeof pictures[0]);
    int epoch, first;
    if (net_init(&net) != NET_OK || !test(count))
        return 1;
    for (epoch = 1; epoch <= EPOCHS; epoch++) {
        float sum = 0, loss;
        for (first = 0; first < TRAINING; first += BATCH) {
            fill(first, TRAINING);
            if (net_train_step(&net, x, y, &loss) != NET_OK) {
                put_text("the loss is not finite: use a smaller learning rate\n");
                return 1;
            }
            sum += loss;
        }
        put_text("epoch ");
        put_number(epoch);
        put_text(": loss ");
        put_decimal(sum / (TRAINING / BATCH));
        put_text("\n");
    }
    return !test(count);
}
