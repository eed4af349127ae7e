"""What a second build costs, and what a changed model makes again. `benchmarks/build_time.py` measures the same on
ResNet-50, with the bound of 5 %."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.session.building import (
    ROOT,
    SOURCES,
    build,
    compiled,
    contents,
    conv_net,
    dlc,
    environment,
    generated,
    save,
)


@dataclass(frozen=True)
class Built:
    """A model that was built with a cold cache."""

    place: Path
    document: dict[str, Any]
    seconds: float

    def again(
        self, model: str = "model/net.onnx", output: str = "out", *more: str, env: dict[str, str] | None = None
    ) -> dict[str, Any]:
        return build(model, "-o", output, "--cache-dir", "cache", *more, cwd=self.place, env=env)

    def why(self, model: str) -> str:
        found = dlc("cache", "why", model, "--cache-dir", "cache", cwd=self.place)
        assert found.returncode == 0, found.stderr
        return found.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Built]:
    place = tmp_path_factory.mktemp("reuse")
    save(conv_net(), place / "model" / "net.onnx")
    save(conv_net(seed=1), place / "weights" / "net.onnx")
    save(conv_net(prefix="other_"), place / "names" / "net.onnx")
    start = of_children()
    document = build("model/net.onnx", "-o", "out", "--cache-dir", "cache", cwd=place, env=environment())  # as below
    yield Built(place, document, of_children() - start)


def of_children() -> float:
    """Seconds that processors worked for the processes started here; others' work does not count."""
    times = os.times()
    return times.children_user + times.children_system


def test_a_cold_build_compiles_every_kernel(built: Built) -> None:
    assert compiled(built.document) == built.document["memory"]["kernels"] + 1
    assert generated(built.document) == built.document["memory"]["kernels"]
    assert not any(step["cached"] for step in built.document["steps"])


def test_a_second_build_runs_nothing_and_takes_a_fraction(built: Built) -> None:
    start = of_children()
    document = built.again("model/net.onnx", "out", "--cache", "require", env=environment())  # one whose start counts
    seconds = of_children() - start
    print(f"cold {built.seconds:.2f} s, warm {seconds:.2f} s: {100 * seconds / built.seconds:.1f} %")
    assert all(step["cached"] for step in document["steps"]) and document["cache"]["misses"] == 0
    assert document["files"] == built.document["files"] and document["memory"] == built.document["memory"]
    assert [s["step"] for s in document["steps"]] == [s["step"] for s in built.document["steps"]]
    assert seconds < built.seconds / 4  # a small model; the benchmark has the real bound


HEAVY = (
    "numpy",
    "onnx",
    "cffi",
    "typer",
    "jinja2",
    "pydantic",
    "rich",
    "dlc.graph",
    "dlc.passes.fuse",
    "dlc.ops",
    "dlc.driver.codec",
)


def test_a_second_build_imports_nothing_heavy(built: Built) -> None:
    arguments = ["build", "model/net.onnx", "-o", "out", "--cache-dir", "cache", "--cache", "require"]
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "dlc", *arguments],
        cwd=built.place,
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if "import time:" in line}
    assert "dlc.cli.quick" in imported
    assert not imported.intersection(HEAVY)


def test_another_directory_gets_the_same_files(built: Built) -> None:
    built.again("model/net.onnx", "elsewhere")
    assert contents(built.place / "elsewhere") == contents(built.place / "out")


def test_what_was_changed_or_removed_in_the_output_is_put_right(built: Built) -> None:
    built.again("model/net.onnx", "mended")
    before = contents(built.place / "mended")
    (built.place / "mended" / "net.h").write_text("mine")
    (built.place / "mended" / "libnet.so").unlink()
    (built.place / "mended" / "notes.txt").write_text("kept")
    document = built.again("model/net.onnx", "mended")
    assert all(step["cached"] for step in document["steps"])
    assert contents(built.place / "mended") == {**before, "notes.txt": b"kept"}


