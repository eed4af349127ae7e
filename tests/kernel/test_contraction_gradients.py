"""Convolutions with weights that are no constants, and their gradients in gather form, run through register tiles.

Small caches stand for large tensors: what decides between schedules is whether operands fit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from dlc_backend_c.target import X86_64_V3, target_for

from dlc.kernel.loops.evaluate import run_loops
from dlc.kernel.loops.program import Block, For, If, LoopProgram, Set, reads, walk_stmts
from dlc.kernel.schedules.machine import Machine
from dlc.kernel.schedules.polyphase import split_phases
from dlc.kernel.schedules.schedule import schedule
from dlc.kernel.schedules.shuffled import Shuffled
from dlc.kernel.text import parse_kernel
from tests.backend_c.harness import STRICT, Array, Compiled, close, samples

SMALL = replace(X86_64_V3, l1=2 << 10, l2=4 << 10)
MACHINES = (Machine(16, 16, 1 << 10, 2 << 10), Machine(64, 32, 4 << 10, 4 << 10))
RUNS = target_for("native").vector_bytes >= 32


@pytest.fixture(autouse=True)
def tiles_whatever_they_take(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the caches of so small a machine, an estimate says what it says."""
    monkeypatch.setattr(import_module("dlc.kernel.schedules.candidate"), "MARGIN", math.inf)
    schedules = import_module("dlc.kernel.schedules.schedule")
    monkeypatch.setattr(schedules, "FAMILIES", tuple(f for f in schedules.FAMILIES if f is not Shuffled))


