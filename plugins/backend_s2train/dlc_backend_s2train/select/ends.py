"""What a graph computes in the end: plain outputs, statistics that follow batches, and weights that follow gradients.

A weight lies in a tensor of its own, or in rows of a norm's (`Place`). Its update is an instruction:

    w' = w - rate·(dw + …)   →   update (src0 = dw, dst0 = w, aux = velocity, dst1 = w in fp32)

A gradient that only its update reads never goes to memory: the product that computes it applies it at once.

    dw = Σ dy·x, update      →   conv weight_update (src0 = dy, src1 = x, dst0 = w, aux = velocity, dst1 = w in fp32)

Scale and shift of a norm are rows of one tensor, and so are their gradients: one instruction updates both.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, field, replace

import numpy as np

from dlc.base.types import Array, Type, f32
from dlc.graph import Cotangent, Graph, Input, Op, Tensor
from dlc.ops.linear import Gemm, MatMul
from dlc.ops.loss import LabelCrossEntropy
from dlc.ops.normalize import BatchNormTraining
from dlc.ops.shape import Concat, Reshape, Slice, Transpose
from dlc_backend_s2train.codes import Element, Role, Stage
from dlc_backend_s2train.instruction import kind_of
from dlc_backend_s2train.isa.instruction_set import Opcode
from dlc_backend_s2train.program import Hyper
from dlc_backend_s2train.select import memory, norms
from dlc_backend_s2train.select.memory import Key, key, offset, source
from dlc_backend_s2train.select.norms import bias_of
from dlc_backend_s2train.select.products import product_of
from dlc_backend_s2train.select.selection import Given, Group, Made, Running, Selection
from dlc_backend_s2train.select.training import Update, mean_loss, update_of

_STEP = "step"
"""The state that counts steps: the device counts its runs by itself."""


@dataclass(frozen=True)
class UpdatedWeight:
    """A weight with its update."""

    name: str
    weight: Input
    velocity: Input | None
    update: Update


@dataclass
class Ends:
    """All of them."""

    roots: list[Op] = field(default_factory=list[Op])
    """Values that are wanted."""
    plain: list[tuple[str, Op, tuple[int, ...]]] = field(default_factory=list[tuple[str, Op, tuple[int, ...]]])
    """Outputs: name, value, the shape in which the model gives it."""
    trained: list[UpdatedWeight] = field(default_factory=list[UpdatedWeight])
    running: dict[str, Running] = field(default_factory=dict[str, Running])
    """Digest of a norm in training mode → its running statistics."""

    @property
    def moved(self) -> dict[Input, tuple[str, Key]]:
        """Running statistics as the device holds them → name and key of what is written over them."""
        return {r.state: (r.state.name, norms.moved_key(digest)) for digest, r in self.running.items()}


def ends_of(graph: Graph, work: Selection) -> Ends:
    """The ends of a graph; what cannot be one goes to the selection's problems."""
    found = Ends()
    over = {i: graph.inputs[j] for i, j in graph.aliases}
    new = {i.name: graph.outputs[k] for k, i in over.items()}
    inputs = {i.name: i for i in graph.inputs}
    taken = {_STEP}
    for k, (name, op) in enumerate(zip(graph.names, graph.outputs, strict=True)):
        if k not in over:
            _plain(work, found, name, op)
        elif over[k].role == "weight":
            taken |= {other for other in inputs if other.startswith(f"{name}.")}
            velocity = inputs.get(f"{name}.momentum") or inputs.get(f"{name}.velocity")
            update = update_of(over[k], op, velocity, new.get(velocity.name) if velocity else None)
            if isinstance(update, str):
                work.refuse(
                    over[k], f"{name}: {update}", "the accelerator trains by sgd{lr=… momentum=… weight-decay=…}"
                )
                continue
            found.roots.append(source(update.gradient))
            found.trained.append(UpdatedWeight(name, over[k], velocity, update))
    states = [(i, graph.outputs[k]) for k, i in over.items() if i.role == "state" and i.name not in taken]
    _running(graph, work, found, states)
    return found


def _plain(work: Selection, found: Ends, name: str, op: Op) -> None:
    root = mean_loss(op) or source(op)
    found.roots.append(root)
    found.plain.append((name, root, op.shape))
    work.shown.setdefault(key(root), op.shape)
    if isinstance(source(op), LabelCrossEntropy) and op.type.size > 1:
        work.refuse(root, f"{name} is the loss of each sample: the accelerator gives their mean", "reduction=mean")
    if isinstance(root, Cotangent) and isinstance(root.of, Gemm | MatMul) and root.operand == 1:
        product = product_of(root.of)
        if not isinstance(product, str) and product.transposed:
            work.refuse(root, f"{name} is the gradient of a weight that the device stores transposed")


