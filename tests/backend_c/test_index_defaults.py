"""An index out of range is an error of a call in C and C++, by default: for every op that is indexed, at every size."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from dlc_backend_c.backend import C

from dlc import Report, Spec
from dlc.base.types import DType, Type, f32, i8, i32, i64, u8
from dlc.graph import Constant, Graph, Input, Op, Tensor, make_graph
from dlc.graph.input_ranges import with_ranges
from dlc.graph.text import parse_graph
from dlc.ops import index as ix
from dlc.ops import loss as ls
from dlc.ops.elementwise import Cast
from dlc.runtime.install import install
from tests.backend_c.models import numbers, plan_of, shell
from tests.tools import COMPILERS, CXX_COMPILERS, SANITIZE, SANITIZING

STRICT = ("-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-O0")


def indexed() -> Iterator[Op]:
    """Every op that is indexed by data, each by an input of its own, of all types that ids come in."""
    x, u = Constant(Tensor.of(numbers(10, 3))), Constant(Tensor.of(numbers(6, 3)))

    def ids(*shape: int, dtype: DType = i64) -> Op:
        given = Input(f"ids{next(count)}", Type(dtype, shape))
        return given if dtype in (i32, i64) else Cast(given, to=i64)

    count = iter(range(100))
    for dtype in (i64, i32, i8, u8):
        yield ix.Gather(x, ids(6, dtype=dtype))
    yield ix.Gather(Constant(Tensor.of(numbers(3, 10))), ids(6), axis=1)
    yield ix.GatherElements(x, ids(6, 3))
    yield ix.GatherNd(x, ids(6, 2))
    yield ix.ScatterElements(x, ids(6, 3, dtype=i32), u)
    yield ix.ScatterNd(x, ids(6, 1), u, reduce="add")
    yield ls.NegativeLogLikelihood(Constant(Tensor.of(numbers(6, 10))), ids(6), None, ignore_index=-100)


def graph_of(ops: list[Op]) -> Graph:
    """All of them, and the ranges of their inputs."""
    inputs: dict[str, Input] = {}
    stack = list(ops)
    while stack:
        op = stack.pop()
        if isinstance(op, Input):
            inputs[op.name] = op
        stack += op.operands
    found = [inputs[name] for name in sorted(inputs, key=lambda n: int(n[3:]))]
    return with_ranges(make_graph(found, {f"y{k}": op for k, op in enumerate(ops)}))


MAIN = """\
#include "net.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *inputs[NET_INPUTS], *outputs[NET_OUTPUTS], *arena;

/* The result of a call with a number in one place, and whether it wrote anything. */
static void call(int k, int bytes, int place, long long value)
{
    unsigned char *at = (unsigned char *)inputs[k] + bytes * place;
    int code;
    if (bytes == 8) *(int64_t *)(void *)at = (int64_t)value;
    else if (bytes == 4) *(int32_t *)(void *)at = (int32_t)value;
    else *at = (unsigned char)value;
    memset(outputs[0], 0x5a, NET_OUTPUT_0_BYTES);
    code = net_run((const void *const *)inputs, outputs, arena);
    printf("%d%s\\n", code, code != NET_OK && *(unsigned char *)outputs[0] != 0x5a ? " written" : "");
    memset(at, 0, (size_t)bytes);
}

int main(void)
{
    const size_t in[] = {IN}, out[] = {OUT};
    int k, bytes, place;
    long long value;
    for (k = 0; k < NET_INPUTS; k++)
        inputs[k] = calloc(1, in[k]); /* exactly as many bytes: the sanitizer sees the next one */
    for (k = 0; k < NET_OUTPUTS; k++)
        outputs[k] = malloc(out[k]);
    arena = aligned_alloc(64, (NET_ARENA_BYTES + 127) / 64 * 64);
    while (scanf("%d %d %d %lld", &k, &bytes, &place, &value) == 4)
        call(k, bytes, place, value);
    for (k = 0; k < NET_INPUTS; k++)
        free(inputs[k]);
    for (k = 0; k < NET_OUTPUTS; k++)
        free(outputs[k]);
    free(arena);
    return 0;
}
"""


def emit(graph: Graph, folder: Path, options: str = "") -> None:
    backend = C.from_spec(Spec.parse(f"c{{cpu=generic lib=none prefix=net weights=text {options}}}"))
    install(backend.emit(plan_of(graph, backend), Report()), folder)


def sources(folder: Path) -> list[str]:
    return sorted(f.name for f in folder.glob("*.c"))


def test_every_op_refuses_indices_out_of_range(tmp_path: Path) -> None:
    graph = graph_of(list(indexed()))
    emit(graph, tmp_path)
    asked: list[tuple[str, int]] = []
    for k, given in enumerate(graph.inputs):
        assert given.range is not None, given.name
        ((low, high),) = given.range.parts[-1].intervals[-1:]
        least, largest = given.dtype.limits
        bytes, last, label = given.dtype.itemsize, given.type.capacity - 1, given.range.what == "label"
        values = {low: 0, high: 0, high + 1: 4 if label else 7, low - 1: 4 if label else 7, 10**12: 4 if label else 7}
        values |= {-100: 0} if label else {}
        asked += [(f"{k} {bytes} {last} {v}", code) for v, code in values.items() if least <= v <= largest]
    assert len(asked) > 40
    sizes = {"IN": graph.inputs, "OUT": graph.outputs}
    text = MAIN
    for word, ops in sizes.items():
        text = text.replace(f"{{{word}}}", f"{{{', '.join(str(x.type.nbytes) for x in ops)}}}")
    (tmp_path / "main.c").write_text(text)
    cc, checks = (SANITIZING[0], SANITIZE) if SANITIZING else (COMPILERS[0], ())
    shell(cc, *STRICT, "-std=c11", *checks, *sources(tmp_path), "-o", "run", "-lm", cwd=tmp_path)
    given = "".join(f"{line}\n" for line, _ in asked)
    done = subprocess.run([tmp_path / "run"], input=given, capture_output=True, text=True, check=True).stdout
    assert list(zip(asked, done.split("\n"), strict=False)) == [((line, code), str(code)) for line, code in asked]


OPEN = """
graph(%0 "ids": i32[seq(1,64)], %1 "table": f32[10,4]) {
  %2 = gather(%1, %0)
  return %2 "y"
}
"""
OPEN_MAIN = """\
#include "net.h"
#include <stdlib.h>
#include <string.h>

