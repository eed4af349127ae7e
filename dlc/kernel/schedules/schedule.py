"""A kernel becomes loops: groups of nests in order, each by a schedule that is given, or by the first that applies.

Classification is by the roles of axes, never by the name of an op.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from dlc.kernel.kernel import Kernel
from dlc.kernel.loops.program import Let, LoopProgram, Stmt, axes_of
from dlc.kernel.nest import Nest
from dlc.kernel.schedules.buffers import buffer
from dlc.kernel.schedules.choice import Applied, Choice, Place
from dlc.kernel.schedules.columns_innermost import columns_innermost
from dlc.kernel.schedules.contraction import Tiles
from dlc.kernel.schedules.converted_factors import converted_factors
from dlc.kernel.schedules.copies import Copies
from dlc.kernel.schedules.empty import without_empty
from dlc.kernel.schedules.extents import limited
from dlc.kernel.schedules.groups import Group, ordered, partition
from dlc.kernel.schedules.invariant import without_invariant_axes
from dlc.kernel.schedules.machine import Machine
from dlc.kernel.schedules.needed import only_needed
from dlc.kernel.schedules.plain import Heap, Loops
from dlc.kernel.schedules.polyphase import split_phases
from dlc.kernel.schedules.ranking import Ranking, rankings
from dlc.kernel.schedules.scalar_loops import starting
from dlc.kernel.schedules.scope import open_scope
from dlc.kernel.schedules.split import split_blocks
from dlc.kernel.schedules.start import needs_fill
from dlc.kernel.schedules.transform_loops import Transforms
from dlc.kernel.schedules.transformed import Transformed, transform_of, transformed_groups
from dlc.kernel.schedules.unfit import Unfit
from dlc.kernel.schedules.widen import widened
from dlc.kernel.schedules.winograd import Winograd
from dlc.kernel.simplify import simplify_nest

FAMILIES: tuple[type[Choice], ...] = (Copies, Tiles, Loops)
"""The families of schedules of a group, the one that is expected to be fastest first."""
ALL_FAMILIES: tuple[type[Choice], ...] = (*FAMILIES, Heap, Transforms, Winograd)
"""These, and those of a nest that ranks elements and of nests that transform tiles."""


Piece: TypeAlias = Group | Ranking | Transformed
"""Nests that become loops together."""


@dataclass(frozen=True)
class Scheduled:
    """A kernel as loops.

    Attributes:
        program: The loops.
        choices: How each group of nests became loops; with them, `scheduled` gives the same again.
        tried: What was tried before, for each group.
    """

    program: LoopProgram
    choices: tuple[Choice, ...]
    tried: tuple[tuple[Candidate, ...], ...] = ()


@dataclass(frozen=True)
class Candidate:
    """A way in which a group may become loops, and why it does not apply; "" where it does."""

    choice: Choice
    unfit: str = ""


@dataclass(frozen=True)
class Considered:
    """What there was to choose from for one group.

    Attributes:
        nests: The nests of the group.
        candidates: In the order in which they are tried: the first that applies is chosen.
    """

    nests: tuple[Nest, ...]
    candidates: tuple[Candidate, ...]


def schedule(kernel: Kernel, machine: Machine, choices: Sequence[Choice] = ()) -> LoopProgram:
    """The loops of a kernel for a machine; results and reductions as `kernel.evaluate`, up to the order of sums."""
    return scheduled(kernel, machine, choices).program


def scheduled(kernel: Kernel, machine: Machine, choices: Sequence[Choice] = ()) -> Scheduled:
    """The loops of a kernel for a machine, and what was chosen; `choices` that are given decide.

    Raises:
        Unfit: a choice that is given does not apply, or there is not one for each group of nests.
    """
    prepared = _prepare(kernel, machine)
    count = len(prepared.places)
    if not choices:
        found = [_first(place) for place in prepared.places]
        groups, tried = [applied for applied, _ in found], tuple(before for _, before in found)
    elif len(choices) == count:
        groups, tried = [c.apply(place) for c, place in zip(choices, prepared.places, strict=True)], ((),) * count
    else:
        raise Unfit(f"the kernel has {count} groups of nests, and the schedule has {len(choices)} parts")
    return Scheduled(prepared.program(groups), tuple(x.choice for x in groups), tried)


def considered(kernel: Kernel, machine: Machine) -> tuple[Considered, ...]:
    """Every candidate for each group of a kernel, with why it does not apply."""
    return tuple(
        Considered(place.group.nests, tuple(candidate for candidate, _ in _tried(place)))
        for place in _prepare(kernel, machine).places
    )


def check_transformed(kernel: Kernel, machine: Machine) -> None:
    """Raise Unfit with the reason if a kernel does not transform tiles, or there is no schedule for them as a whole."""
    found = [p for p in _prepare(kernel, machine, whole_tiles=True).places if p.transformed is not None]
    if not found:
        raise Unfit("its tiles are not found in the kernel")
    for place in found:
        Winograd().apply(place)


def _first(place: Place) -> tuple[Applied, tuple[Candidate, ...]]:
    """The first candidate that applies, as `Loops` and `Heap` always do, and those before."""
    before: list[Candidate] = []
    for candidate, applied in _tried(place):
        if applied is not None:
            return applied, tuple(before)
        before.append(candidate)
    raise AssertionError(place.group)


def _tried(place: Place) -> Iterator[tuple[Candidate, Applied | None]]:
    """Candidates in order, with the loops of those that apply."""
    for family in _families(place):
        try:
            for choice in family.candidates(place):
                try:
                    applied = choice.apply(place)
                except Unfit as problem:
                    yield Candidate(choice, str(problem)), None
                else:
                    yield Candidate(applied.choice), applied
        except Unfit as problem:
            yield Candidate(family(), str(problem)), None


def _families(place: Place) -> tuple[type[Choice], ...]:
    """What is tried for a place."""
    if place.ranking is not None:
        return (Heap,)
    if place.transformed is not None:
        return (Winograd,)
    return FAMILIES if place.transform is None else (Transforms,)


@dataclass(frozen=True)
class _Prepared:
    """A kernel in the form that schedules are applied to.

    Attributes:
        whole: The kernel with the parameters and results of its program.
        kernel: An equal one, of the nests that become loops.
        sizes: What computes the sizes of a call first.
        start: What sets elements to their start first.
        places: Its groups, in order.
        vectors: Whether the machine has any.
    """

    whole: Kernel
    kernel: Kernel
    sizes: Sequence[Let]
    start: tuple[Stmt, ...]
    places: tuple[Place, ...]
    vectors: bool

    def program(self, groups: Sequence[Applied]) -> LoopProgram:
        """The loops of all groups, in order."""
        kernel = self.kernel
        scopes = [p.scope for p in self.places if p.scope is not None]
        narrow = {name: s.tensors[name].type for s in scopes for name in s.narrow}
        inside = {name for s in scopes for name in s.scalars}
        inside |= {name for p in self.places if p.transformed is not None for name in p.transformed.inside}
        buffers = [buffer(p.name, narrow.get(p.name, p.type)) for p in kernel.locals if p.name not in inside]
        body = (*self.start, *(s for g in groups for s in g.body))
        if self.sizes:
            used = {a.name for a in axes_of(body)}
            body = (*(s for s in self.sizes if s.local.name in used), *body)
        all_buffers = (*buffers, *(b for g in groups for b in g.buffers))
        return LoopProgram(self.whole.params, self.whole.results, all_buffers, body, self.vectors)


def _prepare(kernel: Kernel, machine: Machine, whole_tiles: bool = False) -> _Prepared:
    kernel = widened(without_empty(kernel))
    kernel = only_needed(replace(kernel, nests=tuple(simplify_nest(n) for n in kernel.nests)))
    whole = kernel
    kernel, converted = converted_factors(kernel, machine)
    kernel = split_phases(split_blocks(without_invariant_axes(kernel)), machine)
    kernel, alone = columns_innermost(kernel, machine)
    kernel, sizes = limited(kernel)
    pieces = _pieces(kernel, alone, converted)
    if not whole_tiles:
        pieces = [piece for p in pieces for piece in _split(p, kernel, machine)]
    if machine.strict:
        pieces = [ordered(g, kernel) if isinstance(g, Group) else g for g in pieces]
    groups = [p.group if isinstance(p, Transformed) else p for p in pieces]
    scopes = [open_scope(g, kernel) if isinstance(g, Group) else None for g in groups]
    narrow = {name for s in scopes if s is not None for name in s.narrow}
    wide = [p for p in (*kernel.results, *kernel.locals) if p.name not in narrow]
    filled = [p for p in wide if needs_fill(kernel, p.name) and not _in_parts(p.name, kernel, whole)]
    start = tuple(s for p in filled for s in starting(p, kernel))
    written = frozenset(p.name for p in filled)
    places: list[Place] = []
    for number, (piece, scope) in enumerate(zip(pieces, scopes, strict=True)):
        if isinstance(piece, Ranking):
            places.append(Place(Group((piece.nest,), ()), kernel, machine, written, number, ranking=piece))
            written |= {piece.writes}
        elif isinstance(piece, Transformed):
            places.append(Place(piece.group, kernel, machine, written, number, scope, transformed=piece))
            written |= {n.out for n in piece.nests}
        else:
            place = Place(piece, kernel, machine, written, number, scope, transform=transform_of(piece, kernel))
            places.append(place if _applies(Transforms(), place) else replace(place, transform=None))
            written |= {n.out for n in piece.nests}
    return _Prepared(whole, kernel, sizes, start, tuple(places), machine.vector_bytes > 0)


def _split(piece: Piece, kernel: Kernel, machine: Machine) -> tuple[Piece, ...]:
    """Tiles that are transformed as one piece if there is a schedule for them, else each of their nests by itself."""
    if not isinstance(piece, Transformed):
        return (piece,)
    written = frozenset(n.out for n in piece.nests if needs_fill(kernel, n.out))
    whole = Place(piece.group, kernel, machine, written, 0, transformed=piece)
    return (piece,) if _applies(Winograd(), whole) else piece.groups


def _applies(choice: Choice, place: Place) -> bool:
    try:
        choice.apply(place)
    except Unfit:
        return False
    return True


def _in_parts(name: str, kernel: Kernel, whole: Kernel) -> bool:
    """Whether assignments of a few elements each stand for a nest that writes all of them, as of each remainder.

    A start would not only be stored for nothing: a result may lie where an operand does that is read for it.
    """
    known = name in whole.tensors and not needs_fill(whole, name)
    return known and all(kernel.nests[k].reduce is None for k in kernel.writers.get(name, ()))


def _pieces(kernel: Kernel, alone: frozenset[str], converted: frozenset[str]) -> list[Piece]:
    """The nests in order: rankings, and groups of those between them."""
    found = rankings(kernel)
    out: list[Piece] = []
    run: list[Nest] = []
    for k, nest in enumerate(kernel.nests):
        if k in found:
            out += (*_groups(replace(kernel, nests=tuple(run)), alone, converted), found[k])
            run = []
        elif all(nest is not r.nest for r in found.values()):  # one that its reader stands for
            run.append(nest)
    return [*out, *_groups(replace(kernel, nests=tuple(run)), alone, converted)]


def _groups(kernel: Kernel, alone: frozenset[str], converted: frozenset[str]) -> list[Group | Transformed]:
    return transformed_groups(partition(kernel, alone, converted), kernel)
