"""Random numbers: the published vectors of Philox-4x32-10, equal bits everywhere, and dropout made of them."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from dlc_backend_c.target import GENERIC, target_for

from dlc.base.report import Report
from dlc.base.types import DType, Type, f16, f32, f64, i64, u32
from dlc.graph import Graph, Input, Op, evaluate, toposort
from dlc.graph.gradient import gradients
from dlc.graph.walk import evaluate_ops
from dlc.kernel.define import ShapeError
from dlc.kernel.evaluate import run_kernel
from dlc.kernel.expr import Axis, Expr
from dlc.kernel.gradient.adjoint import adjoint
from dlc.kernel.kernel import Kernel
from dlc.kernel.nest import Nest, Param
from dlc.ops.elementwise import Add, Mul
from dlc.ops.random import Dropout, DropoutMask, RandomNormal, RandomUniform, philox, random_bits
from dlc.passes.fuse import Fuse
from dlc.passes.lower import Lower
from tests.backend_c.harness import Compiled
from tests.tools import COMPILERS

Array = Any
SEED, STEP = Input("seed", Type(i64, ())), Input("step", Type(i64, ()))
# counter, key, block: philox4x32 10 of kat_vectors in Random123 1.14.
KNOWN = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]


def words(text: str) -> list[int]:
    return [int(word, 16) for word in text.split()]


def block(counter: list[int], key: list[int]) -> list[int]:
    """Philox-4x32-10 as the paper writes it, in Python's integers."""
    (a, b, c, d), (k, m) = counter, key
    for _ in range(10):
        p, q = 0xD2511F53 * a, 0xCD9E8D57 * c
        a, b, c, d = q >> 32 ^ b ^ k, q & 0xFFFFFFFF, p >> 32 ^ d ^ m, p & 0xFFFFFFFF
        k, m = (k + 0x9E3779B9) & 0xFFFFFFFF, (m + 0xBB67AE85) & 0xFFFFFFFF
    return [a, b, c, d]


def expected_word(place: int, seed: int, step: int = 0, stream: int = 0) -> int:
    low = 0xFFFFFFFF
    return block([place & low, place >> 32 & low, step & low, stream], [seed & low, seed >> 32 & low])[0]


def blocks_kernel() -> Kernel:
    """r[i] = the four words for counter p0[i] and key p1[i]."""
    size = len(KNOWN)
    counter, key = Param("counter", Type(u32, (size, 4))), Param("key", Type(u32, (size, 2)))
    i = Axis("i", size)
    found = philox((counter[i, 0], counter[i, 1], counter[i, 2], counter[i, 3]), (key[i, 0], key[i, 1]))
    results = tuple(Param(f"w{k}", Type(u32, (size,))) for k in range(4))
    nests = tuple(Nest(r.name, (i,), (i,), word) for r, word in zip(results, found, strict=True))
    return Kernel.canonical((counter, key), results, nests)


def far_kernel(start: int) -> Kernel:
    """Words at places that take more than 32 bits to count."""
    seed, step = Param("seed", Type(i64, ())), Param("step", Type(i64, ()))
    i = Axis("i", 4)
    place: Expr = i + start
    body = random_bits(place, seed, step, 7)
    return Kernel.canonical((seed, step), (Param("r", Type(u32, (4,))),), (Nest("r", (i,), (i,), body),))


def known() -> tuple[list[Array], Array]:
    counter, key, found = (np.array([words(row[k]) for row in KNOWN], np.uint32) for k in range(3))
    return [counter, key], found


FAR = (1 << 32) - 2


def far() -> tuple[list[Array], Array]:
    seed, step = -3, 1 << 31
    words = [expected_word(FAR + k, seed, step, 7) for k in range(4)]
    return [np.array(seed), np.array(step)], np.array(words, np.uint32)


def test_the_published_vectors() -> None:
    args, expected = known()
    assert [block(words(c), words(k)) for c, k, _ in KNOWN] == expected.tolist()
    assert np.array_equal(np.stack(run_kernel(blocks_kernel(), args), 1), expected)


def test_places_seeds_and_steps_take_more_than_one_word() -> None:
    args, expected = far()
    assert np.array_equal(run_kernel(far_kernel(FAR), args)[0], expected)


def uniform(*shape: int, seed: int = 0, step: int | None = None, stream: int = 0, dtype: DType = f32) -> Array:
    op = RandomUniform(SEED, Type(dtype, shape), None if step is None else STEP, stream)
    return evaluate_ops((op,), {SEED: np.array(seed), STEP: np.array(step or 0)})[0]


