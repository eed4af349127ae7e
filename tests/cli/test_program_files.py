"""Programs in single files: what may be done with them, and what is said when they, or their inputs, are not right."""

import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from dlc_backend_s2train.container import read, write
from onnx import helper, numpy_helper

import dlc as package
from dlc.api.backend import Backend
from dlc.api.source import Source
from dlc.base.diagnostics import DlcError, ExitCode
from dlc.base.lazy import Lazy
from dlc.cli.frame import run
from dlc.plugins.entry import Entry
from dlc.plugins.registry import Registry
from tests.cli.conftest import Dlc
from tests.cli.models import model, small
from tests.conftest import Golden

ROWS, FEATURES, HIDDEN, CLASSES = 4, 8, 16, 4
X = np.arange(-16, 16, dtype=np.float32).reshape(ROWS, FEATURES) / 8


def weights() -> dict[str, np.ndarray]:
    """Small multiples of 1/16: sums of products are exact, whatever their order."""
    rng = np.random.default_rng(0)
    shapes = {"w1": (HIDDEN, FEATURES), "b1": (HIDDEN,), "w2": (CLASSES, HIDDEN), "b2": (CLASSES,)}
    return {name: (rng.integers(-4, 5, shape) / 16).astype(np.float32) for name, shape in shapes.items()}


def perceptron() -> onnx.ModelProto:
    """scores = w2 · relu(w1 · x + b1) + b2."""
    nodes = [
        helper.make_node("Gemm", ["x", "w1", "b1"], ["h"], transB=1, name="hidden"),
        helper.make_node("Relu", ["h"], ["r"], name="positive"),
        helper.make_node("Gemm", ["r", "w2", "b2"], ["scores"], transB=1, name="last"),
    ]
    stored = [numpy_helper.from_array(value, name) for name, value in weights().items()]
    return model(nodes, [("x", [ROWS, FEATURES])], [("scores", [ROWS, CLASSES])], stored)


