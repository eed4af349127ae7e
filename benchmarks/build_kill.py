"""Kill `dlc build` at random moments while four of them share one cache: no wrong file, no crash afterwards.

    python benchmarks/build_kill.py --rounds 200 --processes 4

Each round builds small models with processes that share a cache, some of them an output directory, and kills most with
SIGKILL after a random time. Whatever a process finished must be what a build without any cache gives; an output
directory must be absent, whole, or without its manifest; the cache must be sound. In the end `dlc cache verify` passes,
every model builds, and nothing is left over. Exit status 0 means that all of that was so.

Most builds are forks of a process that has everything imported, because an interpreter's start would outlast the work;
every tenth round starts real ones.
"""

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "plugins" / "backend_c"))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "plugins" / "frontend_onnx"))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from dlc.cache import Cache, LocalStore
from dlc.cli.frame import run
from dlc.plugins.discovery import load_registry
from tests.session.building import ROOT, SMALL, Layer, contents, conv_net, save

TARGETS = ("c{lib=none}", "c{flags=-O0}", "c{flags=-O0 lib=static weights=text}")
KNOWN = {".dlc-cache", "CACHEDIR.TAG", "index-0", "objects", "tmp", "corrupt", "running", "used"}
REAL_EVERY = 10


@dataclass(frozen=True)
class Task:
    """A build whose result is known."""

    model: Path
    target: str

    @property
    def name(self) -> str:
        return f"{self.model.parent.name}-{TARGETS.index(self.target)}"

    def arguments(self, output: Path, *more: str) -> list[str]:
        return ["build", str(self.model), "-t", self.target, "-o", str(output), "-q", *more]


