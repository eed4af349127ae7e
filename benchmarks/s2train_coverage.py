"""How much of well-known networks S2Train computes, at inference and in training, and that the results are right.

    python benchmarks/s2train_coverage.py [WORD…] [--only inference|training] [--compile] [--json FILE] [--table]

Networks of PyTorch with random weights are exported to ONNX and built by the plain command, `dlc build MODEL --target
s2train`, and the same with `--train loss=cross-entropy`, then run in the simulator. Words choose networks by parts of
their names. Columns: shares of the model's nodes and of multiply-adds that the device computes; how often it calls the
host in a run, and the bytes that these calls read and write; instructions; the largest error of a tensor,
‖found - wanted‖ / ‖wanted‖, at inference of the outputs, in training of the gradients. `wanted` is PyTorch in double
precision from the rounded weights, with the device's decisions at relus and maximum pools, where nearly equal values
decide either way; `half` is the error of PyTorch itself with all values in fp16, which decides by itself. The bound is
that of `tests/backend_s2train/torch_steps.py`: √d·(2⁻¹¹ + 2⁻²⁴·√n) for d stores in a row and sums of n products.

The exit code is 1 if a network does not compile, if the device computes less than 95 % of the multiply-adds, or if an
error is beyond the bound and beyond three times PyTorch's own in fp16.
"""

from __future__ import annotations

import argparse
import copy
import functools
import io
import json
import sys
import time
import warnings
from collections.abc import Mapping
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import nn

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "plugins" / "backend_s2train"), str(ROOT / "plugins" / "frontend_onnx")]

from dlc_backend_s2train.container import read  # noqa: E402
from dlc_backend_s2train.isa.instruction_set import Opcode  # noqa: E402
from dlc_backend_s2train.program import Program  # noqa: E402
from s2train_networks import NETWORKS  # noqa: E402

from dlc.base.types import Array  # noqa: E402
from dlc.cli.frame import run  # noqa: E402
from dlc.runtime.loading import load  # noqa: E402
from tests.backend_s2train.torch_decisions import Decided  # noqa: E402
from tests.backend_s2train.torch_steps import Device, bound, products, rounded, stores_before  # noqa: E402
from tests.training.torch_networks import Network  # noqa: E402

MACS = 95.0
"""Percent of the multiply-adds that the device has to compute."""
OWN = 3.0
"""How many times PyTorch's own error in fp16 the device's may be."""
SCALE = 1024.0
"""Of the loss while gradients are fp16, as in a program of the device."""


@dataclass
class Row:
    """What was found out about a network."""

    network: str
    function: str
    problem: str = ""
    """The first error of a build."""
    ops: float = 0.0
    macs: float = 0.0
    """Percent that the device computes."""
    crossings: int = 0
    crossed: int = 0
    """Bytes that calls of the host read and write, in a run."""
    instructions: int = 0
    error: float = float("nan")
    half: float = float("nan")
    bound: float = float("nan")
    host: str = ""
    seconds: float = 0.0

    @property
    def right(self) -> bool:
        """Whether it is as it should be."""
        close = self.error <= max(self.bound, OWN * self.half) or self.error != self.error
        return not self.problem and self.macs >= MACS and close

    def text(self) -> str:
        """In a line."""
        if self.problem:
            return f"{self.network:<14}{self.function:<10}  {self.problem}"
        shares = f"{self.ops:>6.1f} %{self.macs:>7.2f} %{self.crossings:>6}{self.crossed:>12,}{self.instructions:>7}"
        errors = f"{self.error:>9.1e}{self.half:>9.1e}{self.bound:>9.1e}"
        return f"{self.network:<14}{self.function:<10}{shares}{errors}{self.seconds:>7.1f}  {self.host}"

    def cells(self) -> str:
        """As a row of a table."""
        shares = f"{self.ops:.1f} % | {self.macs:.2f} % | {self.crossings} | {self.crossed:,} | {self.instructions:,}"
        errors = f"{self.error:.1e} | {self.half:.1e} | {self.bound:.1e}"
        return f"| {self.network} | {self.function} | {self.problem or f'{shares} | {errors}'} |"


