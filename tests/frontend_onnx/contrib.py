"""Cases of onnxruntime's own operators, and how their results are compared with those of onnxruntime."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper

import dlc
from dlc.graph import evaluate
from tests.frontend_onnx.building import QUICK, model_of, parse, runtime

DOMAIN = "com.microsoft"
Array = Any
Formula = Callable[..., Sequence[Array]]


@dataclass
class Case:
    """One node of the domain com.microsoft."""

    op: str
    operands: Sequence[Array | None]
    """None: left out."""
    attributes: dict[str, Any] = field(default_factory=dict[str, Any])
    fixed: Sequence[int] = ()
    """Operands that are constants of the model."""
    outputs: Sequence[bool] = (True,)
    """Which results are used."""
    steps: int = 0
    """By how much integers may differ: onnxruntime rounds in other places."""
    rtol: float = 1e-4
    atol: float = 1e-5
    formula: Formula | None = None
    """The results by numpy, where onnxruntime has no kernel for CPUs."""
    shown: Sequence[Any] = ()
    """Of each result what is defined; all of it where nothing is said."""
    domain: str = DOMAIN

    def __str__(self) -> str:
        shapes = ",".join("-" if a is None else "x".join(map(str, np.shape(a))) for a in self.operands)
        given = ",".join(f"{k}={v}" for k, v in self.attributes.items())
        return f"{self.op}({shapes}){given}".replace(" ", "")

    def node(self, prefix: str = "") -> onnx.NodeProto:
        """The node, all of its names behind a prefix."""
        inputs = ["" if a is None else f"{prefix}x{k}" for k, a in enumerate(self.operands)]
        outputs = [f"{prefix}y{k}" if used else "" for k, used in enumerate(self.outputs)]
        return helper.make_node(self.op, inputs, outputs, domain=self.domain, **self.attributes)

    def values(self, constant: bool, prefix: str = "") -> dict[str, Array]:
        """The operands that are constants, or those that are inputs."""
        given = {k: a for k, a in enumerate(self.operands) if a is not None}
        return {f"{prefix}x{k}": np.asarray(a) for k, a in given.items() if (k in self.fixed) is constant}

    @property
    def names(self) -> list[str]:
        """The results that are used."""
        return [f"y{k}" for k, used in enumerate(self.outputs) if used]

    def model(self, opset: int = 17) -> onnx.ModelProto:
        """The case as a model of one node."""
        return model_of([self.node()], self.values(False), self.names, self.values(True), opset, [DOMAIN])

    def wanted(self) -> list[Array]:
        """The results by onnxruntime, or by the formula."""
        if self.formula is None:
            return runtime(self.model(), self.names, self.values(False))
        operands = [None if a is None else np.asarray(a) for a in self.operands]
        return list(self.formula(*operands, **self.attributes))

    def check(self, got: Mapping[str, Array], prefix: str = "") -> None:
        """Assert that results are those that are wanted."""
        for k, (name, want) in enumerate(zip(self.names, self.wanted(), strict=True)):
            have = got[prefix + name]
            assert (have.dtype, have.shape) == (want.dtype, want.shape), name
            part = self.shown[k] if k < len(self.shown) else ...
            equal(have[part], want[part], self.steps, self.rtol, self.atol)


def equal(have: Array, want: Array, steps: int = 0, rtol: float = 1e-4, atol: float = 1e-5) -> None:
    """Assert that arrays agree; integers by steps, and no more than one in fifty may differ at all."""
    if have.dtype.kind in "iu":
        differing = np.abs(have.astype(np.int64) - want.astype(np.int64))
        assert differing.max(initial=0) <= steps
        assert (differing > 0).mean() <= 0.02 if steps and have.size > 50 else True
    else:
        np.testing.assert_allclose(have, want, rtol=rtol, atol=atol)


def interpreted(case: Case) -> None:
    """Assert that dlc's interpreter and onnxruntime agree on a case."""
    case.check(evaluate(parse(case.model()), case.values(False)))


def together(cases: Sequence[Case], opset: int = 17) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """One model with a node for each case, and its inputs: it is compiled once for all."""
    nodes: list[onnx.NodeProto] = []
    feeds: dict[str, Array] = {}
    stored: dict[str, Array] = {}
    outputs: list[str] = []
    for k, case in enumerate(cases):
        prefix = f"n{k}_"
        nodes.append(case.node(prefix))
        feeds |= case.values(False, prefix)
        stored |= case.values(True, prefix)
        outputs += [prefix + name for name in case.names]
    return model_of(nodes, feeds, outputs, stored, opset, [DOMAIN]), feeds


def compiled(cases: Sequence[Case], builds: Path) -> None:
    """Assert that compiled C and onnxruntime agree on the first case of each operator and type."""
    chosen = {(c.op, str(np.asarray(c.operands[0]).dtype)): c for c in reversed(cases)}
    model, feeds = together(list(chosen.values()))
    program: Any = dlc.build(model.SerializeToString(), QUICK, cache_dir=builds)
    got = program(feeds)
    for k, case in enumerate(chosen.values()):
        case.check(got, f"n{k}_")
