"""The C++ header: it computes what the functions in C compute, in every standard, without exceptions or RTTI."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from dlc_backend_c.backend import C
from dlc_backend_c.cxx import OWN, namespace
from dlc_backend_c.names import parameter

import dlc.kernel.schedules.parallel
from dlc import Artifact, Report, Spec
from dlc.graph import Graph, evaluate
from dlc.graph.text import parse_graph
from dlc.ops.elementwise import Exp
from dlc.ops.normalize import Softmax
from dlc.runtime.install import install
from tests.backend_c.models import content, plan_of, shell, small_net
from tests.backend_c.test_build import EXAMPLE
from tests.backend_c.test_training_text import emitted, named
from tests.tools import CXX_COMPILERS, SANITIZE, is_here

PROGRAMS = Path(__file__).parent / "programs"
STRICT = ("-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wconversion", "-Wold-style-cast", "-Werror")
BARE = ("-fno-exceptions", "-fno-rtti")
"""As firmware is compiled."""
WORD = re.compile(r"\b[A-Za-z]\w*\b")


ROWS = """
graph(%0 "x": f32[batch(1,6),16]) {
  %1 = exp(%0)
  %2 = softmax(%1) axis=1
  return %2 "y"
}
"""


def rows() -> Graph:
    """A size that each call tells."""
    return parse_graph(ROWS, {"exp": Exp, "softmax": Softmax})


def emit(graph: Graph, options: str) -> Artifact:
    backend = C.from_spec(Spec.parse(f"c{{cpu=generic lib=none {options}}}"))
    return backend.emit(plan_of(graph, backend), Report())


def objects(place: Path, *names: str) -> tuple[str, ...]:
    """Of programs in C: the same for both compilers of C++."""
    sources = [f"{n}{end}.c" for n in names for end in ("", "_weights") if (place / f"{n}{end}.c").exists()]
    shell("gcc", "-std=c99", "-O0", "-c", *sources, cwd=place)
    return tuple(f"{s[:-2]}.o" for s in sources)


@pytest.fixture(scope="module")
def inference(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, tuple[str, ...]]:
    """(a directory with two programs, their objects)."""
    place = tmp_path_factory.mktemp("inference")
    for name, graph in (("net", small_net()), ("rows", rows())):
        install(emit(graph, f"weights=text prefix={name}"), place / name)
        for file in (place / name).glob(f"{name}*"):
            file.rename(place / file.name)
    return place, objects(place, "net", "rows")


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, tuple[str, ...]]:
    """The same of a training program."""
    place = tmp_path_factory.mktemp("training")
    install(
        emitted(named(), "optimizer=sgd{momentum=0.9} loss=cross-entropy", "weights=text cpu=generic lib=none"), place
    )
    return place, objects(place, "net")


RUNS = [(cxx, "c++17") for cxx in CXX_COMPILERS] + [(cxx, "c++20") for cxx in CXX_COMPILERS[:1]]
"""With the span of the header and with that of the library."""


def printed(cxx: str, standard: str, name: str, place: Path, made: tuple[str, ...]) -> list[str]:
    """The words that a program prints."""
    check = SANITIZE if (cxx, standard) == ("g++", "c++17") and is_here("gcc's sanitizers") else ()
    command = (cxx, f"-std={standard}", "-O0", *STRICT, *BARE, *check, "-I.", PROGRAMS / name, *made)
    shell(*command, "-o", f"{cxx}-{standard}", "-lm", cwd=place)
    return shell(place / f"{cxx}-{standard}", cwd=place).split()


@pytest.mark.parametrize(("cxx", "standard"), RUNS)
def test_two_models_compute_what_they_compute_in_c(
    cxx: str, standard: str, inference: tuple[Path, tuple[str, ...]]
) -> None:
    got = np.array(printed(cxx, standard, "open.cpp", *inference), np.float32)
    np.testing.assert_allclose(got, evaluate(small_net(), {"x": EXAMPLE})["probabilities"].ravel(), rtol=1e-4)


@pytest.mark.parametrize(("cxx", "standard"), RUNS)
def test_training_goes_as_in_c(cxx: str, standard: str, training: tuple[Path, tuple[str, ...]]) -> None:
    losses = [float(word) for word in printed(cxx, standard, "train.cpp", *training)]
    assert len(losses) == 6 and losses == sorted(losses, reverse=True) and losses[0] > losses[-1]


SHARED = """
graph(%0 "x": f32[64,64]) {
  %1 = exp(%0)
  %2 = softmax(%1) axis=1
  return %2 "y"
}
"""


@pytest.mark.needs("g++")
def test_loops_run_on_a_function_of_the_caller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dlc.kernel.schedules.parallel, "REGION", 50.0)
    graph = parse_graph(SHARED, {"exp": Exp, "softmax": Softmax})
    install(emit(graph, "prefix=net threads=2 pool=caller steps=yes"), tmp_path)
    assert printed("g++", "c++17", "shared.cpp", tmp_path, objects(tmp_path, "net")) == []


MISUSES = {
    "std::array<float, 15> x{}; (void)model.call(x, y)": r"convert .*array<float, 15>",
    "std::vector<float> x(16); (void)model.call(x, y)": r"convert .*vector<float>",
    "double x[16]; (void)model.call(x, y)": r"convert .*double",
    "float x[16]; const float z[16] = {}; (void)model.call(x, z)": r"convert .*const float",
    "float x[16]; (void)net::Model(net::Arena()).call(x, y)": r"deleted function",
    "float x[16]; model.call(x, y)": r"nodiscard",
}


@pytest.mark.needs("g++")
def test_what_is_wrong_does_not_compile(tmp_path: Path) -> None:
    """Sizes, types, memory that is gone before the call, a result that nobody reads: one error each."""
    graph = parse_graph(SHARED.replace("64,64", "4,4"), {"exp": Exp, "softmax": Softmax})
    install(emit(graph, "prefix=net"), tmp_path)
    lines = [f"void f{k}() {{ {text}; }}" for k, text in enumerate(MISUSES)]
    head = '#include "net.hpp"\n#include <array>\n#include <vector>\nnamespace net = dlc::net;\n'
    head += "static net::Arena arena; static net::Model model(arena); static float y[16];\n"
    (tmp_path / "main.cpp").write_text(head + "\n".join(lines) + "\n")
    command = ("g++", "-std=c++17", "-Werror", "-fsyntax-only", "main.cpp")
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    found = dict(re.findall(r"^main\.cpp:(\d+):\d+: error: (.*)$", done.stderr, re.MULTILINE))
    assert [int(line) - 6 for line in found] == [*range(len(MISUSES))], done.stderr
    assert all(re.search(want, found[str(k + 6)]) for k, want in enumerate(MISUSES.values())), found


def checked(cxx: str, place: Path, *headers: str, options: tuple[str, ...] = ()) -> None:
    """Headers that compile without a warning, each included twice."""
    text = "".join(f'#include "{h}"\n' for h in (*headers, *headers))
    (place / "all.cpp").write_text(text)
    shell(cxx, "-std=c++17", *STRICT, *BARE, *options, "-fsyntax-only", "all.cpp", cwd=place)


NETS = [
    "steps=yes profile=yes check=inputs weights=map threads=4 pool=caller prefix=LENET",
    "arena=static threads=2 prefix=std",
    "prefix=exp",
]
ROW_NETS = ["weights=text threads=auto pool=openmp prefix=detail", "steps=yes prefix=NULL"]


@pytest.fixture(scope="module")
def headers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Headers of programs with many options, whose prefixes are namespaces, macros or functions of C elsewhere."""
    place = tmp_path_factory.mktemp("headers")
    graphs = [(small_net(), o) for o in NETS] + [(rows(), o) for o in ROW_NETS]
    for graph, options in graphs:
        name = options.rpartition("=")[2]
        artifact = emit(graph, options)
        for end in ("h", "hpp"):
            (place / f"{name}.{end}").write_bytes(content(artifact, f"{name}.{end}"))
    return place


