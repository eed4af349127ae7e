"""Quantised programs for processors without vectors: bytes by words, no double precision, the stack as told."""

from __future__ import annotations

import ctypes
import json
import re
import subprocess
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from dlc_backend_c.library import aligned

from benchmarks.bare_metal import CC, inputs, taken
from tests.frontend_onnx.quantising import read, statically_quantised
from tests.models.building import Bench
from tests.models.test_small_processors import CROSS, WARNINGS, stack_usage
from tests.models.writing import Writer
from tests.tools import COMPILERS

ort: Any = import_module("onnxruntime")
SIZE, CLASSES = 3 * 12 * 12, 10
PROGRAMS = ("cortex-m0", "cortex-m4", "riscv32", "generic")
WORDS = ("cortex-m4",)
KINDS = ("QInt8", "QUInt8")
ADAPTER = """\
#include "net.h"
int run(const float *x, float *y)
{
    const void *in[1] = {x};
    void *out[1] = {y};
    unsigned k;
    for (k = 0; k < NET_STEPS; k++)
        if (net_step(in, out, 0, k) != NET_OK)
            return 1;
    return 0;
}
"""


def network() -> onnx.ModelProto:
    """Convolutions of several kinds, a residual sum, pools and dense layers; the last gives values with signs."""
    w = Writer(7)

    def conv(x: str, inner: int, outer: int, kernel: int, stride: int = 1, group: int = 1, relu: bool = True) -> str:
        weight = w.weight(outer, inner // group, kernel, kernel, fan_in=inner // group * kernel * kernel, gain=2)
        sizes: dict[str, Any] = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [kernel // 2] * 4}
        y = w.op("Conv", x, weight, w.normal(outer, scale=0.1), group=group, **sizes)
        return w.op("Relu", y) if relu else y

    x = conv("x", 3, 12, 3, 2)
    x = w.op("Relu", w.op("Add", conv(conv(x, 12, 12, 3, group=12), 12, 12, 1, relu=False), x))
    x = conv(w.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2]), 12, 18, 1)
    x = w.op("Flatten", w.op("GlobalAveragePool", x), axis=1)
    y = w.op("Gemm", x, w.weight(CLASSES, 18, fan_in=18), w.normal(CLASSES, scale=0.1), transB=1, name="y")
    return w.model("net", {"x": (np.float32, (1, 3, 12, 12))}, {y: (np.float32, (1, CLASSES))})


@pytest.fixture(scope="module")
def sources(bench: Bench, tmp_path_factory: pytest.TempPathFactory) -> Mapping[tuple[str, str], Path]:
    """The C of the network for each type of activations and each machine, without a library."""
    types: Any = import_module("onnxruntime.quantization").QuantType
    found: dict[tuple[str, str], Path] = {}
    for kind in KINDS:
        place = tmp_path_factory.mktemp(kind)
        write = statically_quantised(
            "QDQ", per_channel=True, activation_type=getattr(types, kind), weight_type=types.QInt8
        )
        write(network(), place / "q.onnx")
        for cpu in PROGRAMS:
            target = f"c{{cpu={cpu} lib=none weights=text prefix=net arena=static steps=yes}}"
            found[kind, cpu] = bench.compile(read(place / "q.onnx"), place / cpu, target=target).directory
    return found


def manifest(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "manifest.json").read_text())


