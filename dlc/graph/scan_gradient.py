"""The gradient of a scan: a scan over the same rows backward.

    c', y[t] = body(t, c[t], x[t], v)   →   dc[t], dv, dx[t] = vjp of body at c[t], x[t], v by dc[t+1], dy[t]

The values before each iteration are stored by the scan itself (`Scan.stored`). What is captured is read by every
iteration, so its cotangent is a carried sum. See Griewank and Walther, Evaluating Derivatives (2008), chapter 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from dlc.base.types import Type
from dlc.graph.bodies import COUNTER, added, body_of, item
from dlc.graph.gradient import sweep
from dlc.graph.graph import Graph
from dlc.graph.op import Op
from dlc.graph.structure import Call, Input, Splat
from dlc.kernel.define import comp, grid, kernel_of
from dlc.kernel.expr import Const
from dlc.kernel.kernel import Kernel
from dlc.kernel.nest import Param

if TYPE_CHECKING:
    from collections.abc import Iterator


def scan_vjp(op: Any, seeds: Sequence[Op | None]) -> Sequence[Op | None]:
    """The cotangents of a scan's operands; None for those that are no floats."""
    scan: Any = op if op.stored else op.for_gradient()
    count, rows = len(scan.carried), len(scan.body.outputs) - len(scan.carried)
    stored = [item(scan, count + rows + k) for k in range(count)]
    seeds = (*seeds, *[None] * (len(scan.types) - len(seeds)))
    backward = _Backward(scan, seeds[:count], seeds[count : count + rows], seeds[count + rows :])
    carried = [Splat(0.0, c.type) if s is None else s for c, s in backward.seeded]
    sums = [Splat(0.0, v.type) for v in scan.captured if v.dtype.is_float]
    scanned = [flipped(x) for x in (*stored, *scan.scanned, *backward.row_seeds)]
    if not backward.outputs:
        return [None] * len(op.operands)
    found = type(scan)((*carried, *sums), tuple(scanned), scan.captured, backward.body, scan.steps)
    results = (item(found, k) for k in range(len(found.types)))
    own = _taken(scan.carried, results)
    shared = _taken(scan.captured, results)
    return [*own, *(None if x is None else flipped(x) for x in _taken(scan.scanned, results)), *shared]


def _taken(operands: Sequence[Op], results: Iterator[Op]) -> list[Op | None]:
    return [next(results) if x.dtype.is_float else None for x in operands]


class _Backward:
    """One iteration backward.

    j, dc…, dv…, c…, x…, dy…, dstored…, captured…   →   dc…, dv…, dx…
    """

    def __init__(
        self, scan: Any, carried: Sequence[Op | None], rows: Sequence[Op | None], stored: Sequence[Op | None]
    ) -> None:
        body: Graph = scan.body
        count = len(scan.carried)
        self.seeded = [(c, s) for c, s in zip(scan.carried, carried, strict=True) if c.dtype.is_float]
        self.row_seeds = [s for s in (*rows, *stored) if s is not None]
        j = Input("i", COUNTER)
        dc = [Input(f"dc{k}", c.type) for k, c in enumerate(scan.carried)]
        dv = [Input(f"dv{k}", v.type) for k, v in enumerate(scan.captured)]
        c = [Input(f"c{k}", c.type) for k, c in enumerate(scan.carried)]
        x = [Input(f"x{k}", i.of) for k, i in enumerate(body.inputs[1 + count : 1 + count + len(scan.scanned)])]
        v = [Input(f"v{k}", v.type) for k, v in enumerate(scan.captured)]
        dy = [None if s is None else Input(f"dy{k}", _row(s.type)) for k, s in enumerate(rows)]
        ds = [None if s is None else Input(f"ds{k}", _row(s.type)) for k, s in enumerate(stored)]
        number = Call(_from_the_end(scan.steps), (j,))
        given: list[tuple[Op, Op]] = list(zip(body.inputs, (number, *c, *x, *v), strict=True))
        forward = body.substitute(dict(given))
        wanted = [
            (y, d) for y, d in zip(forward.outputs, (*dc, *dy), strict=True) if d is not None and y.dtype.is_float
        ]
        wrt = [i for i in (*c, *x, *v) if i.dtype.is_float]
        found = sweep([y for y, _ in wanted], [d for _, d in wanted], wrt, forward.origins)
        by = dict(zip(wrt, found.gradients, strict=True))
        self.outputs = [
            *(by[i] if s is None else added(by[i], s) for i, s in zip(c, ds, strict=True) if i in by),
            *(added(total, by[i]) for i, total in zip(v, dv, strict=True) if i in by),
            *(by[i] for i in x if i in by),
        ]
        floats = [i for i in (*dc, *dv) if i.dtype.is_float]
        inputs = (j, *floats, *c, *x, *(i for i in (*dy, *ds) if i is not None), *v)
        self.body = body_of(inputs, self.outputs, found.origins)


def _row(type: Type) -> Type:
    return Type(type.dtype, type.shape[1:])


def flipped(x: Op) -> Op:
    """The rows of a value in opposite order."""
    return Call(_flip(x.type), (x,)) if x.shape[0] > 1 else x


@cache
def _flip(type: Type) -> Kernel:
    """r[i, …] = x[n - 1 - i, …]."""
    x = Param("x", type)
    first, *rest = grid(type.shape)
    return kernel_of((x,), [comp((first, *rest), x[(type.shape[0] - 1 - first, *rest)])], type.dtype)


@cache
def _from_the_end(steps: int) -> Kernel:
    """r = steps - 1 - j."""
    j = Param("j", COUNTER)
    return kernel_of((j,), [comp((), Const(steps - 1) - j[()])], COUNTER.dtype)
