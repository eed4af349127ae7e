"""Training programs against PyTorch, eager and compiled: time of a step and peak memory, steps taking turns.

    python benchmarks/training.py [CASE…] [--updates final|immediate|both] [--against eager,compile] [--threads 1]
        [--rounds 12] [--folder DIR] [--json]
    python benchmarks/training.py [CASE…] --noise 1e-7

A case is a network and the samples of a step, `resnet18:4`. Networks are exported to ONNX and built with `dlc build
--train` (SGD with momentum); every program must agree with PyTorch on its first step before it is timed: the median of
BATCHES batches is compared with PyTorch in double precision, because rounding alone decides on which side of 0 some
activations lie, and with that the error of one batch; PyTorch in single precision is told beside it. PyTorch runs the
step as it stands, and compiled by `torch.compile`: forward and backward as one graph each, and the optimizer; that
happens before anything is timed. Rounds take turns. The ratio is that of the better of PyTorch's medians to dlc's,
above 1 where dlc is faster, and the last line has the geometric mean of all cases. `--folder` keeps what was built for
both sides; with `--rounds 0` that is all that happens.

Peak memory of a dlc program is what its manifest promises, and all that it touches: parameters, state of the optimizer,
gradients, and the arena with what kernels work in; there is no heap. PyTorch's is counted the same way, by what its
allocator holds at the worst moment of an eager step: parameters, buffers and momentum, plus the highest running total
of `[memory]` events of torch.profiler (activations that autograd keeps, gradients, temporaries). The batch itself and
code are counted on neither side. What oneDNN allocates behind PyTorch's allocator is not seen, so the figure favours
PyTorch: as a check, the resident set that steps add to a fresh process (after `import torch` and one tiny step) is
printed too, which includes it, and pages that the allocator does not give back.

`--noise` trains nothing with dlc: it tells how far one step in double precision moves where the results of convolutions
and linear layers are wrong by so much, relative to their mean magnitude. That is what rounding alone may do.

Fails if a step takes more than LIMIT times as long as the better of PyTorch's, or, where no gradient outlives its
weight's update (`immediate`; `final` holds them all for a caller to look at), more memory than PyTorch's allocator
holds.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile

import dlc
from dlc.api.training_program import TrainingProgram
from dlc.base.types import Array
from tests.training.agreement import WEIGHTS, relative
from tests.training.torch_networks import NETWORKS, Batch, Network, in_precision_of, loss_of, torch_step

LIMIT = 1 / 0.95
"""Times as long as the better of PyTorch's that a step may take."""
RATE, MOMENTUM = 0.01, 0.9
BATCHES = 7
"""Whose first steps are compared with PyTorch's."""
CASES = ("mlp:64", "lenet:32", "transformer:8", "resnet18:4", "resnet18:16")
PEERS = ("eager", "compile")


@dataclass(frozen=True)
class Case:
    """A network and the samples of a step."""

    name: str
    network: Network
    batch: int

    @property
    def data(self) -> Batch:
        """What every step gets."""
        return self.network.data(1, self.batch)[0]

    def __str__(self) -> str:
        return f"{self.name}:{self.batch}"


def case_of(text: str) -> Case:
    """NETWORK or NETWORK:BATCH."""
    name, _, batch = text.partition(":")
    if name not in NETWORKS or not ((batch.isdecimal() and int(batch)) or not batch):
        raise argparse.ArgumentTypeError(f"{text!r} is not NETWORK or NETWORK:BATCH; networks: {', '.join(NETWORKS)}")
    network = NETWORKS[name]
    return Case(name, network, int(batch or network.batch))


def peers_of(text: str) -> tuple[str, ...]:
    """Some of `PEERS`."""
    names = tuple(text.split(","))
    if strange := [n for n in names if n not in PEERS]:
        raise argparse.ArgumentTypeError(f"{strange[0]!r} is not one of {', '.join(PEERS)}")
    return names


@dataclass(frozen=True)
class Result:
    """Milliseconds and bytes.

    Attributes:
        case, updates, threads: What was trained, how, and by how many.
        milliseconds: Median of a step.
        peers: The same of PyTorch, by the name in `PEERS`.
        ratio: The least of these in units of `milliseconds`.
        memory, torch_memory: Peaks as both sides count them (see the module).
        torch_resident: What steps add to the resident set of a process.
        error, torch_error: Largest relative error of a parameter after one step, the median over batches.
    """

    case: str
    updates: str
    threads: int
    milliseconds: float
    peers: Mapping[str, float]
    ratio: float
    memory: int
    torch_memory: int
    torch_resident: int
    error: float
    torch_error: float

    @property
    def good(self) -> bool:
        """Whether nothing is over its limit."""
        frugal = self.updates == "final" or self.memory <= self.torch_memory
        return self.ratio * LIMIT >= 1 and frugal and self.error <= WEIGHTS


