"""Latency of whole models against onnxruntime, as many threads each, in one run with calls taking turns.

    python benchmarks/peers.py [WORD…] [--threads 1] [--rounds 30] [--pause 0] [--cpu native] [--json] [--layers]

Prints per model the median of both, their ratio, the ratio of the least times, the difference of the outputs, and how
much of the processor's measured multiply-add peak of one thread the compiled model reaches. With several threads the
model is also built for one, which takes turns with the others: how much faster it is on all of them. With `--pause`
each call comes so many milliseconds after the last one of the same program, as those of services do, five in a row
before it is another program's turn. `--layers` times every step of the compiled model by itself. WORD selects models by
name; without any, those that have a limit run, and the command fails above it. Everything is written to a temporary
directory.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from dlc_backend_c.runtime import Model
from dlc_backend_c.target import target_for

from benchmarks.kernels import peak, timed
from dlc.api.plan import Plan
from dlc.api.source import Source
from dlc.cache import open_cache
from dlc.config.config import default_config
from dlc.driver.build import compile_source
from dlc.driver.codec import Context
from dlc.driver.pipeline import resolve
from dlc.driver.session import Session
from dlc.driver.state_text import op_classes
from dlc.plugins.discovery import load_registry
from dlc.runtime.install import install
from dlc.runtime.manifest import with_manifest
from dlc.spec import Spec
from tests.backend_c.harness import Compiled, samples
from tests.models.zoo import LIGHT, bert, gpt, light, mobilenet_v2

# It has no types.
onnxruntime: Any = import_module("onnxruntime")
LIMIT = 2.5
"""Times onnxruntime's median that these may take at most."""
BLOCK = 5
"""Calls of a program after a pause before it is another one's turn."""
LIMITED = ("resnet50", "squeezenet", "bert")
Array = np.ndarray[Any, np.dtype[Any]]

MODELS: Mapping[str, Callable[[], onnx.ModelProto]] = {
    **{name: partial(light, name, 1) for name in LIGHT},
    "bert": lambda: bert(length=128, hidden=256, layers=4, heads=8, vocabulary=1000, norm="decomposed"),
    "bert-384": lambda: bert(length=128, hidden=384, layers=4, heads=6, vocabulary=1000, norm="decomposed"),
    "gpt": lambda: gpt(length=128, hidden=256, layers=4, heads=8, vocabulary=1000),
    "mobilenet_v2": lambda: mobilenet_v2(size=224, width=1.0, classes=1000),
    "squeezenet-as-shipped": lambda: light("squeezenet"),
}


def build(
    path: Path,
    directory: Path,
    cpu: str,
    threads: int = 1,
    math: str = "fast",
    settings: Sequence[str] = (),
    *,
    profile: bool = False,
    pipeline: str | None = None,
) -> Plan:
    """Compile a model into a directory; nothing is cached. Returns its plan."""
    registry = load_registry()
    target = f"c{{cpu={cpu} math={math} threads={threads} profile={'yes' if profile else 'no'}}}"
    recipe = resolve(registry, default_config(), target, pipeline=pipeline, settings=settings)
    source = Source(path)
    entry = registry.frontend_for(source)
    session = Session(open_cache(None, "off"), Context(lambda: op_classes(registry), path))
    done = compile_source(source, registry.frontend(Spec(entry.name)), entry.package, recipe, session)
    install(with_manifest(done.last.value), directory)
    plan = next(s.handle.value for s in reversed(done.steps) if s.handle.kind == "plan")
    assert isinstance(plan, Plan)
    return plan


def feeds(session: Any) -> dict[str, Array]:
    """Random inputs; integers are ones, which index any table and mask nothing."""
    random = np.random.default_rng(0)
    found: dict[str, Array] = {}
    for port in session.get_inputs():
        shape = [d if isinstance(d, int) else 1 for d in port.shape]
        integers = "int" in port.type
        found[port.name] = np.ones(shape, np.int64) if integers else random.standard_normal(shape).astype(np.float32)
    return found


