"""`Torch`: a `.pt2` file of torch.export → Graph."""

# pyright: basic
# JSON has no types: what is read is checked.

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Literal

from dlc import Bytes, DlcError, ExitCode, Frontend, Graph, Location, Op, Report, Source, Type, option
from dlc.base.diagnostics import did_you_mean, error, quote
from dlc.base.extents import symbol
from dlc.base.polynomials import LONGEST
from dlc.graph import Constant, Input, Tensor
from dlc.graph.graph import with_live_origins
from dlc_frontend_torch.archive import Archive
from dlc_frontend_torch.importer import REFUSED, Importer
from dlc_frontend_torch.nodes import Program, Ref
from dlc_frontend_torch.rules import supported
from dlc_frontend_torch.schema import Malformed, expression, program
from dlc_frontend_torch.unsupported import Refusals

_RANGE = re.compile(r"(\d{0,18})\.\.(\d{1,18})", re.ASCII)
UNBOUNDED: Final = 1 << 40
"""Upper bounds from here on are those of PyTorch for none."""


@dataclass
class Sizes:
    """The dimensions that expressions of the program mean."""

    given: Mapping[str, tuple[int, int]]
    """Bounds that the user gave, by symbol."""
    ranges: Mapping[str, tuple[int, int | None]]
    """Bounds of the program."""
    open: set[str] = field(default_factory=set[str])
    """Symbols without an upper bound."""

    def of(self, text: str) -> Any:
        """The dimension of an expression."""
        return expression(text, self.symbol)

    def symbol(self, name: str) -> Any:
        """The size of a symbol."""
        low, high = self.ranges.get(name, (1, None))
        if name in self.given:
            return symbol(name, *self.given[name])
        if high is None:
            self.open.add(name)
        return symbol(name, max(low, 1), LONGEST if high is None else high)


@dataclass(frozen=True)
class Torch(Frontend):
    """Programs of torch.export, `.pt2` files: read without PyTorch, and without running anything that is in them."""

    name: ClassVar[str] = "torch"
    suffixes: ClassVar[tuple[str, ...]] = (".pt2",)

    dims: tuple[str, ...] = option((), "sizes of the program's symbolic dimensions, or bounds: s77:4, s77:1..64")
    input: tuple[str, ...] = option((), "shapes of inputs: x:1x3x224x224")
    weights: Literal["constant", "input"] = option(
        "constant", "parameters and buffers: constants of the program, or inputs under their names in the module"
    )
    max_tensor_bytes: Bytes = option(4 << 30, "largest tensor that is accepted", low=1)
    max_nodes: int = option(200_000, "maximum number of nodes", low=1)

    def sniff(self, source: Source) -> bool:
        """Whether the content is a zip archive with a program."""
        try:
            head = source.part(0, 4)
        except DlcError:
            return False
        return head == b"PK\x03\x04" and b"/models/model.json" in source.part(-(1 << 20), 1 << 20)

    def supported(self) -> Iterable[tuple[str, str]]:
        """ATen's operators."""
        return supported()

    def parse(self, source: Source, report: Report) -> Graph:
        """The program's graph. Raises DlcError: no program, or with everything unsupported."""
        archive = Archive.open(source, self.max_tensor_bytes)
        sizes = self._sizes(archive.model, source)
        try:
            found = program(archive.model, source.title, sizes.of)
        except Malformed as problem:
            raise archive.damaged(str(problem)) from None
        if len(found.nodes) > self.max_nodes:
            message = f"{source.name} has {len(found.nodes):,} nodes; the limit is {self.max_nodes:,}"
            raise error("too-large", message, location=Location(source.name), exit_code=ExitCode.LIMIT)
        _check_open(found, sizes, source)
        for note in found.notes:
            report.note(note)
        report.count("nodes", len(found.nodes))

        def value(name: str, of: Type) -> Op:
            if self.weights == "input":
                return Input(name, of, "weight")
            array = archive.tensor(name)
            if array.shape != of.shape or array.dtype != of.dtype.numpy:
                raise archive.damaged(f"{name} is stored as {array.dtype}{list(array.shape)}, used as {of.text}")
            return Constant(Tensor.of(array), name)

        return graph_of(found, source.name, value)

    def _sizes(self, model: Mapping[str, Any], source: Source) -> Sizes:
        ranges: dict[str, tuple[int, int | None]] = {}
        for name, bounds in (model.get("range_constraints") or {}).items():
            low, high = bounds.get("min_val"), bounds.get("max_val")
            ranges[str(name)] = (int(low or 0), None if high is None or high >= UNBOUNDED else int(high))
        given = dict(map(_dim, self.dims))
        given |= self._shapes(model, source)
        for name, (low, high) in given.items():
            if name not in ranges:
                message = f"the program has no dimension {name}"
                help = did_you_mean(name, ranges, "dimensions")
                raise error(
                    "unknown-name", message, location=Location(source.name), help=help, exit_code=ExitCode.USAGE
                )
            least, most = ranges[name]
            if low < least or (most is not None and high > most):
                message = f"dimension {name} is {low}..{high}, the program was exported for {least}..{most or ''}"
                raise error("bad-shape", message, location=Location(source.name), exit_code=ExitCode.USAGE)
        return Sizes(given, ranges)

    def _shapes(self, model: Mapping[str, Any], source: Source) -> dict[str, tuple[int, int]]:
        """Sizes of symbols from shapes of inputs."""
        found: dict[str, tuple[int, int]] = {}
        metas = model["graph_module"]["graph"]["tensor_values"] if self.input else {}
        for text in self.input:
            name, _, shape = text.rpartition(":")
            sizes = [] if shape in ("", "scalar") else shape.split("x")
            dims = metas.get(name, {}).get("sizes")
            if dims is None or len(dims) != len(sizes) or not all(s.isdigit() for s in sizes):
                message = f"{text} is not an input of the program and its shape"
                help = "write --input x:1x3x224x224"
                raise error(
                    "unknown-name", message, location=Location(source.name), help=help, exit_code=ExitCode.USAGE
                )
            for size, dim in zip(sizes, dims, strict=True):
                kind = next(iter(dim))
                text_of = dim[kind]["expr_str"] if kind == "as_expr" else str(dim[kind])
                names: list[str] = []
                try:
                    fixed = expression(text_of, lambda n, names=names: names.append(n) or 0)
                except Malformed:
                    fixed = None
                if len(names) == 1 and fixed == 0:
                    found[names[0]] = int(size), int(size)
                elif fixed != int(size):
                    message = f"input {quote(name)} has a dimension {text_of}, which cannot be {size}"
                    help = "export the module with dynamic_shapes"
                    raise error(
                        "bad-shape", message, location=Location(source.name), help=help, exit_code=ExitCode.USAGE
                    )
        return found


