"""Which function an instruction has: opcode, stage → what its operands become.

    ARITHMETIC[opcode, stage](operands) → values of the slots that are written

Values are held as fp32 (or bits, pointers) between memory's rounding steps; rounding to what the tensor stores is the
store's. There are two modes, which differ in the order of long sums only. `bit-true` adds products in the device's
order, every partial sum rounded to fp32, so that results are the same bits on every machine; `fast` leaves the order
to numpy's matrix products. The weight update is stochastic gradient descent as torch.optim.SGD has it (Sutskever et
al. 2013).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

import numpy as np

from dlc_backend_s2train.codes import Flag, Slot, Splitting, Stage
from dlc_backend_s2train.isa.instruction_set import INSTRUCTIONS, Opcode
from dlc_backend_s2train.program import Geometry, Hyper
from dlc_backend_s2train.simulator import products, reproducible
from dlc_backend_s2train.simulator.operands import Array, OperandError, Operands, Results
from dlc_backend_s2train.simulator.post import (
    batch_normalized,
    batch_statistics,
    moved_statistics,
    normalized,
    post_backward,
    post_forward,
)
from dlc_backend_s2train.simulator.reproducible import softmax, softmax_cross_entropy

Rule = Callable[[Operands], Results]


def compute(opcode: Opcode, stage: Stage, operands: Operands) -> Results:
    """The values of an instruction's written slots; none for those that do not compute, and for updates left out.

    Raises:
        OperandError: the operands do not fit the geometry or each other.
    """
    if opcode in SILENT:
        return {}
    rule = ARITHMETIC.get((opcode, stage))
    if rule is None:
        raise OperandError("there is no arithmetic for this stage")
    # Infinities and NaN are results like others here.
    with np.errstate(all="ignore"):
        return rule(operands)


def _convolution_forward(given: Operands) -> Results:
    g = _part(_checked(given.shape))
    x = _channels(given.fit("src0", (g.n, given.shape.ci, g.hi, g.wi)), given.shape)
    w = given.fit("src1", _weight_shape(g))
    return _after(given, products.forward(x, w, g, _partial(given, (g.n, g.co, g.ho, g.wo)), given.mode), post_forward)


def _convolution_backward(given: Operands) -> Results:
    # The channels of a gradient that an instruction reads are those of the operator's output.
    g, whole = _checked(given.shape), given.shape
    dy = _channels(given.fit("src0", (g.n, g.co, g.ho, g.wo)), whole)
    g = replace(g, co=dy.shape[1])
    w = given.fit("src1", _weight_shape(g))
    start = _partial(given, (g.n, g.ci, g.hi, g.wi))
    return _after(given, products.backward(dy, w, g, start, given.mode), post_backward)


def _convolution_gradient(given: Operands) -> Results:
    g = _part(_checked(given.shape))
    dy = given.fit("src0", (g.n, g.co, g.ho, g.wo))
    if "src1" in given.values:
        x = _channels(given.fit("src1", (g.n, given.shape.ci, g.hi, g.wi)), given.shape)
        dw = products.weight_gradient(dy, x, g, _partial(given, _weight_shape(g)), given.mode)
    else:
        dw = products.channel_sums(dy, _partial(given, (g.co,)), given.mode)
    if Flag.PRUNE in given.flags and Splitting.ACCUMULATE_OUT not in given.splitting:
        dw = reproducible.pruned(dw, given.hyper.threshold, given.hyper.seed, given.run, given.first)
    return {"dst0": dw}


def _convolution_update(given: Operands) -> Results:
    """A gradient, which stays fp32, applied at once."""
    return _moved(_convolution_gradient(given)["dst0"], given)


def _linear(convolution: Rule) -> Rule:
    """A linear layer is a convolution of maps of one element."""

    def rule(given: Operands) -> Results:
        g = given.shape
        if (g.hi, g.wi, g.ho, g.wo, g.kh, g.kw, g.pads) != (1, 1, 1, 1, 1, 1, (0, 0, 0, 0)):
            raise OperandError("a linear layer has maps and kernels of 1 x 1")
        return convolution(given)

    return rule


def _eltwise_forward(given: Operands) -> Results:
    x = given.get("src0")
    if Flag.BN_TRAIN not in given.flags:
        return post_forward(x, given)
    statistics, variance = batch_statistics(x, given.hyper.epsilon, given.mode)
    results = post_forward(batch_normalized(x, statistics, given.get("bn0")), given)
    results["dst1"] = statistics
    if "bn1" in given.values:
        results["bn1"] = moved_statistics(given.get("bn1"), statistics[0], variance, given.hyper.momentum)
    return results


def _eltwise_backward(given: Operands) -> Results:
    return post_backward(given.get("src0"), given)


def _loss(given: Operands) -> Results:
    logits = given.get("src0")
    if Flag.SOFTMAX_CE in given.flags:
        return _lost(logits, given)
    return {"dst0": softmax(logits.reshape(logits.shape[0], -1)).reshape(logits.shape)}


def _update(given: Operands) -> Results:
    return _moved(given.get("src0"), given)


def _moved(gradient: Array, given: Operands) -> Results:
    master: Slot = "dst1" if "dst1" in given.values else "dst0"
    w = given.fit(master, gradient.shape)
    velocity = given.fit("aux", w.shape) if "aux" in given.values else None
    found = descended(gradient, w, velocity, given.hyper)
    if found is None:
        return {}
    w, velocity_after = found
    results: Results = {"dst0": w}
    if master == "dst1":
        results["dst1"] = w
    if velocity is not None:
        results["aux"] = velocity_after
    return results


def _pool_forward(given: Operands) -> Results:
    g = given.shape
    x = given.fit("src0", (g.n, g.ci, g.hi, g.wi))
    if Flag.POINTER_WRITE not in given.flags:
        return {"dst0": products.average_pool(x, g)}
    y, taps = products.max_pool(x, g)
    return {"dst0": y, "ptr": taps}


def _pool_backward(given: Operands) -> Results:
    g = given.shape
    dy = given.fit("src0", (g.n, g.ci, g.ho, g.wo))
    if Flag.POINTER_READ not in given.flags:
        return {"dst0": products.average_pool_gradient(dy, g)}
    return {"dst0": products.max_pool_gradient(dy, given.fit("ptr", dy.shape, "pointer"), g)}


def _copy(given: Operands) -> Results:
    return {"dst0": given.values["src0"]}


ARITHMETIC: Final[Mapping[tuple[Opcode, Stage], Rule]] = {
    (Opcode.CONV, Stage.FORWARD): _convolution_forward,
    (Opcode.CONV, Stage.BACKWARD): _convolution_backward,
    (Opcode.CONV, Stage.WEIGHT_GRADIENT): _convolution_gradient,
    (Opcode.LINEAR, Stage.FORWARD): _linear(_convolution_forward),
    (Opcode.LINEAR, Stage.BACKWARD): _linear(_convolution_backward),
    (Opcode.LINEAR, Stage.WEIGHT_GRADIENT): _linear(_convolution_gradient),
    (Opcode.ELTWISE, Stage.FORWARD): _eltwise_forward,
    (Opcode.ELTWISE, Stage.BACKWARD): _eltwise_backward,
    (Opcode.LOSS, Stage.FORWARD): _loss,
    (Opcode.CONV, Stage.WEIGHT_UPDATE): _convolution_update,
    (Opcode.LINEAR, Stage.WEIGHT_UPDATE): _linear(_convolution_update),
    (Opcode.UPDATE, Stage.WEIGHT_UPDATE): _update,
    (Opcode.POOL, Stage.FORWARD): _pool_forward,
    (Opcode.POOL, Stage.BACKWARD): _pool_backward,
    **{(Opcode.COPY, stage): _copy for stage in Stage},
}

SILENT: Final = frozenset(row.opcode for row in INSTRUCTIONS if not row.computes)
"""Opcodes without arithmetic: control, the link's, and `fill`, whose zeros the store itself writes."""


