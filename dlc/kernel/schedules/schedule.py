"""A kernel becomes loops: groups of nests in order, each by a schedule that is given, or by the one of least cycles.

Classification is by the roles of axes, never by the name of an op; cycles are estimated by `estimate`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from dlc.kernel.kernel import Kernel
from dlc.kernel.loops.program import For, Let, LoopProgram, Stmt, axes_of, walk_stmts
from dlc.kernel.nest import Nest
from dlc.kernel.schedules.beside_rows import beside_rows
from dlc.kernel.schedules.blocks import Blocks
from dlc.kernel.schedules.buffers import buffer, within
from dlc.kernel.schedules.candidate import Candidate, attempt, best, choices_of, tried
from dlc.kernel.schedules.choice import Applied, Choice, Place
from dlc.kernel.schedules.columns_innermost import columns_innermost
from dlc.kernel.schedules.converted_factors import converted_factors
from dlc.kernel.schedules.empty import without_empty
from dlc.kernel.schedules.extents import limited
from dlc.kernel.schedules.families import FAMILIES
from dlc.kernel.schedules.groups import Group, ordered, partition
from dlc.kernel.schedules.held_values import with_held_values
from dlc.kernel.schedules.invariant import without_invariant_axes
from dlc.kernel.schedules.machine import Machine
from dlc.kernel.schedules.needed import only_needed
from dlc.kernel.schedules.parallel import shared
from dlc.kernel.schedules.past import stored_past
from dlc.kernel.schedules.plain import Heap
from dlc.kernel.schedules.polyphase import split_phases
from dlc.kernel.schedules.powers import roots_for_powers
from dlc.kernel.schedules.products import ordered_products
from dlc.kernel.schedules.ranking import Ranking, rankings
from dlc.kernel.schedules.reciprocals import with_reciprocals
from dlc.kernel.schedules.repeated import without_repeated
from dlc.kernel.schedules.scalar_loops import starting
from dlc.kernel.schedules.scope import open_scope
from dlc.kernel.schedules.shared_values import with_shared_values
from dlc.kernel.schedules.split import split_blocks, split_groups
from dlc.kernel.schedules.stages import stages_of
from dlc.kernel.schedules.start import needs_fill
from dlc.kernel.schedules.terms_together import terms_together
from dlc.kernel.schedules.transform_loops import Transforms
from dlc.kernel.schedules.transformed import Transformed, transform_of, transformed_groups
from dlc.kernel.schedules.unfit import Unfit
from dlc.kernel.schedules.vanishing import without_vanishing
from dlc.kernel.schedules.widen import widened
from dlc.kernel.schedules.winograd import Winograd
from dlc.kernel.simplify import simplify_nest
from dlc.kernel.take_apart import take_apart

ALL_FAMILIES: tuple[type[Choice], ...] = (*FAMILIES, Heap, Transforms, Winograd, Blocks)
"""These, and those of a nest that ranks elements, of nests that transform tiles and of nests that share rows."""


Piece: TypeAlias = Group | Ranking | Transformed
"""Nests that become loops together."""


Found: TypeAlias = tuple[Applied, tuple[Candidate, ...]]
"""A group's loops, and what there was to choose from."""


@dataclass(frozen=True)
class Scheduled:
    """A kernel as loops.

    Attributes:
        program: The loops.
        choices: How each group of nests became loops; with them, `scheduled` gives the same again.
        considered: What there was to choose from for each group, in order of preference; just the choice that is given.
    """

    program: LoopProgram
    choices: tuple[Choice, ...]
    considered: tuple[tuple[Candidate, ...], ...]

    @property
    def cycles(self) -> float:
        """What the loops take, as estimated."""
        return sum(_cycles(choice, tried) for choice, tried in zip(self.choices, self.considered, strict=True))


def schedule(kernel: Kernel, machine: Machine, choices: Sequence[Choice] = ()) -> LoopProgram:
    """The loops of a kernel for a machine; results and reductions as `kernel.evaluate`, up to the order of sums."""
    return scheduled(kernel, machine, choices).program


