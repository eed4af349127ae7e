"""Programs in projects of CMake and pkg-config, as users have them: installed, and where dlc wrote them.

As a subdirectory of a project they are in `examples/c` and `examples/microcontroller`, which the tests of pages build.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from dlc_backend_c.backend import C

from dlc import Report, Spec
from dlc.graph import evaluate
from dlc.runtime.install import install
from tests.backend_c.conftest import Compile
from tests.backend_c.models import plan_of, shell, small_net
from tests.backend_c.test_build import EXAMPLE, driver, printed
from tests.tools import is_here

pytestmark = pytest.mark.needs("cmake", "make")
FIND = """\
cmake_minimum_required(VERSION 3.13)
project(example LANGUAGES C)
find_package(NAME REQUIRED)
find_package(NAME REQUIRED)
add_executable(example main.c)
target_link_libraries(example PRIVATE NAME::NAME)
"""


def emit(options: str, place: Path) -> None:
    install(C.from_spec(Spec.parse(f"c{{{options}}}")).emit(plan_of(small_net()), Report()), place)


def project(place: Path, name: str, text: str) -> Path:
    """A directory with a project that has the example."""
    place.mkdir(exist_ok=True)
    (place / "main.c").write_text(driver(name))
    (place / "CMakeLists.txt").write_text(text.replace("NAME", name))
    return place


def built(place: Path, *options: str) -> Path:
    """The example's program."""
    shell("cmake", "-S", place, "-B", place / "out", *options, cwd=place)
    shell("cmake", "--build", place / "out", cwd=place)
    return place / "out" / "example"


def check(program: Path | str, place: Path) -> None:
    want = evaluate(small_net(), {"x": EXAMPLE})["probabilities"]
    np.testing.assert_allclose(printed(shell(program, cwd=place)), want.ravel(), rtol=1e-4)


@pytest.mark.uses("pkg-config")
def test_an_installation_may_move(tmp_path: Path) -> None:
    """The program is called as a target of CMake itself, and needs another package."""
    emit("lib=none threads=2 cpu=generic flags=-O0 prefix=test", tmp_path / "test")
    prefix, moved = tmp_path / "prefix", tmp_path / "moved here"
    shell("cmake", "-S", "test", "-B", "out", f"-DCMAKE_INSTALL_PREFIX={prefix}", cwd=tmp_path)
    shell("cmake", "--build", "out", cwd=tmp_path)
    shell("cmake", "--install", "out", cwd=tmp_path)
    prefix.rename(moved)
    files = sorted(str(p.relative_to(moved)) for p in moved.rglob("*") if p.is_file())
    assert {"include/test.h", "include/test.hpp", "lib/libtest.a"} < {*files}
    written = [p for p in moved.rglob("*") if p.suffix in (".cmake", ".pc")]
    assert len(written) == 4 and not [p for p in written if str(tmp_path) in p.read_text()]
    user = project(tmp_path / "user", "test", FIND)
    check(built(user, f"-DCMAKE_PREFIX_PATH={moved}"), user)
    if is_here("pkg-config"):
        environment = {**os.environ, "PKG_CONFIG_PATH": str(moved / "lib/pkgconfig")}
        command = ("pkg-config", "--cflags", "--libs", "--static", "test")
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        flags = [f.replace("\\ ", " ") for f in re.split(r"(?<!\\) ", done.stdout.strip())]
        shell("gcc", "main.c", *flags, "-o", "run", cwd=user)
        check("./run", user)


def test_where_dlc_wrote_a_library(compile_model: Compile, tmp_path: Path) -> None:
    """A static one; docs/cpp.md has a shared one."""
    compile_model(small_net(), "c{lib=static prefix=net}", tmp_path / "net")
    check(built(project(tmp_path, "net", FIND), f"-DCMAKE_PREFIX_PATH={tmp_path}/net"), tmp_path)


def test_what_cannot_be_used_where_it_is_says_why(tmp_path: Path) -> None:
    emit("lib=none prefix=net", tmp_path / "net")
    emit("lib=static prefix=net", tmp_path / "moved")
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.13)\nproject(user LANGUAGES NONE)\nfind_package(net REQUIRED)\n"
    )
    for place, words in (("net", "has sources only"), ("moved", "libnet.a is missing")):
        command = ("cmake", "-S", ".", "-B", f"out-{place}", f"-Dnet_DIR={tmp_path}/{place}")
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode and words in re.sub(r"\s+", " ", done.stderr)
