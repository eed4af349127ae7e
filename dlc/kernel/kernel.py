"""Kernels: closed lists of nests over positional parameters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b

from dlc.base.types import DType
from dlc.kernel.contents import functions_of, numbers_of
from dlc.kernel.expr import Axis, Expr
from dlc.kernel.nest import Nest, Param, dtype_of, identity
from dlc.kernel.print import print_nests


@dataclass(frozen=True)
class Kernel:
    """A closed, positional program of nests. Build it with `Kernel.canonical`, which names everything by position."""

    params: tuple[Param, ...]
    results: tuple[Param, ...]
    locals: tuple[Param, ...]
    nests: tuple[Nest, ...]

    @cached_property
    def tensors(self) -> dict[str, Param]:
        """Every parameter, result and local by name."""
        return {p.name: p for p in (*self.params, *self.results, *self.locals)}

    @cached_property
    def sizes(self) -> dict[str, tuple[int, int]]:
        """(bytes of an element in memory, bytes of all) of every tensor, by name."""
        return {name: (p.storage.itemsize, p.type.nbytes) for name, p in self.tensors.items()}

    @cached_property
    def param_names(self) -> Mapping[str, Param]:
        """The parameters by name."""
        return {p.name: p for p in self.params}

    @cached_property
    def result_kinds(self) -> frozenset[tuple[DType, int]]:
        """The element types of its results, each with a number of elements: what may lie where a result does."""
        return frozenset((r.dtype, r.type.capacity) for r in self.results)

    @cached_property
    def overwritable(self) -> bool:
        """Whether a result may lie where a parameter does that a nest reads."""
        read = (p for p in self.params if p.name in self.readers)
        return any((p.dtype, p.type.capacity) in self.result_kinds for p in read)

    @cached_property
    def digest(self) -> str:
        """Content digest (32 hex digits). Equal digests mean equal computations up to naming, if canonical."""
        return blake2b(self.text().encode(), digest_size=16).hexdigest()

    def text(self, name: str = "") -> str:
        """The kernel, one nest a line; a `name` like `@k0` stands behind the word `kernel`."""
        return print_nests(self.params, self.results, self.locals, self.nests, name)

    @cached_property
    def writers(self) -> Mapping[str, tuple[int, ...]]:
        """Positions of the nests that write each tensor, in order; tensors that none writes are absent."""
        return writers_of(self.nests)

    @cached_property
    def readers(self) -> Mapping[str, tuple[int, ...]]:
        """Positions of the nests that read each tensor, in order; tensors that none reads are absent."""
        return readers_of(self.nests)

    def touching(self, name: str) -> set[int]:
        """Positions of the nests that write or read a tensor."""
        return {*self.writers.get(name, ()), *self.readers.get(name, ())}

    @cached_property
    def reduces(self) -> bool:
        """Whether any nest is a reduction."""
        return any(n.reduce is not None for n in self.nests)

    @cached_property
    def local_numbers(self) -> Mapping[str, int]:
        """The position of every local among the locals, by name."""
        return {p.name: k for k, p in enumerate(self.locals)}

    @property
    def macs(self) -> int:
        """Points of the reductions: the usual count of multiply-accumulates for contractions."""
        return sum(n.points for n in self.nests if n.reduce is not None)

    def start_of(self, name: str) -> bool | int | float:
        """The value that every element of a result or local starts from."""
        writers = self.writers.get(name)
        return identity(self.nests[writers[0]].reduce if writers else None, self.tensors[name].dtype)

    def needed(self, *names: str) -> set[int]:
        """Positions of the nests that the values of these tensors come from."""
        found, seen, waiting = set[int](), set[str](), list(names)
        while waiting:
            out = waiting.pop()
            if out in seen:
                continue
            seen.add(out)
            for k in self.writers.get(out, ()):
                found.add(k)
                waiting += sorted(self.nests[k].reads())
        return found

    @cached_property
    def dtypes(self) -> Mapping[str, DType]:
        """The element type of every parameter, result and local."""
        return {p.name: p.dtype for p in (*self.params, *self.results, *self.locals)}

    @cached_property
    def functions(self) -> frozenset[str]:
        """The scalar functions that it applies, subscripts, guards and reductions included: names of `SCALARS`."""
        return functions_of(self.nests)

    @cached_property
    def element_types(self) -> frozenset[DType]:
        """The element types of its tensors, and of the numbers that it computes between them.

        Arithmetic on axes and literals alone, as in subscripts, is left out, and so is the truth of conditions: any
        integers that hold sizes do for the one, and any branch for the other.
        """
        return frozenset(self.dtypes.values()) | numbers_of(self.nests, self.dtypes)

    def dtype_of(self, e: Expr) -> DType | None:
        """Type of an expression; None for a literal, i64 for an axis.

        Raises:
            TypeError: operand types differ where they must not.
        """
        return dtype_of(e, self.dtypes)

    @classmethod
    def canonical(
        cls,
        params: tuple[Param, ...],
        results: tuple[Param, ...],
        nests: tuple[Nest, ...],
        locals: tuple[Param, ...] = (),
    ) -> Kernel:
        """The kernel with parameters p0…, results r0…, locals t0… and axes i0… in order of appearance."""
        names = {
            p.name: f"{prefix}{k}"
            for prefix, ps in (("p", params), ("r", results), ("t", locals))
            for k, p in enumerate(ps)
        }
        if len(names) != len(params) + len(results) + len(locals):
            raise ValueError("two tensors of a kernel share a name")

        def renamed(ps: tuple[Param, ...]) -> tuple[Param, ...]:
            return tuple(p if names[p.name] == p.name else replace(p, name=names[p.name]) for p in ps)

        changed = {old: new for old, new in names.items() if old != new}
        out: list[Nest] = []
        for nest in nests:
            if any(a.name != f"i{k}" for k, a in enumerate(nest.axes)):
                axes = {a: Axis(f"i{k}", a.extent) for k, a in enumerate(nest.axes)}
                nest = nest.substitute(axes, tuple(axes.values()))
            out.append(nest.rename(changed))
        return cls(renamed(params), renamed(results), renamed(locals), tuple(out))


def writers_of(nests: Iterable[Nest]) -> Mapping[str, tuple[int, ...]]:
    """Positions of the nests that write each tensor, in order."""
    return _positions((n.out,) for n in nests)


def readers_of(nests: Iterable[Nest]) -> Mapping[str, tuple[int, ...]]:
    """Positions of the nests that read each tensor, in order."""
    return _positions(n.loads for n in nests)


def _positions(names: Iterable[Iterable[str]]) -> Mapping[str, tuple[int, ...]]:
    """The positions at which each name occurs."""
    found: dict[str, list[int]] = {}
    for k, together in enumerate(names):
        for name in together:
            found.setdefault(name, []).append(k)
    return {name: tuple(positions) for name, positions in found.items()}
