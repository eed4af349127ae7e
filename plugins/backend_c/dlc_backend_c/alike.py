"""Functions that differ in a few numbers as one, which gets these as arguments.

    f(…): … r0[i * 352 + j + 320] = w …        f → h(…, 320), g → h(…, 352)
    g(…): … r0[i * 384 + j + 352] = w …        h(…, number): … r0[i * (number + 32) + j + number] = w …

So are kernels that write their part of what concatenations make, which becomes wider with each. Numbers that differ
stand in subscripts and in the heads of loops, but not where sums grow: an address that is known costs nothing there,
and one that is computed does. Nothing is divided by them either.

Loops that programs set apart may differ in more, and are shared by kernels that have nothing else in common: transforms
of Winograd's tiles, for data of any size.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Final, TypeVar

from dlc_backend_c.function import CFunction
from dlc_backend_c.sections import LINKAGE

PREFIX: Final = "dlc_a_"
"""Of the names of functions that several kernels share, before digits of their text."""
LEAST: Final = 4000
"""Characters of a function that is worth being shared."""
LEAST_PART: Final = 1000
"""The same of a loop that is a function of its own."""
NUMBERS: Final = 8
"""In how many different numbers functions may differ: each takes a register or a place on the stack."""
NUMBERS_OF_PARTS: Final = 40
"""The same of loops that are functions of their own."""
ARGUMENTS: Final = 8
"""Of these numbers, those that are given: the others are computed from them."""

_PLACE: Final = 16
"""Bytes of stack of a number: as an argument, and as a variable."""
_FRAME: Final = 128
"""Bytes of stack of a call besides its variables, which count already."""
_NUMBER: Final = re.compile(r"(?<![\w.])\d+(?![\w.])")
_DIVISOR: Final = re.compile(r"[/%] $")
_PART: Final = re.compile(r"^static (?:\w+ )?void (\w+_part\d+)\((.*)\)\n\{\n(?:.+\n)*?\}\n\n?", re.MULTILINE)
_SUBSCRIPT: Final = re.compile(r"(?<=\[)[^\[\]]+(?=\])")
_HEAD: Final = re.compile(r"^ *(?:\w+\(\d+\) )?for \(ptrdiff_t [^{]*")
_CONDITION: Final = re.compile(r"^ *if \(.*")
_CALL: Final = re.compile(rf"^ *{PREFIX}\w+\(.*")
_DECLARED: Final = re.compile(r"^ *\w[\w ]* \w+\[\d+\]")
_GROWS: Final = re.compile(r"^ *\w+ = ")

Key = TypeVar("Key")


@dataclass(frozen=True)
class _Cut:
    """A function's text, cut at the numbers in which others may differ from it: one more piece than numbers."""

    pieces: tuple[str, ...]
    numbers: tuple[int, ...]


@dataclass(frozen=True)
class _Linear:
    """A number that is `factor` times an argument and `more`, and maybe another argument more or less."""

    argument: int
    factor: int
    more: int
    sign: int = 0
    other: int = 0

    def __str__(self) -> str:
        product = f"dlc_number{self.argument}" + f" * {self.factor}" * (self.factor != 1)
        other = f" {'-' if self.sign < 0 else '+'} dlc_number{self.other}" if self.sign else ""
        return product + other + (f" {'-' if self.more < 0 else '+'} {abs(self.more)}" if self.more else "")


@dataclass(frozen=True)
class _Shared:
    """What some functions of the same pieces differ in.

    Attributes:
        places: Place among a function's numbers → which of those that differ stands there.
        arguments: For each function, what it gives.
        computed: The numbers that differ, by the arguments.
    """

    places: Mapping[int, int]
    arguments: tuple[tuple[int, ...], ...]
    computed: tuple[_Linear, ...]


def alike(functions: Mapping[Key, CFunction]) -> dict[Key, CFunction]:
    """The same functions; several that are one for different numbers call that one."""
    found = _with_parts(functions)
    same: dict[tuple[str, ...], list[tuple[Key, _Cut]]] = {}
    for key, f in found.items():
        text = f.definitions.get(f.name, "")
        if len(text) >= LEAST:
            cut = _cut(text, f.name)
            same.setdefault(cut.pieces, []).append((key, cut))
    for candidates in same.values():
        for members, shared in _clusters(candidates, NUMBERS):
            made = _text(members[0][1], shared)
            for (key, _), numbers in zip(members, shared.arguments, strict=True):
                found[key] = _calling(found[key], made, shared, numbers)
    return found