@pytest.mark.parametrize(("dtype", "bits"), [(f16, 11), (f32, 24), (f64, 32)])
def test_a_uniform_number_is_the_upper_bits_of_its_word(dtype: DType, bits: int) -> None:
    got = uniform(3, 5, seed=42, step=9, stream=2, dtype=dtype)
    expected = [(expected_word(k, 42, 9, 2) >> 32 - bits) / 2**bits for k in range(15)]
    assert got.dtype == dtype.numpy
    assert got.ravel().tolist() == expected


def test_uniform_numbers_are_uniform_and_independent() -> None:
    draws = [uniform(1 << 14, seed=s, step=t, stream=n) for s, t, n in ((0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1))]
    for u in draws:
        assert 0 <= u.min() < u.max() < 1
        assert abs(u.mean() - 0.5) < 5 * (1 / 12 / u.size) ** 0.5
        counts = np.histogram(u, 64, (0, 1))[0]
        # χ² with 63 degrees of freedom: 120 is passed once in a hundred thousand times.
        assert ((counts - u.size / 64) ** 2 / (u.size / 64)).sum() < 120
        assert abs(np.corrcoef(u[1:], u[:-1])[0, 1]) < 5 / u.size**0.5
    assert np.abs(np.corrcoef(draws) - np.eye(4)).max() < 5 / draws[0].size ** 0.5


def test_normal_numbers_are_normal() -> None:
    (z,) = evaluate_ops((RandomNormal(SEED, Type(f32, (1 << 14,)), stream=9),), {SEED: np.array(11)})
    assert z.dtype == np.float32
    assert abs(z.mean()) < 5 / z.size**0.5
    assert abs((z**2).mean() - 1) < 5 * (2 / z.size) ** 0.5
    # Shares within 1, 2 and 3 standard deviations.
    for k, share in ((1, 0.682689), (2, 0.954500), (3, 0.997300)):
        assert abs((np.abs(z) < k).mean() - share) < 5 * (share * (1 - share) / z.size) ** 0.5
    assert np.abs(z).max() < 5.8


def test_equal_seeds_give_equal_bits_and_others_do_not() -> None:
    a = uniform(100, seed=5, step=3, stream=1)
    assert np.array_equal(a, uniform(100, seed=5, step=3, stream=1))
    assert np.array_equal(a, uniform(10, 10, seed=5, step=3, stream=1).ravel())
    assert np.array_equal(uniform(100, seed=5), uniform(100, seed=5, step=0))
    others = [uniform(100, seed=s, step=t, stream=n) for s, t, n in ((4, 3, 1), (5, 2, 1), (5, 3, 0), (5 << 32, 3, 1))]
    assert all((a != b).mean() > 0.9 for b in others)


def dropped(x: Array, ratio: float, seed: int = 0) -> tuple[Array, Array]:
    """Dropout and its mask."""
    given = Input("x", Type(f32, x.shape))
    ops = Dropout(given, SEED, STEP, ratio, 4), DropoutMask(SEED, x.shape, STEP, ratio, 4)
    y, mask = evaluate_ops(ops, {given: x, SEED: np.array(seed), STEP: np.array(17)})
    return y, mask


@pytest.mark.parametrize("ratio", [0.1, 0.5, 0.999])
def test_dropout_keeps_what_the_mask_tells_and_scales_it(ratio: float) -> None:
    x = np.random.default_rng(0).standard_normal((200, 300)).astype(np.float32)
    y, mask = dropped(x, ratio)
    assert np.array_equal(y, np.where(mask, x * np.float32(1 / (1 - ratio)), 0))
    assert abs(mask.mean() - (1 - ratio)) < 5 * (ratio * (1 - ratio) / x.size) ** 0.5
    expected = [expected_word(k, 0, 17, 4) >= round(ratio * 2**32) for k in range(50)]
    assert mask.ravel()[:50].tolist() == expected


def test_dropping_nothing_is_the_identity_and_dropping_all_gives_zeros() -> None:
    x = np.array([1.5, -0.0, np.inf, np.nan, 1e-45], np.float32)
    y, mask = dropped(x, 0.0)
    assert y.tobytes() == x.tobytes()
    assert mask.all()
    y, mask = dropped(x, 1.0)
    assert y.tolist() == [0] * 5
    assert not mask.any()
    assert Dropout(Input("x", Type(f64, (5,))), SEED, ratio=1.0).dtype == f64


@pytest.mark.parametrize("ratio", [0.0, 0.3, 0.99])
def test_the_gradient_makes_the_mask_again(ratio: float) -> None:
    x, g = Input("x", Type(f64, (40, 5))), Input("g", Type(f64, (40, 5)))
    y = Dropout(x, SEED, STEP, ratio, 1)
    (dx,) = gradients((y,), (g,), (x,))
    assert x not in toposort((dx,))
    assert y not in toposort((dx,))
    cotangent = np.random.default_rng(1).standard_normal((40, 5))
    known: dict[Op, Array] = {g: cotangent, SEED: np.array(3), STEP: np.array(8)}
    got, mask = evaluate_ops((dx, DropoutMask(SEED, (40, 5), STEP, ratio, 1)), known)
    assert np.array_equal(got, np.where(mask, cotangent * (1 / (1 - ratio)), 0))


