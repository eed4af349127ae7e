"""Twelve bad inputs: the exact message, the exit code, and nothing half-written."""

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dlc.base.diagnostics import ExitCode
from tests.cli.conftest import MODELS, Dlc, steady
from tests.cli.models import EVIL, cyclic, enormous, evil, negative, small, with_external_data
from tests.conftest import Golden


def files() -> set[str]:
    """Everything in the current directory, at any depth."""
    return {str(p) for p in Path().rglob("*")}


def refused(dlc: Dlc, golden: Golden, name: str, code: ExitCode) -> None:
    """Building NAME.onnx fails as the golden file says and leaves the directory as it was; so with --json."""
    before = files()
    ran = dlc("build", f"{name}.onnx", "-o", "out", "-q")
    golden(f"bad/{name}.txt", ran.transcript())
    assert ran.code == code
    assert ran.out == ""
    found = dlc("build", f"{name}.onnx", "-o", "out", "--json").document
    assert (found["schema"], found["ok"], found["exit_code"]) == ("dlc.build/1", False, code)
    assert found["diagnostics"][0]["severity"] == "error"
    assert files() == before


def test_empty_file(dlc: Dlc, golden: Golden) -> None:
    Path("empty.onnx").write_bytes(b"")
    refused(dlc, golden, "empty", ExitCode.MODEL)


def test_truncated_protobuf(dlc: Dlc, golden: Golden) -> None:
    content = (MODELS / "mnist_mlp" / "model.onnx").read_bytes()
    Path("truncated.onnx").write_bytes(content[: len(content) // 2])
    refused(dlc, golden, "truncated", ExitCode.MODEL)


def test_random_bytes(dlc: Dlc, golden: Golden) -> None:
    Path("random.onnx").write_bytes(np.random.default_rng(0).bytes(4096))
    refused(dlc, golden, "random", ExitCode.MODEL)


def test_missing_external_data(dlc: Dlc, golden: Golden) -> None:
    Path("external.onnx").write_bytes(with_external_data("weights.bin").SerializeToString())
    refused(dlc, golden, "external", ExitCode.MODEL)


@pytest.mark.parametrize(("name", "location"), [("escaping", "../../../../../etc/passwd"), ("absolute", "/etc/passwd")])
def test_external_data_outside_the_model(dlc: Dlc, golden: Golden, name: str, location: str) -> None:
    Path(f"{name}.onnx").write_bytes(with_external_data(location).SerializeToString())
    refused(dlc, golden, name, ExitCode.MODEL)


def test_cycle(dlc: Dlc, golden: Golden) -> None:
    Path("cycle.onnx").write_bytes(cyclic().SerializeToString())
    refused(dlc, golden, "cycle", ExitCode.MODEL)


def test_negative_dimension(dlc: Dlc, golden: Golden) -> None:
    Path("negative.onnx").write_bytes(negative().SerializeToString())
    refused(dlc, golden, "negative", ExitCode.MODEL)


def test_40_gigabytes_in_300_bytes(dlc: Dlc, golden: Golden) -> None:
    Path("enormous.onnx").write_bytes(enormous().SerializeToString())
    refused(dlc, golden, "enormous", ExitCode.LIMIT)


def test_hostile_names_in_a_message(dlc: Dlc, golden: Golden) -> None:
    Path("unsupported.onnx").write_bytes(evil("NoSuchOperator").SerializeToString())
    refused(dlc, golden, "unsupported", ExitCode.MODEL)


def test_hostile_names_in_what_is_written(dlc: Dlc, golden: Golden) -> None:
    """They reach C, JSON, HTML and the terminal, and stay text in each."""
    Path("evil.onnx").write_bytes(evil().SerializeToString())
    ran = dlc("build", "evil.onnx", "-o", "out", "-q", "--html", "--dump-ir", "all")
    assert ran.code == ExitCode.OK
    golden("bad/evil.txt", dlc("show", "evil.onnx").transcript())
    symbols = subprocess.run(["nm", "out/libevil.so"], capture_output=True, text=True, check=True).stdout
    assert "injected" not in symbols
    page = Path("out/report.html").read_text(encoding="utf-8")
    assert "\u202e" not in page
    assert '"quoted"' not in page  # a quote would end an attribute
    signature = json.loads(Path("out/manifest.json").read_text())["signature"]
    assert signature["inputs"][0]["name"] == f"{EVIL}x"
    for text in (dlc("run", "out").out, dlc("verify", "out", "--model", "evil.onnx").out, dlc("show", "out").out):
        assert "\u202e" not in text


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("shape", np.zeros((3, 2), np.float32)),
        ("rank", np.zeros((7,), np.float32)),
        ("type", np.zeros((2, 3), np.float64)),
    ],
)
def test_wrong_input_of_run(dlc: Dlc, golden: Golden, program: Path, name: str, array: np.ndarray) -> None:
    np.save("wrong.npy", array)
    Path("out").symlink_to(program / "out")
    before = files()
    ran = dlc("run", "out", "wrong.npy", "-o", "result.npz")
    golden(f"bad/wrong_{name}.txt", ran.transcript())
    assert ran.code == ExitCode.USAGE
    assert files() == before


