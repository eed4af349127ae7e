"""The first tensor that a wrong step gives: against the state before it, or, where it read the model, against that."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from dlc.base.types import Array
from dlc.debug.bisect import WrongStep
from dlc.debug.divergence import Divergence, first_divergence, first_wrong_match, numpy_run
from dlc.debug.onnx_tensors import OnnxTensors
from dlc.debug.states import Closeness
from dlc.graph.graph import Graph


def first_tensor(
    wrong: WrongStep,
    model: Path,
    feeds: Mapping[str, Array],
    want: Mapping[str, Array],
    close: Closeness,
    tell: Callable[[str], object] = str,
) -> Divergence | None:
    """The first tensor that a step made wrong; None where no tensor can be compared, as in a plan.

    Args:
        wrong: The step.
        model: The model's file, for a step that read it; what it gave was compared with onnxruntime.
        feeds: Inputs by name.
        want: Outputs by name, as they should be.
        close: How far values may be apart.
        tell: Told what is evaluated now.
    """
    state, before = wrong.state, wrong.before
    if before is not None:
        if not isinstance(state.value, Graph) or wrong.wrong is None or wrong.unknown:
            return None
        return first_wrong_match(state.graph, before.graph, feeds, want, close)
    tensors = OnnxTensors.of(model, state.graph, feeds)
    run = numpy_run(state.graph, feeds)
    return first_divergence(state.graph, tensors.run, run, feeds, close, tensors.names.keys(), tell)
