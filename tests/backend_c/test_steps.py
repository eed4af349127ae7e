"""The option steps: a call whose steps the caller runs, with other work between them."""

from dataclasses import replace
from pathlib import Path

import pytest
from dlc_backend_c.backend import C
from dlc_backend_c.manifest import from_bytes, read
from dlc_backend_c.sections import split
from dlc_backend_c.steps import CASES

from dlc import Artifact, Report
from dlc.base.types import Type, f32
from dlc.graph import Graph, Input, Op, make_graph
from dlc.ops.elementwise import Abs, Relu
from dlc.ops.shape import Transpose
from tests.backend_c.models import plan_of, shell, small_net
from tests.tools import SANITIZE, SANITIZING

STRICT = ("-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-g", *SANITIZE)
MAIN = """\
#include "net.h"
#include <stdio.h>
#include <string.h>

static _Alignas(NET_ARENA_ALIGN) unsigned char arena[2][NET_ARENA_BYTES + NET_ARENA_ALIGN];
static float x[NET_INPUT_0_SIZE], y[2][OUTPUTS][NET_OUTPUT_0_SIZE + NET_LAST_SIZE];

int main(void)
{
    const void *inputs[] = {x};
    void *whole[OUTPUTS], *parts[OUTPUTS];
    for (int k = 0; k < NET_INPUT_0_SIZE; ++k)
        x[k] = (float)(k * 37 % 23 - 11);
    for (int k = 0; k < OUTPUTS; ++k) {
        whole[k] = y[0][k];
        parts[k] = y[1][k];
    }
    printf("%d", net_run(inputs, whole, arena[0]));
    for (unsigned k = 0; k < NET_STEPS; ++k)
        if (net_step(inputs, parts, arena[1], k) != NET_OK)
            return 1;
    printf(" %d", memcmp(y[0], y[1], sizeof y[0]) == 0);
    memset(y[1], 0, sizeof y[1]);
    for (unsigned k = 0; k + 1 < NET_STEPS; ++k)
        net_step(inputs, parts, arena[1], k);
    printf(" %d", memcmp(y[0], y[1], sizeof y[0]) == 0);
    printf(" %d", net_step(inputs, parts, arena[1], NET_STEPS) == NET_ERROR_STEP);
    printf(" %d %u\\n", net_step(NULL, parts, arena[1], 0) == NET_ERROR_NULL, NET_STEPS);
    return 0;
}
"""


def chain(count: int) -> Graph:
    x = Input("x", Type(f32, (4,)))
    y: Op = x
    for k in range(count):
        y = Abs(y) if k % 2 else Relu(y)
    return make_graph((x,), {"y": y})


def turned() -> Graph:
    """The caller may give one buffer for both, so that the input is copied before the first step."""
    x = Input("x", Type(f32, (3, 3)))
    return replace(make_graph((x,), {"x": Transpose(x, (1, 0))}), aliases=((0, 0),))


def emitted(graph: Graph, *, steps: bool) -> Artifact:
    return C(prefix="net", weights="text", cpu="generic", steps=steps).emit(plan_of(graph), Report())


@pytest.mark.parametrize("cc", SANITIZING)
@pytest.mark.parametrize("graph", [small_net(), chain(3), chain(CASES + 5), turned()], ids=["net", "3", "many", "copy"])
def test_steps_give_what_a_call_gives(graph: Graph, cc: str, tmp_path: Path) -> None:
    artifact = emitted(graph, steps=True)
    for name, content in artifact.files.items():
        (tmp_path / name).write_bytes(read(content))
    outputs = len(graph.outputs)
    (tmp_path / "main.c").write_text(MAIN)
    defined = (f"-DOUTPUTS={outputs}", f"-DNET_LAST_SIZE=NET_OUTPUT_{outputs - 1}_SIZE")
    sources = [p.name for p in tmp_path.glob("*.c")]
    shell(cc, *STRICT, *defined, *sources, "-o", "main", "-lm", cwd=tmp_path)
    steps = len(plan_of(graph).steps)
    assert shell("./main", cwd=tmp_path).split() == ["0", "1", "0", "1", "1", str(steps)]
    assert from_bytes(read(artifact.files["manifest.json"]))["steps"] == steps


def test_without_the_option_there_is_nothing_of_it() -> None:
    plain, other = (emitted(small_net(), steps=given) for given in (False, True))
    header, source = (read(plain.files[f"net.{kind}"]).decode() for kind in "hc")
    header = "".join(line for line in header.splitlines() if " options " not in line)
    assert not any(word in header + source for word in ("net_step", "STEP"))
    before, after = ([s for s in split(read(a.files["net.c"]).decode()) if s.kind != "main"] for a in (plain, other))
    assert before == after, "kernels are the same, so that they are compiled once"
