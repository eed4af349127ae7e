"""Functions that say whether the integers of an input are what they may be (`Port.allowed`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from dlc.base.allowed import Part
from dlc.base.extents import Dim
from dlc.base.polynomials import Symbol
from dlc.base.types import DTYPES, DType, i64
from dlc_backend_c.extent_text import c_extent
from dlc_backend_c.header import CPort
from dlc_backend_c.package import Package, refuse
from dlc_backend_c.spelling import literal

RESULTS: Final[Mapping[str, str]] = {"size": "SHAPE", "shape": "SHAPE", "index": "INDEX", "label": "LABEL"}
"""What a restriction is of → the end of the macro of the error that a call returns."""
LABELS = "labels_are_classes"
"""Last part of the name of the function that a training program has for its labels."""


def range_names(package: Package, inputs: Iterable[CPort]) -> Mapping[CPort, str]:
    """Restricted inputs, by name and restriction, and the functions that check them: sizes always, others on demand."""
    every = package.options.check == "inputs"
    distinct = dict.fromkeys(
        _unplaced(q) for q in inputs if q.allowed is not None and q.size and (every or q.allowed.what == "size")
    )
    return {q: f"{package.prefix}_in_range_{k}" for k, q in enumerate(distinct)}


def range_name(names: Mapping[CPort, str], port: CPort) -> str:
    """The function that checks an input; raises KeyError: there is none."""
    return names[_unplaced(port)]


def range_errors(names: Mapping[CPort, str]) -> tuple[str, ...]:
    """The errors of the checks of these inputs: ends of macros."""
    found = {RESULTS[q.allowed.what] for q in names if q.allowed is not None}
    return tuple(dict.fromkeys(r for r in RESULTS.values() if r in found))


def range_checks(package: Package, names: Mapping[CPort, str], inputs: Sequence[CPort]) -> list[str]:
    """Statements that refuse inputs with an element out of range; their buffers are there and aligned.

    Sizes come first: they tell how many elements the others have.
    """
    sizes = {q.symbol: f"*(const {q.ctype} *)inputs[{q.index}]" for q in inputs if q.symbol is not None}
    lines: list[str] = []
    for what in ("size", "shape", "index", "label"):
        found = [q for q in inputs if q.allowed is not None and q.allowed.what == what and _unplaced(q) in names]
        wrong = [_wrong(range_name(names, q), q, _count(q, sizes, package)) for q in found]
        lines += refuse(wrong, f"{package.macro}_ERROR_{RESULTS[what]}")
    return lines


def range_functions(package: Package, names: Mapping[CPort, str]) -> list[str]:
    """The definitions of the functions that check inputs."""
    lines = [line for port, name in names.items() for line in range_function(name, port)]
    counts = (_count(q, _Any(), package) for q in names)
    smaller = _smaller(package)
    if any(f"{smaller}(" in text for text in counts):
        head = f"static int64_t {smaller}(int64_t a, int64_t b)"
        lines = [head, "{", "    return a < b ? a : b;", "}", "", *lines]
    return lines


class _Any(dict[Symbol, str]):
    """Sizes by any names."""

    def __missing__(self, symbol: Symbol) -> str:
        return symbol.name


def _smaller(package: Package) -> str:
    return f"{package.prefix}_fewer"


def _count(port: CPort, sizes: Mapping[Symbol, str], package: Package) -> str:
    """How many elements an input has in a call, where that depends on its sizes; else ""."""
    if not isinstance(port.elements, Dim):
        return ""
    return f"(size_t)({c_extent(port.elements, sizes, _smaller(package))})"


def size_checks(package: Package, outputs: Iterable[CPort]) -> list[str]:
    """Statements that say that a call has no result: it found a size that the program has no room for."""
    wrong: list[str] = []
    for q in outputs:
        if q.found is not None:
            low, high = (literal(v, i64) for v in q.found)
            value = f"*({q.ctype} *)outputs[{q.index}]"
            wrong.append(f"{value} != {low}" if low == high else f"{value} < {low} || {value} > {high}")
    return refuse(wrong, f"{package.macro}_ERROR_SIZE")


def label_check(package: Package, label: CPort) -> list[str]:
    """Statements that refuse what is no label."""
    return refuse([_wrong(f"{package.prefix}_{LABELS}", label, "")], f"{package.macro}_ERROR_LABEL")


def range_function(name: str, port: CPort) -> list[str]:
    """The definition of a function that says whether all elements of an input are allowed."""
    assert port.allowed is not None
    dtype = DTYPES[port.type.partition("[")[0]]
    axes = max((len(p.box) for p in port.allowed.parts), default=0) or 1
    count = ", size_t n" if isinstance(port.elements, Dim) else ""
    return [
        f"static int {name}(const {port.ctype} *x{count})",
        "{",
        f"    size_t {', '.join(f'i{d}' for d in range(axes))};",
        "    int wrong = 0;",
        "",
        *(line for part in port.allowed.parts for line in _loops(part, port, dtype)),
        "    return !wrong;",
        "}",
        "",
    ]


def _unplaced(port: CPort) -> CPort:
    """The same input of whichever function of a program."""
    return replace(port, index=0)


def _wrong(name: str, port: CPort, count: str) -> str:
    return f"!{name}((const {port.ctype} *)inputs[{port.index}]{count and ', '}{count})"


def _loops(part: Part, port: CPort, dtype: DType) -> list[str]:
    """Loops over the elements of a box; without branches, so that a compiler can vectorise them."""
    whole: tuple[int, int | str] = (0, "n" if isinstance(port.elements, Dim) else port.size)
    ranges: Sequence[tuple[int, int | str]] = part.box or (whole,)
    dims = port.dims if part.box else (port.size,)
    lines = [
        f"{'    ' * (d + 1)}for (i{d} = {start}; i{d} < {stop}; i{d}++) {{" for d, (start, stop) in enumerate(ranges)
    ]
    place = "i0"
    for d, extent in enumerate(dims[1:], 1):
        place = f"({place}) * {extent} + i{d}" if d > 1 else f"{place} * {extent} + i{d}"
    inner = "    " * (len(ranges) + 1)
    lines += [f"{inner}const {port.ctype} v = x[{place}];", f"{inner}wrong |= {_outside(part, dtype)};"]
    return lines + ["    " * (d + 1) + "}" for d in reversed(range(len(ranges)))]


def _outside(part: Part, dtype: DType) -> str:
    """Whether `v` lies in no interval. Comparisons that hold for every value of the type are left out."""
    if dtype.is_float:  # NaN lies nowhere
        inside = (f"(v >= {literal(low, dtype)} && v <= {literal(high, dtype)})" for low, high in part.intervals)
        return f"!({' || '.join(inside)})"
    least, largest = dtype.limits
    found: list[str] = []
    for low, high in part.intervals:
        ends = [f"v < {literal(low, dtype)}"] * (low > least) + [f"v > {literal(high, dtype)}"] * (high < largest)
        found.append(f"({' || '.join(ends)})" if ends else "0")
    return " && ".join(found)