def test_no_compiler(dlc: Dlc, golden: Golden, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("empty").mkdir()
    monkeypatch.setenv("PATH", str(Path("empty").resolve()))
    Path("small.onnx").write_bytes(small().SerializeToString())
    refused(dlc, golden, "small", ExitCode.TOOL)


@pytest.mark.parametrize(
    ("name", "directory"),
    [
        ("file", "file"),  # what stands there is no directory
        ("below_file", "file/out"),
    ],
)
def test_output_directory_that_cannot_be_written(dlc: Dlc, golden: Golden, name: str, directory: str) -> None:
    Path("small.onnx").write_bytes(small().SerializeToString())
    Path("file").write_text("mine")
    before = files()
    ran = dlc("build", "small.onnx", "-o", directory, "-q")
    golden(f"bad/output_{name}.txt", ran.transcript())
    assert ran.code == ExitCode.MODEL
    assert files() == before
    assert Path("file").read_text() == "mine"


def test_output_directory_on_a_file_system_that_takes_no_entries(dlc: Dlc) -> None:
    """Not even root's: who runs the tests must not matter."""
    Path("small.onnx").write_bytes(small().SerializeToString())
    ran = dlc("build", "small.onnx", "-o", "/proc/dlc-cannot-write-here", "-q")
    assert ran.code == ExitCode.MODEL
    assert ran.err.startswith("error[cannot-write]: /proc/dlc-cannot-write-here cannot be written: ")
    assert "help  choose another directory with -o" in ran.err


def test_install_that_fails_half_way_leaves_the_old_program(dlc: Dlc) -> None:
    """A directory stands where one of the files has to go: all other files stay as they were."""
    Path("small.onnx").write_bytes(small().SerializeToString())
    Path("out/small.h").mkdir(parents=True)
    Path("out/small.c").write_text("old")
    before = files()
    ran = dlc("build", "small.onnx", "-o", "out", "-q")
    assert ran.code == ExitCode.MODEL
    assert "out cannot be written" in ran.err
    assert files() == before
    assert Path("out/small.c").read_text() == "old"


def test_disk_full_in_the_cache(tmp_path: Path, golden: Golden) -> None:
    """A limit on the size of files stands in for the full disk: the index of the cache outgrows it, the program does
    not. The build goes on with one warning, and the cache is sound afterwards."""
    Path("small.onnx").write_bytes(small().SerializeToString())
    ran = child(["build", "small.onnx", "-o", "out", "-q"], lambda: limit(60_000))
    golden("bad/disk_full.txt", steady(ran.stderr.replace(str(tmp_path), "DIR")))
    assert ran.returncode == ExitCode.OK
    assert {p.name for p in Path("out").iterdir()} >= {"small.h", "small.c", "libsmall.so", "manifest.json"}
    assert child(["cache", "verify"]).returncode == ExitCode.OK
    again = child(["build", "small.onnx", "-o", "out", "-q"])
    assert (again.returncode, again.stderr) == (ExitCode.OK, "")


def limit(size: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def child(arguments: list[str], before: Callable[[], None] | None = None) -> subprocess.CompletedProcess[str]:
    """`dlc` in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "dlc", *arguments],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=before,
        # Limits on files would cut off compiled modules too, for whoever imports them next.
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONDONTWRITEBYTECODE": "1"},
    )


def test_models_are_what_onnx_says() -> None:
    """The small model is valid, so what is refused is refused for the reason under test."""
    checker: Any = import_module("onnx.checker")  # its types are partly unknown
    checker.check_model(small())