@dataclass
class Field:
    """Where it all happens."""

    place: Path
    choose: random.Random
    models: int = 2
    real: bool = False
    expected: dict[str, dict[str, bytes]] = field(default_factory=dict[str, dict[str, bytes]])
    finished: int = 0
    killed: int = 0
    longest: float = 1.0

    @property
    def cache(self) -> Path:
        return self.place / "cache"

    def tasks(self) -> list[Task]:
        return [Task(self.place / f"m{k}" / "net.onnx", target) for k in range(self.models) for target in TARGETS]

    def start(self, task: Task, output: Path, *flags: str) -> int:
        """The id of a new process."""
        arguments = task.arguments(output, *(flags or ("--cache-dir", str(self.cache))))
        log = os.open(self.place / "log.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        if self.real:
            process = subprocess.Popen([sys.executable, "-m", "dlc", *arguments], stdout=log, stderr=log, cwd=ROOT)
            pid = process.pid
            process.returncode = 0  # it is waited for below
        elif (pid := os.fork()) == 0:
            status = 70
            try:
                os.dup2(log, 1)
                os.dup2(log, 2)
                status = run(arguments)
            finally:
                os._exit(status)
        os.close(log)
        return pid


def finish(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def prepare(here: Field, processes: int) -> None:
    """Models, and what they give without a cache."""
    for table in load_registry().tables.values():
        for entry in table.values():
            entry.load()
    for module in (
        "dlc.driver.codec",
        "dlc.driver.build",
        "dlc.cli.commands.build",
        "dlc_backend_c.emit",
        "dlc_backend_c.build",
    ):
        import_module(module)
    save(conv_net(SMALL), here.place / "m0" / "net.onnx")
    save(conv_net((Layer(5, 2, 1),), seed=3), here.place / "m1" / "net.onnx")
    # The first build of a process imports and compiles what later ones, and forks, have.
    assert run(here.tasks()[0].arguments(here.place / "first", "--cache", "off")) == 0
    start = time.monotonic()
    for task in here.tasks():
        output = here.place / "expected" / task.name
        status = finish(here.start(task, output, "--cache", "off"))
        assert status == 0, (here.place / "log.txt").read_text()
        here.expected[task.name] = contents(output)
    here.longest = (time.monotonic() - start) / len(here.tasks()) * processes / min(processes, os.cpu_count() or 1)


def run_round(here: Field, processes: int) -> list[str]:
    """One round; what went wrong in it."""
    if here.choose.random() < 0.4:
        with Cache(LocalStore(here.cache), "rw") as cache:
            cache.clear()
    started: dict[int, tuple[Task, Path]] = {}
    for number in range(processes):
        task = here.choose.choice(here.tasks())
        output = here.place / "out" / task.name / ("shared" if here.choose.random() < 0.5 else str(number))
        if here.choose.random() < 0.3:
            shutil.rmtree(output, ignore_errors=True)
        started[here.start(task, output)] = (task, output)
    spared = here.choose.choice(list(started)) if here.choose.random() < 0.7 else 0
    wait = here.choose.uniform(0.0, 1.5 * here.longest + (2.0 if here.real else 0.0)) / processes
    for pid in here.choose.sample(list(started), processes):
        time.sleep(wait)
        if pid != spared:
            os.kill(pid, signal.SIGKILL)
    return [fault for pid, (task, output) in started.items() for fault in examine(here, finish(pid), task, output)]


def examine(here: Field, status: int, task: Task, output: Path) -> list[str]:
    """What is wrong with how a process ended, and with what it left."""
    if status == 0:
        here.finished += 1
    elif status == -signal.SIGKILL:
        here.killed += 1
    else:
        return [f"{task.name} ended with status {status}: {(here.place / 'log.txt').read_text()[-2000:]}"]
    if not output.exists():
        return [] if status else [f"{task.name} ended well but {output} is not there"]
    found = {name: data for name, data in contents(output).items() if not name.startswith(".dlc-")}
    if "manifest.json" not in found:
        # Interrupted while it replaced files; it must not look like a program, and a process that ended well would have
        # put the manifest there, unless another one is killed in the same directory.
        return [] if status or output.name == "shared" else [f"{output} has no manifest"]
    return [] if found == here.expected[task.name] else [f"{output} is not what {task.name} gives"]


def look_over(here: Field) -> list[str]:
    """What is wrong with the cache."""
    with Cache(LocalStore(here.cache), "rw") as cache:
        found = cache.verify()
        faults = [f"damaged entry {digest}" for digest in found.bad] + [str(w) for w in cache.warnings]
    strange = {p.name for p in here.cache.iterdir()} - KNOWN
    corrupt = here.cache / "corrupt"
    if strange or (corrupt.is_dir() and any(corrupt.iterdir())):
        faults.append(f"left in the cache: {strange or list(corrupt.iterdir())}")
    return faults


def conclude(here: Field) -> list[str]:
    """After all rounds: everything builds, is right, and nothing is left over."""
    faults: list[str] = []
    for task in here.tasks():
        here.real = False
        for output in (here.place / "out" / task.name).glob("*"):
            if output.name.startswith("."):
                continue
            if finish(here.start(task, output)) or contents(output) != here.expected[task.name]:
                faults.append(f"{output}: {sorted(contents(output))}")
        here.real = True
        fresh = here.place / "out" / task.name / "fresh"
        if finish(here.start(task, fresh)) or contents(fresh) != here.expected[task.name]:
            faults.append(f"{fresh}: {sorted(contents(fresh))}")
    done = subprocess.run(
        [sys.executable, "-m", "dlc", "cache", "verify", "--cache-dir", str(here.cache), "--json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    print("dlc cache verify:", {k: v for k, v in json.loads(done.stdout).items() if k in ("checked", "bytes", "bad")})
    return faults + ([] if done.returncode == 0 else [done.stdout])


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--models", type=int, default=2, choices=(1, 2))
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    faults: list[str] = []
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="dlc-kill-") as folder:
        here = Field(Path(folder), random.Random(options.seed), options.models)
        (here.place / "tmp").mkdir()
        os.environ |= {"TMPDIR": str(here.place / "tmp"), "PYTHONPATH": os.pathsep.join(sys.path[:3])}
        tempfile.tempdir = None
        prepare(here, options.processes)
        for number in range(options.rounds):
            here.real = number % REAL_EVERY == REAL_EVERY - 1
            faults = run_round(here, options.processes) + look_over(here)
            if faults:
                print(f"round {number}:", *faults, sep="\n  ")
                break
        faults = faults or conclude(here)
        print(*faults, sep="\n")
        left = len(list((here.cache / "tmp").glob("*")))
        print(
            f"{options.rounds} rounds, {options.processes} processes, seed {options.seed}: "
            f"{here.finished} builds finished, {here.killed} killed, {left} temporary files wait to be swept, "
            f"{len(faults)} faults, {time.monotonic() - begin:.0f} s"
        )
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