@dataclass(frozen=True)
class Shape:
    """A convolution of `n` squares of `h` by `h` with `c` channels per group into `k` channels per group."""

    c: int
    k: int
    h: int
    r: int = 3
    n: int = 1
    stride: int = 1
    pad: int = 0
    dilation: int = 1
    groups: int = 1
    dtype: str = "f32"

    @property
    def p(self) -> int:
        return (self.h + 2 * self.pad - self.dilation * (self.r - 1) - 1) // self.stride + 1

    @property
    def tensors(self) -> tuple[str, str, str]:
        """Types of data, weights and result."""
        g = self.groups
        data = f"{self.dtype}[{self.n},{g * self.c},{self.h},{self.h}]"
        weights = f"{self.dtype}[{g * self.k},{self.c},{self.r},{self.r}]"
        return data, weights, f"{self.dtype}[{self.n},{g * self.k},{self.p},{self.p}]"

    @property
    def channels(self) -> tuple[str, str]:
        """Subscripts of input and output channels."""
        return ("c", "k") if self.groups == 1 else (f"g*{self.c}+c", f"g*{self.k}+k")

    @property
    def window(self) -> tuple[str, str, str]:
        """Subscripts of the data under the window, and their guard."""
        y, x = (f"{a}*{self.stride}+{b}*{self.dilation}-{self.pad}" for a, b in (("p", "r"), ("q", "s")))
        inside = " and ".join(f"{i} >= 0 and {i} < {self.h}" for i in (y, x))
        return y, x, f" if {inside}" if self.pad else ""

    def text(self, what: str) -> str:
        b, w, a = self.tensors
        c, k = self.channels
        axes = {"n": self.n, "g": self.groups, "k": self.k, "c": self.c, "r": self.r, "s": self.r}
        axes |= {"p": self.p, "q": self.p, "h": self.h, "w": self.h}
        y, x, guard = self.window
        if what == "forward":
            params, result, order = (b, w), a, "n g k p q c r s"
            body = f"r0[n,{k},p,q] += p0[n,{c},{y},{x}]*p1[{k},c,r,s]{guard}"
        elif what == "weights":
            params, result, order = (a, b), w, "g k c r s n p q"
            body = f"r0[{k},c,r,s] += p0[n,{k},p,q]*p1[n,{c},{y},{x}]{guard}"
        else:
            params, result, order = (a, w), b, "n g c h w k r s"
            body = f"r0[n,{c},h,w] += p0[n,{k},{self._back('h', 'r')},{self._back('w', 's')}]*p1[{k},c,r,s]"
            body += " if " + " and ".join((self._reached("h", "r"), self._reached("w", "s")))
        used = " ".join(f"{x}<{axes[x]}" for x in order.split())
        return f"kernel(p0: {params[0]}, p1: {params[1]}) -> (r0: {result}) {{\n {used}: {body}\n}}".replace("g<1 ", "")

    def _back(self, at: str, tap: str) -> str:
        reach = f"({at}+{self.pad}-{tap}*{self.dilation})"
        return f"{reach}//{self.stride}" if self.stride > 1 else reach

    def _reached(self, at: str, tap: str) -> str:
        place = self._back(at, tap)
        inside = f"{place} >= 0 and {place} < {self.p}"
        even = f"({at}+{self.pad}-{tap}*{self.dilation}) % {self.stride} == 0 and "
        return (even if self.stride > 1 else "") + inside

    def want(self, what: str, x: Array, y: Array) -> Array:
        """The same with numpy, one tap of the window at a time."""
        n, g, c, k, h, p = self.n, self.groups, self.c, self.k, self.h, self.p
        span = h + 2 * self.pad
        data = np.zeros((n, g, c, span, span), x.dtype)
        inside = slice(self.pad, self.pad + h)
        if what != "data":
            data[..., inside, inside] = (y if what == "weights" else x).reshape(n, g, c, h, h)
        grad = np.zeros((n, g, k, p, p), x.dtype) if what == "forward" else x.reshape(n, g, k, p, p)
        weights = np.zeros((g, k, c, self.r, self.r), x.dtype)
        if what != "weights":
            weights[...] = y.reshape(weights.shape)
        for r in range(self.r):
            for s in range(self.r):
                rows, columns = (
                    slice(t * self.dilation, t * self.dilation + self.stride * (p - 1) + 1, self.stride) for t in (r, s)
                )
                if what == "forward":
                    grad += np.einsum("ngcpq,gkc->ngkpq", data[..., rows, columns], weights[..., r, s])
                elif what == "weights":
                    weights[..., r, s] = np.einsum("ngkpq,ngcpq->gkc", grad, data[..., rows, columns])
                else:
                    data[..., rows, columns] += np.einsum("ngkpq,gkc->ngcpq", grad, weights[..., r, s])
        return {"forward": grad, "weights": weights, "data": data[..., inside, inside]}[what]


SHAPES = (
    Shape(18, 20, 9),
    Shape(18, 20, 8, pad=1),
    Shape(16, 33, 11, pad=1, n=2),
    Shape(17, 19, 9, stride=2, pad=1),
    Shape(16, 16, 10, stride=3, dilation=2),
    Shape(20, 16, 11, dilation=2, pad=2),
    Shape(18, 17, 7, groups=2, pad=1),
    Shape(4, 4, 6, groups=5, pad=1),
    Shape(3, 20, 13, r=5, stride=2, pad=2),
    Shape(40, 24, 7, r=1, n=3),
    Shape(18, 20, 8, pad=1, dtype="f64"),
    Shape(17, 16, 9, stride=2, dtype="f64"),
    Shape(1, 1, 6, pad=1),
)
PRODUCTS = ("p0[i,k]*p1[k,j]", "p0[i,k]*p1[j,k]", "p0[k,i]*p1[k,j]", "p0[k,i]*p1[j,k]")
# What is compiled is compared, not timed.
QUICK = (*STRICT, "-O0")
WHAT = ("forward", "data", "weights")


def matmul(body: str, m: int, n: int, k: int) -> str:
    extents = {"i": m, "j": n, "k": k}
    a, b = (f"{extents[part[3]]},{extents[part[5]]}" for part in body.split("*"))
    return f"""kernel(p0: f32[{a}], p1: f32[{b}]) -> (r0: f32[{m},{n}]) {{
 i<{m} j<{n} k<{k}: r0[i,j] += {body}
}}"""


