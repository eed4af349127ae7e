"""A training step as an ONNX model, of the operators of ai.onnx.preview.training.

    p = f(x), w stored   →   loss, w.new, s.new, step.new = step(x, labels, w, s, step)

The step computes what the pass `autodiff` with the same options does. Weights, running statistics of batch
normalisations, the optimizer's state WEIGHT.KEY and `step` (i64[]) are inputs NAME and outputs NAME.new, for whoever
runs it to feed back. Weights and statistics begin with what the model stores, states with zeros (a sum of Adagrad with
its `initial`). Nodes are those of the model, a loss of the standard, Gradient, and one Adam, Momentum or Adagrad.

Of Adam the standard adds epsilon before the bias is corrected: `eps` counts √(1 - β₂ᵗ) times as much there as in
PyTorch, which shows only where gradients are as small as `eps`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final

import onnx
from onnx import TensorProto, helper

from dlc import DlcError, Report, Source
from dlc.base.diagnostics import ExitCode, error, quote
from dlc.base.types import f32, f64
from dlc.graph import Input, Op
from dlc.passes.autodiff import Autodiff
from dlc.training.step.config import LOSS, STEP
from dlc.training.step.optimizers import Adagrad, Adam, AdamW, Optimizer, Sgd
from dlc.training.step.schedules import Constant
from dlc.training.step.trained import prediction_of
from dlc.training.step.weights import chosen
from dlc_frontend_onnx.calls import calls, versions_of
from dlc_frontend_onnx.loss_nodes import loss_nodes
from dlc_frontend_onnx.order import TRAINING, node_names, reads
from dlc_frontend_onnx.parameters import repeated
from dlc_frontend_onnx.tensors import code_of

if TYPE_CHECKING:
    from dlc_frontend_onnx.frontend import Onnx

NEW: Final = "new"
RATE: Final = "learning_rate"
_LEAST_IR: Final = 7
_BATCH_NORM: Final = 14
"""The operator set in which BatchNormalization got a training mode that this step can use."""
_MEANT: Final = frozenset(("loss", "optimizer", "wrt", "of", "label", "outputs", "stored_norms", "momentum"))
"""Options of `autodiff` that such a step can follow."""


@dataclass(frozen=True)
class _Update:
    """How an optimizer is written."""

    operator: str
    states: tuple[str, ...]
    """What is kept of each weight, by the names of `dlc.training`, in the operator's order."""
    attributes: Mapping[str, float | str]
    counts_from: int
    """What the operator takes as the number of the first step."""


def training_model(frontend: Onnx, source: Source, train: Autodiff) -> bytes:
    """The training step of an ONNX model, as an ONNX model.

    Args:
        frontend: Reads the model; sizes that it binds hold for the labels.
        source: The model.
        train: What a step does.

    Raises:
        DlcError: no weights, labels that do not fit, an option or a model that the standard's operators cannot follow.
    """
    for field in fields(train):
        if field.name not in _MEANT and getattr(train, field.name) != field.default:
            raise _refused(f"{field.name} has no counterpart in ONNX", "leave it out; a build with --train has it")
    config = train.training()
    update = _update(config.optimizer)
    graph = frontend.parse(source, Report())
    at = prediction_of(graph.names, [op.type for op in graph.outputs], train.of)
    weights = chosen(train.wrt, (graph.outputs[at],))
    narrow = [name for name, op in weights.items() if op.dtype not in (f32, f64)]
    if narrow:
        message = f"optimizers of ONNX take f32 and f64, but {quote(narrow[0])} is {weights[narrow[0]].type}"
        raise _refused(message, "export the model in single precision")
    original = onnx.ModelProto()
    original.ParseFromString(frontend.template(source, ()))
    norms = {} if train.stored_norms else _norms(original, frontend, weights)
    model = onnx.ModelProto()
    model.ParseFromString(frontend.template(source, (*weights, *(s for pair in norms.values() for s in pair))))
    labels = config.loss.labels(graph.outputs[at].type)
    config.loss.value(graph.outputs[at], Input(config.label, labels))  # refuses what does not fit
    step = _Step(model, source.name, weights, norms)
    step.normalise_by_batch(train.momentum)
    step.add_input(config.label, code_of(labels.dtype), labels.shape)
    version = versions_of(model.opset_import).get("", 1)
    for part in loss_nodes(config.loss, graph.names[at], graph.outputs[at], config.label, version, model.graph):
        step.add(part)
    kept = [o.name for o in model.graph.output] if config.outputs else []
    step.differentiate()
    step.update(update, config.optimizer)
    step.finish(code_of(graph.outputs[at].dtype), kept)
    return model.SerializeToString()


