"""Networks as C under the sanitizers: every warning an error, on several machines, and the same files twice.

    python benchmarks/sanitized.py [WORD…] [--machines native,avx2,sse,none] [--large] [--jobs 2] [--json FILE]

The networks of `benchmarks/table.py` (most with smaller inputs), quantised ones, a decode step and training steps are
built twice with empty caches, which must give the same files, and compiled by gcc and clang with warnings as errors:
with the address and undefined-behaviour sanitizers, run and compared with onnxruntime; and for two threads with the
thread sanitizer. `--large` adds the three whose dense layers have hundreds of megabytes. A machine whose instructions
this processor lacks is left out. Prints a line for each build; exit code 1 if something was found.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch

import onnx
from dlc_backend_c.target import target_for

from benchmarks.networks import SEEN
from dlc.kernel.schedules import parallel
from dlc.runtime.manifest import read_manifest
from tests.backend_c.test_training_c import ADAM, CHECKED, emitted, trained
from tests.frontend_onnx.quantising import read, statically_quantised
from tests.models.building import Bench
from tests.models.test_integers import attention, dense, network
from tests.models.test_sanitizers import Sources, feeds_of, run_and_compare, shell, sources
from tests.models.zoo import LIGHT, bert, gpt, light, mlp, mobilenet_v2
from tests.tools import SANITIZE, SANITIZING, THREAD_SANITIZING
from tests.training.nets import NETS

LARGE = ("bvlc_alexnet", "vgg19", "zfnet512")
SMALL_REGION = 50.0
"""Operations from which on loops are shared between threads here, so that small networks have shared ones."""
SSE = """vector-bytes = 16
registers = 16
l1 = "32KiB"
l2 = "256KiB"
flags = ["-march=x86-64"]
"""
MACHINES: Mapping[str, tuple[str, ...]] = {
    "native": ("cpu=native", "cpu=native math=strict", "cpu=native math=bf16x3"),
    "avx2": ("cpu=x86-64-v3",),
    "sse": ("cpu=sse",),
    "none": ("cpu=generic", "cpu=generic math=ordered"),
}
"""Targets by machine. Modes that change no kernel of a network are the same program again."""
FLAGS = ("-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-g0")


def _exported(name: str) -> onnx.ModelProto:
    return onnx.load_from_string(SEEN[name]())


def _quantised(make: Callable[[], onnx.ModelProto]) -> onnx.ModelProto:
    types: Any = import_module("onnxruntime.quantization").QuantType
    with tempfile.TemporaryDirectory() as place:
        path = Path(place, "model.onnx")
        kinds = {"activation_type": types.QUInt8, "weight_type": types.QInt8}
        statically_quantised("QDQ", per_channel=True, **kinds)(make(), path)
        return read(path)


MODELS: Mapping[str, Callable[[], onnx.ModelProto]] = {
    "mlp-1": partial(mlp, sizes=(784, 512, 256, 10)),
    "mlp-64": partial(mlp, batch=8, sizes=(784, 512, 256, 10)),
    "lstm": partial(_exported, "lstm"),
    "bert": partial(bert, layers=1, norm="decomposed"),
    "gpt2-block": partial(gpt, layers=1),
    "decode": partial(gpt, layers=1, length=1, past=5),
    **{f"int8-{f.__name__}": partial(_quantised, f) for f in (network, dense, attention)},
    "mobilenet_v2": partial(mobilenet_v2, size=64),
    "resnet18-1": partial(_exported, "resnet18-1"),
    "resnet18-4": partial(_exported, "resnet18-4"),
    **{name: partial(light, name, 1) for name in sorted(LIGHT, key=lambda n: n in LARGE)},
}


def cpu_of(target: str) -> str:
    return target.split(maxsplit=1)[0].removeprefix("cpu=")


def files(directory: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in sorted(directory.iterdir()) if p.is_file()}


def compiled(found: Sources, cc: str, flags: Sequence[str], compare: bool) -> str:
    """What a compiler, a sanitizer or a comparison finds; "" if nothing."""
    place = found.directory / f"{cc}-{flags[0].strip('-')}"
    place.mkdir()
    own = [f for f in read_manifest(found.directory).data["cpu"] if f.startswith("-m")]
    names = (*found.files, f"{found.prefix}_drive.c", "main.c", "-lm", "-o", str(place / "program"))
    try:
        shell(cc, *own, *FLAGS, *flags, *names, cwd=found.directory)
        if compare:
            run_and_compare("./program", place, found)
        else:
            for k, array in enumerate(feeds_of(found.signature, 0).values()):
                array.tofile(place / f"{found.prefix}_in_{k}.bin")
            shell("./program", cwd=place)
    except AssertionError as problem:
        return f"{cc} {' '.join(flags)}: {problem}"
    return ""


def checked(name: str, target: str, jobs: int) -> Iterator[str]:
    """One network for one target: everything that was found."""
    model = MODELS[name]()
    with tempfile.TemporaryDirectory(prefix="dlc-sanitized-") as directory:
        place = Path(directory)
        (place / "sse.toml").write_text(SSE)
        machine = ("--machine", str(place / "sse.toml")) if "cpu=sse" in target else ()
        options = target.removeprefix("cpu=").replace("sse", "generic", 1) if machine else target.removeprefix("cpu=")
        made: list[tuple[Sources, tuple[str, ...]]] = []
        for threads, flags in ((1, SANITIZE), (2, ("-fsanitize=thread", "-pthread"))):
            for again in (False, True):
                bench = Bench(place / f"cache-{threads}-{again}")
                cpu = f"{options} threads={threads}"
                found = sources(bench, model, place / f"{threads}-{again}", cpu, "model", *machine)
                if again:
                    if files(found.directory) != files(made[-1][0].directory):
                        yield f"threads={threads}: two builds from empty caches differ"
                else:
                    made.append((found, flags))
            main = made[-1][0].directory / "main.c"
            main.write_text("int model_drive(void);\nint main(void) { return model_drive(); }\n")
        exact = not name.startswith("int8")  # bytes differ by a step: tests of integers compare them
        work = [(s, cc, f, exact) for s, f in made for cc in (SANITIZING if f is SANITIZE else THREAD_SANITIZING)]
        with ThreadPoolExecutor(jobs) as pool:
            yield from filter(None, pool.map(compiled, *zip(*work, strict=True)))


def trained_steps(name: str, target: str) -> Iterator[str]:
    """The training step of a small network, by the harness of the tests, which needs no machine file."""
    for cc in SANITIZING:
        for updates in ("final", "immediate"):
            with tempfile.TemporaryDirectory(prefix="dlc-sanitized-") as directory:
                place = Path(directory)
                own = [f for f in target_for(cpu_of(target)).flags if f.startswith("-m")]
                try:
                    emitted(place, name, f"{ADAM} updates={updates}", target)
                    trained(place, cc, target, (*CHECKED, *own))
                except AssertionError as problem:
                    yield f"{cc}, updates={updates}: {problem}"


def lacking(target: str) -> bool:
    """Whether this processor cannot run the code of a target."""
    cpu = cpu_of(target)
    return cpu != "sse" and not set(target_for(cpu).features) <= set(target_for("native").features)


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("words", nargs="*")
    parser.add_argument("--machines", default=",".join(MACHINES))
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    targets = [t for machine in chosen.machines.split(",") for t in MACHINES[machine] if not lacking(t)]
    cases: list[tuple[str, str, Callable[[], Iterator[str]]]] = []
    for name in MODELS:
        wanted = any(w in name for w in chosen.words) if chosen.words else chosen.large or name not in LARGE
        of = targets[: (1 if name in LARGE else len(targets)) * wanted]
        cases += [(name, target, partial(checked, name, target, chosen.jobs)) for target in of]
    for name in NETS:
        if not chosen.words or any(w in f"training-{name}" for w in chosen.words):
            cases += [
                (f"training-{name}", t, partial(trained_steps, name, t)) for t in targets if not t.startswith("cpu=sse")
            ]
    rows: list[dict[str, Any]] = []
    for name, target, case in cases:
        start = time.perf_counter()
        with patch.object(parallel, "REGION", SMALL_REGION):
            found = list(case())
        seconds = time.perf_counter() - start
        rows.append({"network": name, "target": target, "seconds": seconds, "found": found})
        print(f"{name:18} {target:24} {seconds:6.1f} s  {'; '.join(found) or 'clean'}", flush=True)
    if chosen.json:
        chosen.json.write_text(json.dumps({"builds": rows}, indent=1))
    return int(any(row["found"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
