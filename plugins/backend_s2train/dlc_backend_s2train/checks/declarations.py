"""What a program declares besides instructions: storages, tensors, host functions, loss scales.

Storages do not share bytes, tensors lie in theirs; texts of functions make sense, their tensors are what the texts say;
a loss scale that the host changes is one for the whole program, and a power of two.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from dlc.base.diagnostics import Diagnostic
from dlc_backend_s2train.checks.problems import problem, tensor_title, title
from dlc_backend_s2train.codes import Arena, Flag, Stage
from dlc_backend_s2train.program import LOSS_SCALES, Program, Storage

_LASTING = (Arena.WEIGHTS,)
"""Arenas whose storages hold values from one run to the next."""


def storage_problems(program: Program) -> Iterator[Diagnostic]:
    """Storages with impossible places or lifetimes, and those that share bytes while both live."""
    count = len(program.instructions)
    for number, s in enumerate(program.storages):
        title = _title(number, s)
        if s.size < 0 or s.address < 0:
            yield problem("bad-storage", f"{title} has {s.size} bytes at address {s.address}")
        if not 0 <= s.begin <= s.end <= count:
            yield problem("bad-storage", f"{title} lives from instruction {s.begin} to {s.end} of {count}")
        elif s.arena in _LASTING and (s.begin, s.end) != (0, count):
            message = f"{title} lives from instruction {s.begin} to {s.end}; it holds values from one run to the next"
            yield problem("bad-storage", f"{message}, so it lives from 0 to {count}")
    for storage, content in program.weights.items():
        if not 0 <= storage < len(program.storages):
            yield problem("no-such-number", f"weights are given for storage {storage} of {len(program.storages)}")
            continue
        s = program.storages[storage]
        if len(content) != s.size:
            yield problem("bad-weights", f"{_title(storage, s)} has {s.size} bytes, and weights of {len(content)}")
        if s.arena is not Arena.WEIGHTS:
            yield problem("bad-weights", f"{_title(storage, s)} lies outside the arena weights, but begins with values")
    # All arenas lie in one space of addresses.
    yield from _overlaps(program.storages)


def tensor_problems(program: Program) -> Iterator[Diagnostic]:
    """Tensors without storage, outside of theirs, or not aligned to their elements."""
    for number, t in enumerate(program.tensors):
        title = tensor_title(program, number)
        if not 0 <= t.storage < len(program.storages):
            yield problem("no-such-number", f"{title} lies in storage {t.storage} of {len(program.storages)}")
            continue
        if any(extent < 1 for extent in t.shape):
            yield problem("bad-tensor", f"{title} has the shape {list(t.shape)}")
            continue
        s = program.storages[t.storage]
        if t.offset < 0 or t.offset + t.nbytes > s.size:
            end = t.offset + t.nbytes
            yield problem(
                "outside-storage", f"{title} has bytes {t.offset} to {end} of {_title(t.storage, s)} of {s.size}"
            )
        unit = max(t.element.bits // 8, 1)
        if (s.address + t.offset) % unit:
            message = f"{title} begins at address {s.address + t.offset}; {t.element.name.lower()} needs multiples of"
            yield problem("misaligned", f"{message} {unit}")


def _overlaps(storages: tuple[Storage, ...]) -> Iterator[Diagnostic]:
    """Sweep over instructions with those that live sorted by address.

    Those that overlap nothing stand in `places`, where a new one has to look at its neighbours only. Those that do
    stand in `wrong`, which every new one looks through; it is as long as the problems that were reported already.
    """
    begins: dict[int, list[int]] = {}
    ends: dict[int, list[int]] = {}
    for number, s in enumerate(storages):
        if s.size > 0 and s.begin < s.end:
            begins.setdefault(s.begin, []).append(number)
            ends.setdefault(s.end, []).append(number)
    places: list[tuple[int, int]] = []
    wrong: list[int] = []
    for step in sorted({*begins, *ends}):
        for number in ends.get(step, ()):
            place = storages[number].address, number
            k = bisect_left(places, place)
            if k < len(places) and places[k] == place:
                del places[k]
            else:
                wrong.remove(number)
        for number in begins.get(step, ()):
            s = storages[number]
            k = bisect_right(places, (s.address, -1))
            hit = [other for _, other in _neighbours(storages, places, k, s)]
            hit += [other for other in wrong if _share(storages[other], s)]
            for other in sorted(hit):
                yield _overlap(storages, other, number, step)
            if hit:
                wrong.append(number)
            else:
                places.insert(k, (s.address, number))


def _neighbours(
    storages: tuple[Storage, ...], places: list[tuple[int, int]], k: int, s: Storage
) -> Iterator[tuple[int, int]]:
    """Those of `places`, which share no bytes with each other, that share some with `s`; it belongs at `k`."""
    if k and _share(storages[places[k - 1][1]], s):
        yield places[k - 1]
    for place in places[k:]:
        if place[0] >= s.address + s.size:
            return
        yield place


def _share(one: Storage, other: Storage) -> bool:
    return one.address < other.address + other.size and other.address < one.address + one.size


def _overlap(storages: tuple[Storage, ...], one: int, other: int, step: int) -> Diagnostic:
    a, b = storages[one], storages[other]
    begin, end = max(a.address, b.address), min(a.address + a.size, b.address + b.size)
    return problem(
        "overlap",
        f"{_title(one, a)} and {_title(other, b)} share {end - begin} bytes at address {begin} from instruction "
        f"{step} to {min(a.end, b.end)}",
        *(
            f"{_title(n, s)}: {s.size} bytes at {s.address}, instructions {s.begin} to {s.end}"
            for n, s in ((one, a), (other, b))
        ),
    )


def _title(number: int, storage: Storage) -> str:
    return f"storage {number} ({storage.arena.name.lower().replace('_', '-')})"


def function_problems(program: Program) -> Iterator[Diagnostic]:
    """What is wrong with host functions. Each is one instruction's, so that all of them are looked at once."""
    if not program.functions:
        return
    from dlc_backend_s2train.host_functions import problem_of  # imports all ops; few programs have functions

    callers: dict[int, int] = {}
    for number, instruction in enumerate(program.instructions):
        if instruction.function is not None and callers.setdefault(instruction.function, number) != number:
            first = callers[instruction.function]
            message = f"function {instruction.function} is called by the instructions {first} and {number}"
            yield problem("bad-function", f"{message}; each has one of its own")
    for number, function in enumerate(program.functions):
        absent = [t for t in (*function.reads, *function.writes) if not 0 <= t < len(program.tensors)]
        if absent:
            message = f"function {number} names tensor {absent[0]} of {len(program.tensors)}"
            yield problem("no-such-number", message)
        elif why := problem_of(function, program.tensors):
            yield problem("bad-function", f"function {number}: {why}")


def scale_problems(program: Program) -> Iterator[Diagnostic]:
    """Losses, updates and prunings whose gradients would be scaled in different ways once the host doubles the scale.

    A number that is no power of two would change more than the range of gradients.
    """
    growing = {h.scale for h in program.hypers if h.growth}
    if not growing:
        return
    common = min(growing)
    if common not in LOSS_SCALES:
        yield problem("bad-scale", f"the host may change a loss scale of {common:g}, no power of two from 1 to 2^24")
    for number, i in enumerate(program.instructions):
        if not (i.flags & (Flag.SOFTMAX_CE | Flag.PRUNE) or i.stage is Stage.WEIGHT_UPDATE):
            continue
        if i.hyper is not None and program.hypers[i.hyper].scale != common:
            has = program.hypers[i.hyper].scale
            yield problem("bad-scale", f"{title(number, i)} has the loss scale {has:g}, others {common:g}")
        if i.hyper is None and Flag.SOFTMAX_CE in i.flags:
            yield problem("bad-scale", f"{title(number, i)} has no loss scale, and others {common:g}, which may change")
