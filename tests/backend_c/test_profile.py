"""The option profile: what a program then tells of its steps, and the C code that measures a machine."""

import time
from pathlib import Path

import numpy as np
import pytest
from dlc_backend_c.backend import C
from dlc_backend_c.manifest import read
from dlc_backend_c.profiler import CProfiler, limits_text
from dlc_backend_c.program import MOST_OPERATIONS
from dlc_backend_c.runtime import Model
from dlc_backend_c.sections import split

from dlc import Artifact, Report
from dlc.base.diagnostics import DlcError
from dlc.base.types import Type, f32
from dlc.driver.program import Compiler
from dlc.graph import Input, Op, evaluate, make_graph
from dlc.ops.elementwise import Abs, Relu
from tests.backend_c.conftest import Compile
from tests.backend_c.models import numbers, plan_of, shell, small_net
from tests.backend_c.test_regions import source
from tests.graph.regions import CASES
from tests.machines import MACHINES, target_of
from tests.tools import SANITIZE, SANITIZING, found

WARNINGS = "flags=-pedantic,-Wall,-Wextra,-Werror,-Wshadow"

MAIN = """\
#include "net.h"
#include <stdio.h>

static _Alignas(NET_ARENA_ALIGN) unsigned char arena[NET_ARENA_BYTES];
static double now;

static double timer(void) { return now += 1.0; }

int main(void)
{
    static float x[NET_INPUT_0_SIZE], p[NET_OUTPUT_0_SIZE], f[NET_OUTPUT_1_SIZE];
    const void *inputs[] = {x};
    void *outputs[] = {p, f};
    double seconds[NET_STEPS];
    printf("%d", net_profile(inputs, outputs, arena, timer, seconds));
    for (int k = 0; k < NET_STEPS; ++k)
        printf(" %g", seconds[k]);
    printf(" %d", net_profile(inputs, outputs, arena, NULL, seconds) == NET_ERROR_NULL);
    printf(" %d\\n", net_profile(inputs, outputs, arena, timer, NULL) == NET_ERROR_NULL);
    return 0;
}
"""


@pytest.fixture(scope="module")
def profiler() -> CProfiler:
    return CProfiler.made(C())


def text(artifact: Artifact) -> str:
    return read(artifact.files["net.c"]).decode()


def test_without_it_there_is_nothing_of_it() -> None:
    plan = plan_of(small_net())
    plain, other = (C(prefix="net", profile=p).emit(plan, Report()) for p in (False, True))
    header = "".join(line for line in read(plain.files["net.h"]).decode().splitlines() if " options " not in line)
    assert not any(word in text(plain) + header for word in ("profile", "timer", "STEPS"))
    assert all(word in text(other) for word in ("net_profile(", "timer()"))
    before, after = ([s for s in split(text(a)) if s.kind != "main"] for a in (plain, other))
    assert before == after, "kernels are the same, so that they are compiled once"


@pytest.mark.parametrize("cc", found("gcc", "clang"))
def test_seconds_of_steps_are_those_of_the_call(
    cc: str, compile_model: Compile, tmp_path: Path, profiler: CProfiler
) -> None:
    graph = small_net()
    plan = plan_of(graph)
    compile_model(graph, f"c{{cc={cc} prefix=net profile=yes {WARNINGS}}}", tmp_path)
    model = Model.load(tmp_path)
    x = numbers(1, 3, 8, 8)
    out = {name: np.zeros(array.shape, array.dtype) for name, array in model(x=x).items()}
    begin = time.perf_counter()
    seconds = profiler.seconds(model, {"x": x}, out)
    elapsed = time.perf_counter() - begin
    assert len(seconds) == len(plan.steps)
    assert all(s >= 0 for s in seconds)
    assert 0 < sum(seconds) <= elapsed
    for name, want in evaluate(graph, {"x": x}).items():
        np.testing.assert_allclose(out[name], want, rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(out[name], model(x=x)[name])


@pytest.mark.parametrize("cc", SANITIZING)
def test_a_timer_of_the_caller(cc: str, tmp_path: Path) -> None:
    artifact = C(prefix="net", profile=True, weights="text", cpu="generic").emit(plan_of(small_net()), Report())
    for name, content in artifact.files.items():
        (tmp_path / name).write_bytes(read(content))
    (tmp_path / "main.c").write_text(MAIN)
    strict = ("-std=c11", "-Wall", "-Wextra", "-Werror", "-g", *SANITIZE)
    shell(cc, *strict, "main.c", "net.c", "net_weights.c", "-o", "main", "-lm", cwd=tmp_path)
    steps = len(plan_of(small_net()).steps)
    assert shell("./main", cwd=tmp_path).split() == ["0", *["1"] * steps, "1", "1"]


def test_steps_of_a_program_that_is_divided(compile_model: Compile, tmp_path: Path, profiler: CProfiler) -> None:
    x = Input("x", Type(f32, (4,)))
    y: Op = x
    for k in range(MOST_OPERATIONS + 4):
        y = Abs(y) if k % 2 else Relu(y)
    compile_model(make_graph((x,), {"y": y}), f"c{{profile=yes {WARNINGS}}}", tmp_path)
    model = Model.load(tmp_path)
    seconds = profiler.seconds(model, {"x": numbers(4)}, {})
    assert len(seconds) == MOST_OPERATIONS + 4
    assert sum(s > 0 for s in seconds) > MOST_OPERATIONS // 2


@pytest.mark.parametrize("name", sorted(CASES)[:2])
def test_branches_and_loops_are_steps(name: str, tmp_path: Path, profiler: CProfiler) -> None:
    case, runs = CASES[name]
    model = Compiler.open(tmp_path / "cache").program(source(case.graph), f"c{{profile=yes {WARNINGS}}}")
    assert isinstance(model, Model)
    assert sum(profiler.seconds(model, dict(runs[0]), {})) > 0


def test_a_program_that_was_not_built_for_it(compile_model: Compile, tmp_path: Path, profiler: CProfiler) -> None:
    compile_model(small_net(), "c{}", tmp_path)
    with pytest.raises(DlcError, match="profile=yes"):
        profiler.seconds(Model.load(tmp_path), {"x": numbers(1, 3, 8, 8)}, {})


@pytest.mark.parametrize("cc", found("gcc", "clang"))
@pytest.mark.parametrize("machine", MACHINES)
def test_what_measures_a_machine_compiles_without_a_warning(machine: str, cc: str, tmp_path: Path) -> None:
    target = target_of(MACHINES[machine])
    (tmp_path / "limits.c").write_bytes(limits_text(target))
    shell(cc, *target.flags, "-Wall", "-Wextra", "-Werror", "-pedantic", "-c", "limits.c", cwd=tmp_path)


def test_limits(profiler: CProfiler) -> None:
    found = profiler.limits()
    assert found.operations > 1e8
    assert all(m.rate > 1e8 for m in found.memories)
    assert [m.name for m in found.memories][:2] == ["L1", "L2"]
    assert (found.memories[-1].name, found.memories[-1].size) == ("memory", None)
    assert found.memory(1000).name == "L1"
    assert found.memory(1 << 40).name == "memory"
