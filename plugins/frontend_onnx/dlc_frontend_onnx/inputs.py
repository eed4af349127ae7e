"""Inputs of a model: symbolic dimensions bound to sizes, all that are missing named at once."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final, TypeAlias

import onnx

from dlc.base.diagnostics import Diagnostic, DlcError, ExitCode, Location, did_you_mean, error
from dlc.base.extents import bounds, symbol
from dlc.base.polynomials import LONGEST
from dlc.base.types import Type
from dlc.graph import Input
from dlc.graph.closed import needs_sizes
from dlc_frontend_onnx.dim_formulas import formula, is_formula, names_in
from dlc_frontend_onnx.refusals import Refusals
from dlc_frontend_onnx.tensors import MAX_RANK, check_size, dtype_of
from dlc_frontend_onnx.unsupported import Unsupported

LIKELY: Final = 32
"""What an open dimension is taken to be where anything will do; the first one, mostly the batch, is taken to be 1."""
MOST: Final = 5
"""Dimensions from here on are taken to be 1 too: the tensor must stay small."""


@dataclass(frozen=True)
class Range:
    """Sizes that a dimension may have when the program runs: multiples of `unit` from `low` to `high`."""

    low: int
    high: int
    unit: int

    def __str__(self) -> str:
        return f"{self.low}..{self.high}{f'/{self.unit}' if self.unit > 1 else ''}"


Size: TypeAlias = "int | Range"
_RANGE = re.compile(r"(\d{0,18})\.\.(\d{1,18})(?:/(\d{1,9}))?", re.ASCII)


def size_of(text: str) -> Size | None:
    """`8`, `1..8`, `..8` (from 1), `64..512/8` (multiples of 8); None for any other text."""
    if text.isascii() and text.isdigit():
        return int(text)
    found = _RANGE.fullmatch(text)
    if found is None:
        return None
    unit = int(found[3] or 1)
    low, high = int(found[1] or unit), int(found[2])
    return Range(low, high, unit) if low <= high and unit and not low % unit and not high % unit else None


ANY: Final = Range(1, LONGEST, 1)
"""The sizes of an outermost dimension of which nothing is said."""


_KEPT: Final = 64
"""Characters of a model's name of a dimension that its name inside of the compiler has."""


