"""`dlc train` on compiled programs: digits are learned, and the exported model knows them elsewhere too."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from dlc.base.types import Array
from dlc.cli.frame import run
from dlc.verify.reference import onnxruntime
from tests.cli.conftest import Dlc
from tests.cli.models import small
from tests.training.linear import save

DIGITS = Path(__file__).parent.parent.parent / "examples" / "digits"
DATA = ("--data", DIGITS / "digits_train.npz", "--validation-data", DIGITS / "digits_test.npz")


@pytest.fixture(scope="module")
def lenet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program that examples/digits/README.md builds."""
    out = tmp_path_factory.mktemp("digits") / "out"
    optimizer = "adam{lr=3e-3 schedule=cosine{steps=880}}"
    line = ["build", str(DIGITS / "lenet.onnx"), "--dim", "batch=32", "-o", str(out), "-q", "--cache", "off"]
    assert run([*line, "--train", f"loss=cross-entropy,optimizer={optimizer}"]) == 0
    return out


def scores(path: str) -> tuple[Array, Array]:
    """(scores of the digits kept for the test, digits) by onnxruntime, all at once."""
    data = np.load(DIGITS / "digits_test.npz")
    found = onnxruntime(Path(path)).evaluate({"x": data["x"].astype(np.float32)})
    return found["scores"], data["y"]


def test_lenet_learns_digits_within_a_minute(dlc: Dlc, lenet: Path) -> None:
    begin = time.monotonic()
    ran = dlc("train", lenet, *DATA, "--epochs", 20, "--export", "t.onnx", "--json", "--checkpoint", "c")
    assert time.monotonic() - begin < 60
    judged = ran.document["epochs"][-1]["validation"]
    assert judged["accuracy"] >= 0.97
    found, y = scores("t.onnx")
    assert (found.argmax(1) == y).mean() == judged["accuracy"]
    # 360 rows are 11 batches and a quarter of one: the loss is that of all rows all the same.
    loss = torch.nn.functional.cross_entropy(torch.tensor(found), torch.tensor(y.astype(np.int64))).item()
    assert judged["loss"] == pytest.approx(loss, rel=1e-4)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_and_resumed(dlc: Dlc, lenet: Path, number: signal.Signals) -> None:
    line = ("train", lenet, *DATA, "--checkpoint", "c", "--export", "t.onnx", "-q")
    assert dlc(*line, "--epochs", 4).code == 0
    whole = Path("t.onnx").read_bytes()
    Path("t.onnx").unlink()
    Path("c").unlink()
    process = subprocess.Popen(
        [sys.executable, "-m", "dlc", *map(str, line), "--epochs", "1000", "--checkpoint-every", "5"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    while not Path("c").exists() and process.poll() is None:
        time.sleep(0.001)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, "Traceback" in err) == (130, False), err
    assert (found := re.match(r"interrupted: \d epochs?, ([\d,]+) steps", out)), out
    assert int(found[1].replace(",", "")) < 4 * 44
    assert dlc(*line, "--epochs", 4, "--resume").code == 0
    assert Path("t.onnx").read_bytes() == whole


OPTIONS = {
    "immediate": "loss=cross-entropy,optimizer=adam,updates=immediate",
    "accumulate": "loss=cross-entropy{ignore=-1},optimizer=sgd{momentum=0.9},accumulate=3",
}


@pytest.mark.parametrize("name", OPTIONS)
def test_going_on_gives_the_same_bits(dlc: Dlc, name: str) -> None:
    """After any number of steps, within an epoch and within a sum of gradients."""
    Path("small.onnx").write_bytes(small("n").SerializeToString())
    generator = np.random.default_rng(0)
    y = np.arange(11) % 4
    y[5] = -1 if "ignore" in OPTIONS[name] else 0
    save("d.npz", x=generator.standard_normal((11, 3)), y=y)
    assert dlc("build", "small.onnx", "--dim", "n=2", "-o", "out", "-q", "--train", OPTIONS[name]).code == 0
    line = ("train", "out", "--data", "d.npz", "--validation", "0.2", "-q", "--export", "t.onnx", "--epochs", 3)
    ran = dlc(*line)
    assert ran.code == 0, ran.err
    whole = Path("t.onnx").read_bytes()
    for steps in (1, 4, 5, 11):
        assert dlc(*line, "--steps", steps, "--fresh").code == 0
        assert Path("t.onnx").read_bytes() != whole
        assert dlc(*line, "--resume").code == 0
        assert Path("t.onnx").read_bytes() == whole


def test_a_learning_rate_that_is_too_large(dlc: Dlc) -> None:
    """The loss is not finite; the last good checkpoint stays."""
    Path("small.onnx").write_bytes(small(2).SerializeToString())
    generator = np.random.default_rng(0)
    save("d.npz", x=generator.standard_normal((8, 3)).astype(np.float32), y=np.ones((8, 4), np.float32))
    assert dlc("build", "small.onnx", "-o", "out", "-q", "--train", "loss=mse,optimizer=sgd{lr=1e5}").code == 0
    ran = dlc("train", "out", "--data", "d.npz", "--epochs", 50)
    assert ran.code == 1
    assert re.search(r"error\[not-finite\]: the loss or a gradient is not finite in epoch \d, step \d of 4", ran.err)
    assert re.search(r"the checkpoint of epoch \d is kept: out/checkpoint.ckpt", ran.err)


def test_a_program_without_training(dlc: Dlc, program: Path) -> None:
    ran = dlc("train", program / "out", "--data", DIGITS / "digits_train.npz")
    assert ran.code == 2
    assert "is not a training program" in ran.err


def test_a_checkpoint_of_another_program(dlc: Dlc) -> None:
    """The same data and model, but another optimizer: the program finds that the checkpoint is not its own."""
    Path("small.onnx").write_bytes(small(2).SerializeToString())
    save("d.npz", x=np.ones((8, 3), np.float32), y=np.ones((8, 4), np.float32))
    for name in ("sgd", "adam"):
        assert dlc("build", "small.onnx", "-o", name, "-q", "--train", f"loss=mse,optimizer={name}").code == 0
    assert dlc("train", "sgd", "--data", "d.npz", "--epochs", 1, "--checkpoint", "c", "-q").code == 0
    ran = dlc("train", "adam", "--data", "d.npz", "--resume", "--checkpoint", "c")
    assert ran.code == 2
    assert "error[bad-checkpoint]: c cannot be resumed from: " in ran.err
