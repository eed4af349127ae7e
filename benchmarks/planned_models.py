"""Arena over lower bound of networks, and the seconds that planning takes.

    python benchmarks/planned_models.py [WORD…] [--strategy auto] [--train loss=cross-entropy] [--target c{cpu=generic}]
                                        [--copies]

The onnx package's nine light models with random weights, MobileNetV2, a BERT-like and a GPT-like network, an MLP and
the cell of DARTS_V2; `--copies` has concatenations copy what they join. With
`--train`, the training step of each that has one label per row: every function is a line. A network is compiled once up
to the order of its steps, without schedules of kernels, then planned. `seconds` are of the processor, for offsets
alone. Lines whose arena is above the bound say what is proven; the exit status is 1 if there is one.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import onnx

from dlc import Report
from dlc.base.diagnostics import DlcError
from dlc.cli.functions import by_function
from dlc.cli.options import BuildOptions, CacheOptions
from dlc.cli.terminal import Terminal
from dlc.cli.workspace import Workspace
from dlc.passes.plan_memory import PlanMemory
from tests.models.zoo import LIGHT, bert, darts_cell, gpt, light, mlp, mobilenet_v2

PIPELINE = "integers,fold-constants,simplify,expand,fold-constants,lower,layout,parts,fuse,order,plan-memory"
MODELS: Mapping[str, Callable[[], onnx.ModelProto]] = {
    **{name: (lambda name=name: light(name, 1)) for name in LIGHT},
    "mobilenet_v2": mobilenet_v2,
    "bert": bert,
    "gpt": gpt,
    "mlp": mlp,
    "darts_cell": darts_cell,
}


def main() -> None:
    """See above."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--strategy", default="auto")
    parser.add_argument("--train")
    parser.add_argument("--target", default="c{cpu=generic}")
    parser.add_argument("--copies", action="store_true")
    arguments = parser.parse_args()
    above = 0
    for name, make in MODELS.items():
        if any(word in name for word in arguments.words or [""]):
            above += model(name, make(), arguments.strategy, arguments.train, arguments.target, arguments.copies)
    sys.exit(above > 0)


def model(name: str, made: onnx.ModelProto, strategy: Any, train: str | None, target: str, copies: bool) -> int:
    """Plan the functions of a network; how many are above the bound."""
    space = Workspace.open(Terminal(quiet=True), CacheOptions("off"))
    steps: list[Any] = []
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, f"{name}.onnx")
        path.write_bytes(made.SerializeToString())
        try:
            settings = ("parts.bytes=0",) * copies
            prepared = space.prepare(BuildOptions(str(path), target, PIPELINE, train=train, settings=settings))
            with space.cache() as cache:
                space.compile(prepared, cache, stop_after="order", on_step=steps.append)
        except DlcError as problem:
            print(f"{name:>16} {problem.diagnostics[0].message[:100]}", flush=True)
            return 0
    stage = next(s.stage for s in prepared.pipeline.whole if isinstance(s.stage, PlanMemory))
    stage = PlanMemory(strategy=strategy, align=stage.align).with_allocators(stage.allocators)
    above = 0
    for function, own in by_function(steps).items():
        ordered = own[-1].handle.value
        begin = time.process_time()
        plan = stage.run(ordered, Report())
        seconds = time.process_time() - begin
        arena, bound = plan.memory, int(plan.facts["bound"])
        floor = int(plan.facts.get("floor", bound))
        known = "" if arena == bound else " (optimal)" if arena == floor else f" (floor {floor:,})"
        above += arena > bound
        gap = 100 * (arena - bound) / bound if bound else 0.0
        title = f"{name} {function}".strip()
        print(
            f"{title:>26} {len(plan.steps):5} steps  arena {arena:>12,}  bound {bound:>12,}  gap {gap:.2f} %{known}  "
            f"{seconds:.2f} s  {plan.facts['method']}",
            flush=True,
        )
    return above


if __name__ == "__main__":
    main()
