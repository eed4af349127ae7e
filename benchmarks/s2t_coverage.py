"""How much of well-known models the S2Train accelerator does, and that what it and the host compute is right.

    python benchmarks/s2t_coverage.py [--only squeezenet,resnet50] [--seed 1] [--compile] [--shipped]

The models are ONNX's nine light ones, real architectures with random weights, compiled for inference with the host as
the fallback and run in the simulator. `error` is the largest difference from onnxruntime's outputs, relative to the
largest element of these. The exit code is 1 where one is beyond the backend's tolerance. The weights that the models
ship with are of one value each; of three models they make activations beyond fp16, so that they are compiled only.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "plugins" / "backend_s2train")]

from tests.models.building import Bench, reference  # noqa: E402
from tests.models.zoo import LIGHT, image, light  # noqa: E402

TOLERANCE = 5e-3
"""The backend's."""


def main() -> int:
    """A row for each model."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", default=",".join(LIGHT), help="models, separated by commas")
    parser.add_argument("--seed", type=int, default=1, help="of random weights")
    parser.add_argument("--shipped", action="store_true", help="weights as the models ship; do not run them")
    parser.add_argument("--compile", action="store_true", help="do not run them")
    chosen = parser.parse_args()
    print(f"{'model':<14}{'compile s':>10}{'run s':>8}{'error':>10}  coverage")
    wrong = 0
    for name in chosen.only.split(","):
        with TemporaryDirectory(prefix="dlc-coverage-") as directory:
            place = Path(directory)
            model = light(name, None if chosen.shipped else chosen.seed)
            began = time.perf_counter()
            built = Bench(place / "cache").compile(model, place, "-p", "s2train-host", target="s2train")
            took = time.perf_counter() - began
            ran = error = ""
            if not (chosen.compile or chosen.shipped):
                feeds = image(model)
                began = time.perf_counter()
                (found,) = built(feeds).values()
                ran = f"{time.perf_counter() - began:.1f}"
                (wanted,) = reference(built.source, feeds).values()
                difference = float(np.abs(found - wanted.reshape(found.shape)).max() / np.abs(wanted).max())
                wrong += not difference <= TOLERANCE
                error = f"{difference:.1e}"
        print(f"{name:<14}{took:>10.1f}{ran:>8}{error:>10}  {built.memory['coverage']}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