def test_other_weights_compile_nothing(built: Built) -> None:
    document = built.again("weights/net.onnx", "w")
    print(f"other weights: {compiled(document)} compilers")
    assert compiled(document) == 0 and not document["steps"][-1]["cached"]
    assert generated(document) == 0 and not document["steps"][-2]["cached"]
    assert document["steps"][-2]["counts"]["generate hits"] == document["memory"]["kernels"]
    assert (built.place / "w" / "net.c").read_bytes() == (built.place / "out" / "net.c").read_bytes()
    why = built.why("weights/net.onnx")
    assert "input: source" in why and "weights: " in why and "names: " not in why


def test_other_names_compile_nothing(built: Built) -> None:
    document = built.again("names/net.onnx", "n")
    print(f"other names: {compiled(document)} compilers")
    assert compiled(document) == 0 and not document["steps"][-1]["cached"]
    why = built.why("names/net.onnx")
    assert "input: source" in why and "names: " in why


@pytest.mark.parametrize("changed", ["dlc/kernel/simplify.py", "plugins/backend_c/dlc_backend_c/spelling.py"])
def test_a_changed_generator_generates_every_kernel_again(tmp_path: Path, changed: str) -> None:
    """The text of a kernel depends on code, what is compiled on the text only."""
    package = (ROOT / changed).relative_to(next(s for s in reversed(SOURCES) if (ROOT / changed).is_relative_to(s)))
    name = package.parts[0]
    source = ROOT / changed.partition(name)[0] / name
    shutil.copytree(source, tmp_path / "changed" / name, ignore=shutil.ignore_patterns("__pycache__"))
    save(conv_net(()), tmp_path / "net.onnx")
    ordinary = environment()
    other = environment(PYTHONPATH=f"{tmp_path / 'changed'}{os.pathsep}{ordinary['PYTHONPATH']}")

    def again(env: dict[str, str]) -> dict[str, Any]:
        return build("net.onnx", "-o", "out", "--cache-dir", "cache", cwd=tmp_path, env=env)

    first = again(ordinary)
    kernels = first["memory"]["kernels"]
    assert generated(first) == kernels > 0
    same = again(other)  # a copy is the same code
    assert all(step["cached"] for step in same["steps"])
    with (tmp_path / "changed" / package).open("a") as file:
        file.write("# another generator\n")
    second = again(other)
    assert generated(second) == kernels and compiled(second) == 0
    assert second["files"] == first["files"]


def test_names_of_nodes_alone_are_not_taken_from_another_model(tmp_path: Path) -> None:
    """They are in no graph's digest, but generated code shows them."""
    for name in ("first", "second"):
        model = conv_net(())
        for node in model.graph.node:
            node.name = f"{name}_{node.op_type}"
        save(model, tmp_path / name / "net.onnx")
        build(f"{name}/net.onnx", "-t", "c{lib=none}", "-o", f"out-{name}", "--cache-dir", "cache", cwd=tmp_path)
        text = (tmp_path / f"out-{name}" / "net.c").read_text()
        assert f"{name}_Gemm" in text
    assert (
        "names: "
        in dlc("cache", "why", "second/net.onnx", "-t", "c{lib=none}", "--cache-dir", "cache", cwd=tmp_path).stdout
    )


def test_a_build_that_the_cache_lacks_says_so_when_it_must_not(built: Built) -> None:
    save(conv_net(seed=9), built.place / "unknown" / "net.onnx")
    done = dlc("build", "unknown/net.onnx", "-o", "u", "--cache-dir", "cache", "--cache", "require", cwd=built.place)
    assert done.returncode == 7 and "input: source" in done.stderr
    assert not (built.place / "u").exists()


def test_flags_read_without_typer_mean_the_same(built: Built) -> None:
    """The quick form and typer's agree about every request, or the second build would not be found."""
    save(conv_net(()), built.place / "tiny" / "net.onnx")
    rest = ["-t", "c{lib=none}", "--set", "fuse.max-nests=4", "--without", "layout"]
    first = built.again("tiny/net.onnx", "tiny-out", *rest)
    again = built.again("tiny/net.onnx", "tiny-out", *rest)
    spelled = built.again("tiny/net.onnx", "tiny-out", "--target=c{lib=none}", *rest[2:])
    assert not first["steps"][-1]["cached"]
    for document in (again, spelled):
        assert all(step["cached"] for step in document["steps"])
        assert json.dumps(document["steps"][-1]["output"]) == json.dumps(first["steps"][-1]["output"])
