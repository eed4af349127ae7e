"""What a graph computes in the end: plain outputs, weights that follow gradients, statistics that follow batches."""

from __future__ import annotations

from dataclasses import dataclass, field

from dlc.graph import Cotangent, Graph, Input, Op
from dlc.ops.linear import Gemm, MatMul
from dlc.ops.loss import LabelCrossEntropy
from dlc.ops.normalize import BatchNormTraining
from dlc_backend_s2train.select import batches
from dlc_backend_s2train.select.effects import Key, key, source
from dlc_backend_s2train.select.losses import mean_loss
from dlc_backend_s2train.select.products import product_of
from dlc_backend_s2train.select.selection import Running, Selection
from dlc_backend_s2train.select.updates import Update, update_of

_STEP = "step"
"""The state that counts steps: the device counts its runs by itself."""


@dataclass(frozen=True)
class Trained:
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
    trained: list[Trained] = field(default_factory=list[Trained])
    running: dict[str, Running] = field(default_factory=dict[str, Running])
    """Digest of a norm in training mode → its running statistics."""

    @property
    def moved(self) -> dict[Input, tuple[str, Key]]:
        """Running statistics as the device holds them → name and key of what is written over them."""
        return {r.state: (r.state.name, batches.moved(digest)) for digest, r in self.running.items()}


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
                work.refuse(op, f"{name}: {update}", "the accelerator trains by sgd{lr=… momentum=… weight-decay=…}")
                continue
            found.roots.append(source(update.gradient))
            found.trained.append(Trained(name, over[k], velocity, update))
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
            running = batches.running_of(op, left)
            if running is not None:
                found.running[op.digest] = running
                left = [(state, value) for state, value in left if state not in running.parts]
    for state, value in left:
        work.refuse(value, f"no instruction gives {state.name} its new value")
