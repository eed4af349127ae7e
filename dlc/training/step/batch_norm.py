"""Batch normalisation of a model that is trained: by the statistics of the batch, which move the stored ones.

    y = batch_norm(x, scale, bias, mean, var)   →   y = batch_norm_training(x, scale, bias)
                                                    mean' = momentum·mean + (1 - momentum)·mean of x, var' likewise

Ioffe and Szegedy 2015; ONNX BatchNormalization 15 with training_mode=1 (biased variances; see `running_statistic` for
how PyTorch differs). The stored statistics become states, inputs and outputs of one name that share their memory. A
statistic that several nodes read, as of a layer that is applied twice, follows the batches of all of them in turn.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from dlc.graph import Constant, Graph, Input, Op, Splat
from dlc.graph.graph import with_live_origins
from dlc.ops.normalize import BatchNorm, BatchNormTraining, batch_mean, batch_variance, running_statistic


@dataclass(frozen=True)
class TrainingBatchNorms:
    """A model in training mode, and what became of its batch normalisations."""

    graph: Graph
    """The model; behind its own inputs and outputs those of `statistics`, aliased."""
    statistics: tuple[str, ...]
    """Names of the running statistics, mean and variance of each layer in the order of computation."""
    replaced: int
    """Nodes that now normalise by their batch."""
    fixed: tuple[tuple[str, str], ...]
    """(node, reason) of those that keep the statistics they have."""

    @property
    def summary(self) -> str:
        """What there is to tell a user, in a sentence."""
        if not self.replaced and not self.fixed:
            return (
                "no batch normalisation uses the statistics of the batch: if the model had some, they are folded into "
                "weights"
            )
        fixed = len(self.fixed)
        return f"batch normalisations: {self.replaced} use the statistics of the batch, {fixed} keep the stored ones"


def training_batch_norms(
    graph: Graph, frozen: Collection[str] = (), momentum: float | None = None, *, by_batch: bool = True
) -> TrainingBatchNorms:
    """The model with each `BatchNorm` of stored statistics in training mode; folded ones are trained as they are.

    Args:
        graph: A graph of ops in which parameters have their names, at the level of the pass `autodiff`.
        frozen: Names of parameters that are not trained: where scale and bias have names and all are among these, the
            layer is frozen and keeps the statistics it has.
        momentum: How much of the running statistics stays, in [0, 1]: 1 minus what PyTorch calls so. None: what each
            layer says.
        by_batch: False gives the same model at inference: the same statistics are inputs, which it only reads.

    Raises:
        ValueError: momentum outside [0, 1].
    """
    if momentum is not None and not 0.0 <= momentum <= 1.0:
        raise ValueError(f"momentum must be in [0, 1], not {momentum}")
    # A rewrite visits each op once, in this order, with the new operands that its origins and names are not found by.
    sources = iter([op for op in graph.ops if isinstance(op, BatchNorm)])
    work = _Work(graph, frozenset(frozen), momentum, by_batch)

    def rule(op: Op) -> Op | None:
        return work.trained(op, next(sources)) if isinstance(op, BatchNorm) else None

    trained = graph.rewrite(rule)
    states = tuple(work.states.values())
    names = tuple(i.name for i, _ in states)
    inputs, origins = (*trained.inputs, *(i for i, _ in states)), {**work.origins, **trained.origins}
    if not by_batch:
        whole = replace(trained, inputs=inputs, origins=origins)
        return TrainingBatchNorms(with_live_origins(whole), names, work.replaced, tuple(work.fixed))
    outputs = (*trained.outputs, *(value for _, value in states))
    first_in, first_out = len(trained.inputs), len(trained.outputs)
    pairs = tuple((first_out + k, first_in + k) for k in range(len(states)))
    whole = Graph(inputs, outputs, (*trained.names, *names), (*trained.aliases, *pairs), origins)
    return TrainingBatchNorms(with_live_origins(whole), names, work.replaced, tuple(work.fixed))


class _Work:
    """The state of one rewrite."""

    def __init__(self, graph: Graph, frozen: frozenset[str], momentum: float | None, by_batch: bool) -> None:
        self._graph, self._frozen, self._momentum, self._by_batch = graph, frozen, momentum, by_batch
        self._taken = {i.name for i in graph.inputs} | set(graph.names)
        self.states: dict[str, tuple[Input, Op]] = {}
        """Digest of a named constant, or number of a node and kind → the state, and its value so far."""
        self.replaced = 0
        self.fixed: list[tuple[str, str]] = []
        self.origins: dict[str, tuple[str, ...]] = {}

    def trained(self, op: BatchNorm, source: BatchNorm) -> Op | None:
        """The node in training mode, or None where it keeps its statistics."""
        names = self._graph.origin(source)
        node = names[0] if names else f"batch_norm{self.replaced + len(self.fixed)}"
        if why := self._refusal(source):
            self.fixed.append((node, why))
            return None
        self.replaced += 1
        batches = (source.mean, "mean", batch_mean(op.x)), (source.var, "var", batch_variance(op.x))
        read = list[Input]()
        for stored, key, batch in batches:
            place = stored.digest if isinstance(stored, Constant) and stored.name else f"{self.replaced}.{key}"
            before = self.states.get(place)
            state = before[0] if before else self._state(stored, f"{node}.{key}")
            kept = source.momentum if self._momentum is None else self._momentum
            value = running_statistic(before[1] if before else state, batch, kept)
            self.states[place] = state, value
            read.append(state)
            if names:
                self.origins[value.digest] = names
        if not self._by_batch:
            mean, var = read
            return BatchNorm(op.x, op.scale, op.bias, mean, var, op.epsilon, op.momentum)
        return BatchNormTraining(op.x, op.scale, op.bias, op.epsilon)

    def _refusal(self, op: BatchNorm) -> str:
        if not isinstance(op.mean, Constant | Splat) or not isinstance(op.var, Constant | Splat):
            return "its statistics are no constants"
        if self._momentum is None and not 0.0 <= op.momentum <= 1.0:
            return f"its momentum is {op.momentum}, not in [0, 1]"
        parameters = [p.name for p in (op.scale, op.bias) if isinstance(p, Constant | Input) and p.name]
        return "it is frozen" if parameters and self._frozen.issuperset(parameters) else ""

    def _state(self, stored: Op, name: str) -> Input:
        """The input that holds a statistic; it starts with what is stored."""
        match stored:
            case Constant(tensor=tensor):
                start, name = tensor, stored.name or name
            case Splat(value=value):
                start = value
            case _:
                raise AssertionError(stored)
        while name in self._taken:
            name += "_"
        self._taken.add(name)
        return Input(name, stored.type, "state", start)
