"""Kernels in the kernel language against naive C and torch, on one thread, in one run with calls taking turns.

    python benchmarks/kernels_by_hand.py [WORD…] [--rounds 30] [--cpu native] [--json] [--keep DIRECTORY]

24 kernels, 14 gradients, and other spellings of some of them (`benchmarks/hand/`). Every kernel is built as `dlc build`
does it. Beside it runs what one would write in C, `gcc -O3 -march=native -ffast-math` on plain loops, and torch, if it
is installed; a gradient there is what autograd computes from the same operands: forward and backward. Results are
compared with torch's in double precision, or else with those of C, before anything is timed. Prints the medians, how
many times as fast as C and as torch dlc is (above 1: dlc is faster), geometric means, and the time of each other
spelling in times of the first. WORD selects kernels by name. The command fails if a result differs.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from dlc_backend_c.library import aligned
from dlc_backend_c.runtime import Model

from benchmarks.hand.entry import Entry
from benchmarks.hand.forward import FORWARD
from benchmarks.hand.gradients import GRADIENTS
from benchmarks.hand.spellings import SPELLINGS
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

NEAR = 2e-4
"""Largest difference of a result, in units of its largest element."""
C_FLAGS = ("-O3", "-march=native", "-ffast-math", "-fPIC", "-std=gnu11")
Array = np.ndarray[Any, np.dtype[Any]]
torch: Any = import_module("torch") if find_spec("torch") else None  # it has no types


def build(entry: Entry, directory: Path, cpu: str) -> Model:
    """The program of a kernel or of its gradient, unless it is there already; nothing is cached."""
    if (directory / "program").exists():
        return Model.load(directory / "program")
    directory.mkdir(parents=True)
    path = directory / "k.kernel"
    path.write_text(entry.kernel)
    registry = load_registry()
    recipe = resolve(registry, default_config(), f"c{{cpu={cpu}}}")
    spec = Spec("kernel", (("grad", entry.grad),) if entry.grad else ())
    session = Session(open_cache(None, "off"), Context(lambda: op_classes(registry), directory))
    package = registry.frontend_for(Source(path)).package
    done = compile_source(Source(path), registry.frontend(spec), package, recipe, session)
    install(with_manifest(done.last.value), directory / "program")
    return Model.load(directory / "program")


@dataclass(frozen=True)
class Case:
    """A kernel that is ready to run.

    Attributes:
        entry: What it is.
        calls: What is timed, by who computes: dlc, and C and torch where there is such a spelling.
        error: Largest difference of a result, in units of its largest element.
    """

    entry: Entry
    calls: Mapping[str, Callable[[], object]]
    error: float


def operands(entry: Entry, model: Model) -> dict[str, Array]:
    """Random operands of the kernel, and of the program: normal numbers, or integers that are subscripts."""
    rng = np.random.default_rng(0)
    shapes = {name: (kind, tuple(map(int, dims.split(",")))) for name, kind, dims in parameters(entry.kernel)}
    shapes |= {a.name: ("float", a.shape) for a in model.inputs if a.name not in shapes}
    out: dict[str, Array] = {}
    for name, (kind, shape) in shapes.items():
        out[name] = room(shape, np.float32 if kind == "float" else np.int32)
        out[name][...] = rng.standard_normal(shape) if kind == "float" else rng.integers(0, entry.below, shape)
    return out


def parameters(kernel: str) -> list[tuple[str, str, str]]:
    """Name, element type and dimensions of every parameter of a kernel, in order."""
    return re.findall(r"(\w+): (\w+)\[([\d,]+)\]", kernel[: kernel.index("->")])


def room(shape: tuple[int, ...], dtype: Any) -> Array:
    """An array that is aligned as programs want it."""
    return aligned(int(np.prod(shape)) * np.dtype(dtype).itemsize).view(dtype).reshape(shape)


def prepare(entry: Entry, folder: Path, cpu: str) -> Case:
    """Build a kernel in its ways and compare their results."""
    model = build(entry, folder, cpu)
    given = operands(entry, model)
    results = {"dlc": outputs(model)}
    calls: dict[str, Callable[[], object]] = {"dlc": _bound(model, given, results["dlc"])}
    if entry.loops:
        results["C"] = outputs(model)
        calls["C"] = naive(entry, model, {**given, **results["C"]}, folder)
    for call in calls.values():
        call()
    if entry.torch and torch is not None:
        calls["torch"] = _torch(entry, given, np.float32)
        exact = _torch(entry, given, np.float64)()
        results["torch"] = {a.name: x.detach().numpy() for a, x in zip(model.outputs, exact, strict=True)}
    *_, wanted = results.values()
    return Case(entry, calls, max(difference(r, wanted) for r in results.values()))


def difference(got: Mapping[str, Array], wanted: Mapping[str, Array]) -> float:
    """The largest difference of an element, in units of the largest element of its result; infinite for NaN."""
    errors = [float(np.max(np.abs(got[n] - want)) / np.max(np.abs(want))) for n, want in wanted.items()]
    return float("inf") if np.isnan(errors).any() else max(errors)


def outputs(model: Model) -> dict[str, Array]:
    """Arrays for results, filled with NaN."""
    out = {a.name: room(a.shape, a.dtype) for a in model.outputs}
    for array in out.values():
        array[...] = np.nan
    return out


def _bound(model: Model, given: Mapping[str, Array], results: Mapping[str, Array]) -> Callable[[], object]:
    """A call of a program with its pointers ready."""
    library = model._library  # pyright: ignore[reportPrivateUsage]
    run = library.function("run")
    inputs = library.ffi.new("void *[]", [library.pointer(given[a.name]) for a in model.inputs])
    sinks = library.ffi.new("void *[]", [library.pointer(results[a.name]) for a in model.outputs])
    arena = aligned(max(1, model.arena_bytes))
    place = library.pointer(arena)
    keep = [library, arena, *given.values(), *results.values()]

    def call() -> None:
        assert keep
        code = run(inputs, sinks, place)
        assert code == 0, code

    return call


def naive(entry: Entry, model: Model, arrays: Mapping[str, Array], folder: Path) -> Callable[[], object]:
    """C by hand, as a function of operands and results."""
    arguments = (*model.inputs, *model.outputs)
    kinds = {"float32": "float", "int32": "int"}
    written = {a.name for a in model.outputs}
    parts = [
        f"{'' if a.name in written else 'const '}{kinds[a.dtype.name]} {a.name}[restrict {a.shape[0]}]"
        + "".join(f"[{d}]" for d in a.shape[1:])
        for a in arguments
    ]
    source, library = folder / "naive.c", folder / "naive.so"
    source.write_text(f"#include <math.h>\nvoid naive({', '.join(parts)}) {{\n  {entry.loops}\n}}\n")
    # Arrays of const arrays are given arrays, which C before C23 has no conversion for inside.
    if not library.exists():
        # Linked with -ffast-math, the library would make the whole process take tiny numbers for zero.
        subprocess.run(["gcc", *C_FLAGS, "-c", source, "-o", source.with_suffix(".o")], check=True)
        subprocess.run(["gcc", "-shared", source.with_suffix(".o"), "-o", library, "-lm"], check=True)
    function: Any = ctypes.CDLL(str(library)).naive
    keep = [arrays[a.name] for a in arguments]
    pointers = [ctypes.c_void_p(a.ctypes.data) for a in keep]

    def call() -> None:
        assert keep
        function(*pointers)

    return call


def _torch(entry: Entry, given: Mapping[str, Array], dtype: Any) -> Callable[[], tuple[Any, ...]]:
    """The kernel in torch, or what autograd makes of it."""
    compute = compile(f"({entry.torch})", entry.name, "eval")
    types = {"f": dtype, "i": np.int64}
    tensors = {n: torch.from_numpy(a.astype(types[a.dtype.kind])) for n, a in given.items()}
    names = [name for name, _, _ in parameters(entry.kernel)]
    seeds = [t for n, t in tensors.items() if n not in names]
    wrt = [tensors[n].requires_grad_() for n in entry.grad]
    known = {"torch": torch, "F": torch.nn.functional, **tensors}

    def call() -> tuple[Any, ...]:
        with torch.set_grad_enabled(bool(wrt)):
            found = eval(compute, known)  # noqa: S307 (text of these benchmarks)
            return tuple(torch.autograd.grad(found, wrt, seeds)) if wrt else (found,)

    return call


def timed(cases: Sequence[Case], rounds: int) -> dict[tuple[str, str], float]:
    """Median milliseconds of each call, by kernel and who computes: all that compute one thing take turns."""
    found: dict[tuple[str, str], list[float]] = {}
    for turns in together(cases):
        for r in range(rounds + 2):
            first = r % len(turns)
            for key, call in (*turns[first:], *turns[:first]):
                start = time.perf_counter()
                call()
                if r >= 2:
                    found.setdefault(key, []).append((time.perf_counter() - start) * 1e3)
    return {key: statistics.median(times) for key, times in found.items()}


def together(cases: Sequence[Case]) -> list[list[tuple[tuple[str, str], Callable[[], object]]]]:
    """The calls of each kernel and of its other spellings."""
    names = {case.entry.name for case in cases}
    groups: dict[str, list[tuple[tuple[str, str], Callable[[], object]]]] = {}
    for case in cases:
        of = case.entry.like if case.entry.like in names else case.entry.name
        groups.setdefault(of, []).extend(((case.entry.name, who), call) for who, call in case.calls.items())
    return list(groups.values())


def rows_of(cases: Sequence[Case], times: Mapping[tuple[str, str], float]) -> list[dict[str, Any]]:
    """Every kernel with its times and ratios."""
    rows: list[dict[str, Any]] = []
    for case in cases:
        name = case.entry.name
        mine = times[name, "dlc"]
        row: dict[str, Any] = {"kernel": name, "gradient": bool(case.entry.grad), "milliseconds": mine}
        for who in ("C", "torch"):
            if (name, who) in times:
                row |= {f"{who}_milliseconds": times[name, who], f"{who}_ratio": times[name, who] / mine}
        if case.entry.like and (case.entry.like, "dlc") in times:
            row |= {"like": case.entry.like, "times_of_it": mine / times[case.entry.like, "dlc"]}
        rows.append({**row, "difference": case.error})
    return rows


def means(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Geometric means of the ratios, and the least of them."""
    out: dict[str, float] = {}
    for who in ("C", "torch"):
        ratios = [float(r[f"{who}_ratio"]) for r in rows if f"{who}_ratio" in r]
        if ratios:
            out |= {f"{who}_mean": statistics.geometric_mean(ratios), f"{who}_least": min(ratios)}
    return out