@pytest.mark.parametrize("cxx", CXX_COMPILERS)
def test_headers_of_every_option_and_name_compile_together(cxx: str, headers: Path) -> None:
    """Also without any header of the C++ library."""
    names = [p.name for p in sorted(headers.glob("*.hpp"))]
    assert len(names) == 5
    checked(cxx, headers, "stdlib.h", "math.h", "stdio.h", *names)
    checked(cxx, headers, *names, options=("-ffreestanding", "-nostdinc++"))


def test_no_two_prefixes_share_a_namespace() -> None:
    prefixes = ["NULL", "NULL_", "NULL__", "mnist", "I", "I_", "EOF", "A", "std", "complex", "complex_"]
    found = [namespace(p) for p in prefixes]
    assert len(set(found)) == len(found) and {"NULL_", "mnist", "A", "std", "I_", "EOF_"} <= {*found}
    assert not {"NULL", "I", "EOF", "complex"} & {*found}


@pytest.mark.needs("g++")
def test_tensors_may_have_the_names_that_the_header_uses_itself(
    inference: tuple[Path, tuple[str, ...]], training: tuple[Path, tuple[str, ...]], tmp_path: Path
) -> None:
    """Every word of a header in turn names its parameters, but those that it keeps; shadowing is an error."""
    parts: list[str] = []
    for place, name, mine in ((inference[0], "rows", ("x", "batch", "y")), (training[0], "net", ("x", "y", "loss"))):
        (tmp_path / f"{name}.h").write_bytes((place / f"{name}.h").read_bytes())
        text = re.sub(r"/\*.*?\*/", "", (place / f"{name}.hpp").read_text(), flags=re.DOTALL)
        words = sorted({*WORD.findall(text)} - {*mine, "out"})
        own = [w for w in words if parameter(w, OWN, name.upper()) == w and not w.startswith("_")]
        assert "data" in own and not {"span", "Status", "memory_", "t_", "int"} & {*own} and len(own) > 40
        for k in range(0, len(own), 3):
            taken = dict(zip(mine, own[k : k + 3], strict=False))
            changed = re.sub(rf"\b({'|'.join(mine)})\b", lambda m, t=taken: t.get(m[1], m[1]), text)
            changed = changed.replace(f"namespace {name} {{", f"namespace {name}{k} {{").replace("_HPP", f"_{k}_HPP")
            parts.append(changed.replace(f'"{taken.get(name, name)}.h"', f'"{name}.h"'))
    (tmp_path / "all.cpp").write_text("\n".join(parts))
    shell("g++", "-std=c++17", *STRICT, "-fsyntax-only", "all.cpp", cwd=tmp_path)
