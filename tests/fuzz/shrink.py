"""Delta debugging: the smallest case that still ends in the same kind of fault.

Every step proposes a smaller case; it is kept when the fault stays. What a step may break (shapes that fit, a node's
own rules) needs no care: the proposal then ends otherwise, and is dropped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from dlc.graph import evaluate
from tests.frontend_onnx.building import parse
from tests.fuzz.case import Case, Tools
from tests.fuzz.found import frozen
from tests.fuzz.judge import judged
from tests.fuzz.model import Array, Model

SECONDS: Final = 90.0
PLAIN: Final = (Tools(flags=("-O0",)), Tools(cpu="generic", flags=("-O0",)))
Step = Callable[[Case], Iterator[Case]]


@dataclass
class Shrinker:
    """Tries smaller cases until none is left, or time is up."""

    kind: str
    end: float
    trials: int = 0

    def fails(self, case: Case) -> bool:
        """Whether a case ends in the same kind of fault."""
        self.trials += 1
        try:
            (found,) = judged([case], case.tools)
        except Exception:  # noqa: BLE001 - a proposal may be no model at all
            return False
        return found.what == "fault" and found.kind == self.kind

    def once(self, case: Case, step: Step) -> Case:
        """The case after all proposals of a step that keep the fault; a step starts again with what it found."""
        found = True
        while found:
            found = False
            for smaller in step(case):
                if time.monotonic() > self.end:
                    return case
                if self.fails(smaller):
                    case, found = smaller, True
                    break
        return case


def shrunk(case: Case, kind: str, seconds: float = SECONDS) -> Case:
    """The smallest case that was found."""
    shrinker = Shrinker(kind, time.monotonic() + seconds)
    before = None
    while before is not case and time.monotonic() < shrinker.end:
        before = case
        for step in STEPS:
            case = shrinker.once(case, step)
    return case


def _fewer_outputs(case: Case) -> Iterator[Case]:
    outputs = case.model.outputs
    if len(outputs) > 1:
        for k in range(len(outputs)):
            yield replace(case, model=replace(case.model, outputs=(outputs[k],)).live())
        for k in range(len(outputs)):
            yield replace(case, model=replace(case.model, outputs=outputs[:k] + outputs[k + 1 :]).live())


def _earlier_outputs(case: Case) -> Iterator[Case]:
    """An operand in place of the output that reads it."""
    model = case.model
    producers = {o: n for n in model.nodes for o in n.outputs}
    for k, name in enumerate(model.outputs):
        for operand in producers[name].inputs if name in producers else ():
            if operand in producers and operand not in model.outputs:
                new = (*model.outputs[:k], operand, *model.outputs[k + 1 :])
                yield replace(case, model=replace(model, outputs=new).live())


def _values(model: Model) -> list[dict[str, Array]]:
    """What is computed in every call."""
    found: list[dict[str, Array]] = []
    for call in model.calls or ({},):
        fixed = frozen(model.at(call)) if model.calls else model
        found.append({**fixed.inputs, **evaluate(parse(fixed.whole.onnx), fixed.inputs)})
    return found


def _cut_in_front(case: Case) -> Iterator[Case]:
    """A value that was computed becomes an input; what only it needed goes. From the back, so that most goes first."""
    model = case.model
    try:
        several = _values(model)
    except Exception:  # noqa: BLE001 - the reference itself may be what fails
        return
    for node in reversed(model.nodes):
        if any(o in model.outputs for o in node.outputs):
            continue
        made = {o: _as_input(model, [np.asarray(values[o]) for values in several]) for o in node.outputs if o}
        if any(found is None for found in made.values()):
            continue
        nodes = tuple(n for n in model.nodes if n is not node)
        given = {**model.inputs, **{o: found[0] for o, found in made.items() if found}}
        dims = {**model.dims, **{o: found[1] for o, found in made.items() if found and any(found[1])}}
        yield replace(case, model=replace(model, nodes=nodes, inputs=given, dims=dims).live())


def _as_input(model: Model, several: Sequence[Array]) -> tuple[Array, tuple[str, ...]] | None:
    """The largest of what a value is in every call, and names of its dimensions; None if one is a computed size."""
    most = max(several, key=lambda a: a.size)
    names: list[str] = []
    for k in range(most.ndim):
        sizes = [a.shape[k] for a in several]
        named = [n for n in model.ranges if [call[n] for call in model.calls] == sizes]
        if max(sizes) != most.shape[k] or (len(set(sizes)) > 1 and not named):
            return None
        names.append(named[0] if len(set(sizes)) > 1 else "")
    return most, tuple(names)


def _fewer_calls(case: Case) -> Iterator[Case]:
    """One call only, and numbers in place of the names of dimensions."""
    model = case.model
    if len(model.calls) > 1:
        for call in model.calls:
            yield replace(case, model=replace(model, calls=(call,)))
    for name in model.ranges:
        size = max(call[name] for call in model.calls)
        dims = {k: tuple("" if n == name else n for n in names) for k, names in model.dims.items()}
        inputs = {k: _up_to(v, model.dims.get(k, ()), name, size) for k, v in model.inputs.items()}
        calls = tuple({n: e for n, e in call.items() if n != name} for call in model.calls)
        ranges = {n: r for n, r in model.ranges.items() if n != name}
        kept = {k: names for k, names in dims.items() if any(names)}
        yield replace(case, model=replace(model, dims=kept, inputs=inputs, calls=calls, ranges=ranges))


def _up_to(array: Array, names: Sequence[str], name: str, size: int) -> Array:
    return array[tuple(slice(size if n == name else None) for n in names)].copy() if names else array


def _bypass(case: Case) -> Iterator[Case]:
    """An operand in place of a result of the same type."""
    model = case.model
    try:
        values = {**model.constants, **_values(model)[0]}
    except Exception:  # noqa: BLE001
        return
    for node in reversed(model.nodes):
        result = node.outputs[0]
        for operand in node.inputs:
            if (
                operand
                and values[operand].shape == values[result].shape
                and values[operand].dtype == values[result].dtype
            ):
                yield replace(case, model=model.renamed({result: operand}).live())


def _plainer(case: Case) -> Iterator[Case]:
    """Fewer flags."""
    for tools in PLAIN if case.tools.target == "c" else ():
        if case.tools != tools and case.tools not in PLAIN:
            yield replace(case, tools=tools)
    for name in case.without:
        yield replace(case, without=tuple(n for n in case.without if n != name))
    for text in case.settings:
        yield replace(case, settings=tuple(t for t in case.settings if t != text))
    if case.train not in ("", "loss=mse"):
        yield replace(case, train="loss=mse")


def _smaller_extents(case: Case) -> Iterator[Case]:
    """One extent smaller wherever it occurs: in inputs, constants, and constants that hold shapes."""
    model = case.model
    if model.dims:
        return
    arrays = (*model.inputs.values(), *model.constants.values())
    for extent in sorted({e for a in arrays for e in a.shape if e > 1}, reverse=True):
        for new in dict.fromkeys((1, 2, extent // 2, extent - 1)):
            if 0 < new < extent:
                inputs = {k: _cropped(v, extent, new) for k, v in model.inputs.items()}
                constants = {k: _cropped(v, extent, new) for k, v in model.constants.items()}
                yield replace(case, model=replace(model, inputs=inputs, constants=constants))


def _cropped(array: Array, extent: int, new: int) -> Array:
    found = array[tuple(slice(0, new) if e == extent else slice(None) for e in array.shape)]
    if array.dtype == np.int64 and array.ndim == 1 and array.size < 8:
        found = np.where(found == extent, new, found)
    return np.ascontiguousarray(found).reshape(found.shape)


def _plain_values(case: Case) -> Iterator[Case]:
    """Zeros, ones or small integers in place of numbers."""
    model = case.model
    for where in ("inputs", "constants"):
        arrays = getattr(model, where)
        for name, array in arrays.items():
            if array.dtype.kind != "f" or not array.size:
                continue
            whole: Array = np.where(np.isfinite(array), np.rint(array), np.array(2.0, array.dtype))
            plain: tuple[Array, ...] = (np.zeros_like(array), np.ones_like(array), whole)
            for new in plain:
                if np.array_equal(new, array):  # what follows is no plainer
                    break
                yield replace(case, model=replace(model, **{where: {**arrays, name: new}}))


STEPS: Final[tuple[Step, ...]] = (
    *(_fewer_outputs, _fewer_calls, _earlier_outputs, _cut_in_front, _bypass, _plainer),
    *(_smaller_extents, _plain_values),
)
