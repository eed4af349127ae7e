"""Indices that are out of range: compiled code refuses them, and without checks stays in its memory."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from dlc_backend_c.backend import C
from dlc_backend_c.spelling import literal
from dlc_backend_c.target import target_for

from dlc import DlcError, Report, Spec
from dlc.base.types import DType, Type, f32, i8, i32, i64
from dlc.graph import Constant, Graph, Input, Op, Splat, Tensor, make_graph, toposort
from dlc.graph.gradient import gradients
from dlc.graph.input_ranges import with_ranges
from dlc.ops import index as ix
from dlc.ops import loss as ls
from dlc.ops.elementwise import Cast
from dlc.runtime.install import install
from tests.backend_c.conftest import Compile
from tests.backend_c.models import numbers, plan_of, shell
from tests.tools import COMPILERS, SANITIZE, SANITIZING

STRICT = ("-std=c99", "-Wall", "-Wextra", "-Werror")
HUGE = (
    -(2**63),
    -(2**62),
    -(2**31) - 1,
    -(2**31),
    -11,
    -10,
    -5,
    -1,
    0,
    4,
    9,
    10,
    255,
    2**31 - 1,
    2**31,
    2**32,
    2**63 - 1,
)


def values(*shape: int, name: str = "x") -> Input:
    return Input(name, Type(f32, shape))


def indices(*shape: int, dtype: DType = i64) -> Input:
    return Input("ids", Type(dtype, shape))


def indexed() -> Iterator[Op]:
    """Every op that is indexed by data, and its losses with labels."""
    x, u = values(10, 3), values(6, 3, name="u")
    yield ix.Gather(x, indices(6))
    yield ix.Gather(values(3, 10), indices(6, dtype=i32), axis=1)
    yield ix.Gather(x, Cast(indices(6, dtype=i8), to=i64))
    yield ix.GatherElements(x, indices(6, 3))
    yield ix.GatherNd(x, indices(6, 2))
    yield ix.GatherNd(values(6, 10), indices(6, 1), batch=1)
    for reduce in ("", "add", "max"):
        yield ix.ScatterElements(x, indices(6, 3), u, reduce=reduce)
        yield ix.ScatterNd(x, indices(6, 1), u, reduce=reduce)
    yield ix.OneHot(indices(6), values(2), depth=10, axis=1)
    yield ls.PickLabel(values(6, 10), indices(6), ignore_index=-1)
    yield ls.LabelMask(indices(6), classes=10)
    for ignore in (None, -100):
        yield ls.CrossEntropy(values(6, 10), indices(6), values(10, name="u"), ignore_index=ignore, label_smoothing=0.1)
        yield ls.NegativeLogLikelihood(values(6, 10), indices(6), values(10, name="u"), ignore_index=ignore)


def with_gradients(op: Op) -> Graph:
    """The op, and the gradients of the sum of its elements."""
    inputs = tuple(x for x in toposort((op,)) if isinstance(x, Input))
    floats = [i for i in inputs if i.dtype.is_float] if op.dtype.is_float else []
    if getattr(op, "reduce", "") == "max":
        floats = []  # it has none
    found = gradients((op,), (Splat(1.0, op.type),), floats) if floats else ()
    return make_graph(inputs, {"y": op, **{f"d{k}": g for k, g in enumerate(found) if not isinstance(g, Splat)}})


MAIN = """\
#include "PREFIX.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static const int64_t huge[] = {HUGE};

static void *room(size_t bytes)
{
    void *const found = malloc(bytes); /* exactly as many bytes: the sanitizer sees the next one */
    memset(found, 0, bytes);
    return found;
}

int main(void)
{
    const void *inputs[PREFIX_INPUTS];
    void *outputs[PREFIX_OUTPUTS], *arena = aligned_alloc(64, (PREFIX_ARENA_BYTES + 127) / 64 * 64);
    const size_t in[] = {IN}, out[] = {OUT};
    size_t k, n, i;
    CTYPE *ids;

    for (k = 0; k < PREFIX_INPUTS; k++)
        inputs[k] = room(in[k]);
    for (k = 0; k < PREFIX_OUTPUTS; k++)
        outputs[k] = room(out[k]);
    ids = (CTYPE *)(uintptr_t)inputs[IDS];
    for (n = 0; n < sizeof huge / sizeof *huge; n++) {
        for (i = 0; i < PREFIX_INPUT_IDS_SIZE; i++)
            ids[i] = (CTYPE)(i % 3 ? huge[n] : huge[(n + i) % (sizeof huge / sizeof *huge)]);
        if (lower_run(inputs, outputs, arena) != PREFIX_OK)
            return 1;
    }
    for (k = 0; k < PREFIX_INPUTS; k++)
        free((void *)(uintptr_t)inputs[k]);
    for (k = 0; k < PREFIX_OUTPUTS; k++)
        free(outputs[k]);
    free(arena);
    return 0;
}
"""


@pytest.mark.parametrize("cc", SANITIZING[:1])
@pytest.mark.parametrize("cpu", ["generic", "native"])
def test_no_index_leaves_its_tensor(cc: str, cpu: str, tmp_path: Path) -> None:
    """Ops that are indexed by data and their gradients, on the smallest, the largest and odd integers, sanitized."""
    flags = [f for f in target_for(cpu).flags if f.startswith("-m")]
    for number, op in enumerate(indexed()):
        graph, prefix = with_gradients(op), f"op{number}"
        folder = tmp_path / prefix
        install(
            C.from_spec(Spec.parse(f"c{{cpu={cpu} lib=none prefix={prefix} check=none}}")).emit(
                plan_of(graph), Report()
            ),
            folder,
        )
        at = next(k for k, i in enumerate(graph.inputs) if i.name == "ids")
        ids = graph.inputs[at].dtype
        macro = prefix.upper()
        sizes = {"IN": graph.inputs, "OUT": graph.outputs}
        text = MAIN.replace("HUGE", ", ".join(literal(v, i64) for v in HUGE)).replace("INPUT_IDS", f"INPUT_{at}")
        for word, ops in sizes.items():
            text = text.replace(f"{{{word}}}", f"{{{', '.join(str(x.type.nbytes) for x in ops)}}}")
        text = text.replace("[IDS]", f"[{at}]").replace("CTYPE", f"int{ids.itemsize * 8}_t")
        text = text.replace("PREFIX.h", f"{prefix}.h").replace("PREFIX", macro).replace("lower", prefix)
        (folder / "main.c").write_text(text)
        weights = [f"{prefix}_weights.S"] * (folder / f"{prefix}_weights.S").exists()
        strict = ("-std=c11", "-Wall", "-Wextra", "-Werror", *flags, "-O1", *SANITIZE)
        shell(cc, *strict, "main.c", f"{prefix}.c", *weights, "-o", "run", "-lm", cwd=folder)
        shell("./run", cwd=folder)


CHECKED = """\
#include "net.h"
#include <stdio.h>
#include <string.h>

