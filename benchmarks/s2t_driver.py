"""LeNet on digits by the C driver of its S2Train program, through the simulated board: the same bits as `dlc train`.

    python benchmarks/s2t_driver.py [--steps 10] [--set s2-select.loss-scale=dynamic]

The driver is compiled by gcc and clang, with address and undefined-behaviour sanitizers. Compared are all weights and
states of the optimizer after the steps, with those in the checkpoint of `dlc train`. The exit status is 1 if they
differ.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

import dlc  # noqa: E402  # behind the path that finds it
from dlc.training.loop.checkpoint import read_checkpoint  # noqa: E402
from tests.backend_s2train.host_programs import compiled, driven, kept_tensors  # noqa: E402
from tests.tools import SANITIZING  # noqa: E402

DIGITS = ROOT / "examples" / "digits"


def command(*arguments: str | Path) -> None:
    """A `dlc` process that must succeed."""
    subprocess.run([sys.executable, "-m", "dlc", *map(str, arguments), "-q"], check=True, stdout=subprocess.DEVNULL)


def main() -> int:
    """Print seconds and what differs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--model", type=Path, default=DIGITS / "lenet.onnx")
    parser.add_argument("--set", action="append", default=[], help="as dlc build --set")
    given = parser.parse_args()
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        line = ["build", given.model, "-t", "s2train{simulate=bit-true}", "--train", "loss=cross-entropy"]
        line += ["--dim", "batch=64"]
        command(*line, *(word for value in given.set for word in ("--set", value)), "-o", place / "out")
        data = DIGITS / "digits_train.npz"
        line = ["train", place / "out", "--data", data, "--steps", str(given.steps), "--no-shuffle"]
        command(*line, "--checkpoint", place / "run.ckpt")
        trained: Any = dlc.load(place / "out")
        trained.restore(read_checkpoint(place / "run.ckpt").parts["program"])
        wanted = b"".join(
            trained.machine.read(n).astype("<f4").tobytes() for n, _ in kept_tensors(place / "out").values()
        )
        held = np.load(data)
        batch = trained.arguments[0].type.shape[0]
        x, y = (held[name][: batch * given.steps] for name in ("x", "y"))
        batches = [(x[k : k + batch], y[k : k + batch]) for k in range(0, len(x), batch)]
        (file,) = (place / "out").glob("*.s2t")
        for compiler in SANITIZING:
            made = compiled(place, place / "out", x[:batch].size, batch, compiler)
            start = time.perf_counter()
            output, said, status = driven(made, file, batches)
            losses = np.frombuffer(output[: 4 * given.steps], "<f4")
            same = status == 0 and output[4 * given.steps :] == wanted
            wrong += not same
            shown = ", ".join(f"{loss:.4f}" for loss in losses)
            print(f"{compiler}: {time.perf_counter() - start:.1f} s, losses {shown}", said, flush=True)
            print(
                f"  {len(wanted) // 4:,} numbers after {given.steps} steps: {'the same bits' if same else 'DIFFERENT'}"
            )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