def _with_parts(functions: Mapping[Key, CFunction]) -> dict[Key, CFunction]:
    """The same functions, of which loops that are functions of their own and alike are shared."""
    found = dict(functions)
    same: dict[tuple[str, ...], list[tuple[tuple[Key, re.Match[str]], _Cut]]] = {}
    for key, f in functions.items():
        for m in _PART.finditer(f.definitions.get(f.name, "")):
            if len(m[0]) >= LEAST_PART:
                cut = _cut(m[0].removeprefix("static "), m[1], part=True)
                same.setdefault(cut.pieces, []).append(((key, m), cut))
    for candidates in same.values():
        for members, shared in _clusters(candidates, NUMBERS_OF_PARTS):
            made = _text(members[0][1], shared)
            for ((key, m), _), numbers in zip(members, shared.arguments, strict=True):
                found[key] = _calling_part(found[key], m, made, numbers)
    return found


def _calling_part(f: CFunction, part: re.Match[str], made: tuple[str, str], numbers: tuple[int, ...]) -> CFunction:
    """A function without its own copy of a loop, for which it calls the shared one with some numbers."""
    name, text = made
    whole = f.definitions[f.name].replace(part[0], "")
    more = "".join(f", {n}" for n in numbers)
    whole = re.sub(rf"\b{part[1]}\((.*)\);", rf"{name}(\1{more});", whole)
    prototype = f"{LINKAGE} {text[text.index('void ') : text.index(')') + 1]};\n"
    definitions = {name: text, **f.definitions, f.name: prototype + whole}
    return replace(f, definitions=definitions, stack=f.stack + _FRAME + _PLACE * NUMBERS_OF_PARTS)


def _cut(text: str, name: str, *, part: bool = False) -> _Cut:
    """The text with its name left out; functions of its loops have no arguments but their context.

    Args:
        text: A function's, and those of its loops before it.
        name: The function's.
        part: Whether it is a loop of a function, which may also differ in its conditions and divisors.
    """
    start = text.index(f"void {name}(")
    pieces = [text[:start]]
    numbers: list[int] = []
    lines = text[start:].splitlines()
    for line, sums in zip(lines, _in_sums(lines), strict=True):
        at = 0
        for m in () if sums else _numbers(line, part):
            pieces[-1] += line[at : m.start()]
            pieces.append("")
            numbers.append(int(m[0]))
            at = m.end()
        pieces[-1] += line[at:] + "\n"
    return _Cut(tuple(re.sub(rf"\b{name}(?=\(|_(?:loop|part)\d)", PREFIX, p) for p in pieces), tuple(numbers))


def _numbers(line: str, part: bool) -> Iterator[re.Match[str]]:
    """Numbers of a line that could be variables."""
    if _DECLARED.match(line):
        return
    whole = _HEAD.match(line) or _CALL.match(line) or (_CONDITION.match(line) if part else None)
    for span in (whole,) if whole else _SUBSCRIPT.finditer(line):
        for m in _NUMBER.finditer(line, *span.span()):
            if part or not _DIVISOR.search(line, 0, m.start()):
                yield m


def _in_sums(lines: Sequence[str]) -> Iterator[bool]:
    """For each line, whether it stands directly in a loop that assigns to variables, its head included."""
    inner: list[list[int]] = [[]]
    found = [False] * len(lines)
    for k, line in enumerate(lines):
        if _HEAD.match(line):
            inner.append([k])
            continue
        while len(inner) > 1 and line.strip() == "}" and _indent(line) <= _indent(lines[inner[-1][0]]):
            body = inner.pop()
            if any(_GROWS.match(lines[j]) for j in body[1:]):
                for j in body:
                    found[j] = True
        inner[-1].append(k)
    yield from found


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _clusters(candidates: Sequence[tuple[Key, _Cut]], most: int) -> Iterator[tuple[list[tuple[Key, _Cut]], _Shared]]:
    """Functions of the same pieces that differ in few numbers, with what these are: as many together as may be."""
    clusters: list[tuple[list[tuple[Key, _Cut]], _Shared]] = []
    for candidate in candidates:
        for k, (members, _) in enumerate(clusters):
            joined = [*members, candidate]
            if (shared := _shared([cut for _, cut in joined], most)) is not None:
                clusters[k] = joined, shared
                break
        else:
            clusters.append(([candidate], _Shared({}, ((),), ())))
    yield from (c for c in clusters if len(c[0]) > 1)