def scores(x: np.ndarray) -> np.ndarray:
    w = weights()
    return np.maximum(x @ w["w1"].T + w["b1"], 0) @ w["w2"].T + w["b2"]


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the programs `learns` and `predicts`, which were built of one model."""
    directory = tmp_path_factory.mktemp("files")
    source = directory / "net.onnx"
    source.write_bytes(perceptron().SerializeToString())
    line = ["build", str(source), "--target", "s2train", "--cache", "off", "-q"]
    assert run([*line, "--train", "loss=cross-entropy", "-o", str(directory / "learns")]) == 0
    assert run([*line, "-o", str(directory / "predicts")]) == 0
    return directory


@pytest.fixture(autouse=True)
def there(files: Path) -> None:
    """The programs in the current directory: net.s2t learns, plain.s2t predicts; and X in x.npy."""
    Path("net.s2t").write_bytes((files / "learns" / "net.s2t").read_bytes())
    Path("net_template.onnx").write_bytes((files / "learns" / "net_template.onnx").read_bytes())
    Path("plain.s2t").write_bytes((files / "predicts" / "net.s2t").read_bytes())
    Path("net.onnx").write_bytes(perceptron().SerializeToString())
    np.save("x.npy", X)
    rng = np.random.default_rng(1)
    x = rng.normal(size=(40, FEATURES)).astype(np.float32)
    np.savez("rows.npz", x=x, y=np.argmax(x[:, :CLASSES], 1))


def test_show(dlc: Dlc) -> None:
    ran = dlc("show", "net.s2t")
    assert ran.code == ExitCode.OK
    for text in (
        "entry     predict: ",
        "entry     step: ",
        '"w1.momentum"',
        "weight_update",
        "input   x: fp16[4, 8]",
    ):
        assert text in ran.out
    found = dlc("show", "net.s2t", "--json").document
    assert (found["kind"], found["target"], found["file"]) == ("program", "s2train", "net.s2t")
    assert {e["name"] for e in found["entries"]} == {"predict", "evaluate", "step"}
    assert found["bytes"] == Path("net.s2t").stat().st_size


def test_show_of_the_directory(dlc: Dlc, files: Path) -> None:
    Path("out").symlink_to(files / "learns")
    ran = dlc("show", "out")
    for text in ("net.s2t", "as built", "entry     step: ", "memory    weights: "):
        assert text in ran.out
    assert "weight_update" not in ran.out  # the file itself shows its instructions
    assert len(dlc("show", "out", "--json").document["program"]["entries"]) == 3


def test_show_of_a_directory_with_a_damaged_file(dlc: Dlc, files: Path) -> None:
    Path("out").mkdir()
    Path("out/manifest.json").write_bytes((files / "learns" / "manifest.json").read_bytes())
    Path("out/net.s2t").write_bytes(Path("net.s2t").read_bytes()[:100])
    ran = dlc("show", "out")
    assert ran.code == ExitCode.OK
    assert "changed" in ran.out
    assert ran.err.startswith("warning[bad-s2t]: ")


def test_verify_alone(dlc: Dlc, golden: Golden) -> None:
    for name in ("net.s2t", "plain.s2t"):
        assert dlc("verify", name).code == ExitCode.OK
    golden("files/verify.txt", dlc("verify", "plain.s2t").transcript())
    assert "read before it is written" in dlc("verify", "net.s2t", "--json").document["checked"]


def test_verify_of_the_directory(dlc: Dlc, files: Path) -> None:
    """What holds its model is compared with it too; nothing but a check is left of what does not."""
    for name in ("learns", "predicts"):
        Path(name).symlink_to(files / name)
    assert "nothing is read before it is written\nreference: " in dlc("verify", "learns").out
    assert dlc("verify", "learns", "--json").document["outputs"][0]["ok"] is True
    ran = dlc("verify", "predicts")
    assert (ran.code, ran.out) == (ExitCode.OK, dlc("verify", "plain.s2t").out.replace("plain.s2t", "predicts"))
    assert dlc("verify", "predicts", "--seed", "3").code == ExitCode.USAGE
    assert dlc("verify", "predicts", "--target", "s2train").code == ExitCode.USAGE
    assert dlc("verify", "predicts", "--model", "net.onnx").out.startswith("predicts: 2 instructions")


@pytest.mark.parametrize("name", ["learns", "predicts"])
def test_verify_of_a_directory_with_a_bad_program(dlc: Dlc, files: Path, name: str) -> None:
    """The file can be read, and its checksums hold; an instruction reads what nothing has written."""
    shutil.copytree(files / name, "out")
    path = Path("out/net.s2t")
    program = read(memoryview(path.read_bytes()), "net.s2t")
    entries = tuple(replace(entry, inputs=()) for entry in program.entries)
    path.write_bytes(write(replace(program, entries=entries)))
    for more in ((), ("x.npy",), ("--model", "net.onnx")):
        ran = dlc("verify", "out", *more)
        assert (ran.code, ran.out) == (ExitCode.MODEL, "")
        assert "out/net.s2t: byte " in ran.err
        assert "nothing has written bytes 0 to 64" in ran.err


def test_verify_with_expected_outputs(dlc: Dlc) -> None:
    np.savez("right.npz", scores=scores(X))
    np.savez("wrong.npz", scores=scores(X) + 1)
    for name in ("net.s2t", "plain.s2t"):
        assert dlc("verify", name, "x.npy", "-e", "right.npz").code == ExitCode.OK
        found = dlc("verify", name, "x.npy", "-e", "wrong.npz", "--json").document
        assert (found["exit_code"], found["outputs"][0]["wrong"]) == (ExitCode.MISMATCH, ROWS * CLASSES)
        assert "bounds and lifetimes are right" in found["checked"]


def test_verify_against_the_model(dlc: Dlc) -> None:
    assert dlc("verify", "plain.s2t", "x.npy", "--model", "net.onnx").code == ExitCode.OK
    assert dlc("verify", "net.s2t", "x.npy").code == ExitCode.OK  # its model lies beside it
    Path("net_template.onnx").unlink()
    ran = dlc("verify", "net.s2t", "x.npy")
    assert (ran.code, "add --model MODEL or --expected FILE" in ran.err) == (ExitCode.USAGE, True)


@pytest.mark.parametrize("name", ["net.s2t", "plain.s2t"])
def test_run(dlc: Dlc, name: str) -> None:
    assert dlc("run", name, "x.npy", "-o", "result.npz").code == ExitCode.OK
    with np.load("result.npz") as found:
        np.testing.assert_allclose(found["scores"], scores(X), rtol=2**-10, atol=2**-10)
    np.testing.assert_allclose(package.load(name)(x=X)["scores"], scores(X), rtol=2**-10, atol=2**-10)


def test_train(dlc: Dlc) -> None:
    """The checkpoint lies beside the file, and another run goes on from it."""
    first = dlc("train", "net.s2t", "--data", "rows.npz", "--epochs", "2", "--json").document
    assert (first["ending"], first["checkpoint"]) == ("done", "net.ckpt")
    assert Path("net.ckpt").is_file()
    more = dlc("train", "net.s2t", "--data", "rows.npz", "--epochs", "20", "--resume", "--json").document
    losses = [e["loss"] for e in more["epochs"]]
    assert len(losses) == 20
    assert losses[-1] < 0.8 * losses[0]
    whole = dlc("train", "net.s2t", "--data", "rows.npz", "--epochs", "20", "--checkpoint", "other", "--json").document
    assert [e["loss"] for e in whole["epochs"]] == losses


Damage = Callable[[bytes], bytes]
DAMAGED: dict[str, Damage] = {
    "empty": lambda content: content[:0],
    "short": lambda content: content[:20],
    "truncated": lambda content: content[: len(content) // 2],
    "no_program": lambda content: b"#!/bin/sh\n" + content[10:],
    # In the table of sections, whose place does not move when figures get longer.
    "flipped": lambda content: content[:100] + bytes([content[100] ^ 1]) + content[101:],
    "longer": lambda content: content + b"\0",
}
COMMANDS: Sequence[Sequence[str]] = (
    ("show", "bad.s2t"),
    ("verify", "bad.s2t"),
    ("run", "bad.s2t"),
    ("train", "bad.s2t", "--data", "rows.npz"),
)


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_files(dlc: Dlc, golden: Golden, name: str) -> None:
    """Every command says the same of them."""
    Path("bad.s2t").write_bytes(DAMAGED[name](Path("plain.s2t").read_bytes()))
    before = {str(p) for p in Path().rglob("*")}
    ran = [dlc(*line) for line in COMMANDS]
    golden(f"files/{name}.txt", re.sub(r"\d{4,}", "<bytes>", ran[1].transcript()))
    assert {r.code for r in ran} == {ExitCode.MODEL}
    assert {r.err for r in ran} == {ran[0].err}
    assert {str(p) for p in Path().rglob("*")} == before


def test_a_program_is_no_model(dlc: Dlc, golden: Golden) -> None:
    ran = dlc("build", "plain.s2t", "-o", "out")
    golden("files/build.txt", ran.transcript())
    assert ran.code == ExitCode.USAGE
    assert not Path("out").exists()
    assert dlc("plan", "plain.s2t").err == ran.err


def test_a_program_that_does_not_learn(dlc: Dlc, golden: Golden) -> None:
    ran = dlc("train", "plain.s2t", "--data", "rows.npz")
    golden("files/train.txt", ran.transcript())
    assert ran.code == ExitCode.USAGE


INPUTS = {
    "shape": np.zeros((ROWS, FEATURES + 1), np.float32),
    "rank": np.zeros((ROWS * FEATURES,), np.float32),
    "type": np.zeros((ROWS, FEATURES), np.int64),
}


@pytest.mark.parametrize("name", INPUTS)
def test_wrong_inputs(dlc: Dlc, golden: Golden, name: str) -> None:
    np.save("wrong.npy", INPUTS[name])
    ran = dlc("run", "net.s2t", "wrong.npy", "-o", "result.npz")
    golden(f"files/input_{name}.txt", ran.transcript())
    assert ran.code == ExitCode.USAGE
    assert not Path("result.npz").exists()


def test_an_input_that_is_none(dlc: Dlc, golden: Golden) -> None:
    ran = dlc("run", "plain.s2t", "y=x.npy")
    golden("files/input_name.txt", ran.transcript())
    assert ran.code == ExitCode.USAGE


@pytest.mark.parametrize(
    "line",
    [
        ("run", "net.s2t", "--target", "c"),
        ("verify", "net.s2t", "--target", "c"),
        ("verify", "net.s2t", "--rtol", "0"),
        ("verify", "net.s2t", "--seed", "1"),
        ("show", "net.s2t", "--text"),
        ("show", "net.s2t", "--what", "kernel"),
    ],
    ids=" ".join,
)
def test_flags_without_effect(dlc: Dlc, line: Sequence[str]) -> None:
    ran = dlc(*line)
    assert ran.code == ExitCode.USAGE
    assert ran.err.startswith("error[no-effect]: ")


def test_a_file_that_is_no_program(dlc: Dlc, golden: Golden) -> None:
    with pytest.raises(DlcError, match="not a program that an installed backend reads") as refused:
        package.load("rows.npz")
    assert refused.value.exit_code == ExitCode.USAGE
    golden("files/no_program_at_all.txt", dlc("train", "rows.npz", "--data", "rows.npz").transcript())


class Binary(Backend):
    """A backend whose programs are files, and that does not read them."""

    name = "binary"
    suffixes = (".bin",)

    def emit(self, state: object, /, report: object) -> package.Artifact:
        raise NotImplementedError


class Other(Binary):
    """Another one."""

    name = "other"


def registry(*kinds: type[Backend] | Lazy) -> Registry:
    named = [(k.name, k) for k in kinds]
    return Registry((), {"backends": {name: Entry("backends", name, "test", "test_module", k) for name, k in named}})


def test_backends_are_chosen_by_the_type_of_a_file() -> None:
    found = registry(Binary)
    assert type(found.backend_for(Source(Path("a.BIN")))) is Binary
    assert found.backend_for(Source(Path("a.s2t"))) is None
    assert found.backend_for(Source(Path("bin"))) is None


def test_two_backends_for_one_type() -> None:
    with pytest.raises(DlcError, match="several backends read this format: binary, other"):
        registry(Binary, Other).backend_for(Source(Path("a.bin")))


def test_a_broken_backend_hides_no_other() -> None:
    broken = Lazy("broken", "no_such_module:Backend")
    assert type(registry(broken, Binary).backend_for(Source(Path("a.bin")))) is Binary


def test_what_a_backend_does_not_say_is_refused() -> None:
    Path("a.bin").write_bytes(b"")
    for ask in (Binary().describe, Binary().check, Binary().load_file):
        with pytest.raises(DlcError, match="binary cannot read a program from a single file"):
            ask(Source(Path("a.bin")))
    assert (Binary().summary({}), Binary().suffixes, Backend.suffixes) == ((), (".bin",), ())


def test_other_programs_have_no_file(dlc: Dlc) -> None:
    """A directory is what other backends write; their files stay what they are."""
    Path("small.onnx").write_bytes(small().SerializeToString())
    assert dlc("build", "small.onnx", "-o", "out", "-q").code == 0
    assert dlc("run", "out/libsmall.so").code != 0
    assert "entry" not in dlc("show", "out").out
