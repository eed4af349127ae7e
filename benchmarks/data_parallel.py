"""Weights and losses of `mpiexec -n N dlc train` against one process on the joint batch, and the time of a step.

    python benchmarks/data_parallel.py [--ranks 2,4] [--steps 50] [--batch 32] [--optimizer 'sgd{lr=0.05 momentum=0.9}']

The errors are relative: of a tensor, the largest difference over the largest element of the single process's.
"""

from __future__ import annotations

import argparse
import csv
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import dlc
from dlc.training.loop.checkpoint import read_checkpoint

EXAMPLES = Path(__file__).parents[1] / "examples" / "digits"
OPEN_MPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
}


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--optimizer", default="sgd{lr=0.05 momentum=0.9}")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        place = Path(made)
        one, losses, time = trained(place, 1, asked)
        print(f"{'ranks':>5}  {'weights':>9}  {'losses':>9}  {'ms a step':>9}")
        print(f"{1:>5}  {'':>9}  {'':>9}  {time:>9.2f}")
        for count in map(int, asked.ranks.split(",")):
            weights, found, time = trained(place, count, asked)
            error = max(float(np.abs(weights[k] - w).max() / np.abs(w).max()) for k, w in one.items())
            loss = max(abs(a / b - 1) for a, b in zip(found, losses, strict=True))
            print(f"{count:>5}  {error:>9.1e}  {loss:>9.1e}  {time:>9.2f}")


def trained(place: Path, count: int, asked: argparse.Namespace) -> tuple[dict[str, Any], list[float], float]:
    """(weights, losses, milliseconds of a step) of a run."""
    train = f"loss=cross-entropy,optimizer={asked.optimizer}"
    model = str(EXAMPLES / "lenet.onnx")
    out = place / f"b{count}"
    command("dlc", "build", model, "-q", "--dim", f"batch={asked.batch // count}", "--train", train, "-o", str(out))
    log, checkpoint = place / f"{count}.csv", place / f"{count}.ckpt"
    words = ["train", str(out), "--data", str(EXAMPLES / "digits_train.npz"), "--steps", str(asked.steps), "-q"]
    words += ["--seed", "3", "--log", str(log), "--checkpoint", str(checkpoint)]
    start = ["mpiexec", "-n", str(count), sys.executable, "-m"] if count > 1 else [sys.executable, "-m"]
    command(*start, "dlc", *words)
    held = read_checkpoint(checkpoint)
    net: Any = dlc.load(out)
    net.restore(held.parts["program"])
    with log.open() as file:
        losses = [float(row["loss"]) for row in csv.DictReader(file) if row["row"] == "step"]
    seconds = sum(e.seconds for e in held.state.history) + held.state.seconds
    return {k: v.copy() for k, v in net.parameters().items()}, losses, 1000 * seconds / asked.steps


def command(*words: str) -> Sequence[str]:
    """Run it; its lines."""
    environment = {**os.environ, **OPEN_MPI}
    return subprocess.run(words, env=environment, check=True, capture_output=True, text=True).stdout.splitlines()


if __name__ == "__main__":
    main()
