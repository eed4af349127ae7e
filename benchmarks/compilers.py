"""Kernels compiled by every C compiler there is, at sizes around the lanes of vectors, against the reference.

    python -m benchmarks.compilers [WORD…] [--compiler COMMAND] [--root DIR] [--cpu native,generic] [--level=-O3,-O2]
        [--sizes 7,8,9,32] [--each 32] [--seconds N] [--jobs 2] [--json FILE] [--results FILE]

Compilers are those of `--compiler`, which may be commands such as `chroot DIR gcc-14` or `docker run -i gcc:9 gcc`, or
else all gcc, clang and tcc on PATH; `--root` adds those in a root directory of another distribution. Kernels are those
of all op samples in f32, f16 and bf16 and in integers, of scalar functions, and of the tests' models, for each size of
a dimension and for a dimension that is open; WORDs choose among their titles. `--each` kernels are a translation unit.
Sizes are by default those that `dlc verify` tries.

Results are kept in a file by the text of the unit and the compiler: what ran before is not run again. Units come in a
mixed order, so that a run that `--seconds` ends has seen some of everything. What is wrong without optimisation too, by
the first compiler, is counted apart: there the compiler is not to blame. Exit code 1 if something else is wrong.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final

from dlc_backend_c.backend import C
from dlc_backend_c.target import target_for

from benchmarks.sweep.compilers import Compiler, compilers_of
from benchmarks.sweep.corpus import cases
from benchmarks.sweep.unit import Found, Unit
from dlc.spec import Spec

PLAIN: Final = "-O0"
"""The level whose results are those of the text."""


@dataclass
class Results:
    """What is known, in a file that grows by a line for each unit and compiler."""

    path: Path

    def __post_init__(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        self.known = {r.key: r for r in (Found(**json.loads(line)) for line in lines)}

    def of(self, unit: Unit, compiler: Compiler, level: str) -> Found:
        """Of a unit by a compiler; it is tried if that is not known."""
        key = unit.key(compiler, level)
        if key not in self.known:
            self.known[key] = result = unit.tried(compiler, level)
            with self.path.open("a") as file:
                file.write(json.dumps(result.to_json()) + "\n")
        return self.known[key]


def units(cpu: str, sizes: Sequence[int], words: Sequence[str], each: int) -> Iterator[Unit]:
    """The units for a machine."""
    target = target_for(cpu)
    wanted = sizes or C.from_spec(Spec.parse(f"c{{cpu={cpu}}}")).verified_sizes()
    found = cases(cpu, wanted, words)
    while some := tuple(islice(found, each)):
        yield Unit(cpu, target, some)


def table(rows: Sequence[Found], plain: set[tuple[str, str]]) -> list[dict[str, Any]]:
    """Sums by machine, level and compiler; `plain`: (machine, what is wrong without optimisation)."""
    sums: dict[tuple[str, str, str], dict[str, Any]] = {}
    for r in rows:
        empty = {"kernels": 0, "runs": 0, "wrong": 0, "also_plain": 0, "not_compiled": 0, "seconds": 0.0}
        row = sums.setdefault((r.cpu, r.level, r.compiler), empty)
        also = sum((r.cpu, where(w)) in plain for w in r.wrong)
        row["kernels"] += r.kernels
        row["runs"] += r.runs
        row["wrong"] += len(r.wrong) - also
        row["also_plain"] += also
        row["not_compiled"] += r.kernels * bool(r.refused)
        row["seconds"] += r.seconds
    return [{"cpu": c, "level": v, "compiler": n, **row} for (c, v, n), row in sorted(sums.items())]


def where(wrong: str) -> str:
    """Kernel and size of what is wrong."""
    return wrong.partition(": ")[0]


def shown(rows: Sequence[dict[str, Any]]) -> str:
    """The table in Markdown."""
    lines = ["| machine | level | compiler | kernels | sizes | wrong | wrong at -O0 too | not compiled | seconds |"]
    lines.append("|---" * 9 + "|")
    for r in rows:
        cells = (r["cpu"], r["level"], r["compiler"], f"{r['kernels']:,}", f"{r['runs']:,}", r["wrong"])
        cells = (*cells, r["also_plain"], r["not_compiled"], f"{r['seconds']:.0f}")
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def swept(options: argparse.Namespace, compilers: Sequence[Compiler], results: Results) -> tuple[list[Found], bool]:
    """(All results of this run, whether it came to its end)."""
    rows: list[Found] = []
    until = time.monotonic() + options.seconds
    streams = [units(cpu, options.sizes, options.words, options.each) for cpu in options.cpu]
    with ThreadPoolExecutor(options.jobs) as pool:
        while streams:
            stream = streams.pop(0)
            unit = next(stream, None)
            if unit is None:
                continue
            streams.append(stream)
            with_it = [c for c in compilers if c.has_vectors or not unit.target.vector_bytes]
            wanted = [(compilers[0], PLAIN), *((c, level) for level in options.level for c in with_it)]
            tasks = [pool.submit(results.of, unit, compiler, level) for compiler, level in wanted]
            rows += [task.result() for task in tasks]
            print(f"\r{len(rows)} units, {sum(len(r.wrong) for r in rows)} wrong", end="", file=sys.stderr, flush=True)
            if time.monotonic() > until:
                return rows, False
    return rows, True


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("words", nargs="*")
    parser.add_argument("--compiler", action="append", default=[])
    parser.add_argument("--root", action="append", default=[])
    parser.add_argument("--cpu", type=lambda s: s.split(","), default=["native", "generic"])
    parser.add_argument("--level", type=lambda s: s.split(","), default=["-O3", "-O2"])
    parser.add_argument("--sizes", type=lambda s: [int(n) for n in s.split(",")], default=[])
    parser.add_argument("--each", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--results", type=Path, default=Path("build/compilers.jsonl"))
    options = parser.parse_args()
    compilers = compilers_of(options.compiler, options.root)
    if not compilers:
        raise SystemExit("no C compiler is here")
    rows, complete = swept(options, compilers, Results(options.results))
    plain = {(r.cpu, where(w)) for r in rows if r.level == PLAIN for w in r.wrong}
    print(f"\n{shown(totals := table(rows, plain))}")
    print("complete" if complete else f"ended after {options.seconds:.0f} s: not all kernels were tried")
    told = [(r, w) for r in rows for w in r.wrong if r.level == PLAIN or (r.cpu, where(w)) not in plain]
    for r, w in told:
        print(f"{r.compiler} {r.level} {r.cpu}: {w}")
    for reason in sorted(
        {f"{r.compiler} {r.cpu}: not compiled: {r.refused.rpartition(':')[2]}" for r in rows if r.refused}
    ):
        print(reason)
    if options.json:
        wrong = [{"compiler": r.compiler, "level": r.level, "cpu": r.cpu, "what": w} for r, w in told]
        options.json.write_text(json.dumps({"complete": complete, "rows": totals, "wrong": wrong}, indent=1))
    return int(any(r["wrong"] for r in totals))


if __name__ == "__main__":
    sys.exit(main())
