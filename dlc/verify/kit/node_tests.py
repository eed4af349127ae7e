"""ONNX's own node tests, of the operators that a backend claims: models and expected outputs of the onnx package."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from itertools import chain
from pkgutil import iter_modules
from random import Random
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dlc.api.source import Source
from dlc.base.diagnostics import DlcError
from dlc.base.report import Report
from dlc.base.types import Array, dtype_of_numpy
from dlc.driver.legality import asks_about_ops
from dlc.plugins.plugin import pip_install
from dlc.spec import Spec
from dlc.verify.kit.backends import accepted
from dlc.verify.kit.check import Check, Skipped, Wrong
from dlc.verify.kit.programs import agree, program_of

if TYPE_CHECKING:
    from dlc.api.backend import Backend
    from dlc.graph import Graph
    from dlc.plugins.entry import Entry
    from dlc.verify.kit.subject import Subject

BUILT: Final = 40
"""Tests that are built and run."""
LOOKED_AT: Final = 400
"""Tests that are looked at: of most of them, most backends refuse the operator."""
_CASES: Final = "onnx.backend.test.case.node"
"""The package with a module of tests for each operator."""
_OPEN: Final = ("test_bernoulli", "test_dropout", "test_random", "test_training_dropout")
"""Tests whose numbers the standard leaves open."""
_CONTRADICTS: Final = ("test_maxunpool_export_with_output_shape",)
"""Tests that contradict the standard: of onnx 1.23 and before, it reads indices as no MaxPool gives them."""


@dataclass(frozen=True)
class NodeTest:
    """One test."""

    name: str
    model: bytes
    inputs: tuple[Array, ...]
    outputs: tuple[Array, ...]


def node_tests(first: frozenset[str], seed: int) -> Iterator[NodeTest]:
    """The tests whose inputs and outputs are tensors.

    Args:
        first: Names of ops, as graphs have them; tests of operators with such names come first.
        seed: Of the order of the others.

    Raises:
        Skipped: the onnx package is not installed.
    """
    if find_spec("onnx") is None:
        raise Skipped("the onnx package is not installed, which has the tests", "pip install onnx")
    package: Any = import_module(_CASES)
    known = len(package._NodeTestCases)
    names = sorted(m.name for m in iter_modules(package.__path__) if not m.name.startswith("_"))
    Random(seed).shuffle(names)
    plain = {name.replace("_", "") for name in first}
    names.sort(key=lambda name: name.replace("_", "") not in plain)
    earlier = [case for case in package._NodeTestCases[:known] if id(case) not in _ours]
    for case in chain((case for name in names for case in _cases_of(name)), earlier):
        if not case.name.startswith((*_OPEN, *_CONTRADICTS)):
            inputs, outputs = case.data_sets[0]
            if all(map(_is_tensor, (*inputs, *outputs))):
                yield NodeTest(case.name, case.model.SerializeToString(), tuple(inputs), tuple(outputs))


_ours: set[int] = set()
"""Tests that `_cases_of` gave; others were made before, by whoever imported their modules."""


@cache
def _cases_of(name: str) -> tuple[Any, ...]:
    """The tests of a module, which are made when it is imported; none where somebody did that before."""
    package: Any = import_module(_CASES)
    known = len(package._NodeTestCases)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        import_module(f"{_CASES}.{name}")
    found = tuple(package._NodeTestCases[known:])
    _ours.update(map(id, found))
    return found


def _is_tensor(value: Any) -> bool:
    return isinstance(value, np.ndarray) and dtype_of_numpy(np.dtype(value.dtype)) is not None  # pyright: ignore


def passes_node_tests(subject: Subject, entry: Entry) -> str:
    """That every test whose model the backend builds gives the expected outputs."""
    if "onnx" not in subject.registry.frontends:
        raise Skipped("the ONNX frontend is not installed", pip_install("onnx"))
    backend = subject.registry.backend(Spec(entry.name))
    ran = refused = 0
    for number, test in enumerate(node_tests(accepted(subject, backend), subject.seed)):
        graph = _claimed(subject, backend, test)
        try:
            program = None if graph is None else program_of(subject, graph, entry.name)
        except (Exception, SystemExit) as problem:
            problem.add_note(test.name)  # which of them it is, whatever a plugin raised
            raise
        if graph is None or program is None:
            refused += 1
        elif len(graph.inputs) == len(test.inputs):
            values = {i.name: a for i, a in zip(graph.inputs, test.inputs, strict=True)}
            agree(test.name, program, values, dict(zip(graph.names, test.outputs, strict=True)), backend, "expected")
            ran += 1
        if ran == BUILT * subject.rounds or number == LOOKED_AT * subject.rounds:
            break
    if not ran:
        raise Wrong(
            f"none of {refused} node tests is built", "accepts and emit have to agree: what is accepted is built"
        )
    return f"{ran} tests, {refused} refused with a reason"


def _claimed(subject: Subject, backend: Backend, test: NodeTest) -> Graph | None:
    """The model as a graph, if the frontend reads it and the backend accepts one of its ops at least."""
    try:
        source = Source(data=test.model, label=f"{test.name}.onnx")
        graph = subject.registry.frontend(Spec("onnx")).graph(source, Report())
    except DlcError:
        return None
    claimed = not asks_about_ops(backend) or any(backend.accepts(op) is True for op in graph.ops if op.operands)
    return graph if claimed else None


CHECKS = (
    Check(
        "backend-node-tests",
        "ONNX's node tests of the ops that it accepts give what they expect",
        passes_node_tests,
        "backends",
        4,
    ),
)
