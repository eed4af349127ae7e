"""Training programs against PyTorch eager: time of a step and peak memory, one thread, steps taking turns.

    python benchmarks/training.py [NETWORK…] [--updates final|immediate|both] [--rounds 12] [--json]

Four networks are exported to ONNX and built with `dlc build --train` (SGD with momentum); every program must agree with
PyTorch on its first step before it is timed. Rounds take turns, and the ratio is that of the medians.

Peak memory of a dlc program is what its manifest promises, and all that it touches: parameters, state of the optimizer,
gradients, and the arena with what kernels work in; there is no heap. PyTorch's is counted the same way, by what its
allocator holds at the worst moment of a step: parameters, buffers and momentum, plus the highest running total of
`[memory]` events of torch.profiler (activations that autograd keeps, gradients, temporaries). The batch itself and code
are counted on neither side. What oneDNN allocates behind PyTorch's allocator is not seen, so the figure favours
PyTorch: as a check, the resident set that steps add to a fresh process (after `import torch` and one tiny step) is
printed too, which includes it, and pages that the allocator does not give back.

Fails if a step takes more than LIMIT times as long as PyTorch's, or, where no gradient outlives its weight's update
(`immediate`; `final` holds them all for a caller to look at), more memory than PyTorch's allocator holds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
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
from tests.training.torch_networks import NETWORKS, Network, torch_step

LIMIT = 1.5
"""Times as long as PyTorch that a step may take."""
RATE, MOMENTUM = 0.01, 0.9
CASES = ("mlp", "lenet", "transformer", "resnet18")


@dataclass(frozen=True)
class Result:
    """Milliseconds and bytes.

    Attributes:
        network, updates: What was trained, and how.
        milliseconds, torch_milliseconds: Medians of a step.
        ratio: Of these.
        memory, torch_memory: Peaks as both sides count them (see the module).
        torch_resident: What steps add to the resident set of a process.
        error: Largest relative error of a parameter after one step.
    """

    network: str
    updates: str
    milliseconds: float
    torch_milliseconds: float
    ratio: float
    memory: int
    torch_memory: int
    torch_resident: int
    error: float

    @property
    def good(self) -> bool:
        """Whether nothing is over its limit."""
        frugal = self.updates == "final" or self.memory <= self.torch_memory
        return self.ratio <= LIMIT and frugal and self.error <= WEIGHTS


def optimizer_of(module: torch.nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(module.parameters(), lr=RATE, momentum=MOMENTUM)


def build(name: str, network: Network, updates: str, folder: Path) -> TrainingProgram:
    """The network's training program, compiled for this machine."""
    model = folder / f"{name}.onnx"
    if not model.exists():
        model.write_bytes(network.onnx(network.module()))
    train = f"loss={network.loss},optimizer=sgd{{lr={RATE} momentum={MOMENTUM}}},updates={updates}"
    out = folder / f"{name}-{updates}"
    command = [sys.executable, "-m", "dlc", "build", str(model), "-q", "-t", "c", "--train", train, "-o", str(out)]
    subprocess.run([*command, "--cache-dir", str(folder / "cache")], check=True)
    return cast(TrainingProgram, dlc.load(out))


def first_step_error(program: TrainingProgram, network: Network, batch: tuple[Array, Array]) -> float:
    """The largest relative error of a parameter after one step, ‖dlc - PyTorch‖ / ‖PyTorch‖."""
    module = network.module()
    torch_step(module, optimizer_of(module), *batch)
    program.reset()
    program.train_step(*batch)
    got = program.parameters()
    errors = [relative(got[n], p.detach().numpy()) for n, p in module.named_parameters()]
    program.reset()
    return max(errors)


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


def torch_peak(network: Network) -> int:
    """Bytes that PyTorch's allocator holds at the worst moment of a step that is not the first."""
    module = network.module()
    optimizer = optimizer_of(module)
    batch = network.data(1)[0]
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


def torch_resident(name: str) -> int:
    """Bytes that steps add to the resident set of a fresh process."""
    command = [sys.executable, "-m", "benchmarks.training", "--resident", name]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=Path(__file__).parents[1])
    return int(done.stdout.split()[-1])


def tell_resident(name: str) -> None:
    """The body of that process."""

    def status(key: str) -> int:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(key))

    tiny = torch.nn.Sequential(torch.nn.Conv2d(1, 1, 3), torch.nn.Flatten(), torch.nn.Linear(36, 2))
    torch_step(tiny, optimizer_of(tiny), np.zeros((1, 1, 8, 8), np.float32), np.zeros(1, np.int64))
    network = NETWORKS[name]
    batch = network.data(1)[0]
    start = status("VmRSS")
    module = network.module()
    optimizer = optimizer_of(module)
    for _ in range(3):
        torch_step(module, optimizer, *batch)
    print(status("VmHWM") - start)


def measure(name: str, updates: str, folder: Path, rounds: int) -> Result:
    """One network with one way of updating."""
    network = NETWORKS[name]
    program = build(name, network, updates, folder)
    batch = network.data(1)[0]
    error = first_step_error(program, network, batch)
    module = network.module()
    optimizer = optimizer_of(module)
    ours, theirs = medians([lambda: program.train_step(*batch), lambda: torch_step(module, optimizer, *batch)], rounds)
    regions = ("parameters_bytes", "state_bytes", "gradients_bytes", "arena_bytes")
    memory = sum(int(program.facts.get(k, 0)) for k in regions)
    return Result(name, updates, ours, theirs, ours / theirs, memory, torch_peak(network), torch_resident(name), error)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("networks", nargs="*", help=f"some of {', '.join(NETWORKS)}")
    parser.add_argument("--updates", choices=("final", "immediate", "both"), default="both")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--resident", help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.resident:
        tell_resident(options.resident)
        return
    found: list[Result] = []
    with tempfile.TemporaryDirectory(prefix="dlc-training-") as folder:
        for name in options.networks or CASES:
            for updates in ("final", "immediate") if options.updates == "both" else (options.updates,):
                found.append(measure(name, updates, Path(folder), options.rounds))
                if not options.json:
                    print(line_of(found[-1]), flush=True)
    if options.json:
        print(json.dumps({"limit": LIMIT, "rows": [{**asdict(r), "good": r.good} for r in found]}, indent=1))
    sys.exit(any(not r.good for r in found))


def line_of(r: Result) -> str:
    """A line for people."""
    return (
        f"{'ok  ' if r.good else 'FAIL'} {r.network:12} {r.updates:9} step {r.milliseconds:8.2f} ms, PyTorch "
        f"{r.torch_milliseconds:8.2f} ms, ratio {r.ratio:4.2f}; memory {r.memory / 1e6:7.2f} MB, PyTorch "
        f"{r.torch_memory / 1e6:7.2f} MB (resident {r.torch_resident / 1e6:.1f}); error {r.error:.1e}"
    )


if __name__ == "__main__":
    main()
