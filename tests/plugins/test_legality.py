"""What a backend is asked before anything is written, and what it gets."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from dlc import (
    Artifact,
    Backend,
    DlcError,
    ExitCode,
    Frontend,
    Graph,
    Level,
    Op,
    Plan,
    Reason,
    Region,
    Report,
    Signature,
    Source,
    make_graph,
    option,
)
from dlc.base.diagnostics import Diagnostic
from dlc.base.types import Type, f32
from dlc.cache import Cache, Key, MemoryStore
from dlc.cache.step_record import Handle, StepRecord
from dlc.config.config import default_config
from dlc.driver.build import Build, compile_source
from dlc.driver.codec import Context
from dlc.driver.pipeline import ResolvedPipeline, resolve_steps
from dlc.driver.session import Session
from dlc.driver.state_text import op_classes
from dlc.graph import Constant, Input, Tensor
from dlc.ops.elementwise import Add, Exp, Relu, Tanh
from dlc.plugins.discovery import load_registry
from dlc.plugins.registry import Observer, Registry
from dlc.spec import Spec

X = Input("x", Type(f32, (100,)))


@dataclass(frozen=True)
class Given(Frontend):
    """A graph that is there already."""

    name = "given"

    def parse(self, source: Source, report: Report) -> Graph:
        constant = Exp(Constant(Tensor.of([1.0], f32)))
        y = Tanh(Relu(Exp(Relu(Tanh(Add(X, constant))))))
        origins = {op.digest: (f"node{k}",) for k, op in enumerate(make_graph([X], {"y": y}).ops)}
        return make_graph([X], {"y": y}, origins)


@dataclass(frozen=True)
class Chip(Backend):
    """A target that knows few ops and has little memory."""

    name = "chip"
    refuses: tuple[str, ...] = option((), "names of ops")
    bytes: int = option(1 << 20, "size of the memory")
    align: int = option(64, "of the memory")

    def accepts(self, op: Op) -> bool | Reason:
        if op.text_name == "tanh" and "tanh" in self.refuses:
            return Reason("there is no unit for it", "use relu")
        return op.text_name not in self.refuses

    def regions(self) -> Mapping[str, Region]:
        return {"arena": Region(self.align, self.bytes)}

    def emit(self, state: Graph | Plan, report: Report) -> Artifact:
        return Artifact(str(self), {"kind": state.kind.encode()}, "kind", Signature((), ()))


class OpChip(Chip):
    """The same, on ops."""

    consumes: ClassVar[Level] = "ops"


def build(backend: Chip, pipeline: str = "lower,order,plan-memory") -> Build:
    registry = load_registry(kinds=("passes", "pipelines", "ops"))
    specs = Spec.parse_pipeline(pipeline, "test") if pipeline else ()
    resolved = ResolvedPipeline(backend, "dlc", pipeline, "test", resolve_steps(registry, specs), specs)
    context = Context(lambda: op_classes(registry))
    source = Source(data=b"given", label="given")
    return compile_source(source, Given(), "dlc", resolved, Session(Cache(MemoryStore(), "rw"), context))


def test_all_refused_ops_are_said_at_once_with_their_nodes() -> None:
    with pytest.raises(DlcError) as caught:
        build(Chip(("tanh", "relu")))
    assert caught.value.exit_code == ExitCode.MODEL
    messages = {d.message: (d.location.node if d.location else "", d.help) for d in caught.value.diagnostics}
    assert len(messages) == 2
    assert messages["chip cannot build tanh (2 times): there is no unit for it"][1] == "use relu"
    (relu,) = [m for m in messages if "relu" in m]
    assert relu == "chip cannot build relu (2 times): the target has no such operation"
    assert messages[relu][0].count("node") == 2


def test_constant_expressions_are_never_asked_about() -> None:
    with pytest.raises(DlcError) as caught:
        build(Chip(("exp",)))
    assert "exp (once)" in str(caught.value)


def test_a_backend_gets_what_it_consumes() -> None:
    assert build(Chip()).last.value.files["kind"] == b"plan"
    assert build(OpChip(), "").last.value.files["kind"] == b"graph"


@pytest.mark.parametrize(
    ("backend", "pipeline", "message"),
    [
        (Chip(), "lower", "the pipeline ends with a graph of kernels, but a plan is needed"),
        (OpChip(), "lower", "the pipeline ends with a graph of kernels, but a graph of ops is needed"),
    ],
)
def test_a_pipeline_that_leads_elsewhere_is_refused_before_anything_runs(
    backend: Chip, pipeline: str, message: str
) -> None:
    with pytest.raises(DlcError, match=message) as caught:
        build(backend, pipeline)
    assert caught.value.exit_code == ExitCode.USAGE


def test_plans_must_fit_into_the_memory() -> None:
    with pytest.raises(DlcError, match=r"arena of chip holds 256 bytes, the program needs \d+") as caught:
        build(Chip(bytes=256))
    assert caught.value.exit_code == ExitCode.LIMIT
    with pytest.raises(DlcError, match="chip needs values at multiples of 4096 bytes") as caught:
        build(Chip(align=4096), "lower,order,plan-memory{in-place=no}")
    assert "plan-memory.align=4096" in str(caught.value)


def test_an_observer_that_fails_is_named_once_and_not_asked_again() -> None:
    seen: list[str] = []
    text: list[Diagnostic] = []
    logged: list[str] = []

    def fails(event: StepRecord[Any]) -> None:
        seen.append(event.spec)
        raise ValueError("no display")

    def works(event: StepRecord[Any]) -> None:
        logged.append(event.spec)

    registry = Registry((), {}, observers=(Observer("viewer (v 1)", fails), Observer("log (l 1)", works)))
    watch = registry.watcher(text.append, "net.onnx")
    for step in ("a", "b"):
        watch(StepRecord(Key.of(step=step), Handle("graph", "", dict)))
    assert seen == ["a"]
    assert logged == ["a", "b"]
    (warning,) = text
    assert "viewer (v 1): dlc_step_done failed" in warning.message
    assert "no display" in warning.message


def test_the_chain_of_a_named_pipeline_is_checked_with_a_caret() -> None:
    from dlc.driver.pipeline import resolve

    registry = load_registry()
    with pytest.raises(DlcError, match="simplify works on a graph of ops, but lower gives a graph of kernels"):
        resolve(registry, default_config(), "c", pipeline="lower,simplify")