def optimizer_of(module: torch.nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(module.parameters(), lr=RATE, momentum=MOMENTUM)


def build(case: Case, updates: str, threads: int, settings: list[str], folder: Path) -> TrainingProgram:
    """The case's training program, compiled for this machine; one that lies there already is taken."""
    model = folder / f"{case.name}-{case.batch}.onnx"
    if not model.exists():
        model.write_bytes(case.network.onnx(case.network.module(), case.batch))
    train = f"loss={case.network.loss},optimizer=sgd{{lr={RATE} momentum={MOMENTUM}}},updates={updates}"
    out = folder / "-".join([case.name, str(case.batch), updates, str(threads), *settings])
    target = f"c{{threads={threads}}}"
    command = [sys.executable, "-m", "dlc", "build", str(model), "-q", "-t", target, "--train", train, "-o", str(out)]
    for setting in settings:
        command += ["--set", setting]
    if not (out / "manifest.json").exists():
        subprocess.run([*command, "--cache-dir", str(folder / "cache")], check=True)
    return cast(TrainingProgram, dlc.load(out))


def peer(how: str, case: Case) -> Callable[[], object]:
    """A step of PyTorch, compiled if that is how; it has run twice."""
    module = case.network.module().train()
    optimizer = optimizer_of(module)
    x, y = (torch.as_tensor(a) for a in case.data)

    def forward() -> torch.Tensor:
        return loss_of(module(x), y)

    update: Callable[[], object] = optimizer.step
    if how == "compile":
        compiled = cast(Any, torch).compile
        forward, update = compiled(forward), compiled(update)

    def step() -> float:
        loss = forward()
        optimizer.zero_grad()
        loss.backward()  # pyright: ignore[reportUnknownMemberType]
        update()
        return float(loss.detach())

    step()
    step()
    return step


def first_step_errors(program: TrainingProgram, network: Network, batch: int) -> tuple[float, float]:
    """Of dlc and of PyTorch in single precision, the largest relative error of a parameter after one step.

    ‖it - PyTorch in double precision‖ / ‖PyTorch in double precision‖, the median over BATCHES batches.
    """
    ours: list[float] = []
    theirs: list[float] = []
    for seed in range(BATCHES):
        ((x, y),) = network.data(1, batch, seed)
        exact = _stepped(network.module().double(), (x, y))
        program.reset()
        program.train_step(x, y)
        ours.append(_largest_error(program.parameters(), exact))
        theirs.append(_largest_error(_stepped(network.module(), (x, y)), exact))
    program.reset()
    return statistics.median(ours), statistics.median(theirs)


def _stepped(module: torch.nn.Module, batch: Batch) -> dict[str, Array]:
    """Parameters after a step in the precision that they have."""
    x, y = batch
    torch_step(module, optimizer_of(module), in_precision_of(module, x), y)
    return {n: p.detach().numpy() for n, p in module.named_parameters()}


def _largest_error(got: Mapping[str, Array], want: Mapping[str, Array]) -> float:
    return max(relative(got[n], w) for n, w in want.items())


def moved_by_noise(case: Case, noise: float) -> tuple[float, float]:
    """How far noise moves parameters and their first updates, at most, relative to each: in PyTorch, as doubles."""
    module = case.network.module().double()
    start = {n: p.detach().numpy() for n, p in module.named_parameters()}
    random = torch.Generator().manual_seed(0)

    def disturbed(_: torch.nn.Module, __: Any, out: torch.Tensor) -> torch.Tensor:
        return out + noise * out.detach().abs().mean() * torch.randn(out.shape, generator=random, dtype=out.dtype)

    after: list[dict[str, Array]] = []
    for noisy in (False, True):
        trained = copy.deepcopy(module)
        for m in trained.modules():
            if noisy and isinstance(m, torch.nn.Conv2d | torch.nn.Linear):
                m.register_forward_hook(disturbed)
        after.append(_stepped(trained, case.data))
    updates = [{n: p - start[n] for n, p in found.items()} for found in after]
    return _largest_error(after[1], after[0]), _largest_error(updates[1], updates[0])


def medians(calls: list[Callable[[], object]], rounds: int) -> list[float]:
    """Milliseconds per call, each round timing every call for about a tenth of a second."""
    for call in calls:
        call()
    start = time.perf_counter()
    calls[-1]()
    count = max(1, round(0.1 / (time.perf_counter() - start)))
    times: list[list[float]] = [[] for _ in calls]
    for _ in range(rounds):
        for call, found in zip(calls, times, strict=True):
            start = time.perf_counter()
            for _ in range(count):
                call()
            found.append((time.perf_counter() - start) / count * 1e3)
    return [statistics.median(t) for t in times]


def torch_peak(case: Case) -> int:
    """Bytes that PyTorch's allocator holds at the worst moment of a step that is not the first."""
    module = case.network.module()
    optimizer = optimizer_of(module)
    batch = case.data
    torch_step(module, optimizer, *batch)
    torch_step(module, optimizer, *batch)
    optimizer.zero_grad()
    held = [*module.parameters(), *module.buffers()]
    held += [v for s in optimizer.state.values() for v in s.values() if isinstance(v, torch.Tensor)]
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as found:
        torch_step(module, optimizer, *batch)
    events: Any = found.profiler.kineto_results.events()  # type: ignore[union-attr]
    total = peak = 0
    for event in sorted((e for e in events if e.name() == "[memory]"), key=lambda e: e.start_ns()):
        total += event.nbytes()
        peak = max(peak, total)
    return peak + sum(t.numel() * t.element_size() for t in held) - batch[0].nbytes - batch[1].nbytes


def torch_resident(case: Case) -> int:
    """Bytes that steps add to the resident set of a fresh process."""
    command = [sys.executable, "-m", "benchmarks.training", "--resident", str(case)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=Path(__file__).parents[1])
    return int(done.stdout.split()[-1])


def tell_resident(case: Case) -> None:
    """The body of that process."""

    def status(key: str) -> int:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(key))

    tiny = torch.nn.Sequential(torch.nn.Conv2d(1, 1, 3), torch.nn.Flatten(), torch.nn.Linear(36, 2))
    torch_step(tiny, optimizer_of(tiny), np.zeros((1, 1, 8, 8), np.float32), np.zeros(1, np.int64))
    batch = case.data
    start = status("VmRSS")
    module = case.network.module()
    optimizer = optimizer_of(module)
    for _ in range(3):
        torch_step(module, optimizer, *batch)
    print(status("VmHWM") - start)