def test_passes_keep_the_bits() -> None:
    x, w = Input("x", Type(f32, (6, 7))), Input("w", Type(f32, (7,)))
    y = Mul(Dropout(Add(x, w), SEED, STEP, 0.4, 1), Dropout(x, SEED, STEP, 0.4, 2))
    graph = Graph((x, w, SEED, STEP), (y,), ("y",))
    rng = np.random.default_rng(0)
    feeds = {"x": rng.standard_normal((6, 7)), "w": rng.standard_normal(7), "seed": np.array(1), "step": np.array(2)}
    report = Report()
    fused = Fuse().run(Lower().run(graph, report), report)
    assert np.array_equal(evaluate(fused, feeds)["y"], evaluate(graph, feeds)["y"])


REFUSED = [
    (lambda: Dropout(Input("x", Type(f32, (2,))), SEED, ratio=1.5), r"in \[0, 1\], not 1.5"),
    (lambda: Dropout(Input("x", Type(f32, (2,))), SEED, ratio=float("nan")), "not nan"),
    (lambda: Dropout(Input("x", Type(i64, (2,))), SEED), r"not i64\[2\]"),
    (lambda: Dropout(Input("x", Type(f32, (2,))), Input("s", Type(f32, ()))), r"seed must be i64\[\], not f32\[\]"),
    (lambda: RandomUniform(SEED, Type(f32, (2,)), Input("t", Type(i64, (1,)))), r"step must be i64\[\]"),
    (lambda: RandomUniform(SEED, Type(i64, (2,))), r"floats, not i64\[2\]"),
    (lambda: DropoutMask(SEED, (2,), stream=-1), "stream -1"),
]


@pytest.mark.parametrize(("make", "message"), REFUSED)
def test_what_does_not_fit_is_refused(make: Any, message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        make()


@cache
def cases() -> list[tuple[Kernel, list[Array], Array]]:
    """Kernels, their arguments, and the bits that they must give."""
    rng = np.random.default_rng(2)
    found: list[tuple[Kernel, list[Array], Array]] = []
    seeds = [np.array(-(1 << 40) + 5), np.array(3)]
    for dtype in (f16, f32, f64):
        kernel = RandomUniform(SEED, Type(dtype, (5, 37)), STEP, 6).kernel
        found.append((kernel, seeds, run_kernel(kernel, seeds)[0]))
    x = rng.standard_normal((9, 31)).astype(np.float32)
    op = Dropout(Input("x", Type(f32, (9, 31))), SEED, STEP, 0.3)
    found.append((op.kernel, [x, *seeds], run_kernel(op.kernel, [x, *seeds])[0]))
    back = adjoint(op.kernel, (0,))
    args = [*([x, *seeds][k] for k in back.primals), x]
    found.append((back.kernel, args, run_kernel(back.kernel, args)[0]))
    mask = DropoutMask(SEED, (9, 31), STEP, 0.3).kernel
    found.append((mask, seeds, run_kernel(mask, seeds)[0]))
    args, expected = far()
    return [*found, (far_kernel(FAR), args, expected)]


@pytest.mark.parametrize("cc", COMPILERS)
@pytest.mark.parametrize("target", ["generic", "native"])
def test_c_gives_the_same_bits(target: str, cc: str, tmp_path: Any) -> None:
    args, expected = known()
    made = cases()
    kernels = [blocks_kernel(), *(k for k, _, _ in made)]
    compiled = Compiled(kernels, GENERIC if target == "generic" else target_for("native"), tmp_path, cc)
    assert np.array_equal(np.stack(compiled(0, args), 1), expected)
    for n, (_, args, expected) in enumerate(made, 1):
        assert compiled(n, args)[0].tobytes() == expected.tobytes(), n


@pytest.mark.parametrize(("seed", "step"), [(3, None), (-1, 5), (2**62 + 5, -7), (-(2**63), 2**40 + 3)])
@pytest.mark.parametrize(
    "of", [Type(f16, (3, 7)), Type(f32, (20_000,)), Type(f64, (5,)), Type(f32, (0,)), Type(f32, ())]
)
def test_many_numbers_at_once_are_those_of_the_kernel(of: Type, seed: int, step: int | None) -> None:
    op = RandomUniform(SEED, of, None if step is None else STEP, stream=2**31 + 9)
    args = [np.asarray(v, np.int64) for v in (seed, step) if v is not None]
    np.testing.assert_array_equal(op.evaluate(*args), run_kernel(op.kernel, args)[0], strict=True)
