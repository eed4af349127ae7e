"""Mutated model files: each gives a diagnostic or a build, never a traceback, a hang or a fault.

    python benchmarks/mutate_models.py [--count 1000] [--seed 0] [--first 0] [--compile 0.02] [--keep DIR]
                                       [--models DIR]

Every case takes one of ONNX's own test models (1,900 of all operators, and the light networks), changes fields of the
protobuf or bytes of the file (benchmarks/mutations.py), and builds C sources from it in a worker process, which may
take 10 s and 2 GB for a case. A share of the models that build is compiled and run on random inputs too. Case N of a
seed is always the same. What fails is listed by class, the exception and the place in dlc that raised it, with the
numbers of the cases; `--keep` writes their models to DIR. The command fails if there is any. `--models` takes the
models of a folder instead of ONNX's, those that benchmarks/model_zoo.py made for example.
"""

from __future__ import annotations

import argparse
import os
import resource
import selectors
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
import zipfile
from collections import Counter, defaultdict
from pathlib import Path
from random import Random
from typing import IO, Any

import dlc
from benchmarks.mutations import mutated, seeds

SECONDS, MEMORY = 10, 2 << 30
"""What a case may take."""
DIAGNOSED = (dlc.ExitCode.MODEL, dlc.ExitCode.LIMIT, dlc.ExitCode.USAGE)
"""What is wrong with a model; a compiler that refuses the generated C, or a bug, is none of these."""
REACH = 256
"""Cases of a worker; then another takes over, so that nothing adds up."""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--compile", type=float, default=0.02)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--models", type=Path)
    parser.add_argument("--worker", nargs=2)
    options = parser.parse_args()
    if options.worker:
        first, corpus = int(options.worker[0]), Path(options.worker[1])
        work(range(first, options.first + options.count), corpus, options.seed, options.compile)
        return
    totals: Counter[str] = Counter()
    classes: dict[str, list[int]] = defaultdict(list)
    start, last = time.perf_counter(), options.first + options.count
    with tempfile.TemporaryDirectory() as directory:
        corpus = Path(directory) / "seeds.zip"
        with zipfile.ZipFile(corpus, "w") as archive:
            for name, data in seeds(options.models):
                archive.writestr(name, data)
        case = options.first
        while case < last:
            case = supervise(case, last, corpus, options, totals, classes)
        if options.keep:
            keep(classes, corpus, options)
    seconds = time.perf_counter() - start
    found = ", ".join(f"{count} {what}" for what, count in totals.most_common())
    print(f"{sum(totals.values())} cases in {seconds:.0f} s: {found}")
    for what, cases in sorted(classes.items(), key=lambda pair: -len(pair[1])):
        print(f"{len(cases):5}  {what}  (cases {', '.join(map(str, cases[:5]))})")
    sys.exit(bool(classes))


def supervise(
    first: int, last: int, corpus: Path, options: Any, totals: Counter[str], classes: dict[str, list[int]]
) -> int:
    """Run a worker from a case on; returns the case with which the next goes on."""
    end = min(first + REACH, last)
    arguments = ["--seed", str(options.seed), "--first", str(first), "--count", str(end - first)]
    command = [
        sys.executable,
        __file__,
        *arguments,
        "--compile",
        str(options.compile),
        "--worker",
        str(first),
        str(corpus),
    ]
    worker = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert worker.stdout is not None
    case = first
    try:
        for line in lines(worker.stdout, SECONDS + 5, 60):
            kind, _, detail = line.partition(" ")
            totals[kind] += 1
            if kind == "failed":
                classes[detail].append(case)
            case += 1
        if case < end:  # it died, or took too long
            status = worker.poll()
            what = f"longer than {SECONDS} s" if status is None else f"the process ended with {status}"
            totals["failed"] += 1
            classes[what].append(case)
            case += 1
    finally:
        worker.kill()
        worker.wait()
    return case


def lines(stream: IO[bytes], seconds: float, start: float) -> Any:
    """Lines until the stream ends, or none comes for so many seconds; the first may take longer."""
    with selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        rest, wait = b"", start
        while selector.select(wait):
            data = os.read(stream.fileno(), 1 << 16)
            if not data:
                return
            *whole, rest = (rest + data).split(b"\n")
            for line in whole:
                yield line.decode()
            wait = seconds if whole else wait


def model_of(case: int, names: list[str], archive: zipfile.ZipFile, seed: int) -> tuple[bytes, Random]:
    """The mutated model of a case, and the generator that made it."""
    rng = Random(f"{seed} {case}")
    return mutated(archive.read(rng.choice(names)), rng), rng


def keep(classes: dict[str, list[int]], corpus: Path, options: Any) -> None:
    """Write the models of up to five cases of each class."""
    options.keep.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(corpus) as archive:
        names = archive.namelist()
        for cases in classes.values():
            for case in cases[:5]:
                (options.keep / f"{options.seed}-{case}.onnx").write_bytes(
                    model_of(case, names, archive, options.seed)[0]
                )


def work(cases: range, corpus: Path, seed: int, share: float) -> None:
    """Build these cases, one line for each: refused, built, ran, or failed and why."""
    from dlc.driver.program import Compiler

    warnings.simplefilter("ignore")
    with zipfile.ZipFile(corpus) as archive:
        names = archive.namelist()
        compiler = Compiler.open(None, "off", jobs=1)
        attempt(compiler, archive.read(names[0]), True)  # everything is imported before memory is counted
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
        for case in cases:
            data, rng = model_of(case, names, archive, seed)
            start = time.perf_counter()
            result = attempt(compiler, data, rng.random() < share)
            slow = time.perf_counter() - start > SECONDS
            print(f"failed longer than {SECONDS} s: {result}" if slow else result, flush=True)


def attempt(compiler: Any, data: bytes, whole: bool) -> str:
    """What became of a model."""
    from dlc.runtime.feeds import random_feeds
    from dlc.runtime.sizes import at_sizes, with_likely

    source = dlc.Source(data=data, label="model.onnx")
    try:
        if not whole:
            compiler.artifact(source, "c{lib=none}")
            return "built"
        program = compiler.program(source, "c")
        at = at_sizes(program.signature, with_likely(program.signature.inputs, {}))
        program(**random_feeds([p for p in at.inputs if p.type.symbol is None], 0))
        return "ran"
    except dlc.DlcError as problem:
        good = problem.exit_code in DIAGNOSED and all(d.message for d in problem.diagnostics)
        return "refused" if good else f"failed {place(problem)}"
    except MemoryError as problem:
        return f"failed more than {MEMORY >> 30} GB: {place(problem)}"
    except Exception as problem:  # noqa: BLE001 - any other exception is what is looked for
        return f"failed {place(problem)}"


def place(problem: BaseException) -> str:
    """The exception, and the innermost line of dlc that it came through."""
    frames = [f for f in traceback.extract_tb(problem.__traceback__) if "dlc" in f.filename]
    where = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "?"
    return f"{type(problem).__name__} at {where}: {str(problem).splitlines()[0][:90] if str(problem) else ''}"


if __name__ == "__main__":
    main()
