"""The instructions that update weights.

    w' = w - rate·(dw + …)   →   update (src0 = dw, dst0 = w, aux = velocity, dst1 = w in fp32)

A gradient that only its update reads never goes to memory: the product that computes it applies it at once.

    dw = Σ dy·x, update      →   conv weight_update (src0 = dy, src1 = x, dst0 = w, aux = velocity, dst1 = w in fp32)

Scale and shift of a norm are rows of one tensor, and so are their gradients: one instruction updates both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dlc.base.types import Array, Type, f32
from dlc.graph import Input, Op, Tensor
from dlc_backend_s2train.codes import Element, Opcode, Role, Stage
from dlc_backend_s2train.program import Hyper
from dlc_backend_s2train.select.effects import Key, key, offset
from dlc_backend_s2train.select.ends import Trained
from dlc_backend_s2train.select.group import Given, Group, Made
from dlc_backend_s2train.select.places import Place, place_of, readers_of
from dlc_backend_s2train.select.selection import Selection

New = dict[Input, tuple[str, Key]]
"""What the device holds → name and key of what is written over it."""


@dataclass(frozen=True)
class _Part:
    """What one instruction updates."""

    trained: Trained
    place: Place
    start: Array
    """What it begins with, fp32."""
    more: Trained | None = None
    """The shift whose scale this is."""


def add_updates(work: Selection, trained: Sequence[Trained], ops: Sequence[Op]) -> New:
    """Add the instructions of all updates; what cannot be updated goes to the selection's problems.

    Args:
        work: The selection.
        trained: Weights with their updates.
        ops: Those that instructions are for.
    """
    new: New = {}
    for part in _parts(work, trained, ops):
        new |= _update(work, part)
    return new


def _parts(work: Selection, trained: Sequence[Trained], ops: Sequence[Op]) -> list[_Part]:
    parts: list[_Part] = []
    rows: dict[Input, int] = {}
    readers = readers_of(ops)
    for one in trained:
        place = place_of(readers.get(one.weight.digest, ()), one.weight)
        if isinstance(place, str):
            work.refuse(one.weight, f"{one.name}: {place}")
        elif place.held not in rows:
            rows[place.held] = len(parts)
            parts.append(_Part(one, place, place.start))
        else:
            # Rows 2 and 3 of one norm.
            both = [(p.place, p.trained) for p in (parts[rows[place.held]],)] + [(place, one)]
            (scale, first), (shift, second) = sorted(both, key=lambda b: b[0].row or 0)
            if not _alike(first, second):
                work.refuse(one.weight, f"{one.name}: a norm's scale and shift are updated alike")
            start = np.stack([scale.start, shift.start])
            parts[rows[place.held]] = _Part(first, scale, start, second)
    return parts


def _alike(one: Trained, other: Trained) -> bool:
    def rule(trained: Trained) -> tuple[float, float, float, bool, bool]:
        u = trained.update
        return u.rate, u.momentum, u.decay, u.nesterov, trained.velocity is None

    return rule(one) == rule(other)


def _update(work: Selection, part: _Part) -> New:
    one, held, u = part.trained, part.place.held, part.trained.update
    shape, at = part.start.shape, part.place.offset
    hyper = Hyper(u.rate, u.momentum, u.decay, work.settings.loss_scale, nesterov=u.nesterov)
    if (group := _product(work, u.gradient)) is not None:
        group.stage = Stage.WEIGHT_UPDATE
        if group.hyper is not None:
            hyper = replace(hyper, threshold=group.hyper.threshold, seed=group.hyper.seed)
        group.hyper = hyper
    else:
        origin = [t.update.gradient for t in (one, part.more) if t is not None]
        group = Group(Opcode.UPDATE, Stage.WEIGHT_UPDATE, one.weight, hyper=hyper, origin=origin)
        group.reads["src0"] = Given(key(u.gradient), shape, offset(u.gradient))
        work.groups.append(group)
    group.reads["dst0"] = Given(held, shape, at)
    whole = held.shape if held.shape != shape else None
    written = f"{one.weight.digest}.new"
    group.writes["dst0"] = Made(written, Element.FP16, shape, Role.WEIGHT, at, whole)
    new: New = {held: (one.name, written)}
    if one.velocity is not None:
        new |= _state(group, "aux", Input(one.velocity.name, Type(f32, shape), "state", 0.0))
    if work.settings.master:
        start = Tensor.of(np.ascontiguousarray(part.start))
        new |= _state(group, "dst1", Input(f"{one.name}.master", Type(f32, shape), "state", start))
    return new


def _product(work: Selection, gradient: Op) -> Group | None:
    """The product that can apply a gradient at once: it gives this gradient, and nobody but the update reads it."""
    wanted = key(gradient)
    if work.settings.apart or work.readers[wanted] > 1:
        return None
    products = (g for g in work.groups if g.stage is Stage.WEIGHT_GRADIENT)
    return next((g for g in products if g.writes["dst0"].key == wanted), None)


def _state(group: Group, slot: str, state: Input) -> New:
    """One more tensor that an update reads and writes."""
    written = f"{state.digest}.new"
    place = "aux" if slot == "aux" else "dst1"
    group.reads[place] = Given(state, state.shape)
    group.writes[place] = Made(written, Element.FP32, state.shape, Role.STATE)
    return {state: (state.name, written)}
