"""What becomes of cases: built, run, compared with the reference and with onnxruntime."""

from __future__ import annotations

import re
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import numpy as np

from dlc.base.diagnostics import DlcError
from dlc.graph import evaluate
from tests.frontend_onnx.building import parse
from tests.fuzz.batch import Ran, run_all
from tests.fuzz.build import Call, Program, machine_of, program_of
from tests.fuzz.case import Case, Tools
from tests.fuzz.command import commanded
from tests.fuzz.derivative import against_differences, along_a_direction
from tests.fuzz.model import Model
from tests.fuzz.oracle import Opinion, opinion
from tests.fuzz.rounding import Spread, differing, leaves_range, of_another_type, wrong
from tests.fuzz.rules import PRODUCTS
from tests.fuzz.s2train import judged_on_s2train
from tests.fuzz.sensitivity import Evaluator, Runtime
from tests.fuzz.verdict import Verdict, broken, described, general, place_of, refused

PADDING: Final = "0 of a padding times NaN or infinity, which docs/c-interface.md tells of"
TABLES: Final = "NaN of 0 times NaN or infinity: a matrix resizes a fixed dimension, two neighbours an open one"
COMMANDED: Final = 50
"""One case in so many is built by the command, too, with its default flags, and called as it is installed."""
CHECKED_GRADIENTS: Final = 3
"""One in so many gradients is compared with differences."""


def judged(cases: Sequence[Case], tools: Tools, *, oracle: bool = True) -> list[Verdict]:
    """Verdicts on cases that share their tools. Without an `oracle`: not onnxruntime's, which may end the process."""
    if tools.target != "c":
        return [judged_on_s2train(case, tools.target) for case in cases]
    with TemporaryDirectory(prefix="fuzz-") as folder, machine_of(tools):
        found: dict[int, Verdict] = {}
        programs: dict[int, Program] = {}
        for k, case in enumerate(cases):
            made = _built(case, f"g{k}")
            if isinstance(made, Program):
                programs[k] = made
            else:
                found[k] = made
        for (k, program), ran in zip(programs.items(), run_all([*programs.values()], tools, Path(folder)), strict=True):
            try:
                found[k] = compared(program, ran, oracle=oracle)
            except Exception as bug:  # noqa: BLE001 - the reference itself fails
                kind, text = f"the reference fails: {place_of(bug)}", "".join(traceback.format_exception(bug)[-4:])
                found[k] = Verdict(program.case.seed, "fault", kind, text)
        return [found[k] for k in range(len(cases))]


def _built(case: Case, prefix: str) -> Program | Verdict:
    try:
        return program_of(case, prefix)
    except DlcError as refusal:
        return refused(case.seed, refusal)
    except Exception as bug:  # noqa: BLE001 - what the command line calls a bug
        return broken(case.seed, bug)


def compared(program: Program, several: Sequence[Ran], *, oracle: bool = True) -> Verdict:
    """What a program gave in its calls, against the reference, differences and onnxruntime."""
    case = program.case
    runtime = Runtime(case.model) if case.idioms and case.kind == "forward" and oracle else None
    found = [_called(program, call, ran, runtime) for call, ran in zip(program.calls, several, strict=True)]
    fault = next((v for v in found if v.what == "fault"), None)
    if fault is not None:
        return fault
    explained = next((v.kind for v in found if v.kind), "")
    if case.seed % COMMANDED == 0 and not explained and (problem := commanded(program)):
        return Verdict(case.seed, "fault", f"by the command: {general(problem)[:60]}", problem)
    if problem := _of_gradients(case):
        return Verdict(case.seed, "fault", "gradient differs from differences", problem)
    said: Opinion | None = None
    settled = runtime is not None and all(v.judge == runtime.name for v in found)
    for call in program.calls if case.kind == "forward" and not settled else ():
        said = opinion(call.model, parse(call.model.onnx)) if oracle else Opinion(False, "ends the process")
        if not said.explained:
            kind = f"reference differs from onnxruntime: {said.reason}"
            return Verdict(case.seed, "fault", kind, said.detail + _at(call.model, case.model), said)
    counts = sum(v.compared for v in found), sum(v.undecided for v in found)
    judges = ", ".join(dict.fromkeys(v.judge or "the reference, op by op" for v in found))
    return Verdict(case.seed, "same", explained, "", said, counts[0], counts[1], judges)


def _of_gradients(case: Case) -> str:
    """What is wrong with the gradients of a case, as far as it is one that is looked at."""
    if case.idioms:
        return along_a_direction(case) if case.kind != "forward" else ""
    return against_differences(case) if case.kind == "gradient" and case.seed % CHECKED_GRADIENTS == 0 else ""


