"""Checks of backends, in the order in which a port to a new target grows.

level 1   its memories, options and pipeline: dlc plan and reports work
level 2   `accepts` says what it builds, and why not: coverage is known
level 3   programs of the ops that it has run, and give the right values
level 4   ONNX's own node tests of these ops; programs and cache keys that depend on the model alone
level 5   costs are estimated, steps are measured, schedules can be tuned
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import numpy as np

from dlc.api.backend import Backend
from dlc.api.passes import check_chain
from dlc.base.diagnostics import DlcError
from dlc.base.types import Type, f32
from dlc.driver.legality import asks_about_ops
from dlc.driver.pipeline import resolve
from dlc.graph import Constant, Graph, Input, Op, Splat, Tensor, evaluate
from dlc.graph.evaluate import is_constant
from dlc.graph.text import is_inline
from dlc.ops.linear import MatMul
from dlc.ops.shape import Reshape
from dlc.spec import Spec
from dlc.verify.kit.answers import answer
from dlc.verify.kit.check import Check, Skipped, Wrong, tried
from dlc.verify.kit.programs import agree, artifact_of, program_of
from dlc.verify.kit.random_graphs import KINDS, drawn, feeds, random_graph
from dlc.verify.kit.shared_graphs import MIXED
from dlc.verify.kit.subject import in_words

if TYPE_CHECKING:
    from dlc.plugins.entry import Entry
    from dlc.verify.kit.subject import Subject

GRAPHS: Final = 8
"""Random graphs that are built."""
OPS: Final = 40
"""Ops that are tried for each: those that the target does not have are left out."""
_ASKED: Final = 60
"""Random graphs whose ops a backend is asked about."""


def _backends(subject: Subject, entry: Entry) -> Iterator[tuple[str, Backend]]:
    for spec in subject.specs(entry):
        backend = subject.registry.backend(spec)
        yield str(spec), backend


def describes(subject: Subject, entry: Entry) -> str:
    """That memories are possible ones, and its pipeline leads to what it takes."""
    regions = 0
    for text, backend in _backends(subject, entry):
        for name, region in backend.regions().items():
            if region.align < 1 or (region.limit is not None and region.limit < 0):
                raise Wrong(
                    f"{text}: memory {name} is aligned to {region.align} bytes and holds {region.limit}",
                    "sizes are positive",
                )
            regions += 1
        if backend.consumes == "plan" and not backend.regions():
            raise Wrong(f"{text} takes plans and has no memory", "name one in regions")
        for name, what in backend.machines().items():
            if not str(what).strip():
                raise Wrong(f"{text}: the machine {name} is not described", "give machines() a phrase for each")
        try:
            steps = resolve(subject.registry, subject.compiler.config, text).steps
        except DlcError as problem:
            raise Wrong(f"{text}: {in_words(problem)}", problem.diagnostics[0].help) from None
        level = check_chain([step.stage for step in steps])
        if level != backend.consumes:
            raise Wrong(f"{text} takes {backend.consumes}, its pipeline leaves {level}", "mend pipeline, or consumes")
        tools = backend.toolchain()
        if tools != backend.toolchain():
            raise Wrong(
                f"{text}: toolchain() gives another text the second time", "leave out what is no property of the tools"
            )
    return f"{regions} memories"


def accepted(subject: Subject, backend: Backend) -> frozenset[str]:
    """Kinds of op of which a backend accepts some."""
    return frozenset(op.text_name for op in _pool(subject) if backend.accepts(op) is True)


def legalises(subject: Subject, entry: Entry) -> str:
    """That `accepts` answers for every op, the same twice, and gives a reason for what it refuses."""
    backend = subject.registry.backend(Spec(entry.name))
    if not asks_about_ops(backend):
        return "it accepts every op"
    answers: dict[str, set[bool]] = {}
    for op in _pool(subject):
        accepts = answer(lambda op=op: backend.accepts(op), f"accepts({op!r})")
        answers.setdefault(op.text_name, set()).add(accepts)
    whole = sorted(name for name, found in answers.items() if found == {True})
    part = sorted(name for name, found in answers.items() if found == {True, False})
    if not whole and not part:
        raise Wrong(f"it accepts none of {len(answers)} kinds of op", "begin with a few in accepts")
    return f"{len(whole)} kinds of op, {len(part)} in part, of {len(answers)}: {', '.join((*whole, *part))}"


def _pool(subject: Subject) -> Iterator[Op]:
    """Ops that depend on inputs, each once: of random graphs, and of samples."""
    seen: set[str] = set()
    memo: dict[str, bool] = {}
    graphs = (random_graph(subject.seed + k, 12, f32) for k in range(_ASKED))
    own = [s.op for s in subject.samples.ops]
    for op in (*(op for g in graphs for op in g.ops), *own):
        if op.digest not in seen and not isinstance(op, Input | Constant | Splat) and not is_constant(op, memo):
            seen.add(op.digest)
            yield op


def _graphs(subject: Subject, backend: Backend, ops: int, count: int) -> Iterator[tuple[int, Graph]]:
    """Random graphs of ops that a backend accepts, the larger ones of those that are drawn."""
    asks = asks_about_ops(backend)

    def ask(op: Op) -> bool:
        return not asks or backend.accepts(op) is True

    found = 0
    for k in range(count * subject.rounds * 4):
        seed = subject.seed + k
        with tried(drawn(seed)):
            # Every second one is of ops that read one value several times.
            graph = random_graph(seed, ops if asks else min(ops, 8), f32, ask, MIXED if k % 2 else KINDS)
        if len([op for op in graph.ops if not isinstance(op, Input | Constant | Splat)]) >= 2:
            yield seed, graph
            found += 1
        if found == count * subject.rounds:
            return


def sample_graph(subject: Subject, backend: Backend) -> Graph:
    """A random graph that a backend builds, all of it in its text. Raises Wrong: there is none."""
    for seed, graph in _graphs(subject, backend, 12, 64):
        if not all(is_inline(t) for t in graph.tensors):
            continue
        with tried(f"{backend} on {drawn(seed)}"):
            if artifact_of(subject, graph, str(backend)) is not None:
                return graph
    raise Wrong("it builds none of 64 random graphs of ops that it accepts", "what is accepted is built")


def computes(subject: Subject, entry: Entry) -> str:
    """That programs of random graphs of the ops that it accepts give the reference's values."""
    built = refused = 0
    for text, backend in _backends(subject, entry):
        _agrees(subject, backend, text, "two products with a reshape between them", reshaped(), subject.seed)
        for seed, graph in _graphs(subject, backend, OPS, GRAPHS):
            if _agrees(subject, backend, text, drawn(seed), graph, seed):
                built += 1
            else:
                refused += 1
    if not built:
        raise Wrong(
            f"no random graph of accepted ops is built; {refused} were refused",
            "accepts and emit have to agree: what is accepted is built",
        )
    return f"{built} random graphs" + (f", {refused} refused after simplification" if refused else "")


