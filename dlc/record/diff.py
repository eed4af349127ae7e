"""What differs between the records of two builds: figures, layers, kernels, weights and passes.

Layers belong together that compute the same nodes of the model, or else most of them, whatever their numbers are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from dlc.record.record import Function, Kernel, Layer, Record

State = Literal["same", "changed", "added", "gone"]
_NO_AMOUNTS: Final = frozenset(("bound_step", "order_optimal"))
"""Figures of a program of which more is neither better nor worse."""
SCHEMA: Final = "dlc.record-diff/1"


@dataclass(frozen=True)
class Figure:
    """A number of both builds."""

    name: str
    """Of the figure, with its unit."""
    before: float | None
    """None: the first one has none."""
    after: float | None
    """None: the second one has none."""

    @property
    def change(self) -> float | None:
        """As a part of the first: 0.1 is a tenth more."""
        return (self.after - self.before) / self.before if self.before and self.after is not None else None


@dataclass(frozen=True)
class LayerChange:
    """A layer of both builds, or of one of them."""

    function: str
    """That it belongs to."""
    nodes: tuple[str, ...]
    """Of the model, that it computes."""
    state: State
    """Whether there is anything to tell."""
    before: int | None
    """Its number in the first."""
    after: int | None
    """Its number in the second."""
    kernel_before: str
    """Digest of its kernel."""
    kernel_after: str
    """Digest of its kernel."""
    schedule_before: str
    """How its kernel became loops."""
    schedule_after: str
    """How its kernel became loops."""
    figures: tuple[Figure, ...]
    """Milliseconds, estimated cycles, operations, bytes."""


@dataclass(frozen=True)
class Difference:
    """Two records."""

    before: str
    """Model and target of the first."""
    after: str
    """Model and target of the second."""
    figures: tuple[Figure, ...]
    """Of the whole: those that differ, and those that are always told."""
    layers: tuple[LayerChange, ...]
    """In the order of the second; those that are gone at the end."""
    passes: tuple[Figure, ...]
    """Milliseconds of each pass when it ran."""
    schema: str = SCHEMA
    """Version of this declaration."""

    @property
    def changed(self) -> tuple[LayerChange, ...]:
        """The layers that are not the same."""
        return tuple(layer for layer in self.layers if layer.state != "same")


def difference(before: Record, after: Record) -> Difference:
    """What there is to tell of two records."""
    names = [f.name for f in after.functions] + [f.name for f in before.functions]
    layers: list[LayerChange] = []
    for name in dict.fromkeys(names):
        layers += _layers(before, after, name)
    return Difference(_title(before), _title(after), _totals(before, after), tuple(layers), _passes(before, after))


def _title(record: Record) -> str:
    return f"{record.model} for {record.target}"


def _totals(before: Record, after: Record) -> tuple[Figure, ...]:
    facts_of = ((k, v) for r in (before, after) for k, v in r.facts.items())
    names = dict.fromkeys(k for k, v in facts_of if isinstance(v, int) and k not in _NO_AMOUNTS)
    facts = [Figure(name.replace("_", " "), _fact(before, name), _fact(after, name)) for name in names]
    whole = [
        Figure("time of a call in ms", _call(before), _call(after)),
        Figure("layers", _count(before), _count(after)),
        Figure("estimated cycles", _cycles(before), _cycles(after)),
        Figure("operations", _operations(before), _operations(after)),
        Figure("bytes of files", _files(before), _files(after)),
    ]
    told = [f for f in whole if f.before is not None or f.after is not None]
    return (*told, *(f for f in facts if f.before != f.after))


def _fact(record: Record, name: str) -> float | None:
    value = record.facts.get(name)
    return value if isinstance(value, int) else None


def _call(record: Record) -> float | None:
    return record.runs[0].programs[0].median_ms if record.runs else None


def _main(record: Record) -> Function | None:
    return record.functions[0] if record.functions else None


def _count(record: Record) -> float | None:
    return len(main.layers) if (main := _main(record)) else None


def _cycles(record: Record) -> float | None:
    kernels = {k.digest: k.cycles for k in record.kernels}
    main = _main(record)
    return sum(kernels.get(layer.kernel, 0) for layer in main.layers) or None if main else None


def _operations(record: Record) -> float | None:
    main = _main(record)
    return sum(layer.operations or 0 for layer in main.layers) or None if main else None


def _files(record: Record) -> float | None:
    return sum(f.bytes for f in record.files) or None


def _layers(before: Record, after: Record, function: str) -> list[LayerChange]:
    old, new = list(_of(before, function)), _of(after, function)
    partners: dict[int, Layer] = {}
    for fits in (_equal, _common):
        for k, layer in enumerate(new):
            if k not in partners and old and fits(best := max(old, key=lambda x: _common(x, layer)), layer):
                partners[k] = best
                old.remove(best)
    kernels = _kernels(before), _kernels(after)
    found = [_change(function, partners.get(k), layer, *kernels) for k, layer in enumerate(new)]
    return [*found, *(_change(function, layer, None, *kernels) for layer in old)]


def _equal(one: Layer, other: Layer) -> bool:
    return one.nodes == other.nodes


def _common(one: Layer, other: Layer) -> float:
    """How much of the nodes of both both compute: 1 if they are the same, 0 if none is; the first is the main one."""
    if one.nodes == other.nodes:
        return 2.0
    a, b = set(one.nodes), set(other.nodes)
    main = one.nodes[:1] == other.nodes[:1]
    return len(a & b) / len(a | b) + main if a & b else 0.0


def _of(record: Record, function: str) -> Sequence[Layer]:
    return next((f.layers for f in record.functions if f.name == function), ())


def _kernels(record: Record) -> Mapping[str, Kernel]:
    return {k.digest: k for k in record.kernels}


def _change(
    function: str, old: Layer | None, new: Layer | None, before: Mapping[str, Kernel], after: Mapping[str, Kernel]
) -> LayerChange:
    layer = new or old
    assert layer is not None
    one, two = (before.get(old.kernel) if old else None), (after.get(new.kernel) if new else None)
    figures = (
        Figure("ms", old and old.ms, new and new.ms),
        Figure("estimated cycles", (one and one.cycles) or None, (two and two.cycles) or None),
        Figure("operations", old and old.operations, new and new.operations),
        Figure("bytes", old and _bytes(old), new and _bytes(new)),
        Figure("workspace", old and old.workspace, new and new.workspace),
    )
    schedules = one.schedule if one else "", two.schedule if two else ""
    same = bool(old and new) and (old.kernel, schedules[0]) == (new.kernel, schedules[1])  # pyright: ignore
    state: State = "added" if old is None else "gone" if new is None else "same" if same else "changed"
    numbers = old and old.number, new and new.number
    digests = old.kernel if old else "", new.kernel if new else ""
    told = tuple(f for f in figures if f.before is not None or f.after is not None)
    return LayerChange(function, layer.nodes, state, *numbers, *digests, *schedules, told)


def _bytes(layer: Layer) -> int:
    return layer.constant_bytes + layer.moved_bytes


def _passes(before: Record, after: Record) -> tuple[Figure, ...]:
    times = [_times(before), _times(after)]
    return tuple(Figure(name, times[0].get(name), times[1].get(name)) for name in dict.fromkeys([*times[1], *times[0]]))


def _times(record: Record) -> Mapping[str, float]:
    found: dict[str, float] = {}
    for step in record.passes:
        name = f"{step.function}: {step.name}" if step.function else step.name
        found[name] = round(found.get(name, 0.0) + step.made_ms, 3)
    return found
