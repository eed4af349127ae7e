"""The weight update: stochastic gradient descent as torch.optim.SGD has it (Sutskever et al. 2013)."""

from __future__ import annotations

import numpy as np

from dlc_backend_s2train.numerics.operands import Array, OperandError
from dlc_backend_s2train.program import Hyper


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
