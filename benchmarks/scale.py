"""How the time of a build grows with the size of a model: wide, long and repetitive graphs with random weights.

    python benchmarks/scale.py [--families branches-sum,lstm] [--sizes 500,1000] [--lib shared] [--limit 1.1] [--json]
    python benchmarks/scale.py --parameters 1.2e9 [--json]      what weights cost: see weights.py

Every model is made on the spot and built once per size with `dlc build --cache off`; a stage's time is that which dlc
reports for its steps. `cpu` is the processor time of the whole build, compilers included, above that of a model of one
branch or step: other work on the machine hardly changes it. The exponent is that of the power of the size which fits
the times best (least squares of logarithms): 1 where twice the size takes twice the time. The exit status is 0 if the
exponent of every family's `cpu` is at most the limit.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
import weights
from onnx import TensorProto, helper, numpy_helper

STAGES: Final = ("import", "passes", "plan", "emit", "rest", "compiler")
"""`rest` is what no step tells: the start of Python, digests, the files that are installed."""
OWN: Final = ("import", "passes", "plan", "emit")
"""Stages whose sum is judged: the constant start of Python in `rest` would hide how they grow."""
_OF_STEP: Final = {
    "onnx": "import",
    "workspaces": "plan",
    "order": "plan",
    "plan-memory": "plan",
    "emit": "emit",
    "build": "compiler",
}
"""Stage of a step by its first word; all others are passes."""
WIDTH: Final = 64
"""Elements of a vector."""
UNITS: Final = 32
"""Of a recurrent layer."""


@dataclass
class Net:
    """Nodes and weights as they are written down. The input is `x`, of WIDTH elements or as `shape` says."""

    nodes: list[onnx.NodeProto]
    weights: list[onnx.TensorProto]
    shape: tuple[int, ...] = (WIDTH,)

    def add(self, op: str, *inputs: str, **attributes: Any) -> str:
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], **attributes))
        return name

    def weight(self, *shape: int) -> str:
        values = np.random.default_rng(len(self.weights)).standard_normal(shape, np.float32)
        return self.constant(values / np.float32(np.sqrt(shape[-1])))

    def constant(self, values: np.ndarray[Any, Any]) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(values, name))
        return name

    def save(self, path: Path, outputs: Sequence[str]) -> None:
        graph = helper.make_graph(
            self.nodes,
            path.stem,
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, self.shape)],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
            self.weights,
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        path.write_bytes(model.SerializeToString())


def _branches(net: Net, n: int) -> list[str]:
    return [net.add("Softmax", net.add("Mul", "x", net.weight(WIDTH))) for _ in range(n)]


def branches_sum(net: Net, n: int) -> list[str]:
    """Branches side by side, with a reduction each, whose results are added."""
    return [net.add("Sum", *_branches(net, n))]


def branches_concat(net: Net, n: int) -> list[str]:
    """The same, joined into one tensor."""
    return [net.add("Concat", *_branches(net, n), axis=0)]


def maps_concat(net: Net, n: int) -> list[str]:
    """Branches without a reduction, joined into one tensor."""
    return [net.add("Concat", *(net.add("Tanh", net.add("Mul", "x", net.weight(WIDTH))) for _ in range(n)), axis=0)]


def lstm(net: Net, n: int) -> list[str]:
    """ONNX's LSTM over n steps."""
    net.shape = (n, 1, UNITS)
    weights = [net.weight(1, 4 * UNITS, UNITS) for _ in range(2)]
    net.nodes.append(helper.make_node("LSTM", ["x", *weights], ["y"], hidden_size=UNITS))
    return ["y"]


def lstm_steps(net: Net, n: int) -> list[str]:
    """The steps of an LSTM as nodes of their own, as exporters that unroll write them."""
    net.shape = (n, 1, UNITS)
    w, r = net.weight(UNITS, 4 * UNITS), net.weight(UNITS, 4 * UNITS)
    h = c = net.constant(np.zeros((1, UNITS), np.float32))
    found: list[str] = []
    for k in range(n):
        x = net.add("Gather", "x", net.constant(np.asarray(k, np.int64)), axis=0)
        gates = f"g{k}"
        summed = net.add("Add", net.add("MatMul", x, w), net.add("MatMul", h, r))
        parts = [f"{gates}{letter}" for letter in "iofc"]
        net.nodes.append(helper.make_node("Split", [summed], parts, axis=1))
        i, o, f = (net.add("Sigmoid", part) for part in parts[:3])
        c = net.add("Add", net.add("Mul", f, c), net.add("Mul", i, net.add("Tanh", parts[3])))
        h = net.add("Mul", o, net.add("Tanh", c))
        found.append(h)
    return [net.add("Concat", *found, axis=0)]


