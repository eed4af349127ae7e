"""`dlc train` and a C program under mpiexec: ranks are one process on the joint batch, and none outlives another."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import cast

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import numpy_helper

import dlc
from dlc.api.training_program import TrainingProgram
from dlc.base.types import Array
from dlc.cli.frame import run
from dlc.cli.launched import launched
from dlc.training.loop.checkpoint import read_checkpoint

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.needs("mpiexec")
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
FEW = {"OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_hwloc_base_binding_policy": "none"}
"""As many ranks as are asked for, however few processors there are."""
STEPS = 50
MODEL = """\
<ir_version: 8, opset_import: ["" : 17]>
net (float[batch,1,8,8] x) => (float[batch,10] scores)
{
  flat = Flatten(x)
  p = MatMul(flat, w)
  q = Add(p, b)
  h = Tanh(q)
  r = MatMul(h, v)
  scores = Add(r, c)
}
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Programs `b8` and `b16` of one model, for batches of 8 and of 16, and data."""
    place = tmp_path_factory.mktemp("ranks")
    (place / "net.onnx").write_bytes(model().SerializeToString())
    config = "loss=cross-entropy,optimizer=sgd{lr=0.002 momentum=0.9}"
    for batch in (8, 16):
        words = ["build", str(place / "net.onnx"), "--dim", f"batch={batch}", "-q"]
        target = "c{cpu=generic flags=-O0 prefix=lenet}"
        words += ["--train", config, "-t", target, "-o", str(place / f"b{batch}"), "--cache", "off"]
        assert run(words) == 0
    with np.load(ROOT / "examples" / "digits" / "digits_train.npz") as data:
        x, y = data["x"][:200].astype(np.float32), data["y"][:200].astype(np.int64)
    np.savez(place / "d.npz", x=x, y=y)
    np.hstack([x.reshape(-1, 64).astype(np.uint8), y[:, None].astype(np.uint8)]).tofile(place / "d.bin")
    return place


def model() -> onnx.ModelProto:
    """A small network for pictures of digits, with the interface of the example's."""
    found = onnx.parser.parse_model(MODEL)
    draw = np.random.default_rng(0)
    for name, shape in (("w", (64, 24)), ("b", (24,)), ("v", (24, 10)), ("c", (10,))):
        values = (draw.standard_normal(shape) / 8).astype(np.float32)
        found.graph.initializer.append(numpy_helper.from_array(values, name))
    return found


def environment() -> dict[str, str]:
    paths = [ROOT, *(ROOT / "plugins").glob("*/"), *filter(None, os.environ.get("PYTHONPATH", "").split(":"))]
    return {**os.environ, **AS_ROOT, **FEW, "PYTHONPATH": ":".join(map(str, paths)), "OMP_NUM_THREADS": "1"}


def begun(place: Path, count: int, *words: object) -> subprocess.Popen[str]:
    line = ["mpiexec", "-n", str(count), sys.executable, "-m", "dlc", "train", *map(str, words)]
    pipe = subprocess.PIPE
    return subprocess.Popen(line, cwd=place, env=environment(), stdout=pipe, stderr=pipe, text=True)


def errors(found: Mapping[str, Array], expected: Mapping[str, Array]) -> float:
    return max(float(np.abs(found[k] - w).max() / np.abs(w).max()) for k, w in expected.items())


def loaded(program: Path) -> TrainingProgram:
    return cast("TrainingProgram", dlc.load(program))


def weights(program: Path, checkpoint: Path) -> dict[str, Array]:
    net = loaded(program)
    net.restore(read_checkpoint(checkpoint).parts["program"])
    return net.parameters()


def rows(log: Path) -> dict[int, float]:
    with log.open() as file:
        return {int(r["step"]): float(r["loss"]) for r in csv.DictReader(file) if r["row"] == "step"}


