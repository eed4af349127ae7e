"""Random ONNX models through dlc and its targets: against the reference evaluator, onnxruntime and differences.

    python benchmarks/graph_fuzz.py [--count 20000] [--seed 0] [--jobs 2] [--sanitize] [--keep-going] [--json FILE]
    python benchmarks/graph_fuzz.py --idioms [--target s2train] [--count 8000] …

Some graphs have named dimensions, sizes that a call finds, bfloat16, float8 and integers of four bits, branches and
loops; the summary counts them. Programs for a range of sizes are compared in several calls.

With `--idioms` graphs are of 30 to 200 nodes: the groups of nodes that exporters write for layers of networks
(`tests/fuzz/idioms/`). onnxruntime without optimisation is their judge, with a tolerance that is measured: operands are
perturbed by units in the last place (`tests/fuzz/sensitivity.py`). What it does not settle, the reference decides op by
op. Gradients and steps of training are compared with the reference, and derivatives with differences in double
precision. With `--target s2train` forward models run in the simulator, with units of fp16.

Graph N of a run is drawn from the seed `seed + N`, and batches of graphs share a compiler and its flags, so a failure
is repeated by `--seed S --count 1 --tools K`, as its line says. Faults are made small and written to `--output` as
files that `tests/fuzz` replays. Without `--keep-going` the run ends behind the first batch with a fault. The exit code
is 1 when there is one.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import multiprocessing
import os
import pkgutil
import resource
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy is imported
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [
    str(ROOT),
    *(str(ROOT / "plugins" / p) for p in ("backend_c", "frontend_kernel", "frontend_onnx", "backend_s2train")),
]

from tests.fuzz.case import Case, Tools, drawn  # noqa: E402
from tests.fuzz.judge import Verdict, judged  # noqa: E402
from tests.fuzz.model import dumps  # noqa: E402
from tests.fuzz.shrink import shrunk  # noqa: E402
from tests.fuzz.tools import IDIOM_TOOLS, SANITIZED, TOOLS  # noqa: E402

BATCH, IDIOM_BATCH = 40, 5
"""Graphs that share a compiler's flags and a process."""
WARM_SEEDS = range(1 << 32, (1 << 32) + 4)
"""Of graphs that are compiled, and not counted, before the first process forks."""
SECONDS, WAITING = 600, 6000
"""Of the processor that a batch may take, and of the clock, as others may have the processor."""


Found = tuple[list[Verdict], Counter[str], Counter[str], Counter[str], float]
"""Of a task: verdicts, operators, kinds of programs and idioms with their counts, seconds of the processor."""


@dataclass(frozen=True)
class Task:
    """Graphs for one process."""

    seeds: tuple[int, ...]
    number: int
    """Of the tools, which decides compiler and flags."""
    tools: Tools
    idioms: bool = False
    """Whether the graphs are of idioms."""
    oracle: bool = True
    """Whether onnxruntime is run."""

    def halves(self) -> tuple[Task, Task]:
        """Two smaller tasks."""
        middle = len(self.seeds) // 2
        return replace(self, seeds=self.seeds[:middle]), replace(self, seeds=self.seeds[middle:])

    def case(self, seed: int) -> Case:
        """The graph of a seed."""
        return drawn(seed, self.tools, idioms=self.idioms)


@dataclass
class Totals:
    """What became of all graphs so far."""

    what: Counter[str] = field(default_factory=Counter[str])
    by_tools: Counter[str] = field(default_factory=Counter[str])
    kinds: Counter[str] = field(default_factory=Counter[str])
    operators: Counter[str] = field(default_factory=Counter[str])
    refusals: Counter[str] = field(default_factory=Counter[str])
    oracle: Counter[str] = field(default_factory=Counter[str])
    explained: Counter[str] = field(default_factory=Counter[str])
    absent: Counter[str] = field(default_factory=Counter[str])
    judges: Counter[str] = field(default_factory=Counter[str])
    idioms: Counter[str] = field(default_factory=Counter[str])
    compared: int = 0
    undecided: int = 0
    seconds: float = 0.0
    """Of the processor."""
    faults: dict[str, list[tuple[Verdict, Task]]] = field(default_factory=dict[str, list[tuple[Verdict, Task]]])

    def add(self, task: Task, found: Found) -> None:
        """Count a task in."""
        verdicts, operators, kinds, idioms, seconds = found
        self.seconds += seconds
        self.by_tools[str(task.tools)] += len(verdicts)
        self.operators += operators
        self.kinds += kinds
        self.idioms += idioms
        for v in verdicts:
            self.what[v.what] += 1
            self.compared, self.undecided = self.compared + v.compared, self.undecided + v.undecided
            if v.what == "same":
                self.judges[v.judge] += 1
            if v.what == "same" and v.kind:
                self.explained[v.kind] += 1
            if v.what == "refused":
                self.refusals[v.kind] += 1
            elif v.what == "fault":
                self.faults.setdefault(v.kind, []).append((v, task))
            if v.oracle is not None:
                self._heard(v)

    def _heard(self, v: Verdict) -> None:
        assert v.oracle is not None
        if not v.oracle.ran:
            self.absent[v.oracle.reason] += 1
        self.oracle[
            "did not run it" if not v.oracle.ran else "agrees" if not v.oracle.reason else f"rule: {v.oracle.reason}"
        ] += 1

    def to_json(self) -> dict[str, Any]:
        """For a file."""
        faults = {
            k: [{"seed": v.seed, "tools": t.number, "detail": v.detail} for v, t in f] for k, f in self.faults.items()
        }
        return {
            "graphs": self.what.total(),
            "verdicts": self.what,
            "compiled": self.by_tools,
            "kinds": self.kinds,
            "refusals": self.refusals,
            "explained": self.explained,
            "judges": self.judges,
            "idioms": self.idioms,
            "onnxruntime": self.oracle,
            "onnxruntime-absent": self.absent,
            "elements": {"compared": self.compared, "undecided": self.undecided},
            "processor-seconds": round(self.seconds, 1),
            "operators": self.operators,
            "faults": faults,
        }


