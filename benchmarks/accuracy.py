"""How far compiled networks are from onnxruntime: `python benchmarks/accuracy.py [MODEL…] [--seeds 1,2,3]`.

Weights and inputs are random. One line per model: largest error relative to the largest magnitude of the output, of
the worst seed, beside the error of onnxruntime itself without its optimisations.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.models.building import Bench, random_inputs, reference
from tests.models.writing import Array
from tests.models.zoo import LIGHT, bert, gpt, light, mlp, mobilenet_v2

MODELS: Mapping[str, Callable[[int], onnx.ModelProto]] = {
    "mlp": lambda seed: mlp(seed=seed),
    "mobilenet_v2": lambda seed: mobilenet_v2(size=224, width=1.0, classes=1000, seed=seed),
    "bert": lambda seed: bert(seed=seed),
    "bert_decomposed": lambda seed: bert(norm="decomposed", seed=seed),
    "gpt": lambda seed: gpt(seed=seed),
    "gpt_past": lambda seed: gpt(past=8, mask="trilu", seed=seed),
    **{name: (lambda seed, name=name: light(name, seed)) for name in LIGHT},
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", choices=[*MODELS, []], help="all by default")
    parser.add_argument("--seeds", default="1,2", help="of weights and inputs")
    chosen = parser.parse_args()
    worst = 0.0
    print(f"{'model':<18}{'dlc':>10}{'onnxruntime, plain':>20}")
    with TemporaryDirectory(prefix="dlc-accuracy-") as directory:
        bench = Bench(Path(directory) / "cache")
        for name in chosen.models or MODELS:
            found = [measure(bench, MODELS[name](seed), seed) for seed in map(int, chosen.seeds.split(","))]
            ours, theirs = (max(pair) for pair in zip(*found, strict=True))
            worst = max(worst, ours)
            print(f"{name:<18}{ours:>10.1e}{theirs:>20.1e}", flush=True)
    return int(worst > 1e-4)


def measure(bench: Bench, model: onnx.ModelProto, seed: int) -> tuple[float, float]:
    """Errors of the compiled program, and of onnxruntime as it runs the model without optimising it."""
    with TemporaryDirectory(prefix="dlc-accuracy-") as directory:
        built = bench.compile(model, Path(directory))
        feeds = random_inputs(built.program, seed)
        want = reference(built.source, feeds)
        return error(built(feeds), want), error(reference(built.source, feeds, optimised=False), want)


def error(got: Mapping[str, Array], want: Mapping[str, Array]) -> float:
    """Largest error of any output, relative to the largest magnitude of that output."""
    return max(float(np.abs(got[name] - right).max() / np.abs(right).max()) for name, right in want.items())


if __name__ == "__main__":
    sys.exit(main())
