"""Build times of ResNet-50 with random weights: cold, again, with other weights, with other names.

    python benchmarks/build_time.py [--model resnet50]

Each figure is the wall time of a `dlc` process, start of Python included. The exit status is 0 if the cold build took
less than 60 s, the second one less than 5 % of it, `--cache require` passed, no changed model ran a compiler, and
`dlc cache why` named what had changed.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
from models import renamed, with_random_weights

COLD_SECONDS, WARM_SHARE = 60.0, 0.05


def dlc(place: Path, *arguments: str) -> tuple[float, str]:
    """Seconds and standard output of a `dlc` process that must succeed."""
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "dlc", *arguments], cwd=place, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"dlc {' '.join(arguments)} failed:\n{done.stderr}")
    return time.perf_counter() - start, done.stdout


def build(place: Path, model: str, output: str, *more: str) -> tuple[float, dict[str, Any]]:
    seconds, text = dlc(place, "build", model, "-o", output, "--cache-dir", "cache", "--json", *more)
    return seconds, json.loads(text)


def compilers(document: dict[str, Any]) -> int:
    return sum(0 if s["cached"] else s["counts"].get("compile runs", 0) for s in document["steps"])


def changed_lines(place: Path, model: str) -> set[str]:
    """Labels of the key lines that `dlc cache why` shows."""
    text = dlc(place, "cache", "why", model, "--cache-dir", "cache")[1]
    return {line.strip().partition(":")[0] for line in text.splitlines() if " → " in line}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", default="resnet50", help="one of the onnx package's light models")
    name = parser.parse_args().model
    failures: list[str] = []

    def check(text: str, good: bool) -> None:
        print(f"{'ok  ' if good else 'FAIL'} {text}", flush=True)
        failures.extend([] if good else [text])

    with tempfile.TemporaryDirectory(prefix="dlc-build-time-") as folder:
        place = Path(folder)
        path = with_random_weights(name, place / "model" / f"{name}.onnx")
        with_random_weights(name, place / "weights" / f"{name}.onnx", seed=1)
        (place / "names").mkdir()
        onnx.save(renamed(onnx.load(str(path))), str(place / "names" / f"{name}.onnx"))
        print(f"{name}: {path.stat().st_size / 1e6:.0f} MB, {os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}")
        measure(place, f"{name}.onnx", check)
    return 1 if failures else 0


def measure(place: Path, name: str, check: Callable[[str, bool], None]) -> None:
    cold, document = build(place, f"model/{name}", "out")
    check(f"cold build {cold:.2f} s, {compilers(document)} compilers", cold < COLD_SECONDS)
    warm = min(build(place, f"model/{name}", "out")[0] for _ in range(3))
    check(f"second build {warm:.3f} s, {100 * warm / cold:.2f} % of the first", warm < WARM_SHARE * cold)
    seconds, document = build(place, f"model/{name}", "out", "--cache", "require")
    check(f"--cache require {seconds:.3f} s", all(s["cached"] for s in document["steps"]))
    seconds, _ = build(place, f"model/{name}", "elsewhere")
    check(f"into another directory {seconds:.3f} s, {100 * seconds / cold:.2f} %", True)
    for kind, label in (("weights", "weights"), ("names", "names")):
        seconds, document = build(place, f"{kind}/{name}", f"out-{kind}")
        lines = changed_lines(place, f"{kind}/{name}")
        check(f"other {kind} {seconds:.2f} s, {compilers(document)} compilers", compilers(document) == 0)
        check(f"other {kind}: dlc cache why names {', '.join(sorted(lines))}", label in lines)


if __name__ == "__main__":
    sys.exit(main())
