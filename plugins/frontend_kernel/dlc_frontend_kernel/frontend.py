"""`KernelText`: kernel text or a JSON case → Graph."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Literal

from dlc import Bytes, DlcError, Frontend, Graph, Location, Op, Report, Source, option
from dlc.base.diagnostics import ExitCode, did_you_mean, error
from dlc.base.types import DType, f32
from dlc.graph import Call, Input, Item
from dlc.kernel.scalar import SCALARS
from dlc.passes.gradient import Gradient
from dlc_frontend_kernel.case import DATA_TYPES, read_case
from dlc_frontend_kernel.expressions import REDUCTIONS
from dlc_frontend_kernel.lower import Lowered, lower
from dlc_frontend_kernel.programs import named, read_programs
from dlc_frontend_kernel.syntax import KernelSource
from dlc_frontend_kernel.tokens import MAX_TEXT

_SNIFFED = 4096
"""Bytes that `sniff` looks at."""


@dataclass(frozen=True)
class KernelText(Frontend):
    """Tensor-index kernels: `.kernel` text and JSON cases."""

    name: ClassVar[str] = "kernel"
    suffixes: ClassVar[tuple[str, ...]] = (".kernel", ".json")
    runs: ClassVar[tuple[str, ...]] = (Gradient.name,)

    name_: str = option("", "name of the kernel to read, if the file has several")
    grad: tuple[str, ...] = option((), "inputs to differentiate with respect to: the graph computes the gradients")
    forward: bool = option(False, "read the kernel itself, even if the file or `grad` requests gradients")
    data_type: Literal["file", "float", "double", "int"] = option(
        "file", "element type of tensors without a type in the text; `file`: as in the case file, or else float"
    )
    max_tensor_bytes: Bytes = option(4 << 30, "largest tensor that is accepted", low=1)

    def sniff(self, source: Source) -> bool:
        """Whether the content starts like a JSON case."""
        try:
            head = source.part(0, _SNIFFED)
        except DlcError:
            return False
        return head.lstrip().startswith(b"{") and b'"kernel"' in head

    def supported(self) -> Iterable[tuple[str, str]]:
        """The functions and reductions that an expression may use."""
        for s in SCALARS.values():
            if not s.infix or s.infix == s.name:
                yield s.name, "conversion" if s.to is not None else f"function of {s.arity}"
            else:
                yield s.name, f"function of {s.arity}, {s.infix}"
        for name in REDUCTIONS:
            yield f"{name}[k]", "reduction"

    def parse(self, source: Source, report: Report) -> Graph:
        """The kernel's graph, or that of its gradients. Raises DlcError with line and column."""
        program = self.program(source)
        lowered = lower(program, self.max_tensor_bytes)
        report.count("statements", len(program.statements))
        report.count("nests", len(lowered.kernel.nests))
        graph = graph_of(program, lowered)
        wrt = () if self.forward else self.grad or program.grad
        return Gradient(wrt=wrt).run(graph, report) if wrt else graph

    def program(self, source: Source) -> KernelSource:
        """The kernel that the options choose."""
        view = source.view()
        if len(view) > 4 * MAX_TEXT:
            message = f"{source.name} has {len(view):,} bytes; the limit is {4 * MAX_TEXT:,}"
            raise error("too-large", message, location=Location(source.name), exit_code=ExitCode.LIMIT)
        try:
            text = bytes(view).decode("utf-8-sig")
        except UnicodeDecodeError as problem:
            place = Location(source.name, byte=problem.start)
            raise error("not-text", f"{source.name} is not UTF-8 text", location=place) from None
        dtype = DATA_TYPES.get(self.data_type)
        return self._choose(text, source, dtype)

    def _choose(self, text: str, source: Source, dtype: DType | None) -> KernelSource:
        if source.suffix == ".json" or (source.suffix != ".kernel" and text.lstrip().startswith("{")):
            programs = (read_case(text, source.name, dtype),)
        else:
            programs = read_programs(text, source.name, dtype or f32)
        found = named(programs, self.name_)
        if found is None:
            names = [p.name for p in programs]
            place = Location(source.name)
            if not self.name_:
                message = f"{source.name} has {len(names)} kernels: {', '.join(names)}"
                help = f"choose one: --frontend 'kernel{{name={names[0]}}}'"
                raise error("which-kernel", message, location=place, help=help, exit_code=ExitCode.USAGE)
            message = f"{source.name} has no kernel {self.name_}"
            help = did_you_mean(self.name_, names, "kernels")
            raise error("which-kernel", message, location=place, help=help, exit_code=ExitCode.USAGE)
        return found


def graph_of(program: KernelSource, lowered: Lowered) -> Graph:
    """One call of the kernel; an in/out tensor is an input and an output of one name that may share memory."""
    inputs = {p.name: Input(p.name, p.type) for p in lowered.inputs}
    call = Call(lowered.kernel, tuple(inputs[name] for name in lowered.reads))
    outputs: tuple[Op, ...] = (call,)
    if len(lowered.outputs) > 1:
        outputs = tuple(Item(call, k) for k in range(len(lowered.outputs)))
    names = tuple(p.name for p in lowered.outputs)
    order = list(inputs)
    aliases = tuple((k, order.index(name)) for k, name in enumerate(names) if name in inputs)
    return Graph(tuple(inputs.values()), outputs, names, aliases, {call.digest: origin(program)})


def origin(program: KernelSource) -> tuple[str, ...]:
    """The statements, for reports: `line 2: A[i,j] = …`."""
    lines = [f"line {program.tokens.line_of(s.at)}: {s.text}" for s in program.statements[:16]]
    return tuple(f"{line[:117]}…" if len(line) > 118 else line for line in lines)