TABLE = """| network | function | ops | MACs | host calls | bytes | instructions | error | PyTorch fp16 | bound |
| --- | --- | --: | --: | --: | --: | --: | --: | --: | --: |"""
HEAD = f"{'network':<14}{'function':<10}{'ops':>8}{'MACs':>9}{'calls':>6}{'bytes':>12}{'instr.':>7}" + (
    f"{'error':>9}{'half':>9}{'bound':>9}{'s':>7}  host"
)


def built(source: Path, out: Path, *flags: str) -> tuple[Row, Program | None]:
    """A build by the plain command, and its program."""
    text, began = io.StringIO(), time.process_time()
    with redirect_stdout(text):
        line = ["build", str(source), "--target", "s2train", "-o", str(out), "--cache", "off", "--json", *flags]
        code = run(line)
    document: dict[str, Any] = json.loads(text.getvalue())
    row = Row("", "", seconds=time.process_time() - began)
    if code:
        first = document["diagnostics"][0]
        where: dict[str, str] = first.get("location") or {}
        row.problem = f"{len(document['diagnostics'])}: {where.get('node', '')}: {first['message']}"
        return row, None
    memory: Mapping[str, Any] = document["memory"]
    for what in ("ops", "macs"):
        device, host = int(memory[f"device_{what}"]), int(memory[f"host_{what}"])
        setattr(row, what, 100 * device / max(device + host, 1))
    row.host = memory["host"]
    (file,) = out.glob("*.s2t")
    program = read(memoryview(file.read_bytes()), file.name)
    entry = program.entries[-1]
    for instruction in program.instructions[entry.begin : entry.end]:
        row.instructions += 1
        if instruction.opcode is Opcode.HOST:
            function = program.functions[instruction.function or 0]
            tensors = [program.tensors[number] for number in (*function.reads, *function.writes)]
            row.crossings += 1
            row.crossed += sum(tensor.nbytes for tensor in tensors)
    return row, program