def computed(folder: Path, cc: str, place: Path, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The result of the program, compiled for this machine: with the portable text of all instructions."""
    command = [cc, *WARNINGS, "-O1", "-shared", "-fPIC", *map(str, folder.glob("*.c")), "-lm"]
    subprocess.run([*command, "-o", str(place / "net.so")], check=True)
    library = ctypes.CDLL(str(place / "net.so"))
    y, arena = np.full((1, CLASSES), np.nan, np.float32), aligned(manifest(folder)["memory"]["arena_bytes"])
    given = ((ctypes.c_void_p * 1)(a.ctypes.data) for a in (x, y))
    assert library.net_run(*given, ctypes.c_void_p(arena.ctypes.data)) == 0
    return y


@pytest.mark.parametrize("cc", COMPILERS)
@pytest.mark.parametrize("kind", KINDS)
def test_all_machines_compute_the_same(
    kind: str, cc: str, sources: Mapping[tuple[str, str], Path], tmp_path: Path
) -> None:
    x = inputs(SIZE).reshape(1, 3, 12, 12)
    found: list[np.ndarray[Any, Any]] = []
    for cpu in PROGRAMS:
        (tmp_path / cpu).mkdir()
        found.append(computed(sources[kind, cpu], cc, tmp_path / cpu, x))
    assert all(np.array_equal(y, found[0]) for y in found)
    model = sources[kind, PROGRAMS[0]].parent / "model.onnx"
    (want,) = ort.InferenceSession(str(model), providers=["CPUExecutionProvider"]).run(None, {"x": x})
    steps = np.abs(found[0] - want) / step_of_output(model)
    assert np.max(steps) < 1.01


def step_of_output(model: Path) -> float:
    """The scale of the model's output."""
    graph = read(model).graph
    last = next(n for n in graph.node if graph.output[0].name in n.output)
    scale = next(t for t in graph.initializer if t.name == last.input[1])
    return float(onnx.numpy_helper.to_array(scale))


@pytest.mark.parametrize("cpu", PROGRAMS)
@pytest.mark.parametrize("kind", KINDS)
def test_bytes_are_multiplied_by_words_where_there_is_an_instruction(
    kind: str, cpu: str, sources: Mapping[tuple[str, str], Path]
) -> None:
    text = (sources[kind, cpu] / "net.c").read_text()
    assert ("dlc_dots_i32(" in text, "smlad" in text) == (cpu in WORDS, cpu in WORDS)
    plain = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    assert "double" not in plain
    assert "rintf" not in plain.replace("x = rintf(x)", "")
    assert not re.search(r"dlc_k_\w+\([^)]*int32_t \*restrict r0", text), "what lies between kernels are bytes"


COMPILED = {"cortex-m0": "cortex-m0", "cortex-m4": "cortex-m4", "riscv32": "host", "generic": "host"}
"""With which compiler the stack of each program is looked at."""


@pytest.mark.parametrize("level", ["-Os", "-O2"])
@pytest.mark.parametrize("cpu", [pytest.param(p, marks=pytest.mark.needs(CROSS[cc][0])) for p, cc in COMPILED.items()])
def test_functions_take_no_more_stack_than_the_manifest_says(
    cpu: str, level: str, sources: Mapping[tuple[str, str], Path], tmp_path: Path
) -> None:
    folder, cc = sources[KINDS[0], cpu], COMPILED[cpu]
    for given in ("-fno-inline", "-finline"):
        command = [*CROSS[cc], level, given, "-fstack-usage", "-c", str(folder / "net.c"), "-o", "net.o"]
        subprocess.run(command, check=True, cwd=tmp_path)
        used = dict(stack_usage(tmp_path / "net.su"))
        bounds = {k["function"]: k["stack"] for k in manifest(folder)["kernels"]}
        assert all(used[name] <= bound for name, bound in bounds.items() if name in used)
        kernels = max((used[name] for name in bounds if name in used), default=0)
        for entry in ("net_run", "net_step"):
            assert used["net_call"] + used[entry] + kernels <= manifest(folder)["memory"]["stack_bytes"]


@pytest.mark.needs(CC, "qemu-system-arm")
@pytest.mark.parametrize("cpu", ["cortex-m0", "cortex-m4"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_microcontroller_computes_the_same_step_by_step(
    kind: str, cpu: str, sources: Mapping[tuple[str, str], Path], tmp_path: Path
) -> None:
    folder = sources[kind, cpu]
    done = taken(tmp_path / "qemu", sorted(folder.glob("*.c")), ADAPTER, (SIZE, CLASSES), "-O2")
    want = computed(folder, "gcc", tmp_path, inputs(SIZE))
    assert np.array_equal(done.result.view(np.uint32), want.ravel().view(np.uint32))
    assert done.stack <= manifest(folder)["memory"]["stack_bytes"]
