"""Training by dlc against PyTorch, with equal weights and equal data: every optimizer, five kinds of networks.

    python benchmarks/training_agreement.py [WORD…] [--through pipeline] [--steps 50] [--double] [--json]

Every row trains a network of `tests/training/torch_networks.py` with one optimizer, exported for inference, built by
dlc as C, and run beside PyTorch: parameters after one step (at most 1e-4 apart, relative) and losses of all steps (at
most 1 % apart). Words choose rows by parts of their names. `--through final` and `immediate` build with `--train`,
`pipeline` builds one program of the pipeline `autodiff{…},infer`, and `interpreter` builds nothing.

Elements of a gradient that are zero but for rounding decide nothing, see `tests/training/agreement.py`; how many they
are and the error with them is shown. `--double` trains in PyTorch in double precision besides: how far apart PyTorch's
own two precisions come is a measure of what rounding alone does. The command fails if a row does not agree.

Batch normalisation over few samples multiplies rounding from step to step, until two correct programs part. With
`--precision double` both train in double precision, where that takes far more steps: what is left is the method.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from dlc_frontend_onnx.frontend import Onnx

sys.path.insert(0, str(Path(__file__).parent.parent))

from dlc import Report, Source
from dlc.training.step.step import initial_values
from tests.models.building import Bench
from tests.training.agreement import Agreement, InPlace, Interpreted, Learner, Trained, compare
from tests.training.nets import step_of
from tests.training.torch_networks import NARROW, NETWORKS, Network

OPTIMIZERS = (
    "sgd{lr=0.02}",
    "sgd{lr=0.01 momentum=0.9}",
    "sgd{lr=0.01 momentum=0.9 nesterov=yes weight-decay=0.01}",
    "adam{lr=0.001}",
    "adam{lr=0.001 weight-decay=0.01}",
    "adamw{lr=0.001 weight-decay=0.05}",
    "adagrad{lr=0.01}",
    "rmsprop{lr=0.0003}",
    "rmsprop{lr=0.0001 momentum=0.9 centered=yes}",
    "lamb{lr=0.01}",
)
RATES = {"resnet18": 0.01, "resnet18 adagrad": 0.001}
"""What learning rates are multiplied by, of a network or of one with an optimizer. By statistics of 16 samples, steps
of full size jump about in narrow valleys, which doubles a difference every few steps: PyTorch's own two precisions part
by several percent (`--double` tells), and nothing could be compared. With these steps they stay within 0.3 %, and the
loss still falls. The first step of Adagrad has the full rate in every element, ten times that of Adam here."""


def learner(source: Path, place: Path, network: Network, optimizer: str, through: str) -> Learner:
    """What dlc makes of a model."""
    options = f"loss={network.loss} optimizer={optimizer}"
    if through == "interpreter":
        return Interpreted(step_of(Onnx().parse(Source(source), Report()), options))
    bench, out = Bench(place / "cache"), place / f"{source.stem}-{through}"
    if through == "pipeline":
        program = bench.build(source, out, "-p", f"autodiff{{{options}}},infer").program
        return InPlace(program, initial_values(step_of(Onnx().parse(Source(source), Report()), options)))
    train = ",".join([*options.split(" ", 1), f"updates={through}"])
    return Trained(bench.build(source, out, "--train", train).program)


def slower(optimizer: str, factor: float) -> str:
    """The optimizer with its learning rate multiplied."""
    return re.sub(r"lr=([0-9.]+)", lambda m: f"lr={float(m[1]) * factor:.6g}", optimizer)


def row(name: str, network: Network, optimizer: str, place: Path, given: argparse.Namespace) -> dict[str, Any]:
    """One training, as it is printed."""
    batch = given.batch or network.batch
    module, source = network.module(), place / f"{name}.onnx"
    if given.precision == "double":
        module = module.double()
    source.write_bytes(network.onnx(module, batch))
    start = time.monotonic()
    made = learner(source, place, network, optimizer, given.through)
    built = time.monotonic() - start
    data = network.data(given.steps, batch)
    found: Agreement = compare(made, module, optimizer, data, given.steps, given.double)
    error, where = found.worst
    return {
        "network": name,
        "optimizer": optimizer,
        "batch": batch,
        "steps": given.steps,
        "error": error,
        "where": where,
        "undetermined": found.undetermined,
        "error_everywhere": found.everywhere,
        "apart": found.apart,
        "rounding": found.rounding if given.double else None,
        "first": found.losses[0][1],
        "last": found.losses[-1][1],
        "ok": found.ok,
        "build_seconds": built,
        "seconds": time.monotonic() - start - built,
    }


HEAD = (
    f"{'network':<12} {'optimizer':<56} {'1 step':>8} {'(all)':>8} {'undet.':>7} "
    f"{'apart %':>8} {'f64 %':>8} {'loss':>6} → {'loss':>6}"
)


def line(r: dict[str, Any]) -> str:
    rounding = "" if r["rounding"] is None else f"{100 * r['rounding']:.4f}"
    return (
        f"{r['network']:<12} {r['optimizer']:<56} {r['error']:8.1e} {r['error_everywhere']:8.1e} "
        f"{r['undetermined']:7.2%} {100 * r['apart']:8.4f} {rounding:>8} {r['first']:6.3f} → {r['last']:6.3f} "
        f"{'' if r['ok'] else 'FAIL ' + r['where']}"
    ).rstrip()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("words", nargs="*", help="parts of names of networks and optimizers; a row has to have all")
    parser.add_argument("--through", default="pipeline", choices=("pipeline", "final", "immediate", "interpreter"))
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--batch", type=int, default=0, help="samples in a step; 0: each network's own")
    parser.add_argument("--precision", default="single", choices=("single", "double"), help="of dlc and PyTorch")
    parser.add_argument("--narrow", action="store_true", help="networks with fewer channels and shorter text")
    parser.add_argument("--double", action="store_true", help="PyTorch in double precision too, all steps")
    parser.add_argument("--place", type=Path, help="keep what is built here; by default nothing stays")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="dlc-agreement-") as folder:
        place = given.place or Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        if not given.json:
            print(HEAD)
        for name, network in (NARROW if given.narrow else NETWORKS).items():
            for text in OPTIMIZERS:
                kind = text.partition("{")[0]
                optimizer = slower(text, RATES.get(f"{name} {kind}", RATES.get(name, 1.0)))
                if all(word in f"{name} {optimizer}" for word in given.words):
                    rows.append(row(name, network, optimizer, place, given))
                    if not given.json:
                        print(line(rows[-1]), flush=True)
    if given.json:
        print(json.dumps(rows, indent=2))
    return 0 if rows and all(r["ok"] for r in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
