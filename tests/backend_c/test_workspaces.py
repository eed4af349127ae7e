"""What kernels work in: the backend states it, the plan has room for it, and the program finds it there."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from dlc_backend_c.backend import C
from dlc_backend_c.function import c_function
from dlc_backend_c.machine_file import names
from dlc_backend_c.target import GENERIC, X86_64_V4

from dlc import Report, Spec
from dlc.api.schedules import with_schedules
from dlc.base.diagnostics import DlcError, ExitCode
from dlc.base.types import Type, f32
from dlc.graph import Call, Graph, Input, Splat, make_graph
from dlc.kernel.text import parse_kernel
from dlc.ops.elementwise import Exp
from dlc.ops.linear import MatMul
from dlc.passes.outputs import separate_outputs
from tests.backend_c.models import Bench, content, plan_of

CPUS = ("native", *names())


def backend_of(cpu: str) -> C:
    return C.from_spec(Spec.parse(f"c{{cpu={cpu} lib=none}}"))


def products() -> Graph:
    """Two products one after the other; tiles of vectors pack their factors."""
    a, b, c = (
        Input(name, Type(f32, shape)) for name, shape in (("a", (64, 1024)), ("b", (1024, 1024)), ("c", (1024, 90)))
    )
    return make_graph((a, b, c), {"y": Exp(MatMul(Exp(MatMul(a, b)), c))})


@pytest.mark.parametrize("cpu", CPUS)
def test_what_is_stated_is_what_the_function_asks_for(cpu: str) -> None:
    plan = plan_of(products(), backend_of(cpu))
    artifact = backend_of(cpu).emit(plan, Report())
    asked = {k["digest"]: k["workspace"] for k in json.loads(content(artifact, "manifest.json"))["kernels"]}
    assert {step.body.digest: plan.graph.workspace(step) for step in plan.calls} == asked
    assert artifact.facts["arena_bytes"] == plan.regions["arena"] == plan.facts["bound"]
    assert cpu != "x86-64-v3" or artifact.facts["workspace_bytes"] != 0


def test_targets_state_what_their_machines_need() -> None:
    plan = plan_of(products(), backend_of("generic"))
    stated = {cpu: with_schedules(plan.graph, backend_of(cpu), Report()).workspaces for cpu in CPUS}
    assert stated["generic"] == {}
    assert stated["x86-64-v3"] and all(size % 64 == 0 < size for size in stated["x86-64-v3"].values())


def test_sizes_are_kept_beside_the_text_of_functions() -> None:
    bench = Bench()
    backend = backend_of("x86-64-v3").with_workshop(bench)
    plan = plan_of(products(), backend)
    kernels = {step.body.digest for step in plan.calls}
    assert set(bench.made) == kernels
    assert plan_of(products(), backend) == plan and len(bench.made) == len(kernels)
    backend.emit(plan, Report())
    assert all(name.startswith("dlc_k_") for name in bench.made[len(kernels) :])


def test_a_plan_without_room_for_its_kernels_is_refused() -> None:
    """It was made for another processor: nothing may be written over what is alive."""
    with pytest.raises(DlcError, match=r"needs a workspace of \d+ bytes, the plan has 0") as caught:
        backend_of("x86-64-v3").emit(plan_of(products(), backend_of("generic")), Report())
    assert caught.value.exit_code == ExitCode.USAGE
    plan = plan_of(products(), backend_of("x86-64-v3"))
    small = {d: replace(slot, size=slot.size - 64) for d, slot in plan.workspaces.items()}
    with pytest.raises(DlcError, match="needs a workspace of"):
        backend_of("x86-64-v3").emit(replace(plan, workspaces=small), Report())


def test_two_sizes_of_caches_are_two_processors() -> None:
    assert X86_64_V4.identity != replace(X86_64_V4, l2=2 << 20).identity
    assert X86_64_V4.identity in backend_of("x86-64-v4").toolchain()


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("shape", [(), (7,), (64, 64), (3, 5, 7, 11), (1 << 20,)])
def test_copies_work_in_no_memory(cpu: str, shape: tuple[int, ...]) -> None:
    """They are added when an order is chosen, after the target has stated what the other kernels work in."""
    x = Input("x", Type(f32, shape))
    copies = separate_outputs(make_graph((x,), {"y": x, "z": Splat(1.0, x.of)})).outputs
    kernels = [op.body for op in copies if isinstance(op, Call)]
    assert [s.workspace for s in backend_of(cpu).schedules(kernels)] == [0, 0]


def test_a_size_may_be_so_small_that_there_is_no_work() -> None:
    """Whether there is a workspace is said for the largest sizes; what a call needs of it may be nothing."""
    text = """kernel(f32[n(0,300),9], f32[9,20], i64[=n(0,300)]) -> (f32[n(0,300),20]) local (f32[n(0,300),9]) {
      t0[i,j] = exp(p0[i,j])
      k<9: r0[i,j] += t0[i,k]*p1[k,j]
    }"""
    function = c_function(parse_kernel(text), "f", GENERIC)
    assert function.workspace == 10_816
    assert str(function.needs) == "64*(36*n(0,300)+63)//64"
    assert "workspace)" in function.text.partition("{")[0]