def scheduled(
    kernel: Kernel, machine: Machine, choices: Sequence[Choice] = (), families: Sequence[type[Choice]] = ()
) -> Scheduled:
    """The loops of a kernel for a machine, and what was chosen; `choices` that are given decide.

    Args:
        kernel: The kernel.
        machine: What it runs on.
        choices: One for each group of nests; () chooses.
        families: Families that are tried before those of `FAMILIES`: those of plugins.

    Raises:
        Unfit: a choice that is given does not apply, or there is not one for each group of nests.
    """
    prepared = _prepare(kernel, machine, stages=_by_blocks(choices))
    count = len(prepared.places)
    if not choices:
        found = [_best(place, families) for place in prepared.places]
    elif len(choices) == count:
        found = [_given(choice, place) for choice, place in zip(choices, prepared.places, strict=True)]
    else:
        raise Unfit(f"the kernel has {count} groups of nests, and the schedule has {len(choices)} parts")
    chosen = [applied for applied, _ in found]
    one = Scheduled(prepared.program(chosen), tuple(x.choice for x in chosen), tuple(c for _, c in found))
    together = None if choices else scheduled_by_blocks(kernel, machine)
    return one if together is None or together.cycles >= one.cycles else together


def scheduled_by_blocks(kernel: Kernel, machine: Machine) -> Scheduled | None:
    """The loops of a kernel whose nests share rows, by blocks of them; None where they do not, or do not apply."""
    prepared = _prepare(kernel, machine, stages=True)
    if len(prepared.places) != 1 or prepared.places[0].stages is None:
        return None
    (place,) = prepared.places
    found = list(tried(place, (Blocks,)))
    if all(applied is None for _, applied in found):
        return None
    applied, considered = _chosen(found, place)
    return Scheduled(prepared.program([applied]), (applied.choice,), (considered,))


def _by_blocks(choices: Sequence[Choice]) -> bool:
    """Whether a schedule that is given is one of all nests together."""
    return any(isinstance(c, Blocks) for c in choices)


def _cycles(choice: Choice, considered: Sequence[Candidate]) -> float:
    """What the loops of a group take by the way that was chosen."""
    return next(c.estimate.cycles for c in considered if c.choice == choice and c.estimate is not None)


def _given(choice: Choice, place: Place) -> Found:
    found, takes = choice.estimated(place)
    applied = _marked(found, choice, place)
    return applied, (Candidate(applied.choice, takes),)


def _marked(found: Applied, wanted: Choice, place: Place) -> Applied:
    """Loops with what a choice says, or leaves open, of every family: stores past the caches, loops for threads."""
    return shared(stored_past(found, wanted, place), wanted, place)


def check_transformed(kernel: Kernel, machine: Machine) -> None:
    """Raise Unfit with the reason if a kernel does not transform tiles, or there is no schedule for them as a whole."""
    found = [p for p in _prepare(kernel, machine, whole_tiles=True).places if p.transformed is not None]
    if not found:
        raise Unfit("its tiles are not found in the kernel")
    for place in found:
        Winograd().apply(place)


def _best(place: Place, families: Sequence[type[Choice]]) -> Found:
    """The first candidate that no other one is much faster than, and all there are; `Loops` and `Heap` always apply."""
    return _chosen([*tried(place, _offered(place, families), 0.0), *tried(place, _families(place))], place)


def _chosen(found: Sequence[tuple[Candidate, Applied | None]], place: Place) -> Found:
    """The best of what was tried for a group, and all of it."""
    chosen = best(found)
    marked = _marked(chosen, chosen.choice, place)
    return marked, tuple(replace(c, choice=marked.choice) if a is chosen else c for c, a in found)


def groups_of(kernel: Kernel, machine: Machine, choices: Sequence[Choice] = ()) -> tuple[Place, ...]:
    """The groups of nests of a kernel, each of which a schedule, such as the one that is given, has a choice for."""
    return _prepare(kernel, machine, stages=_by_blocks(choices)).places


def candidates_of(place: Place, families: Sequence[type[Choice]] = ()) -> Iterator[Candidate]:
    """All ways in which a group may become loops and that apply: also those that are not tried for a build."""
    for choice in choices_of(place, (*_offered(place, families), *_families(place))):
        if not isinstance(choice, Candidate):
            yield from attempted(choice, place)


def attempted(choice: Choice, place: Place) -> Iterator[Candidate]:
    """A choice for a group with everything that it leaves open; none if it does not apply."""
    candidate, applied = attempt(choice, place)
    if applied is not None:
        try:
            yield replace(candidate, choice=_marked(applied, choice, place).choice)
        except Unfit:
            return