def _running(graph: Graph, work: Selection, found: Ends, states: list[tuple[Input, Op]]) -> None:
    """Find the norm of each running statistic."""
    left = list(states)
    for op in graph.ops:
        if isinstance(op, BatchNormTraining):
            running = norms.running_of(op, left)
            if running is not None:
                found.running[op.digest] = running
                left = [(state, value) for state, value in left if state not in running.parts]
    for state, value in left:
        work.refuse(value, f"no instruction gives {state.name} its new value")


_HALF = 2
"""Bytes of an fp16."""


@dataclass(frozen=True)
class Place:
    """A part of a tensor that the device holds."""

    held: Input
    start: Array
    """What the weight begins with, fp32, in the shape that it has there."""
    row: int | None = None
    """First row of a norm's tensor [4, C]; None for a tensor of its own."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the part."""
        return self.start.shape

    @property
    def offset(self) -> int:
        """Bytes before the part."""
        return 0 if self.row is None else self.row * self.held.shape[1] * _HALF


def readers_of(ops: Iterable[Op]) -> dict[str, list[Op]]:
    """Digest of an input → those of the ops that read it forward, in order."""
    found: dict[str, list[Op]] = {}
    for op in ops:
        if not isinstance(op, Cotangent | Reshape):
            for digest in dict.fromkeys(x.digest for x in map(source, op.operands) if isinstance(x, Input)):
                found.setdefault(digest, []).append(op)
    return found


def place_of(readers: Iterable[Op], weight: Input, hosted: Set[str] = frozenset()) -> Place | str:
    """Where a weight lies; or why it lies nowhere.

    Args:
        readers: Those of the ops that instructions are for that read it forward.
        weight: An input that begins with something.
        hosted: Digests of what the host computes.
    """
    values = memory.known_value(weight)
    if values is None:
        return "nobody knows what it begins with"
    found: dict[tuple[str, int | None], Place] = {}
    for op in readers:
        if (place := _read_by(op, weight, values.astype(np.float32), op.digest in hosted)) is None:
            return f"{kind_of(op)} reads it, which takes no weights"
        found[place.held.digest, place.row] = place
    if len(found) != 1:
        return f"it would have to lie in {len(found)} ways" if found else "no product and no norm reads it"
    (place,) = found.values()
    return place


def _read_by(op: Op, weight: Input, values: Array, hosted: bool) -> Place | None:
    if hosted or isinstance(op, Concat | Slice | Transpose):
        return Place(memory.stored_weight(weight), values)
    if isinstance(op, BatchNormTraining):
        held = memory.batch_norm_input(op)
        row = memory.SCALE if weight == op.scale else memory.SHIFT
        if isinstance(held, Input) and weight != op.x and op.scale != op.bias:
            return Place(held, values, row)
        return None
    if (bias := bias_of(op)) is not None:
        return Place(bias.held, values.reshape(-1), memory.SHIFT) if isinstance(bias.held, Input) else None
    product = product_of(op)
    if isinstance(product, str) or weight == product.x:
        return None
    if weight == product.w and isinstance(held := product.weight, Input):
        return Place(held, values.T if product.transposed else values)
    channels = product.geometry.co
    if weight == product.bias and values.size == channels and isinstance(held := product.bias_norm, Input):
        return Place(held, values.reshape(channels), memory.SHIFT)
    return None


New = dict[Input, tuple[str, Key]]
"""What the device holds → name and key of what is written over it."""


@dataclass(frozen=True)
class _Part:
    """What one instruction updates."""

    trained: UpdatedWeight
    place: Place
    start: Array
    """What it begins with, fp32."""
    more: UpdatedWeight | None = None
    """The shift whose scale this is."""


def add_updates(work: Selection, trained: Sequence[UpdatedWeight], ops: Sequence[Op]) -> New:
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


def _parts(work: Selection, trained: Sequence[UpdatedWeight], ops: Sequence[Op]) -> list[_Part]:
    parts: list[_Part] = []
    rows: dict[Input, int] = {}
    readers = readers_of(ops)
    for one in trained:
        place = place_of(readers.get(one.weight.digest, ()), one.weight, work.hosted)
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


def _alike(one: UpdatedWeight, other: UpdatedWeight) -> bool:
    def rule(trained: UpdatedWeight) -> tuple[float, float, float, bool, bool]:
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
