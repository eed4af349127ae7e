"""Recurrent layers, written out step by step where the number of steps is known when a model is read, else as loops."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np

from dlc.base.extents import Dim
from dlc.base.types import Type, i64
from dlc.graph import Op, Splat
from dlc.kernel.define import ShapeError
from dlc.ops import elementwise as e
from dlc.ops.linear import MatMul
from dlc.ops.shape import Concat, Slice, Transpose
from dlc_frontend_onnx.node import Node, cast, constant, number
from dlc_frontend_onnx.ops.shape import reshaped
from dlc_frontend_onnx.recurrence import Step, looped
from dlc_frontend_onnx.rules import onnx
from dlc_frontend_onnx.unsupported import Unsupported

Function = Callable[[Op], Op]
Gates = Callable[["Layer", Op, Op, Op], tuple[Op, Op]]
"""(layer, projected input, hidden state, cell state) → new hidden and cell state."""


@dataclass(frozen=True)
class Layer:
    """One direction of a layer. `r` and biases are in the order of the operator's gates."""

    hidden: int
    w: Op
    """[gates · hidden, inputs]"""
    r: Op
    """[gates · hidden, hidden]"""
    bias: Op
    """Of the inputs, [gates · hidden]."""
    recurrent_bias: Op
    """Of the hidden state, [gates · hidden]."""
    peepholes: Op | None
    """[3 · hidden]"""
    functions: tuple[Function, ...]
    before_reset: bool = False
    """GRU: the reset gate multiplies the projected state, not the state."""
    coupled: bool = False
    """LSTM: the forget gate is 1 - the input gate."""
    products: tuple[Function, Function] | None = None
    """x · Wᵀ and h · Rᵀ, where they are no products of matrices."""

    def projected(self, x: Op) -> Op:
        """x · Wᵀ."""
        return self.products[0](x) if self.products else _times(x, self.w)

    def recurrent(self, h: Op) -> Op:
        """h · Rᵀ."""
        return self.products[1](h) if self.products else _times(h, self.r)


@onnx("RNN", since=7)
def rnn(node: Node) -> tuple[Op | None, ...]:
    """H = f(X·Wᵀ + H·Rᵀ + b)."""
    return _layer(node, 1, ("Tanh",), _rnn_step)[:2]


@onnx("GRU", since=7)
def gru(node: Node) -> tuple[Op | None, ...]:
    """Gated recurrent unit. Cho et al. 2014, "Learning phrase representations using RNN encoder-decoder"."""
    return _layer(node, 3, ("Sigmoid", "Tanh"), _gru_step)[:2]


@onnx("LSTM", since=7)
def lstm(node: Node) -> tuple[Op | None, ...]:
    """Long short-term memory. Hochreiter and Schmidhuber 1997, "Long short-term memory"."""
    return lstm_layer(node)


def lstm_layer(node: Node, products: Sequence[tuple[Function, Function]] = ()) -> tuple[Op | None, ...]:
    """The results of an LSTM; `products` for each direction, where they are not those of W and R."""
    return _layer(node, 4, ("Sigmoid", "Tanh", "Tanh"), _lstm_step, products)


def _rnn_step(layer: Layer, x: Op, h: Op, c: Op) -> tuple[Op, Op]:
    (f,) = layer.functions
    return f(e.Add(e.Add(x, layer.recurrent(h)), layer.recurrent_bias)), c


def _gru_step(layer: Layer, x: Op, h: Op, c: Op) -> tuple[Op, Op]:
    f, g = layer.functions
    n = layer.hidden
    r, bias = layer.r, layer.recurrent_bias
    both = e.Add(e.Add(_part(x, 0, 2 * n), _times(h, _rows(r, 0, 2 * n))), _part(bias, 0, 2 * n))
    z, reset = f(_part(both, 0, n)), f(_part(both, n, n))
    rh, bh = _rows(r, 2 * n, n), _part(bias, 2 * n, n)
    after, before = e.Add(_times(e.Mul(reset, h), rh), bh), e.Mul(reset, e.Add(_times(h, rh), bh))
    new = g(e.Add(_part(x, 2 * n, n), before if layer.before_reset else after))
    return e.Add(e.Mul(e.Sub(number(1, z), z), new), e.Mul(z, h)), c


def _lstm_step(layer: Layer, x: Op, h: Op, c: Op) -> tuple[Op, Op]:
    f, g, top = layer.functions
    n = layer.hidden
    gates = e.Add(e.Add(x, layer.recurrent(h)), layer.recurrent_bias)
    i, o, forget, new = (_part(gates, k * n, n) for k in range(4))
    if layer.peepholes is not None:
        i = e.Add(i, e.Mul(_part(layer.peepholes, 0, n), c))
        forget = e.Add(forget, e.Mul(_part(layer.peepholes, 2 * n, n), c))
    i = f(i)
    forget = e.Sub(number(1, i), i) if layer.coupled else f(forget)
    cell = e.Add(e.Mul(forget, c), e.Mul(i, g(new)))
    if layer.peepholes is not None:
        o = e.Add(o, e.Mul(_part(layer.peepholes, n, n), cell))
    return e.Mul(f(o), top(cell)), cell


