"""A Llama-like decoder in float32, float16, bfloat16 and with weights of int4: what narrow types cost beside float32.

    python benchmarks/narrow_types.py [WORD…] [--rounds 15] [--cpu native] [--json] [--layers]

All programs are dlc's. Weights are random, those of int4 have a scale for 32 elements. Calls of the programs take turns
on one thread, times are medians. Prints per model and type the time, its ratio to that of float32, the bytes of the
weights, and the largest difference of the logits from those of float32, relative to the largest of them. The command
fails above a ratio of 2. WORD selects models by name. `--layers` times every kernel by itself. Files are written to a
temporary directory.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from dlc_backend_c.runtime import Model
from dlc_backend_c.target import target_for

from benchmarks.kernels import peak
from benchmarks.peers import build, clocks, layers
from dlc.api.plan import Plan
from tests.models.llama import BFLOAT16, Llama

LIMIT = 2.0
"""Times dlc's own time in float32 that a narrow type may take at most."""
SMALL = Llama(hidden=256, inner=704, layers=4, heads=8, groups=2, vocabulary=1000)
LARGE = Llama(hidden=1024, inner=2752, layers=4, heads=16, groups=4, vocabulary=4000)
MODELS: Mapping[str, Llama] = {
    "small-prefill": replace(SMALL, length=64),
    "small-decode": replace(SMALL, length=1, past=64),
    "large-prefill": replace(LARGE, length=128),
    "large-decode": replace(LARGE, length=1, past=256),
}
TYPES: Mapping[str, Mapping[str, Any]] = {
    "f32": {},
    "f16": {"dtype": np.float16},
    "bf16": {"dtype": BFLOAT16},
    "i4": {"block": 32},
}
Array = np.ndarray[Any, np.dtype[Any]]


def feeds(sizes: Llama) -> dict[str, Array]:
    """Random tokens, and a random past."""
    random = np.random.default_rng(1)
    found: dict[str, Array] = {"input_ids": random.integers(0, sizes.vocabulary, (1, sizes.length))}
    for layer in range(sizes.layers if sizes.past else 0):
        for name in ("key", "value"):
            past = random.standard_normal((1, sizes.groups, sizes.past, sizes.depth), np.float32)
            found[f"past_{layer}_{name}"] = past.astype(sizes.dtype)
    return found


def measure(name: str, folder: Path, rounds: int, cpu: str) -> tuple[list[dict[str, Any]], dict[str, Plan]]:
    """One model in every type: built and timed."""
    models: dict[str, Model] = {}
    plans: dict[str, Plan] = {}
    given: dict[str, dict[str, Array]] = {}
    for title, changes in TYPES.items():
        sizes = replace(MODELS[name], **changes)
        path = folder / f"{name}-{title}.onnx"
        path.write_bytes(sizes.model().SerializeToString())
        plans[title] = build(path, folder / f"{name}-{title}", cpu)
        models[title], given[title] = Model.load(folder / f"{name}-{title}"), feeds(sizes)
    logits = {t: np.asarray(m(given[t])["logits"]).astype(np.float32) for t, m in models.items()}
    times: dict[str, list[float]] = {t: [] for t in models}
    for _ in range(rounds):
        for title, model in models.items():
            times[title].append(clocks(lambda m=model, t=title: m(given[t]))[0])
    medians = {t: statistics.median(x) * 1e3 for t, x in times.items()}
    largest = float(np.max(np.abs(logits["f32"])))
    rows = [
        {
            "model": name,
            "type": t,
            "milliseconds": medians[t],
            "ratio": medians[t] / medians["f32"],
            "weight_bytes": sum(p.stat().st_size for p in (folder / f"{name}-{t}").glob("*_weights.bin")),
            "relative_difference": float(np.max(np.abs(logits[t] - logits["f32"]))) / largest,
        }
        for t in models
    ]
    return rows, plans


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("words", nargs="*")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--cpu", default="native")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--layers", action="store_true")
    options = parser.parse_args()
    names = [n for n in MODELS if not options.words or any(w in n for w in options.words)]
    if not names:
        sys.exit(f"no model is named like that; there are {', '.join(MODELS)}")
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        top = peak(target_for(options.cpu), folder)
        for name in names:
            found, plans = measure(name, folder, options.rounds, options.cpu)
            rows += found
            for row in found:
                if not options.json:
                    print(line(row), flush=True)
                if options.layers:
                    layers(plans[row["type"]], folder / f"{name}-{row['type']}", options.cpu, top)
    if options.json:
        print(json.dumps({"limit": LIMIT, "cpu": options.cpu, "models": rows}, indent=1))
    sys.exit(any(r["ratio"] > LIMIT for r in rows))


def line(row: Mapping[str, Any]) -> str:
    """One model in one type as text."""
    return (
        f"{row['model']:14} {row['type']:5} {row['milliseconds']:9.2f} ms  {row['ratio']:6.2f} x f32  "
        f"weights {row['weight_bytes'] / 1e6:7.2f} MB  difference {row['relative_difference']:.1e}"
    )


if __name__ == "__main__":
    main()