def warm(task: Task) -> None:
    """Do once what every fork would do again: import modules, and fill tables of what does not depend on the graph.

    A batch of idioms takes 15 % less. Forks have little garbage and end soon: they do not collect it.
    """
    for name in ("dlc.kernel", "dlc.passes", "dlc.graph", "dlc_backend_c", "dlc_frontend_onnx", "tests.fuzz"):
        for module in pkgutil.walk_packages(importlib.import_module(name).__path__, f"{name}."):
            if ".test_" not in module.name and not module.name.endswith("__main__"):
                importlib.import_module(module.name)
    judged([task.case(seed) for seed in WARM_SEEDS], task.tools, oracle=False)
    gc.collect()
    gc.freeze()
    gc.disable()


def work(task: Task, pipe: Connection) -> None:
    """Judge a task's graphs, in a process of their own."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 5))
    cases = [task.case(seed) for seed in task.seeds]
    operators = Counter(n.op for case in cases for n in case.model.nodes)
    verdicts = judged(cases, task.tools, oracle=task.oracle)
    used = os.times()
    kinds, idioms = (Counter(n for c in cases for n in names(c)) for names in (_traits, _idioms))
    pipe.send((verdicts, operators, kinds, idioms, sum(used[:4])))
    pipe.close()


def _traits(case: Case) -> tuple[str, ...]:
    return case.traits


def _idioms(case: Case) -> tuple[str, ...]:
    return case.idioms


@dataclass
class Running:
    """A process at work."""

    task: Task
    process: Any
    pipe: Connection
    end: float


def run(tasks: list[Task], jobs: int, totals: Totals) -> Iterator[int]:
    """Run tasks, a few at a time; the number of graphs done, behind each. A task whose process dies is halved."""
    fork = multiprocessing.get_context("fork")
    running: list[Running] = []
    tasks = tasks[::-1]
    while tasks or running:
        while tasks and len(running) < jobs:
            task = tasks.pop()
            mine, theirs = fork.Pipe(duplex=False)
            process = fork.Process(target=work, args=(task, theirs), daemon=True)
            process.start()
            theirs.close()
            running.append(Running(task, process, mine, time.monotonic() + WAITING))
        ready = wait([r.pipe for r in running], timeout=1)
        for r in [r for r in running if r.pipe in ready or time.monotonic() > r.end]:
            running.remove(r)
            yield _finished(r, tasks, totals)


def _finished(r: Running, tasks: list[Task], totals: Totals) -> int:
    task = r.task
    try:
        found: Found | None = r.pipe.recv() if r.pipe.poll() else None
    except EOFError:
        found = None
    if found is None and time.monotonic() > r.end:
        r.process.kill()
    r.process.join()
    r.pipe.close()
    if found is None and len(task.seeds) > 1:
        tasks += task.halves()
        return 0
    if found is None and task.oracle:  # onnxruntime may be what ended it
        tasks.append(replace(task, oracle=False))
        return 0
    if found is None:
        found = _dead(task, r.process.exitcode)
    totals.add(task, found)
    for v in found[0]:
        if v.what == "fault":
            print(f"\nFAULT {_again(v, task)}: {v.kind}: {v.detail[-200:]}", flush=True)
    return len(task.seeds)


def _again(v: Verdict, task: Task) -> str:
    """Flags that draw a graph again."""
    more = [*(["--idioms"] if task.idioms else []), *([f"--target {task.tools}"] if task.tools.target != "c" else [])]
    return " ".join((*more, f"--seed {v.seed} --count 1 --tools {task.number}"))


def _dead(task: Task, code: int) -> Found:
    """Of a task whose process ended by itself."""
    kind = f"the process ends with {code}"
    return [Verdict(task.seeds[0], "fault", kind, kind)], Counter(), Counter(), Counter(), 0.0


def tasks_of(
    first: int, count: int, sanitize: bool, tools: int | None, *, idioms: bool = False, target: str = "c"
) -> list[Task]:
    """The tasks of a run. Which tools a graph gets depends on its seed only."""
    table = SANITIZED if sanitize else IDIOM_TOOLS if idioms else TOOLS
    table, batch = (Tools(target=target),) if target != "c" else table, IDIOM_BATCH if idioms else BATCH
    starts = range(first, first + count, batch)
    numbers = [(k if not idioms else s // batch) % len(table) for k, s in enumerate(starts)]
    numbers = [n if tools is None else tools for n in numbers]
    pairs = zip(starts, numbers, strict=True)
    return [Task(tuple(range(s, min(s + batch, first + count))), n, table[n], idioms) for s, n in pairs]


def main() -> int:
    """Run it all, with a line of progress and a summary; whether there were faults decides the exit code."""
    chosen = _arguments()
    totals, start, done = Totals(), time.monotonic(), 0
    how: dict[str, Any] = {"idioms": chosen.idioms, "target": chosen.target}
    tasks = tasks_of(chosen.seed, chosen.count, chosen.sanitize, chosen.tools, **how)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if len(tasks) > 2:
        warm(tasks[0])
    with suppress(KeyboardInterrupt):  # what ran until then is told
        for more in run(tasks, chosen.jobs, totals):
            done += more
            _progress(done, chosen.count, totals, time.monotonic() - start)
            _written(chosen.json, totals, time.monotonic() - start)
            if totals.faults and not chosen.keep_going:
                break
    print("\n")
    seconds = time.monotonic() - start
    summary(totals, seconds)
    _written(chosen.json, totals, seconds)
    if totals.faults:
        reduce(totals, Path(chosen.output), chosen.shrink_seconds)
    return 1 if totals.faults else 0


def _written(file: str, totals: Totals, seconds: float) -> None:
    """The summary so far, if it has a file: a run of hours may be ended by others."""
    if file:
        Path(file).write_text(json.dumps({**totals.to_json(), "seconds": round(seconds, 1)}, indent=2) + "\n")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    for option, default in (("count", 20_000), ("seed", 0), ("jobs", 2), ("shrink-seconds", 90)):
        parser.add_argument(f"--{option}", type=int, default=default)
    parser.add_argument("--tools", type=int, help="number of the compiler and its flags for all graphs")
    parser.add_argument("--sanitize", action="store_true", help="with the address and undefined-behaviour sanitizers")
    parser.add_argument("--idioms", action="store_true", help="layers as exporters write them, 30 to 200 nodes")
    parser.add_argument("--target", default="c", help="c, or s2train with options: forward models, simulated")
    parser.add_argument("--keep-going", action="store_true", help="go on behind a fault")
    parser.add_argument("--json", default="", help="file for the summary")
    parser.add_argument("--output", default="graph-faults", help="directory for faults, made small")
    return parser.parse_args()


def _progress(done: int, count: int, totals: Totals, seconds: float) -> None:
    rate = done / max(seconds, 1e-9)
    left = (count - done) / rate if rate else 0.0
    faults = sum(map(len, totals.faults.values()))
    end = "\r" if sys.stdout.isatty() else "\n"
    print(f"{done}/{count} graphs, {faults} faults, {60 * rate:.0f} a minute, {left:.0f} s left ", end=end, flush=True)


def summary(totals: Totals, seconds: float) -> None:
    """What ran, how it was compiled, and what came of it."""
    rate = 60 * totals.what.total() / max(totals.seconds, 1e-9)
    print(f"{totals.what.total()} graphs in {seconds:.0f} s, {rate:.0f} a minute for each processor")
    for title, counts in (
        ("verdicts", totals.what),
        ("compiled by", totals.by_tools),
        ("programs", totals.kinds),
        ("refused by dlc with a message", totals.refusals),
        ("differences from the reference that a rule explains", totals.explained),
        ("judged by", totals.judges),
        ("onnxruntime", totals.oracle),
    ):
        print(f"\n{title}")
        for name, count in counts.most_common():
            print(f"  {count:7,}  {name}")
    print(f"\n{totals.operators.total():,} nodes of {len(totals.operators)} operators")
    print(f"{totals.compared:,} elements compared, {totals.undecided:,} that rounding may change at will")
    for kind, found in totals.faults.items():
        print(f"\nFAULT {len(found)} × {kind}")
        for verdict, task in found[:3]:
            print(f"  {_again(verdict, task)}: {verdict.detail[:300]}")


def reduce(totals: Totals, folder: Path, seconds: float) -> None:
    """Write one small case for every kind of fault."""
    folder.mkdir(parents=True, exist_ok=True)
    for kind, found in totals.faults.items():
        verdict, task = min(found, key=lambda f: len(f[1].case(f[0].seed).model.nodes))
        case = shrunk(task.case(verdict.seed), kind, seconds)
        name = "-".join("".join(c if c.isalnum() else " " for c in kind).split())[:60]
        path = folder / f"{name}-{verdict.seed}.json"
        path.write_text(dumps({"fault": kind, "cause": "", **case.to_json()}))
        print(f"{path}: {len(case.model.nodes)} nodes: {' '.join(n.op for n in case.model.nodes)}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
