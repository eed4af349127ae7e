"""Programs for small processors against those of emx-onnx-cgen: instructions, flash, RAM, and time of portable code.

    python benchmarks/small.py [WORD…] [--int8] [--peer PROGRAM] [--machine cortex-m4] [--rounds 15] [--json]

Each model is compiled by both to C, which arm-none-eabi-gcc builds for a Cortex-M4 with the same flags, at -O2 and -Os;
qemu-system-arm counts the instructions of one run. Flash and RAM are those of the image without what measures: code,
constants, variables, and the stack as far as it was used. Results are compared with onnxruntime. Portable code for this
computer is compiled by gcc -O3 and timed, calls taking turns. Below 1, dlc takes less. WORD selects models by name.
With --int8 the models are quantised. Their results may be a few steps of the output's quantisation away from those of
onnxruntime, whose optimiser has a softmax of its own for bytes; one that is not quantised there has no such steps.

Needs, of Debian: gcc-arm-none-eabi libnewlib-arm-none-eabi qemu-system-arm. Without the peer, dlc is measured alone.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import math
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.bare_metal import CC, Taken, inputs, taken
from benchmarks.small_models import NAMES, write
from dlc.verify.reference import exact_session
from tests.frontend_onnx.quantising import read

LEVELS = ("-O2", "-Os")
HOST = ("gcc", "-O3", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math", "-w", "-shared", "-fPIC")
AGREE = {"float": 1e-4, "int8": 0.05}
"""Largest difference of results, relative to the largest of them."""


@dataclass(frozen=True)
class Program:
    """C of a model: its files, and what defines `int run(const float *x, float *y)`."""

    sources: tuple[Path, ...]
    adapter: str


def own(path: Path, folder: Path, target: str) -> tuple[Program, dict[str, Any]]:
    """The program of dlc, and its manifest."""
    command = [sys.executable, "-m", "dlc", "build", str(path), "-q", "-o", str(folder), "-t", target]
    subprocess.run([*command, "--cache", "off"], check=True, stdout=subprocess.DEVNULL)
    adapter = '#include "own.h"\nint run(const float *x, float *y) { return own_call(x, y); }\n'
    return Program(tuple(sorted(folder.glob("*.c"))), adapter), json.loads((folder / "manifest.json").read_text())


def theirs(path: Path, folder: Path, tool: str, sizes: tuple[Sequence[int], Sequence[int]]) -> Program:
    """The program of emx-onnx-cgen, with everything in one file and nothing on the heap."""
    folder.mkdir()
    file = folder / "peer.c"
    command = [tool, "compile", "--large-temp-threshold", "0", "--large-weight-threshold", "0", str(path), str(file)]
    subprocess.run(command, check=True, capture_output=True, text=True)
    x, y = ("".join(f"[{d}]" for d in dims[1:]) for dims in sizes)
    adapter = f"void model(const float (*x){x}, float (*y){y});\n"
    adapter += "int run(const float *x, float *y) { model((const void *)x, (void *)y); return 0; }\n"
    return Program((file,), adapter)


def expected(path: Path, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """What onnxruntime computes."""
    session = exact_session(import_module("onnxruntime"), path)
    return np.ravel(session.run(None, {session.get_inputs()[0].name: x})[0])


def times(
    title: str, programs: Sequence[Program], folder: Path, x: np.ndarray[Any, Any], count: int, rounds: int
) -> list[float]:
    """Medians of microseconds of portable code on this computer."""
    calls: list[Any] = []
    for k, program in enumerate(programs):
        main = folder / f"{title}-{k}.c"
        main.write_text(program.adapter)
        library = folder / f"{title}-{k}.so"  # a name that was loaded gives the same library again
        places = [f"-I{s.parent}" for s in program.sources]
        subprocess.run([*HOST, *places, str(main), *map(str, program.sources), "-lm", "-o", str(library)], check=True)
        calls.append(ctypes.CDLL(str(library)).run)
    y = np.empty(count, np.float32)
    given = (x.ctypes.data_as(ctypes.c_void_p), y.ctypes.data_as(ctypes.c_void_p))
    found: list[list[float]] = [[] for _ in calls]
    for _ in range(rounds):
        for k, call in enumerate(calls):
            start = time.perf_counter()
            for _ in range(3):
                call(*given)
            found[k].append((time.perf_counter() - start) / 3 * 1e6)
    return [statistics.median(f) for f in found]


def measure(name: str, folder: Path, tool: str | None, machine: str, rounds: int, agree: float) -> dict[str, Any]:
    """One model."""
    path = folder / f"{name}.onnx"
    write(name, path)
    model = read(path)
    ports = (model.graph.input[0], model.graph.output[0])
    dims = [[d.dim_value for d in p.type.tensor_type.shape.dim] for p in ports]
    sizes = (math.prod(dims[0]), math.prod(dims[1]))
    x = inputs(sizes[0])
    want = expected(path, x.reshape(dims[0]))
    options = "lib=none weights=text arena=static prefix=own"
    mine, manifest = own(path, folder / f"{name}-own", f"c{{cpu={machine} {options}}}")
    portable, _ = own(path, folder / f"{name}-portable", f"c{{cpu=generic {options}}}")
    peers: list[Program] = []
    found: dict[str, Any] = {"model": name, "stack_bound": manifest["memory"]["stack_bytes"]}
    try:
        peers += [theirs(path, folder / f"{name}-peer", tool, (dims[0], dims[1]))] if tool else []
    except subprocess.CalledProcessError as problem:
        found["peer_failed"] = (problem.stderr or "").strip()[-200:]
    for level in LEVELS:
        for title, program in zip(("dlc", "peer"), [mine, *peers], strict=False):
            t = taken(folder / f"{name}-{title}{level}", program.sources, program.adapter, sizes, level)
            error = float(np.max(np.abs(t.result - want)) / np.max(np.abs(want)))
            if not error <= agree and title == "dlc":
                sys.exit(f"{name}: {title} {level} differs by {error:.2g} from onnxruntime")
            if title == "dlc" and t.stack > found["stack_bound"]:
                sys.exit(
                    f"{name} {level}: {t.stack} bytes of stack, and its manifest says {found['stack_bound']} at most"
                )
            found[f"{title}{level}"] = _numbers(t) | {"error": error}
    found["microseconds"] = times(name, [portable, *peers], folder, x, sizes[1], rounds)
    return found


def _numbers(t: Taken) -> dict[str, int]:
    return {"instructions": t.instructions, "flash": t.flash, "ram": t.ram, "stack": t.stack}


def ratios(found: dict[str, Any]) -> dict[str, float]:
    """dlc / peer."""
    if "peer-O2" not in found:
        return {}
    mine, other = found["dlc-O2"], found["peer-O2"]
    out = {"instructions -O2": mine["instructions"] / other["instructions"]}
    out["instructions -Os"] = found["dlc-Os"]["instructions"] / found["peer-Os"]["instructions"]
    out |= {
        "flash -O2": mine["flash"] / other["flash"],
        "flash -Os": found["dlc-Os"]["flash"] / found["peer-Os"]["flash"],
    }
    out["RAM"] = mine["ram"] / other["ram"]
    return out | {"time x86": found["microseconds"][0] / found["microseconds"][1]}


def _main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("words", nargs="*", metavar="WORD")
    parser.add_argument("--int8", action="store_true", help="quantised models instead of those in float")
    parser.add_argument("--peer", default=shutil.which("emx-onnx-cgen"), help="the program emx-onnx-cgen")
    parser.add_argument("--machine", default="cortex-m4", help="what dlc compiles for")
    parser.add_argument("--rounds", type=int, default=15, help="timings of portable code")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    absent = [t for t in (CC, "qemu-system-arm") if shutil.which(t) is None]
    if absent:
        sys.exit(
            f"{', '.join(absent)}: not here; apt install gcc-arm-none-eabi libnewlib-arm-none-eabi qemu-system-arm"
        )
    kind = "int8" if given.int8 else "float"
    names = [n for n in NAMES[kind] if not given.words or any(re.search(w, n) for w in given.words)]
    rows: list[dict[str, Any]] = []
    if not given.json:
        print(f"{'model':14}{'million instructions':>22}{'flash':>9}{'RAM':>9}{'stack':>7}{'x86 us':>9}   dlc / peer")
    with tempfile.TemporaryDirectory() as place:
        for name in names:
            found = measure(name, Path(place), given.peer, given.machine, given.rounds, AGREE[kind])
            found["ratios"] = ratios(found)
            rows.append(found)
            if not given.json:
                mine = found["dlc-O2"]
                shown = "  ".join(f"{k} {v:.2f}" for k, v in found["ratios"].items())
                numbers = f"{mine['instructions'] / 1e6:22.2f}{mine['flash']:9,}{mine['ram']:9,}{mine['stack']:7,}"
                print(f"{name:14}{numbers}{found['microseconds'][0]:9.0f}   {shown}", flush=True)
    compared = [r["ratios"] for r in rows if r["ratios"]]
    means = {k: statistics.geometric_mean(r[k] for r in compared) for k in (compared[0] if compared else ())}
    if given.json:
        print(json.dumps({"models": rows, "geometric_means": means}, indent=2))
    elif means:
        print(f"{'geometric mean':79}" + "  ".join(f"{k} {v:.2f}" for k, v in means.items()))


if __name__ == "__main__":
    _main()
