/* A training program through its C++ header, compared with the functions in C bit for bit; prints every loss. */
#include "net.hpp"
#include <cstdio>
#include <cstring>

#define CHECK(wanted) if (!(wanted)) { std::printf("line %d: %s\n", __LINE__, #wanted); return 1; }

namespace net = dlc::net;
using Status = net::Status;

static net::StaticMemory memory, copy;
static unsigned char saved[net::checkpoint_bytes], other[net::checkpoint_bytes];
static_assert(net::parameters == 2 && net::Parameter<0>::size == 6 && net::Input<0>::shape[0] == 4);
static_assert(net::classes == 3 && net::Label::size == 4 && sizeof(net::Label::element) == 8);

int main()
{
    float x[net::Input<0>::size], out[net::Output<0>::size], loss = 0, expected = 0;
    int64_t y[] = {0, 2, 1, 0};
    for (size_t k = 0; k < net::Input<0>::size; ++k)
        x[k] = static_cast<float>(k) / 4 - 1;

    net_training c = {};
    c.parameters = copy.parameters, c.state = copy.state, c.gradients = copy.gradients, c.arena = copy.arena;
    net::Training t(memory);
    CHECK(net_init(&c) == NET_OK && t.init() == Status::ok);
    CHECK(std::memcmp(memory.parameters, copy.parameters, sizeof memory.parameters) == 0);
    for (int k = 0; k < 6; ++k) {
        CHECK(net_train_step(&c, x, y, &expected) == NET_OK);
        if (k % 2) {
            CHECK(t.train_step(x, y, loss) == Status::ok);
        } else {
            CHECK(t.gradients(x, y, loss) == Status::ok && t.update() == Status::ok);
        }
        CHECK(std::memcmp(&loss, &expected, sizeof loss) == 0);
        std::printf("%.9g\n", static_cast<double>(loss));
    }
    CHECK(t.save(saved) == Status::ok && net_save(&c, other) == NET_OK && std::memcmp(saved, other, sizeof saved) == 0);
    CHECK(t.parameter<0>().data() == static_cast<void *>(memory.parameters + net::Parameter<0>::offset));
    CHECK(t.state<0>().size() == net::State<0>::size && t.gradient<1>().size() == 3);

    /* Memory of the heap goes on where a checkpoint ends. */
    net::Memory heap;
    net::Training resumed(heap);
    CHECK(resumed.load(saved) == Status::ok);
    CHECK(resumed.load(net::span<const unsigned char>(saved, sizeof saved - 1)) == Status::bad_checkpoint);
    CHECK(t.evaluate(x, y, expected, out) == Status::ok && resumed.evaluate(x, y, loss, out) == Status::ok);
    CHECK(std::memcmp(&loss, &expected, sizeof loss) == 0 && resumed.predict(x, out) == Status::ok);
    y[3] = 3;
    CHECK(t.train_step(x, y, loss) == Status::bad_label);
    return 0;
}
