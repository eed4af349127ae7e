"""What statements and compositions mean, against numpy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dlc import Op
from dlc.base.types import Type, dtype_of_numpy
from dlc.graph import Input, evaluate, make_graph
from dlc.graph.verify import verify
from dlc.passes.lower import lower_op
from dlc.verify.op_packs import check_packs
from tests.op_packs.packs import changed, pack

Array = Any
X = np.arange(1.0, 13.0, dtype=np.float32).reshape(3, 4)
V = np.array([0.5, -1.0, 2.0, 0.0], np.float32)
I = np.array([2, 0, 2], np.int64)  # noqa: E741


def made(operands: str, mathematics: str, example: str, rest: str = "") -> type[Op]:
    """The op of a record."""
    text = f"pack: t\nops:\n  - op: op\n    doc: d\n    operands: {{{operands}}}\n{rest}    {mathematics}\n"
    return pack(text + f"    examples:\n      - {{{example}}}\n").ops[0].kind


def value(kind: Any, arrays: Mapping[str, Array], **attributes: Any) -> Array:
    """Of an op on arrays; that of its kernel is the same."""
    inputs: dict[str, Input] = {}
    for name, a in arrays.items():
        dtype = dtype_of_numpy(a.dtype)
        assert dtype is not None
        inputs[name] = Input(name, Type(dtype, a.shape))
    op = kind(**inputs, **attributes)
    graph = make_graph(list(inputs.values()), {"y": op})
    assert not verify(graph)
    found = evaluate(graph, arrays)["y"]
    lowered = make_graph(list(inputs.values()), {"y": lower_op(op)})
    np.testing.assert_allclose(evaluate(lowered, arrays)["y"], found, rtol=1e-6)
    return found


def windows(x: Array) -> Array:
    padded = np.pad(x, 1)
    return padded[:-2] + padded[1:-1] + padded[2:]


Case = tuple[str, str, str, Mapping[str, Array], Callable[[], Array]]

STATEMENTS: list[Case] = [
    (
        "product",
        'x: "float[N, C]", w: "float[F, C]"',
        "y[n, f] = sum[c](x[n, c] * w[f, c])",
        {"x": X, "w": X},
        lambda: X @ X.T,
    ),
    ("differences", 'x: "float[W]"', "y[i<W-1] = x[i + 1] - x[i]", {"x": V}, lambda: np.diff(V)),
    (
        "condition of a sum",
        'x: "float[W]"',
        "y[i<W] = sum[k<3](x[i + k - 1]) if i + k >= 1 and i + k <= W",
        {"x": V},
        lambda: windows(V),
    ),
    ("condition of an element", 'x: "float[W]"', "y[i<W] = x[i - 1] if i >= 1", {"x": V}, lambda: np.r_[0, V[:-1]]),
    (
        "choice",
        'x: "float[W]"',
        "y[i<W] = select(i >= 1, x[max(i - 1, 0)], -x[0])",
        {"x": V},
        lambda: np.r_[-V[0], V[:-1]],
    ),
    ("largest", 'x: "float[..., C]"', "y[...] = max[c](x[..., c])", {"x": X}, lambda: X.max(1)),
    ("smallest", 'x: "float[N, C]"', "y[c] = min[n](x[n, c])", {"x": X}, lambda: X.min(0)),
    ("all factors", 'x: "float[C]"', "y[] = prod[c](x[c])", {"x": V}, V.prod),
    ("mean", 'x: "float[N, C]"', "y[n] = sum[c](x[n, c] / C)", {"x": X}, lambda: X.mean(1)),
    ("axes as numbers", 'x: "float[W]"', "y[i] = x[i] * i + 1 / W", {"x": V}, lambda: V * np.arange(4) + 0.25),
    (
        "rest in the middle",
        'x: "float[N, ..., C]"',
        "y[c, ..., n] = x[n, ..., c]",
        {"x": X[:, None]},
        lambda: X[:, None].transpose(2, 1, 0),
    ),
    (
        "rows by data",
        'x: "float[N, C]", i: "i64[M]"',
        "y[m, c] = x[min(max(i[m], 0), N - 1), c]",
        {"x": X, "i": I},
        lambda: X[I],
    ),
    ("truth", "x: float", "y[...] = x[...] > 0", {"x": V}, lambda: V > 0),
    (
        "integers",
        'x: "int", k: "int"',
        "y[...] = x[...] // 2 + k[...] % 3 + 1",
        {"x": I, "k": I},
        lambda: I // 2 + I % 3 + 1,
    ),
    ("a size alone", 'x: "float[N, C]"', "y[n<N] = N * C - n", {"x": X}, lambda: 12 - np.arange(3)),
    ("block", 'x: "float[N, C]"', "y[n, c] = -x[n, c] - -1", {"x": X}, lambda: 1 - X),
]


@pytest.mark.parametrize(
    ("operands", "text", "arrays", "want"), [s[1:] for s in STATEMENTS], ids=[s[0] for s in STATEMENTS]
)
def test_statements(operands: str, text: str, arrays: Mapping[str, Array], want: Callable[[], Array]) -> None:
    example = ", ".join(f"{n}: {a.tolist()}" for n, a in arrays.items())
    expected = np.asarray(want())
    shown = str(expected.astype(float).tolist())
    got = value(made(operands, f'define: "{text}"', f"{example}, y: {shown}"), arrays)
    np.testing.assert_allclose(got, expected, rtol=1e-6)
    assert got.dtype.kind == expected.dtype.kind


COMPOSITIONS: list[Case] = [
    ("order of operators", "x: float", "1 - x * 2 - 3 / (1 + x * x)", {"x": V}, lambda: 1 - V * 2 - 3 / (1 + V * V)),
    ("negative", "x: float", "-x - -2", {"x": V}, lambda: -V + 2),
    (
        "shapes",
        'x: "float[N, C]"',
        "reshape(transpose(x, perm=(1, 0)), to=(N * C,))",
        {"x": X},
        lambda: X.T.reshape(-1),
    ),
    ("several operands", 'x: "float[N, C]"', "concat((x, -x), axis=1)", {"x": X}, lambda: np.concatenate([X, -X], 1)),
    (
        "element types",
        "x: float",
        "cast(cast(x, to=i32), to=f64)",
        {"x": V},
        lambda: V.astype(np.int32).astype(np.float64),
    ),
    ("dimensions", 'x: "float[N, C]"', "reduce_sum(x, axes=(1,), keep=false) / C", {"x": X}, lambda: X.mean(1)),
]


@pytest.mark.parametrize(
    ("operands", "text", "arrays", "want"), [c[1:] for c in COMPOSITIONS], ids=[c[0] for c in COMPOSITIONS]
)
def test_compositions(operands: str, text: str, arrays: Mapping[str, Array], want: Callable[[], Array]) -> None:
    example = ", ".join(f"{n}: {a.tolist()}" for n, a in arrays.items())
    expected = np.asarray(want())
    got = value(made(operands, f'compose: "{text}"', f"{example}, y: {expected.tolist()}"), arrays)
    np.testing.assert_allclose(got, expected, rtol=1e-6)
    assert got.dtype == expected.dtype


def test_attributes_choose() -> None:
    attrs = "    attrs: {twice: {type: bool, default: false}, by: {type: int, default: 3}}\n"
    kind = made("x: float", 'define: "y[...] = select(twice, x[...] * 2, x[...] / by)"', "x: [3.0], y: [1.0]", attrs)
    assert value(kind, {"x": V}, twice=True).tolist() == (V * 2).tolist()
    np.testing.assert_allclose(value(kind, {"x": V}), V / 3)


def test_texts_and_lists_are_handed_on() -> None:
    attrs = "    attrs: {mode: {type: text, choices: [reflect, edge]}, pads: {type: ints}}\n"
    kind: Any = made(
        "x: float",
        'compose: "pad(x, pads=pads, mode=mode)"',
        "x: [1.0, 2.0], mode: edge, pads: [1, 0], y: [1.0, 1.0, 2.0]",
        attrs,
    )
    got = value(kind, {"x": V}, mode="reflect", pads=(1, 1))
    assert got.tolist() == np.pad(V, 1, mode="reflect").tolist()
    with pytest.raises(ValueError, match='"wrap" is none of reflect, edge'):
        kind(Input("x", Type.parse("f32[4]")), mode="wrap", pads=(1, 1))


def test_operands_that_may_be_absent_are_handed_on() -> None:
    kind = made(
        'x: "float[N, C]", w: "float[C, F]", b: "float[F]?"',
        'compose: "gemm(x, w, b)"',
        "x: [[1.0]], w: [[2.0]], y: [[2.0]]",
    )
    assert value(kind, {"x": X, "w": X.T}).tolist() == (X @ X.T).tolist()
    assert value(kind, {"x": X, "w": X.T, "b": np.ones(3, np.float32)}).tolist() == (X @ X.T + 1).tolist()


def test_a_composition_beside_statements_has_to_be_equal(tmp_path: Path) -> None:
    text = changed(
        'compose: "x * sigmoid(b)"', 'define: "y[...] = x[...] / (1 + exp(-b[...]))"\n    compose: "x * sigmoid(b)"'
    )
    for compose, wrong in (("x * sigmoid(b)", set[str]()), ("x * sigmoid(b) + 0.1", {"composition"})):
        (tmp_path / "demo.ops.yaml").write_text(text.replace('compose: "x * sigmoid(b)"', f'compose: "{compose}"'))
        assert {c.what for c in check_packs([tmp_path], []) if not c.ok} == wrong
