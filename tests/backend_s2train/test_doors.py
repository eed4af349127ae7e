"""Only what the verifier found right becomes a machine, whichever way a program comes in; and none takes more memory
than it may."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from dlc_backend_s2train.backend import S2Train
from dlc_backend_s2train.checks import Verified, verified
from dlc_backend_s2train.codes import Arena
from dlc_backend_s2train.container import read, write
from dlc_backend_s2train.container.files import check
from dlc_backend_s2train.program import Program
from dlc_backend_s2train.simulator.loading import load_file
from dlc_backend_s2train.simulator.machine import Machine

import dlc
from dlc import DlcError, Source
from dlc.base.diagnostics import Diagnostic, ExitCode
from dlc.cli.frame import run
from tests.backend_s2train.programs import PROGRAMS, Hand
from tests.cli.test_program_files import perceptron

TRAIN = ("--train", "loss=cross-entropy")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs `learns` and `predicts` of net.onnx, and rows to train with; the cache beside them has both."""
    directory = tmp_path_factory.mktemp("doors")
    (directory / "net.onnx").write_bytes(perceptron().SerializeToString())
    line = ["build", str(directory / "net.onnx"), "-t", "s2train", "-q", "--cache-dir", str(directory / "cache")]
    for name, flags in (("learns", TRAIN), ("predicts", ())):
        assert run([*line, *flags, "-o", str(directory / name)]) == 0
    random = np.random.default_rng(1)
    x = random.normal(size=(8, 8)).astype(np.float32)
    np.savez(directory / "rows.npz", x=x, y=np.arange(8) % 4)
    return directory