def _usage(code: str, message: str, source: Source, help: str) -> DlcError:
    return error(code, message, location=Location(source.name), help=help, exit_code=ExitCode.USAGE)


def _dim(text: str) -> tuple[str, tuple[int, int]]:
    name, _, size = text.replace("=", ":").rpartition(":")
    if name and size.isascii() and size.isdigit():
        return name, (int(size), int(size))
    if name and (found := _RANGE.fullmatch(size)) and int(found[1] or 1) <= int(found[2]):
        return name, (int(found[1] or 1), int(found[2]))
    message = f"{text} is not a dimension and its size"
    help = "write --dim s77=1, or the sizes that it may have: --dim s77=1..8"
    raise error("bad-option", message, help=help, exit_code=ExitCode.USAGE)


def _check_open(found: Program, sizes: Sizes, source: Source) -> None:
    """Only outermost dimensions may be of any size."""
    from dlc.base.extents import symbols

    inner: dict[str, str] = {}
    for name, of in found.inputs:
        if isinstance(of, Type):
            for d in of.shape[1:]:
                inner |= {s.name: name for s in symbols(d) if s.name in sizes.open}
    if inner:
        listed = ", ".join(f"{s} of input {quote(name)}" for s, name in sorted(inner.items()))
        help = "give them sizes or bounds: " + " ".join(f"--dim {s}=1..128" for s in sorted(inner))
        message = f"dimensions without an upper bound: {listed}"
        raise error("unbound", message, location=Location(source.name), help=help, exit_code=ExitCode.USAGE)


def graph_of(found: Program, source: str, value: Any, *, inputs: Mapping[str, Op] | None = None) -> Graph:
    """The graph of a program.

    Args:
        found: The program.
        source: How messages call it.
        value: Gives the op that stands for a parameter, by its name and type.
        inputs: Ops for the user's inputs by name; by default inputs of these names.

    Raises:
        DlcError: with all that is unsupported.
    """
    refusals = Refusals(source)
    values: dict[str, Any] = {}
    given: list[Input] = []
    for name, of in found.inputs:
        if isinstance(of, Type):
            own = Input(name, of) if inputs is None else inputs[name]
            values[name] = own
            if isinstance(own, Input):
                given.append(own)
    used = {r for n in found.nodes for r in _read((n.args, tuple(n.kwargs.values())))}
    used |= {r.name for _, r in found.outputs if isinstance(r, Ref)}
    for p in found.parameters:
        if p.value not in used:
            continue
        own = value(p.name, p.type)
        values[p.value] = own
        if isinstance(own, Input):
            given.append(own)
    importer = Importer(refusals, values, found.types)
    importer.run(found.nodes, [ref for _, ref in found.outputs])
    refusals.check()
    names: list[str] = []
    outputs: list[Op] = []
    taken = {i.name for i in given}  # an output of an input's name would be one tensor with it
    for name, ref in found.outputs:
        if not isinstance(ref, Ref):
            continue
        result = importer.values.get(ref.name, REFUSED)
        if not isinstance(result, Op):
            message = (
                f"result {quote(name)} is no tensor, or depends on an input or constant that is none of dlc's types"
            )
            help = "numbers as inputs, complex numbers and objects have no such type: pass tensors of real numbers"
            raise error("unsupported-op", message, location=Location(source, node=ref.name), help=help)
        while name in taken:
            name += "_"
        taken.add(name)
        names.append(name)
        outputs.append(result)
    if not outputs:
        raise error("no-outputs", f"{source} returns no tensor", location=Location(source))
    return with_live_origins(Graph(tuple(given), tuple(outputs), tuple(names), (), importer.origins))


def _read(value: Any) -> Iterable[str]:
    match value:
        case Ref(name):
            yield name
        case list() | tuple():
            for v in value:
                yield from _read(v)
        case _:
            pass
