"""Gradients of recurrent layers, which are imported step by step."""

# Parameters of lambdas that a table holds have no place for types, and torch's own functions know few.
# pyright: reportUnknownLambdaType=false, reportUnknownArgumentType=false
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import torch

from tests.ops.torch_cases.case import Array, Case, Tensor, normal

STEPS, BATCH, INPUTS, HIDDEN = 4, 3, 2, 3
GATES: Final = {"RNN": 1, "GRU": 3, "LSTM": 4}
ORDER: Final = {"RNN": (0,), "GRU": (1, 0, 2), "LSTM": (0, 2, 3, 1)}
"""torch's gates among those of ONNX: z r h → r z n; i o f c → i f g o."""


def turned(op: str, w: Tensor) -> Tensor:
    """Rows of gates in torch's order."""
    parts = w.chunk(GATES[op])
    return torch.cat([parts[k] for k in ORDER[op]])


def one_way(
    op: str, x: Tensor, w: Tensor, r: Tensor, b: Tensor, h: Tensor, c: Tensor, peep: Tensor
) -> tuple[list[Tensor], Tensor, Tensor]:
    """One direction step by step, gates in ONNX's order (of its documentation), states [batch, hidden]."""
    wb, rb = b.chunk(2)
    n, found = r.shape[1], list[Any]()
    for t in range(x.shape[0]):
        a, s = x[t] @ w.T + wb, h @ r.T + rb
        if op == "RNN":
            h = torch.tanh(a + s)
        elif op == "GRU":
            z, reset = torch.sigmoid(a + s)[:, : 2 * n].chunk(2, 1)
            inner = (reset * h) @ r[2 * n :].T + rb[2 * n :]
            h = (1 - z) * torch.tanh(a[:, 2 * n :] + inner) + z * h
        else:
            pi, po, pf = (0, 0, 0) if peep is None else peep.chunk(3)
            gi, go, gf, gc = (a + s).chunk(4, 1)
            c = torch.sigmoid(gf + pf * c) * c + torch.sigmoid(gi + pi * c) * torch.tanh(gc)
            h = torch.sigmoid(go + po * c) * torch.tanh(c)
        found.append(h)
    return found, h, c


def by_steps(op: str, ways: Sequence[bool]) -> Callable[..., list[Tensor]]:
    """A layer in both its directions, from the equations."""

    def same(x: Tensor, w: Tensor, r: Tensor, b: Tensor, _: Any, h: Tensor, *more: Tensor) -> list[Tensor]:
        lines: list[Tensor] = []
        ends: list[tuple[Tensor, Tensor]] = []
        for d, backward in enumerate(ways):
            c, peep, *_ = (*(m[d] for m in more), None, None)
            ys, last, cell = one_way(op, x.flip(0) if backward else x, w[d], r[d], b[d], h[d], c, peep)
            lines.append(torch.stack(ys[::-1] if backward else ys))
            ends.append((last, cell))
        results = [torch.stack(lines, 1), torch.stack([h for h, _ in ends])]
        return [*results, torch.stack([c for _, c in ends if c is not None])] if op == "LSTM" else results

    return same


def by_torch(op: str, lengths: Sequence[int] | None = None) -> Callable[..., list[Tensor]]:
    """torch's own layer, one direction or both, on sequences of given lengths."""
    layer: Callable[..., Any] = {"RNN": torch.rnn_tanh, "GRU": torch.gru, "LSTM": torch.lstm}[op]

    def same(x: Tensor, w: Tensor, r: Tensor, b: Tensor, _: Any, h: Tensor, *cells: Tensor) -> list[Tensor]:
        both, weights = w.shape[0] == 2, list[Any]()
        for d in range(w.shape[0]):
            weights += [turned(op, part) for part in (w[d], r[d], *b[d].chunk(2))]
        state = (h, *cells) if cells else h
        if lengths is None:
            y, *rest = layer(x, state, weights, True, 1, 0.0, False, both, False)
        else:
            packed = torch.nn.utils.rnn.pack_padded_sequence(x, torch.tensor(lengths))
            data, *rest = layer(packed.data, packed.batch_sizes, state, weights, True, 1, 0.0, False, both)
            again = torch.nn.utils.rnn.PackedSequence(data, packed.batch_sizes)
            y, _ = torch.nn.utils.rnn.pad_packed_sequence(again, total_length=x.shape[0])
        return [y.view(*y.shape[:2], w.shape[0], -1).transpose(1, 2), *rest]

    return same


def recurrent(
    op: str,
    what: str,
    same: Callable[..., Any],
    ways: int = 1,
    lengths: Sequence[int] = (),
    peep: bool = False,
    **a: Any,
) -> Case:
    """A layer of each kind, with initial states."""
    rows = GATES[op] * HIDDEN
    operands: list[Array | None] = [
        normal(STEPS, BATCH, INPUTS),
        normal(ways, rows, INPUTS),
        normal(ways, rows, HIDDEN),
        normal(ways, 2 * rows),
        np.array(lengths, np.int32) if lengths else None,
        normal(ways, BATCH, HIDDEN),
    ]
    if op == "LSTM":
        operands.append(normal(ways, BATCH, HIDDEN))
    if peep:
        operands.append(normal(ways, 3 * HIDDEN))
    attributes = {"hidden_size": HIDDEN, **a}
    return Case(op, what, tuple(operands), same, attributes, outputs=3 if op == "LSTM" else 2)


FORWARD, BOTH = (False,), (False, True)
CASES: Final[tuple[Case, ...]] = (
    *(recurrent(op, "forward", by_torch(op)) for op in GATES if op != "GRU"),
    recurrent("GRU", "forward, reset behind the product", by_torch("GRU"), linear_before_reset=1),
    recurrent("GRU", "forward, reset before the product", by_steps("GRU", FORWARD)),
    recurrent("GRU", "both ways", by_steps("GRU", BOTH), 2, direction="bidirectional"),
    *(recurrent(op, "both ways", by_torch(op), 2, direction="bidirectional") for op in ("RNN", "LSTM")),
    *(recurrent(op, "backward", by_steps(op, (True,)), direction="reverse") for op in GATES),
    *(recurrent(op, "lengths", by_torch(op, (4, 2, 1)), 1, (4, 2, 1)) for op in ("RNN", "LSTM")),
    recurrent("GRU", "lengths", by_torch("GRU", (4, 2, 1)), 1, (4, 2, 1), linear_before_reset=1),
    recurrent("LSTM", "lengths, both ways", by_torch("LSTM", (4, 2, 1)), 2, (4, 2, 1), direction="bidirectional"),
    recurrent("LSTM", "peepholes", by_steps("LSTM", FORWARD), peep=True),
)
