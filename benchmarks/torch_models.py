"""The models of `torch_zoo.py` against eager PyTorch: errors of a forward pass and of a training step, and speed.

    python benchmarks/torch_models.py [WORD…] [--rounds 20] [--threads 1] [--no-inductor] [--json FILE] [--table]

Two doors: `.pt2`, a program of torch.export that dlc reads, differentiates and trains by itself (`dlc build --train`),
and `torch.compile`, AOTAutograd's graphs of forward and backward pass as programs of dlc. An error is the largest
difference, divided by the largest value of the tensor in eager PyTorch. Of a step it is the largest one of all
gradients; where those of a tensor are nearly 0 beside the others, by a hundredth of the largest gradient.

Times are medians in milliseconds of calls that take turns: a forward pass for inference, and a step of loss, gradients
and SGD. Every result is written to the JSON file at once, and what is there is not measured again. `--table` prints a
table of the file: errors, and how many times as fast as eager PyTorch and as Inductor dlc is. Exit code 3 if an error
is above 1e-4.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import torch._dynamo
import torch.nn.functional as F
from torch import Tensor, nn
from torch_zoo import CASES, Case

import dlc

LIMIT = 1e-4
RATE = 0.05
Call = Callable[[], Any]


def difference(found: Tensor, expected: Tensor, least: float = 1e-12) -> float:
    """The largest difference, relative to the largest expected value."""
    return ((found - expected).abs().max() / expected.abs().max().clamp(min=least)).item()


def of_gradients(found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> float:
    """The largest error of all gradients."""
    largest = max(g.abs().max().item() for g in expected.values())
    return max(difference(found[name], g, 1e-2 * largest) for name, g in expected.items())


def gradients_of(model: nn.Module) -> dict[str, Tensor]:
    return {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}


def step_of(model: nn.Module, call: Callable[..., Tensor], x: Sequence[Tensor], target: Tensor) -> Call:
    """A training step with SGD."""
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)

    def step() -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = F.mse_loss(call(*x), target)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def inference(call: Callable[..., Tensor], x: Sequence[Tensor]) -> Call:
    def run() -> Tensor:
        with torch.inference_mode(mode=False), torch.no_grad():
            return call(*x)

    return run


def medians(calls: Mapping[str, Call], rounds: int) -> dict[str, float]:
    """Milliseconds of a call, by name; calls take turns."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()
        call()
    for _ in range(rounds):
        for name, call in calls.items():
            begin = time.perf_counter()
            call()
            times[name].append(time.perf_counter() - begin)
    return {name: 1e3 * statistics.median(found) for name, found in times.items()}