class _Step:
    """The model on its way: parts are added to it in the order of this class."""

    def __init__(
        self, model: onnx.ModelProto, source: str, weights: Mapping[str, Op], norms: Mapping[str, tuple[str, str]]
    ) -> None:
        self.model, self.source, self.weights, self.norms = model, source, weights, norms
        self.graph = model.graph
        self.outputs: list[str] = []
        """NAME of every NAME.new, in order."""
        self._taken = {name for n in self.graph.node for name in n.output} | {i.name for i in self.graph.input}
        self._taken |= {t.name for t in self.graph.initializer}
        model.ir_version = max(model.ir_version, _LEAST_IR)
        if TRAINING not in versions_of(model.opset_import):
            model.opset_import.append(helper.make_opsetid(TRAINING, 1))
        self._types = {t.name: (t.data_type, tuple(t.dims)) for t in self.graph.initializer}
        moved = [*weights, *(name for pair in norms.values() for name in pair)]
        stored = [t for t in self.graph.initializer if t.name not in moved]
        data = [i for i in self.graph.input if i.name not in self._types]
        del self.graph.input[:], self.graph.initializer[:]
        self.graph.input.extend(data)
        self.graph.input.extend(helper.make_tensor_value_info(name, *self._types[name]) for name in moved)
        self.graph.initializer.extend(stored)

    def add(self, part: onnx.NodeProto | onnx.TensorProto) -> None:
        """A node or an initializer with names of its own."""
        names = list(part.output) if isinstance(part, onnx.NodeProto) else [part.name]
        self._take(*names)
        if isinstance(part, onnx.NodeProto):
            self.graph.node.append(part)
        else:
            self.graph.initializer.append(part)

    def add_input(self, name: str, code: int, shape: Sequence[int]) -> None:
        """An input with a name of its own."""
        self._take(name)
        self.graph.input.append(helper.make_tensor_value_info(name, code, shape))
        self._types[name] = code, tuple(shape)

    def normalise_by_batch(self, momentum: float | None) -> None:
        """Batch normalisations in training mode, with their new statistics as results."""
        made = {node.output[0]: node for node in self.graph.node if node.output}
        for result, names in self.norms.items():
            node = made[result]
            new_ones = {"training_mode": 1, **({} if momentum is None else {"momentum": momentum})}
            kept = [a for a in node.attribute if a.name not in new_ones]
            del node.attribute[:]
            node.attribute.extend([*kept, *(helper.make_attribute(key, value) for key, value in new_ones.items())])
            new = [f"{name}.{NEW}" for name in names]
            self._take(*new)
            node.output[:] = [node.output[0], *new]
            self.outputs.extend(names)

    def differentiate(self) -> None:
        """The gradients of the weights."""
        needed = _needed(self.graph, [LOSS])
        others = [i.name for i in self.graph.input if i.name in needed and i.name not in self.weights]
        names = [*self.weights, *others]
        results = [f"{name}.gradient" for name in self.weights]
        settings: dict[str, Any] = {"xs": list(self.weights), "y": LOSS, **({"zs": others} if others else {})}
        self.add(helper.make_node("Gradient", names, results, name="gradient", domain=TRAINING, **settings))

    def update(self, update: _Update, optimizer: Optimizer) -> None:
        """New weights and states."""
        number = STEP
        self.add_input(STEP, TensorProto.INT64, ())
        self.add(helper.make_tensor("one", TensorProto.INT64, (), [1]))
        self.add(helper.make_node("Add", [STEP, "one"], [f"{STEP}.{NEW}"], name="count"))
        if update.counts_from:
            number = f"{STEP}.{NEW}"
        wide = any(self._types[name][0] == TensorProto.DOUBLE for name in self.weights)
        self.add(helper.make_tensor(RATE, TensorProto.DOUBLE if wide else TensorProto.FLOAT, (), [optimizer.lr]))
        states = [f"{name}.{key}" for key in update.states for name in self.weights]
        for state in states:
            code, shape = self._types[state.rpartition(".")[0]]
            self.add_input(state, code, shape)
        changed = [*self.weights, *states]
        settings: dict[str, Any] = dict(update.attributes)
        self.add(
            helper.make_node(
                update.operator,
                [RATE, number, *self.weights, *(f"{name}.gradient" for name in self.weights), *states],
                [f"{name}.{NEW}" for name in changed],
                name="update",
                domain=TRAINING,
                **settings,
            )
        )
        self.outputs = [*self.weights, *self.outputs, *states, STEP]

    def finish(self, loss: int, kept: Collection[str]) -> None:
        """Outputs, and nothing that they do not need."""
        old = [o for o in self.graph.output if o.name in kept]
        del self.graph.output[:]
        outputs = [(LOSS, (loss, ())), *((f"{name}.{NEW}", self._types[name]) for name in self.outputs)]
        infos = [helper.make_tensor_value_info(name, code, shape) for name, (code, shape) in outputs]
        self.graph.output.extend([infos[0], *old, *infos[1:]])
        needed = _needed(self.graph, [o.name for o in self.graph.output])
        nodes = [n for n in self.graph.node if not needed.isdisjoint(n.output)]
        stored = [t for t in self.graph.initializer if t.name in needed]
        inputs = [i for i in self.graph.input if i.name not in self._types or i.name in needed]
        del self.graph.node[:], self.graph.initializer[:], self.graph.input[:]
        self.graph.node.extend(nodes)
        self.graph.initializer.extend(stored)
        self.graph.input.extend(inputs)

    def _take(self, *names: str) -> None:
        for name in names:
            if name in self._taken:
                help = "give the labels another name: label=NAME" if "." not in name else "rename it in the model"
                raise _refused(f"{self.source} has a value named {quote(name)} already", help)
            self._taken.add(name)