# A matricised tensor times a Khatri-Rao product, and two of its gradients: three factors.
THREE = {
    "ikl,kj,lj->ij": "p0[i,k,l]*p1[k,j]*p2[l,j]",
    "ij,kj,lj->ikl": "p0[i,j]*p1[k,j]*p2[l,j]",
    "ij,ikl,lj->kj": "p0[i,j]*p1[i,k,l]*p2[l,j]",
}


def three(equation: str) -> str:
    extents = {"i": 18, "j": 24, "k": 20, "l": 19}
    given, _, result = equation.partition("->")
    shapes = [",".join(str(extents[x]) for x in term) for term in (*given.split(","), result)]
    params = ", ".join(f"p{n}: f32[{shape}]" for n, shape in enumerate(shapes[:-1]))
    axes = " ".join(f"{x}<{extents[x]}" for x in (*result, *(x for x in "ijkl" if x not in result)))
    return f"kernel({params}) -> (r0: f32[{shapes[-1]}]) {{\n {axes}: r0[{','.join(result)}] += {THREE[equation]}\n}}"


@pytest.mark.skipif(not RUNS, reason="the processor has no AVX2")
def test_three_factors_compiled(tmp_path: Path) -> None:
    compiled = Compiled([parse_kernel(three(e)) for e in THREE], SMALL, tmp_path, flags=QUICK)
    for n, equation in enumerate(THREE):
        args = samples(compiled.kernels[n])
        assert close(compiled(n, args)[0], np.einsum(equation, *args)), equation


@pytest.mark.parametrize("equation", THREE)
def test_register_tiles_of_three_factors(equation: str) -> None:
    found = tiles(schedule(parse_kernel(three(equation)), SMALL.machine))
    assert found
    assert all("pb0" in reads(t.body) and "p2" not in reads(t.body) for t in found)


SOLVED = """kernel(p0: f32[32,16,3,3], p1: f32[1,32,14,14]) -> (r0: f32[1,16,29,29]) {
 i<16 j<29 k<29 m<32 n<2 u<2:
   r0[0,i,j,k] += p1[0,m,(j+1)//2+n-1,(k+1)//2+u-1]*p0[m,i,(j+1) % 2-n*2+1,(k+1) % 2-u*2+1]
   if (j+1) % 2-n*2 >= (-1) and (k+1) % 2-u*2 >= (-1)
   and n+(j+1)//2 >= 1 and n+(j+1)//2 <= 14 and u+(k+1)//2 >= 1 and u+(k+1)//2 <= 14
}"""
"""The gradient of a convolution with stride 2, as the solver leaves it."""


def test_a_stride_becomes_one_product_per_remainder() -> None:
    """The nine taps are each used for the quarter of the points that they reach, no more."""
    split = split_phases(parse_kernel(SOLVED), SMALL.machine)
    products = [n for n in split.nests if n.reduce is not None]
    assert sum(n.points for n in products) == 16 * 32 * (2 * 15 + 14) ** 2
    found = tiles(schedule(parse_kernel(SOLVED), SMALL.machine))
    assert {f"pb{n}" for n in range(4)} <= {x for t in found for x in reads(t.body)}


@pytest.mark.skipif(not RUNS, reason="the processor has no AVX2")
def test_the_gradient_of_a_stride_compiled(tmp_path: Path) -> None:
    compiled = Compiled([parse_kernel(SOLVED)], SMALL, tmp_path, flags=QUICK)
    weights, given = samples(compiled.kernels[0])
    want = Shape(16, 32, 29, stride=2).want("data", given, weights)
    assert close(compiled(0, (weights, given))[0], want.reshape(1, 16, 29, 29))