def _shared(cuts: Sequence[_Cut], most: int) -> _Shared | None:
    """What they differ in; None: in more than so many numbers."""
    columns = list(zip(*(c.numbers for c in cuts), strict=True))
    known = sorted({n for n in columns if len(set(n)) > 1})
    if len(known) > most:
        return None
    arguments: list[tuple[int, ...]] = []
    computed: list[_Linear] = []
    for numbers in known:  # the least first, of which others may be multiples
        form = next(_forms(numbers, arguments), None)
        if form is None:
            form = _Linear(len(arguments), 1, 0)
            arguments.append(numbers)
            if len(arguments) > ARGUMENTS:
                return None
        computed.append(form)
    places = {k: known.index(n) for k, n in enumerate(columns) if n in known}
    given = tuple(zip(*arguments, strict=True)) if arguments else ((),) * len(cuts)
    return _Shared(places, given, tuple(computed))


def _forms(numbers: tuple[int, ...], arguments: Sequence[tuple[int, ...]]) -> Iterator[_Linear]:
    """The ways to compute a number of each function from arguments, simple ones first."""
    for k, given in enumerate(arguments):
        if form := _linear(numbers, given, k):
            yield form
    for k, given in enumerate(arguments):
        for other, added in enumerate(arguments):
            for sign in (-1, 1):
                rest = tuple(n - sign * a for n, a in zip(numbers, added, strict=True))
                if other != k and (form := _linear(rest, given, k)):
                    yield replace(form, sign=sign, other=other)


def _linear(numbers: tuple[int, ...], given: tuple[int, ...], argument: int) -> _Linear | None:
    """How numbers depend on an argument, one for each function; None if they do not."""
    low, high = min(range(len(given)), key=given.__getitem__), max(range(len(given)), key=given.__getitem__)
    factor, rest = divmod(numbers[high] - numbers[low], given[high] - given[low])
    more = numbers[low] - factor * given[low]
    # Products stay in the range of what they are for.
    near = not rest and factor > 0 and abs(more) <= numbers[high]
    fits = near and all(n == factor * g + more for n, g in zip(numbers, given, strict=True))
    return _Linear(argument, factor, more) if fits else None


def _calling(f: CFunction, made: tuple[str, str], shared: _Shared, numbers: tuple[int, ...]) -> CFunction:
    """A function as a call of the shared one, which gets its numbers last."""
    name, text = made
    definitions = {**{n: other for n, other in f.definitions.items() if n != f.name}, name: text}
    calls = tuple(replace(c, name=name, numbers=numbers) for c in f.calls)
    stack = f.stack + _PLACE * len(shared.computed)
    return replace(f, name=name, definitions=definitions, calls=calls, stack=stack)


def _text(cut: _Cut, shared: _Shared) -> tuple[str, str]:
    """(name, text) of the function that several share, of which one is cut."""
    texts = [f"dlc_value{shared.places[k]}" if k in shared.places else str(n) for k, n in enumerate(cut.numbers)]
    text = "".join(piece + number for piece, number in zip(cut.pieces, (*texts, ""), strict=True))
    end = text.index(")\n{\n", text.index(f"void {PREFIX}("))
    given = "".join(f", ptrdiff_t dlc_number{k}" for k in range(len(shared.arguments[0])))
    values = "".join(f"    const ptrdiff_t dlc_value{k} = {form};\n" for k, form in enumerate(shared.computed))
    text = f"{text[:end]}{given})\n{{\n{values}{text[end + 4 :]}"
    name = f"{PREFIX}{blake2b(text.encode(), digest_size=8).hexdigest()}"
    return name, re.sub(rf"\b{PREFIX}(?=\(|_(?:loop|part)\d)", name, text)
