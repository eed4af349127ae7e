/* Loops run on a function object of the caller, backwards and counted; steps one by one. The bits are those of one thread. */
#include "net.hpp"
#include <cstdio>
#include <cstring>

#define CHECK(wanted) if (!(wanted)) { std::printf("line %d: %s\n", __LINE__, #wanted); return 1; }

namespace net = dlc::net;
using Status = net::Status;

static float x[net::Input<0>::size], y[net::Output<0>::size], z[net::Output<0>::size];

int main()
{
    for (size_t k = 0; k < net::Input<0>::size; ++k)
        x[k] = static_cast<float>(k % 11) / 11;
    const net::Arena arena;
    const net::Model model(arena);
    CHECK(model.call(x, y) == Status::ok);

    size_t calls = 0;
    auto backwards = [&calls](size_t count, auto body) {
        calls += count;
        while (count != 0)
            body(--count);
    };
    net::set_parallel_for(backwards);
    CHECK(model.call(x, z) == Status::ok && calls > 1 && std::memcmp(y, z, sizeof y) == 0);
    net::reset_parallel_for();
    calls = 0;

    const void *inputs[] = {x};
    void *outputs[] = {z};
    std::memset(z, 0, sizeof z);
    for (unsigned k = 0; k < net::Model::steps; ++k)
        CHECK(model.step(inputs, outputs, k) == Status::ok);
    CHECK(model.step(inputs, outputs, net::Model::steps) == Status::bad_step);
    CHECK(calls == 0 && std::memcmp(y, z, sizeof y) == 0);
    return 0;
}
