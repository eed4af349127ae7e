"""The example's op, schedule and backend from within: what a plugin's own unit tests look like."""

import runpy
from pathlib import Path

import numpy as np
import pytest
from dlc_example import prelude, spell
from dlc_example.backend import Numpy
from dlc_example.log_cosh import LogCosh
from dlc_example.orthogonal import Orthogonal
from dlc_example.running import Running
from dlc_example.swish import Swish, unit_beta

from dlc import Op, Report, Spec, make_graph
from dlc.base.types import Type, f32, i32
from dlc.define import SCALARS, ShapeError
from dlc.graph import Input, Splat, evaluate, parse_graph, print_graph, verify
from dlc.kernel.evaluate import run_kernel
from dlc.ops.linear import MatMul
from dlc.ops.shape import Reshape, Transpose
from dlc.passes.fuse import Fuse
from dlc.passes.lower import Lower
from dlc.passes.order import Order
from dlc.passes.plan_memory import PlanMemory
from dlc.passes.simplify import Simplify
from dlc.schedules import Machine, check_loops, parse_kernel, print_choices, print_loops, run_loops, scheduled
from dlc.training.parts import Draw, Fans
from tests.kernel.random_kernels import random_kernel

X, BETA = Input("x", Type(f32, (2, 3))), Input("beta", Type(f32, (3,)))
FEEDS = {"x": np.linspace(-4, 4, 6, dtype=np.float32).reshape(2, 3), "beta": np.array([1.0, 0.5, -2.0], np.float32)}


@pytest.mark.parametrize("op", [Swish(X), Swish(X, BETA)])
def test_shape_values_and_text_follow_from_the_definition(op: Swish) -> None:
    graph = make_graph([X, BETA], {"y": op})
    beta = 1 if op.beta is None else FEEDS["beta"]
    assert op.type == X.type
    assert not verify(graph)
    np.testing.assert_allclose(evaluate(graph, FEEDS)["y"], FEEDS["x"] / (1 + np.exp(-beta * FEEDS["x"])), rtol=1e-6)
    classes: dict[str, type[Op]] = {"swish": Swish, "input": Input}
    assert parse_graph(print_graph(graph), classes) == graph


