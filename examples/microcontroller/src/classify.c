/* Which digit is on the picture? */
#include "board.h"
#include "mnist.h"

extern const unsigned char picture[MNIST_INPUT_0_SIZE];

static float image[MNIST_INPUT_0_SIZE];
static float scores[MNIST_OUTPUT_0_SIZE];

int main(void)
{
    int k, best = 0;
    for (k = 0; k < MNIST_INPUT_0_SIZE; k++)
        image[k] = picture[k];

    if (mnist_call(image, scores) != MNIST_OK) {
        put_text("error\n");
        return 1;
    }
    for (k = 0; k < MNIST_OUTPUT_0_SIZE; k++) {
        put_number(k);
        put_text(": ");
        put_decimal(scores[k]);
        put_text("\n");
        if (scores[k] > scores[best])
            best = k;
    }
    put_text("the digit is a ");
    put_number(best);
    put_text("\n");
    return 0;
}
