"""The option memory: values lie in memories of their own, whose places the caller or the linker chooses."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from dlc_backend_c.backend import C
from dlc_backend_c.machine_file import read as machine_of
from dlc_backend_c.machine_file import summary
from dlc_backend_c.manifest import read
from dlc_backend_c.runtime import Model

from dlc import Artifact, Report, Spec
from dlc.api.plan import Plan, parse_plan, plan_text
from dlc.base.diagnostics import DlcError, ExitCode
from dlc.base.types import Type, f32
from dlc.driver.legality import check_regions
from dlc.graph import Graph, Input, Op, evaluate, make_graph
from dlc.ops.linear import MatMul
from dlc.passes.plan_memory import PlanMemory
from dlc.runtime.install import install
from tests.backend_c.models import Bench, constant, numbers, plan_of, shell, small_net
from tests.tools import SANITIZE

MEMORIES = (("fast", 600), ("slow", 1 << 20))
MAIN = """\
#include "one.h"
#include "several.h"
#include <stdio.h>
#include <string.h>

static _Alignas(ONE_ARENA_ALIGN) unsigned char arena[ONE_ARENA_BYTES];
static _Alignas(64) unsigned char fast[SEVERAL_ARENA_FAST_BYTES], slow[SEVERAL_ARENA_SLOW_BYTES];
static float x[ONE_INPUT_0_SIZE], y[3][2][ONE_OUTPUT_1_SIZE];

