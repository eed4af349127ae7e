"""What tests of gradients share: samples in double precision, their values, and central differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dlc.base.types import Type, f64
from dlc.graph import Input, Op
from tests.ops.samples import feed, samples

Array = Any
STEP = 1e-6


def in_double(op: Op) -> Op:
    """The op on operands of f64 instead of f32."""
    wide = [Input(x.name, Type(f64, x.shape)) if isinstance(x, Input) and x.dtype.is_float else x for x in op.operands]
    return op.with_operands(wide)


SAMPLES: list[Op] = [in_double(op) for op in samples()]
IDS: Callable[[Op], str] = lambda op: f"{op.text_name}-{op.type}"  # noqa: E731


def floats(op: Op) -> list[int]:
    """Numbers of the operands that can have a derivative."""
    return [k for k, x in enumerate(op.operands) if x.dtype.is_float] if op.dtype.is_float else []


def arguments(op: Op) -> list[Array]:
    values = feed(op)
    return [values[x.name] for x in op.operands if isinstance(x, Input)]


def seed_of(op: Op) -> Array:
    return np.asarray(np.random.default_rng(7).standard_normal(op.shape), op.dtype.numpy)


def differences(value: Callable[[list[Array]], Array], args: list[Array], seed: Array, k: int) -> Array:
    """Central differences of Σ seed · value with respect to argument k."""
    out = np.zeros(args[k].shape)
    for place in np.ndindex(*out.shape):
        ends: list[float] = []
        for step in (STEP, -STEP):
            moved = args[k].copy()
            moved[place] += step
            ends.append(float((value([*args[:k], moved, *args[k + 1 :]]) * seed).sum()))
        out[place] = (ends[0] - ends[1]) / (2 * STEP)
    return out


def close(got: Array, expected: Array, what: object) -> None:
    np.testing.assert_allclose(got, expected, rtol=2e-5, atol=2e-7, err_msg=str(what))
