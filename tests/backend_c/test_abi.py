"""What a user of the generated files may rely on: C++ too, every form of library, names, no heap, pkg-config."""

import os
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from dlc_backend_c.backend import C

from dlc import Report, Spec
from dlc.base.types import Type, f32
from dlc.graph import Input, evaluate, make_graph
from dlc.ops.elementwise import Relu
from dlc.ops.linear import Conv
from dlc.runtime.install import install
from tests.backend_c.conftest import Compile
from tests.backend_c.models import constant, content, numbers, plan_of, shell, small_net
from tests.tools import CXX_COMPILERS, is_here

# No header of the C++ library, which a machine may lack although it has the compiler.
CXX = """\
#include "net.h"
#include "net.h"
#include <stdio.h>

static_assert(NET_ABI_VERSION >= 1, "");
alignas(NET_ARENA_ALIGN) static unsigned char arena[NET_ARENA_BYTES];
alignas(NET_ARENA_ALIGN) static unsigned char weights[NET_WEIGHTS_BYTES];

static bool prepare()
{
    (void)weights;
    SETUP
    return true;
}

int main()
{
    static float x[NET_INPUT_0_SIZE], p[NET_OUTPUT_0_SIZE], f[NET_OUTPUT_1_SIZE];
    for (float &v : x)
        v = 0.25f;
    if (!prepare() || net_call(x, p, f, arena) != NET_OK)
        return 1;
    for (float v : p)
        printf("%.9g\\n", static_cast<double>(v));
    return 0;
}
"""
MAPPED = """
    FILE *file = fopen(NET_WEIGHTS_FILE, "rb");
    if (!file || fread(weights, 1, NET_WEIGHTS_BYTES, file) != NET_WEIGHTS_BYTES || fclose(file) != 0)
        return false;
    if (net_set_weights(weights) != NET_OK)
        return false;
"""
INTERFACE = {"net_run", "net_call"}
# Nothing that allocates, prints, reads or ends the program: the mathematics of libm, and what compilers make of loops.
FORBIDDEN = re.compile(r"\b(malloc|calloc|realloc|free|aligned_alloc|f?printf|puts|f?open|f?read|f?write|abort|exit)\b")


def defined(file: str, place: Path, *options: str) -> list[tuple[str, str]]:
    """(kind, name) of the symbols that a library defines for others."""
    listed = shell("nm", *options, "--defined-only", "--extern-only", file, cwd=place)
    return re.findall(r"^\S* ?([A-Za-z]) (\S+)$", listed, re.MULTILINE)