def peer(path: Path, threads: int = 1) -> Any:
    """onnxruntime with so many threads."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def measure(
    name: str, folder: Path, rounds: int, cpu: str, top: float, threads: int = 1, pause: float = 0.0
) -> tuple[dict[str, Any], Plan]:
    """One model: built, compared and timed."""
    path = folder / f"{name}.onnx"
    path.write_bytes(MODELS[name]().SerializeToString())
    start = time.perf_counter()
    plan = build(path, folder / name, cpu, threads)
    built = time.perf_counter() - start
    model, other = Model.load(folder / name), peer(path, threads)
    alone = model
    if threads > 1:
        build(path, folder / f"{name}-1", cpu)
        alone = Model.load(folder / f"{name}-1")
    given = feeds(other)
    names = [port.name for port in other.get_outputs()]
    want: dict[str, Array] = dict(zip(names, other.run(None, given), strict=True))
    got = model(given)
    error = max(float(np.max(np.abs(got[n] - want[n])) / np.max(np.abs(want[n]))) for n in names)
    own: list[tuple[float, float]] = []
    theirs: list[tuple[float, float]] = []
    single: list[tuple[float, float]] = []
    turns = [(own, lambda: model(given)), (theirs, lambda: other.run(None, given))]
    if threads > 1:
        turns.insert(0, (single, lambda: alone(given)))
    for done in range(0, rounds, BLOCK if pause else 1):
        for times, call in turns:
            if pause:
                call()
            for _ in range(min(BLOCK, rounds - done) if pause else 1):
                time.sleep(pause)
                times.append(clocks(call))
    (mine, busy), (onnx_wall, onnx_busy) = (
        [statistics.median(x) * 1e3 for x in zip(*t, strict=True)] for t in (own, theirs)
    )
    macs = sum(call.body.macs for call in plan.steps)
    return {
        "model": name,
        "ratio": mine / onnx_wall,
        "ratio_of_processor_time": busy / onnx_busy,
        "milliseconds": mine,
        "onnxruntime_milliseconds": onnx_wall,
        "percent_of_peak": 100 * 2 * macs / (busy * 1e-3) / (top * 1e9),
        "ratio_of_least": min(own)[0] / min(theirs)[0],
        **(_speedup([t for t, _ in single], [t for t, _ in own]) if threads > 1 else {}),
        "relative_difference": error,
        "build_seconds": built,
    }, plan


def _speedup(single: list[float], several: list[float]) -> dict[str, float]:
    """How much faster a model is on several threads than on one, by medians and by least times."""
    return {
        "speedup": statistics.median(single) / statistics.median(several),
        "speedup_of_least": min(single) / min(several),
    }


def clocks(call: Callable[[], object]) -> tuple[float, float]:
    """Seconds of wall time, and of this thread's processor time, which other programs disturb less."""
    start = time.perf_counter()
    busy = timed(call)
    return time.perf_counter() - start, busy


def layers(plan: Plan, folder: Path, cpu: str, top: float) -> None:
    """Time of every step by itself, the slowest first."""
    kernels = list({call.body.digest: call.body for call in plan.steps}.values())
    compiled = Compiled(kernels, target_for(cpu), folder, flags=())
    rows: list[tuple[float, float, int, str]] = []
    for n, kernel in enumerate(kernels):
        call = compiled.caller(n, samples(kernel))
        call()
        best = min(timed(call) for _ in range(8))
        steps = [s for s in plan.steps if s.body.digest == kernel.digest]
        origin = " ".join(plan.graph.origin(steps[0])[:3])
        rows.append((best * len(steps), 2 * kernel.macs / best / 1e9, len(steps), f"{kernel.digest[:8]} {origin}"))
    for total, rate, count, origin in sorted(rows, reverse=True):
        print(f"  {total * 1e3:8.3f} ms  {100 * rate / top:5.1f} %  x{count:<3} {origin[:90]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("words", nargs="*")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--pause", type=float, default=0, help="milliseconds between calls")
    parser.add_argument("--cpu", default="native")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--layers", action="store_true")
    options = parser.parse_args()
    names = [n for n in MODELS if any(w in n for w in options.words)] if options.words else LIMITED
    if not names:
        sys.exit(f"no model is named like that; there are {', '.join(MODELS)}")
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        top = peak(target_for(options.cpu), folder)
        for name in names:
            row, plan = measure(name, folder, options.rounds, options.cpu, top, options.threads, options.pause / 1000)
            rows.append(row)
            if not options.json:
                print(line(row), flush=True)
            if options.layers:
                layers(plan, folder / name, options.cpu, top)
    if options.json:
        print(json.dumps({"peak_gflops": top, "limit": LIMIT, "models": rows}, indent=1))
    sys.exit(any(r["ratio"] > LIMIT for r in rows if r["model"] in LIMITED))


def line(row: Mapping[str, Any]) -> str:
    """One model as text."""
    faster = ""
    if "speedup" in row:
        faster = f"{row['speedup']:.2f} times as fast as on one thread (least times {row['speedup_of_least']:.2f})  "
    return (
        f"{row['model']:22} {row['milliseconds']:8.2f} ms  onnxruntime {row['onnxruntime_milliseconds']:8.2f} ms  "
        f"ratio {row['ratio']:5.2f}  (processor time {row['ratio_of_processor_time']:5.2f}, "
        f"least times {row['ratio_of_least']:5.2f})  {faster}"
        f"{row['percent_of_peak']:5.1f} % of peak  difference {row['relative_difference']:.1e}  "
        f"built in {row['build_seconds']:.1f} s"
    )


if __name__ == "__main__":
    main()