int main(void)
{
    const void *inputs[] = {x};
    void *outputs[3][2];
    const several_memory memory = {fast, slow}, broken = {fast, NULL}, skew = {fast + 1, slow};
    for (int k = 0; k < ONE_INPUT_0_SIZE; ++k)
        x[k] = (float)(k * 37 % 23 - 11);
    for (int k = 0; k < 6; ++k)
        outputs[k / 2][k % 2] = y[k / 2][k % 2];
    memset(fast, 0xA5, sizeof fast);
    memset(slow, 0xA5, sizeof slow);
    printf("%d %d", one_run(inputs, outputs[0], arena), several_run(inputs, outputs[1], GIVEN));
    for (unsigned k = 0; k < SEVERAL_STEPS; ++k)
        if (several_step(inputs, outputs[2], GIVEN, k) != SEVERAL_OK)
            return 1;
    printf(" %d", memcmp(y[0], y[1], sizeof y[0]) == 0 && memcmp(y[0], y[2], sizeof y[0]) == 0);
    printf(" %d", several_run(inputs, outputs[1], &broken) == SEVERAL_ERROR_NULL);
    printf(" %d\\n", several_run(inputs, outputs[1], &skew) == SEVERAL_ERROR_ALIGNMENT);
    (void)memory;
    return 0;
}
"""


def placed() -> Plan:
    plan = replace(plan_of(small_net()), slots={}, workspaces={}, regions={}, facts={})
    return PlanMemory(regions=MEMORIES).run(plan, Report())


def emitted(plan: Plan, options: str, place: Path) -> Artifact:
    artifact = C.from_spec(Spec.parse(f"c{{cpu=generic {options}}}")).emit(plan, Report())
    for name, content in artifact.files.items():
        (place / name).write_bytes(read(content))
    return artifact


SEVERAL = "prefix=several memory=fast:600,slow:1MiB steps=yes profile=yes"


@pytest.mark.parametrize("whose", ["caller", "static"])
@pytest.mark.needs("gcc's sanitizers")
def test_the_same_bits_in_several_memories(whose: str, tmp_path: Path) -> None:
    plan = placed()
    assert {s.region for s in (*plan.slots.values(), *plan.workspaces.values())} == {"fast", "slow"}
    emitted(plan_of(small_net()), "prefix=one", tmp_path)
    static = whose == "static"
    sections = " arena=static section=fast:.bss.dtcm,slow:.bss.sdram" if static else ""
    emitted(plan, SEVERAL + sections, tmp_path)
    given = ("-DGIVEN=NULL",) if static else ("-DGIVEN=&memory", *SANITIZE)
    (tmp_path / "main.c").write_text(MAIN)
    sources = ("main.c", "one.c", "one_weights.S", "several.c", "several_weights.S")
    shell("gcc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-O0", *given, *sources, "-lm", cwd=tmp_path)
    assert shell("./a.out", cwd=tmp_path) == "0 0 1 1 1\n"
    header = (tmp_path / "several.h").read_text()
    assert [int(n) for n in re.findall(r"#define SEVERAL_ARENA_\w+_BYTES (\d+)", header)] == list(plan.regions.values())
    assert ('#define SEVERAL_FAST_SECTION ".bss.dtcm"\n' in header) == static
    text = (tmp_path / "several.c").read_text()
    for name in ("FAST", "SLOW"):
        assert (f"SEVERAL_IN_{name} static unsigned char several_arena_{name.lower()}[" in text) == static


@pytest.mark.needs("g++")
def test_cxx(tmp_path: Path) -> None:
    emitted(placed(), SEVERAL, tmp_path)
    (tmp_path / "main.cpp").write_text(
        '#include "several.hpp"\n'
        "int main() {\n"
        "    static float x[SEVERAL_INPUT_0_SIZE], y[SEVERAL_OUTPUT_0_SIZE], z[SEVERAL_OUTPUT_1_SIZE];\n"
        "    alignas(64) static unsigned char fast[SEVERAL_ARENA_FAST_BYTES], slow[SEVERAL_ARENA_SLOW_BYTES];\n"
        "    const several_memory memory = {fast, slow};\n"
        "    const dlc::several::Model model(memory);\n"
        "    return static_cast<int>(model.call(x, y, z));\n"
        "}\n"
    )
    shell("g++", "-std=c++17", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "main.cpp", cwd=tmp_path)


def test_the_runtime(bench: Bench, tmp_path: Path) -> None:
    """By the fast way of arrays of exact types, and by the other one."""
    backend = C.from_spec(Spec.parse("c{cpu=generic memory=fast:600,slow:1MiB}"))
    install(backend.build(backend.emit(placed(), Report()), bench), tmp_path)
    model = Model.load(tmp_path)
    x = numbers(1, 3, 8, 8)
    wanted = evaluate(small_net(), {"x": x})
    for given in (x, x[:, :, ::-1][:, :, ::-1]):
        for name, array in model(given).items():
            np.testing.assert_allclose(array, wanted[name], rtol=1e-3, atol=1e-5)


def products() -> Graph:
    """Three products in a row: the second result fits where the input was."""
    x = Input("x", Type(f32, (32, 32)))
    y: Op = x
    for seed in range(3):
        y = MatMul(y, constant(32, 32, seed=seed))
    return make_graph((x,), {"y": y})


@pytest.mark.needs("g++")
def test_inputs_are_consumed(bench: Bench, tmp_path: Path) -> None:
    """In C and C++ the header says so; callers in Python keep their arrays."""
    backend = C.from_spec(Spec.parse("c{cpu=generic prefix=net inputs=consumed}"))
    kept = plan_of(products())
    plan = PlanMemory(inputs="consumed").run(replace(kept, slots={}, workspaces={}, regions={}), Report())
    assert (kept.memory, plan.memory, plan.regions["inputs:0"]) == (8192, 4096, 4096)
    assert parse_plan(plan.graph, plan_text(plan)) == plan
    check_regions(plan, backend)
    with pytest.raises(DlcError, match="c as it is asked for writes over no inputs"):
        check_regions(plan, C())
    install(backend.build(backend.emit(plan, Report()), bench), tmp_path)
    header = (tmp_path / "net.h").read_text()
    assert "they are only read, but for 0, whose content is lost: values lie there\n" in header
    assert "x  input 0: f32[32,32], overwritten after its last use" in header
    assert "int net_call(float *x, float *y, void *arena);" in header
    (tmp_path / "main.cpp").write_text(
        '#include "net.hpp"\n'
        "dlc::net::Status f(float (&x)[1024], float (&y)[1024], dlc::net::Arena &arena) {\n"
        "    return dlc::net::Model(arena).call(x, y);\n"
        "}\n"
    )
    shell("g++", "-std=c++17", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "main.cpp", cwd=tmp_path)
    x = numbers(32, 32)
    before = x.copy()
    model = Model.load(tmp_path)
    for _ in range(2):
        np.testing.assert_allclose(model(x)["y"], evaluate(products(), {"x": x})["y"], rtol=1e-4, atol=1e-3)
    assert (x == before).all()


def test_a_plan_in_several_memories_is_text() -> None:
    plan = placed()
    assert parse_plan(plan.graph, plan_text(plan)) == plan
    first, second = plan.regions.items()
    for regions in ((first, second), (second, first)):  # the fastest first, whatever their names
        turned = replace(plan, regions=dict(regions))
        assert tuple(parse_plan(plan.graph, plan_text(turned)).regions.items()) == regions
    check_regions(plan, C.from_spec(Spec.parse("c{memory=fast:600,slow:1MiB}")))
    with pytest.raises(DlcError, match="c has no memory called fast") as found:
        check_regions(plan, C())
    assert found.value.exit_code == ExitCode.USAGE


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("memory=Fast:64KiB", "'Fast' is no name of a memory"),
        ("memory=ram:1KiB,ram:2KiB", "ram stands there twice"),
        ("memory=ram:0", "ram has no bytes"),
        ("memory=ram", "ram"),
        ("memory=register:1KiB,slow:1KiB", "register is a word of C or C++"),
        ("memory=fast:1KiB,slow:1KiB arena=static section=arena:.dtcm", "arena is none of weights, fast, slow"),
        ("memory=fast:1KiB,slow:1KiB section=fast:.dtcm", "arena=static"),
    ],
)
def test_refused(options: str, message: str) -> None:
    with pytest.raises(DlcError, match=re.escape(message)) as found:
        C.from_spec(Spec.parse(f"c{{{options}}}"))
    assert found.value.exit_code == ExitCode.USAGE


def machine_file(place: Path, *lines: str) -> str:
    file = place / "board.toml"
    file.write_text("\n".join(['description = "a board"', "align = 8", *lines]))
    return str(file)


def test_the_memories_of_a_machine(tmp_path: Path) -> None:
    """As if they were written, with their costs; another size in the file is another plan."""
    file = machine_file(tmp_path, 'memories = ["fast:600", "slow:1MiB"]', 'costs = ["slow:2.5"]')
    backend = C.from_spec(Spec.parse(f'c{{machine="{file}" memory=machine}}'))
    assert str(backend.to_spec()).count("memory=machine") == 1
    assert backend.memories == ("fast", "slow")
    assert {name: region.limit for name, region in backend.regions().items()} == {"fast": 600, "slow": 1 << 20}
    settings = backend.settings()["plan-memory"]
    assert (settings["regions"], settings["costs"]) == (("fast:600", "slow:1MiB"), ("slow:2.5",))
    check_regions(placed(), backend)
    assert summary(machine_of(Path(file))) == "a board; memories: fast 600, slow 1MiB"
    machine_file(tmp_path, 'memories = ["only:2KiB"]')
    assert backend.memories == ("arena",)
    assert backend.settings()["plan-memory"]["regions"] == ("only:2KiB",)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("", "has no memories"),
        ('memories = ["fast:0"]', "option memories: fast has no bytes"),
        ('memories = ["fast"]', '"fast" is not of the form name:value'),
        ('memories = ["register:1KiB"]', "register is a word of C or C++"),
        ('memories = ["a:1KiB"]\ncosts = ["b:2"]', "option costs: there is no memory b, but a"),
        ('costs = ["b:2"]', "option costs: there is no memory b, as none is named"),
    ],
)
def test_machines_without_memories_that_can_be_used(line: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(DlcError) as found:
        C.from_spec(Spec.parse(f'c{{machine="{machine_file(tmp_path, line)}" memory=machine}}'))
    assert said in found.value.diagnostics[0].message
    assert found.value.exit_code == ExitCode.USAGE


@pytest.mark.parametrize("cpu", ["native", "cortex-m7"])
def test_machines_without_memories(cpu: str) -> None:
    with pytest.raises(DlcError, match=f"the description of the machine {cpu} has no memories"):
        C.from_spec(Spec.parse(f"c{{cpu={cpu} memory=machine}}")).settings()