def _after(given: Operands, acc: Array, post: Callable[[Array, Operands], Results]) -> Results:
    """A sum is stored as it is, becomes a loss, or passes the post-processing unit."""
    if Splitting.ACCUMULATE_OUT in given.splitting:
        return {"dst0": acc}
    if Flag.SOFTMAX_CE in given.flags:
        return _lost(normalized(acc, given) if Flag.BN_FORWARD in given.flags else acc, given)
    return post(acc, given)


def _lost(logits: Array, given: Operands) -> Results:
    labels = given.get("aux", "label").reshape(-1)
    if not labels.size or logits.size % labels.size:
        raise OperandError(f"{labels.size} labels do not go with logits of {logits.shape}")
    gradient, mean = softmax_cross_entropy(logits.reshape(labels.size, -1), labels, given.hyper.scale)
    return {"dst0": gradient, "dst1": mean} if "dst1" in given.given else {"dst0": gradient}


def _partial(given: Operands, shape: tuple[int, ...]) -> Array | None:
    return given.fit("aux", shape) if Splitting.ACCUMULATE_IN in given.splitting else None


def _part(g: Geometry) -> Geometry:
    """The geometry of the input channels that the instruction reads."""
    return g if g.channels == (0, 0) else replace(g, ci=g.channels[1] - g.channels[0], channels=(0, 0))


