"""Matrix products and sums of products by subscripts."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from dlc.graph.op import Op
from dlc.graph.tensor import Array
from dlc.kernel.define import Comp, ShapeError, axes, comp, grid, same
from dlc.kernel.expr import Axis, Expr
from dlc.kernel.nest import MAX_POINTS, Param
from dlc.ops.elementwise import Add, Mul
from dlc.ops.pointwise import at, broadcast, scalar

MAX_FACTORS: Final = 32
"""Operands of one sum of products: as many as numpy multiplies at once."""


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


class Einsum(Op):
    """y = Σ Π of the operands by subscripts, as numpy.einsum: "bij,bjk->bik"; "..." broadcasts."""

    xs: tuple[Op, ...]
    equation: str = ""

    def define(self, *params: Any) -> Comp:
        xs: tuple[Param, ...] = params[0]
        inputs, _, output = self.explicit().partition("->")
        terms = inputs.split(",")
        if len(terms) != len(xs):
            raise ShapeError(f"{len(terms)} operands in the equation, {len(xs)} given")
        if len(terms) > MAX_FACTORS:
            raise ShapeError(f"a product of {len(terms)} operands; at most {MAX_FACTORS} are multiplied at once")
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
        if (points := math.prod(extents.values())) > MAX_POINTS:
            raise ShapeError(f"a sum of products over {points:,} points; the limit is {MAX_POINTS:,}")
        body: Expr | None = None
        for term, x in zip(terms, xs, strict=True):
            load = at(x, tuple(found[c] for c in term))
            body = load if body is None else body * load
        if body is None:
            raise ShapeError("no operands")
        return comp([found[c] for c in output], body, sum=[a for c, a in found.items() if c not in output])

    def explicit(self) -> str:
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
