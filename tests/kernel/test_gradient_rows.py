"""Gradients that run along rows: what they compute, and how often they go through their rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest

from dlc.base.types import Array
from dlc.kernel.evaluate import run_kernel
from dlc.kernel.kernel import Kernel
from dlc.kernel.loops.check import check_loops
from dlc.kernel.loops.evaluate import run_loops
from dlc.kernel.loops.program import For, If, LoopProgram, Stmt, Store, reads, walk_stmts
from dlc.kernel.schedules.beside_rows import beside_rows
from dlc.kernel.schedules.held_values import with_held_values
from dlc.kernel.schedules.machine import Machine
from dlc.kernel.schedules.needed import only_needed
from dlc.kernel.schedules.products import ordered_products
from dlc.kernel.schedules.schedule import schedule
from dlc.kernel.schedules.terms_together import terms_together
from dlc.kernel.schedules.text import parse_choices
from dlc.kernel.schedules.vanishing import without_vanishing
from dlc.kernel.text import parse_kernel
from tests.backend_c.harness import close, samples
from tests.machines import MACHINES, SMALL

WIDE = MACHINES["wide-vectors"]
ORDERED = Machine(64, 32, ordered=True)
N, M = 16, 48


ATTENTION = """kernel(p0: f32[16,8], p1: f32[16,3], p2: f32[8,3]) -> (r0: f32[16,8])
local (t0: f32[16], t1: f32[16,8], t2: f32[16], t3: f32[16,8], t4: f32[16], t5: f32[16,8], t6: f32[16], t7: f32[16]) {
  i<16 j<8: t0[i] max= p0[i,j]
  i<16 j<8: t1[i,j] = exp(p0[i,j]-t0[i])
  i<16 j<8: t2[i] += t1[i,j]
  i<16 j<8 d<3: t3[i,j] += p1[i,d]*p2[j,d]/t2[i]
  i<16 j<8 d<3: t4[i] += neg(p1[i,d]*p2[j,d]*(t1[i,j]/t2[i])/t2[i])
  i<16 j<8: t5[i,j] = t3[i,j]+t4[i]
  i<16 j<8: t6[i] += neg(t5[i,j]*t1[i,j])
  i<16 j<8: t7[i] += select(p0[i,j] == t0[i], 1.0, 0.0)
  i<16 j<8: r0[i,j] = t5[i,j]*t1[i,j]+select(p0[i,j] == t0[i], t6[i]/t7[i], 0.0)
}"""
"""The gradient of softmax(p0)·p2 with respect to p0."""


def softmax(rows: str = f"{N},{M}") -> str:
    """As derivatives come: with a term for the largest of a row, which is 0."""
    n, m = rows.split(",")
    return f"""kernel(p0: f32[{rows}], p1: f32[{rows}]) -> (r0: f32[{rows}]) local (t0: f32[{n}], t1: f32[{rows}],
  t2: f32[{n}], t3: f32[{n}], t4: f32[{rows}], t5: f32[{n}], t6: f32[{n}], t7: f32[{n}]) {{
  i<{n} j<{m}: t0[i] max= p0[i,j]
  i<{n} j<{m}: t1[i,j] = exp(p0[i,j]-t0[i])
  i<{n} j<{m}: t2[i] += t1[i,j]
  i<{n} j<{m}: t4[i,j] += p1[i,j]/t2[i]
  i<{n} j<{m}: t3[i] += neg(p1[i,j]*(t1[i,j]/t2[i])/t2[i])
  i<{n} j<{m}: t4[i,j] += t3[i]
  i<{n} j<{m}: r0[i,j] += t4[i,j]*exp(p0[i,j]-t0[i])
  i<{n} j<{m}: t5[i] += neg(t4[i,j]*exp(p0[i,j]-t0[i]))
  i<{n} j<{m}: t6[i] += select(p0[i,j] == t0[i], 1.0, 0.0)
  i<{n}: t7[i] = t5[i]/t6[i]
  i<{n} j<{m}: r0[i,j] += select(p0[i,j] == t0[i], t7[i], 0.0)
}}"""


NORM = f"""kernel(p0: f32[{N},{M}], p1: f32[{M}], p2: f32[{N},{M}]) -> (r0: f32[{N},{M}], r1: f32[{M}], r2: f32[{M}])
  local (t0: f32[{N}], t1: f32[{N}], t2: f32[{N}], t3: f32[{N}]) {{
  i<{N} j<{M}: t0[i] += p0[i,j]/{M}.0
  i<{N} j<{M}: t1[i] += (p0[i,j]-t0[i])*(p0[i,j]-t0[i])/{M}.0
  i<{N} j<{M}: r0[i,j] += p2[i,j]*p1[j]/sqrt(t1[i]+1e-05)
  i<{N} j<{M}: t3[i] += neg(p2[i,j]*p1[j]/sqrt(t1[i]+1e-05))
  i<{N} j<{M}: t2[i] += neg(p2[i,j]*p1[j]*(p0[i,j]-t0[i])/(t1[i]+1e-05)*0.5/sqrt(t1[i]+1e-05))
  i<{M} j<{N}: r1[i] += p2[j,i]*((p0[j,i]-t0[j])/sqrt(t1[j]+1e-05))
  i<{M} j<{N}: r2[i] += p2[j,i]
  i<{N} j<{M}: r0[i,j] += 2.0*(t2[i]/{M}.0*(p0[i,j]-t0[i]))
  i<{N} j<{M}: t3[i] += (-2.0)*(t2[i]/{M}.0*(p0[i,j]-t0[i]))
  i<{N} j<{M}: r0[i,j] += t3[i]/{M}.0
}}"""
WINDOWS = """kernel(p0: f32[144,36]) -> (r0: f32[4,14,14]) {
  i<4 j<14 k<14 m<3 n<3: r0[i,j,k] += p0[(j-m)*12+k-n,i*9+m*3+n] if j >= m and j < m+12 and k >= n and k < n+12
}"""


def softmax_gradient(x: Array, g: Array) -> tuple[Array, ...]:
    y = np.exp(x - x.max(1, keepdims=True))
    y /= y.sum(1, keepdims=True)
    return (y * (g - (g * y).sum(1, keepdims=True)),)


def norm_gradient(x: Array, scale: Array, g: Array) -> tuple[Array, ...]:
    v = 1 / np.sqrt(x.var(1, keepdims=True) + 1e-5)
    y = (x - x.mean(1, keepdims=True)) * v
    h = g * scale
    back = v * (h - h.mean(1, keepdims=True) - y * (h * y).mean(1, keepdims=True))
    return back, (g * y).sum(0), g.sum(0)


def windows_gradient(g: Array) -> tuple[Array, ...]:
    out = np.zeros((4, 14, 14))
    for y, x in np.ndindex(12, 12):
        out[:, y : y + 3, x : x + 3] += g[y * 12 + x].reshape(4, 3, 3)
    return (out,)


ORACLES: Mapping[str, tuple[str, Callable[..., tuple[Array, ...]]]] = {
    "softmax": (softmax(), softmax_gradient),
    "softmax, odd rows": (softmax("9,37"), softmax_gradient),
    "norm": (NORM, norm_gradient),
    "windows": (WINDOWS, windows_gradient),
}


@pytest.mark.parametrize("machine", [*MACHINES.values(), SMALL, ORDERED], ids=[*MACHINES, "small", "ordered"])
@pytest.mark.parametrize("name", ORACLES)
def test_gradients_are_right_on_every_machine(name: str, machine: Machine) -> None:
    text, oracle = ORACLES[name]
    kernel = parse_kernel(text)
    args = samples(kernel)
    program = schedule(kernel, machine)
    assert "exp" in text or not check_loops(kernel, program)  # random functions take it long
    wanted = oracle(*(a.astype(np.float64) for a in args))
    for got, want in zip(run_loops(program, args), wanted, strict=True):
        assert np.abs(got - want).max() <= 2e-5 * np.abs(want).max()


def loops_over(program: LoopProgram, extent: int) -> list[For]:
    """The outermost loops of so many steps."""
    return [s for s in program.body if isinstance(s, For) and s.axis.extent == extent]


def test_a_gradient_of_softmax_goes_through_its_rows_once() -> None:
    program = schedule(parse_kernel(softmax()), WIDE, parse_choices("loops{rows=1}"))
    (rows,) = loops_over(program, N)
    text = str(rows)
    assert text.count("'exp'") == 1
    assert "select" not in text
    # The largest, what is stored of it, two sums at once, and the result.
    assert len([s for s in rows.body if _has_loop(s)]) == 4


def test_a_gradient_of_a_norm_goes_through_its_rows_once() -> None:
    program = schedule(parse_kernel(NORM), WIDE)
    (rows,) = loops_over(program, N)
    stored = {s.out for s in walk_stmts(rows.body) if isinstance(s, Store)}
    assert stored >= {"r0", "r1_parts", "r2_parts"}
    assert all("p0" not in reads((s,)) and "p2" not in reads((s,)) for s in program.body if s is not rows)


def test_windows_have_no_guard_inside_of_the_edges() -> None:
    program = schedule(parse_kernel(WINDOWS), WIDE)
    assert not any(isinstance(s, If) for s in walk_stmts(program.body))
    inside = [s for s in walk_stmts(program.body) if isinstance(s, For) and str(s.stop) == "Const(value=12)"]
    assert any(str(s.start) == "Const(value=2)" for s in inside)
    assert all("min" not in str((s.start, s.stop)) for s in walk_stmts(program.body) if isinstance(s, For))


def _has_loop(s: Stmt) -> bool:
    return any(isinstance(x, For) for x in walk_stmts((s,)))


def changed(text: str, machine: Machine = WIDE) -> list[str]:
    """The nests of a kernel behind the passes of this page, which keep its values."""
    kernel = parse_kernel(text)
    found = with_held_values(only_needed(without_vanishing(terms_together(kernel, machine), machine)))
    found = beside_rows(ordered_products(found, machine), machine)
    found = Kernel.canonical(found.params, found.results, found.nests, found.locals)
    args = samples(kernel)
    for got, want in zip(run_kernel(found, args), run_kernel(kernel, args), strict=True):
        assert close(got, want)
    return [line.strip() for line in found.text().splitlines()[1:-1]]


def test_what_cancels_is_not_computed() -> None:
    assert changed(softmax("3,5")) == [
        "j<5: t0[i] max= p0[i,j]",
        "t1[i,j] = exp(p0[i,j]-t0[i])",
        "j<5: t2[i] += t1[i,j]",
        "j<5: t5[i] += p1[i,j]*t1[i,j]",
        "t3[i] = t5[i]*(-1.0)/t2[i]/t2[i]",
        "t4[i,j] = p1[i,j]/t2[i]+t3[i]",
        "r0[i,j] = t4[i,j]*t1[i,j]",
    ]


def test_sums_of_sums_cancel() -> None:
    found = changed(ATTENTION)
    assert not any("select" in line for line in found)
    # The products of cotangents and values serve the gradient of the sum of exponentials too.
    assert sum("k<3" in line or "m<3" in line for line in found) == 1


@pytest.mark.parametrize(
    "last",
    [
        "i<3 j<5: t2[i] += (p0[i,j]-t1[i])*p0[i,j]",
        "i<3 j<5: t2[i] += p0[i,j]-t1[i]*0.5",
        "i<3 j<5: t2[i] += p0[i,j]-t1[i] if j > 1",
        "i<3 j<5: t2[i] += p1[i,j]-t1[i]",
    ],
)
def test_what_does_not_cancel_stays(last: str) -> None:
    text = f"""kernel(p0: f32[3,5], p1: f32[3,5]) -> (r0: f32[3]) local (t0: f32[3], t1: f32[3], t2: f32[3]) {{
      i<3 j<5: t0[i] += p0[i,j]
      i<3: t1[i] = t0[i]/5.0
      {last}
      i<3: r0[i] = t2[i]+t1[i]
    }}"""
    assert any("t2" in line or "t1" in line for line in changed(text) if line.startswith("j<5"))
    cancelled = text.replace(last, "i<3 j<5: t2[i] += p0[i,j]-t1[i]")
    assert "r0[i] = t1[i]" in changed(cancelled)


def test_ordered_machines_keep_what_is_written() -> None:
    kernel = parse_kernel(softmax())
    for change in (terms_together, without_vanishing, beside_rows):
        assert change(kernel, ORDERED) is kernel
