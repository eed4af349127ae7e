"""A decode step of a Llama-like model: how fast its weights are read, beside what the memory allows and onnxruntime.

    python benchmarks/decode.py [f32] [f16] [int4] [int4-zero] [--parameters small] [--past 512] [--seconds 10]
                                [--threads 1] [--cpu native] [--peers onnxruntime] [--keep DIR [--built]]
                                [--weights auto] [--json]

One token with a key-value cache of 512: RMS norms, rotary positions, grouped attention, gated units, vocabulary. Every
weight but the table of embeddings is read once, so memory limits the step. `--parameters full` has 1.2 billion (5 GB of
disk and 12 GB of memory in f32), `small` a tenth of it, `tiny` is for tests. Weights are random; those of int4 are
MatMulNBits in blocks of 32, symmetric or with zero points.

Prints for each type the seconds and memory of the build, the median of a step, the bytes of weights that it reads in a
second, also as part of what `dlc bench` measures of the memory in the same process before and after, and the ratio to
the peers, called in turn. Writes to a temporary directory, or to DIR, where models that are there are used again, and
with `--built` programs too: a measurement by itself.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any, get_args

import numpy as np
from dlc_backend_c.backend import C
from dlc_backend_c.library import ALIGN, aligned
from dlc_backend_c.profiler import CProfiler
from dlc_backend_c.runtime import Argument, Model
from dlc_backend_c.weights_file import Weights

from dlc.bench.peers import Unavailable, open_peer
from dlc.bench.times import Length, in_turn
from tests.models.llama import Llama

Array = np.ndarray[Any, np.dtype[Any]]

SIZES: Mapping[str, Llama] = {
    "full": Llama(hidden=2048, inner=8192, layers=18, heads=32, groups=8, vocabulary=32000, length=1),
    "small": Llama(hidden=1024, inner=4096, layers=7, heads=16, groups=4, vocabulary=16000, length=1),
    "tiny": Llama(hidden=128, inner=256, layers=2, heads=4, groups=2, vocabulary=320, length=1),
}
TYPES: Mapping[str, Mapping[str, Any]] = {
    "f32": {},
    "f16": {"dtype": np.float16},
    "int4": {"block": 32, "bits": "symmetric"},
    "int4-zero": {"block": 32, "bits": "zero points"},
}


def held(arguments: Sequence[Argument]) -> dict[str, Array]:
    """Arrays of a model's inputs or outputs in one piece of memory, for which numpy asks for large pages."""
    sizes = [math.prod(a.shape) * a.dtype.itemsize for a in arguments]
    rooms = [-(-size // ALIGN) * ALIGN for size in sizes]
    memory, ends = aligned(sum(rooms)), list(accumulate(rooms))
    parts = (memory[end - room :][:size] for end, room, size in zip(ends, rooms, sizes, strict=True))
    return {a.name: part.view(a.dtype).reshape(a.shape) for a, part in zip(arguments, parts, strict=True)}


def feeds(model: Model, sizes: Llama) -> dict[str, Array]:
    """A random token, and a random past."""
    random = np.random.default_rng(1)
    found = held(model.inputs)
    for name, array in found.items():
        token = name == "input_ids"
        array[...] = random.integers(0, sizes.vocabulary, array.shape) if token else random.normal(size=array.shape)
    return found


def written(sizes: Llama, path: Path) -> tuple[int, int]:
    """The model in a file, weights beside it; (number of weights, bytes of those that a step reads whole)."""
    counts = path.with_suffix(".json")
    if not counts.exists():
        data = path.with_name(f"{path.name}.data")
        data.unlink(missing_ok=True)
        model = sizes.model(data)
        table, *others = (t for t in model.graph.initializer if t.name.startswith(("weight", "scale", "zero")))
        elements = sum(int(np.prod(t.dims)) * (2 if t.name.startswith("weight") and sizes.block else 1) for t in others)
        lengths = (int(e.value) for t in others for e in t.external_data if e.key == "length")
        numbers = elements + int(np.prod(table.dims)), sum(lengths)
        path.write_bytes(model.SerializeToString())
        counts.write_text(json.dumps(numbers))
    weights, size = json.loads(counts.read_text())
    return weights, size


def build(path: Path, directory: Path, target: str) -> tuple[float, int]:
    """Seconds of a build by the command, and the most bytes of memory of those that ran so far with mapped files."""
    command = [sys.executable, "-m", "dlc", "build", str(path), "--target", target, "-o", str(directory)]
    begin = time.perf_counter()
    subprocess.run([*command, "--cache", "off"], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss << 10


def bandwidth(backend: C) -> float:
    """Bytes that are read from memory in a second."""
    return CProfiler.made(backend).limits().memories[-1].rate


def measure(name: str, sizes: Llama, folder: Path, args: argparse.Namespace) -> dict[str, Any]:
    """One type: written, built, compared and timed."""
    path = folder / f"{args.parameters}-{name}.onnx"
    weights, size = written(sizes, path)
    target = f"c{{cpu={args.cpu} threads={args.threads} weights=map}}"
    directory = folder / path.stem
    built = directory / "built.json"
    if not (args.built and built.exists()):
        built.unlink(missing_ok=True)
        cost = build(path, directory, target)
        built.write_text(json.dumps(cost))
    seconds, memory = json.loads(built.read_text())
    model = Model.load(directory, args.weights)
    given, outputs = feeds(model, sizes), held(model.outputs)
    found: dict[str, Any] = {"type": name, "weights": weights, "bytes_read": size, "build_seconds": seconds}
    found |= {"build_bytes": memory, "weight_file_bytes": max(p.stat().st_size for p in directory.iterdir())}
    calls: dict[str, Any] = {"dlc": lambda: model(out=outputs, **given)}
    for peer in args.peers:
        try:
            calls[peer] = open_peer(peer, path, given, args.threads).run
        except Unavailable as reason:
            found[peer] = str(reason)
    backend = C(cpu=args.cpu)
    rates = [bandwidth(backend)]
    times = in_turn(calls, Length(seconds=args.seconds))
    rates.append(bandwidth(backend))
    own = times["dlc"].median / 1000
    found |= {"bandwidth": rates, "rate": size / own, "part": size / own / (sum(rates) / 2)}
    found |= {"milliseconds": {n: t.median for n, t in times.items()}}
    got = calls["dlc"]()["logits"].astype(np.float64)
    others = {n: np.asarray(call()["logits"]).astype(np.float64) for n, call in calls.items() if n != "dlc"}
    found["difference"] = {n: float(np.abs(got - v).max() / np.abs(v).max()) for n, v in others.items()}
    return found


def line(found: Mapping[str, Any]) -> str:
    """For people."""
    times = found["milliseconds"]
    peers = "".join(
        f"  {n} {t:.1f} ms, {t / times['dlc']:.2f}x, difference {found['difference'][n]:.1e}"
        for n, t in times.items()
        if n != "dlc"
    )
    return (
        f"{found['type']:10} {found['weights'] / 1e9:.3f}e9 weights, {found['weight_file_bytes'] / 1e9:.2f} GB"
        f"  build {found['build_seconds']:.1f} s, {found['build_bytes'] / 1e9:.1f} GB"
        f"  step {times['dlc']:.1f} ms  {found['rate'] / 1e9:.1f} GB/s of {found['bandwidth'][0] / 1e9:.1f} and "
        f"{found['bandwidth'][1] / 1e9:.1f}: {found['part']:.0%}{peers}"
    )


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("types", nargs="*", choices=[*TYPES, []], help="types of weights; all where none is given")
    parser.add_argument("--parameters", choices=SIZES, default="small", help="size of the model")
    parser.add_argument("--past", type=int, default=512, help="tokens in the key-value cache")
    parser.add_argument("--seconds", type=float, default=10.0, help="how long to measure each type")
    parser.add_argument("--threads", type=int, default=1, help="of a step")
    parser.add_argument("--cpu", default="native", help="processor to build for")
    parser.add_argument("--peers", nargs="*", default=["onnxruntime"], help="onnxruntime, openvino, or none")
    parser.add_argument("--keep", type=Path, help="directory for models and programs, which stay")
    parser.add_argument("--built", action="store_true", help="use programs that are in DIR as they are")
    parser.add_argument("--weights", choices=get_args(Weights), default="auto", help="mapped, or private memory")
    parser.add_argument("--json", action="store_true", help="print a JSON document")
    args = parser.parse_args()
    results: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="dlc-decode-") as place:
        folder: Path = args.keep or Path(place)
        folder.mkdir(parents=True, exist_ok=True)
        for name in args.types or TYPES:
            sizes = replace(SIZES[args.parameters], past=args.past, **TYPES[name])
            results.append(measure(name, sizes, folder, args))
            if not args.json:
                print(line(results[-1]), flush=True)
    if args.json:
        print(json.dumps(results, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
