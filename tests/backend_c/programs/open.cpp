/* Two models in one program, one with a size that each call tells; every way to hold their memory. It allocates what it
 * can in exactly the size that is needed, so that a sanitizer sees every byte too many. Prints what the functions in C
 * and C++ compute. */
#include "net.hpp"
#include "rows.hpp"
#include "rows.hpp"
#include <array>
#include <cstdio>
#include <cstring>
#include <vector>

#define CHECK(wanted) if (!(wanted)) { std::printf("line %d: %s\n", __LINE__, #wanted); return 1; }

namespace net = dlc::net;
namespace rows = dlc::rows;
using Status = net::Status;

static_assert(net::inputs == 1 && net::outputs == 2 && net::Input<0>::rank == 4 && net::Input<0>::shape[1] == 3);
static_assert(net::Input<0>::size == NET_INPUT_0_SIZE && net::Output<0>::size == 10);
static_assert(alignof(net::StaticArena) == net::arena_align && sizeof(net::StaticArena) >= net::arena_bytes);
static_assert(rows::Input<1>::low == 1 && rows::Input<1>::high == 6);

static net::StaticArena memory;
static net::Model constant_initialised(memory);

static int small()
{
    std::array<float, net::Input<0>::size> x;
    std::vector<float> same;
    float p[net::Output<0>::size], f[net::Output<1>::size], q[net::Output<0>::size], g[net::Output<1>::size];
    for (size_t k = 0; k < x.size(); ++k)
        x[k] = static_cast<float>(k % 13) / 8 - 0.5F;
    same.assign(x.begin(), x.end());

    CHECK(net_call(x.data(), p, f, memory.bytes) == NET_OK);
    net::Arena arena, other(17);
    CHECK(arena.size() == net::arena_bytes && other.size() == 17);
    const net::Model model(arena);
    CHECK(model.call(x, q, g) == Status::ok && std::memcmp(p, q, sizeof p) == 0 && std::memcmp(f, g, sizeof f) == 0);
    std::memset(q, 0, sizeof q);
    CHECK(constant_initialised.call(net::Input<0>::view(same.data(), same.size()), q, g) == Status::ok);
    CHECK(std::memcmp(p, q, sizeof p) == 0);
    const void *inputs[] = {x.data()};
    void *outputs[] = {q, g};
    std::memset(q, 0, sizeof q);
    CHECK(net::Model(memory.bytes, sizeof memory.bytes).run(inputs, outputs) == Status::ok);
    CHECK(std::memcmp(p, q, sizeof p) == 0);

    /* Owners change hands, and what was given away has no memory. */
    const void *const held = arena.data();
    net::Arena taken(static_cast<net::Arena &&>(arena));
    CHECK(taken.data() == held && arena.data() == nullptr && arena.size() == 0);
    other = static_cast<net::Arena &&>(taken);
    CHECK(other.data() == held && other.size() == net::arena_bytes && net::Model(other).call(x, q, g) == Status::ok);

    /* Refusals. */
    CHECK(net::Model(arena).call(x, q, g) == Status::small_arena);
    CHECK(net::Model(other.data(), net::arena_bytes - 1).call(x, q, g) == Status::small_arena);
    CHECK(net::Model(nullptr, net::arena_bytes).call(x, q, g) == Status::null_pointer);
    CHECK(net::Model(memory.bytes + 4, net::arena_bytes).call(x, q, g) == Status::misaligned);
    CHECK(net::Arena(static_cast<size_t>(-1)).size() == 0);
#if !defined(__cpp_lib_span)
    CHECK(model.call(net::Input<0>::view(same.data(), same.size() - 1), q, g) == Status::null_pointer);
#endif
    CHECK(std::strcmp(net::message(Status::misaligned), "a buffer is misaligned") == 0);
    for (float v : p)
        std::printf("%.9g\n", static_cast<double>(v));
    return 0;
}

static int open()
{
    for (int64_t batch = rows::Input<1>::low; batch <= rows::Input<1>::high; ++batch) {
        const auto n = static_cast<size_t>(batch);
        std::vector<float> x(n * 16), y(n * 16), z(n * 16);
        for (size_t k = 0; k < x.size(); ++k)
            x[k] = static_cast<float>(k) / 8 - 1;
        CHECK(rows::arena_bytes_of(batch) <= rows::arena_bytes && rows::arena_bytes_of(batch) == rows_arena_bytes(batch));
        rows::Arena arena(rows::arena_bytes_of(batch));
        const rows::Model model(arena);
        CHECK(model.call(x, batch, y) == rows::Status::ok);
        CHECK(rows_call(x.data(), &batch, z.data(), arena.data()) == ROWS_OK && y == z);
        CHECK(rows::Model(arena.data(), arena.size() - 1).call(x, batch, y) == rows::Status::small_arena);
        CHECK(model.call(rows::Input<0>::view(x.data(), x.size() - 1), batch, y) == rows::Status::short_span);
        CHECK(model.call(x, batch, rows::Output<0>::view(y.data(), y.size() - 1)) == rows::Status::short_span);
        CHECK(model.call(x, 0, y) == rows::Status::bad_shape && model.call(x, -1, y) == rows::Status::bad_shape);
        CHECK(model.call(x, 7, y) == rows::Status::bad_shape);
    }
    return 0;
}

int main()
{
    return small() || open();
}
