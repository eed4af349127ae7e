"""Where values lie in the arena at the sizes of a call, and how much of it the call needs.

    size_t m_arena_bytes(int64_t batch)                what a caller has to provide for such a call
    static size_t m_places(int64_t batch, size_t *o)   the same, and the offset of every buffer

The plan has a place for every value at the largest sizes. At others a value takes less, as far as the loops of the
kernels show (`overruns`), and what lies above it begins where it ends. What that gives is never more than the plan has:
where it would be, because loops go behind the end of several values, values lie where the plan has them. With a size
without a limit there is no such plan: every call has the memory that this function tells.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from dlc.api.places import Places, places_of
from dlc.api.plan import Plan, results_of
from dlc.api.region_memory import ALIGN
from dlc.base.extents import Extent, bounds, not_negative, settled, shown, symbols, value
from dlc.base.polynomials import LONGEST, Symbol
from dlc.graph import Call, Op
from dlc.graph.closed import unlimited, without_limit
from dlc_backend_c.body import Functions, form_of
from dlc_backend_c.extent_text import c_extent

PER_LINE: Final = 12
"""Numbers of a table on a line."""


@dataclass(frozen=True)
class Arena:
    """The buffers of a plan and how long each is.

    Attributes:
        places: What lies on what.
        sizes: Bytes of each buffer, multiples of `ALIGN`, as extents over the sizes that a caller gives.
        inputs: Symbol → number of the input that holds its size, in order.
        bytes: What the plan needs for the largest sizes.
    """

    places: Places
    sizes: tuple[Extent, ...]
    inputs: Mapping[Symbol, int]
    bytes: int

    @property
    def names(self) -> str:
        """The parameters of the function that tells what a call needs: `batch seq`."""
        return " ".join(s.name for s in self.inputs)

    @property
    def least(self) -> dict[str, int]:
        """The smallest size of every name."""
        return {s.name: s.least for s in self.inputs}

    def needed(self, sizes: Mapping[str, int]) -> int:
        """Bytes that a call of these sizes needs."""
        found = self.places.stacked([value(e, sizes) for e in self.sizes])[1]
        return min(self.bytes, found) if self.limited else found

    @property
    def free(self) -> tuple[Symbol, ...]:
        """The sizes that nobody limits."""
        return tuple(s for s in self.inputs if not s.limited)

    @property
    def limited(self) -> bool:
        """Whether there is a largest call, for which the plan is made."""
        return not self.free

    @cached_property
    def formula(self) -> str:
        """`min(1048576, 4096*batch*seq+64)`: what a call needs, of a few terms the largest; "": they are many."""
        terms = self.places.terms(self.sizes)
        if terms is None:
            return ""
        largest = shown(terms[0]) if len(terms) == 1 else f"max({', '.join(map(shown, terms))})"
        whole = not self.limited or max(bounds(t)[1] for t in terms) <= self.bytes
        return largest if whole else f"min({self.bytes}, {largest})"


def arena_of(plan: Plan, functions: Functions, align: int) -> Arena | None:
    """The arena of a plan that has sizes; None: it has none, or needs the same memory for all of them.

    Args:
        plan: Its offsets are multiples of `align`.
        functions: What its kernels touch.
        align: Bytes.

    Raises:
        DlcError: (`unbound-dimension`) a size has no limit, and something in the arena is made for the largest.
    """
    arena = _arena_of(plan, functions, align)
    if free := without_limit(plan.graph):
        least = plan.regions.get("arena", 0) if arena is None else arena.needed(arena.least)
        if least >= LONGEST:  # what is made for the largest size has as many elements, at least
            raise unlimited(free, f"without a limit, even the smallest call needs {least:,} bytes of memory")
    return arena


def _arena_of(plan: Plan, functions: Functions, align: int) -> Arena | None:
    given = {i.type.symbol: k for k, i in enumerate(plan.graph.inputs) if i.type.symbol is not None}
    places = places_of(plan, align) if given else None
    if places is None or not places.buffers:
        return None
    found: list[dict[Extent, None]] = [{} for _ in places.buffers]
    for kept in plan.kept:  # copied whole
        if (buffer := places.values.get(kept.digest)) is not None:
            found[buffer][kept.type.nbytes] = None
    for step in plan.steps:
        if step.digest in places.workspaces:
            k = places.workspaces[step.digest]
            needs = functions[form_of(plan, step)].needs if isinstance(step, Call) else places.buffers[k].size
            found[k][_for_every(needs, places.buffers[k].size, given)] = None
        for op, extra in _touched(plan, step, functions):
            if (buffer := places.values.get(op.digest)) is not None:
                found[buffer][_bytes(op, extra, given)] = None
    sizes = tuple(_aligned(_longest(list(e), b.size)) for e, b in zip(found, places.buffers, strict=True))
    arena = Arena(places, sizes, given, plan.regions.get("arena", 0))
    return arena if arena.needed(arena.least) < arena.bytes else None


def _touched(plan: Plan, step: Op, functions: Functions) -> list[tuple[Op, int | None]]:
    """The values that a step reads and writes, with the elements behind their last ones that it touches."""
    values = (*step.operands, *results_of(step))
    if not isinstance(step, Call):
        return [(v, None) for v in values]
    return list(zip(values, functions[form_of(plan, step)].overruns, strict=True))


def _bytes(value: Op, extra: int | None, given: Mapping[Symbol, int]) -> Extent:
    """Bytes of a value that are touched."""
    if extra is None:
        return value.type.nbytes
    bytes = (value.type.reach + extra) * value.type.dtype.itemsize
    return not_negative(_for_every(bytes, value.type.nbytes, given))


def _for_every(size: Extent, room: int, given: Mapping[Symbol, int]) -> Extent:
    """As much as is needed whatever sizes the program finds: these have no place among the arguments of a call."""
    largest = settled(size, {s: s.most for s in symbols(size) if s not in given})
    return largest if bounds(largest - size)[0] >= 0 else room  # the smaller what is found, the longer it would be


def _longest(sizes: Sequence[Extent], room: int) -> Extent:
    """The largest of several sizes of one buffer; all of its room if none is, or if even the smallest call needs it."""
    for e in sizes:
        if all(bounds(e - f)[0] >= 0 for f in sizes):
            return e if bounds(e)[0] < room else room
    return room


def _aligned(size: Extent) -> Extent:
    """The next multiple of `ALIGN`, with nothing negative that C would divide."""
    return (size + (ALIGN - 1)) // ALIGN * ALIGN


# ---- in C ------------------------------------------------------------------------------------------------------------


def places_function(arena: Arena, prefix: str) -> list[str]:
    """The definition of `PREFIX_places`."""
    kinds = list(dict.fromkeys(arena.sizes))
    rests = [j for k in arena.places.order for j in arena.places.rests[k]]
    ends: list[int] = []
    for k in arena.places.order:
        ends.append((ends[-1] if ends else 0) + len(arena.places.rests[k]))
    count = len(arena.sizes)
    names = {s: f"s{k}" for k, s in enumerate(arena.inputs)}
    lesser = [
        f"static int64_t {prefix}_smaller(int64_t a, int64_t b)",
        "{",
        "    return a < b ? a : b;",
        "}",
        "",
    ]
    values = [f"    n[{k}] = (size_t)({c_extent(e, names, f'{prefix}_smaller')});" for k, e in enumerate(kinds)]
    return [
        *(lesser if any(f"{prefix}_smaller(" in line for line in values) else ()),
        f"static size_t {prefix}_places({', '.join(f'int64_t {n}' for n in names.values())}, size_t *o)",
        "{",
        "    /* Buffers from the lowest to the highest: on which others each lies, where that list ends, its size. */",
        *_table("unsigned", "order", arena.places.order),
        *_table("unsigned", "rests", rests or [0]),
        *_table("unsigned", "ends", ends),
        *_table("unsigned", "kinds", [kinds.index(e) for e in arena.sizes]),
        *(_table("size_t", "largest", arena.places.offsets) if arena.limited else []),
        f"    size_t n[{len(kinds)}], bytes = 0;",
        "    unsigned k, j = 0;",
        "",
        *(f"    (void){n};" for n in names.values()),
        *values,
        f"    for (k = 0; k < {count}u; k++) {{",
        "        const unsigned b = order[k];",
        "        size_t at = 0;",
        "",
        "        for (; j < ends[k]; j++) {",
        "            const size_t end = o[rests[j]] + n[kinds[rests[j]]];",
        "            at = end > at ? end : at;",
        "        }",
        "        o[b] = at;",
        "        bytes = at + n[kinds[b]] > bytes ? at + n[kinds[b]] : bytes;",
        "    }",
        *(_as_planned(arena) if arena.limited else []),
        "    return bytes;",
        "}",
        "",
    ]


def _as_planned(arena: Arena) -> list[str]:
    return [
        f"    if (bytes > {arena.bytes}u) {{",
        f"        for (k = 0; k < {len(arena.sizes)}u; k++) {{",
        "            o[k] = largest[k];",
        "        }",
        f"        bytes = {arena.bytes}u;",
        "    }",
    ]


def arena_declaration(arena: Arena, prefix: str, idents: Mapping[int, str]) -> str:
    """`size_t PREFIX_arena_bytes(int64_t batch)`; names of inputs by their numbers."""
    words = (f"int64_t {idents.get(k, f'size{n}')}" for n, k in enumerate(arena.inputs.values()))
    return f"size_t {prefix}_arena_bytes({', '.join(words)})"


def bytes_function(
    arena: Arena, prefix: str, macro: str, checks: Sequence[str], special: Sequence[tuple[str, str, Arena | None]] = ()
) -> list[str]:
    """The definition of `PREFIX_arena_bytes`.

    Args:
        arena: That of all sizes.
        prefix: The first part of names.
        macro: The same of macros.
        checks: The functions that check the sizes, in order.
        special: Of each fast path a condition, the bytes that it needs, and its arena where other sizes are open.
    """
    sizes = [f"s{k}" for k in range(len(arena.inputs))]
    wrong = " || ".join(f"!{name}(&{s})" for name, s in zip(checks, sizes, strict=True))
    most = max(len(a.sizes) for a in (arena, *(a for _, _, a in special if a is not None)))
    taken = [f"    if ({test}) {{\n        return {wrong} ? 0 : {needs};\n    }}" for test, needs, _ in special]
    return [
        f"{macro}_API size_t {prefix}_arena_bytes({', '.join(f'int64_t {s}' for s in sizes)})",
        "{",
        f"    size_t o[{most}];",
        "",
        *taken,
        f"    return {wrong} ? 0 : {prefix}_places({', '.join(sizes)}, o);",
        "}",
        "",
    ]


def arena_offsets(arena: Arena, prefix: str, inputs: Sequence[int] | None = None) -> list[str]:
    """The statement that finds the offsets `o` of a call whose sizes were checked.

    `inputs`: for each input of the plan the number of that of the program, where that is another one.
    """
    numbers = (k if inputs is None else inputs[k] for k in arena.inputs.values())
    sizes = (f"*(const int64_t *)inputs[{k}]" for k in numbers)
    return [f"    (void){prefix}_places({', '.join(sizes)}, o);"]


def _table(ctype: str, name: str, numbers: Sequence[int]) -> list[str]:
    rows = [numbers[k : k + PER_LINE] for k in range(0, len(numbers), PER_LINE)]
    lines = [f"        {', '.join(map(str, row))}," for row in rows]
    lines[-1] = lines[-1].removesuffix(",")
    return [f"    static const {ctype} {name}[] = {{", *lines, "    };"]
