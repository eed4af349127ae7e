"""Matrix products and convolutions. With a bias they are compositions, so that the contraction stays pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dlc.graph.op import Op
from dlc.graph.tensor import Array
from dlc.kernel.define import Comp, ShapeError, axes, comp, grid, inside, same
from dlc.kernel.expr import Axis, Expr, apply, both
from dlc.kernel.nest import Param
from dlc.ops.elementwise import Add, Mul
from dlc.ops.pointwise import at, broadcast, scalar
from dlc.ops.shape import Reshape


class MatMul(Op):
    """y[…,m,n] = Σₖ a[…,m,k] · b[…,k,n]; leading dimensions broadcast, 1-D operands are vectors (numpy.matmul)."""

    a: Op
    b: Op

    def define(self, *params: Any) -> Comp:
        a, b = params
        if not a.shape or not b.shape:
            raise ShapeError("a matrix product needs at least one dimension on both sides")
        inner = same(a.shape[-1], b.shape[-2] if len(b.shape) > 1 else b.shape[0], "inner dimensions")
        batch = grid(broadcast(a.shape[:-2], b.shape[:-2]), "b")
        (k,) = axes("k", inner)
        rows = axes("m", a.shape[-2]) if len(a.shape) > 1 else ()
        columns = axes("n", b.shape[-1]) if len(b.shape) > 1 else ()
        left = at(a, (*batch, *rows, k)) if rows else a[k]
        right = at(b, (*batch, k, *columns)) if columns else b[k]
        return comp((*batch, *rows, *columns), left * right, sum=(k,))

    def evaluate(self, *args: Array) -> Any:
        return np.matmul(*args)


class Gemm(Op):
    """y = alpha · A · B + beta · c with A, B of rank 2, each transposed if asked; c broadcasts (ONNX Gemm 13)."""

    a: Op
    b: Op
    c: Op | None = None
    alpha: float = 1.0
    beta: float = 1.0
    trans_a: bool = False
    trans_b: bool = False

    def expand(self) -> Op | None:
        product: Op = self
        if self.c is None and self.alpha == 1.0:
            return None
        product = Gemm(self.a, self.b, trans_a=self.trans_a, trans_b=self.trans_b)
        if self.alpha != 1.0:
            product = Mul(product, scalar(self.alpha, product.dtype))
        if self.c is None:
            return product
        addend = self.c if self.beta == 1.0 else Mul(self.c, scalar(self.beta, self.c.dtype))
        total = Add(product, addend)
        if total.shape != product.shape:
            raise ShapeError(f"c of shape {list(self.c.shape)} does not broadcast to {list(product.shape)}")
        return total

    def define(self, *params: Any) -> Comp:
        a, b, _ = params
        if len(a.shape) != 2 or len(b.shape) != 2:
            raise ShapeError(f"operands must be matrices, not {a.type} and {b.type}")
        rows, inner = reversed(a.shape) if self.trans_a else a.shape
        other, columns = reversed(b.shape) if self.trans_b else b.shape
        m, n, k = axes("m n k", rows, columns, same(inner, other, "inner dimensions"))
        left = a[k, m] if self.trans_a else a[m, k]
        right = b[n, k] if self.trans_b else b[k, n]
        return comp((m, n), left * right, sum=(k,))

    def evaluate(self, *args: Array) -> Any:
        a, b = (x.T if t else x for x, t in zip(args, (self.trans_a, self.trans_b), strict=False))
        y = np.matmul(a, b)
        y = y if self.alpha == 1.0 else y * y.dtype.type(self.alpha)
        return y if self.c is None else y + args[2] * y.dtype.type(self.beta)


def window_size(extent: int, kernel: int, stride: int, begin: int, end: int, dilation: int, ceil: bool = False) -> int:
    """Number of positions of a sliding window along one dimension.

    Raises:
        ShapeError: the window is larger than the padded data, or a figure makes no sense.
    """
    if stride < 1 or dilation < 1 or kernel < 1 or begin < 0 or end < 0:
        figures = f"kernel {kernel}, stride {stride}, dilation {dilation}, pads {begin} and {end}"
        raise ShapeError(f"a window needs positive sizes and pads that are not negative: {figures}")
    room = extent + begin + end - ((kernel - 1) * dilation + 1)
    if room < 0:
        raise ShapeError(f"a window of {(kernel - 1) * dilation + 1} does not fit into {extent} + {begin} + {end}")
    count = (-(-room // stride) if ceil else room // stride) + 1
    # A window that starts in the padding behind the data sees nothing of it.
    return count - 1 if ceil and (count - 1) * stride >= extent + begin else count


def defaulted(values: tuple[int, ...], rank: int, default: int, what: str) -> tuple[int, ...]:
    """A per-dimension attribute, () meaning `default` everywhere."""
    if values and len(values) != rank:
        raise ShapeError(f"{what} has {len(values)} numbers, {rank} are needed")
    return values or (default,) * rank


def padded_only(places: Sequence[Expr], shape: Sequence[int], pads: Sequence[int]) -> Expr | None:
    """Guard for the dimensions that have padding; the others never leave the data."""
    rank = len(shape)
    return inside(*((p, e) for d, (p, e) in enumerate(zip(places, shape, strict=True)) if pads[d] or pads[rank + d]))


class Conv(Op):
    """y[n,f,o…] = Σ_{c,k…} x[n,c,o·stride+k·dilation-pad …] · w[f,c,k…] (+ b[f]), zero-padded, any spatial rank.

    Cross-correlation, as ONNX Conv 11. `pads` holds all begins, then all ends. With groups, w is [F, C/group, K…] and
    output channel f reads the input channels of its group only. () as stride, pads or dilation means 1, 0, 1.
    """

    x: Op
    w: Op
    b: Op | None = None
    stride: tuple[int, ...] = ()
    pads: tuple[int, ...] = ()
    dilation: tuple[int, ...] = ()
    group: int = 1

    def expand(self) -> Op | None:
        if self.b is None:
            return None
        bare = Conv(self.x, self.w, stride=self.stride, pads=self.pads, dilation=self.dilation, group=self.group)
        same(self.b.type.size, bare.shape[1], "bias and output channels")
        return Add(bare, Reshape(self.b, to=(bare.shape[1], *(1,) * self._rank)))

    @property
    def _rank(self) -> int:
        return len(self.x.shape) - 2

    def _figures(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """Stride, pads, dilation and output extents per spatial dimension."""
        x, w, rank = self.x.shape, self.w.shape, self._rank
        if rank < 0 or len(w) != rank + 2:
            raise ShapeError(f"data {self.x.type} and weights {self.w.type} must have one rank of at least 2")
        if self.group < 1 or w[0] % self.group or x[1] % self.group:
            raise ShapeError(f"{x[1]} input and {w[0]} output channels do not divide into {self.group} groups")
        same(x[1] // self.group, w[1], "channels per group")
        stride = defaulted(self.stride, rank, 1, "stride")
        pads = defaulted(self.pads, 2 * rank, 0, "pads")
        dilation = defaulted(self.dilation, rank, 1, "dilation")
        out = tuple(
            window_size(x[d + 2], w[d + 2], stride[d], pads[d], pads[rank + d], dilation[d]) for d in range(rank)
        )
        return stride, pads, dilation, out

    def define(self, *params: Any) -> Comp:
        x, w, _ = params
        stride, pads, dilation, out = self._figures()
        n, c = axes("n c", x.shape[0], w.shape[1])
        o, k = grid(out, "o"), grid(w.shape[2:], "k")
        place = tuple(o[d] * stride[d] + k[d] * dilation[d] - pads[d] for d in range(len(o)))
        guard = padded_only(place, x.shape[2:], pads)
        if self.group == 1:
            (f,) = axes("f", w.shape[0])
            return comp((n, f, *o), x[n, c, *place] * w[f, c, *k], sum=(c, *k), where=guard)
        g, f = axes("g f", self.group, w.shape[0] // self.group)
        body = x[n, g * c.extent + c, *place] * w[g * f.extent + f, c, *k]
        into = (x.shape[0], w.shape[0], *out)
        return comp((n, g * f.extent + f, *o), body, sum=(c, *k), where=guard, into=into, over=(n, g, f, *o))

    def evaluate(self, *args: Array) -> Any:
        x, w = args[0], args[1]
        stride, pads, dilation, out = self._figures()
        rank, group = self._rank, self.group
        windows = sliding(x, w.shape[2:], stride, pads, dilation, 0)  # n c o… k…
        n, per = x.shape[0], w.shape[1]
        split = windows.reshape(n, group, per, *windows.shape[2:])  # n g c o… k…
        order = (1, 2, *range(3 + rank, 3 + 2 * rank), 0, *range(3, 3 + rank))  # g c k… n o…
        columns = split.transpose(order).reshape(group, per * math.prod(w.shape[2:]), n * math.prod(out))
        y = np.matmul(w.reshape(group, w.shape[0] // group, -1), columns)
        y = np.moveaxis(y.reshape(w.shape[0], n, *out), 1, 0)
        return y if self.b is None else y + args[2].reshape(-1, *(1,) * rank)


def sliding(
    x: Array, kernel: Sequence[int], stride: Sequence[int], pads: Sequence[int], dilation: Sequence[int], fill: float
) -> Array:
    """The windows of x[N,C,D…] as a view [N,C,O…,K…] of a padded copy."""
    rank = len(kernel)
    width = [(0, 0), (0, 0), *((pads[d], pads[rank + d]) for d in range(rank))]
    full = np.pad(x, width, constant_values=fill) if any(pads) else x
    if not rank:
        return full
    span = tuple((k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True))
    view = np.lib.stride_tricks.sliding_window_view(full, span, axis=tuple(range(2, 2 + rank)))
    return view[(slice(None), slice(None), *(slice(None, None, s) for s in (*stride, *dilation)))]


class ConvTranspose(Op):
    """The adjoint of Conv: y[n,f,o] = Σ x[n,c,i] · w[c,f,k] (+ b[f]) over all i·stride + k·dilation - pad = o.

    As ONNX ConvTranspose 11: w is [C, F/group, K…]; output extent = (in-1)·stride + (K-1)·dilation + 1 - pads +
    output_pad. Stated as a gather, so that every output is written once.
    """

    x: Op
    w: Op
    b: Op | None = None
    stride: tuple[int, ...] = ()
    pads: tuple[int, ...] = ()
    dilation: tuple[int, ...] = ()
    output_pad: tuple[int, ...] = ()
    group: int = 1

    def expand(self) -> Op | None:
        if self.b is None:
            return None
        attrs = dict(self.attrs)
        bare = ConvTranspose(self.x, self.w, **attrs)
        same(self.b.type.size, bare.shape[1], "bias and output channels")
        return Add(bare, Reshape(self.b, to=(bare.shape[1], *(1,) * (len(self.x.shape) - 2))))

    def _figures(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        x, w, rank = self.x.shape, self.w.shape, len(self.x.shape) - 2
        if rank < 0 or len(w) != rank + 2:
            raise ShapeError(f"data {self.x.type} and weights {self.w.type} must have one rank of at least 2")
        same(x[1], w[0], "input channels")
        if self.group < 1 or x[1] % self.group:
            raise ShapeError(f"{x[1]} channels do not divide into {self.group} groups")
        stride = defaulted(self.stride, rank, 1, "stride")
        pads = defaulted(self.pads, 2 * rank, 0, "pads")
        dilation = defaulted(self.dilation, rank, 1, "dilation")
        extra = defaulted(self.output_pad, rank, 0, "output_pad")
        out = tuple(
            (x[d + 2] - 1) * stride[d] + (w[d + 2] - 1) * dilation[d] + 1 - pads[d] - pads[rank + d] + extra[d]
            for d in range(rank)
        )
        if any(s < 1 for s in (*stride, *dilation)) or any(o < 0 for o in out):
            raise ShapeError(f"output extents {out} with stride {stride} and dilation {dilation}")
        return stride, pads, dilation, out

    def define(self, *params: Any) -> Comp:
        x, w, _ = params
        stride, pads, dilation, out = self._figures()
        n, g, f, c = axes("n g f c", x.shape[0], self.group, w.shape[1], x.shape[1] // self.group)
        o, k = grid(out, "o"), grid(w.shape[2:], "k")
        guard: Expr | None = None
        place: list[Expr] = []
        for d in range(len(o)):
            reach = o[d] + pads[d] - k[d] * dilation[d]
            place.append(reach // stride[d])
            if stride[d] > 1:
                guard = both(guard, apply("eq", reach % stride[d], 0))
            guard = both(guard, inside((place[-1], x.shape[d + 2])))
        channel: Expr = g * c.extent + c
        body = x[n, channel, *place] * w[channel, f, *k]
        into = (x.shape[0], self.group * w.shape[1], *out)
        over: tuple[Axis, ...] = (n, g, f, *o)
        return comp((n, g * f.extent + f, *o), body, sum=(c, *k), where=guard, into=into, over=over)

    def evaluate(self, *args: Array) -> Any:
        x, w = args[0], args[1]
        stride, pads, dilation, out = self._figures()
        n, rank, group = x.shape[0], x.ndim - 2, self.group
        split = x.reshape(n, group, -1, math.prod(x.shape[2:]))
        taps = w.reshape(group, w.shape[0] // group, -1)
        parts = np.einsum("ngcp,gcq->ngqp", split, taps).reshape(n, group * w.shape[1], *w.shape[2:], *x.shape[2:])
        span = [
            (i - 1) * s + (k - 1) * d + 1 for i, s, k, d in zip(x.shape[2:], stride, w.shape[2:], dilation, strict=True)
        ]
        room = [max(o + pads[d] + pads[rank + d], span[d]) for d, o in enumerate(out)]
        full = np.zeros((n, group * w.shape[1], *room), x.dtype)
        for k in np.ndindex(*w.shape[2:]):
            where = tuple(
                slice(k[d] * dilation[d], k[d] * dilation[d] + (x.shape[d + 2] - 1) * stride[d] + 1, stride[d])
                for d in range(rank)
            )
            full[(slice(None), slice(None), *where)] += parts[(slice(None), slice(None), *k)]
        crop = tuple(slice(pads[d], pads[d] + out[d]) for d in range(rank))
        y = full[(slice(None), slice(None), *crop)]
        return y if self.b is None else y + args[2].reshape(-1, *(1,) * rank)


class Einsum(Op):
    """y = Σ Π of the operands by subscripts, as numpy.einsum: "bij,bjk->bik"; "..." broadcasts."""

    xs: tuple[Op, ...]
    equation: str = ""

    def define(self, *params: Any) -> Comp:
        xs: tuple[Param, ...] = params[0]
        inputs, _, output = self._explicit().partition("->")
        terms = inputs.split(",")
        if len(terms) != len(xs):
            raise ShapeError(f"{len(terms)} operands in {self.equation!r}, {len(xs)} given")
        extents: dict[str, int] = {}
        for term, x in zip(terms, xs, strict=True):
            same(len(term), len(x.shape), f"subscripts {term!r} and dimensions")
            for letter, extent in zip(term, x.shape, strict=True):
                known = extents.setdefault(letter, extent)
                if known == 1:
                    extents[letter] = extent
                elif extent != 1:
                    same(known, extent, f"dimensions {letter!r}")
        if len(set(output)) != len(output) or any(c not in extents for c in output):
            raise ShapeError(f"output subscripts of {self.equation!r}")
        found = {c: Axis(f"e{k}", e) for k, (c, e) in enumerate(extents.items())}
        body: Expr | None = None
        for term, x in zip(terms, xs, strict=True):
            load = at(x, tuple(found[c] for c in term))
            body = load if body is None else body * load
        if body is None:
            raise ShapeError("no operands")
        return comp([found[c] for c in output], body, sum=[a for c, a in found.items() if c not in output])

    def _explicit(self) -> str:
        """The equation with "..." spelled in letters of its own, and with an output."""
        inputs, arrow, output = self.equation.partition("->")
        terms = inputs.split(",")
        spare = [c for c in "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz" if c not in self.equation]
        width = 0
        for term, x in zip(terms, self.xs, strict=False):
            if "..." in term:
                width = max(width, len(x.shape) - len(term.replace("...", "")))
        if width > len(spare):
            raise ShapeError(f"too many subscripts in {self.equation!r}")
        batch = "".join(spare[:width])
        for k, (term, x) in enumerate(zip(terms, self.xs, strict=False)):
            own = max(len(x.shape) - len(term.replace("...", "")), 0)
            terms[k] = term.replace("...", batch[width - own :])
        if not arrow:
            letters = "".join(inputs.replace(".", "").replace(",", ""))
            output = "..." + "".join(sorted(c for c in set(letters) if letters.count(c) == 1))
        return f"{','.join(terms)}->{output.replace('...', batch)}"

    def evaluate(self, *args: Array) -> Any:
        return np.einsum(self.equation, *args)