def _norms(model: onnx.ModelProto, frontend: Onnx, weights: Collection[str]) -> dict[str, tuple[str, str]]:
    """Result of a BatchNormalization that is trained → the names of its running mean and variance."""
    inner = [*(n for f in model.functions for n in f.node), *_branches(model.graph.node)]
    if any(operator == "BatchNormalization" for _, operator, _ in calls(inner)):
        raise _refused("a BatchNormalization inside a function or branch", "inline it, or add stored-norms=yes")
    known = {*repeated(model.graph, frontend.tied), *(t.name for t in model.graph.initializer)}
    found: dict[str, tuple[str, str]] = {}
    for name, node in zip(node_names(model.graph.node), model.graph.node, strict=True):
        if node.op_type != "BatchNormalization" or len(node.output) > 1:
            continue
        named = {i for i in node.input[1:3] if i in known}
        if named and named.isdisjoint(weights):
            continue  # a frozen layer keeps the statistics it has
        mean, var = (
            i if i in known else f"{name}.{key}" for key, i in zip(("mean", "var"), node.input[3:5], strict=True)
        )
        found[node.output[0]] = mean, var
    names = [name for pair in found.values() for name in pair]
    if len(set(names)) < len(names):
        raise _refused("batch normalisations share their statistics", "store them once for each layer")
    version = versions_of(model.opset_import).get("", 1)
    if found and version < _BATCH_NORM:
        help = f"convert it: onnx.version_converter.convert_version(model, {_BATCH_NORM}), or add stored-norms=yes"
        raise _refused(f"operator set {version} has no BatchNormalization in training mode", help)
    return found


def _branches(nodes: Sequence[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    for node in nodes:
        for a in node.attribute:
            if a.type == onnx.AttributeProto.GRAPH:
                yield from a.g.node


def _update(optimizer: Optimizer) -> _Update:
    """The operator that does what an optimizer does."""
    if optimizer.schedule != Constant():
        raise _refused(f"{optimizer.schedule} has no counterpart in ONNX", "leave the schedule out, and feed the rate")
    match optimizer:
        case AdamW():
            why = "Adam of ONNX takes weight decay off after its step, AdamW before"
        case Adam(amsgrad=True):
            why = "Adam of ONNX keeps no largest mean square"
        case Adam(betas=(alpha, beta), eps=eps, weight_decay=decay):
            found = {"alpha": alpha, "beta": beta, "epsilon": eps, "norm_coefficient": decay}
            return _Update("Adam", ("mean", "square"), found, 1)
        case Sgd(momentum=alpha, dampening=dampening, nesterov=ahead, weight_decay=decay):
            found = {"alpha": alpha, "beta": 1 - dampening, "norm_coefficient": decay}
            return _Update("Momentum", ("momentum",), {**found, "mode": "nesterov" if ahead else "standard"}, 0)
        case Adagrad(lr_decay=fall, eps=eps, weight_decay=decay):
            return _Update("Adagrad", ("sum",), {"decay_factor": fall, "epsilon": eps, "norm_coefficient": decay}, 0)
        case _:
            why = f"ONNX has no operator for {optimizer.name}"
    raise _refused(why, "optimizers with one: sgd, adam and adagrad")


def _needed(graph: onnx.GraphProto, wanted: Collection[str]) -> set[str]:
    """All names that values depend on."""
    made = {name: node for node in graph.node for name in node.output if name}
    found, stack = set[str](), list(wanted)
    while stack:
        name = stack.pop()
        if name not in found:
            found.add(name)
            if name in made:
                stack += reads(made[name])
    return found


def _refused(message: str, help: str) -> DlcError:
    return error("no-export", f"export: {message}", help=help, exit_code=ExitCode.USAGE)
