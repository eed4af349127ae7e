"""How the time and memory of planning grow: bare buffers, a graph of thousands of tensors, ResNet-50, a CSV file.

    python benchmarks/planner_scale.py [--counts 1000,2000,5000,10000,20000] [--strategies greedy,search,auto]
                                       [--graph 20000] [--resnet 32] [--lines 1000000]

Each case runs in a process of its own. `seconds` is its processor time, without imports and without making the
instance; `MiB` the most memory that the process had, everything included. The exponent is that of the power of the
count which fits the times best (least squares of logarithms): n log n from 1,000 to 20,000 is 1.1. `--graph N` orders
and plans N elementwise operations whose operands lie up to fifty back. `--resnet B` does so with a training step of the
onnx package's ResNet-50 at batch B (0: left out), `--lines N` plans a file of N buffers with `dlc plan`.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from allocation import made

from dlc import Report
from dlc.passes.order import Order
from dlc.passes.plan_memory import PlanMemory
from dlc.placement import check_placement, place


def main() -> None:
    """See above."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--counts", default="1000,2000,5000,10000,20000")
    parser.add_argument("--strategies", default="greedy,search")
    parser.add_argument("--graph", type=int, default=20_000)
    parser.add_argument("--resnet", type=int, default=32)
    parser.add_argument("--lines", type=int, default=1_000_000)
    parser.add_argument("--case", help="one case, as JSON: for the processes that are measured")
    arguments = parser.parse_args()
    if arguments.case:
        name, *given = json.loads(arguments.case)
        print(json.dumps(CASES[name](*given)))
        return
    counts = [int(n) for n in arguments.counts.split(",") if n]
    for strategy in filter(None, arguments.strategies.split(",")):
        times = [(n, measured("buffers", n, strategy)["seconds"]) for n in counts]
        print(f"{strategy}: exponent {exponent(times):.2f}", flush=True)
    if arguments.graph:
        measured("graph", arguments.graph)
    if arguments.resnet:
        measured("resnet", arguments.resnet)
    if arguments.lines:
        measured("lines", arguments.lines)


def measured(*case: object) -> Mapping[str, Any]:
    """What a case says in a process of its own, printed."""
    command = [sys.executable, __file__, "--case", json.dumps(case)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    shown = ", ".join(f"{k} {v:,.2f}" if isinstance(v, float) else f"{k} {v}" for k, v in found.items())
    print(f"{' '.join(map(str, case)):>24}: {shown}", flush=True)
    return found


def exponent(times: Sequence[tuple[int, float]]) -> float:
    """Slope of the logarithms of times over those of counts."""
    points = [(math.log(n), math.log(max(seconds, 1e-3))) for n, seconds in times]
    x, y = (sum(p[k] for p in points) / len(points) for k in (0, 1))
    spread = sum((a - x) ** 2 for a, _ in points)
    return sum((a - x) * (b - y) for a, b in points) / spread if spread else 0.0


def used() -> float:
    """MiB that this process, or one that it waited for, had at most."""
    return max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)) / 1024


def buffers(count: int, strategy: Any) -> dict[str, Any]:
    """Chains of short-lived buffers, some that live for longer."""
    from dlc_backend_c.packing import BranchAndBound

    instance = made(count)
    begin = time.process_time()
    found = place(instance, align=64, strategy=strategy, allocator=BranchAndBound)
    seconds = time.process_time() - begin
    assert check_placement(instance, found.offsets, 64, found.arena) == []
    return {"seconds": seconds, "MiB": used(), "gap_percent": 100 * found.gap, "method": found.method}


def graph(count: int) -> dict[str, Any]:
    """Elementwise operations with operands up to fifty back."""
    from dlc.base.types import Type, f32
    from dlc.graph import Input, Op, make_graph
    from dlc.ops.elementwise import Add, Relu
    from dlc.passes.lower import Lower

    draw = random.Random(0)
    x = Input("x", Type(f32, (1024,)))
    values: list[Op] = [x]
    for _ in range(count):  # every value is read by the next one, so that none is dead
        values.append(Add(values[-1], draw.choice(values[-50:])) if draw.random() < 0.7 else Relu(values[-1]))
    kernels = Lower().run(make_graph((x,), {"y": values[-1]}), Report())
    begin = time.process_time()
    plan = Order().run(kernels, Report())
    ordered = time.process_time()
    plan = PlanMemory().run(plan, Report())
    seconds = {"order": ordered - begin, "plan_memory": time.process_time() - ordered}
    return {"operations": len(plan.steps), **seconds, "MiB": used(), "overhead_percent": plan.facts["overhead_percent"]}


def resnet(batch: int) -> dict[str, Any]:
    """Every function of a training step of ResNet-50."""
    import onnx
    from onnx import numpy_helper

    from dlc.cli.functions import by_function
    from dlc.cli.options import BuildOptions, CacheOptions
    from dlc.cli.terminal import Terminal
    from dlc.cli.workspace import Workspace
    from tests.models.zoo import light

    model = light("resnet50", 1)
    for port in (*model.graph.input, *model.graph.output):
        port.type.tensor_type.shape.dim[0].dim_value = batch
    del model.graph.value_info[:]
    for tensor in model.graph.initializer:  # a shape that is written out
        if tensor.data_type == onnx.TensorProto.INT64 and list(tensor.dims) == [2]:
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor) * [batch, 1], tensor.name))
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "resnet50.onnx")
        path.write_bytes(model.SerializeToString())
        space = Workspace.open(Terminal(quiet=True), CacheOptions("off"))
        pipeline = "fold-constants,simplify,expand,lower,fuse,order,plan-memory"
        options = BuildOptions(str(path), "c{cpu=generic}", pipeline, train="loss=cross-entropy")
        prepared = space.prepare(options)
        steps: list[Any] = []
        with space.cache() as cache:
            space.compile(prepared, cache, stop_after="order", on_step=steps.append)
    found: dict[str, Any] = {}
    for name, own in by_function(steps).items():
        plan = own[-1].handle.value
        begin = time.process_time()
        planned = PlanMemory().run(plan, Report())
        spent = time.process_time() - begin
        found[name] = (
            f"{len(plan.steps)} steps, order {own[-1].made_ms / 1000:.2f} s, plan-memory {spent:.2f} s, "
            f"arena {planned.memory:,}, bound {planned.facts['bound']:,};"
        )
    return {**found, "MiB": used()}


def lines(count: int) -> dict[str, Any]:
    """`dlc plan` of a file of buffers."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "many.csv")
        rows = (f"b{b.id},{b.birth},{b.death},{b.size}\n" for b in made(count))
        path.write_text("id,lower,upper,size\n" + "".join(rows))
        command = [sys.executable, "-m", "dlc", "plan", str(path), "-o", str(Path(directory, "placed.csv"))]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "exit_code": done.returncode,
        "seconds": spent.ru_utime,
        "MiB": used(),
        "says": (done.stdout or done.stderr)[:160],
    }


CASES: Mapping[str, Callable[..., dict[str, Any]]] = {
    "buffers": buffers,
    "graph": graph,
    "resnet": resnet,
    "lines": lines,
}

if __name__ == "__main__":
    main()