def measure(case: Case, updates: str, options: argparse.Namespace, folder: Path) -> Result | None:
    """One case with one way of updating; None: it is only built."""
    program = build(case, updates, options.threads, options.set, folder)
    batch = case.data
    error, torch_error = first_step_errors(program, case.network, case.batch)
    others = {how: peer(how, case) for how in options.against}
    if not options.rounds:
        return None
    ours, *theirs = medians([lambda: program.train_step(*batch), *others.values()], options.rounds)
    regions = ("parameters_bytes", "state_bytes", "gradients_bytes", "arena_bytes")
    memory = sum(int(program.facts.get(k, 0)) for k in regions)
    peers = dict(zip(others, theirs, strict=True))
    return Result(
        case=str(case),
        updates=updates,
        threads=options.threads,
        milliseconds=ours,
        peers=peers,
        ratio=min(theirs) / ours,
        memory=memory,
        torch_memory=torch_peak(case),
        torch_resident=torch_resident(case),
        error=error,
        torch_error=torch_error,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("cases", nargs="*", type=case_of, help=f"NETWORK or NETWORK:BATCH; else {' '.join(CASES)}")
    parser.add_argument("--updates", choices=("final", "immediate", "both"), default="both")
    parser.add_argument("--against", type=peers_of, default=PEERS, help=f"some of {','.join(PEERS)}")
    parser.add_argument("--threads", type=int, default=1, help="of both sides")
    parser.add_argument("--set", action="append", default=[], help="an option of a pass, as dlc build takes it")
    parser.add_argument("--rounds", type=int, default=12, help="0: build only, into --folder")
    parser.add_argument("--folder", type=Path, help="keep what was built")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--noise", type=float, metavar="X", help="tell what noise of X does to a step instead")
    parser.add_argument("--resident", type=case_of, help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.resident:
        tell_resident(options.resident)
        return
    if options.noise is not None:
        for case in options.cases or map(case_of, CASES):
            parameters, updates = moved_by_noise(case, options.noise)
            print(f"{case!s:14} parameters {parameters:.1e}, updates {updates:.1e}", flush=True)
        return
    found: list[Result] = []
    with nullcontext(options.folder) if options.folder else tempfile.TemporaryDirectory(prefix="dlc-training-") as name:
        folder = Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder.absolute() / "inductor")
        for case in options.cases or map(case_of, CASES):
            for updates in ("final", "immediate") if options.updates == "both" else (options.updates,):
                result = measure(case, updates, options, folder)
                found += [result] if result else []
                if result and not options.json:
                    print(line_of(result), flush=True)
    ways = dict.fromkeys(r.updates for r in found)
    means = {w: statistics.geometric_mean(r.ratio for r in found if r.updates == w) for w in ways}
    if options.json:
        rows = [{**asdict(r), "good": r.good} for r in found]
        print(json.dumps({"limit": LIMIT, "rows": rows, "geometric_means": means}, indent=1))
    else:
        print("".join(f"geometric mean, {way}: {mean:.2f}\n" for way, mean in means.items()), end="")
    sys.exit(any(not r.good for r in found))


def line_of(r: Result) -> str:
    """A line for people."""
    peers = ", ".join(f"{how} {time:8.2f} ms" for how, time in r.peers.items())
    return (
        f"{'ok  ' if r.good else 'FAIL'} {r.case:14} {r.updates:9} step {r.milliseconds:8.2f} ms, PyTorch {peers}, "
        f"ratio {r.ratio:4.2f}; memory {r.memory / 1e6:7.2f} MB, PyTorch {r.torch_memory / 1e6:7.2f} MB "
        f"(resident {r.torch_resident / 1e6:.1f}); error {r.error:.1e}, PyTorch's {r.torch_error:.1e}"
    )


if __name__ == "__main__":
    main()
