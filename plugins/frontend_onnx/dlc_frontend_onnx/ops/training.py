"""Operators of a training step: the optimizers of ai.onnx.preview.training, and Gradient.

The optimizers differ from those of `dlc.training` in where the regularisation and the corrections stand; each computes
what version 1 of its specification says, in the type of the weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dlc.graph import Graph, Input, Op, Splat
from dlc.graph.gradient import gradients
from dlc.ops.elementwise import Add, Div, Greater, Mul, Sqrt, Sub, Where
from dlc.training.step.adam import one_minus_power
from dlc_frontend_onnx.node import Node, cast, number
from dlc_frontend_onnx.order import TRAINING
from dlc_frontend_onnx.rules import as_written, onnx
from dlc_frontend_onnx.unsupported import MALFORMED, Unsupported

Update = Callable[[Op, Op, Sequence[Op], Op, Op], Sequence[Op]]
"""(weight, gradient, states, rate, step) → the new weight and states."""


@onnx("Adam", domain=TRAINING)
def adam(node: Node) -> Sequence[Op]:
    """V' = α·V + (1 - α)·G, H' = β·H + (1 - β)·G², X' = X - R·√(1 - βᵀ)/(1 - αᵀ) · V'/(√H' + ε)."""
    alpha, beta = node.float("alpha", 0.9), node.float("beta", 0.999)
    epsilon, post = node.float("epsilon", 1e-6), node.float("norm_coefficient_post")

    def update(x: Op, g: Op, states: Sequence[Op], rate: Op, step: Op) -> Sequence[Op]:
        v, h = states
        v = Add(_times(v, alpha), _times(g, 1 - alpha))
        h = Add(_times(h, beta), _times(Mul(g, g), 1 - beta))
        corrected = Div(Mul(rate, Sqrt(one_minus_power(beta, step, x.dtype))), one_minus_power(alpha, step, x.dtype))
        rate = Where(Greater(step, number(0, step)), corrected, rate)
        new = Sub(x, Div(Mul(rate, v), Add(Sqrt(h), number(epsilon, x))))
        return _times(new, 1 - post) if post else new, v, h

    return _updated(node, 2, update)


@onnx("Adagrad", domain=TRAINING)
def adagrad(node: Node) -> Sequence[Op]:
    """H' = H + G², X' = X - R/(1 + T·decay) · G/(√H' + ε)."""
    decay, epsilon = node.float("decay_factor"), node.float("epsilon", 1e-6)

    def update(x: Op, g: Op, states: Sequence[Op], rate: Op, step: Op) -> Sequence[Op]:
        h = Add(states[0], Mul(g, g))
        if decay:
            rate = Div(rate, Add(number(1, x), _times(cast(step, x.dtype), decay)))
        return Sub(x, Div(Mul(rate, g), Add(Sqrt(h), number(epsilon, x)))), h

    return _updated(node, 1, update)


@onnx("Momentum", domain=TRAINING)
def momentum(node: Node) -> Sequence[Op]:
    """V' = α·V + β·G, where β is 1 in step 0; X' = X - R·V', or X - R·(G + α·V') in mode nesterov."""
    alpha, beta, mode = node.float("alpha"), node.float("beta"), node.text("mode")
    if mode not in ("standard", "nesterov"):
        raise Unsupported(f"mode {mode} is neither standard nor nesterov", MALFORMED)

    def update(x: Op, g: Op, states: Sequence[Op], rate: Op, step: Op) -> Sequence[Op]:
        part = Where(Greater(step, number(0, step)), number(beta, x), number(1, x))
        v = Add(_times(states[0], alpha), Mul(part, g))
        direction = Add(g, _times(v, alpha)) if mode == "nesterov" else v
        return Sub(x, Mul(rate, direction)), v

    return _updated(node, 1, update)


def _updated(node: Node, states: int, update: Update) -> Sequence[Op]:
    """All new weights, then all new states of each kind, as the operands R, T, X…, G…, states… stand."""
    count, rest = divmod(len(node.inputs) - 2, 2 + states)
    if rest or count < 1:
        raise Unsupported(f"{len(node.inputs)} operands for an optimizer with states per weight: {states}", MALFORMED)
    rate, step, decay = node.x(0), node.x(1), node.float("norm_coefficient")
    made: list[Sequence[Op]] = []
    for k in range(count):
        x, g, *kept = (node.x(2 + k + count * part) for part in range(2 + states))
        if any(o.type != x.type for o in (g, *kept)):
            shown = ", ".join(str(o.type) for o in (g, *kept))
            raise Unsupported(f"gradient and states of a weight {x.type} are {shown}", MALFORMED)
        g = Add(g, _times(x, decay)) if decay else g
        made.append(update(x, g, kept, cast(rate, x.dtype), step))
    return tuple(results[part] for part in range(1 + states) for results in made)


def _times(x: Op, factor: float) -> Op:
    return Mul(x, number(factor, x))


@onnx("Gradient", domain=TRAINING)
@as_written
def gradient(node: Node) -> Sequence[Op | None]:
    """dy/dx for each of `xs`, where y is a function of `xs` and `zs`, at the operands' values.

    Where y has several elements it is the gradient of their sum.
    """
    xs, zs = node.texts("xs"), node.texts("zs")
    y = node.text("y")
    names = (*xs, *zs)
    if len(names) != len(node.inputs) or len(set(names)) < len(names) or not xs:
        raise Unsupported(f"{len(node.inputs)} operands for {len(xs)} names in xs and {len(zs)} in zs", MALFORMED)
    values = [node.x(k) for k in range(len(names))]
    own = [Input(f"{node.name}/{name}", v.type) for name, v in zip(names, values, strict=True)]
    whole = node.values.named(y, dict(zip(names, own, strict=True)))
    if whole is None:
        return [None] * node.outputs  # what was refused has been reported
    for name, op in ((y, whole), *zip(xs, own, strict=False)):
        if not op.dtype.is_float:
            raise Unsupported(f"{name} is {op.type}: only floats have gradients", MALFORMED)
    found = gradients((whole,), (Splat(1.0, whole.type),), own[: len(xs)])
    at = Graph((), found, xs).substitute(dict(zip(own, values, strict=True)))
    return at.outputs
