"""All texts of these tests as C: guarded loads, branches that may not read, masks, reductions by name, gradients."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from dlc_backend_c.target import GENERIC, target_for

from dlc.graph import Graph, evaluate
from tests.frontend_kernel.test_gradient_graphs import TEXTS
from tests.frontend_kernel.test_language import FORMULAS, PROGRAMS
from tests.frontend_kernel.texts import Array, parse
from tests.frontend_kernel.through_dlc import CompiledGraphs

GUARDS = """kernel guards(b: f32[5], at: i32[5], d: i32[5]) -> (x: f32[5], y: f32[5], z: f32[5], w: f32[5]) {
  x[i] = select(i >= 1 and b[i-1] > 0, 5, 7);
  y[i] = select(i >= 1, select(b[i-1] > 0, 5, 7), 7);
  z[i] = select(at[i] >= 0 and b[at[i]] > 0, 5, 7);
  w[i] = select(d[i] == 0 or 4 // d[i] > 1, 5, 7);
}"""
MORE = (
    GUARDS,
    "kernel f(x: i8[9], y: u8[9]) -> (a: i8[9], b: u8[9]) {"
    " a[i] = x[i] / -3 + x[i] % 4 - x[8-i] // 2; b[i] = y[i] - 7; }",
    "kernel f(x: bool[9], y: f32[9]) -> (a: bool[9], n: i64) { a[i] = x[i] or y[i] > 0; n = select(not x[i], 1, 0); }",
    "kernel f(I: i64[9], J: i8[4], x: f32[4,9]) -> (a: f32[9,4]) {"
    " a[i,j] = x[J[j], I[i] - 1] * select(j > 0, x[j-1, I[i]], 1); }",
    "kernel f(x: f16[9]) -> (a: f16[9]) { a[i] = x[i] // 0.5 + x[i] % 0.3; }",
)  # fmt: skip


def graphs() -> list[tuple[str, Graph]]:
    found = [(t, parse(t, data_type="float")) for t in FORMULAS]
    found += [(t, parse(t, data_type="double")) for t in (*PROGRAMS, *MORE)]
    found += [(t, parse(t, data_type="double", grad=tuple(w.split()))) for t, w in TEXTS]
    return list({g.digest: (t, g) for t, g in found}.values())


def feeds(graph: Graph, seed: int) -> dict[str, Array]:
    """Floats from 0.5 to 1.5, integers that reach outside of dimensions on both sides."""
    rng = np.random.default_rng(seed)
    out: dict[str, Array] = {}
    for i in graph.inputs:
        low = 0 if i.dtype.kind in ("uint", "bool") else -3
        values = rng.uniform(0.5, 1.5, i.shape) if i.dtype.is_float else rng.integers(low, 12, i.shape)
        out[i.name] = np.asarray(values % 2 if i.dtype.kind == "bool" else values).astype(i.dtype.numpy)
    return out


def test_a_condition_guards_no_subscript_beside_it() -> None:
    at, d = (np.array(x, np.int32) for x in ([2, -1, 4, 99, 1], [0, 2, 4, 1, -1]))
    found = evaluate(parse(GUARDS), {"b": np.array([1, -1, 2, 0, 3], np.float32), "at": at, "d": d})
    # What is outside is skipped and keeps its value, here 0, whatever the other side of `and` says.
    assert list(found["x"]) == [0, 5, 7, 5, 7]
    assert list(found["y"]) == [7, 5, 7, 5, 7]
    assert list(found["z"]) == [5, 0, 5, 0, 7]
    assert list(found["w"]) == [5, 5, 7, 5, 7], "4 // 0 is a number"


@pytest.mark.parametrize("target", ["native", "generic"])
def test_c_computes_what_the_interpreter_computes(target: str, tmp_path: Path) -> None:
    wanted = graphs()
    library = CompiledGraphs([g for _, g in wanted], target_for("native") if target == "native" else GENERIC, tmp_path)
    for n, (text, graph) in enumerate(wanted):
        given = feeds(graph, n)
        found = library(n, {name: list(x.reshape(-1)) for name, x in given.items()}, {})
        for name, expected in evaluate(graph, given).items():
            scale = {"float16": 2e-2, "float32": 1e-4}.get(str(expected.dtype), 1e-11)
            np.testing.assert_allclose(found[name], expected, rtol=scale, atol=scale, err_msg=text)
