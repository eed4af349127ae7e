"""Programs for processors without vectors, caches or double precision: what they take, and that they are right."""

from __future__ import annotations

import ctypes
import json
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from dlc_backend_c.function import c_function
from dlc_backend_c.library import aligned
from dlc_backend_c.prelude import prelude
from dlc_backend_c.target import target_for

from dlc.base.types import DTYPES
from dlc.kernel.text import parse_kernel
from tests.models.building import MAX_ERROR, Bench, reference
from tests.models.writing import Writer
from tests.tools import COMPILERS

WARNINGS = ("-std=c99", "-Wall", "-Wextra", "-Werror", "-Wdouble-promotion")
CROSS: Mapping[str, tuple[str, ...]] = {
    "host": ("gcc",),
    "cortex-m4": ("arm-none-eabi-gcc", *target_for("cortex-m4").flags),
    "cortex-m0": ("arm-none-eabi-gcc", *target_for("cortex-m0").flags),
}
"""Compilers of which those that are here tell what stack functions take."""
PROGRAMS = ("cortex-m0", "cortex-m4", "riscv32", "generic")


def network() -> onnx.ModelProto:
    """Convolutions of several kinds, pooling, a dense layer and a softmax of 1,000 classes."""
    w = Writer(3)
    x = w.op("Relu", w.op("Conv", "x", w.weight(12, 3, 3, 3, fan_in=27), w.normal(12), pads=[1] * 4, strides=[2, 2]))
    x = w.op("Relu", w.op("Conv", x, w.weight(12, 1, 3, 3, fan_in=9), w.normal(12), pads=[1] * 4, group=12))
    x = w.op("Relu", w.op("Conv", x, w.weight(18, 12, 1, 1, fan_in=12), w.normal(18)))
    x = w.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    x = w.op("Flatten", w.op("GlobalAveragePool", x), axis=1)
    x = w.op("Gemm", x, w.weight(1000, 18, fan_in=18), w.normal(1000, scale=0.1), transB=1)
    y = w.op("Softmax", x, axis=-1)
    return w.model("net", {"x": (np.float32, (1, 3, 20, 20))}, {y: (np.float32, (1, 1000))})


@pytest.fixture(scope="module")
def sources(bench: Bench, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """The C of the network for each machine, without a library."""
    found: dict[str, Path] = {}
    for cpu in PROGRAMS:
        target = f"c{{cpu={cpu} lib=none weights=text prefix=net}}"
        found[cpu] = bench.compile(network(), tmp_path_factory.mktemp(cpu), target=target).directory
    return found


def manifest(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "manifest.json").read_text())


@pytest.mark.parametrize("cc", COMPILERS)
@pytest.mark.parametrize("cpu", PROGRAMS)
def test_results(cpu: str, cc: str, sources: Mapping[str, Path], tmp_path: Path) -> None:
    folder = sources[cpu]
    library = tmp_path / "net.so"
    command = [cc, *WARNINGS, "-Os", "-shared", "-fPIC", *map(str, folder.glob("*.c")), "-lm", "-o", str(library)]
    subprocess.run(command, check=True)
    x = np.random.default_rng(0).standard_normal((1, 3, 20, 20)).astype(np.float32)
    y = np.full((1, 1000), np.nan, np.float32)
    arena = aligned(manifest(folder)["memory"]["arena_bytes"])
    assert ctypes.CDLL(str(library)).net_call(*(ctypes.c_void_p(a.ctypes.data) for a in (x, y, arena))) == 0
    (want,) = reference(folder.parent / "model.onnx", {"x": x}).values()
    assert np.max(np.abs(y - want)) <= MAX_ERROR * np.max(want)


@pytest.mark.parametrize("level", ["-Os", "-O2"])
@pytest.mark.parametrize("cc", [pytest.param(n, marks=pytest.mark.needs(p)) for n, (p, *_) in CROSS.items()])
@pytest.mark.parametrize("cpu", PROGRAMS)
def test_functions_take_no_more_stack_than_the_manifest_says(
    cpu: str, cc: str, level: str, sources: Mapping[str, Path], tmp_path: Path
) -> None:
    folder = sources[cpu]
    command = [*CROSS[cc], level, "-fno-inline", "-fstack-usage", "-c", str(folder / "net.c"), "-o", "net.o"]
    subprocess.run(command, check=True, cwd=tmp_path)
    bounds = {k["function"]: k["stack"] for k in manifest(folder)["kernels"]}
    taken = dict(stack_usage(tmp_path / "net.su"))
    assert set(bounds) <= set(taken)
    for name, bound in bounds.items():
        assert taken[name] <= bound, name
    # The call, the neediest kernel, and helpers, of which none calls another with more than a few registers.
    deepest = taken["net_call"] + taken["net_run"] + max(taken[name] for name in bounds)
    assert deepest <= manifest(folder)["memory"]["stack_bytes"]


def stack_usage(path: Path) -> Iterator[tuple[str, int]]:
    """(function, bytes) of gcc's report; every function has a frame of a fixed size."""
    for line in path.read_text().splitlines():
        place, size, kind = line.split("\t")
        assert kind == "static", line
        name = place.rpartition(":")[2].partition(".")[0]  # a copy for constants is NAME.constprop.0
        yield name.removeprefix("net_") if name.startswith("net_dlc_") else name, int(size)


def test_memory_is_aligned_as_the_machine_asks(sources: Mapping[str, Path]) -> None:
    for cpu, align in (("cortex-m4", 8), ("generic", 64)):
        assert f"#define NET_ARENA_ALIGN {align}\n" in (sources[cpu] / "net.h").read_text()
        text = (sources[cpu] / "net.c").read_text()
        offsets = [int(n) for n in re.findall(r"\((?:w|a) \+ (\d+)\)", text)]
        assert all(n % align == 0 for n in offsets)
        assert any(n % (2 * align) for n in offsets)
    assert _weights(sources["cortex-m4"]) < _weights(sources["generic"])


def _weights(folder: Path) -> int:
    return manifest(folder)["memory"]["weights_bytes"]


@pytest.mark.parametrize("stack", ["0", "1KiB", "64KiB"])
def test_buffers_lie_on_the_stack_up_to_a_limit(stack: str, bench: Bench, tmp_path: Path) -> None:
    target = f"c{{cpu=cortex-m4 stack={stack} lib=none weights=text prefix=net}}"
    folder = bench.compile(network(), tmp_path, target=target).directory
    arrays = [4 * int(n) for n in re.findall(r"^    float \w+\[(\d+)\];", (folder / "net.c").read_text(), re.M)]
    workspaces = [k["workspace"] for k in manifest(folder)["kernels"]]
    assert (max(arrays, default=0), max(workspaces) >= 4000) == {
        "0": (0, True),
        "1KiB": (4, True),
        "64KiB": (4000, False),
    }[stack]


@pytest.mark.parametrize("to", ["i8", "u8", "i16", "i32", "u32", "i64", "u64"])
def test_floats_become_integers_without_double_precision(to: str) -> None:
    element = DTYPES[to]
    kernel = parse_kernel(f"kernel(p0: f32[9]) -> (r0: {element}[9]) {{\n i0<9: r0[i0] = {to}(round(p0[i0]))\n}}")
    target = target_for("cortex-m4")
    function = c_function(kernel, "k", target)
    text = prelude(target, function.text) + function.text
    assert "double" not in text
    assert not re.search(r"\d\.\d+(?!\w*f)", re.sub(r"/\*.*?\*/", "", text))
