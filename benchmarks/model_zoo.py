"""Models of today's families against onnxruntime: made here with random weights, built to C, run, and compared.

    python benchmarks/model_zoo.py [WORD…] [--models DIR] [--family WORD] [--json FILE] [--seconds 300]
                                   [--open | --free] [--target SPEC] [--machine FILE] [--verify-loops]
    python benchmarks/model_zoo.py --real ../shared/data/models

The models are those of benchmarks/zoo: torch's two exporters, transformers, timm, scikit-learn, onnxruntime's
quantisers. What makes them is no dependency of dlc:

    pip install onnxscript transformers timm torchvision skl2onnx lightgbm xgboost onnxmltools onnxconverter-common

A model whose packages are missing is listed as not made. Each is written to DIR once (build/zoo by default) with
inputs beside it, and built for the shapes of those inputs in a process of its own: a crash or a hang is a row of the
table. A second run is with the same numbers in another order. Errors are relative to the largest magnitude of an
output; whole numbers and truth values have to be equal. `--real` takes the models below a folder instead. With
`--open` what a model leaves open is built for a range of sizes, and the second run has half of the first one's; with
`--free` nothing is said of any size, as by `dlc build MODEL` alone. `--target`, `--machine` and `--verify-loops` are
those of `dlc build`; programs without a library, `--target 'c{cpu=cortex-m7 lib=none}'`, are built and not run.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.zoo import audio, detection, generation, layers, narrow, open_sizes, real, text, trees, vision
from benchmarks.zoo.entry import BITS, Entry, Feeds

MODULES = (vision, detection, text, generation, audio, open_sizes, layers, trees, narrow)
ENTRIES: tuple[Entry, ...] = tuple(e for module in MODULES for e in module.entries())


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("words", nargs="*")
    parser.add_argument("--models", type=Path, default=Path("build/zoo"))
    parser.add_argument("--family", default="")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--real", type=Path)
    parser.add_argument("--open", action="store_true")
    parser.add_argument("--free", action="store_true")
    parser.add_argument("--target", default="c")
    parser.add_argument("--machine", default="")
    parser.add_argument("--verify-loops", action="store_true")
    options = parser.parse_args()
    options.models.mkdir(parents=True, exist_ok=True)
    entries = tuple(real.entries(options.real)) if options.real else ENTRIES
    chosen = [e for e in entries if options.family in e.family and any(w in e.name for w in options.words or [""])]
    rows: list[dict[str, Any]] = []
    for entry in chosen:
        row = {
            "model": entry.name,
            "family": entry.family,
            **one(entry, options.models, options.seconds, way(entry, options)),
        }
        rows.append(row)
        print(f"{row['model']:34}{row['family']:20}{row['result']:10}{row['detail']}", flush=True)
    totals = Counter(row["result"] for row in rows)
    print(", ".join(f"{count} {result}" for result, count in totals.most_common()))
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))
    sys.exit(totals["matches"] + totals["built"] != len(rows))


def way(entry: Entry, options: argparse.Namespace) -> list[str]:
    """What is said of the sizes of a model, and how it is built: as `benchmarks.zoo.check` takes it."""
    return [
        *[f"open/{entry.unit}"] * options.open,
        *["free"] * options.free,
        f"--target={options.target}",
        *[f"--machine={options.machine}"] * bool(options.machine),
        *["--verify-loops"] * options.verify_loops,
    ]


def one(entry: Entry, folder: Path, seconds: float, way: list[str]) -> dict[str, Any]:
    """result: matches, differs, refused, fails, not made, built; and the detail: errors and times, or the reason."""
    path = folder / f"{entry.name}.onnx"
    if not path.with_suffix(".npz").exists():
        try:
            np.savez(path.with_suffix(".npz"), **stored(entry.make(path)))
        except Exception as problem:  # noqa: BLE001 - whatever an exporter raises is its row of the table
            return {"result": "not made", "detail": f"{type(problem).__name__}: {str(problem).splitlines()[0][:200]}"}
    command = [sys.executable, "-m", "benchmarks.zoo.check", str(path), entry.oracle, str(entry.tolerance), *way]
    start = time.perf_counter()
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, start_new_session=True)
    try:
        output, messages = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # with the build that it started
        process.communicate()
        return {"result": "fails", "detail": f"longer than {seconds:.0f} s"}
    try:
        return json.loads(output.splitlines()[-1])
    except (IndexError, ValueError):
        last = (messages.strip().splitlines() or ["nothing was printed"])[-1]
        return {
            "result": "fails",
            "detail": f"exit {process.returncode} after {time.perf_counter() - start:.0f} s: {last}",
        }


def stored(feeds: Feeds) -> Feeds:
    """Arrays that a .npz file keeps: those of bfloat16 by their bits."""
    narrow = {k: v.view(np.uint16) for k, v in feeds.items() if v.dtype.name == "bfloat16"}
    return {k: v for k, v in feeds.items() if k not in narrow} | {BITS + k: v for k, v in narrow.items()}


if __name__ == "__main__":
    main()