def _agrees(subject: Subject, backend: Backend, text: str, what: str, graph: Graph, seed: int) -> bool:
    """Whether a graph is built, and not refused with a reason. Raises Wrong: its program gives other values."""
    what = f"{text} on {what}"
    with tried(what):
        program = program_of(subject, graph, text)
        if program is None:
            return False
        values = feeds(graph, seed)
        agree(what, program, values, evaluate(graph, values), backend)
    return True


def reshaped() -> Graph:
    """A value that lies in memory and is read in another shape than it was written in: random graphs have few."""
    x = Input("x", Type(f32, (2, 6)))
    first, second = (Constant(Tensor.of(np.linspace(-1, 1, n * m).reshape(n, m), f32)) for n, m in ((6, 6), (4, 2)))
    product = MatMul(x, first)
    view = Reshape(product, to=(3, 4))
    y = MatMul(view, second)
    return Graph((x,), (y,), ("y",), origins={product.digest: ("first",), view.digest: ("view",), y.digest: ("y",)})


def measures(subject: Subject, entry: Entry) -> str:
    """That it estimates kernels, and measures steps and schedules."""
    backend = subject.registry.backend(Spec(entry.name))
    lacking: list[str] = []
    if type(backend).schedules is Backend.schedules:
        lacking.append("schedules (estimates)")
    if backend.profiler() is None:
        lacking.append("profiler")
    if backend.tuner() is None:
        lacking.append("tuner")
    if lacking:
        raise Skipped(f"it has no {', '.join(lacking)}", "dlc bench and dlc tune need them")
    return "estimates, a profiler and a tuner"


CHECKS = (
    Check("backend-describes", "memories, options and pipeline are possible ones", describes, "backends", 1),
    Check("backend-legality", "every op is accepted or refused with a reason", legalises, "backends", 2),
    Check("backend-graphs", "random graphs of accepted ops give the right values", computes, "backends", 3),
    Check("backend-costs", "costs are estimated, steps measured, schedules tuned", measures, "backends", 5),
)