@pytest.mark.parametrize(
    ("x", "beta", "message"),
    [
        (Type(f32, (2, 3)), Type(f32, (2,)), "last dimension of x differ: 2 and 3"),
        (Type(f32, (2, 3)), Type(f32, (1, 3)), "a vector over the channels"),
        (Type(i32, (2,)), None, "exp is defined for floating point, not i32"),
    ],
)
def test_what_does_not_fit_is_refused_where_it_is_written(x: Type, beta: Type | None, message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        Swish(Input("x", x), None if beta is None else Input("beta", beta))


def test_the_rule_is_applied_by_simplify() -> None:
    graph = make_graph([X], {"y": Swish(X, Splat(1.0, Type(f32, (3,))))})
    report = Report()
    assert Simplify().with_rules([unit_beta]).run(graph, report).outputs == (Swish(X),)
    assert report.counts["unit_beta"] == 1


def test_a_program_has_what_is_no_step(tmp_path: Path) -> None:
    """A reshape between matrices moves nothing, so it is no call of a plan."""
    x, y = Input("x", Type(f32, (4, 6))), Input("y", Type(f32, (8, 5)))
    graph = make_graph([x, y], {"z": MatMul(Reshape(MatMul(x, Transpose(x, perm=(1, 0))), to=(2, 8)), y)})
    plan = PlanMemory().run(Order().run(Fuse().run(Lower().run(graph, Report()), Report()), Report()), Report())
    assert len(plan.calls) == 2
    for name, content in Numpy().emit(plan, Report()).files.items():
        (tmp_path / name).write_bytes(bytes(content))
    a, b = np.random.default_rng(0).random((4, 6), np.float32), np.ones((8, 5), np.float32)
    (found,) = runpy.run_path(str(tmp_path / "program.py"))["run"](a, b)
    np.testing.assert_allclose(found, (a @ a.T).reshape(2, 8) @ b, rtol=1e-6)


@pytest.mark.parametrize("name", SCALARS)
def test_every_scalar_function_has_a_spelling(name: str) -> None:
    spelled = spell.numpy_name(name)
    known = hasattr(np, spelled.removeprefix("np.")) if spelled.startswith("np.") else hasattr(prelude, spelled)
    assert known or SCALARS[name].to is not None


@pytest.mark.parametrize("seed", range(40))
def test_spelled_kernels_compute_what_the_interpreter_does(seed: int, tmp_path: Path) -> None:
    kernel = random_kernel(seed)
    random = np.random.default_rng(seed)
    arguments = [random.integers(-3, 4, p.shape).astype(p.dtype.numpy) for p in kernel.params]
    written = tmp_path / f"kernel_{seed}.py"
    written.write_text(f"import numpy as np\nfrom dlc_example.prelude import *\n{spell.function(kernel, 'kernel')}\n")
    found = runpy.run_path(str(written))["kernel"](*arguments)
    for array, expected in zip(found, run_kernel(kernel, arguments), strict=True):
        np.testing.assert_array_equal(array, expected)


SUMS = "kernel(f32[3,50]) -> (f32[3,50]) {\n  k<50: r0[i,j] += p0[i,k] if GUARD\n}"


@pytest.mark.parametrize(
    ("kernel", "chosen"),
    [
        (SUMS.replace("GUARD", "k <= j"), True),
        (SUMS.replace("GUARD", "k < j"), True),
        (SUMS.replace("GUARD", "k <= j").replace("+=", "max="), True),
        (SUMS.replace("GUARD", "k <= j").replace("p0[i,k]", "p0[i,k]*p0[i,k]"), True),
        (SUMS.replace("GUARD", "k <= j").replace("p0[i,k]", "p0[i,k]*p0[i,j]"), False),  # terms of their own
        (SUMS.replace("GUARD", "k >= j"), False),
        (SUMS.replace("GUARD", "k <= j+1"), False),
        (SUMS.replace("GUARD", "k <= i"), False),
    ],
)
@pytest.mark.parametrize("machine", [Machine(), Machine(32, 16, threads=4)], ids=str)
def test_running_sums_take_one_pass(kernel: str, chosen: bool, machine: Machine) -> None:
    found = parse_kernel(kernel)
    done = scheduled(found, machine, families=(Running,))
    assert (print_choices(done.choices) == "running") == chosen
    assert not check_loops(found, done.program)
    x = np.random.default_rng(0).normal(size=(3, 50)).astype(np.float32)
    (got,), (want,) = run_loops(done.program, [x]), run_kernel(found, [x])
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    if chosen:
        assert print_loops(scheduled(found, machine, done.choices).program) == print_loops(done.program)


@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (4, 2, 2)])
def test_initial_weights_are_orthonormal(shape: tuple[int, ...]) -> None:
    found = Orthogonal(gain=2.0).values(shape, Fans(1, 1, True), Draw(3, "w")).reshape(shape[0], -1)
    small = found @ found.T if found.shape[0] <= found.shape[1] else found.T @ found
    np.testing.assert_allclose(small, 4 * np.eye(len(small)), atol=1e-12)
    assert found.shape == (shape[0], np.prod(shape[1:]))
    assert not np.allclose(
        found, Orthogonal(gain=2.0).values(shape, Fans(1, 1, True), Draw(4, "w")).reshape(found.shape)
    )


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_the_loss_is_its_formula(reduction: str) -> None:
    x, y = Input("x", Type(f32, (2, 3))), Input("y", Type(f32, (2, 3)))
    loss = LogCosh.from_spec(Spec("log-cosh", (("reduction", reduction),)))
    graph = make_graph([x, y], {"loss": loss.value(x, y)})
    feeds = {"x": FEEDS["x"], "y": np.array([[100, 0.5, -1], [2, -90, 0]], np.float32)}
    d = np.float64(feeds["x"]) - feeds["y"]
    each = np.abs(d) + np.log1p(np.exp(-2 * np.abs(d))) - np.log(2)
    np.testing.assert_allclose(evaluate(graph, feeds)["loss"], each.mean() if reduction == "mean" else each.sum(), 1e-6)