def _layer(
    node: Node,
    gates: int,
    defaults: tuple[str, ...],
    step: Gates,
    products: Sequence[tuple[Function, Function]] = (),
) -> tuple[Op | None, ...]:
    """Y[steps, directions, batch, hidden], and the last hidden and cell states [directions, batch, hidden]."""
    batch_first = node.flag("layout")
    x = _swapped(node.x(0), (1, 0, 2)) if batch_first else node.x(0)
    steps, batch, _ = x.shape
    if not isinstance(steps, Dim):
        node.values.budget.check("steps", steps, "the recurrent layer has")
    directions = _directions(node.text("direction", "forward"))
    layers = list(_layers(node, gates, defaults, len(directions)))
    if products:
        layers = [replace(layer, products=own) for layer, own in zip(layers, products, strict=True)]
    zero = Splat(0.0, Type(x.dtype, (batch, layers[0].hidden)))
    results: list[tuple[Op, Op, Op]] = []
    for d, (layer, backward) in enumerate(zip(layers, directions, strict=True)):
        h, c = (zero if s is None else _state(s, d, batch_first) for s in (node.optional(5), node.optional(6)))
        projected = e.Add(layer.projected(x), layer.bias)  # all steps at once: one large product instead of many small
        if isinstance(steps, Dim):
            lengths = node.optional(4)
            of = None if lengths is None else reshaped(cast(lengths, i64), (batch,))
            results.append(looped(node, partial(step, layer), projected, h, c, of, backward=backward))
        else:
            results.append(_run(partial(step, layer), projected, h, c, _valid(node, steps, batch), backward))
    y = _joined([y for y, _, _ in results])
    last_h, last_c = _stacked([h for _, h, _ in results]), _stacked([c for _, _, c in results])
    if not batch_first:
        return y, last_h, last_c
    return _swapped(y, (2, 0, 1, 3)), _swapped(last_h, (1, 0, 2)), _swapped(last_c, (1, 0, 2))


def _run(step: Step, projected: Op, h: Op, c: Op, valid: Sequence[Op | None], backward: bool) -> tuple[Op, Op, Op]:
    """Hidden states in the order of time, [steps, batch, hidden], and the last states."""
    steps = projected.shape[0]
    out: dict[int, Op] = {}
    for t in reversed(range(steps)) if backward else range(steps):
        new_h, new_c = step(_step_of(projected, t), h, c)
        mask = valid[t]
        if mask is None:
            h, c, out[t] = new_h, new_c, new_h
        else:
            out[t] = e.Where(mask, new_h, number(0, new_h))
            h, c = e.Where(mask, new_h, h), e.Where(mask, new_c, c)
    return _stacked([out[t] for t in range(steps)]) if steps else Splat(0.0, h.type.with_shape((0, *h.shape))), h, c


def _layers(node: Node, gates: int, defaults: tuple[str, ...], directions: int) -> Iterator[Layer]:
    w, r, b, p = node.x(1), node.x(2), node.optional(3), node.optional(7)
    hidden = r.shape[-1]
    if w.shape[:2] != (directions, gates * hidden) or r.shape != (directions, gates * hidden, hidden):
        raise ShapeError(f"weights {w.type} and {r.type} for {directions} directions")
    if node.int("hidden_size", hidden) != hidden:
        raise ShapeError(f"hidden_size {node.int('hidden_size')} and weights {r.type}")
    functions = _functions(node, defaults, directions)
    zero = Splat(0.0, Type(node.x(0).dtype, (gates * hidden,)))
    before_reset, coupled = node.flag("linear_before_reset"), node.flag("input_forget")
    for d in range(directions):
        peepholes = None if p is None else _row(p, d)
        layer = Layer(
            hidden, _row(w, d), _row(r, d), zero, zero, peepholes, functions[d], before_reset, coupled=coupled
        )
        if b is not None:
            both = _row(b, d)
            size = gates * hidden
            layer = replace(layer, bias=_part(both, 0, size), recurrent_bias=_part(both, size, size))
        yield layer


def _directions(text: str) -> tuple[bool, ...]:
    """Whether each direction runs backward in time."""
    known = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
    if text not in known:
        raise Unsupported(f"direction {text}", f"supported: {', '.join(known)}")
    return known[text]


def _valid(node: Node, steps: int, batch: int) -> list[Op | None]:
    """For each step, which items of the batch [batch, 1] have it; None where all do."""
    lengths = node.optional(4)
    if lengths is None:
        return [None] * steps
    known = node.maybe_constant(4)
    if known is not None and bool((known >= steps).all()):
        return [None] * steps
    column = reshaped(cast(lengths, i64), (batch, 1))
    return [e.Greater(column, constant(np.asarray(t), i64)) for t in range(steps)]


