"""One program for a range of sizes: right at random sizes, and how long it takes beside programs of single sizes.

    python benchmarks/sizes.py [WORD…] [--sizes 50] [--timed 5] [--rounds 15] [--seed 0] [--target SPEC] [--json]

Builds each network of `benchmarks/sized_networks.py` once for its ranges, compares it with onnxruntime at `--sizes`
random sizes, each call in an arena of just the bytes that the program asks for at these sizes, and at `--timed` of them
with a program built for just that size, calls taking turns. Prints the largest difference in units of the largest
output, and per size the ratio of the medians. WORD selects networks by name, SPEC the target, such as
`c{cpu=x86-64-v3}`.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

import dlc
from benchmarks.sized_networks import NETWORKS

onnxruntime: Any = import_module("onnxruntime")  # it has no types
LIMIT = 1.15
"""Times a program of one size that a program of the range may take."""
NEAR = 1e-4
GUARD = 4096
"""Bytes behind the arena of a call that have to stay as they are."""


def drawn(ranges: Mapping[str, str], rng: random.Random) -> dict[str, int]:
    """Sizes in their ranges."""
    out: dict[str, int] = {}
    for name, text in ranges.items():
        low, high, unit = (int(k or 1) for k in re.fullmatch(r"(\d+)\.\.(\d+)(?:/(\d+))?", text).groups())  # type: ignore[union-attr]
        out[name] = rng.randrange(low, high + 1, unit)
    return out


def feeds(session: Any, sizes: Mapping[str, int], seed: int) -> dict[str, Any]:
    """Random inputs at these sizes."""
    rng = np.random.default_rng(seed)
    out: dict[str, Any] = {}
    for i in session.get_inputs():
        shape = [sizes.get(d, d) for d in i.shape]
        whole = i.type == "tensor(int64)"
        out[i.name] = rng.integers(0, 2, shape) if whole else rng.standard_normal(shape).astype(np.float32)
    return out


def ratio(range_: Any, single: Any, given: Mapping[str, Any], rounds: int) -> float:
    """How many times as long the program of the range takes, in time of the processor, calls taking turns."""
    times: tuple[list[float], list[float]] = ([], [])
    for k in range(rounds + 3):
        for program, found in zip((range_, single), times, strict=True):
            start = time.thread_time()
            program(**given)
            if k >= 3:
                found.append(time.thread_time() - start)
    return statistics.median(times[0]) / statistics.median(times[1])


def in_its_arena(program: Any, sizes: Mapping[str, int], given: Mapping[str, Any]) -> list[Any]:
    """Outputs of a call whose arena has the bytes that the program asks for; nothing behind them may change."""
    named = str(program._library.manifest["memory"].get("arena_sizes", "")).split()
    told = {port: size for port in named for dim, size in sizes.items() if port.rstrip("_") == dim}
    need = program.arena_bytes_at(**told)
    room = np.full(need + GUARD + 64, 0xA5, np.uint8)
    start = -room.ctypes.data % 64
    program._own.arena = room[start:]
    out = list(program(**given).values())
    del program._own.arena
    assert (room[start + need :] == 0xA5).all(), f"written behind the {need} bytes of the arena at {sizes}"
    return out


def measured(name: str, asked: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """The figures of one network."""
    export, ranges = NETWORKS[name]
    path = export(folder / f"{name}.onnx")
    cache = folder / "cache"
    program: Any = dlc.build(path, asked.target, dims=ranges, cache_dir=cache)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    rng = random.Random(asked.seed)
    worst, ratios = 0.0, dict[str, float]()
    for k in range(asked.sizes):
        sizes = drawn(ranges, rng)
        given = feeds(session, sizes, k)
        got = in_its_arena(program, sizes, given)
        for x, y in zip(got, session.run(None, given), strict=True):
            assert x.shape == y.shape, (sizes, x.shape, y.shape)
            if y.size:
                worst = max(worst, float(np.abs(x - y).max() / max(np.abs(y).max(), 1e-30)))
        if k < asked.timed:
            single: Any = dlc.build(path, asked.target, dims=sizes, cache_dir=cache)
            ratios[" ".join(f"{n}={v}" for n, v in sizes.items())] = ratio(program, single, given, asked.rounds)
    return {"network": name, "sizes": asked.sizes, "worst": worst, "ratios": ratios, "arena_bytes": program.arena_bytes}


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="networks by name; all by default")
    parser.add_argument("--sizes", type=int, default=50)
    parser.add_argument("--timed", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--target", default="c", help="backend with options")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args(arguments)
    chosen = [n for n in NETWORKS if not asked.words or any(w in n for w in asked.words)]
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="dlc-sizes-") as folder:
        for name in chosen:
            found.append(measured(name, asked, Path(folder)))
            if not asked.json:
                one = found[-1]
                print(
                    f"{name}: {one['sizes']} sizes, largest difference {one['worst']:.1e}, arena {one['arena_bytes']} B"
                )
                for sizes, times in one["ratios"].items():
                    print(f"  {times:5.2f}  {sizes}")
    if asked.json:
        print(json.dumps(found))
    wrong = [f["network"] for f in found if f["worst"] > NEAR]
    slow = [f["network"] for f in found if any(r > LIMIT for r in f["ratios"].values())]
    print(
        f"missed: {', '.join([*(f'{n} differs' for n in wrong), *(f'{n} above {LIMIT}' for n in slow)]) or 'nothing'}",
        file=sys.stderr,
    )
    return 1 if wrong or slow else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
