"""Recurrent layers, written out step by step: `lstm.input`, `gru.input`, `rnn_tanh.input`, `rnn_relu.input`."""

# pyright: basic
# Arguments of calls are anything.

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dlc.graph import Op
from dlc.ops import elementwise as e
from dlc.ops.linear import Gemm
from dlc_frontend_torch.ops.linear import linear
from dlc_frontend_torch.ops.shape import select, stack, transpose
from dlc_frontend_torch.rules import aten
from dlc_frontend_torch.unsupported import Unsupported
from dlc_frontend_torch.values import cut, joined, number

State = tuple[Op, ...]
Step = Callable[[Op, State, Op, Op | None], State]
"""(projected input, states, recurrent weight, recurrent bias) → new states, the hidden one first."""
MOST_STEPS = 4096


def _parts(x: Op, count: int) -> list[Op]:
    size = x.shape[-1] // count
    return [cut(x, len(x.shape) - 1, k * size, size) for k in range(count)]


def _lstm(x: Op, state: State, weight: Op, bias: Op | None) -> State:
    h, c = state
    i, f, g, o = _parts(e.Add(x, Gemm(h, weight, bias, trans_b=True)), 4)
    cell = e.Add(e.Mul(e.Sigmoid(f), c), e.Mul(e.Sigmoid(i), e.Tanh(g)))
    return e.Mul(e.Sigmoid(o), e.Tanh(cell)), cell


def _gru(x: Op, state: State, weight: Op, bias: Op | None) -> State:
    (h,) = state
    xr, xz, xn = _parts(x, 3)
    hr, hz, hn = _parts(Gemm(h, weight, bias, trans_b=True), 3)
    r, z = e.Sigmoid(e.Add(xr, hr)), e.Sigmoid(e.Add(xz, hz))
    new = e.Tanh(e.Add(xn, e.Mul(r, hn)))
    return (e.Add(e.Mul(e.Sub(number(1.0, z.dtype), z), new), e.Mul(z, h)),)


def _rnn(function: Callable[[Op], Op]) -> Step:
    def step(x: Op, state: State, weight: Op, bias: Op | None) -> State:
        return (function(e.Add(x, Gemm(state[0], weight, bias, trans_b=True))),)

    return step


def _direction(step: Step, x: Op, state: State, weights: Sequence[Op | None], *, backward: bool) -> tuple[Op, State]:
    """All hidden states of x[steps, batch, inputs], and the last states."""
    w, r, b, rb = weights
    assert w is not None and r is not None
    projected = linear(x, w, b)  # all steps at once: one large product instead of many small ones
    steps = x.shape[0]
    if not isinstance(steps, int) or steps > MOST_STEPS:
        raise Unsupported(f"a recurrent layer over {steps} steps", "export it with a fixed number of steps")
    out: dict[int, Op] = {}
    for t in reversed(range(steps)) if backward else range(steps):
        state = step(select(projected, 0, t), state, r, rb)
        out[t] = state[0]
    return stack([out[t] for t in range(steps)], 0), state


def layers(
    step: Step,
    x: Op,
    states: Sequence[Op],
    params: Sequence[Op],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Op, ...]:
    """The hidden states of the last layer, and the last states of all layers."""
    if dropout and train and num_layers > 1:
        raise Unsupported("dropout between recurrent layers", "export the module in inference mode: module.eval()")
    single = len(x.shape) == 2
    if single:
        raise Unsupported("a recurrent layer without a batch", "add a dimension of 1 for the batch")
    y = transpose(x, 0, 1) if batch_first else x
    per, directions = 4 if has_biases else 2, 2 if bidirectional else 1
    if len(params) != per * num_layers * directions:
        raise Unsupported("a recurrent layer with projections")
    last: list[State] = []
    for layer in range(num_layers):
        outs: list[Op] = []
        for d in range(directions):
            k = layer * directions + d
            own: list[Op | None] = [*params[k * per : (k + 1) * per], *[None] * (4 - per)]
            found, state = _direction(step, y, tuple(select(s, 0, k) for s in states), own, backward=d == 1)
            outs.append(found)
            last.append(state)
        y = joined(outs, 2)
    y = transpose(y, 0, 1) if batch_first else y
    return y, *(stack([state[j] for state in last], 0) for j in range(len(states)))


@aten("lstm.input")
def lstm(x: Op, hx: Sequence[Op], params: Sequence[Op], *figures: Any) -> tuple[Op, ...]:
    """Long short-term memory. Hochreiter and Schmidhuber 1997."""
    return layers(_lstm, x, hx, params, *figures)


@aten("gru.input")
def gru(x: Op, hx: Op, params: Sequence[Op], *figures: Any) -> tuple[Op, ...]:
    """Gated recurrent unit. Cho et al. 2014."""
    return layers(_gru, x, [hx], params, *figures)


@aten("rnn_tanh.input")
def rnn_tanh(x: Op, hx: Op, params: Sequence[Op], *figures: Any) -> tuple[Op, ...]:
    """h = tanh(W·x + R·h + b)."""
    return layers(_rnn(e.Tanh), x, [hx], params, *figures)


@aten("rnn_relu.input")
def rnn_relu(x: Op, hx: Op, params: Sequence[Op], *figures: Any) -> tuple[Op, ...]:
    """h = max(W·x + R·h + b, 0)."""
    return layers(_rnn(e.Relu), x, [hx], params, *figures)


def _cell(step: Step, x: Op, states: State, w_ih: Op, w_hh: Op, b_ih: Op | None, b_hh: Op | None) -> State:
    return step(linear(x, w_ih, b_ih), states, w_hh, b_hh)


@aten("lstm_cell")
def lstm_cell(x: Op, hx: Sequence[Op], w_ih: Op, w_hh: Op, b_ih: Op | None = None, b_hh: Op | None = None) -> State:
    """One step of an LSTM."""
    return _cell(_lstm, x, tuple(hx), w_ih, w_hh, b_ih, b_hh)


@aten("gru_cell")
def gru_cell(x: Op, h: Op, w_ih: Op, w_hh: Op, b_ih: Op | None = None, b_hh: Op | None = None) -> Op:
    """One step of a GRU."""
    return _cell(_gru, x, (h,), w_ih, w_hh, b_ih, b_hh)[0]