def _functions(node: Node, defaults: tuple[str, ...], directions: int) -> list[tuple[Function, ...]]:
    given = node.attributes.get("activations")
    node.ignore("activations")
    names = [s.decode("utf-8", "replace") for s in given.strings] if given is not None else [*defaults] * directions
    if len(names) != len(defaults) * directions:
        raise ShapeError(f"{len(names)} activations, not {len(defaults) * directions}")
    alphas, betas = iter(node.floats("activation_alpha") or ()), iter(node.floats("activation_beta") or ())
    limit = node.float("clip") if node.has("clip") else None
    # The cell state is not clipped on its way out: the standard can be read both ways, onnxruntime reads it so.
    limits = [None if k % len(defaults) == 2 else limit for k in range(len(names))]
    found = [_function(name, alphas, betas, limit) for name, limit in zip(names, limits, strict=True)]
    return [tuple(found[d * len(defaults) : (d + 1) * len(defaults)]) for d in range(directions)]


_PLAIN: Final[dict[str, Function]] = {
    "relu": e.Relu,
    "tanh": e.Tanh,
    "sigmoid": e.Sigmoid,
    "softsign": e.Softsign,
    "softplus": e.Softplus,
}


def _function(name: str, alphas: Iterator[float], betas: Iterator[float], limit: float | None) -> Function:
    """An activation; those with parameters take the next ones of the node's."""
    kind = name.lower()
    inner = _PLAIN.get(kind) or _with_parameters(kind, name, alphas, betas)
    return inner if limit is None else lambda x: inner(e.Clip(x, low=-limit, high=limit))


def _with_parameters(kind: str, name: str, alphas: Iterator[float], betas: Iterator[float]) -> Function:
    match kind:
        case "leakyrelu":
            alpha = next(alphas, 0.01)
            return lambda x: e.LeakyRelu(x, alpha=alpha)
        case "thresholdedrelu":
            alpha = next(alphas, 1.0)
            return lambda x: e.ThresholdedRelu(x, alpha=alpha)
        case "elu":
            alpha = next(alphas, 1.0)
            return lambda x: e.Elu(x, alpha=alpha)
        case "hardsigmoid":
            alpha, beta = next(alphas, 0.2), next(betas, 0.5)
            return lambda x: e.HardSigmoid(x, alpha=alpha, beta=beta)
        case "affine":
            alpha, beta = next(alphas, 1.0), next(betas, 0.0)
            return lambda x: e.Add(e.Mul(number(alpha, x), x), number(beta, x))
        case "scaledtanh":
            alpha, beta = next(alphas, 1.0), next(betas, 1.0)
            return lambda x: e.Mul(number(alpha, x), e.Tanh(e.Mul(number(beta, x), x)))
        case _:
            raise Unsupported(f"activation {name}", "supported: those of the ONNX standard")


# ---- parts of tensors


def _times(x: Op, w: Op) -> Op:
    return MatMul(x, Transpose(w, perm=(1, 0)))


def _slice(x: Op, axis: int, start: int, size: int) -> Op:
    if isinstance(x, Splat):
        return Splat(x.value, x.type.with_shape(tuple(size if d == axis else n for d, n in enumerate(x.shape))))
    starts = tuple(start if d == axis else 0 for d in range(len(x.shape)))
    sizes = tuple(size if d == axis else n for d, n in enumerate(x.shape))
    return x if sizes == x.shape else Slice(x, starts=starts, sizes=sizes, steps=(1,) * len(sizes))


def _part(x: Op, start: int, size: int) -> Op:
    return _slice(x, len(x.shape) - 1, start, size)


def _rows(x: Op, start: int, size: int) -> Op:
    return _slice(x, 0, start, size)


def _row(x: Op, k: int) -> Op:
    return reshaped(_rows(x, k, 1), x.shape[1:])


_step_of = _row


def _state(x: Op, direction: int, batch_first: bool) -> Op:
    return _row(_swapped(x, (1, 0, 2)) if batch_first else x, direction)


def _swapped(x: Op, perm: tuple[int, ...]) -> Op:
    return Transpose(x, perm=perm)


def _stacked(parts: Sequence[Op]) -> Op:
    rows = tuple(reshaped(p, (1, *p.shape)) for p in parts)
    return rows[0] if len(rows) == 1 else Concat(rows, axis=0)


def _joined(directions: Sequence[Op]) -> Op:
    """[steps, directions, batch, hidden] of the hidden states of each direction, [steps, batch, hidden]."""
    parts = tuple(reshaped(y, (y.shape[0], 1, *y.shape[1:])) for y in directions)
    return parts[0] if len(parts) == 1 else Concat(parts, axis=1)