@pytest.fixture
def there(built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the programs as the current directory."""
    shutil.copytree(built, tmp_path / "work")
    monkeypatch.chdir(tmp_path / "work")
    (tmp_path / "work" / "dlc.toml").write_text("")
    monkeypatch.setenv("DLC_CACHE_DIR", str(tmp_path / "work" / "cache"))
    return tmp_path / "work"


def file_of(name: str) -> Path:
    return Path(name) / "net.s2t"


def changed(name: str, change: Callable[[Program], Program]) -> None:
    """Another program in the same file."""
    path = file_of(name)
    path.write_bytes(write(change(read(memoryview(path.read_bytes()), name))))


def laid_over_weights(program: Program) -> Program:
    """What is in use for a few instructions, at the address of a weight."""
    weight = next(s for s in program.storages if s.arena is Arena.WEIGHTS and s.size >= 64)
    number = next(k for k, s in enumerate(program.storages) if s.arena is Arena.FEATURES)
    storages = list(program.storages)
    storages[number] = replace(storages[number], address=weight.address)
    return replace(program, storages=tuple(storages))


def against(program: Program, limit: int) -> list[Diagnostic]:
    """A verifier that finds something wrong with every program."""
    del program, limit
    return [Diagnostic("not-this-one", "the verifier does not like it")]


def command(*line: str) -> Callable[[], int]:
    return lambda: run([*line, "-q"])


DOORS: dict[str, Callable[[], object]] = {
    "dlc run DIR": command("run", "predicts"),
    "dlc run FILE": command("run", "predicts/net.s2t"),
    "dlc run DIR that learns": command("run", "learns"),
    "dlc verify DIR": command("verify", "predicts"),
    "dlc verify FILE": command("verify", "predicts/net.s2t"),
    "dlc verify DIR --model": command("verify", "predicts", "--model", "net.onnx"),
    "dlc verify FILE --model": command("verify", "predicts/net.s2t", "--model", "net.onnx"),
    "dlc train DIR": command("train", "learns", "--data", "rows.npz", "--epochs", "1"),
    "dlc train FILE": command("train", "learns/net.s2t", "--data", "rows.npz", "--epochs", "1"),
    "dlc.load(DIR)": lambda: dlc.load("predicts"),
    "dlc.load(FILE)": lambda: dlc.load("predicts/net.s2t"),
    "dlc.load(DIR) that learns": lambda: dlc.load("learns"),
    "Backend.load": lambda: S2Train().load(Path("predicts")),
    "Backend.load_file": lambda: S2Train().load_file(Source(file_of("predicts"))),
    "Backend.check": lambda: S2Train().check(Source(file_of("predicts"))),
    "load_file": lambda: load_file(Source(file_of("learns")), "bit-true"),
    "check": lambda: Machine(check(Source(file_of("learns")))),
    "verified": lambda: Machine(verified(read(memoryview(file_of("learns").read_bytes()), "net.s2t"))),
}
"""Every way from a file to a machine."""


def refused(door: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Exit code and message, of a command or of what was raised."""
    try:
        code = DOORS[door]()
    except DlcError as problem:
        return int(problem.exit_code), str(problem)
    return cast("int", code), capsys.readouterr().err


@pytest.mark.parametrize("door", DOORS)
def test_activations_over_weights_become_no_machine(door: str, there: Path, capsys: pytest.CaptureFixture[str]) -> None:
    del there
    for name in ("learns", "predicts"):
        changed(name, laid_over_weights)
    code, text = refused(door, capsys)
    assert (code, "error[overlap]: storage " in text) == (ExitCode.MODEL, True), text


@pytest.mark.parametrize("door", DOORS)
def test_every_door_asks_the_verifier(
    door: str, there: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    del there
    monkeypatch.setattr("dlc_backend_s2train.checks.verify", against)
    code, text = refused(door, capsys)
    assert (code, "error[not-this-one]: the verifier does not like it" in text) == (ExitCode.MODEL, True), text


@pytest.mark.parametrize("subject", [("run", "net.onnx", "-t", "s2train"), ("verify", "net.onnx", "-t", "s2train")])
def test_what_the_cache_has_is_verified_too(
    subject: tuple[str, ...], there: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The steps of the build are in the cache, the file comes out of it."""
    del there
    monkeypatch.setattr("dlc_backend_s2train.checks.verify", against)
    assert run([*subject, "-q", "--cache", "require"]) == ExitCode.MODEL
    assert "not-this-one" in capsys.readouterr().err


def test_checkpoints_come_to_a_machine_that_was_verified(there: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A run is resumed with the program's own file; one that is wrong gets no checkpoint."""
    del there
    line = ["train", "learns", "--data", "rows.npz", "-q"]
    assert run([*line, "--epochs", "1"]) == 0
    program: Any = dlc.load("learns")
    kept = program.checkpoint()
    changed("learns", laid_over_weights)
    assert run([*line, "--epochs", "2", "--resume"]) == ExitCode.MODEL
    assert "error[overlap]" in capsys.readouterr().err
    program.restore(kept)  # the machine is the one that was verified


# ---- by type ----
def test_nobody_else_makes_what_a_machine_is_made_of() -> None:
    program = PROGRAMS["linear_step"]()
    with pytest.raises(TypeError, match="verified makes these"):
        Verified(program, 1 << 30)
    with pytest.raises(TypeError, match=r"verified\(program\)"):
        Machine(cast("Any", program))
    found = verified(program)
    assert found.program is program
    with pytest.raises(AttributeError):
        found.program = PROGRAMS["conv_step"]()  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]


# ---- memory ----
def large(program: Program, size: int) -> Program:
    """The program with a storage more that nobody uses, which ends at byte `size`."""
    last = replace(program.storages[0], arena=Arena.FEATURES, address=size - 64, size=64)
    return replace(program, storages=(*program.storages, last))


@pytest.mark.parametrize("door", DOORS)
def test_no_door_takes_memory_without_end(door: str, there: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of an address of 2^47 no byte is taken; the message has the numbers, and the flag."""
    del there
    for name in ("learns", "predicts"):
        changed(name, lambda program: large(program, 1 << 47))
    code, text = refused(door, capsys)
    assert code == ExitCode.LIMIT
    assert "the program needs 140,737,488,355,328 bytes of memory, the limit is 8,589,934,592" in text
    assert "help  --max-memory 134217728MiB allows it" in text


LIMITED = [
    ("run", "predicts"),
    ("run", "predicts/net.s2t"),
    ("run", "net.onnx", "-t", "s2train"),
    ("verify", "predicts"),
    ("verify", "predicts/net.s2t"),
    ("verify", "net.onnx", "-t", "s2train"),
    ("train", "learns", "--data", "rows.npz", "--epochs", "1"),
]


@pytest.mark.parametrize("line", LIMITED, ids=" ".join)
def test_the_flag_raises_and_lowers_the_limit(
    line: tuple[str, ...], there: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    del there
    monkeypatch.setattr(S2Train, "memory_limit", 100)
    assert run([*line, "-q"]) == ExitCode.LIMIT
    assert "the limit is 100\n" in capsys.readouterr().err
    assert run([*line, "-q", "--max-memory", "1MiB"]) == 0
    capsys.readouterr()
    assert run([*line, "-q", "--max-memory", "128B"]) == ExitCode.LIMIT
    assert "the limit is 128\n" in capsys.readouterr().err


def test_the_limit_in_python(there: Path) -> None:
    del there
    assert dlc.load("predicts", max_memory=1 << 20)
    with pytest.raises(DlcError, match="the limit is 100"):
        dlc.load("predicts", max_memory=100)


def test_a_manifest_does_not_raise_the_limit(there: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What comes along with a program is not the user's word."""
    del there
    changed("predicts", lambda program: large(program, 1 << 40))
    path = Path("predicts/manifest.json")
    text = json.loads(path.read_text())
    path.write_text(json.dumps({**text, "target": "s2train{memory-limit=2TiB}"}))
    assert run(["run", "predicts", "-q"]) != 0
    assert "no option memory-limit" in capsys.readouterr().err


def test_sizes_that_are_none(there: Path, capsys: pytest.CaptureFixture[str]) -> None:
    del there
    assert run(["run", "predicts", "--max-memory", "much"]) == ExitCode.USAGE
    assert "is not a size" in capsys.readouterr().err
    example = Path(__file__).parents[1] / "data" / "models" / "mnist_cntk" / "model.onnx"
    assert run(["build", str(example), "-o", "c", "-q"]) == 0
    assert run(["run", "c", "--max-memory", "1GiB"]) == ExitCode.USAGE
    assert "--max-memory: programs of c run in memory that their caller gives them" in capsys.readouterr().err


def test_host_functions_count() -> None:
    """The limit is of the device's memory and of what the host needs for its functions."""
    from tests.backend_s2train.programs import hosted

    made = hosted()
    from dlc_backend_s2train.checks.problems import needed

    device, host = needed(made)
    assert device > 0 < host
    assert verified(made, device + host)
    with pytest.raises(DlcError, match=f"the limit is {device + host - 1:,}"):
        verified(made, device + host - 1)
    assert needed(Hand().program()) == (0, 0)