def _called(program: Program, call: Call, ran: Ran, runtime: Runtime | None) -> Verdict:
    """One call against the reference; of a model of idioms against onnxruntime first."""
    case = program.case
    if ran.outputs is None:
        kind = f"C: {general(re.sub(r'g[0-9]+[.:_]?', '', ran.problem))[:60]}"
        return Verdict(case.seed, "fault", kind, ran.problem + _at(call.model, case.model))
    first = runtime or (Evaluator(call.graph) if case.idioms else None)
    if first is not None and (settled := _settled(program, call, ran, first)):
        return settled
    bad, found = differing(call.graph, call.feeds, ran.outputs)
    decided = sum(int(np.count_nonzero(s.decided)) for s in found.values())
    whole = sum(s.value.size for s in found.values())
    explained = ""
    if bad and _through_padding(program, call, ran, found, bad):
        bad, explained = [], PADDING
    if bad and _through_tables(program, call, ran, found, bad):
        bad, explained = [], TABLES
    if bad and _through_products(program, call):
        bad, explained = [], PRODUCTS
    if bad:
        detail = "; ".join(described(name, ran.outputs[name], found[name]) for name in bad[:3])
        kind = f"C differs from the reference ({case.kind}{', sizes' if case.model.calls else ''})"
        return Verdict(case.seed, "fault", kind, detail + _at(call.model, case.model))
    return Verdict(case.seed, "same", explained, compared=decided, undecided=whole - decided)


def _settled(program: Program, call: Call, ran: Ran, judge: Runtime | Evaluator) -> Verdict | None:
    """What perturbations of all operands say at once; None where they do not explain a difference."""
    case = program.case
    assert ran.outputs is not None
    try:
        bad, found = judge.differing(call.feeds, ran.outputs, case.seed)
    except Exception:  # noqa: BLE001 - onnxruntime raises classes of its own, RuntimeError among them
        return None
    if bad:
        return None
    decided = sum(int(np.count_nonzero(s.decided)) for s in found.values())
    whole = sum(s.value.size for s in found.values())
    return Verdict(case.seed, "same", compared=decided, undecided=whole - decided, judge=judge.name)


def _at(model: Model, whole: Model) -> str:
    """The sizes of a call."""
    shapes = [f"{name}: {list(model.inputs[name].shape)}" for name in whole.dims]
    return f"; called with {', '.join(shapes)}" if shapes else ""


def _through_products(program: Program, call: Call) -> bool:
    """Whether a product may leave the range of its type on the way, where its order is free (see `PRODUCTS`)."""
    model = call.model
    products = [n for n in model.nodes if n.op == "ReduceProd"]
    if not products or program.case.tools.strict:
        return False
    values = {**model.inputs, **model.constants, **evaluate(parse(model.whole.onnx), model.inputs)}
    return any(leaves_range(values[n.inputs[0]]) for n in products)


def _through_padding(program: Program, call: Call, ran: Ran, found: Mapping[str, Spread], bad: Sequence[str]) -> bool:
    """Whether all that differs is NaN, in a program of convolutions of values that are not finite (see `PADDING`)."""
    assert ran.outputs is not None
    if any(of_another_type(ran.outputs[name], found[name].value) for name in bad):
        return False
    convolves = any("Conv" in n.op for n in call.model.nodes) and not program.case.tools.strict
    nan = all(np.isnan(ran.outputs[name][wrong(ran.outputs[name], found[name])]).all() for name in bad)
    return convolves and nan and _not_finite(call, found)


def _through_tables(program: Program, call: Call, ran: Ran, found: Mapping[str, Spread], bad: Sequence[str]) -> bool:
    """Whether all that differs is NaN in the reference, which resizes by matrices, or in C (see `TABLES`)."""
    assert ran.outputs is not None
    if any(of_another_type(ran.outputs[name], found[name].value) for name in bad):
        return False
    resizes = bool(program.case.model.calls) and any(n.op in ("Resize", "Upsample") for n in call.model.nodes)
    spots = {name: wrong(ran.outputs[name], found[name]) for name in bad}
    nan = all((np.isnan(found[n].value[at]) | np.isnan(ran.outputs[n][at])).all() for n, at in spots.items())
    return resizes and nan and _not_finite(call, found)


def _not_finite(call: Call, found: Mapping[str, Spread]) -> bool:
    """Whether a call has values that are not finite."""
    given = (*call.feeds.values(), *call.model.constants.values(), *(s.value for s in found.values()))
    return any(v.dtype.kind == "f" and not np.isfinite(v).all() for v in given)
