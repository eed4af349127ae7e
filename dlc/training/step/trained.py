"""A model with weights that move: its parameters as inputs, its loss, its gradients; and graphs made of these.

Inputs and outputs of one name share their memory (`Graph.aliases`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dlc.base.diagnostics import DlcError, ExitCode, did_you_mean, error, quote
from dlc.base.types import Type
from dlc.graph import Constant, Graph, Input, Op, Splat
from dlc.graph.gradient import Names, sweep
from dlc.graph.graph import with_live_origins
from dlc.ops.normalize import BatchNorm
from dlc.spec import OptionError
from dlc.training.step.batch_norm import TrainingBatchNorms, training_batch_norms
from dlc.training.step.config import TrainingConfig
from dlc.training.step.dropout import with_step, without_dropout

Pairs = Sequence[tuple[str, Op]]


@dataclass(frozen=True)
class TrainableModel:
    """A model whose parameters are inputs."""

    data: tuple[Input, ...]
    """The model's own inputs, without weights."""
    weights: Mapping[str, Input]
    running: tuple[Input, ...]
    """Running statistics of batch normalisations."""
    names: tuple[str, ...]
    outputs: tuple[Op, ...]
    """Names and values of the model's outputs."""
    moved: tuple[Op, ...]
    """New values of `running`; none at inference."""
    norms: TrainingBatchNorms
    origins: Names


@dataclass(frozen=True)
class Differentiated:
    """A model with its loss and gradients, computed from common parts."""

    loss: Op
    labels: Input
    gradients: tuple[Op, ...]
    """One per weight, of its type."""
    outputs: tuple[tuple[str, Op], ...]
    """The model's own, where the config wants them."""
    moved: Mapping[str, Op]
    """New running statistics by name."""
    scattered: tuple[tuple[str, str], ...]
    origins: Names

    def idle(self, weights: Mapping[str, Input]) -> tuple[str, ...]:
        """Names of weights whose gradient is zero everywhere."""
        return tuple(name for name, g in zip(weights, self.gradients, strict=True) if isinstance(g, Splat))


def prediction_of(names: Sequence[str], types: Sequence[Type], of: str) -> int:
    """The index of the output that the loss reads: the one named `of`, or the first of a float type.

    Raises:
        DlcError: (USAGE) there is no such output.
    """
    floats = [k for k, t in enumerate(types) if t.dtype.is_float and not t.dtype.library]
    if of in names and names.index(of) in floats:
        return names.index(of)
    if not of and floats:
        return floats[0]
    known = [names[k] for k in floats]
    if not known:
        found = ", ".join(f"{quote(n)} {t}" for n, t in zip(names, types, strict=True))
        help = "only f16, f32 and f64 are trained: export what the model's outputs are chosen from, such as scores"
        raise _refused(f"the model has no output of a float type: {found}", help)
    problem = _refused(f"the model has no float output {quote(of)}", did_you_mean(of, known, "outputs"))
    raise OptionError(problem, "of", of)


def weight_inputs(weights: Mapping[str, Op]) -> dict[str, Input]:
    """The inputs that weights become."""
    return {name: _weight(name, op) for name, op in weights.items()}


def trained_model(model: Graph, weights: Mapping[str, Op], config: TrainingConfig, step: Op | None) -> TrainableModel:
    """The model with its weights as inputs.

    Args:
        model: A graph of ops, at the level of the pass `autodiff`.
        weights: Constants of the model, or inputs with the role of weights, by name; float.
        config: What becomes of batch normalisations.
        step: i64[], what random numbers depend on in training mode; None: as at inference.
    """
    given = weight_inputs(weights)
    moved = model.substitute({op: given[name] for name, op in weights.items() if isinstance(op, Constant)})
    norms = _norms(moved, config, training=step is not None)
    changed = without_dropout(norms.graph) if step is None else with_step(norms.graph, step)
    own = len(model.outputs)
    data = tuple(i for i in model.inputs if i.name not in given)
    running = changed.inputs[len(model.inputs) :]
    outputs, statistics = changed.outputs[:own], changed.outputs[own:]
    return TrainableModel(data, given, running, model.names, outputs, statistics, norms, changed.origins)


def compared(model: TrainableModel, prediction: int, config: TrainingConfig) -> tuple[Input, Op]:
    """The input of the labels, and the loss of an output, by its index."""
    value = model.outputs[prediction]
    of, classes = config.loss.labels(value.type), config.loss.classes(value.type)
    allowed = classes.allowed if classes is not None else None
    labels = Input(config.label, of, "label", allowed=allowed.text if allowed else "")
    return labels, config.loss.value(value, labels)


def differentiated(model: TrainableModel, prediction: int, config: TrainingConfig) -> Differentiated:
    """The loss of an output and its gradients.

    Raises:
        DlcError: ops on the way have no gradient (all of them), or labels do not fit.
    """
    labels, loss = compared(model, prediction, config)
    kept = model.outputs if config.outputs else ()
    seed = Splat(1.0, loss.type)
    wrt, also = tuple(model.weights.values()), (*kept, *model.moved)
    found = sweep((loss,), (seed,), wrt, model.origins, also, frozenset(config.named))
    values = found.outputs[1:]
    outputs = tuple(zip(model.names, values, strict=False)) if config.outputs else ()
    moved = {i.name: value for i, value in zip(model.running, values[len(kept) :], strict=True)}
    return Differentiated(found.outputs[0], labels, found.gradients, outputs, moved, found.scattered, found.origins)


def assembled(inputs: Sequence[Input], plain: Pairs, new: Mapping[str, Op], origins: Names, label: str = "") -> Graph:
    """A graph that gives `plain`, then new values of some of its inputs, by their names, in place.

    Raises:
        DlcError: two inputs or two outputs have one name.
    """
    names = (*(name for name, _ in plain), *new)
    at = {i.name: k for k, i in enumerate(inputs)}
    _check_names([i.name for i in inputs], "inputs", label)
    _check_names(names, "outputs", label)
    aliases = tuple((len(plain) + k, at[name]) for k, name in enumerate(new))
    outputs = (*(op for _, op in plain), *new.values())
    return with_live_origins(Graph(tuple(inputs), outputs, names, aliases, origins))


def _norms(model: Graph, config: TrainingConfig, *, training: bool) -> TrainingBatchNorms:
    """The model with batch normalisations by their batch, where the config wants it and they are trained."""
    frozen = {op.name for op in model.ops if isinstance(op, Constant) and op.name}
    if config.stored_norms:
        fixed = tuple(("", "stored statistics are asked for") for op in model.ops if isinstance(op, BatchNorm))
        return TrainingBatchNorms(model, (), 0, fixed)
    return training_batch_norms(model, frozen, config.momentum, by_batch=training)


def _weight(name: str, op: Op) -> Input:
    match op:
        case Input():
            return op
        case Constant(tensor=tensor):
            return Input(name, op.type, "weight", tensor)
        case _:
            raise TypeError(f"{name} is computed: it cannot be a weight")


def _check_names(names: Sequence[str], what: str, label: str) -> None:
    """Raises DlcError: a name that the step adds is one of the model's."""
    twice = list(dict.fromkeys(n for n in names if names.count(n) > 1))
    if twice:
        rename = "give the labels another name: label=NAME" if twice == [label] else "rename it in the model"
        message = f"autodiff: two {what} of the step would be named {', '.join(map(quote, twice))}"
        raise error("duplicate-name", message, help=rename)


def _refused(message: str, help: str) -> DlcError:
    return error("no-gradient", f"autodiff: {message}", help=help, exit_code=ExitCode.USAGE)
