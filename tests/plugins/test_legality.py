"""What a backend is asked before anything is written, and what it gets."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
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
from dlc.base.types import DType, Type, f16, f32, f64, i32, i64
from dlc.cache import Cache, Key, MemoryStore
from dlc.cache.step_record import Handle, StepRecord
from dlc.config.config import default_config
from dlc.driver.build import Build, compile_source
from dlc.driver.codec import Context
from dlc.driver.pipeline import ResolvedPipeline, resolve_steps
from dlc.driver.session import Session
from dlc.driver.state_text import op_classes
from dlc.graph import Call, Constant, Input, Tensor, toposort
from dlc.kernel.kernel import Kernel
from dlc.ops.elementwise import Abs, Add, Cast, Exp, Relu, Tanh
from dlc.ops.index import Gather
from dlc.ops.linear import MatMul
from dlc.ops.normalize import LayerNorm
from dlc.ops.shape import Slice
from dlc.plugins.discovery import load_registry
from dlc.plugins.registry import Observer, Registry
from dlc.spec import Spec
from dlc.verify.kit.random_graphs import random_graph

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


@dataclass(frozen=True)
class Asked(Backend):
    """A target that notes what it is asked, and lacks types and functions."""

    name = "asked"
    lacks: tuple[str, ...] = option((), "element types and functions")
    types: ClassVar[set[Type]] = set()
    kernels: ClassVar[set[str]] = set()
    states: ClassVar[list[Graph | Plan]] = []

    def accepts_type(self, type: Type) -> bool | Reason:
        self.types.add(type)
        return type.dtype.name not in self.lacks or Reason(f"it has no {type.dtype}", "take f32")

    def accepts_kernel(self, kernel: Kernel) -> bool | Reason:
        self.kernels.add(kernel.digest)
        lacking = sorted(kernel.functions.intersection(self.lacks) - {"f64"})
        return not lacking or Reason(f"it has no function {lacking[0]}")

    def emit(self, state: Graph | Plan, report: Report) -> Artifact:
        self.states.append(state)
        return Artifact(str(self), {"kind": state.kind.encode()}, "kind", Signature((), ()))


class AskedOps(Asked):
    """The same, on ops."""

    consumes: ClassVar[Level] = "ops"


class AskedKernels(Asked):
    """The same, on kernels."""

    consumes: ClassVar[Level] = "kernels"


PIPELINES = {AskedOps: "simplify", AskedKernels: "lower,fuse", Asked: "lower,fuse,order,plan-memory"}


def build(backend: Backend, pipeline: str = "lower,order,plan-memory", frontend: Frontend | None = None) -> Build:
    registry = load_registry(kinds=("passes", "pipelines", "ops"))
    specs = Spec.parse_pipeline(pipeline, "test") if pipeline else ()
    resolved = ResolvedPipeline(backend, "dlc", pipeline, "test", resolve_steps(registry, specs), specs)
    context = Context(lambda: op_classes(registry))
    source = Source(data=b"given", label="given")
    return compile_source(source, frontend or Given(), "dlc", resolved, Session(Cache(MemoryStore(), "rw"), context))


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


def test_operands_that_a_frontend_lets_through_are_the_models_fault() -> None:
    class Careless(Given):
        """Builds ops of what it reads, and looks at nothing."""

        def parse(self, source: Source, report: Report) -> Graph:
            return make_graph([X], {"y": MatMul(X, Input("w", Type(f32, (99, 2))))})

    with pytest.raises(DlcError) as caught:
        build(Chip(), frontend=Careless())
    (found,) = caught.value.diagnostics
    assert (caught.value.exit_code, found.code) == (ExitCode.MODEL, "operand-shapes")
    assert found.message == 'given: mat_mul of "x" f32[100] and "w" f32[99,2]: inner dimensions differ: 100 and 99'
    assert re.fullmatch(r"the op is made in test_legality.py, line \d+", found.notes[0])
    assert found.location and found.location.source == "given"


def test_who_asks_a_composed_op_for_its_kernel_hears_of_the_question_about_kernels() -> None:
    composed = LayerNorm(X, X, axis=0)
    assert composed.expansion is not None
    with pytest.raises(TypeError, match=r"layer_norm is composed .* Backend\.accepts_kernel is asked") as caught:
        composed.kernel  # noqa: B018
    assert "no kernel of its own" in str(caught.value)
    assert Relu(X).kernel.nests


def test_constant_expressions_are_never_asked_about() -> None:
    with pytest.raises(DlcError) as caught:
        build(Chip(("exp",)))
    assert "exp (once)" in str(caught.value)


def of(graph: Graph) -> Frontend:
    @dataclass(frozen=True)
    class Made(Given):
        """A graph."""

        def parse(self, source: Source, report: Report) -> Graph:
            return graph

    return Made()


def types_in(state: Graph | Plan) -> Iterator[Type]:
    """Of everything that `emit` can read in a state without evaluating it, with plain loops."""
    graph = state.graph if isinstance(state, Plan) else state
    computed = [op for op in graph.ops if any(isinstance(x, Input) for x in toposort((op,)))]
    for op in (*graph.inputs, *graph.outputs, *computed, *(x for c in computed for x in c.operands)):
        yield from op.types
        for tensor in op.body.tensors.values() if isinstance(op, Call) else ():
            yield tensor.type


@pytest.mark.parametrize("kind", PIPELINES)
def test_everything_that_emit_gets_has_been_asked_about(kind: type[Asked]) -> None:
    for found in (kind.types, kind.kernels, kind.states):
        found.clear()
    for seed in range(6):
        build(kind(), PIPELINES[kind], of(random_graph(seed, 12, f32)))
    assert len(kind.states) == 6
    for state in kind.states:
        assert set(types_in(state)) <= kind.types
        ops = state.graph.ops if isinstance(state, Plan) else state.ops
        bodies = [op.body for op in ops if isinstance(op, Call) and (not isinstance(state, Plan) or op in state.steps)]
        assert {body.digest for body in bodies} <= kind.kernels
        inside = {Type(d, ()) for body in bodies for d in body.element_types}
        assert {t.dtype for t in inside} <= {t.dtype for t in kind.types}


@dataclass(frozen=True)
class Narrow(Chip):
    """A target whose programs hold f32 as f16, and integers of 64 bits as those of 32."""

    name = "narrow"
    stores: ClassVar[Mapping[DType, DType]] = {f32: f16, i64: i32}


class NarrowOps(Narrow):
    """The same, on ops."""

    consumes: ClassVar[Level] = "ops"


class NarrowKernels(Narrow):
    """The same, on kernels."""

    consumes: ClassVar[Level] = "kernels"


@pytest.mark.parametrize(
    ("kind", "pipeline"),
    [(NarrowOps, "simplify"), (NarrowKernels, "lower,fuse"), (Narrow, "lower,fuse,order,plan-memory")],
)
def test_what_the_declared_types_cannot_hold_is_warned_of(kind: type[Narrow], pipeline: str) -> None:
    weights = Constant(Tensor.of(np.array([*range(50, 147), 1e5, -2e6, 65504.0], np.float32)), "w")
    fine = Constant(Tensor.of(np.arange(100, dtype=np.float32)), "fine")
    folded = Exp(Constant(Tensor.of(np.full(100, 12.0, np.float32))))  # a constant expression: 162,755
    places = Constant(Tensor.of(np.array([0, 1 << 40, 1], np.int64)), "places")
    plus, exp, pick = Add(X, weights), Add(X, folded), Gather(X, places)
    graph = make_graph(
        [X],
        {"y": Add(plus, fine), "z": exp, "i": pick},
        {plus.digest: ("plus",), exp.digest: ("exp",), pick.digest: ("pick",)},
    )
    steps = build(kind(), pipeline, of(graph)).steps
    found = [w for step in steps for w in step.report.warnings]
    assert {w.code for w in found} == {"value-range"}
    told = {w.location.node: w.message for w in found if w.location}
    assert set(told) == {"plus", "exp", "pick"}
    assert "2 of 100 values are too large for f16" in told["plus"]
    assert "100 of 100 values are too large for f16" in told["exp"]
    assert "1 of 3 values is too large for i32" in told["pick"]
    plain = type("Plain", (kind,), {"stores": {}})
    assert not any(step.report.warnings for step in build(plain(), pipeline, of(graph)).steps)


INDICES = Constant(Tensor.of([1, 0, 1], i64))


@pytest.mark.parametrize(("kind", "pipeline"), PIPELINES.items())
def test_a_constant_of_a_type_that_the_target_lacks_is_refused_with_node_and_type(
    kind: type[Asked], pipeline: str
) -> None:
    y = Gather(X, INDICES)
    graph = make_graph([X], {"y": y}, {y.digest: ("pick",)})
    build(kind(), pipeline, of(graph))
    with pytest.raises(DlcError) as caught:
        build(kind(("i64",)), pipeline, of(graph))
    assert caught.value.exit_code is ExitCode.MODEL
    (found,) = caught.value.diagnostics
    assert (found.code, found.message) == ("unsupported-type", "asked has no i64[3], a constant (once): it has no i64")
    assert (found.location and found.location.node, found.help) == ("pick", "take f32")


def test_types_inside_kernels_are_asked_about_but_no_subscripts() -> None:
    """Of a conversion and back, fused into one kernel, nothing but a number of f64 between two tensors is left."""
    wide = Exp(Cast(X, f64))
    graph = make_graph([X], {"y": Cast(wide, f32)}, {wide.digest: ("wide",)})
    with pytest.raises(DlcError, match="asked has no f64, computed inside a kernel") as caught:
        build(Late(("f64",)), PIPELINES[Asked], of(graph))
    assert caught.value.diagnostics[0].location
    Asked.types.clear()
    build(Asked(), PIPELINES[Asked], of(make_graph([X], {"y": Slice(X, starts=(99,), sizes=(100,), steps=(-1,))})))
    assert {t.dtype for t in Asked.types} == {f32}


class Late(Asked):
    """A target that has shapes of any type, and numbers of some."""

    def accepts_type(self, type: Type) -> bool | Reason:
        return bool(type.shape) or super().accepts_type(type)


def test_a_kernel_is_refused_with_its_nodes_and_text() -> None:
    y = Tanh(Exp(X))
    graph = make_graph([X], {"y": y}, {y.digest: ("act",)})
    with pytest.raises(DlcError) as caught:
        build(Asked(("tanh",)), PIPELINES[Asked], of(graph))
    (found,) = caught.value.diagnostics
    assert found.code == "unsupported-kernel"
    assert found.message == "asked cannot build a kernel (once): it has no function tanh"
    assert found.location
    assert "act" in found.location.node
    assert any("tanh" in note for note in found.notes)


def test_refused_ops_and_types_of_the_model_are_said_at_once() -> None:
    class Both(AskedOps):
        """Refuses ops, too."""

        def accepts(self, op: Op) -> bool | Reason:
            return op.text_name != "tanh"

    count = Input("count", Type(i64, (2,)))
    graph = make_graph([X, count], {"y": Tanh(X), "z": Abs(count)})
    with pytest.raises(DlcError) as caught:
        build(Both(("i64",)), "", of(graph))
    assert [d.message for d in caught.value.diagnostics] == [
        "asked cannot build tanh (once): the target has no such operation",
        "asked has no i64[2], an input (once): it has no i64",
        "asked has no i64[2], computed by abs (once): it has no i64",
    ]


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
