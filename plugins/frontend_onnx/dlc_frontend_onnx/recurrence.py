"""A recurrent layer over a sequence whose length is known when the program runs: a loop that fills a table.

for t < steps:  h, c = step(x[t], h, c);  y[t] = h
"""

from __future__ import annotations

from collections.abc import Callable

from dlc.base.types import Type, bool_, i64
from dlc.graph import Item, Loop, Op, Splat
from dlc.graph.bodies import COUNTER
from dlc.graph.structure import Input
from dlc.ops import elementwise as e
from dlc.ops.index import Pick
from dlc.ops.pointwise import scalar
from dlc_frontend_onnx.node import Node, constant, number
from dlc_frontend_onnx.ops.shape import reshaped
from dlc_frontend_onnx.regions import Formal, iteration
from dlc_frontend_onnx.rooms import opened, whole, with_row

Step = Callable[[Op, Op, Op], tuple[Op, Op]]
"""(projected input, hidden state, cell state) → new hidden and cell state."""


def looped(node: Node, step: Step, x: Op, h: Op, c: Op, lengths: Op | None, *, backward: bool) -> tuple[Op, Op, Op]:
    """All hidden states [steps, batch, hidden] in the order of time, and the last states [batch, hidden].

    Args:
        node: The recurrent node.
        step: One step of all of the batch.
        x: The projected input, [steps, batch, gates · hidden], with dimensions that may be open.
        h: The first hidden state, [batch, hidden].
        c: The first cell state.
        lengths: How many steps each item of the batch has, an i64[batch]; None: all. Behind them the states stay.
        backward: Whether the last step is the first one.
    """
    steps, batch = x.shape[:2]
    hidden = h.shape[1]
    rows, first_h, first_c = whole(x), whole(h), whole(c)
    room, width = rows.shape[0], rows.shape[1]
    column = None if lengths is None else reshaped(whole(lengths), (width, 1))
    table = Splat(0.0, Type(x.dtype, (room, width, hidden)))
    key = node.values.fresh()
    turn, h_in, c_in, y_in = (
        Formal(f"{key} {name}", of)
        for name, of in (("i", COUNTER), ("h", first_h.type), ("c", first_c.type), ("y", table.type))
    )
    count = scalar(steps, i64)
    t = e.Sub(e.Sub(count, constant(1, i64)), turn) if backward else turn
    row = reshaped(Pick(rows, reshaped(t, (1,)), axis=0), rows.shape[1:])
    new_h, new_c = step(row, h_in, c_in)
    out = new_h
    if column is not None:
        mask = e.Greater(column, t)
        out = e.Where(mask, new_h, number(0, new_h))
        new_h = e.Where(mask, new_h, h_in)
        new_c = new_c if new_c == c_in else e.Where(mask, new_c, c_in)
    new_y = with_row(y_in, t, out)
    carried = [(h_in, first_h, new_h), (y_in, table, new_y)]
    if new_c != c_in:
        carried.append((c_in, first_c, new_c))
    names: dict[Op, Input] = {turn: Input("i", COUNTER)}
    names |= {formal: Input(f"c{k}", formal.type) for k, (formal, _, _) in enumerate(carried)}
    outputs = [constant(True, bool_), *(new for _, _, new in carried)]
    body, captured = iteration(outputs, names, node.values.around())
    loop = Loop(count, None, tuple(first for _, first, _ in carried), captured, body)
    last = [Item(loop, k) for k in range(len(carried))]
    last_c = last[2] if len(last) > 2 else first_c
    return opened(last[1], (steps, batch, hidden)), opened(last[0], h.shape), opened(last_c, c.shape)
