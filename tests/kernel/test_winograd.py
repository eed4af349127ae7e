"""Winograd's algorithm as nests and as loops: what a convolution computes, on any machine, or the reason why not."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlc.base.types import Array
from dlc.kernel.cook_toom import CookToom, cook_toom
from dlc.kernel.evaluate import run_kernel
from dlc.kernel.kernel import Kernel
from dlc.kernel.loops.evaluate import run_loops
from dlc.kernel.schedules.machine import Machine
from dlc.kernel.schedules.schedule import check_transformed, scheduled
from dlc.kernel.schedules.text import parse_choices, print_choices
from dlc.kernel.schedules.unfit import Unfit
from dlc.kernel.schedules.winograd_estimate import Sizes, direct_cycles, winograd_cycles
from dlc.kernel.schedules.winograd_nests import Window, transformed, weights_kernel, window_of
from dlc.kernel.text import parse_kernel
from tests.machines import MACHINES, random_machine

VECTORS = [m for m in MACHINES.values() if m.vector_bytes]


def conv(
    n: int,
    h: int,
    w: int,
    c: int,
    f: int,
    pad: tuple[int, int] = (1, 1),
    tail: str = "",
    back: bool = False,
    taps: int = 3,
) -> str:
    """A convolution, channels last, padded by so many rows and columns at each border, and what follows.

    `back`: as the gradient for the data has it, windows run backwards.
    """
    rows, columns = h + 2 * pad[0] - taps + 1, w + 2 * pad[1] - taps + 1
    axes = (("i", "n", pad[0]), ("j", "u", pad[1]))
    y, x = (f"{i}-{u}+{taps - 1 - p}" if back else f"{i}+{u}-{p}" for i, u, p in axes)
    where = [f"{e} >= 0 and {e} < {d}" for e, d, p in ((y, h, pad[0]), (x, w, pad[1])) if p or back]
    guard = f" if {' and '.join(where)}" if where else ""
    out = f"f32[{n},{rows},{columns},{f}]"
    name, local = ("t0", f" local ({out})") if tail else ("r0", "")
    image = "h" if n > 1 else "0"
    nest = f"m<{c} n<{taps} u<{taps}: {name}[{image},i,j,k] += p0[{image},{y},{x},m]*p1[n,u,m,k]{guard}"
    return (
        f"kernel(f32[{n},{h},{w},{c}], f32[{taps},{taps},{c},{f}], f32[{f}], {out}) -> ({out}){local} {{\n {nest}\n"
        + (f" r0[{image},i,j,k] = {tail.replace('@', f'[{image},i,j,k]')}\n" if tail else "")
        + "}"
    )


RELU, RESIDUAL = "max(t0@+p2[k], 0.0)", "max(t0@+p2[k]+p3@, 0.0)"


def arrays(kernel: Kernel, seed: int = 0) -> list[Array]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(p.shape).astype(p.dtype.numpy) for p in kernel.params]


def changed(kernel: Kernel, args: Sequence[Array], f: CookToom) -> tuple[Kernel, list[Array]]:
    """The kernel by the algorithm, and its arguments."""
    w = window_of(kernel.nests[0], kernel)
    matrix = np.array([[float(x) for x in row] for row in f.filter])
    weights = args[1].astype(np.float64)
    if not w.slides[0].forwards:
        weights = weights[::-1, ::-1]
    weights = np.einsum("au,bv,uvcf->abcf", matrix, matrix, weights).astype(np.float32)
    return transformed(kernel, {0: (w, f)}), [args[0], weights, *args[2:]]


def agree(kernel: Kernel, outputs: int, machine: Machine, given: str = "", seed: int = 0) -> str:
    """Compare the nests and the loops of the algorithm with the convolution; returns the schedule."""
    args = arrays(kernel, seed)
    (want,) = run_kernel(kernel, [a.astype(np.float64) for a in args])
    other, their = changed(kernel, args, cook_toom(outputs, window_of(kernel.nests[0], kernel).taps))
    assert parse_kernel(other.text()) == other
    found = scheduled(other, machine, parse_choices(given) if given else ())
    scale = np.abs(want).max() + 1e-30
    for (got,) in (run_kernel(other, their), run_loops(found.program, their)):
        assert np.abs(got - want).max() <= 3e-5 * scale
    return print_choices(found.choices)


@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
@pytest.mark.parametrize(("outputs", "back"), [(2, True), (4, False)])
def test_every_machine(machine: Machine, outputs: int, back: bool) -> None:
    text = agree(parse_kernel(conv(2, 7, 9, 8, 16, tail=RELU, back=back)), outputs, machine)
    assert text.startswith("winograd{") == (machine.vector_bytes > 0), text


@settings(max_examples=3, deadline=None)
@given(seed=st.integers(0, 1 << 30))
def test_any_sizes_on_any_machine(seed: int) -> None:
    rng = random.Random(seed)
    taps, outputs = rng.choice(((3, 2), (3, 4), (5, 2), (5, 4), (7, 2)))
    n, h, w = rng.choice((1, 1, 2)), rng.randint(taps, 11), rng.randint(taps, 11)
    c, f = (rng.choice((4, 8, 12, 16)) for _ in range(2))
    pad = rng.randint(0, taps - 1), rng.randint(0, taps - 1)
    tail = rng.choice(("", RELU, RESIDUAL))
    kernel = parse_kernel(conv(n, h, w, c, f, pad, tail, back=rng.random() < 0.3, taps=taps))
    machine = random_machine(rng)
    try:
        check_transformed(changed(kernel, arrays(kernel), cook_toom(outputs, taps))[0], machine)
    except Unfit:
        given = ""
    else:
        given = rng.choice(("", "", f"winograd{{block={rng.randint(1, 12)}}}"))
    agree(kernel, outputs, machine, given, seed)


def test_blocks_that_do_not_divide_the_tiles() -> None:
    kernel = parse_kernel(conv(1, 10, 18, 4, 4, tail=RESIDUAL))
    for block in (1, 7, 15):
        assert agree(kernel, 4, VECTORS[0], f"winograd{{block={block}}}") == f"winograd{{past=r0 block={block}}}"


@pytest.mark.parametrize("tail", ["select(p3@ > 0.0, t0@, 0.0)", "t0@+p3@ if i < 5 and k < 3", "p3@*t0@ | turned"])
def test_followers_without_vectors(tail: str) -> None:
    text = conv(1, 9, 9, 4, 8, tail=tail.removesuffix(" | turned"))
    if tail.endswith("turned"):
        text = text.replace("r0[0,i,j,k]", "i<9 j<9 k<8: r0[0,k,i,j]").replace("-> (f32[1,9,9,8])", "-> (f32[1,8,9,9])")
    assert agree(parse_kernel(text), 4, VECTORS[0]).startswith("winograd")


def test_maps_that_are_not_larger_than_a_tile() -> None:
    for n, h, w in ((1, 4, 4), (2, 4, 4), (1, 4, 12), (2, 5, 5)):
        text = agree(parse_kernel(conv(n, h, w, 8, 8)), 4, VECTORS[0])
        assert text.startswith("winograd") == (min(h, w) > 4)


def test_two_convolutions_in_one_kernel() -> None:
    kernel = parse_kernel(
        """kernel(f32[8,8,4], f32[3,3,4,8], f32[3,3,4,4]) -> (f32[8,8,12]) local (f32[8,8,8], f32[8,8,4]) {
 m<4 n<3 u<3: t0[i,j,k] += p0[i+n-1,j+u-1,m]*p1[n,u,m,k] if i+n>=1 and i+n<9 and j+u>=1 and j+u<9
 r0[i,j,k] = max(t0[i,j,k], 0.0)
 m<4 n<3 u<3: t1[i,j,k] += p0[i+n-1,j+u-1,m]*p2[n,u,m,k] if i+n>=1 and i+n<9 and j+u>=1 and j+u<9
 i<8 j<8 k<4: r0[i,j,k+8] = max(t1[i,j,k], 0.0)
}""".replace(" r0[i,j,k] =", " i<8 j<8 k<8: r0[i,j,k] =")
    )
    f = cook_toom(4, 3)
    windows: dict[int, tuple[Window, CookToom]] = {k: (window_of(kernel.nests[k], kernel), f) for k in (0, 2)}
    args = arrays(kernel)
    matrix = np.array([[float(x) for x in row] for row in f.filter])
    weights = [np.einsum("au,bv,uvcf->abcf", matrix, matrix, a).astype(np.float32) for a in args[1:]]
    found = scheduled(transformed(kernel, windows), VECTORS[0])
    assert [c.name for c in found.choices] == ["winograd", "winograd"]
    (got,), (want,) = run_loops(found.program, [args[0], *weights]), run_kernel(kernel, args)
    assert np.abs(got - want).max() <= 3e-5 * np.abs(want).max()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (conv(1, 9, 9, 4, 4).replace("n<3", "n<2"), "its window has 2 elements along an axis, not 3, 5 or 7"),
        (conv(1, 9, 9, 4, 4, taps=5).replace("n<5", "n<3"), "its window is not square"),
        (conv(1, 9, 9, 4, 4).replace("i+n-1", "2*i+n-1").replace("[1,9,9,4]", "[1,19,9,4]"), "steps of 2 and 1"),
        (conv(1, 9, 9, 4, 4, (2, 2)).replace("i+n-2", "i+2*n-2"), "steps of 1 and 2"),
        (conv(1, 9, 9, 4, 4).replace("f32", "f64"), "it is not in f32"),
        (conv(1, 9, 9, 4, 4).replace("+=", "max="), "it is no sum of products"),
        (conv(1, 9, 9, 4, 4).replace(" if ", " if i < 5 and "), "its guard depends on more than the place in the data"),
        (
            "kernel(f32[5,4], f32[4,6]) -> (f32[5,6]) { k<4: r0[i,j] += p0[i,k]*p1[k,j] }",
            "it has no window of two axes",
        ),
        (
            "kernel(f32[9,9,2,4], f32[2,3,3,4,4]) -> (f32[7,7,2,4]) {"
            " m<4 n<3 u<3: r0[i,j,g,k] += p0[i+n,j+u,g,m]*p1[g,n,u,m,k] }",
            "it is grouped",
        ),
        (
            "kernel(f32[9,9,4,4], f32[3,3,4,4,4]) -> (f32[7,7,4]) {"
            " l<4 m<4 n<3 u<3: r0[i,j,k] += p0[i+n,j+u,l,m]*p1[n,u,l,m,k] }",
            "its channels are not one axis each",
        ),
    ],
)
def test_why_not(text: str, why: str) -> None:
    kernel = parse_kernel(text)
    with pytest.raises(Unfit) as problem:
        window_of(kernel.nests[0], kernel)
    assert why in str(problem.value)


@pytest.mark.parametrize(
    ("text", "machine", "why"),
    [
        (conv(1, 9, 9, 6, 8), VECTORS[0], "6 channels are no whole vectors of 4 elements"),
        (conv(1, 9, 9, 8, 8), Machine(32, 16, ordered=True), "sums keep the order of their axes"),
        (conv(1, 9, 9, 8, 8), Machine(8, 16), "vectors have 8 bytes, tiles need 16"),
        (
            conv(1, 9, 9, 8, 8)
            .replace("f32[1,9,9,8], f", "f32[1,8,9,9], f")
            .replace("p0[0,i+n-1,j+u-1,m]", "p0[0,m,i+n-1,j+u-1]"),
            VECTORS[0],
            "the channels of what it reads are not contiguous",
        ),
    ],
)
def test_machines_and_layouts_without_a_schedule(text: str, machine: Machine, why: str) -> None:
    kernel = parse_kernel(text)
    other, args = changed(kernel, arrays(kernel), cook_toom(2, 3))
    if why:
        with pytest.raises(Unfit) as problem:
            check_transformed(other, machine)
        assert why in str(problem.value)
    # What has no schedule as a whole is still computed nest by nest.
    (got,), (want,) = run_loops(scheduled(other, machine).program, args), run_kernel(kernel, arrays(kernel))
    assert np.abs(got - want).max() <= 3e-5 * np.abs(want).max()


def test_a_kernel_without_tiles() -> None:
    with pytest.raises(Unfit, match="its tiles are not found"):
        check_transformed(parse_kernel("kernel(f32[4]) -> (f32[4]) { r0[i] = p0[i] }"), VECTORS[0])


def test_the_estimate_prefers_what_was_measured_to_be_faster() -> None:
    machine = Machine(64, 32, 48 << 10, 2 << 20)
    small, large = cook_toom(2, 3), cook_toom(4, 3)

    def times(images: int, height: int, width: int, channels: int, columns: int) -> tuple[float, float, float]:
        s = Sizes(images, height, width, channels, columns, 3)
        return direct_cycles(s, machine), winograd_cycles(s, small, machine), winograd_cycles(s, large, machine)

    for sizes in ((1, 56, 56, 64, 64), (1, 28, 28, 128, 128), (1, 224, 224, 64, 64), (1, 28, 28, 512, 512)):
        direct, two, four = times(*sizes)
        assert four < two < direct
        assert direct > 2 * four
    direct, two, four = times(1, 7, 7, 512, 512)  # four times the weights are read once
    assert two < direct < four
    direct, two, four = times(1, 56, 56, 3, 64)
    assert direct < min(two, four)


@pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
@pytest.mark.parametrize("back", [False, True])
def test_weights_that_change(machine: Machine, back: bool) -> None:
    kernel, f = parse_kernel(conv(1, 9, 9, 8, 16, back=back)), cook_toom(4, 3)
    args = arrays(kernel)
    want = changed(kernel, args, f)[1][1]
    found = scheduled(weights_kernel(window_of(kernel.nests[0], kernel), f, kernel), machine)
    assert print_choices(found.choices) == ("transforms" if machine.vector_bytes else "scalar-tiles{columns=2 rows=6}")
    (got,) = run_loops(found.program, [args[1]])
    assert np.abs(got - want).max() <= 1e-6 * np.abs(want).max()