int main(void)
{
    static int64_t ids[NET_INPUT_0_SIZE];
    static float y[NET_OUTPUT_0_SIZE];
    static unsigned char arena[NET_ARENA_BYTES + 1];
    const void *inputs[] = {ids};
    void *outputs[] = {y};
    long long place, value;

    while (scanf("%lld %lld", &place, &value) == 2) {
        int code;
        memset(ids, 0, sizeof ids);
        memset(y, 0x5a, sizeof y);
        ids[place] = (int64_t)value;
        code = net_run(inputs, outputs, arena);
        printf("%d%s\\n", code, code != NET_OK && ((unsigned char *)y)[0] != 0x5a ? " written" : "");
    }
    return 0;
}
"""
RANGES = {
    "index -10..9": [(0, -10, 0), (5, 9, 0), (0, -11, 7), (5, 10, 7), (3, 2**63 - 1, 7), (2, -(2**63), 7)],
    "index -100..-100|0..9": [(0, -100, 0), (1, 0, 0), (4, 9, 0), (1, -99, 7), (1, -1, 7), (5, 10, 7)],
    "index [0:2,0:1]-10..9;[0:2,1:3]-5..4": [(0, 9, 0), (1, 9, 7), (3, 9, 0), (5, -5, 0), (5, -6, 7), (3, -11, 7)],
    "index [0:1,1:2]0..4": [(0, 99, 0), (1, 5, 7), (4, 5, 0), (1, 4, 0)],
    f"index -10..{2**63 - 1}": [(0, 2**63 - 1, 0), (0, -11, 7)],
}


@pytest.mark.parametrize("cc", COMPILERS)
@pytest.mark.parametrize("text", RANGES)
def test_c_refuses_what_is_out_of_range(cc: str, text: str, tmp_path: Path) -> None:
    ids = Input("ids", Type(i64, (2, 3)), allowed=text)
    table = Constant(Tensor.of(numbers(10, 4)))
    plan = plan_of(make_graph((ids,), {"y": ix.Gather(table, ids)}))
    install(C.from_spec(Spec.parse("c{cpu=generic lib=none prefix=net}")).emit(plan, Report()), tmp_path)
    (tmp_path / "main.c").write_text(CHECKED)
    shell(cc, *STRICT, "-pedantic", "-O1", "main.c", "net.c", "net_weights.S", "-o", "run", "-lm", cwd=tmp_path)
    given = "".join(f"{place} {value}\n" for place, value, _ in RANGES[text])
    done = subprocess.run(["./run"], cwd=tmp_path, input=given, capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:-1] == [str(code) for *_, code in RANGES[text]]


@pytest.mark.parametrize("text", RANGES)
def test_a_call_refuses_the_same(text: str, compile_model: Compile, tmp_path: Path) -> None:
    ids = Input("ids", Type(i64, (2, 3)), allowed=text)
    compile_model(make_graph((ids,), {"y": ix.Gather(Constant(Tensor.of(numbers(10, 4))), ids)}), "c{}", tmp_path)
    model = C().load(tmp_path)
    for place, value, code in RANGES[text]:
        given = np.zeros((2, 3), np.int64)
        given.flat[place] = value
        if not code:
            model(ids=given)
            continue
        with pytest.raises(DlcError, match=f"{value} at .* is out of range") as found:
            model(ids=given)
        assert found.value.diagnostics[0].code == "bad-index"


def test_the_header_tells_the_range(compile_model: Compile, tmp_path: Path) -> None:
    ids = Input("ids", Type(i64, (2, 3)))
    graph = with_ranges(make_graph((ids,), {"y": ix.Gather(Constant(Tensor.of(numbers(10, 4))), ids)}))
    compile_model(graph, "c{prefix=net}", tmp_path)
    header = (tmp_path / "net.h").read_text()
    assert "/* Indices: -10 to 9. */\n#define NET_INPUT_0_LOW (-10)\n#define NET_INPUT_0_HIGH 9\n" in header
    assert "#define NET_ERROR_INDEX 7" in header
    assert C().load(tmp_path).signature.inputs[0].allowed == graph.inputs[0].range
