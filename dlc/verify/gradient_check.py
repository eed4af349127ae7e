"""What `dlc verify --gradients` checks of a model: its loss or a sum of its outputs, in double precision."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from dlc.api.program import Port
from dlc.base.types import Array
from dlc.graph import Constant, Graph, Input, Op, Splat, Tensor
from dlc.graph.floats import in_double
from dlc.graph.gradient import sweep
from dlc.ops.elementwise import Add, Mul
from dlc.ops.reduce import ReduceSum
from dlc.passes.autodiff import Autodiff
from dlc.passes.gradient import chosen_floats
from dlc.training.step.initial import begun
from dlc.training.step.trained import compared, differentiated, prediction_of, trained_model, weight_inputs
from dlc.training.step.updates import step_input
from dlc.training.step.weights import chosen
from dlc.verify.differences import Subject


@dataclass(frozen=True)
class GradientProblem:
    """A scalar of a model and its gradients, before inputs have values."""

    what: str
    """In words."""
    value: Op
    gradients: Mapping[str, tuple[Input, Op]]
    """Name → what is differentiated by, and the gradient."""
    ports: tuple[Port, ...]
    """What has to be fed: the model's inputs and the labels, of the types they have in the model."""
    inputs: tuple[Input, ...]
    """The same as values of the graph, and a step's number."""

    def at(self, feeds: Mapping[str, Array]) -> Subject:
        """With values of `ports`; weights begin with what the model has."""
        wrt = [w for w, _ in self.gradients.values()]
        known: dict[Op, Array] = {i: _start(i, feeds) for i in dict.fromkeys((*self.inputs, *wrt))}
        names: dict[Op, str] = {w: name for name, (w, _) in self.gradients.items()}
        return Subject(self.value, dict(self.gradients.values()), names, known)


def _start(i: Input, feeds: Mapping[str, Array]) -> Array:
    """What is fed, else what the input begins with."""
    match feeds.get(i.name), i.initial:
        case None, Tensor() as tensor:
            return tensor.array()
        case None, None:
            raise KeyError(i.name)
        case None, value:
            return np.full(i.shape, value, i.dtype.numpy)
        case array, _:
            return np.asarray(array, i.dtype.numpy)


def _ports(inputs: Sequence[Input], weights: Collection[str]) -> tuple[Port, ...]:
    """What has to be fed of a model's inputs."""
    return tuple(Port(i.name, i.type, i.range) for i in inputs if i.name not in weights or i.initial is None)


def of_loss(model: Graph, train: Autodiff) -> GradientProblem:
    """The loss of a training step, in training mode, and its gradients by the weights that it trains.

    Raises:
        DlcError: nothing to train, labels do not fit, or ops have no gradient (all of them).
    """
    config, wide = train.training(), in_double(model)
    at = prediction_of(model.names, [op.type for op in model.outputs], train.of)
    step = step_input()
    wide, weights = begun(wide, at, train.wrt, train.initializer(), train.seed)
    trained = trained_model(wide, weights, config, step)
    labels, value = compared(trained, at, config)
    found = differentiated(trained, at, config)
    held = {name for name, w in trained.weights.items() if w.initial is not None}
    given = tuple(Port(i.name, i.type, i.range) for i in model.inputs if i.name not in held)
    ports = (*given, Port(config.label, config.loss.labels(model.outputs[at].type), labels.range))
    pairs = zip(trained.weights.items(), found.gradients, strict=True)
    inputs = (*trained.data, labels, *trained.running, step)
    return GradientProblem(f"{train.loss}", value, {name: (w, g) for (name, w), g in pairs}, ports, inputs)


def of_outputs(model: Graph, by: Sequence[str], seed: int) -> GradientProblem:
    """The sum of all float outputs, each element times a random number, at inference.

    Args:
        model: A graph of ops.
        by: Inputs to differentiate by; () for the weights.
        seed: Of the random numbers.

    Raises:
        DlcError: no weights, unknown names, no floats, or ops that have no gradient (all of them).
    """
    chosen_floats("output", (), dict(zip(model.names, model.outputs, strict=True)))
    wide = in_double(model)
    floats = [op for op in wide.outputs if op.dtype.is_float]
    weights = {} if by else weight_inputs(chosen((), tuple(floats)))
    constants = {op.name: op for op in wide.ops if isinstance(op, Constant) and op.name}
    moved = wide.substitute({constants[name]: w for name, w in weights.items() if name in constants})
    rng = np.random.default_rng(seed)
    terms: list[Op] = []
    for op in moved.outputs:
        if op.dtype.is_float:
            factors = Constant(Tensor.of(rng.standard_normal(op.shape)))
            terms.append(ReduceSum(Mul(op, factors), axes=tuple(range(op.type.rank)), keep=False))
    value = reduce(Add, terms)
    wrt = weights or chosen_floats("input", by, {i.name: i for i in moved.inputs})
    found = sweep((value,), (Splat(1.0, value.type),), tuple(wrt.values()), moved.origins)
    gradients = {name: (w, g) for (name, w), g in zip(wrt.items(), found.gradients, strict=True)}
    inputs = tuple(i for i in moved.inputs if i.name not in weights)
    return GradientProblem("the outputs, times random numbers", value, gradients, _ports(model.inputs, weights), inputs)
