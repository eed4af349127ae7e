"""onnxruntime without optimisation as the judge of a program, with the sensitivity of its results measured.

    y₀ = f(x, w)    yₖ = f(x·(1 + δ), w·(1 + δ))    |y - y₀| ≤ 8·maxₖ|yₖ - y₀| + 4 units

Inputs and float constants move by a few units in the last place, all at once, new for every sample. Where a sample
turns a choice, or a number into NaN, the element is undecided; NaN and infinities that no sample moves have to be
there. What only movements and choices make of inputs has to be equal. Elements beyond the bound are looked at with more
and larger perturbations; what stays is not yet a fault: rounding on the way may move a result more than operands do,
and onnxruntime has deviations of its own (`rules.py`). The reference evaluator decides then (`judge.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import import_module
from typing import Any, Final

import numpy as np
import onnx
from onnx import TensorProto, helper

from dlc.graph import Graph, evaluate
from dlc.verify.reference import exact_session
from tests.fuzz.model import Array, Model
from tests.fuzz.rounding import Spread, of_another_type, spread_of, wrong
from tests.fuzz.values import EXACT

SAMPLES: Final = ((4, 2.0), (24, 8.0))
"""Number of perturbed runs, and how far they move an operand, in units in the last place."""
UNITS: Final = 4.0
"""That a result may be off where no perturbation moves it."""


def exact_names(model: Model) -> frozenset[str]:
    """Values that nothing has rounded."""
    found = {*model.inputs, *model.constants, ""}
    for node in model.nodes:
        if node.op in EXACT and found.issuperset(node.operands):
            found.update(node.outputs)
    return frozenset(found)


@dataclass
class Judge:
    """What gives results for operands, and says how far they move."""

    def results(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Outputs by name."""
        raise NotImplementedError

    @cached_property
    def moving(self) -> dict[str, Array]:
        """Constants that are operands too."""
        return {}

    @cached_property
    def exact(self) -> frozenset[str]:
        """Outputs that nothing has rounded."""
        return frozenset()

    def spreads(self, feeds: Mapping[str, Array], count: int, units: float, seed: int) -> dict[str, Spread]:
        """Every output and how it moves."""
        base = self.results(feeds)
        rng = np.random.default_rng([seed, count])
        operands = {**feeds, **self.moving}
        moved = ({k: _moved(v, units, rng) for k, v in operands.items()} for _ in range(count))
        found = spread_of([*base.values()], ([*self.results(m).values()] for m in moved))
        named = dict(zip(base, found, strict=True))
        exact = self.exact if units < 1 << 10 else frozenset[str]()  # a device of coarser units rounds what it moves
        return {n: replace(s, most=np.zeros(s.value.shape)) if n in exact else s for n, s in named.items()}

    def differing(
        self, feeds: Mapping[str, Array], got: Mapping[str, Array], seed: int, coarse: float = 1.0
    ) -> tuple[list[str], dict[str, Spread]]:
        """Outputs that differ by more than perturbations explain, and every spread.

        Args:
            feeds: Operands by name.
            got: Results by name.
            seed: Of the perturbations.
            coarse: How many units in the last place one of the arithmetic that gave the results is.
        """
        bad: list[str] = []
        found: dict[str, Spread] = {}
        for count, units in SAMPLES:
            found = self.spreads(feeds, count, coarse * units, seed)
            bad = [n for n, s in found.items() if _differs(got[n], s, coarse * (coarse > 1 or n not in self.exact))]
            if not bad:
                break
        return bad, found


@dataclass
class Runtime(Judge):
    """onnxruntime, for all calls of a model."""

    model: Model
    name: Final = "onnxruntime"

    def results(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        names = list(self.model.outputs)
        return dict(zip(names, map(np.asarray, self.session.run(names, dict(feeds))), strict=True))

    @cached_property
    def session(self) -> Any:
        """Of the model with its float constants as inputs that have a value."""
        proto = onnx.ModelProto()
        proto.CopyFrom(self.model.onnx)
        known = {i.name for i in proto.graph.input}
        for name, array in self.moving.items():
            if name not in known:
                kind = helper.np_dtype_to_tensor_dtype(array.dtype)
                proto.graph.input.append(helper.make_tensor_value_info(name, kind, array.shape))
        for output in proto.graph.output:
            if output.type.tensor_type.elem_type == TensorProto.UNDEFINED:
                output.ClearField("type")
        return exact_session(import_module("onnxruntime"), proto.SerializeToString())

    @cached_property
    def moving(self) -> dict[str, Array]:
        fixed = {n.inputs[k] for n in self.model.nodes for k in _FIXED.get(n.op, ()) if k < len(n.inputs)}
        return {k: v for k, v in self.model.constants.items() if v.dtype.kind == "f" and v.size and k not in fixed}

    @cached_property
    def exact(self) -> frozenset[str]:
        return exact_names(self.model) & set(self.model.outputs)


@dataclass
class Evaluator(Judge):
    """The reference evaluator, of a graph whose weights are inputs."""

    graph: Graph
    name: Final = "the reference"

    def results(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        return dict(evaluate(self.graph, feeds))


_FIXED: Final[dict[str, Sequence[int]]] = {
    "Resize": (1, 2),
    "QLinearConv": (1, 4, 6),
    "QLinearMatMul": (1, 4, 6),
    "Pad": (2,),
    "Pow": (1,),
    "Clip": (1, 2),
}
"""Operator → operands that have to be constants, in onnxruntime or by their meaning: -1 has a power of 2, but none of
2.0000001, and a judge whose every sample is NaN decides nothing."""


def _moved(array: Array, units: float, rng: np.random.Generator) -> Array:
    if array.dtype.kind != "f":
        return array
    shape: tuple[int, ...] = array.shape
    width = units * float(np.finfo(array.dtype).eps)
    with np.errstate(over="ignore"):
        return np.asarray(array * rng.uniform(1 - width, 1 + width, shape)).astype(array.dtype)


def _differs(got: Array, want: Spread, coarse: float) -> bool:
    if of_another_type(got, want.value):
        return True
    if want.value.dtype.kind == "f" and coarse:
        with np.errstate(all="ignore"):
            units = coarse * UNITS * np.abs(np.spacing(want.value.astype(got.dtype))).astype(np.float64)
        want = replace(want, most=want.most + np.where(np.isfinite(units), units, 0.0) / 8)
    return bool(wrong(got, want).any())