@dataclass
class Symbols:
    """Names that sizes have inside of the compiler: word characters, and of no input."""

    taken: frozenset[str]
    names: frozenset[str] = frozenset()
    """Those of dimensions in the model."""
    first: frozenset[str] = frozenset()
    """Those of outermost ones."""
    given: dict[str, tuple[str, Range]] = field(default_factory=dict[str, "tuple[str, Range]"])

    def extent(self, name: str, size: Range) -> int:
        """The symbolic dimension of a name in the model; a number where it has one size only."""
        if name not in self.given:
            plain = re.sub(r"\W", "_", name, flags=re.ASCII) or "size"
            plain = f"n{plain}" if plain[0].isdigit() else plain
            if len(plain) > _KEPT:  # it stands in every formula of sizes, and in generated code
                plain = f"{plain[:_KEPT]}_{sha256(name.encode()).hexdigest()[:8]}"
            used = {*self.taken, *(n for n, _ in self.given.values())}
            while plain in used:
                plain += "_"
            self.given[name] = plain, size
        plain, size = self.given[name]
        return symbol(plain, size.low // size.unit, size.high // size.unit, size.unit)


@dataclass(frozen=True)
class Binding:
    """What the user said about shapes."""

    dims: Mapping[str, Size]
    """Size by symbol."""
    shapes: Mapping[str, tuple[Size, ...]]
    """Shape by input."""
    formulas: Mapping[str, str] = field(default_factory=dict[str, str])
    """Symbols that are as long as a formula of others says."""
    guessed: set[str] = field(default_factory=set[str])
    """Inputs with open dimensions that were given a size to go on with."""
    free: bool = False
    """Whether an outermost dimension of which nothing is said may have any size."""
    freed: set[str] = field(default_factory=set[str])
    """Inputs with such a dimension."""

    @property
    def numbers(self) -> Mapping[str, int]:
        """The symbols of which the size is a number."""
        return {name: size for name, size in self.dims.items() if isinstance(size, int)}

    @classmethod
    def of(cls, dims: Sequence[str], inputs: Sequence[str], *, free: bool = False) -> Binding:
        """From option texts `batch:1` (or `batch=1`, `batch=1..8`) and `x:1x3x224x224`; raises DlcError (USAGE)."""
        sizes: dict[str, Size] = {}
        formulas: dict[str, str] = {}
        for text in dims:
            name, _, size = text.replace("=", ":").rpartition(":") if ":" not in text else text.rpartition(":")
            found = size_of(size)
            if name and found is None and names_in(size):
                formulas[name] = size
                continue
            if not name or found is None:
                help = (
                    "write --dim batch=1, the sizes that it may have: --dim batch=1..8, or others: --dim total=past+seq"
                )
                raise _usage(f"{text} is not a dimension and its size", help)
            sizes[name] = found
        shapes: dict[str, tuple[Size, ...]] = {}
        for text in inputs:
            name, _, shape = text.rpartition(":")
            parts = [size_of(p) for p in (shape.split("x") if shape not in ("", "scalar") else [])]
            known = tuple(p for p in parts if p is not None)
            if not name or len(known) < len(parts):
                raise _usage(f"{text} is not an input and its shape", "write --input x:1x3x224x224")
            shapes[name] = known
        return cls(sizes, shapes, formulas, free=free)

    def inputs(
        self, graph: onnx.GraphProto, refusals: Refusals, limit: int, guess: bool = False
    ) -> dict[str, Input | None]:
        """The model's inputs by name, without those that have an initializer; None for one that is refused.

        Args:
            graph: The model's graph.
            refusals: Gets what is wrong with inputs.
            limit: Bytes that one may take.
            guess: Symbolic dimensions without a size become part of `refusals`, and are taken to have some size:
                what else is wrong with the model is then told with them.

        Raises:
            DlcError: symbolic dimensions without a size, all of them; names that the model does not have.
        """
        stored = {t.name for t in graph.initializer}
        protos = [i for i in graph.input if i.name not in stored]
        self._check_names(protos)
        open_ = {(k, d.dim_param) for p in protos for k, d in enumerate(p.type.tensor_type.shape.dim) if d.dim_param}
        first = frozenset(name for k, name in open_ if k == 0)
        symbols = Symbols(frozenset(p.name for p in protos), frozenset(name for _, name in open_), first)
        outermost = _outermost(protos) if self.free else frozenset[str]()
        unbound: dict[str, list[str]] = {}
        out: dict[str, Input | None] = {}
        for proto in protos:
            if proto.name in out:
                refusals.fail("duplicate", f"two inputs are named {proto.name}", proto.name)
            out[proto.name] = None
            try:
                type = self._type(proto, unbound, symbols, outermost)
                if type is not None:
                    check_size(type, limit, f"input {proto.name}", Location(refusals.source, node=proto.name))
                    out[proto.name] = Input(proto.name, type)
            except Unsupported as e:
                refusals.refuse("input", proto.name, e)
            except DlcError as e:
                refusals.caught(e, proto.name)
        if unbound and not guess:
            raise _unbound(unbound, refusals.source)
        if unbound:
            refusals.open = _unbound(unbound, refusals.source)
            self.guessed.update(name for names in unbound.values() for name in names)
        return out

    def _check_names(self, protos: Sequence[onnx.ValueInfoProto]) -> None:
        names = [p.name for p in protos]
        symbols = [
            _name(p.name, k, d)
            for p in protos
            for k, d in enumerate(p.type.tensor_type.shape.dim)
            if not d.HasField("dim_value")
        ]
        problems = [
            *(("dimension", n, symbols) for n in (*self.dims, *self.formulas) if n not in symbols),
            *(("dimension", n, symbols) for f in self.formulas.values() for n in names_in(f) if n not in symbols),
            *(("input", n, names) for n in self.shapes if n not in names),
        ]
        if problems:
            found = [
                Diagnostic(
                    "unknown-name", f"the model has no {what} {name}", help=did_you_mean(name, known, f"{what}s")
                )
                for what, name, known in problems
            ]
            raise DlcError(*found, exit_code=ExitCode.USAGE)

    def _type(
        self,
        proto: onnx.ValueInfoProto,
        unbound: dict[str, list[str]],
        symbols: Symbols,
        outermost: Collection[str],
    ) -> Type | None:
        kind = proto.type.WhichOneof("value")
        if kind != "tensor_type":
            raise Unsupported(f"an input of kind {(kind or 'none').removesuffix('_type')}", "only tensors are read")
        tensor = proto.type.tensor_type
        dtype = dtype_of(tensor.elem_type)
        declared = list(tensor.shape.dim)
        given = self.shapes.get(proto.name)
        if given is None and not tensor.HasField("shape"):
            unbound.setdefault("", []).append(proto.name)
            return None
        if given is not None and tensor.HasField("shape") and len(given) != len(declared):
            raise _usage(f"--input gives {proto.name} {len(given)} dimensions, the model {len(declared)}", "")
        if len(declared) > MAX_RANK:
            raise error("bad-shape", f"input {proto.name} has {len(declared)} dimensions")
        shape: list[int] = []
        for k in range(len(declared) if given is None else len(given)):
            dim = declared[k] if declared else onnx.TensorShapeProto.Dimension()
            size = self._size(proto.name, k, dim, None if given is None else given[k])
            told = self.formulas.get(_name(proto.name, k, dim), dim.dim_param)
            if size is None and given is None and is_formula(told, symbols.names, told != dim.dim_param):
                shape.append(self._formula(proto.name, k, told, symbols, outermost))
                continue
            if size is None and given is None and k == 0 and dim.dim_param in outermost:
                self.freed.add(proto.name)
                size = ANY
            if size is None:
                unbound.setdefault(dim.dim_param, []).append(proto.name)
                size = LIKELY if 0 < k < MOST else 1
            shape.append(size if isinstance(size, int) else symbols.extent(_name(proto.name, k, dim), size))
        return Type(dtype, tuple(shape))

    def _formula(self, name: str, k: int, text: str, symbols: Symbols, outermost: Collection[str]) -> int:
        """A dimension that is a formula of others; those without a size are reported where they stand alone."""
        around: list[str] = []

        def extent(of: str) -> int:
            if (own := self.formulas.get(of)) is not None:
                if of in around:
                    raise ValueError(f"{of} depends on itself")
                around.append(of)
                found = formula(own, extent)
                around.remove(of)
                return found
            size = self.dims.get(of, ANY if of in outermost else 1 if of in symbols.first else LIKELY)
            return size if isinstance(size, int) else symbols.extent(of, size)

        try:
            found = formula(text, extent)
        except ValueError as problem:
            raise error("bad-shape", f"dimension {k} of input {name}: {problem}") from None
        low, _ = bounds(found)
        if low < 0:
            raise _usage(
                f"dimension {k} of input {name}, {text}, may be {low}", "give ranges in which it is not negative"
            )
        return found

    def _size(self, name: str, k: int, dim: onnx.TensorShapeProto.Dimension, given: Size | None) -> Size | None:
        if dim.HasField("dim_value"):
            if dim.dim_value < 0:
                raise error("bad-shape", f"dimension {k} of input {name} is {dim.dim_value}")
            if given not in (None, dim.dim_value):
                help = "export the model with this dimension open, such as dynamic_axes of torch.onnx.export leaves it"
                raise _usage(f"--input gives dimension {k} of {name} as {given}, the model as {dim.dim_value}", help)
            return dim.dim_value
        bound = self.dims.get(_name(name, k, dim))
        if given is not None and bound not in (None, given):
            raise _usage(
                f"--input gives dimension {k} of {name} as {given}, --dim {_name(name, k, dim)} as {bound}",
                "leave one out",
            )
        return bound if given is None else given


def _name(of: str, k: int, dim: onnx.TensorShapeProto.Dimension) -> str:
    """What dimension `k` of input `of` is called, which the model leaves open."""
    return dim.dim_param or f"{of}_{k}"


def _outermost(inputs: Sequence[onnx.ValueInfoProto]) -> frozenset[str]:
    """Names of open dimensions that are outermost wherever an input has them; "" for that of a single input."""
    shapes = [p.type.tensor_type.shape.dim for p in inputs]
    open_ = [[(k, d.dim_param) for k, d in enumerate(dims) if not d.HasField("dim_value")] for dims in shapes]
    first = [name for found in open_ for k, name in found if k == 0]
    inner = {name for found in open_ for k, name in found if k > 0}
    return frozenset(name for name in first if name not in inner and (name or first.count("") == 1))


def _usage(message: str, help: str) -> DlcError:
    return error("bad-option", message, help=help, exit_code=ExitCode.USAGE)


def _unbound(unbound: Mapping[str, Sequence[str]], source: str) -> DlcError:
    symbols = [s for s in unbound if s]
    anonymous = list(dict.fromkeys(unbound.get("", ())))
    notes = [f"{s or 'without a name'}: of {', '.join(dict.fromkeys(names))}" for s, names in unbound.items()]
    flags = [*(f"--dim {s}=1" for s in symbols), *(f"--input {n}:1x…" for n in anonymous)]
    message = "dimensions of the inputs have" if len(flags) > 1 else "dimension of the inputs has"
    return needs_sizes(f"{source}: {len(flags)} {message} no size", flags, notes=notes)