class Bench:
    """One model."""

    def __init__(self, case: Case) -> None:
        torch.manual_seed(0)
        torch._dynamo.reset()
        self.case, self.model, self.x = case, case.make(), case.inputs()
        self.target = torch.randn_like(self.model(*self.x))
        self.state = {k: v.clone() for k, v in self.model.state_dict().items()}

    def copy(self) -> nn.Module:
        """The model, with the weights that it began with."""
        found = self.case.make()
        found.load_state_dict(self.state)
        return found

    def expected(self) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Eager PyTorch: the output at inference, that of a training step, and its gradients."""
        model = self.copy()
        with torch.no_grad():
            calm = model.eval()(*self.x)
        output = model.train()(*self.x)
        F.mse_loss(output, self.target).backward()
        return calm, output.detach(), gradients_of(model)

    def exported(self) -> Any:
        """The training program of dlc."""
        with tempfile.TemporaryDirectory() as place:
            path, out = Path(place) / f"{self.case.name}.pt2", Path(place) / "out"
            program = torch.export.export(self.copy().eval(), self.x).run_decompositions({})
            torch.export.save(program, path)
            train = f"loss=mse,optimizer=sgd{{lr={RATE}}}"
            dlc_command = [str(Path(sys.executable).parent / "dlc")]
            done = subprocess.run(
                [*dlc_command, "build", str(path), "-q", "--train", train, "-o", str(out)],
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                raise RuntimeError(done.stderr or done.stdout)
            return dlc.load(out)


def measured(case: Case, rounds: int, *, inductor: bool) -> dict[str, Any]:
    """Errors and times of a model."""
    bench = Bench(case)
    calm, output, gradients = bench.expected()
    found: dict[str, Any] = {"parameters": sum(p.numel() for p in bench.model.parameters())}
    forward: dict[str, Call] = {"eager": inference(bench.copy().eval(), bench.x)}
    eager = bench.copy().train()
    steps: dict[str, Call] = {"eager": step_of(eager, eager, bench.x, bench.target)}

    begin = time.perf_counter()
    program = bench.exported()
    found["pt2 build"] = time.perf_counter() - begin
    names = [p.name for p in program.arguments]
    arrays = {n: x.numpy() for n, x in zip(names, (*bench.x, bench.target), strict=True)}
    data = {n: arrays[n] for n in names[:-1]}
    found["pt2 forward"] = difference(torch.from_numpy(program(**data)["output"].copy()), calm)
    program.train_step(**arrays)
    own = {n: torch.from_numpy(g.copy()) for n, g in program.gradients().items()}
    found["pt2 step"] = of_gradients(own, {n: g for n, g in gradients.items() if n in own})
    found["pt2 trained"] = f"{len(own)} of {len(gradients)}"
    forward["pt2"], steps["pt2"] = lambda: program(**data), lambda: program.train_step(**arrays)

    for backend in ("dlc", "inductor") if inductor else ("dlc",):
        begin = time.perf_counter()
        torch._dynamo.reset()
        model = bench.copy().train()
        call: Any = torch.compile(model, backend=backend)
        y = call(*bench.x)
        F.mse_loss(y, bench.target).backward()
        found[f"{backend} build"] = time.perf_counter() - begin
        found[f"{backend} forward"] = difference(y.detach(), output)
        found[f"{backend} step"] = of_gradients(gradients_of(model), gradients)
        steps[backend] = step_of(model, call, bench.x, bench.target)
        calm_model = bench.copy().eval()
        quiet: Any = torch.compile(calm_model, backend=backend)
        forward[backend] = inference(quiet, bench.x)
        found[f"{backend} inference"] = difference(forward[backend](), calm)
    found["forward ms"], found["step ms"] = medians(forward, rounds), medians(steps, rounds)
    return found


ERRORS = ("pt2 forward", "pt2 step", "dlc inference", "dlc forward", "dlc step")
PEERS = ("eager", "inductor")

RATIOS = tuple((what, peer, door) for what in ("forward", "step") for door in ("pt2", "dlc") for peer in PEERS)


def table(results: Mapping[str, Mapping[str, Any]]) -> str:
    """Markdown: errors, times of peers divided by those of dlc, and in the last row the geometric means of these."""
    doors = {"pt2": "`.pt2`", "dlc": "compile"}
    heads = ["model", *(f"{what} {doors[door]}, error" for what in ("forward", "step") for door in doors)]
    heads += [f"{what} {doors[door]}, × {peer}" for what, peer, door in RATIOS]
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    ratios: dict[tuple[str, str, str], list[float]] = {key: [] for key in RATIOS}
    for name, found in results.items():
        if "error" in found:
            lines.append(f"| {name} | {found['error'].strip().splitlines()[-1][:100]} |")
            continue
        cells = [f"{found[k]:.0e}" for k in ("pt2 forward", "dlc inference", "pt2 step", "dlc step")]
        for what, peer, door in RATIOS:
            times = found[f"{what} ms"]
            if peer in times:
                ratios[what, peer, door].append(times[peer] / times[door])
                cells.append(f"{ratios[what, peer, door][-1]:.2f}")
            else:
                cells.append("")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    means = [f"{statistics.geometric_mean(found):.2f}" if found else "" for found in ratios.values()]
    lines.append(f"| geometric mean | | | | | {' | '.join(means)} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="models of which the name has a word")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--threads", type=int, default=1, help="of PyTorch; programs of dlc run on one")
    parser.add_argument("--no-inductor", action="store_true")
    parser.add_argument("--json", type=Path, default=Path("torch_models.json"))
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    results: dict[str, Any] = json.loads(options.json.read_text()) if options.json.exists() else {}
    if options.table:
        print(table(results))
        return 0
    torch.set_num_threads(options.threads)
    warnings.filterwarnings("ignore", category=FutureWarning)
    torch._dynamo.config.allow_rnn = True  # otherwise recurrent layers are graph breaks, and run in eager PyTorch
    chosen = [c for c in CASES if not options.words or any(w in c.name for w in options.words)]
    worst = 0.0
    for case in chosen:
        if case.name not in results or "error" in results[case.name]:
            try:
                results[case.name] = measured(case, options.rounds, inductor=not options.no_inductor)
            except Exception:  # noqa: BLE001  # the other models are measured all the same
                results[case.name] = {"error": traceback.format_exc()}
            options.json.write_text(json.dumps(results, indent=1))
        found = results[case.name]
        errors = {k: found[k] for k in ERRORS if k in found}
        worst = max(worst, *errors.values(), 0.0 if errors and "error" not in found else 1.0)
        shown = found.get("error", "").strip()[-300:]
        print(case.name, {k: f"{v:.1e}" for k, v in errors.items()}, shown, flush=True)
    print(f"largest error {worst:.1e}; limit {LIMIT:.0e}")
    return 3 if worst > LIMIT else 0


if __name__ == "__main__":
    sys.exit(main())