def line(row: Mapping[str, Any]) -> str:
    """One kernel as text."""
    text = f"{row['kernel']:34} {row['milliseconds']:9.4f} ms"
    for who in ("C", "torch"):
        if f"{who}_ratio" in row:
            text += f"   {who} {row[f'{who}_milliseconds']:9.4f} ms {row[f'{who}_ratio']:6.2f}x"
    if "like" in row:
        text += f"   {row['times_of_it']:5.2f} times {row['like']}"
    return f"{text}{'' if row['difference'] < NEAR else '   WRONG'}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("words", nargs="*")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--cpu", default="native")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--keep", type=Path, help="directory that programs are left in, and taken from")
    options = parser.parse_args()
    entries = [*FORWARD, *GRADIENTS, *SPELLINGS]
    chosen = [e for e in entries if not options.words or any(w in e.name for w in options.words)]
    if not chosen:
        sys.exit(f"no kernel is named like that; there are {', '.join(e.name for e in entries)}")
    if torch is not None:
        torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = options.keep or Path(name)
        cases = [prepare(e, folder / e.name.replace(" ", "-").replace("/", "_"), options.cpu) for e in chosen]
        rows = rows_of(cases, timed(cases, options.rounds))
    if options.json:
        print(json.dumps({"kernels": rows, **means(rows)}, indent=1))
    else:
        for row in rows:
            print(line(row))
        for key, value in means(rows).items():
            print(f"{key.replace('_', ', ')}: {value:.2f}x")
    sys.exit(not all(r["difference"] < NEAR for r in rows))


if __name__ == "__main__":
    main()
