"""What the C++ header says of the functions with types: spans for tensors, values for scalars, and the checks of both.

int net_call(const float *x, const int64_t *batch, float *y, void *arena)             in NAME.h
Status call(span<const float> x, int64_t batch, span<float, 10> y) const noexcept     in NAME.hpp
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, cast

from dlc.base.extents import Dim, Extent, settled, symbols
from dlc.base.polynomials import Symbol
from dlc.base.types import i64
from dlc_backend_c.extent_text import c_extent
from dlc_backend_c.header import CPort, c_type
from dlc_backend_c.names import parameter, reserved
from dlc_backend_c.parameters import ON_A_LINE, CParameter
from dlc_backend_c.program import CProgram
from dlc_backend_c.spelling import literal
from dlc_backend_c.statuses import of_header
from dlc_backend_c.training_program import Training

OWN: Final = frozenset(
    (
        *("Arena", "Input", "Label", "Loss", "Memory", "Model", "Output", "Parameter", "Gradient", "Place", "State"),
        *("StaticArena", "StaticMemory", "Status", "Training", "accumulate", "arena_align", "arena_bytes"),
        *("arena_bytes_of", "bytes_", "c", "call", "checkpoint_bytes", "classes", "detail", "dlc", "dynamic_extent"),
        *("evaluate", "gradient", "gradients", "init", "inputs", "load", "memory_", "message", "outputs"),
        *("parameter", "parameters", "place", "predict", "profile", "reset_parallel_for", "run", "save"),
        *("set_parallel_for", "set_weights", "span", "state", "states", "step", "steps", "t_", "tensor", "threads"),
        *("threads_start", "threads_stop", "train_step", "update", "weights_bytes", "int8_t", "int16_t", "int32_t"),
        *("int64_t", "size_t", "uint8_t", "uint16_t", "uint32_t", "uint64_t", "uintptr_t"),
    )
)
"""Names of the C++ header: no parameter may hide one."""


def namespace(prefix: str) -> str:
    """The namespace of a program inside of `dlc`: its prefix, unless that may be a macro or is a keyword.

    Names in capitals only may be macros. They get an underscore, and so do those that end in some already: no two
    prefixes have one namespace.
    """
    return f"{prefix}_" if reserved(prefix.rstrip("_")) else prefix


@dataclass(frozen=True)
class CxxParameter:
    """One parameter of a function in C++."""

    ident: str
    of: CParameter

    @property
    def _scalar(self) -> bool:
        return not self.of.port.dims

    @property
    def _written(self) -> bool:
        return self.of.written

    @property
    def declared(self) -> str:
        """`span<const float, 784> x`, `int64_t batch`, `float &loss`."""
        if self._scalar:
            return f"{self.of.port.ctype} {'&' if self._written else ''}{self.ident}"
        return f"{view(self.of.port, written=self._written)} {self.ident}"

    @property
    def argument(self) -> str:
        """What the function in C gets."""
        return f"&{self.ident}" if self._scalar else f"{self.ident}.data()"


@dataclass(frozen=True)
class CxxFunction:
    """The parameters of a function."""

    parameters: tuple[CxxParameter, ...]

    @property
    def declared(self) -> str:
        """Between the parentheses; on several lines if there are many, as in C."""
        first, between = ("", ", ") if len(self.parameters) <= ON_A_LINE else (f"\n{_DEEPER}", f",\n{_DEEPER}")
        return first + between.join(q.declared for q in self.parameters)

    @property
    def arguments(self) -> tuple[str, ...]:
        """Those of the call in C, without the arena."""
        return tuple(q.argument for q in self.parameters)

    @property
    def width(self) -> int:
        """Of the longest name."""
        return max((len(q.ident) for q in self.parameters), default=0)

    @cached_property
    def sizes(self) -> dict[Symbol, str]:
        """The sizes that a caller gives, and the names of their parameters."""
        found = ((q.of.port.symbol, q) for q in self.parameters if q.of.input is not None)
        return {s: q.ident for s, q in found if s is not None}

    @property
    def wrong_sizes(self) -> tuple[str, ...]:
        """Conditions under which a size is none that the program is built for; multiples are checked in C."""
        return tuple(
            f"{name} < {literal(s.least, i64)} || {name} > {literal(s.most, i64)}" for s, name in self.sizes.items()
        )

    @property
    def short(self) -> tuple[str, ...]:
        """Conditions under which a span has fewer elements than its tensor at the sizes of the call."""
        opened = ((q, self._room(q.of.port)) for q in self.parameters if is_open(q.of.port))
        return tuple(f"{q.ident}.size() < static_cast<size_t>({self._text(room)})" for q, room in opened)

    @property
    def needs_smaller(self) -> bool:
        """Whether a condition calls the function that gives the smaller one of two numbers."""
        return any(f"{_SMALLER}(" in text for text in self.short)

    def _room(self, port: CPort) -> Extent:
        """Elements; of a size that the call finds there is room for the largest."""
        found = (s for s in symbols(port.elements) if s not in self.sizes)
        return settled(port.elements, {s: s.most for s in found})

    def _text(self, elements: Extent) -> str:
        # Sizes are of 64 bits, so products with them are.
        return c_extent(elements, self.sizes, _SMALLER).replace("(int64_t)", "")


_DEEPER: Final = " " * 8
_SMALLER: Final = "detail::smaller"


def model_values(program: CProgram, header: Mapping[str, object]) -> dict[str, object]:
    """The names that `model.hpp.j2` uses, of which the C header has most."""
    package, arena = program.package, program.arena
    call = cxx_function(program.parameters, package.macro)
    sizes = [] if arena is None else [(s, k) for s, k in arena.inputs.items()]
    names = [call.sizes.get(s, f"size{n}") for n, (s, _) in enumerate(sizes)]
    needs = package.asks_for_arena and not package.regions
    small = ["bytes_ < arena_bytes"] * (not header["arena_unlimited"])
    small += [f"bytes_ < arena_bytes_of({', '.join(names)})"] * bool(sizes)
    macros = [*cast("Sequence[str]", header["checked"])]
    macros += [m for m, there in (("STEP", "stepped"), ("SIZE", "finds")) if header[there]]
    own = ["short_span"] * bool(call.short) + ["small_arena"] * needs
    return {
        **header,
        **_shared_values(package.prefix),
        "errors": of_header((*_ALWAYS, *macros), package.macro, own),
        "call": call,
        "width": call.width,
        "needs_memory": needs,
        "small": " && ".join(small),
        "memory": "memory_" if package.asks_for_arena else "nullptr",
        "size_names": names,
    }


def training_values(training: Training, header: Mapping[str, object]) -> dict[str, object]:
    """The names that `training.hpp.j2` uses, of which the C header has most."""
    package, bundle, step = training.package, training.bundle, training.parts[training.step]
    described = {"train_step": (step, "One training step on one batch.")}
    if training.final:
        described["gradients"] = (step, "Its first half: loss, gradients, running statistics and the number of steps.")
    described["evaluate"] = (training.parts["evaluate"], "Loss and outputs of one batch as at inference.")
    described["predict"] = (training.parts["predict"], "Outputs of one batch.")
    held = [r for r in ("parameters", "state", "gradients") if bundle.size(r)]
    macros = (*_ALWAYS, "LABEL", "NOT_FINITE", "CHECKPOINT", *cast("Sequence[str]", header["checked"]))
    return {
        **header,
        **_shared_values(package.prefix),
        "errors": of_header(macros, package.macro),
        "functions": {n: (cxx_function(part.parameters, package.macro), says) for n, (part, says) in described.items()},
        "held": [*held, *(["arena"] if package.asks_for_arena else [])],
    }


_ALWAYS: Final = ("NULL", "ALIGNMENT", "WEIGHTS")
"""Errors of every program."""


def _shared_values(prefix: str) -> dict[str, object]:
    return {"N": namespace(prefix), "view": view, "is_open": is_open, "c_type": c_type}


def cxx_function(parameters: Sequence[CParameter], macro: str) -> CxxFunction:
    """A function in C++ with the parameters of one in C; `macro` begins the macros of the header."""
    taken: list[str] = [*OWN]
    found: list[CxxParameter] = []
    for q in parameters:
        found.append(CxxParameter(parameter(q.port.name, taken, macro), q))
        taken.append(found[-1].ident)
    return CxxFunction(tuple(found))


def is_open(port: CPort) -> bool:
    """Whether a call says how many elements it has."""
    return isinstance(port.elements, Dim)


def view(port: CPort, *, written: bool) -> str:
    """`span<const float, 784>`; without a number where a call says how many elements there are."""
    element = port.ctype if written else f"const {port.ctype}"
    return f"span<{element}>" if is_open(port) else f"span<{element}, {port.size}>"
