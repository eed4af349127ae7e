"""onnxruntime as an oracle that nobody of this project wrote."""

from __future__ import annotations

import re
from collections.abc import Iterator, Set
from dataclasses import dataclass
from typing import Final

import numpy as np

from dlc.graph import Graph, evaluate
from tests.frontend_onnx.building import parse, runtime
from tests.fuzz.model import Array, Model
from tests.fuzz.narrow import narrow_types, readable, wide
from tests.fuzz.rounding import differing, of_another_type
from tests.fuzz.rules import RULES, Values, not_finite
from tests.fuzz.values import MOVEMENTS

UNSTABLE: Final = "onnxruntime gives another value in another run: it reads memory that it did not write"
REPEATS: Final = 8
OVERFLOWS: Final = "float16 that overflows between nodes: onnxruntime runs nodes that it has no float16 for in f32"


@dataclass(frozen=True)
class Opinion:
    """What onnxruntime says of the reference's results."""

    ran: bool
    reason: str = ""
    """Why it did not run, or the name of the rule by which it differs, or where it differs."""
    explained: bool = True
    detail: str = ""


def opinion(model: Model, graph: Graph) -> Opinion:
    """Whether onnxruntime computes what the reference does, and if not, at which node the two part."""
    try:
        named = ran(model, graph)
    except Exception as problem:  # noqa: BLE001 - onnxruntime raises classes of its own, RuntimeError among them
        return Opinion(False, _reason(str(problem)))
    bad, _ = differing(graph, model.inputs, named, widely=True)
    if not bad:
        return Opinion(True)
    if any(not _same(named[name], other[name]) for other in _repeated(model, graph) for name in bad):
        return Opinion(True, UNSTABLE)
    return _parting(model, {name: named[name] for name in bad})


def ran(model: Model, graph: Graph) -> dict[str, Array]:
    """What onnxruntime gives, by names of outputs."""
    names, given = graph.names, model
    if narrow_types(model):
        whole = parse(model.whole.onnx)
        given = readable(model, {name: o.dtype.numpy for name, o in zip(whole.names, whole.outputs, strict=True)})
        names = given.outputs
    return dict(zip(graph.names, runtime(given.onnx, names, given.inputs), strict=True))


def _repeated(model: Model, graph: Graph) -> Iterator[Values]:
    """What onnxruntime gives when it is asked again."""
    for _ in range(REPEATS):
        yield ran(model, graph)


def _same(a: Array, b: Array) -> bool:
    return np.array_equal(a, b, equal_nan=a.dtype.kind == "f")


def _parting(model: Model, outputs: Values) -> Opinion:
    """The first node, in the model's order, whose result differs although its operands do not.

    `outputs` are those of the model that differ, with what onnxruntime gave. How far rounding may move a result is
    sampled, so that one at the limit may pass as part of the whole, and what onnxruntime leaves undefined is another
    value in every run: these have differed, and are not judged again. Where they were only moved, neither is what they
    were moved from.
    """
    whole = model.whole
    try:
        graph = parse(whole.onnx)
        got = ran(whole, graph)
    except Exception as problem:  # noqa: BLE001 - an output of each value may ask for what the model itself does not
        if _overflows(model):
            return Opinion(True, OVERFLOWS)
        return Opinion(True, f"somewhere; {_reason(str(problem))}", False)
    bad = {*differing(graph, model.inputs, got, widely=True)[0], *outputs}
    got |= outputs
    # Of operands that a movement joins, one may differ by no more than rounding: each in turn is taken for the cause.
    most = max((len(n.inputs) for n in model.nodes if n.op in MOVEMENTS), default=1)
    wanted = {name: wide(v) for name, v in evaluate(graph, model.inputs).items()}
    bad |= _undefined(model, bad, got, wanted)
    found = [_first(model, got, wanted, _moved(model, bad, got, wanted, k)) for k in range(most)]
    return next((opinion for opinion in found if opinion.explained), found[0])


def _moved(model: Model, bad: Set[str], got: Values, wanted: Values, choice: int) -> set[str]:
    """Values that differ, and one operand of every movement that gave such a value."""
    bad = set(bad)
    for node in reversed(model.nodes):
        if node.op in MOVEMENTS and bad & set(node.outputs) and not bad & set(node.inputs):
            known = dict.fromkeys(n for n in node.inputs if n in wanted and n in got)
            far = [n for n in known if not _same(got[n], wanted[n])]
            bad |= {far[choice % len(far)]} if far else set()
    return bad


def _undefined(model: Model, bad: Set[str], got: Values, wanted: Values) -> set[str]:
    """What onnxruntime leaves undefined among that which bad values come from: it may be right by chance, once."""
    values = {name: wide(v) for name, v in {**model.inputs, **model.constants, **got}.items()}
    reached, found = set(bad), set[str]()
    for node in reversed(model.nodes):
        if reached & set(node.outputs):
            reached |= set(node.inputs)
            if any(r.undefined and node.op in r.ops and r.applies(node, values, wanted) for r in RULES):
                found |= set(node.outputs) & wanted.keys()
    return found


def _first(model: Model, got: Values, wanted: Values, bad: Set[str]) -> Opinion:
    """Of the first node whose results are bad although its operands are not."""
    values = {name: wide(v) for name, v in {**model.inputs, **model.constants, **got}.items()}
    for node in model.nodes:
        if bad & set(node.outputs) and not bad & set(node.inputs):
            rule = next((r for r in RULES if node.op in r.ops and r.applies(node, values, wanted)), None)
            types = ", ".join(str(values[n].dtype) for n in node.inputs if n in values)
            special = " of values that are not finite" if not_finite(node, values, wanted) else ""
            reason = rule.name if rule else f"{node.op} ({types}){special}"
            name = next(o for o in node.outputs if o in bad)
            return Opinion(True, reason, rule is not None, _shown(got[name], wanted[name]))
    return Opinion(True, "only where no value between is an output", False)


def _overflows(model: Model) -> bool:
    """Whether the reference gives a float16 value between nodes that is not finite, of operands that are."""
    given = {**model.inputs, **model.constants}
    if any(v.dtype == np.float16 and not np.isfinite(v).all() for v in given.values()):
        return False
    values = evaluate(parse(model.whole.onnx), model.inputs)
    return any(v.dtype == np.float16 and not np.isfinite(v).all() for v in values.values())


def _shown(got: Array, want: Array) -> str:
    """The first elements that are not close."""
    if of_another_type(got, want):
        return f"{got.dtype}{list(got.shape)} of onnxruntime, {want.dtype}{list(want.shape)} of dlc"
    far = ~np.isclose(got.astype(np.float64), want.astype(np.float64), rtol=1e-5, atol=0.0, equal_nan=True)
    unequal = np.argwhere(far if far.any() else got != want)
    if not len(unequal):
        return "equal in this run"
    at = tuple(int(k) for k in unequal[0])
    return f"at {list(at)} {got[at]} of onnxruntime, {want[at]} of dlc; {far.sum()} of {far.size} elements"


def _reason(text: str) -> str:
    """A message without what is particular to a model."""
    found = re.search(r"Could not find an implementation for (\w+)\(\d+\)", text)
    if found:
        return f"has no {found[1]} of this type"
    return re.sub(r"'[^']*'|\"[^\"]*\"|\b[vxc]\d+\b|\d+|\{[^}]*\}", "#", text)[:160]