def concats(net: Net, n: int) -> list[str]:
    """Concatenations one after another, each of a part of the one before it and of new values."""
    t = "x"
    first, half = (net.constant(np.asarray([v], np.int64)) for v in (0, WIDTH // 2))
    for _ in range(n):
        kept = net.add("Slice", t, first, half)
        t = net.add("Softmax", net.add("Concat", net.weight(WIDTH // 2), kept, axis=0))
    return [t]


def outputs(net: Net, n: int) -> list[str]:
    """A chain of which every value is an output."""
    found = ["x"]
    for _ in range(n):
        found.append(net.add("Tanh", found[-1]))
    return found[1:]


def chain(net: Net, n: int) -> list[str]:
    """Layers one after another, with weights of their own."""
    t = "x"
    for k in range(n):
        t = net.add(("Tanh", "Softmax")[k % 2], net.add("Add", t, net.weight(WIDTH)))
    return [t]


FAMILIES: Final[Mapping[str, tuple[Callable[[Net, int], list[str]], tuple[int, ...]]]] = {
    "branches-sum": (branches_sum, (500, 1000, 2000, 5000)),
    "branches-concat": (branches_concat, (500, 1000, 2000, 5000)),
    "maps-concat": (maps_concat, (500, 1000, 2000, 5000)),
    "lstm": (lstm, (256, 512, 1024, 2048)),
    "lstm-steps": (lstm_steps, (256, 512, 1024, 2048)),
    "concats": (concats, (125, 250, 500, 1000)),
    "outputs": (outputs, (250, 500, 1000, 2000)),
    "chain": (chain, (250, 500, 1000, 2000)),
}


def built(path: Path, lib: str) -> dict[str, float]:
    """Seconds per stage of a build in a process of its own."""
    command = [sys.executable, "-m", "dlc", "build", path.name, "-o", "out", "--cache", "off", "--json"]
    command += ["--target", f"c{{lib={lib}}}", "--set", "onnx.max-operands=1000000", "--set", "onnx.max-steps=1000000"]
    start, spent = time.perf_counter(), _spent()
    done = subprocess.run(command, cwd=path.parent, capture_output=True, text=True, check=False)
    seconds, spent = time.perf_counter() - start, _spent() - spent
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stderr}")
    times: dict[str, float] = dict.fromkeys(STAGES, 0.0)
    for step in json.loads(done.stdout)["steps"]:
        stage = _OF_STEP.get(step["step"].partition("{")[0].partition(" ")[0], "passes")
        times[stage] += step["milliseconds"] / 1000
    return {**times, "rest": seconds - sum(times.values()), "cpu": spent}


def _spent() -> float:
    """Processor seconds of all processes that this one has waited for, and of theirs."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def exponent(sizes: Sequence[int], times: Sequence[float]) -> float:
    """The slope of the line through the logarithms of times over those of sizes."""
    if len(sizes) < 2:
        return float("nan")
    x, y = np.log(np.asarray(sizes, float)), np.log(np.maximum(times, 1e-4))
    return float(np.polyfit(x, y, 1)[0])


@dataclass(frozen=True)
class Measured:
    """A family: seconds per stage for each size."""

    name: str
    sizes: tuple[int, ...]
    times: tuple[Mapping[str, float], ...]

    def of(self, stages: Sequence[str]) -> list[float]:
        return [sum(t[s] for s in stages) for t in self.times]

    @property
    def exponents(self) -> dict[str, float]:
        found = {stage: exponent(self.sizes, self.of([stage])) for stage in STAGES}
        return {**found, "dlc": exponent(self.sizes, self.of(OWN)), "cpu": exponent(self.sizes, self.of(["cpu"]))}


def measured(names: Sequence[str], sizes: tuple[int, ...], lib: str) -> Iterator[Measured]:
    for name in names:
        _, usual = FAMILIES[name]
        start = _of_size(name, 1, lib)["cpu"]
        found = [_of_size(name, n, lib) for n in sizes or usual]
        yield Measured(name, sizes or usual, tuple({**t, "cpu": t["cpu"] - start} for t in found))


def _of_size(name: str, n: int, lib: str) -> dict[str, float]:
    make, _ = FAMILIES[name]
    with tempfile.TemporaryDirectory(prefix="dlc-scale-") as folder:
        net = Net([], [])
        path = Path(folder) / "model.onnx"
        net.save(path, make(net, n))
        return built(path, lib)


def table(found: Measured) -> str:
    """Seconds per stage and size, and the exponents."""
    columns = (*STAGES, "dlc", "cpu")
    lines = [f"{found.name:16}" + "".join(f"{c:>10}" for c in columns)]
    for k, n in enumerate(found.sizes):
        values = [found.of([s])[k] for s in STAGES] + [found.of(OWN)[k], found.of(["cpu"])[k]]
        lines.append(f"{n:16,}" + "".join(f"{v:9.2f}s" for v in values))
    lines.append(f"{'exponent':>16}" + "".join(f"{found.exponents[c]:10.2f}" for c in columns))
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--families", default=",".join(FAMILIES), help="comma-separated names")
    parser.add_argument("--sizes", default="", help="comma-separated sizes instead of each family's own")
    parser.add_argument("--lib", default="shared", choices=("shared", "static", "none"), help="none runs no C compiler")
    parser.add_argument("--limit", type=float, default=1.1, help="largest exponent of the processor time")
    parser.add_argument("--json", action="store_true", help="one JSON document instead of tables")
    parser.add_argument("--parameters", type=float, help="build a GPT of about so many instead of the families")
    options = parser.parse_args()
    if options.parameters:
        return weights.report(options.parameters, as_json=options.json)
    names = options.families.split(",")
    if unknown := [name for name in names if name not in FAMILIES]:
        parser.error(f"no family {unknown[0]}: there are {', '.join(FAMILIES)}")
    sizes = tuple(int(n) for n in options.sizes.split(",") if n)
    results: list[Measured] = []
    for found in measured(names, sizes, options.lib):
        results.append(found)
        if not options.json:
            print(table(found), flush=True)
    steep = [m.name for m in results if m.exponents["cpu"] > options.limit]
    if options.json:
        rows = [{"family": m.name, "sizes": m.sizes, "seconds": m.times, "exponents": m.exponents} for m in results]
        print(json.dumps({"processors": os.cpu_count(), "limit": options.limit, "families": rows, "steep": steep}))
    else:
        print(f"{os.cpu_count()} processors; " + (f"above {options.limit}: {', '.join(steep)}" if steep else "all fit"))
    return 1 if steep else 0


if __name__ == "__main__":
    sys.exit(main())
