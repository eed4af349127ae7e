"""Change, truncate, replace or remove a file that a build reads, at a random moment; whether anything wrong is kept.

    python benchmarks/snapshot_fuzz.py --changes 1000

Every trial builds with a cache of its own and changes one file at one of the moments at which the build opens a file,
reads, looks up, runs a step or saves; one in ten changes it after a random time instead, from another process. Then the
build has to end in what its files give before or after the change, or in an error with exit code 1 (2 for settings).
Afterwards, with the same cache, the changed files have to give what they give without a cache, and so have the first
ones. Half of the trials read every file in parts, as files beyond a quarter of the memory are read, and the other half
wait until the clock of the file system has ticked. Exit status 0 means that all of that was so.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import mmap
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from dlc.api.source import Source
from dlc.api.tuning import Fingerprint, Record, Tuning
from dlc.cache.cache import Cache
from dlc.cli.frame import run
from dlc.driver.session import Session
from dlc.files import inputs

Files = dict[str, bytes]
"""Content by name, in the directory of the trial."""
TARGET = "c{lib=none}"


@dataclass(frozen=True)
class Kind:
    """A kind of input: two versions of its files, and the command that reads them."""

    name: str
    before: Files
    after: Files
    arguments: tuple[str, ...]
    whole: bool = True
    """Whether the other bytes of the file are as many: it can be changed in place without a change of its size."""


def matmul(value: float, external: str = "") -> onnx.ModelProto:
    """y = x · w with equal weights."""
    w = numpy_helper.from_array(np.random.default_rng(int(value)).standard_normal((64, 96)).astype(np.float32), "w")
    model = helper.make_model(
        helper.make_graph(
            [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], ["y"])],
            "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 64])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 96])],
            [w],
        ),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )
    if external:
        (w,) = model.graph.initializer
        w.ClearField("raw_data")
        w.data_location = TensorProto.EXTERNAL
        w.external_data.add(key="location", value=external)
    return model


def weights(value: float) -> bytes:
    return np.random.default_rng(int(value)).standard_normal((64, 96)).astype(np.float32).tobytes()


def pack(factor: str) -> bytes:
    return (
        f"pack: demo\nops:\n  - op: scaled\n    doc: y = {factor} * x.\n"
        f'    operands: {{x: "float"}}\n    define: "y[...] = {factor} * x[...]"\n'
        "    onnx: [{domain: org.example.demo, name: Scaled}]\n"
        f"    examples:\n      - {{x: [1.0, 2.0], y: [{factor}, {2 * float(factor)}]}}\n"
    ).encode()


def packed() -> bytes:
    return helper.make_model(
        helper.make_graph(
            [helper.make_node("Scaled", ["x"], ["y"], domain="org.example.demo")],
            "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [8])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, [8])],
        ),
        opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("org.example.demo", 1)],
        ir_version=8,
    ).SerializeToString()


def tuned(cycles: int) -> bytes:
    machine = Fingerprint("machine", "compiler", "processor")
    return Tuning([Record("0" * 32, machine, ("y",), "simple", "simple", cycles, 5, 5)]).text.encode()


def arrays(seed: int) -> bytes:
    rng = np.random.default_rng(seed)
    with tempfile.TemporaryFile() as file:
        np.savez(file, x=rng.standard_normal((64, 8)).astype(np.float32), y=rng.integers(0, 3, 64).astype(np.int32))
        file.seek(0)
        return file.read()


def classifier() -> bytes:
    rng = np.random.default_rng(0)
    w = numpy_helper.from_array(rng.standard_normal((8, 3)).astype(np.float32), "w")
    return helper.make_model(
        helper.make_graph(
            [helper.make_node("MatMul", ["x", "w"], ["y"])],
            "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [8, 8])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, [8, 3])],
            [w],
        ),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    ).SerializeToString()


def exported(value: int) -> bytes:
    """A program of torch.export, made in a process of its own: PyTorch is not to be in those that are forked later."""
    code = (
        "import sys, io, torch\n"
        "class M(torch.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        f"        torch.manual_seed({value})\n"
        "        self.w = torch.nn.Parameter(torch.randn(64, 96))\n"
        "    def forward(self, x):\n"
        "        return torch.relu(x @ self.w)\n"
        "out = io.BytesIO()\n"
        "torch.export.save(torch.export.export(M().eval(), (torch.ones(1, 64),)), out)\n"
        "sys.stdout.buffer.write(out.getvalue())\n"
    )
    return subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, check=True).stdout


KERNEL = "kernel k(B: float[10]) -> (A: float[10]) {{ A[i] = B[i] * {}.0; }}\n"
MACHINE = 'description = "a machine"\nvector-bytes = 0\nregisters = {}\nflags = ["-O2"]\n'
SETTINGS = "[target.own]\nbackend = 'c{{lib=none cpu={}}}'\n"


def kinds(trained: Path) -> list[Kind]:
    """`trained`: a training program."""
    model = ("build", "m.onnx", "-t", TARGET)
    one, two = matmul(1).SerializeToString(), matmul(2).SerializeToString()
    outside = matmul(1, "w.bin").SerializeToString()
    return [
        Kind("model", {"m.onnx": one}, {"m.onnx": two}, model),
        Kind(
            "external data", {"m.onnx": outside, "w.bin": weights(1)}, {"m.onnx": outside, "w.bin": weights(2)}, model
        ),
        Kind(
            "kernel",
            {"k.kernel": KERNEL.format(2).encode()},
            {"k.kernel": KERNEL.format(3).encode()},
            ("build", "k.kernel", "-t", TARGET),
        ),
        Kind("program of torch", {"m.pt2": exported(1)}, {"m.pt2": exported(2)}, ("build", "m.pt2", "-t", TARGET)),
        Kind(
            "op pack",
            {"m.onnx": packed(), "demo.ops.yaml": pack("2.0")},
            {"m.onnx": packed(), "demo.ops.yaml": pack("3.0")},
            (*model, "--ops", "demo.ops.yaml"),
        ),
        Kind(
            "machine",
            {"m.onnx": one, "own.toml": MACHINE.format(16).encode()},
            {"m.onnx": one, "own.toml": MACHINE.format(32).encode()},
            (*model, "--machine", "own.toml"),
        ),
        Kind(
            "tune file",
            {"m.onnx": one, "t.toml": tuned(7)},
            {"m.onnx": one, "t.toml": tuned(9)},
            (*model, "--tune", "t.toml"),
        ),
        Kind(
            "configuration",
            {"m.onnx": one, "dlc.toml": SETTINGS.format("generic").encode()},
            {"m.onnx": one, "dlc.toml": SETTINGS.format("x86-64-v3").encode()},
            ("build", "m.onnx", "-t", "own"),
        ),
        Kind(
            "data set",
            {"d.npz": arrays(1)},
            {"d.npz": arrays(2)},
            (
                "train",
                str(trained),
                "--data",
                "d.npz",
                "--epochs",
                "2",
                "--checkpoint",
                "out/c.ckpt",
                "--export",
                "out/m.onnx",
            ),
        ),
    ]


# ---- moments ----
@dataclass
class Moments:
    """Counts the moments of a build, and does something at one of them."""

    at: int = -1
    act: Callable[[], None] = lambda: None
    seen: int = 0
    on: bool = False
    depth: int = 0

    def tick(self) -> None:
        if not self.on or self.depth:
            return
        self.seen += 1
        if self.seen == self.at:
            self.depth += 1
            try:
                self.act()
            finally:
                self.depth -= 1


MOMENTS = Moments()


def hook(owner: Any, name: str) -> None:
    """Make a call of a method a moment, before and after it."""
    plain = getattr(owner, name)

    def watched(*args: Any, **named: Any) -> Any:
        MOMENTS.tick()
        found = plain(*args, **named)
        MOMENTS.tick()
        return found

    setattr(owner, name, watched)


def install_hooks() -> None:
    for owner, names in (
        (inputs.InputFile, ("__init__", "digest", "read", "read_into", "view", "check", "_exactly")),
        (inputs.Inputs, ("open", "check")),
        (Source, ("view", "part")),
        (Session, ("step", "_made")),
        (Cache, ("lookup", "save", "source_digest")),
    ):
        for name in names:
            hook(owner, name)
    sys.addaudithook(lambda event, _: MOMENTS.tick() if event in ("open", "os.rename", "subprocess.Popen") else None)


# ---- changes ----
def in_place(path: Path, new: bytes) -> None:
    """As `cat new > path`."""
    path.write_bytes(new)


def same_times(path: Path, new: bytes) -> None:
    """In place, with the time of the last change set back."""
    found = path.stat()
    path.write_bytes(new)
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))


def part_in_place(path: Path, new: bytes) -> None:
    """The bytes that differ, one by one, without truncating."""
    old = path.read_bytes()
    if len(old) != len(new):
        return in_place(path, new)
    with path.open("r+b") as file:
        for at in (k for k in range(len(old)) if old[k] != new[k]):
            file.seek(at)
            file.write(new[at : at + 1])
    return None


def by_mapping(path: Path, new: bytes) -> None:
    """Through a mapping of the file."""
    if path.stat().st_size != len(new):
        return in_place(path, new)
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
        memory[:] = new
    return None


def replaced(path: Path, new: bytes) -> None:
    """By renaming another file."""
    other = path.with_name(path.name + "~")
    other.write_bytes(new)
    os.replace(other, path)


CHANGES = (in_place, same_times, part_in_place, by_mapping, replaced)


@dataclass
class Trial:
    """One change."""

    kind: Kind
    change: Callable[[Path, bytes], None]
    file: str
    new: bytes | None
    """What the file has afterwards; None: it is gone."""
    at: int
    parts: bool
    settled: bool
    delay: float = 0.0
    """Seconds after which another process does it, instead of a moment."""

    @property
    def after(self) -> Files:
        files = {**self.kind.before, self.file: self.new or b""}
        return files if self.new is not None else {name: c for name, c in files.items() if name != self.file}

    def act(self, place: Path) -> None:
        if self.new is None:
            (place / self.file).unlink()
        else:
            self.change(place / self.file, self.new)


@dataclass
class Bench:
    """Where it all happens."""

    place: Path
    known: dict[str, tuple[int, str]] = field(default_factory=dict[str, "tuple[int, str]"])

    def outcome(self, kind: Kind, files: Mapping[str, bytes]) -> tuple[int, str]:
        """(exit code, digest of the output) of files, without a cache."""
        name = hashlib.sha256(repr((kind.name, sorted(files.items()))).encode()).hexdigest()
        if name not in self.known:
            self.known[name] = self.forked(lambda place: build(kind, place, files, "off"))
        return self.known[name]

    def forked(self, work: Callable[[Path], Any]) -> Any:
        """What work in a directory of its own gives, in a process of its own; DIED and the signal if it has none."""
        place = Path(tempfile.mkdtemp(dir=self.place))
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                log = os.open(place / "log.txt", os.O_WRONLY | os.O_CREAT)
                os.dup2(log, 1)
                os.dup2(log, 2)
                os.close(read)
                answer = work(place)
            except BaseException:  # noqa: BLE001
                answer = ("FAILED", traceback.format_exc())
            with os.fdopen(write, "wb") as pipe:
                pipe.write(repr(answer).encode())
            os._exit(0)
        os.close(write)
        with os.fdopen(read, "rb") as pipe:
            content = pipe.read()
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        log = (place / "log.txt").read_text(errors="replace")
        shutil.rmtree(place, ignore_errors=True)
        return (
            ast.literal_eval(content.decode())
            if content and not status
            else ("DIED", f"{signal.Signals(-status).name}: {log}")
        )


def put(place: Path, files: Mapping[str, bytes]) -> None:
    for name in ("m.onnx", "w.bin", "k.kernel", "m.pt2", "demo.ops.yaml", "own.toml", "t.toml", "dlc.toml", "d.npz"):
        (place / name).unlink(missing_ok=True)
    for name, content in files.items():
        (place / name).write_bytes(content)


def build(kind: Kind, place: Path, files: Mapping[str, bytes] | None, mode: str) -> tuple[int, str]:
    """(exit code, digest of what it wrote)."""
    if files is not None:
        put(place, files)
    os.chdir(place)
    out = place / "out"
    shutil.rmtree(out, ignore_errors=True)
    words = [*kind.arguments, "-q"]
    if words[0] == "build":
        words += ["-o", str(out), "--cache-dir", str(place / "cache"), "--cache", mode]
    else:
        out.mkdir()
    status = run(words)
    content = hashlib.sha256()
    for path in sorted(out.rglob("*")) if out.exists() and not status else ():
        # Times, and what a run measured of itself, differ from run to run.
        if path.is_file() and path.suffix in (".c", ".h", ".bin", ".onnx"):
            content.update(f"{path.relative_to(out)}\n".encode() + path.read_bytes())
    return status, content.hexdigest()


def attempt(trial: Trial, place: Path) -> tuple[int, Any]:
    """(moments, outcomes of the changed build, of what is there then, and of the first files again)."""
    put(place, trial.kind.before)
    if trial.settled:
        time.sleep(0.12)
    if trial.parts:
        inputs.KEPT, inputs.MOST_KEPT, inputs.BLOCK = 0, 0, 256
    if trial.delay:
        if os.fork() == 0:
            time.sleep(trial.delay)
            with suppress(OSError):
                trial.act(place)
            os._exit(0)
    else:
        MOMENTS.at, MOMENTS.act, MOMENTS.on = trial.at, lambda: trial.act(place), True
    changed = build(trial.kind, place, None, "rw")
    MOMENTS.on = False
    if trial.delay:
        os.wait()
    elif MOMENTS.seen < trial.at:
        trial.act(place)  # it was over before
    then = build(trial.kind, place, None, "rw")
    return MOMENTS.seen, (changed, then, build(trial.kind, place, trial.kind.before, "rw"))


def draw(choose: random.Random, kind: Kind, moments: int) -> Trial:
    names = [n for n in kind.before if kind.before[n] != kind.after[n]] if choose.random() < 0.8 else list(kind.before)
    name = choose.choice(names)
    old, new, change = kind.before[name], kind.after[name], choose.choice(CHANGES)
    roll = choose.random()
    if roll < 0.2:
        wanted: bytes | None = old[: choose.randrange(len(old))]
    elif roll < 0.25:
        wanted = None
    elif roll < 0.3:
        wanted = old + choose.randbytes(40)
    else:
        wanted = new
    late = choose.uniform(0.001, 0.5) if choose.random() < 0.1 else 0.0
    return Trial(
        kind, change, name, wanted, choose.randint(1, moments), choose.random() < 0.5, choose.random() < 0.5, late
    )


def faults_of(bench: Bench, trial: Trial, outcomes: Any) -> list[str]:
    before, after = (bench.outcome(trial.kind, files) for files in (trial.kind.before, trial.after))
    changed, then, again = outcomes
    found: list[str] = []
    if changed[0] == 0 and changed not in (before, after):
        found.append(f"WRONG: the changed build gave {changed}, which is neither {before} nor {after}")
    if changed[0] not in (0, 1, 2, 4, 6):
        found.append(f"CRASH: the changed build ended with {changed[0]}")
    if then != after:
        found.append(f"POISON: the changed files give {then} with the cache, {after} without")
    if again != before:
        found.append(f"POISON: the first files give {again} with the cache, {before} without")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--changes", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kind", default="", help="only kinds with this word")
    options = parser.parse_args()
    choose, begin = random.Random(options.seed), time.monotonic()
    totals: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="dlc-snapshot-") as folder:
        bench = Bench(Path(folder))
        (bench.place / "c.onnx").write_bytes(classifier())
        train = ["build", f"{folder}/c.onnx", "--train", "loss=cross-entropy,optimizer=sgd", "-t", "c{flags=-O0}"]
        assert run([*train, "-o", f"{folder}/trained", "-q", "--cache", "off"]) == 0
        chosen = [kind for kind in kinds(bench.place / "trained") if options.kind in kind.name]
        install_hooks()
        os.environ |= {"XDG_STATE_HOME": folder, "XDG_CACHE_HOME": folder, "HOME": folder}
        moments: dict[str, int] = {}
        for kind in chosen:  # what a build imports, forks have
            os.chdir(bench.place)
            place = Path(tempfile.mkdtemp(dir=folder))
            status = build(kind, place, kind.before, "off")[0]
            assert status == 0, kind.name
            name, content = next(iter(kind.before.items()))
            never = Trial(kind, in_place, name, content, 1 << 30, parts=False, settled=False)
            answer = bench.forked(lambda place, trial=never: attempt(trial, place))
            assert isinstance(answer[0], int), answer
            moments[kind.name] = answer[0]
            assert bench.outcome(kind, kind.before)[0] == 0
        print("moments of a build:", moments, flush=True)
        for number in range(options.changes):
            kind = chosen[number % len(chosen)]
            if number % 100 == 99:
                print(f"{number + 1} done", flush=True)
            trial = draw(choose, kind, moments[kind.name])
            answer = bench.forked(lambda place, trial=trial: attempt(trial, place))
            wrong = faults_of(bench, trial, answer[1]) if isinstance(answer[0], int) else [f"CRASH: {answer}"]
            ended = answer[1][0][0] if isinstance(answer[0], int) else "died"
            totals[f"exit {ended}"] += 1
            for each in wrong:
                totals[each.partition(":")[0]] += 1
                what = "removed" if trial.new is None else f"{trial.change.__name__} to {len(trial.new)} bytes"
                when = f"after {trial.delay:.3f} s" if trial.delay else f"at moment {trial.at}"
                print(f"{number} {kind.name}, {trial.file} {what} {when}, parts={trial.parts} settled={trial.settled}:")
                print(f"  {each}", flush=True)
    faults = sum(count for name, count in totals.items() if name in ("WRONG", "POISON", "CRASH"))
    seconds = time.monotonic() - begin
    print(f"{options.changes} changes of {len(chosen)} kinds, seed {options.seed}: {dict(sorted(totals.items()))},")
    print(f"{totals['WRONG']} wrong results, {totals['POISON']} poisoned entries, {faults} faults, {seconds:.0f} s")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