def compile_cxx(cxx: str, place: Path, *flags: str) -> None:
    strict = ("-std=c++17", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fno-exceptions", "-fno-rtti")
    shell(cxx, *strict, *flags, "-c", "main.cpp", cwd=place)


@pytest.mark.parametrize("cxx", CXX_COMPILERS)
@pytest.mark.parametrize("lib", ["shared", "static"])
@pytest.mark.parametrize("weights", ["incbin", "text", "map"])
def test_every_library_works_from_cxx(cxx: str, lib: str, weights: str, compile_model: Compile, tmp_path: Path) -> None:
    graph = small_net()
    compile_model(graph, f"c{{prefix=net lib={lib} weights={weights}}}", tmp_path)
    (tmp_path / "main.cpp").write_text(CXX.replace("SETUP", MAPPED if weights == "map" else ""))
    link = ("libnet.a",) if lib == "static" else ("-L.", "-lnet", "-Wl,-rpath,$ORIGIN")
    compile_cxx(cxx, tmp_path)
    shell("cc", "main.o", *link, "-o", "run", "-lm", cwd=tmp_path)
    got = np.array(shell("./run", cwd=tmp_path).split(), np.float32)
    x = np.full((1, 3, 8, 8), 0.25, np.float32)
    np.testing.assert_allclose(got, evaluate(graph, {"x": x})["probabilities"].ravel(), rtol=1e-4)


@pytest.mark.parametrize("lib", ["shared", "static"])
@pytest.mark.parametrize("weights", ["incbin", "text", "map"])
@pytest.mark.parametrize("arena", ["caller", "static"])
def test_all_symbols_have_the_prefix(
    lib: str, weights: str, arena: str, compile_model: Compile, tmp_path: Path
) -> None:
    compile_model(small_net(), f"c{{prefix=net lib={lib} weights={weights} arena={arena}}}", tmp_path)
    file, options = ("libnet.so", ["--dynamic"]) if lib == "shared" else ("libnet.a", [])
    wanted = {*INTERFACE, *(["net_set_weights"] if weights == "map" else [])}
    assert {name for _, name in defined(file, tmp_path, *options)} == wanted
    undefined = shell("nm", *options, "--undefined-only", file, cwd=tmp_path)
    assert not FORBIDDEN.search(undefined), undefined


def test_sources_compiled_by_the_user_have_the_prefix_too(tmp_path: Path) -> None:
    """One `cc -c`, without dlc's linker tricks: kernels are static there."""
    install(C.from_spec(Spec.parse("c{prefix=net lib=none}")).emit(plan_of(small_net()), Report()), tmp_path)
    shell("cc", "-std=c99", "-Wno-psabi", "-c", "net.c", "net_weights.S", cwd=tmp_path)
    assert {name for _, name in defined("net.o", tmp_path)} == INTERFACE
    assert {name for _, name in defined("net_weights.o", tmp_path)} == {"net_weights"}


def test_the_libraries_code_and_weights_cannot_be_written(compile_model: Compile, tmp_path: Path) -> None:
    compile_model(small_net(), "c{prefix=net}", tmp_path)
    segments = shell("readelf", "-lW", "libnet.so", cwd=tmp_path)
    assert not re.search(r"\bRWE\b", segments) and re.search(r"GNU_STACK.* RW ", segments)
    dynamic = shell("readelf", "-dW", "libnet.so", cwd=tmp_path)
    assert "TEXTREL" not in dynamic and "BIND_NOW" in dynamic and "[libnet.so]" in dynamic


@pytest.mark.uses("pkg-config", "g++")
def test_pkg_config_finds_the_library(compile_model: Compile, tmp_path: Path) -> None:
    graph = small_net()
    compile_model(graph, "c{prefix=net}", tmp_path / "net")
    (tmp_path / "main.cpp").write_text(CXX.replace("SETUP", ""))
    flags = [f"-I{tmp_path}/net", f"-L{tmp_path}/net", "-lnet"]
    if is_here("pkg-config"):
        done = subprocess.run(
            ["pkg-config", "--cflags", "--libs", "net"],
            env={"PKG_CONFIG_PATH": str(tmp_path / "net"), "PATH": os.environ["PATH"]},
            capture_output=True,
            text=True,
            check=True,
        )
        flags = done.stdout.split()
    else:
        text = (tmp_path / "net" / "net.pc").read_text()
        assert "Libs: -L${libdir} -lnet" in text and "Cflags: -I${includedir}" in text
    if is_here("g++"):
        compile_cxx("g++", tmp_path, *(f for f in flags if f.startswith("-I")))
        shell("cc", "main.o", *flags, f"-Wl,-rpath,{tmp_path}/net", "-o", "run", cwd=tmp_path)
        assert len(shell("./run", cwd=tmp_path).split()) == 10


def test_equal_layers_are_one_kernel(compile_model: Compile) -> None:
    x = Input("x", Type(f32, (1, 4, 8, 8)))
    y = x
    for seed in range(3):
        y = Relu(Conv(y, constant(4, 4, 3, 3, seed=seed), None, (1, 1), (1, 1, 1, 1), (1, 1), 1))
    graph = make_graph((x,), {"y": y})
    artifact = compile_model(graph, "c{prefix=net lib=none}")
    names = re.findall(r"^/\*=== kernel (\w+) ===\*/$", content(artifact, "net.c").decode(), re.MULTILINE)
    assert len(names) == len(set(names)) == artifact.facts["kernels"]
    calls = artifact.facts["calls"]
    assert isinstance(calls, int) and len(names) < calls
    feeds = {"x": numbers(1, 4, 8, 8)}
    assert evaluate(graph, feeds)["y"].shape == (1, 4, 8, 8)
