"""Branches and loops as compiled C: values, memory, and what the sanitizers say."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from dlc import Source
from dlc.api.passes import run_passes
from dlc.api.plan import Plan, parse_plan, plan_text
from dlc.base.report import Report
from dlc.base.types import Type, f32
from dlc.driver.pipeline import expand_pipeline, named_pipelines, resolve_steps
from dlc.driver.program import Compiler
from dlc.graph import Graph, Input, Loop, Op, Scan, Splat, evaluate, make_graph, print_graph
from dlc.graph.bodies import CONDITION, COUNTER, body_of, item
from dlc.ops.elementwise import Add
from dlc.ops.reduce import ReduceSum
from dlc.spec import Spec
from dlc.verify.plan_run import run_plan
from tests.graph.random_regions import Maker, feeds
from tests.graph.regions import CASES, Array, expected, recurrent
from tests.graph.test_regions import differentiated
from tests.models.test_sanitizers import CHECKED, DRIVER, STRICT
from tests.tools import SANITIZING

EVERY = pytest.mark.parametrize("name", CASES)


@pytest.fixture(scope="module")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> Compiler:
    return Compiler.open(tmp_path_factory.mktemp("cache"))


def source(graph: Graph) -> Source:
    return Source(data=print_graph(graph).encode(), label="model.dlc")


def planned(graph: Graph, compiler: Compiler) -> Plan:
    """The plan that the default pipeline makes."""
    specs = expand_pipeline(Spec.parse_pipeline("infer", ""), named_pipelines(compiler.registry, compiler.config))
    stages = [step.stage for step in resolve_steps(compiler.registry, specs)]
    return run_passes(stages, graph, Report())


def assert_equal(got: Mapping[str, Array], want: Mapping[str, Array]) -> None:
    for key, value in want.items():
        assert got[key].shape == value.shape
        np.testing.assert_allclose(got[key], value, rtol=1e-4, atol=1e-5, err_msg=key)


@EVERY
def test_values_are_those_of_pytorch(name: str, compiler: Compiler) -> None:
    case, runs = CASES[name]
    program = compiler.program(source(case.graph))
    for given in runs:
        assert_equal(program(out=None, **given), expected(case, given))


def test_a_gradient_of_a_scan(compiler: Compiler) -> None:
    graph, _ = differentiated(recurrent(40))
    random = np.random.default_rng(2)
    given = {i.name: random.standard_normal(i.shape).astype(np.float32) for i in graph.inputs}
    program = compiler.program(source(graph))
    assert_equal(program(out=None, **given), evaluate(graph, given))


@EVERY
def test_plans_run_in_their_memory(name: str, compiler: Compiler) -> None:
    """The plan of a body lies in the workspace of its step, which shares nothing with what is alive meanwhile."""
    case, runs = CASES[name]
    plan = planned(case.graph, compiler)
    assert len(plan.plans) > 1
    for each in plan.plans:
        for step in each.steps:
            if step.body_names and (size := each.workspace_of(step)):
                slot = each.workspaces[step.digest]
                assert slot.size >= size >= max(each.bodies[b.digest].regions["arena"] for b in step.bodies)
                assert slot.offset + slot.size <= each.regions["arena"]
    again = parse_plan(plan.graph, plan_text(plan))
    assert again.digest == plan.digest
    for given in runs:
        assert_equal(run_plan(plan, given), expected(case, given))


def test_a_plan_text_with_too_little_memory_is_refused(compiler: Compiler) -> None:
    plan = planned(recurrent(5).graph, compiler)
    (slot,) = plan.workspaces.values()
    text = plan_text(plan)
    stated = f'"arena",{slot.offset}]],"bodies"'
    assert stated in text
    smaller = text.replace(stated, f'"arena",{slot.offset},{slot.size - 64}]],"bodies"')
    with pytest.raises(ValueError, match="does not hold the workspace"):
        parse_plan(plan.graph, smaller)
    with pytest.raises(ValueError, match="0 plans for 1 graphs"):
        parse_plan(plan.graph, text.partition(',"bodies"')[0] + "}")


def test_the_text_does_not_grow_with_the_steps(compiler: Compiler) -> None:
    few, many = (compiler.artifact(source(recurrent(n).graph), "c{lib=none}") for n in (5, 5000))
    sizes = [len(bytes(a.files["model.c"])) for a in (few, many)]  # type: ignore[arg-type]
    assert abs(sizes[0] - sizes[1]) < 200


@pytest.mark.parametrize("seed", range(12))
def test_random_graphs(seed: int, compiler: Compiler) -> None:
    """Against the interpreter, which runs the graph as it was; the plan by itself, too."""
    graph = Maker(seed).graph()
    program = compiler.program(source(graph))
    plan = planned(graph, compiler)
    for run in range(4):
        want = evaluate(graph, feeds(run))
        assert_equal(program(out=None, **feeds(run)), want)
        assert_equal(run_plan(plan, feeds(run)), want)


def feeds_for(name: str, graph: Graph) -> Mapping[str, Array]:
    """Those of a case, or random ones."""
    if name in CASES:
        return CASES[name][1][-1 if "loop" not in name else -3]
    random = np.random.default_rng(3)
    return {i.name: random.standard_normal(i.shape).astype(np.float32) for i in graph.inputs}


def written(graph: Graph, prefix: str, given: Mapping[str, Array], compiler: Compiler, folder: Path) -> list[str]:
    """The C files of a program and of a driver that reads and writes files with its values."""
    artifact = compiler.artifact(source(graph), f"c{{cpu=generic lib=none prefix={prefix}}}")
    macro, files = prefix.upper(), list[str]()
    for path in (f"{prefix}.c", f"{prefix}.h", f"{prefix}_weights.bin", f"{prefix}_weights.S"):
        if path in artifact.files:
            (folder / path).write_bytes(artifact.files[path])  # type: ignore[arg-type]
            files += [path] if path.endswith((".c", ".S")) else []
    sizes = (("INPUT", len(graph.inputs)), ("OUTPUT", len(graph.outputs)))
    ins, outs = (", ".join(f"{macro}_{what}_{k}_BYTES" for k in range(n)) for what, n in sizes)
    (folder / f"{prefix}_drive.c").write_text(DRIVER.format(prefix=prefix, macro=macro, in_bytes=ins, out_bytes=outs))
    for k, i in enumerate(graph.inputs):
        np.ascontiguousarray(given[i.name]).tofile(folder / f"{prefix}_in_{k}.bin")
    return [*files, f"{prefix}_drive.c"]


@pytest.mark.parametrize("cc", SANITIZING)
def test_the_sanitizers_find_nothing(cc: str, compiler: Compiler, tmp_path: Path) -> None:
    """With warnings as errors; buffers have their exact sizes."""
    graphs = {n: CASES[n][0].graph for n in CASES if n != "scan of 300"} | {"d": differentiated(recurrent(4))[0]}
    named = {f"m{number}": (graph, feeds_for(name, graph)) for number, (name, graph) in enumerate(graphs.items())}
    files = [path for p, (graph, given) in named.items() for path in written(graph, p, given, compiler, tmp_path)]
    declared = "".join(f"int {p}_drive(void);\n" for p in named)
    called = " | ".join(f"{p}_drive()" for p in named)
    (tmp_path / "main.c").write_text(f"{declared}int main(void) {{ return {called}; }}\n")
    command = (cc, *STRICT["generic"], *CHECKED, *files, "main.c", "-lm", "-o", "program")
    for line in (command, ("./program",)):
        done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
    for prefix, (graph, given) in named.items():
        for k, want in enumerate(evaluate(graph, given).values()):
            got = np.fromfile(tmp_path / f"{prefix}_out_{k}.bin", want.dtype).reshape(want.shape)
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_zeros_that_a_loop_begins_with_take_no_memory(compiler: Compiler) -> None:
    """As the sums of a gradient do, which are as large as the weights."""
    large, small = Type(f32, (300, 100)), Type(f32, (100,))
    c, v = Input("c0", large), Input("v0", small)
    body = body_of((Input("i", COUNTER), c, v), (Add(c, v),), {})
    again = body_of((Input("i", COUNTER), c, v), (Splat(True, CONDITION), Add(c, v)), {})
    x, n = Input("x", small), Input("n", COUNTER)
    zeros = Splat(0.0, large)
    ops: dict[str, Op] = {f"s{k}": Scan((zeros,), (), (x,), body, k) for k in (0, 1, 2, 3)}
    ops |= {"stored": item(Scan((zeros,), (), (x,), body, 3, stored=True), 1)}
    ops |= {"loop": Loop(n, None, (zeros,), (x,), again)}
    graph = make_graph((x, n), {name: ReduceSum(op, tuple(range(len(op.shape) - 1))) for name, op in ops.items()})
    artifact = compiler.artifact(source(graph), "c{lib=none}")
    assert int(artifact.facts["weights_bytes"]) < 1000
    program = compiler.program(source(graph))
    for count in (0, 1, 2, 3):
        given = {"x": np.arange(100, dtype=np.float32), "n": np.array(count)}
        assert_equal(program(out=None, **given), evaluate(graph, given))