def _offered(place: Place, families: Sequence[type[Choice]]) -> Sequence[type[Choice]]:
    """What plugins have for a place: what ranks elements or transforms tiles has families of its own alone."""
    own = place.ranking or place.transformed or place.transform or place.stages
    return families if own is None else ()


def _families(place: Place) -> tuple[type[Choice], ...]:
    """What is tried for a place."""
    if place.ranking is not None:
        return (Heap,)
    if place.transformed is not None:
        return (Winograd,)
    if place.stages is not None:
        return (Blocks,)
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
        machine: What it runs on.
    """

    whole: Kernel
    kernel: Kernel
    sizes: Sequence[Let]
    start: tuple[Stmt, ...]
    places: tuple[Place, ...]
    machine: Machine

    def program(self, groups: Sequence[Applied]) -> LoopProgram:
        """The loops of all groups, in order."""
        kernel = self.kernel
        scopes = [p.scope for p in self.places if p.scope is not None]
        narrow = {name: s.tensors[name].type for s in scopes for name in s.narrow}
        inside = {name for s in scopes for name in s.scalars}
        whole = [x for p in self.places for x in (p.transformed, p.stages) if x is not None]
        inside |= {name for x in whole for name in x.inside}
        buffers = [buffer(p.name, narrow.get(p.name, p.type)) for p in kernel.locals if p.name not in inside]
        body = (*self.start, *(s for g in groups for s in g.body))
        if self.sizes:
            used = {a.name for a in axes_of(body)}
            body = (*(s for s in self.sizes if s.local.name in used), *body)
        all_buffers = (*buffers, *(b for g in groups for b in g.buffers))
        # What iterations have to themselves: on the stack of each thread, or as often as there are threads.
        own = {name for s in walk_stmts(body) if isinstance(s, For) for name in s.own}
        copies = self.machine.threads
        placed = within(all_buffers, self.machine.stack)
        placed = tuple(replace(b, copies=copies) if b.name in own and not b.stack else b for b in placed)
        return LoopProgram(self.whole.params, self.whole.results, placed, body, self.machine.vector_bytes > 0)


def _prepare(kernel: Kernel, machine: Machine, whole_tiles: bool = False, stages: bool = False) -> _Prepared:
    kernel = widened(without_empty(kernel))
    kernel = only_needed(replace(kernel, nests=tuple(take_apart(simplify_nest(n)) for n in kernel.nests)))
    kernel = terms_together(without_repeated(kernel), machine)
    kernel = with_held_values(only_needed(without_vanishing(kernel, machine)))
    kernel = with_shared_values(kernel)
    whole = kernel
    kernel = with_reciprocals(ordered_products(roots_for_powers(kernel, machine), machine), machine)
    kernel = beside_rows(kernel, machine)
    kernel, converted = converted_factors(kernel, machine)
    kernel = split_phases(split_groups(split_blocks(without_invariant_axes(kernel))), machine)
    kernel, alone = columns_innermost(kernel, machine)
    kernel, sizes = limited(kernel)
    if stages and (found := stages_of(kernel)) is not None:
        filled = frozenset(p.name for p in kernel.results if needs_fill(kernel, p.name))
        place = Place(found.group, kernel, machine, filled, 0, stages=found)
        return _Prepared(whole, kernel, sizes, (), (place,), machine)
    pieces = _pieces(kernel, alone, converted, machine.vector_bytes > 0)
    if not whole_tiles:
        pieces = [piece for p in pieces for piece in _split(p, kernel, machine)]
    if machine.ordered:
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
    return _Prepared(whole, kernel, sizes, start, tuple(places), machine)


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


def _pieces(kernel: Kernel, alone: frozenset[str], converted: frozenset[str], vectors: bool) -> list[Piece]:
    """The nests in order: rankings, and groups of those between them."""
    found = rankings(kernel)
    out: list[Piece] = []
    run: list[Nest] = []
    for k, nest in enumerate(kernel.nests):
        if k in found:
            out += (*_groups(replace(kernel, nests=tuple(run)), alone, converted, vectors), found[k])
            run = []
        elif all(nest is not r.nest for r in found.values()):  # one that its reader stands for
            run.append(nest)
    return [*out, *_groups(replace(kernel, nests=tuple(run)), alone, converted, vectors)]


def _groups(
    kernel: Kernel, alone: frozenset[str], converted: frozenset[str], vectors: bool
) -> list[Group | Transformed]:
    return transformed_groups(partition(kernel, alone, converted, vectors), kernel)
