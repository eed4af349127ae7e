"""Dropout of a training step: a stage of the unit, which draws its own bits and keeps them for the backward stage.

    y = dropout(x, seed, step)   →   y = x·bit/keep, with one bit of every element in memory

The bits are those of `dlc.ops.random` for the same seed, with the number of the run for that of the step, and stream 0.
Instructions have no streams, so what another stream draws comes from a seed of its own.
"""

from __future__ import annotations

from dataclasses import replace

from dlc.graph import Cotangent
from dlc.ops.random import Dropout
from dlc_backend_s2train.codes import Element, Flag, Role
from dlc_backend_s2train.instruction import SEEDS, mixed
from dlc_backend_s2train.program import Hyper
from dlc_backend_s2train.select import parameters
from dlc_backend_s2train.select.effects import kept
from dlc_backend_s2train.select.group import Backward, Forward, Given, Made
from dlc_backend_s2train.select.selection import Selection


def forward(work: Selection, op: Dropout) -> None:
    """Drop elements of what the group before gives."""
    if (seed := seed_of(op)) is None:
        work.refuse(op, "its seed is computed: it must be a constant")
        return
    group = work.stage(op, op.x, Forward.DROP, Flag.DROPOUT)
    group.hyper = replace(group.hyper or Hyper(), keep=1.0 - op.ratio, seed=seed)
    group.writes["aux"] = Made(kept(op), Element.BIT, op.shape, Role.MASK)


def backward(work: Selection, op: Cotangent, of: Dropout) -> None:
    """The gradient of what was kept."""
    if seed_of(of) is None:
        return  # the op itself was refused
    group = work.stage(op, op.seed, Backward.DROP, Flag.DROPOUT)
    group.hyper = replace(group.hyper or Hyper(), keep=1.0 - of.ratio)
    group.reads["aux"] = Given(kept(of), of.shape)


def seed_of(op: Dropout) -> int | None:
    """The seed of the device's bits."""
    found = parameters.known_value(op.seed)
    if found is None:
        return None
    seed = int(found.reshape(-1)[0])
    return seed if op.stream == 0 and 0 <= seed < SEEDS else mixed(seed, op.stream)
