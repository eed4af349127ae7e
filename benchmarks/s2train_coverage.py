"""How much of well-known networks S2Train computes, at inference and in training, and that the results are right.

    python benchmarks/s2train_coverage.py [WORD…] [--only inference|training] [--compile] [--json FILE] [--table]

Networks of PyTorch with random weights are exported to ONNX and built by the plain command, `dlc build MODEL --target
s2train`, and the same with `--train loss=cross-entropy`, then run in the simulator. Words choose networks by parts of
their names. Columns: shares of the model's nodes and of multiply-adds that the device computes; how often it calls the
host in a run, and the bytes that these calls read and write; instructions; how much of the bytes of their operands is
copied; the error of a tensor, ‖found - wanted‖ / ‖wanted‖: at inference of the outputs, in training of the gradient
that is nearest to its bound. `wanted` is PyTorch in
double precision from the rounded weights, with the device's decisions at relus and maximum pools, where nearly equal
values decide either way; `once` is the error of the same tensor if each result and gradient of PyTorch's ops is rounded
to fp16 once, by the same decisions; `half` that of PyTorch with all values in fp16, which decides by itself. The bound
is that of `tests/backend_s2train/torch_steps.py`: √d·(2⁻¹¹ + 2⁻²⁴·√n) for d roundings to fp16 in a row, as counted in
the program (`tests/backend_s2train/stores.py`), and sums of n products.

The exit code is 1 if a network does not compile, if the device computes less than 95 % of the multiply-adds, or if an
error is beyond the bound.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
import time
import warnings
from collections.abc import Iterable, Mapping
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
from dlc_backend_s2train.isa.access import operands_of  # noqa: E402
from dlc_backend_s2train.isa.instruction_set import Opcode  # noqa: E402
from dlc_backend_s2train.program import Program  # noqa: E402
from s2train_networks import NETWORKS  # noqa: E402
from s2train_torch import Matched, Once, errors, gradients_of, halved, relative, scores_of  # noqa: E402

from dlc.base.types import Array  # noqa: E402
from dlc.cli.frame import run  # noqa: E402
from dlc.runtime.loading import load  # noqa: E402
from tests.backend_s2train.stores import products, stores_before  # noqa: E402
from tests.backend_s2train.torch_steps import Device, bound, parameters_in, rounded  # noqa: E402
from tests.training.torch_networks import Network  # noqa: E402

MACS = 95.0
"""Percent of the multiply-adds that the device has to compute."""
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
    copies: float = 0.0
    """Percent of the bytes of all operands that are operands of copies."""
    error: float = float("nan")
    once: float = float("nan")
    half: float = float("nan")
    bound: float = float("nan")
    host: str = ""
    seconds: float = 0.0

    @property
    def right(self) -> bool:
        """Whether it is as it should be."""
        close = self.error <= self.bound or self.error != self.error
        return not self.problem and self.macs >= MACS and close

    def text(self) -> str:
        """In a line."""
        if self.problem:
            return f"{self.network:<14}{self.function:<10}  {self.problem}"
        shares = f"{self.ops:>6.1f} %{self.macs:>7.2f} %{self.crossings:>6}{self.crossed:>12,}{self.instructions:>7}"
        shares += f"{self.copies:>7.1f} %"
        errors = f"{self.error:>9.1e}{self.once:>9.1e}{self.half:>9.1e}{self.bound:>9.1e}"
        return f"{self.network:<14}{self.function:<10}{shares}{errors}{self.seconds:>7.1f}  {self.host}"

    def cells(self) -> str:
        """As a row of a table."""
        shares = f"{self.ops:.1f} % | {self.macs:.2f} % | {self.crossings} | {self.crossed:,} | {self.instructions:,}"
        errors = f"{self.error:.1e} | {self.once:.1e} | {self.half:.1e} | {self.bound:.1e}"
        return f"| {self.network} | {self.function} | {self.problem or f'{shares} | {errors}'} |"


COLUMNS = (
    "network | function | ops | MACs | host calls | bytes | instructions | error | rounded once | PyTorch fp16 | bound"
)
TABLE = f"| {COLUMNS} |\n| --- | --- |{' --: |' * (COLUMNS.count('|') - 1)}"
HEAD = f"{'network':<14}{'function':<10}{'ops':>8}{'MACs':>9}{'calls':>6}{'bytes':>12}{'instr.':>7}" + (
    f"{'copies':>9}{'error':>9}{'once':>9}{'half':>9}{'bound':>9}{'s':>7}  host"
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
    touched = copied = 0
    for instruction in program.instructions[entry.begin : entry.end]:
        row.instructions += 1
        operands = sum(program.tensors[number].nbytes for _, number in operands_of(program, instruction).values())
        touched += operands
        copied += operands * (instruction.opcode is Opcode.COPY)
        if instruction.opcode is Opcode.HOST:
            function = program.functions[instruction.function or 0]
            tensors = [program.tensors[number] for number in (*function.reads, *function.writes)]
            row.crossings += 1
            row.crossed += sum(tensor.nbytes for tensor in tensors)
    row.copies = 100 * copied / max(touched, 1)
    return row, program


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
        with Once([], []):
            once = scores_of(rounded(module), x)
        row.error, row.once = relative(found, wanted), relative(once, wanted)
        row.half = relative(scores_of(halved(module), x), wanted)
        row.bound = bound(max(stores_before(program)) + 1, products(program))
    return row


def bounds(program: Program, device: Device, names: Iterable[str]) -> dict[str, float]:
    """What each gradient may be off."""
    counts, longest = stores_before(program), products(program)
    ways = [(parameters_in(tensor), counts[number]) for tensor, number in device.updated.items()]
    return {name: bound(max(d for tensors, d in ways if name in tensors), longest) for name in names}


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
        decisions = list(device.masks.values()), list(device.pointers.values())
        with Matched(*map(list, decisions)):
            wanted = gradients_of(exact, network, x, y)
        with Once(*map(list, decisions)):
            once = gradients_of(rounded(module), network, x, y, SCALE)
        half = gradients_of(halved(module), network, x, y, SCALE)
        norms = [name for name, m in exact.named_modules() if isinstance(m, nn.BatchNorm2d)]  # pyright: ignore
        missing = [key for key in wanted if key not in found and key.rpartition(".")[0] not in norms]
        both = {key: value for key, value in wanted.items() if key in found}
        limits = bounds(program, device, both)
        each = errors(found, both)
        nearest = max(each, key=lambda name: each[name] / limits[name])
        row.error, row.bound = each[nearest], limits[nearest]
        row.once, row.half = errors(once, both)[nearest], errors(half, both)[nearest]
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
