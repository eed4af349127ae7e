// Which digit is on the picture? In C++ without exceptions, RTTI, heap or any part of the C++ library.
#include "board.h"
#include "mnist.hpp"

namespace mnist = dlc::mnist;

extern "C" const unsigned char picture[mnist::Input<0>::size];

static float image[mnist::Input<0>::size];
static float scores[mnist::Output<0>::size];

int main()
{
    for (size_t k = 0; k < mnist::Input<0>::size; ++k)
        image[k] = picture[k];

    const mnist::Model model;  // its working memory is the library's own: arena=static
    const mnist::Status status = model.call(image, scores);
    if (status != mnist::Status::ok) {
        put_text(mnist::message(status));
        put_text("\n");
        return 1;
    }

    size_t best = 0;
    for (size_t k = 0; k < mnist::Output<0>::size; ++k) {
        put_number(static_cast<long>(k));
        put_text(": ");
        put_decimal(scores[k]);
        put_text("\n");
        if (scores[k] > scores[best])
            best = k;
    }
    put_text("the digit is a ");
    put_number(static_cast<long>(best));
    put_text("\n");
    return 0;
}