def test_a_lost_rank_ends_all_and_the_run_that_goes_on_is_that_of_one_process(built: Path) -> None:
    common = ["--data", "d.npz", "--seed", 3, "--checkpoint", "two.ckpt", "--log", "2.csv"]
    checkpoint = built / "two.ckpt"
    job = begun(built, 2, "b8", *common, "--epochs", 10**6, "--checkpoint-every", 1, "-q")
    while not checkpoint.exists():
        assert job.poll() is None, job.communicate()
        time.sleep(0.01)
    os.kill(rank_of(1, "two.ckpt"), signal.SIGKILL)
    start = time.monotonic()
    _, err = job.communicate(timeout=60)
    assert time.monotonic() - start < 10
    assert job.returncode != 0
    assert "error[lost-rank]: rank 0 of 2 ends" in err
    assert "Traceback" not in err

    # On a machine that does much else it may have come further.
    steps = max(STEPS, done_in(checkpoint) + 5)
    job = begun(built, 2, "b8", *common, "--steps", steps, "--resume", "--json")
    out, err = job.communicate(timeout=120)
    assert job.returncode == 0, err
    found = json.loads(out)  # of rank 0 alone
    assert (found["ranks"], found["rows"]["batch"], found["steps"]) == (2, 16, steps)

    words = ["--data", built / "d.npz", "--seed", 3, "--checkpoint", built / "one.ckpt", "--log", built / "1.csv"]
    assert run(["train", str(built / "b16"), *map(str, words), "--steps", str(steps), "-q"]) == 0
    together, alone = rows(built / "2.csv"), rows(built / "1.csv")
    limit = 1e-6 if steps == STEPS else 1e-5
    assert sorted(together) == sorted(alone) == list(range(1, steps + 1))
    assert max(abs(together[k] / loss - 1) for k, loss in alone.items()) < limit
    assert errors(weights(built / "b8", checkpoint), weights(built / "b16", built / "one.ckpt")) < limit


def done_in(checkpoint: Path) -> int:
    """Steps of a run up to its checkpoint."""
    state = read_checkpoint(checkpoint).state
    return state.epoch * (200 // 16) + state.step


def rank_of(rank: int, word: str) -> int:
    """The process of a rank."""
    for place in Path("/proc").glob("[0-9]*"):
        try:
            words = (place / "cmdline").read_bytes().split(b"\0")
            env = (place / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if word.encode() in words and b"train" in words and f"OMPI_COMM_WORLD_RANK={rank}".encode() in env:
            return int(place.name)
    raise AssertionError("there is no such rank")


@pytest.mark.needs("mpicc")
def test_the_example_in_c(built: Path) -> None:
    source = ROOT / "examples" / "mpi_training" / "train_mpi.c"
    strict = ("-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-O1")
    for batch in (8, 16):
        library = built / f"b{batch}"
        link = (f"-I{library}", f"-L{library}", "-llenet", f"-Wl,-rpath,{library}")
        line = ["mpicc", *strict, str(source), "-o", f"c{batch}", *link]
        subprocess.run(line, cwd=built, env=environment(), check=True)

    def ran(count: int, batch: int, checkpoint: str, steps: int) -> str:
        line = ["mpiexec", "-n", str(count), f"./c{batch}", "d.bin", checkpoint, str(steps)]
        done = subprocess.run(
            line, cwd=built, env=environment(), check=True, capture_output=True, text=True, timeout=60
        )
        return done.stdout

    whole = ran(1, 16, "c1.bin", STEPS)
    assert ran(2, 8, "c2.bin", 20) + ran(2, 8, "c2.bin", STEPS) == whole  # the second goes on where the first ended
    one, two = loaded(built / "b16"), loaded(built / "b8")
    one.restore((built / "c1.bin").read_bytes())
    two.restore((built / "c2.bin").read_bytes())
    assert int(two.state()["step"]) == STEPS
    assert errors(two.parameters(), one.parameters()) < 1e-6


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({}, (0, 0)),
        ({"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "4"}, (2, 4)),
        ({"PMI_RANK": "1", "PMI_SIZE": "3"}, (1, 3)),
        ({"PMIX_RANK": "1", "SLURM_NTASKS": "8"}, (1, 8)),
        ({"SLURM_NTASKS": "8"}, (0, 0)),
        ({"PMI_RANK": "x", "PMI_SIZE": "3"}, (0, 0)),
    ],
)
def test_launchers(said: dict[str, str], expected: tuple[int, int]) -> None:
    assert launched(said) == expected
