"""Losses as nodes of ONNX: SoftmaxCrossEntropyLoss, NegativeLogLikelihoodLoss, and squares by plain operators."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import onnx
from onnx import helper, numpy_helper

from dlc import DlcError
from dlc.base.diagnostics import ExitCode, error
from dlc.graph import Op
from dlc.ops.normalize import Softmax
from dlc.training.step.class_losses import CrossEntropy, Nll
from dlc.training.step.config import LOSS
from dlc.training.step.difference_losses import Mse
from dlc.training.step.loss import Loss

_LEAST: Final = 12
"""The operator set in which losses came."""
Part = onnx.NodeProto | onnx.TensorProto


def loss_nodes(
    loss: Loss, name: str, prediction: Op, label: str, version: int, graph: onnx.GraphProto
) -> Iterator[Part]:
    """The nodes that compute the value `loss`, and the constants they read.

    Args:
        loss: What to compute.
        name: Of the prediction in the graph.
        prediction: What dlc reads it as.
        label: Name of the labels.
        version: Of the operator set.
        graph: Has the prediction.

    Raises:
        DlcError: (USAGE) there are no such operators.
    """
    match loss:
        case CrossEntropy(one_hot=one_hot, smoothing=smoothing) if one_hot or smoothing:
            raise _refused("labels that are probabilities, or smoothed")
        case CrossEntropy(axis=axis) | Nll(axis=axis) if axis % len(prediction.shape) != 1:
            raise _refused(f"classes along axis {axis} instead of 1")
        case CrossEntropy() | Nll() if version < _LEAST:
            help = f"convert it: onnx.version_converter.convert_version(model, {_LEAST})"
            raise _refused(f"{loss.name} in operator set {version}, which has no losses", help)
        case CrossEntropy():
            scores = _before_softmax(name, graph) if isinstance(prediction, Softmax) else name
            yield from _of_classes("SoftmaxCrossEntropyLoss", loss, scores, label, prediction)
        case Nll():
            yield from _of_classes("NegativeLogLikelihoodLoss", loss, name, label, prediction)
        case Mse(reduction=reduction):
            yield helper.make_node("Sub", [name, label], ["loss.difference"], name="loss.difference")
            yield helper.make_node("Mul", ["loss.difference"] * 2, ["loss.squares"], name="loss.squares")
            kind = "ReduceMean" if reduction == "mean" else "ReduceSum"
            yield helper.make_node(kind, ["loss.squares"], [LOSS], name=LOSS, keepdims=0)
        case _:
            raise _refused(f"the loss {loss.name}")


def _of_classes(operator: str, loss: CrossEntropy | Nll, scores: str, label: str, prediction: Op) -> Iterator[Part]:
    inputs = [scores, label]
    if loss.weights:
        yield numpy_helper.from_array(np.asarray(loss.weights, prediction.dtype.numpy), "loss.weights")
        inputs.append("loss.weights")
    settings: dict[str, Any] = {} if loss.ignore is None else {"ignore_index": loss.ignore}
    yield helper.make_node(operator, inputs, [LOSS], name=LOSS, reduction=loss.reduction, **settings)


def _before_softmax(name: str, graph: onnx.GraphProto) -> str:
    """The scores that an output is the softmax of: what `cross-entropy` reads in its place."""
    makers = {output: node for node in graph.node for output in node.output}
    node = makers.get(name)
    while node is not None and node.op_type in ("Identity", "Dropout"):
        node = makers.get(node.input[0])
    if node is None or node.op_type != "Softmax":
        raise _refused("a softmax inside a function")
    return node.input[0]


def _refused(what: str, help: str = "losses that can be written: cross-entropy, nll, mse") -> DlcError:
    return error("no-export", f"export: ONNX has no loss for {what}", help=help, exit_code=ExitCode.USAGE)