def _channels(x: Array, g: Geometry) -> Array:
    """The channels that an instruction reads."""
    if g.channels == (0, 0):
        return x
    low, high = g.channels
    if not 0 <= low < high <= x.shape[1] or g.groups != 1:
        raise OperandError(f"channels {low} to {high} of {x.shape[1]}, groups {g.groups}")
    return x[:, low:high]


def _weight_shape(g: Geometry) -> tuple[int, int, int, int]:
    return g.co, g.ci // g.groups, g.kh, g.kw


def _checked(g: Geometry) -> Geometry:
    """The geometry if its figures make sense together."""
    positive = (g.n, g.ci, g.co, g.hi, g.wi, g.ho, g.wo, g.kh, g.kw, g.groups, *g.stride, *g.dilation)
    if min(positive) < 1:
        raise OperandError("sizes, strides and dilations are positive")
    if g.ci % g.groups or g.co % g.groups:
        raise OperandError(f"{g.groups} groups do not divide {g.ci} and {g.co} channels")
    top, left, bottom, right = g.pads
    for size, count, stride, kernel, dilation in (
        (g.hi + top + bottom, g.ho, g.stride[0], g.kh, g.dilation[0]),
        (g.wi + left + right, g.wo, g.stride[1], g.kw, g.dilation[1]),
    ):
        need = (count - 1) * stride + (kernel - 1) * dilation + 1
        if need > size:
            raise OperandError(f"{count} windows of {kernel} need {need} elements, with pads there are {size}")
    return g


def descended(gradient: Array, w: Array, velocity: Array | None, h: Hyper) -> tuple[Array, Array] | None:
    """The new weight and the new velocity, fp32; without a velocity v = g.

    g = gradient/scale + decay·w;  v = momentum·velocity + g;  w - rate·v, with nesterov w - rate·(g + momentum·v).
    None where the gradient has an infinity or a NaN: such an update is left out, and raises the machine's flag.
    """
    if h.scale == 0:
        raise OperandError("the loss scale is 0")
    if not np.isfinite(gradient).all():
        return None
    rate, momentum, decay, scale = (np.float32(v) for v in (h.rate, h.momentum, h.decay, h.scale))
    g = gradient / scale
    if decay:
        g = g + decay * w
    v = g if velocity is None else momentum * velocity + g
    step = g + momentum * v if h.nesterov else v
    return w - rate * step, v