class Matched(Decided):
    """PyTorch with the decisions of the device at every relu and pool that the device has as such.

    Branches may run in another order there: each is given the decisions that are most like its own.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._plain = functools.partial(func, *args, **(kwargs or {}))
        return super().__torch_function__(func, types, args, kwargs)

    def _relu(self, x: torch.Tensor) -> torch.Tensor:
        here = _next(self.masks, len(self.relus), (x > 0).numpy())
        return super()._relu(x) if here else self._plain()

    def _pool(self, x: torch.Tensor, window: int, stride: int, padding: int) -> torch.Tensor:
        framed = nn.functional.pad(x.detach(), [padding] * 4, value=-np.inf)
        own = framed.unfold(2, window, stride).unfold(3, window, stride).flatten(4).argmax(4).numpy()
        here = own.size == self._plain().numel() and _next(self.pointers, len(self.pools), own)
        return super()._pool(x, window, stride, padding) if here else self._plain()


def _next(several: Any, place: int, own: Array) -> bool:
    """Put those decisions at a place of the list, of the ones from there on, that are most like others."""
    alike = [k for k in range(place, len(several)) if several[k].size == own.size]
    if not alike:
        return False
    best = min(alike, key=lambda k: int((several[k].reshape(-1) != own.reshape(-1)).sum()))
    several[place], several[best] = several[best], several[place]
    return True


def relative(found: Array, wanted: Array) -> float:
    """‖found - wanted‖ / ‖wanted‖."""
    difference = found.reshape(-1).astype(np.float64) - wanted.reshape(-1)
    return float(np.linalg.norm(difference) / max(float(np.linalg.norm(wanted)), 1e-30))


def worst(found: Mapping[str, Array], wanted: Mapping[str, Array]) -> float:
    """Largest error of a tensor. One that is nearly zero beside the others is compared with a hundredth of the largest:
    its exact value is rounding (the gradient of a key's bias in attention is zero, for one)."""
    most = max(float(np.linalg.norm(w)) for w in wanted.values())
    errors = [0.0]
    for name, right in wanted.items():
        size = float(np.linalg.norm(right))
        difference = found[name].reshape(-1).astype(np.float64) - right.reshape(-1)
        errors.append(float(np.linalg.norm(difference)) / max(size, most / 100))
    return max(errors)


def scores_of(module: nn.Module, x: Array) -> Array:
    """What PyTorch gives, in the precision that the module has."""
    dtype = next(module.parameters()).dtype
    given = torch.tensor(x)
    with torch.no_grad():
        return module(given.to(dtype) if given.is_floating_point() else given).double().numpy()


def gradients_of(module: nn.Module, network: Network, x: Array, y: Array, scale: float = 1.0) -> dict[str, Array]:
    """PyTorch's gradients of the mean cross-entropy."""
    dtype = next(module.parameters()).dtype
    given = torch.tensor(x)
    module.zero_grad()
    scores = module(given.to(dtype) if given.is_floating_point() else given)
    labels = torch.tensor(y)
    if network.loss.endswith("{axis=-1}"):
        scores, labels = scores.flatten(0, -2), labels.flatten()
    loss = nn.functional.cross_entropy(scores.float() if dtype == torch.half else scores, labels)
    (loss * scale).backward()  # pyright: ignore[reportUnknownMemberType]
    found = {name: p.grad for name, p in module.named_parameters()}
    return {name: g.double().numpy() / scale for name, g in found.items() if g is not None}


def halved(module: nn.Module) -> nn.Module:
    """A copy whose parameters are fp16."""
    return copy.deepcopy(module).half()


def inference(name: str, network: Network, place: Path, *, runs: bool) -> Row:
    """A row for the forward program."""
    module = network.module()
    ((x, _),) = network.data(1)
    (place / f"{name}.onnx").write_bytes(network.onnx(module))
    row, program = built(place / f"{name}.onnx", place / "predict")
    row.network, row.function = name, "inference"
    if program is not None and runs:
        x = x.astype(np.float16).astype(np.float32) if x.dtype.kind == "f" else x
        simulated: Any = load(place / "predict")
        (found,) = simulated(x).values()
        wanted = scores_of(rounded(module), x)
        row.error, row.half = relative(found, wanted), relative(scores_of(halved(module), x), wanted)
        row.bound = bound(max(stores_before(program)) + 1, products(program))
    return row


def training(name: str, network: Network, place: Path, *, runs: bool) -> Row:
    """A row for the training program: its gradients are the velocities behind the first step."""
    module = network.module()
    ((x, y),) = network.data(1)
    (place / f"{name}.onnx").write_bytes(network.onnx(module))
    row, program = built(place / f"{name}.onnx", place / "step", "--train", f"loss={network.loss}")
    row.network, row.function = name, "training"
    if program is not None and runs:
        x = x.astype(np.float16).astype(np.float32) if x.dtype.kind == "f" else x
        simulated: Any = load(place / "step")
        device = Device(simulated.machine.program, simulated.machine)
        device.step(x, y)
        state: Mapping[str, Array] = simulated.state()
        found = {key.removesuffix(".momentum"): value for key, value in state.items()}
        exact = rounded(module)
        with Matched(list(device.masks.values()), list(device.pointers.values())):
            wanted = gradients_of(exact, network, x, y)
        half = gradients_of(halved(module), network, x, y, SCALE)
        norms = [name for name, m in exact.named_modules() if isinstance(m, nn.BatchNorm2d)]  # pyright: ignore
        missing = [key for key in wanted if key not in found and key.rpartition(".")[0] not in norms]
        both = {key: value for key, value in wanted.items() if key in found}
        row.error, row.half = worst(found, both), worst(half, both)
        row.bound = bound(max(stores_before(program)) + 1, products(program))
        row.host += f" (not trained: {', '.join(missing)})" if missing else ""
    return row


def main() -> int:
    """A row for each network and function."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("words", nargs="*", help="parts of names of networks")
    parser.add_argument("--only", choices=("inference", "training"), help="one of the two functions")
    parser.add_argument("--compile", action="store_true", help="do not run them")
    parser.add_argument("--json", type=Path, help="file for the rows")
    parser.add_argument("--table", action="store_true", help="print the rows as a table of Markdown")
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    print(TABLE if chosen.table else HEAD)
    rows: list[Row] = []
    for name, network in NETWORKS.items():
        if chosen.words and not any(word in name for word in chosen.words):
            continue
        for function in (inference, training):
            if chosen.only in (None, function.__name__):
                with TemporaryDirectory(prefix="dlc-coverage-") as place:
                    rows.append(function(name, network, Path(place), runs=not chosen.compile))
                print(rows[-1].cells() if chosen.table else rows[-1].text(), flush=True)
    if chosen.json:
        chosen.json.write_text(json.dumps([asdict(row) for row in rows], indent=1))
    return 0 if all(row.right for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
