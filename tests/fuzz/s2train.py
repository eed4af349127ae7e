"""Cases on S2Train: built as by the plain command, run in the simulator, judged by onnxruntime with fp16's sensitivity.

Every value on the device is rounded to fp16, so operands are perturbed by units of that. What is still too far off is
judged by the reference with every rounding moved by as much, and not at all where fp16 does not hold the values.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np

import dlc
from dlc.base.diagnostics import DlcError
from dlc.graph import evaluate
from tests.frontend_onnx.building import parse
from tests.fuzz.case import Case
from tests.fuzz.model import Array, Model
from tests.fuzz.rounding import Spread, spreads, wrong
from tests.fuzz.sensitivity import Runtime
from tests.fuzz.verdict import Verdict, described, refused

HALF: Final = 2.0**13
"""Units of float32 in one of fp16."""
LARGEST: Final = 3e4
"""Of values that fp16 holds, with room for the sums that give them."""


def judged_on_s2train(case: Case, target: str = "s2train") -> Verdict:
    """What becomes of a forward model, at its first sizes."""
    model = case.model.at(case.model.calls[0]) if case.model.calls else case.model
    feeds = dict(model.inputs)
    with TemporaryDirectory(prefix="fuzz-s2-") as place:
        try:
            dlc.build(model.bytes, target, output=Path(place), cache="off")
            program: Any = dlc.load(place)
            given = {p.name: np.asarray(feeds[p.name], p.type.dtype.numpy) for p in program.signature.inputs}
            got = _as_declared(model, program(**given))
        except DlcError as refusal:
            return refused(case.seed, refusal)
        except Exception as bug:  # noqa: BLE001 - what the command line calls a bug
            return Verdict(case.seed, "fault", f"S2Train: {type(bug).__name__}", f"{bug} {bug.__cause__ or ''}")
    runtime = Runtime(model)
    bad, found = runtime.differing(feeds, got, case.seed, HALF)
    judge = runtime.name
    if bad:
        judge, found = "the reference, op by op", spreads(parse(model.onnx), feeds, 12, 2 * HALF, case.seed)
        bad = [n for n in bad if _beyond(got[n], found[n])]
    decided = sum(int(np.count_nonzero(s.decided)) for s in found.values())
    counts = decided, sum(s.value.size for s in found.values()) - decided
    if not bad:
        return Verdict(case.seed, "same", "", "", None, *counts, judge)
    values = evaluate(parse(model.whole.onnx), feeds).values()
    if any(v.dtype.kind == "f" and not np.abs(v).max(initial=0) < LARGEST for v in values):
        return Verdict(case.seed, "same", "values that fp16 does not hold", "", None, *counts, judge)
    return Verdict(case.seed, "fault", "S2Train differs", "; ".join(described(n, got[n], found[n]) for n in bad[:3]))


def _as_declared(model: Model, got: dict[str, Array]) -> dict[str, Array]:
    """Results in the model's types: the link has float32 and int64 only, as it has for inputs."""
    types = {name: op.dtype.numpy for name, op in zip(model.outputs, parse(model.onnx).outputs, strict=True)}
    return {name: array.astype(types[name]) for name, array in got.items()}


def _beyond(got: Array, want: Spread) -> bool:
    """Whether rounding explains too little; a unit of the largest element may be lost anywhere."""
    if want.value.dtype.kind != "f":
        return bool(wrong(got, want).any())
    finite = np.abs(want.value[np.isfinite(want.value)])
    room = 2.0**-10 * float(finite.max(initial=0.0))
    return bool(wrong(got, Spread(want.value, want.most + room / 8)).any())
