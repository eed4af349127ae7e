"""layout: values are stored with the vectorised axis innermost, constant factors of contractions in panels.

    t[n,f,h,w] += x[n,c,…] * w[f,c,kh,kw]   →   t'[n,h,w,f] += x'[n,…,c] * w'[f//16,kh,kw,c,f%16]
    the same of bytes                       →   t'[n,h,w,f] += x'[n,…,c] * w'[f//16,kh,kw,c//4,f%16,c%4]
    of bf16, with pairs=yes                 →   t'[n,h,w,f] += x'[n,…,c] * w'[f//16,kh,kw,c//2,f%16,c%2]

Only subscripts change: a value's dimensions are permuted in the kernel that writes it and in all kernels that read it.
The panels of a constant factor are a constant expression, which is evaluated when the weights are written. For a target
without vector instructions panels are as wide as tiles of scalars are, and nothing is padded (`pad=no`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

from dlc.api.passes import Level, Pass
from dlc.base.report import Report
from dlc.base.types import DType, bf16
from dlc.graph.evaluate import is_constant
from dlc.graph.graph import Graph, with_live_origins
from dlc.graph.op import Op
from dlc.graph.structure import Call, Constant, Input, Splat
from dlc.kernel.expr import Axis, Expr, Load, axes_in, loads
from dlc.kernel.kernel import Kernel
from dlc.kernel.loops.program import WORD
from dlc.kernel.nest import Nest, Param
from dlc.kernel.permute import Permutation, permute
from dlc.kernel.roles import BYTES, product, roles, spatial_axes
from dlc.kernel.schedules.machine import PANEL
from dlc.kernel.simplify import simplify_nest
from dlc.passes.packed_constants import PackedConstants
from dlc.passes.panels import changing_plan, in_words, packed, packed_index, packing, words_index
from dlc.passes.tied_panels import Panels, read_panels
from dlc.spec import option


@dataclass(frozen=True)
class Layout(Pass[Graph, Graph]):
    """Choose the order in which values and weights are stored: t[n,f,h,w], w[f,c]  →  t[n,h,w,f], w[f//16,c,f%16]."""

    name: ClassVar[str] = "layout"
    is_structural: ClassVar[bool] = True
    level_in: ClassVar[Level] = "kernels"
    level_out: ClassVar[Level] = "kernels"
    panel: int = option(PANEL, "columns in a panel of a factor, a multiple of the vector length; 1: no panels", low=1)
    byte_panel: int = option(0, "the same of a factor of bytes; 0: as many as of others", low=0)
    pad: bool = option(True, "fill the last panel; otherwise only columns that panels divide are stored in panels")
    rows: int = option(1, "rows of a product from which on its constant factor is packed", low=1)
    values: bool = option(True, "permute intermediate values")
    pairs: bool = option(
        False, "two terms of factors of bf16 next to each other, for machines that multiply both at once"
    )
    weights: bool = option(True, "pack constant factors of contractions into panels")

    def run(self, state: Graph, report: Report) -> Graph:
        """The same computation on permuted and packed storage."""
        return _Rewriter(self, state, report).graph()


@dataclass
class _Rewriter:
    """One walk over the graph: decides the order of each call's result, then rewrites its kernel."""

    options: Layout
    source: Graph
    report: Report
    new: dict[str, Op] = field(default_factory=dict[str, Op])
    order: dict[str, Permutation] = field(default_factory=dict[str, Permutation])
    constant: dict[str, bool] = field(default_factory=dict[str, bool])
    panels: dict[str, Panels] = field(default_factory=dict[str, Panels])
    """Of weights, by digest of the weight."""
    wanted: dict[str, Permutation] = field(default_factory=dict[str, Permutation])
    """By digest of a value: the order in which a sum of products of bytes reads it fastest."""
    packed: PackedConstants = field(init=False)

    def __post_init__(self) -> None:
        self.packed = PackedConstants(self.source)

    def graph(self) -> Graph:
        origins = dict(self.source.origins)
        for op in self.source.ops:
            if isinstance(op, Call) and self.options.values:
                self._want(op)
        # Only calls can read what is stored in another order.
        fixed = {o.digest for o in self.source.outputs}
        fixed |= {x.digest for op in self.source.ops if not isinstance(op, Call) for x in op.operands}
        for op in self.source.ops:
            if isinstance(op, Call) and not is_constant(op, self.constant):
                # A result among several is read through an item, which tells nothing of orders.
                self.new[op.digest] = self._call(op, op.digest in fixed or len(op.types) > 1)
            else:
                self.new[op.digest] = op.with_operands([self._plain(x) for x in op.operands])
            self._tell(self.new[op.digest], self.source.origin(op), origins)
        outputs = tuple(self.new[o.digest] for o in self.source.outputs)
        graph = with_live_origins(replace(self.source, outputs=outputs, origins=origins))
        return read_panels(graph, self.panels)

    def _tell(self, op: Op, names: tuple[str, ...], origins: dict[str, tuple[str, ...]]) -> None:
        """Everything that was made for an op comes from what the op came from: panels of weights too."""
        waiting = [op] if names else []
        while waiting:
            made = waiting.pop()
            if made.digest not in origins and not isinstance(made, (Input, Constant, Splat)):
                origins[made.digest] = names
                waiting += made.operands

    def _plain(self, op: Op) -> Op:
        assert op.digest not in self.order, "only calls read values that a call stores in an order of its own"
        return self.new[op.digest]

    def _call(self, op: Call, fixed: bool) -> Call:
        kernel = op.body
        pairs = zip(kernel.params, op.args, strict=True)
        orders = {p.name: self.order[x.digest] for p, x in pairs if x.digest in self.order}
        if self.options.values:
            self._choose(kernel, op, orders, fixed)
        if not fixed and (chosen := orders.get(kernel.results[0].name)) is not None:
            self.order[op.digest] = chosen
            self.report.count("layout changed", int(_moves(chosen)))
        orders = {name: order for name, order in orders.items() if _moves(order)}
        kernel = permute(kernel, orders) if orders else kernel
        args = tuple(self.new[x.digest] for x in op.args)
        return self._pack(kernel, args) if self.options.weights else Call(kernel, args)

    # ---- storage order of values ----
    def _want(self, op: Call) -> None:
        """Note that terms which an instruction multiplies at once are to lie next to each other in both factors."""
        arguments = dict(zip((p.name for p in op.body.params), op.args, strict=True))
        for nest in op.body.nests:
            found = product(nest, op.body.dtypes)
            for a, b in (found, found[::-1]) if found is not None else ():
                if a.param not in arguments or b.param not in arguments or not self._word(op.body.dtypes[a.param]):
                    continue
                r = roles(nest, a, b)
                summed = [d for d, i in enumerate(a.index) if i in r.reduction and i not in r.window]
                if self._is_weight(arguments[b.param]) and r.columns and len(summed) == 1:
                    self.wanted.setdefault(arguments[a.param].digest, _move_last(len(a.index), summed[0]))

    def _choose(self, kernel: Kernel, op: Call, orders: dict[str, Permutation], fixed: bool) -> None:
        """Decide the order of every local and of the result, nest by nest; `fixed` results keep theirs."""
        kept = {r.name for r in kernel.results} if fixed else set[str]()
        for nest in kernel.nests:
            rank = len(kernel.tensors[nest.out].shape)
            if nest.out in orders or rank < 3 or nest.out in kept:
                continue
            chosen = self._order(kernel, nest, op, orders, fixed)
            if chosen is None and nest.reduce is None and nest.out == kernel.results[0].name:
                chosen = self.wanted.get(op.digest)
            # The order that is there already is noted where it follows from another: what reads it follows it as well.
            if chosen is not None and (_moves(chosen) or chosen == _followed(nest, orders)):
                orders[nest.out] = chosen

    def _order(
        self, kernel: Kernel, nest: Nest, op: Call, orders: Mapping[str, Permutation], fixed: bool
    ) -> Permutation | None:
        """The order of what a nest writes: its vectorised dimension last, or that of what it reads."""
        windows = nest.reduce is not None and product(nest, kernel.dtypes) is None
        # A window may slide over the innermost dimension as well: a vector reads neighbours wherever it begins.
        if windows and (found := _followed(nest, orders)) is not None:
            return found
        if windows and fixed:  # it would lie across both what it is of and what becomes of it
            return None
        last = self._vector_dims(kernel, nest, op)
        return _move_last(len(nest.index), last) if last is not None else _followed(nest, orders)

    def _vector_dims(self, kernel: Kernel, nest: Nest, op: Call) -> int | None:
        """The output dimension to store innermost: columns of a constant factor, or what windows do not slide over."""
        if nest.reduce is None:
            return None
        spatial = spatial_axes(nest)
        factors = product(nest, kernel.dtypes)
        if factors is not None:
            arguments = dict(zip((p.name for p in kernel.params), op.args, strict=True))
            for a, b in (factors, factors[::-1]):
                if b.param in arguments and self._is_weight(arguments[b.param]):
                    columns = set(roles(nest, a, b).columns)
                    found = [d for d, i in enumerate(nest.index) if set(axes_in(i)) & columns]
                    if found:
                        return found[-1]
        if not spatial:
            return None
        still = [d for d, i in enumerate(nest.index) if axes_in(i) and not set(axes_in(i)) & spatial]
        return still[-1] if still else None

    def _word(self, dtype: DType) -> int:
        """Terms of a sum of products of a type that an instruction multiplies at once; 0: one by one."""
        return WORD // dtype.itemsize if dtype in BYTES or (self.options.pairs and dtype is bf16) else 0

    def _is_weight(self, value: Op) -> bool:
        """Whether a factor is what a model learned or learns, not what a call is about."""
        return (isinstance(value, Input) and value.role == "weight") or is_constant(value, self.constant)

    # ---- panels of factors ----
    def _pack(self, kernel: Kernel, args: tuple[Op, ...]) -> Call:
        for k, nest in enumerate(kernel.nests):
            factors = product(nest, kernel.dtypes)
            if factors is None:
                continue
            arguments = dict(zip((p.name for p in kernel.params), args, strict=True))
            for a, b in (factors, factors[::-1]):
                if b.param not in arguments:
                    continue
                if not is_constant(arguments[b.param], self.constant):
                    done = self._pack_changing(kernel, k, a, b, arguments[b.param])
                elif a.param in arguments and is_constant(arguments[a.param], self.constant):
                    continue
                elif self.packed.expands(arguments[b.param]) and not spatial_axes(nest):
                    continue  # panels of it would be stored at its size
                else:
                    done = self._pack_factor(kernel, k, nest, a, b, arguments[b.param])
                if done is not None:
                    changed, position, value = done
                    return Call(changed, tuple(value if j == position else x for j, x in enumerate(args)))
        return Call(kernel, args)

    def _pack_changing(self, kernel: Kernel, k: int, a: Load, b: Load, value: Op) -> tuple[Kernel, int, Op] | None:
        """As `_pack_factor`, of a factor that is no constant: a call stores it in panels first."""
        wide = self.options.panel > 1 and self.options.pad
        order = changing_plan(kernel.nests[k], a, b, value.type, self.options.panel) if wide else None
        if order is None or not _read_once(kernel, b):
            return None
        self.report.count("computed factors packed")
        index = packed_index(b, order, self.options.panel)
        return self._on_panels(kernel, k, b, index, packing(value, order, self.options.panel))

    def _pack_factor(
        self, kernel: Kernel, k: int, nest: Nest, a: Load, b: Load, weights: Op
    ) -> tuple[Kernel, int, Op] | None:
        """The kernel on panels of factor `b`, the position of that parameter and its new value."""
        r = roles(nest, a, b)
        if not _read_once(kernel, b):
            return None
        columns = r.columns or tuple(x for x in r.batch)
        wide = (weights.dtype in BYTES and self.options.byte_panel) or self.options.panel
        plan = _panel_plan(columns, r.window, b, wide, bool(r.columns), self.options.pad)
        if plan is None:
            return None
        perm, panel = plan
        size = self._word(weights.dtype)
        if panel and size:  # the last dimension is the one whose terms are multiplied together
            perm = (perm[0], *sorted(perm[1:], key=lambda d: weights.shape[d] > 1))
        if not r.columns and spatial_axes(nest) == frozenset():
            return None
        streams = not size and not set(axes_in(b.index[-1])) & set(r.columns)
        if self.options.rows > 1 and not r.rows and not r.batch and streams:
            # One row only: the matrix is read once from memory, and the rows of w[n,k] stream as they lie.
            return None
        value = packed(weights, perm, panel)
        index = packed_index(b, perm, panel)
        if panel and size and index[-2] in r.reduction and value.shape[-2] % size == 0:
            # Terms that an instruction multiplies at once lie in one word.
            value, index = in_words(value, size), words_index(index, size)

        if panel and isinstance(weights, Constant):
            self.panels.setdefault(weights.digest, Panels(value, perm, panel))
        self.report.count("weights packed")
        return self._on_panels(kernel, k, b, index, value)

    def _on_panels(self, kernel: Kernel, k: int, b: Load, index: tuple[Expr, ...], value: Op) -> tuple[Kernel, int, Op]:
        """The kernel reading `value` at `index` where nest `k` read factor `b`."""

        def change(load: Load) -> Expr:
            return Load(load.param, index) if load is b or load == b else load

        nests = list(kernel.nests)
        nests[k] = simplify_nest(nests[k].map_loads(change))
        params = tuple(Param(p.name, value.type) if p.name == b.param else p for p in kernel.params)
        position = [p.name for p in kernel.params].index(b.param)
        return Kernel.canonical(params, kernel.results, tuple(nests), kernel.locals), position, value


def _read_once(kernel: Kernel, b: Load) -> bool:
    """Whether no other load reads a factor's tensor."""
    return sum(x.param == b.param for n in kernel.nests for e in n.exprs() for x in loads(e)) == 1


def _panel_plan(
    columns: tuple[Axis, ...], window: tuple[Axis, ...], b: Load, panel: int, contraction: bool, pad: bool
) -> tuple[Permutation, int] | None:
    """(order of the factor's dimensions: column dimension first, then window, then the rest; panel width or 0)."""
    dims = [set(axes_in(i)) for i in b.index]
    column = [d for d, s in enumerate(dims) if s & set(columns)]
    if len(column) != 1 or any(
        not isinstance(i, Axis) and d not in column and axes_in(i) for d, i in enumerate(b.index)
    ):
        return None
    slide = [d for d, s in enumerate(dims) if s & set(window)]
    if column[0] in slide:  # groups and their channels walk one dimension, and the channels slide: x[g*c + k]
        return None
    rest = [d for d in range(len(dims)) if d not in column and d not in slide]
    if not contraction:
        return (*slide, *rest, *column), 0
    whole = isinstance(b.index[column[0]], Axis)
    extents = [a.extent for a in axes_in(b.index[column[0]]) if a in columns]
    if (whole and pad) or all(e % panel == 0 for e in extents):
        return (*column, *slide, *rest), panel
    return (*slide, *rest, *column), 0


def _moves(order: Permutation) -> bool:
    """Whether dimensions are stored in another order than they are written in."""
    return order != tuple(range(len(order)))


def _move_last(rank: int, dim: int) -> Permutation:
    return (*(d for d in range(rank) if d != dim), dim)


def _followed(nest: Nest, orders: Mapping[str, Permutation]) -> Permutation | None:
    """The order of something that the nest walks as it walks its output."""
    for load in loads(nest.body):
        if load.param in orders and (found := _carried(nest, load, orders[load.param])) is not None:
            return found
    return None


def _carried(nest: Nest, load: Load, order: Permutation) -> Permutation | None:
    """The order of the output that leaves the elements of a load in memory as they are; None where there is none.

    Dimensions may become one, or several, or change places, or have windows that slide over them:
    y[n,c,h·W + w] = x[n,c,h,w].
    """
    stored = [set(axes_in(load.index[d])) for d in order]
    lying: list[int] = []  # the first of the stored dimensions that each dimension of the output walks
    for i in nest.index:
        here = [k for k, axes in enumerate(stored) if axes & set(axes_in(i))]
        if here and here != list(range(here[0], here[0] + len(here))):
            return None
        lying.append(here[0] if here else -1)
    return tuple(sorted(range(len(lying)), key=lambda d: (lying[d], d))) if max(lying) >= 0 else None
