"""winograd: convolutions with a window of 3x3, 5x5 or 7x7 and stride 1 are computed by fewer products, in tiles.

    y[i,j,f] += x[i+u,j+v,c]·w[u,v,c,f]    →    y = Aᵀ·(Σ_c (Bᵀ·x·B) ⊙ (G·w·Gᵀ))·A      for tiles of 2x2 or 4x4 outputs

A tile of F(4x4,3x3) takes 36 products for each pair of channels instead of 144, one of F(2x2,3x3) 16 instead of 36, one
of F(4x4,5x5) 64 instead of 400; for 7x7 there is F(2x2,7x7), 64 instead of 196. The weights are transformed in double
precision when they are written, where those of 3x3 take 4 or 1.8 times the memory, others 1.3 to 2.6 times; those that
change between calls by a call of their own. The roles of axes decide, so the gradient of such a convolution for its
data is one as well. An estimate of cycles for the numbers of the machine chooses between the sizes of tiles and the
convolution as it is; `--explain winograd` lists it for each convolution, with a bound of the error of an output: so
many times 2^-24 times r² · Σ_c max|x_c| · max|w_c|, the largest sum that there can be for r taps. Errors that occur are
thousands of times smaller. Infinities and NaNs spread to the other outputs of their tile.

Nothing is changed for machines without vectors, with `c{math=strict}` or `ordered`, or with `--set winograd.tile=off`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from dlc.api.passes import Level, Pass
from dlc.base.report import Report
from dlc.base.types import f32, f64
from dlc.graph.evaluate import is_constant
from dlc.graph.graph import Graph
from dlc.graph.op import Op
from dlc.graph.structure import Call, Constant
from dlc.graph.tensor import Tensor
from dlc.kernel.cook_toom import CookToom, squared
from dlc.kernel.kernel import Kernel
from dlc.kernel.schedules.schedule import check_transformed
from dlc.kernel.schedules.unfit import Unfit
from dlc.kernel.schedules.winograd_estimate import Sizes, algorithms, direct_cycles, winograd_cycles
from dlc.kernel.schedules.winograd_nests import (
    Window,
    is_near,
    transformed,
    weights_kernel,
    weights_type,
    window_of,
)
from dlc.ops.elementwise import Cast
from dlc.ops.linear import MatMul
from dlc.ops.shape import Reshape, Transpose
from dlc.passes.estimated import cycle_count, machine_of
from dlc.spec import Bytes, option

GAIN = 1.1
"""How many times faster the estimate must be."""
ROOM = 1.3
"""What a convolution with its tiles may take, beside the largest step of the program."""
CHANGING = 0.5
"""The same of transformed weights that are not constant: they lie beside all the values that wait for a gradient."""


@dataclass(frozen=True)
class Winograd(Pass[Graph, Graph]):
    """Convolutions with small windows by fewer products: y = x * w  →  y = A'((B'xB) . (GwG'))A."""

    name: ClassVar[str] = "winograd"
    is_structural: ClassVar[bool] = True
    level_in: ClassVar[Level] = "kernels"
    level_out: ClassVar[Level] = "kernels"
    idempotent: ClassVar[bool] = True
    tile: Literal["auto", "2", "4", "off"] = option("auto", "outputs of a tile in each dimension")
    vector_bytes: int = option(0, "bytes of the machine's vectors; 0: nothing is changed", low=0)
    registers: int = option(16, "number of its vector registers", low=1)
    l1: Bytes = option(32 << 10, "its first-level cache", low=0)
    l2: Bytes = option(512 << 10, "its second-level cache", low=0)
    l2_rate: float = option(32.0, "bytes that it reads from there in a cycle", low=0.01)
    memory_rate: float = option(6.0, "bytes that it reads from beyond in a cycle", low=0.01)

    def run(self, state: Graph, report: Report) -> Graph:
        """The same outputs, up to rounding; what was chosen for each convolution is reported."""
        report.missed_as = "convolution"
        if self.tile == "off" or self.vector_bytes < 16:
            return state
        return state.rewrite(_Rewriting(self, state, report))


@dataclass(frozen=True)
class _Choice:
    """What is to become of a convolution.

    Attributes:
        window: The convolution.
        algorithm: The algorithm; None: it stays as it is.
        text: Why.
    """

    window: Window
    algorithm: CookToom | None
    text: str


@dataclass
class _Rewriting:
    """One traversal: the rule that `Graph.rewrite` calls once per op, in the graph's order."""

    options: Winograd
    graph: Graph
    report: Report
    constant: dict[str, bool] = field(default_factory=dict[str, bool])
    done: dict[tuple[str, frozenset[str]], tuple[Kernel, dict[int, _Choice], list[str]]] = field(
        default_factory=dict[tuple[str, frozenset[str]], tuple[Kernel, dict[int, _Choice], list[str]]]
    )
    order: Iterator[Op] = field(init=False)
    largest: int = field(init=False)

    def __post_init__(self) -> None:
        self.order = iter(self.graph.ops)
        self.largest = max((self._bytes(op) for op in self.graph.ops if isinstance(op, Call)), default=0)

    def _bytes(self, op: Call) -> int:
        """What a step reads and writes besides constants."""
        read = (a.type.nbytes for a in op.args if not is_constant(a, self.constant))
        return sum(read) + sum(t.nbytes for t in op.types)

    def __call__(self, op: Op) -> Op | None:
        original = next(self.order)
        if not isinstance(op, Call) or is_constant(op, self.constant):
            return None
        pairs = zip(op.body.params, op.args, strict=True)
        weights = frozenset(p.name for p, a in pairs if is_constant(a, self.constant))
        key = (op.body.digest, weights)
        if key not in self.done:
            self.done[key] = self._choose(op.body, weights)
        kernel, choices, texts = self.done[key]
        subject = " ".join(self.graph.origin(original)) or repr(op)
        for text in texts:
            self.report.missed(subject, text)
        if not choices:
            return None
        args = {p.name: a for p, a in zip(op.body.params, op.args, strict=True)}
        for choice in choices.values():
            assert choice.algorithm is not None
            self.report.count(_title(choice.algorithm))
            name = choice.window.weights.param
            if is_constant(args[name], self.constant):
                args[name] = transformed_weights(args[name], choice.window, choice.algorithm, op.body)
            else:
                args[name] = Call(weights_kernel(choice.window, choice.algorithm, op.body), (args[name],))
        return Call(kernel, tuple(args.values()))

    def _choose(self, kernel: Kernel, weights: frozenset[str]) -> tuple[Kernel, dict[int, _Choice], list[str]]:
        """A kernel, what is changed in it, and what there is to say of its convolutions."""
        choices: dict[int, _Choice] = {}
        texts: list[str] = []
        for k, nest in enumerate(kernel.nests):
            if not is_near(nest, kernel):
                continue
            try:
                choice = self._best(window_of(nest, kernel), kernel, weights)
                if choice.algorithm is not None:
                    check_transformed(_with(kernel, {k: choice}), machine_of(self.options))
                    choices[k] = choice
                texts.append(choice.text)
            except Unfit as problem:
                texts.append(f"direct, because {problem}")
        return _with(kernel, choices) if choices else kernel, choices, texts

    def _best(self, w: Window, kernel: Kernel, weights: frozenset[str]) -> _Choice:
        """The fastest algorithm by the estimate.

        Raises:
            Unfit: there is no choice.
        """
        name = w.weights.param
        if name not in {p.name for p in kernel.params}:
            raise Unfit("its weights are computed in the same kernel")
        if sum(len(n.loads.get(name, ())) for n in kernel.nests) != 1:
            raise Unfit("its weights are read elsewhere as well")
        rows, columns = (s.out.extent for s in w.slides)
        images = math.prod(a.extent for a in w.batch)
        sizes = Sizes(images, rows, columns, w.channel.extent, w.column.extent, w.taps)
        if not sizes.tiles(1) * sizes.channels * sizes.columns:
            raise Unfit("it is empty")
        machine = machine_of(self.options)
        direct = direct_cycles(sizes, machine)
        constant = name in weights
        found = {f: winograd_cycles(sizes, f, machine, constant) for f in algorithms(w.taps)}
        allowed = [f for f in found if self.options.tile in ("auto", str(f.outputs))]
        if not allowed:
            raise Unfit(f"there are no tiles of {self.options.tile} outputs for windows of {w.taps} elements")
        allowed = [f for f in allowed if f.outputs < min(rows, columns)]
        if not allowed:
            raise Unfit(f"its output of {rows}x{columns} is not larger than a tile")
        room = int(CHANGING * self.largest)
        if not constant and self.options.tile == "auto":
            allowed = [f for f in allowed if sizes.weights_bytes(f) <= room]
        if not allowed:
            raise Unfit(f"its weights change, and it would take more than the {room} bytes that there are for them")
        room = int(ROOM * self.largest)
        if self.options.tile == "auto":
            allowed = [f for f in allowed if sizes.step_bytes(f, machine, constant) <= room]
        if not allowed:
            raise Unfit(f"with its tiles it would take more than the {room} bytes that the program has for a step")
        best = min(allowed, key=found.__getitem__)
        chosen = best if self.options.tile != "auto" or found[best] * GAIN < direct else None
        shape = f"{images}x{rows}x{columns} outputs, {w.channel.extent} to {w.column.extent} channels"
        estimates = (f"direct {cycle_count(direct)}", *(f"{_title(f)} {cycle_count(c)}" for f, c in found.items()))
        bound = "" if chosen is None else f", error bound {error_bound(chosen, w.channel.extent):.0f}"
        title = "direct" if chosen is None else _title(chosen)
        return _Choice(w, chosen, f"{title} for {shape}: cycles {', '.join(estimates)}{bound}")


def _with(kernel: Kernel, choices: dict[int, _Choice]) -> Kernel:
    return transformed(kernel, {k: (c.window, c.algorithm) for k, c in choices.items() if c.algorithm is not None})


def _title(f: CookToom) -> str:
    return f"F({f.outputs}x{f.outputs},{f.taps}x{f.taps})"


def error_bound(f: CookToom, channels: int) -> float:
    """A bound of the rounding error of an output, in units of 2^-24 · taps² · Σ_c max|x_c|·max|w_c|.

    Every value on the way is a sum of at most `size` terms in each of four passes, of `channels` in between, and one
    product and one rounded weight; what a rounding can be carried to is the algorithm's growth in both dimensions.
    """
    return f.growth**2 * (channels + 4 * f.size + 2)


def transformed_weights(value: Op, w: Window, f: CookToom, kernel: Kernel) -> Op:
    """G·w·Gᵀ of constant weights as a constant expression, computed in double precision."""
    dims = tuple(w.weights.index.index(s.window) for s in w.slides)
    rest = tuple(d for d in range(len(value.shape)) if d not in dims)
    matrix = np.array([[float(x) for x in row] for row in squared(f.filter)]).reshape(-1, f.taps, f.taps)
    for axis, slide in enumerate(w.slides, 1):
        matrix = matrix if slide.forwards else np.flip(matrix, axis)
    factor = Constant(Tensor.of(np.ascontiguousarray(matrix.reshape(-1, f.taps**2)), f64))
    moved = Reshape(Transpose(value, (*dims, *rest)), to=(f.taps**2, math.prod(value.shape[d] for d in rest)))
    return Reshape(Cast(MatMul(factor, Cast(moved, f64)), f32), to=weights_type(w, f, kernel).shape)