def test_both_gradients_in_one_kernel() -> None:
    """As the frontend asks for them: two results, guards in the form that the solver leaves."""
    kernel = parse_kernel("""kernel(p0: f32[1,16,10,10], p1: f32[24,16,3,3], p2: f32[1,24,8,8])
 -> (r0: f32[1,16,10,10], r1: f32[24,16,3,3]) {
 i<16 j<10 k<10 m<24 n<3 u<3: r0[0,i,j,k] += p2[0,m,j-n,k-u]*p1[m,i,n,u]
   if j-n >= 0 and n-j >= (-7) and k-u >= 0 and u-k >= (-7)
 i<24 j<16 k<3 m<3 n<8 u<8: r1[i,j,k,m] += p2[0,i,n,u]*p0[0,j,n+k,u+m]
}""")
    program = schedule(kernel, SMALL.machine)
    found = tiles(program)
    assert {"pa0", "pb0", "pa1", "pb1"} <= {x for t in found for x in reads(t.body)}
    assert all(not isinstance(s, If) for t in found for s in walk_stmts(t.body))
    assert any(b.name == "ph0" for b in program.buffers)


@pytest.mark.skipif(not RUNS, reason="the processor has no AVX2")
def test_convolutions_and_their_gradients_compiled(tmp_path: Path) -> None:
    cases = [(s, what) for s in SHAPES for what in WHAT]
    compiled = Compiled([parse_kernel(s.text(what)) for s, what in cases], SMALL, tmp_path, flags=QUICK)
    for n, (shape, what) in enumerate(cases):
        args = samples(compiled.kernels[n])
        (got,) = compiled(n, args)
        assert close(got, shape.want(what, *args).reshape(got.shape)), f"{shape} {what}"


@pytest.mark.skipif(not RUNS, reason="the processor has no AVX2")
def test_matrix_products_compiled(tmp_path: Path) -> None:
    sizes = ((33, 40, 70), (64, 64, 64), (20, 17, 130))
    texts = [matmul(b, *size) for size in sizes for b in PRODUCTS]
    compiled = Compiled([parse_kernel(t) for t in texts], SMALL, tmp_path, flags=QUICK)
    for n, text in enumerate(texts):
        a, b = samples(compiled.kernels[n])
        want = (a.T if "p0[k,i]" in text else a) @ (b.T if "p1[j,k]" in text else b)
        assert close(compiled(n, (a, b))[0], want), text


@pytest.mark.parametrize("machine", MACHINES, ids=lambda m: f"{m.vector_bytes}x{m.registers}")
@pytest.mark.parametrize("what", WHAT)
def test_interpreted(what: str, machine: Machine) -> None:
    shape = Shape(16, 18, 6, r=2, pad=1)
    kernel = parse_kernel(shape.text(what))
    args = samples(kernel)
    (got,) = run_loops(schedule(kernel, machine), args)
    assert close(got, shape.want(what, *args).reshape(got.shape))


def tiles(program: LoopProgram) -> list[For | Block]:
    """Innermost loops, or what is left of short ones, that add to several vectors."""
    loops = [s for s in walk_stmts(program.body) if isinstance(s, For | Block)]
    return [s for s in loops if sum(isinstance(x, Set) and x.local.lanes > 1 for x in s.body) >= 8]


@pytest.mark.parametrize("what", WHAT)
@pytest.mark.parametrize("shape", [s for s in SHAPES if s.c >= 16], ids=lambda s: repr(s)[6:-1])
def test_register_tiles_without_guards(shape: Shape, what: str) -> None:
    program = schedule(parse_kernel(shape.text(what)), SMALL.machine)
    found = tiles(program)
    assert found
    assert all(not isinstance(s, If) for t in found for s in walk_stmts(t.body))
    assert any(x.startswith("pb") for t in found for x in reads(t.body))


@pytest.mark.parametrize("body", PRODUCTS)
def test_register_tiles_of_matrix_products(body: str) -> None:
    assert tiles(schedule(parse_kernel(matmul(body, 128, 128, 128)), SMALL.machine))