int main(void)
{
    static float table[40], y[64 * 4];
    void *const arena = aligned_alloc(64, (NET_ARENA_BYTES + 127) / 64 * 64);
    int64_t seq;
    for (seq = 1; seq <= 64; seq += 21) {
        int32_t *ids = malloc((size_t)seq * sizeof *ids); /* the sanitizer sees the next one */
        const void *inputs[] = {ids, table, &seq};
        void *outputs[] = {y};
        memset(ids, 0, (size_t)seq * sizeof *ids);
        if (net_run(inputs, outputs, arena) != NET_OK)
            return 1;
        ids[seq - 1] = 10;
        if (net_run(inputs, outputs, arena) != NET_ERROR_INDEX)
            return 2;
        ids[seq - 1] = -10;
        if (net_run(inputs, outputs, arena) != NET_OK)
            return 3;
        free(ids);
    }
    seq = 65;
    {
        const void *inputs[] = {table, table, &seq};
        void *outputs[] = {y};
        if (net_run(inputs, outputs, arena) != NET_ERROR_SHAPE)
            return 4;
    }
    free(arena);
    return 0;
}
"""


def test_of_an_open_size_as_many_ids_are_checked_as_a_call_has(tmp_path: Path) -> None:
    emit(with_ranges(parse_graph(OPEN, {"gather": ix.Gather})), tmp_path)
    (tmp_path / "main.c").write_text(OPEN_MAIN)
    cc, checks = (SANITIZING[0], SANITIZE) if SANITIZING else (COMPILERS[0], ())
    shell(cc, *STRICT, "-std=c11", *checks, *sources(tmp_path), "-o", "run", "-lm", cwd=tmp_path)
    shell(tmp_path / "run", cwd=tmp_path)


def embedding() -> Graph:
    ids = Input("ids", Type(i64, (3,)))
    return with_ranges(make_graph((ids,), {"y": ix.Gather(Constant(Tensor.of(numbers(10, 4))), ids)}))


@pytest.mark.parametrize("cxx", CXX_COMPILERS[:1])
def test_cxx_has_a_status_for_it(cxx: str, tmp_path: Path) -> None:
    emit(embedding(), tmp_path)
    (tmp_path / "main.cpp").write_text("""\
#include "net.hpp"
#include <cstring>
using namespace dlc;
int main()
{
    int64_t ids[3] = {0, 1, 1000000000000};
    float y[12];

    const net::Model model{};
    if (model.call(ids, y) != net::Status::bad_index || !std::strstr(net::message(net::Status::bad_index), "index"))
        return 1;
    ids[2] = -10;
    return model.call(ids, y) != net::Status::ok;
}
""")
    shell("gcc", "-c", *sources(tmp_path), cwd=tmp_path)
    objects = [f"{s[:-2]}.o" for s in sources(tmp_path)]
    shell(cxx, "-std=c++17", "-Wall", "-Wextra", "-Werror", "main.cpp", *objects, "-o", "run", "-lm", cwd=tmp_path)
    shell(tmp_path / "run", cwd=tmp_path)


def test_checks_are_left_out_on_request_and_where_nothing_is_indexed(tmp_path: Path) -> None:
    emit(embedding(), tmp_path / "unchecked", "check=none")
    assert "in_range" not in (tmp_path / "unchecked" / "net.c").read_text()
    assert "ERROR_INDEX" not in (tmp_path / "unchecked" / "net.h").read_text()
    x = Input("x", Type(f32, (3, 4)))
    emit(
        with_ranges(make_graph((x,), {"y": ix.Gather(x, Constant(Tensor.of(numbers(3).astype("int64") * 0)))})),
        tmp_path,
    )
    assert "in_range" not in (tmp_path / "net.c").read_text()


def test_steps_check_at_the_first_one_only(tmp_path: Path) -> None:
    """A later step may find the ids written over."""
    emit(embedding(), tmp_path, "steps=yes")
    text = (tmp_path / "net.c").read_text()
    step = text[text.index("int net_step(") :]
    assert step.count("net_in_range_0(") == 1
    assert "if (step == 0u) {\n        if (!net_in_range_0(" in step
