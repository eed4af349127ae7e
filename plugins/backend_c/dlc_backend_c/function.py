"""One kernel, one C function: what `emit` writes to files and `build` compiles."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Final

from dlc import Job, Workshop
from dlc.base.diagnostics import ExitCode, error
from dlc.base.extent_text import parse
from dlc.base.extents import Extent
from dlc.kernel.kernel import Kernel
from dlc.kernel.loops.executed import Executed, executed
from dlc.kernel.loops.program import LoopProgram
from dlc.kernel.loops.verify import verify_loops
from dlc.kernel.nest import Param
from dlc.kernel.schedules.overrun import overruns
from dlc_backend_c.loops_to_c import function_text
from dlc_backend_c.prelude import prelude
from dlc_backend_c.scheduling import loops_of, plain_kernel
from dlc_backend_c.stack import function_stack
from dlc_backend_c.target import CTarget
from dlc_backend_c.working import open_places, workspace_places

__all__ = ["CFunction", "Wanted", "c_function", "c_functions", "prelude"]


@dataclass(frozen=True)
class FunctionCall:
    """A call of a C function.

    Attributes:
        name: The function's name.
        arguments: For each of its parameters, the position of a tensor among the kernel's parameters, its results and,
            last, its working memory, and how many bytes further on the argument begins.
        numbers: Arguments behind these: where the function is one for several kernels, in what they differ.
    """

    name: str
    arguments: tuple[tuple[int, int], ...]
    numbers: tuple[int, ...] = ()


@dataclass(frozen=True)
class CFunction:
    """What computes a kernel: one C function, or several that are called one after another where it is large.

    Attributes:
        name: The function's name; of several, the name of the whole.
        definitions: `void NAME(const T0 *p0, …, R0 *r0, …[, unsigned char *workspace])` with its body by name; needs
            the prelude.
        calls: What to call, in order.
        workspace: Bytes of working memory, 64-aligned, that the caller passes last; 0: no such parameter.
        needs: As many of them as the sizes of a call need.
        overruns: For every parameter of the kernel, then every result: elements behind the last one of a call that are
            touched; None: not known.
        stack: Bytes of stack at most, of its neediest definition.
        executed: Operations of a call.
    """

    name: str
    definitions: Mapping[str, str]
    calls: tuple[FunctionCall, ...]
    workspace: int
    needs: Extent
    overruns: tuple[int | None, ...]
    stack: int
    executed: Executed

    @property
    def text(self) -> str:
        """All definitions."""
        return "\n".join(self.definitions.values())

    def to_bytes(self) -> bytes:
        """For the cache."""
        calls = [[c.name, c.arguments, c.numbers] for c in self.calls]
        numbers = self.workspace, str(self.needs), self.overruns, self.stack, self.executed
        return json.dumps([self.name, calls, dict(self.definitions), *numbers]).encode()

    @classmethod
    def from_bytes(cls, content: bytes) -> CFunction:
        """The inverse of `to_bytes`."""
        name, calls, definitions, workspace, needs, behind, stack, count = json.loads(content)
        found = tuple(FunctionCall(n, tuple((k, further) for k, further in given), tuple(m)) for n, given, m in calls)
        return cls(name, definitions, found, workspace, parse(needs), tuple(behind), stack, Executed(*count))


@dataclass(frozen=True)
class Wanted:
    """A function to be generated: the arguments of `c_function`."""

    kernel: Kernel
    name: str
    disjoint: bool
    packed: tuple[int, ...] = ()
    schedule: str = ""
    beside: bool = False

    def job(self, target: CTarget) -> Job:
        """Generating it: all that the text depends on is the kernel, its name, the machine, and what may overlap."""
        key = (
            ("kernel", self.kernel.digest),
            ("name", self.name),
            ("buffers", "disjoint" if self.disjoint else "shared"),
            ("packed", " ".join(map(str, self.packed))),
            ("result", "beside others" if self.beside else "by itself"),
            ("machine", str(target.machine)),
            ("schedule", self.schedule),
        )
        return Job("generate", self.name, key, lambda: self.function(target).to_bytes())

    def function(self, target: CTarget) -> CFunction:
        """The function itself."""
        return c_function(
            self.kernel,
            self.name,
            target,
            disjoint=self.disjoint,
            packed=self.packed,
            schedule=self.schedule,
            beside=self.beside,
        )


def c_functions(wanted: Sequence[Wanted], target: CTarget, workshop: Workshop | None = None) -> list[CFunction]:
    """The functions in the order given; a workshop keeps their text, because schedules take long to find."""
    if workshop is None:
        return [w.function(target) for w in wanted]
    return [CFunction.from_bytes(made) for made in workshop.cached([w.job(target) for w in wanted])]


def c_function(
    kernel: Kernel,
    name: str,
    target: CTarget,
    *,
    disjoint: bool = True,
    packed: Sequence[int] = (),
    schedule: str = "",
    beside: bool = False,
) -> CFunction:
    """The function that computes a kernel; results need no initial content.

    A byte holds several elements of the parameters numbered `packed`, whose types have less than 8 bits. Without a
    `schedule`, the first that applies is chosen.

    Buffers may not overlap. Unless `disjoint`, the compiler may not assume it: a result may then overwrite an argument
    of which the kernel reads each element before it writes that one.

    Where the result lies `beside` others, it leaves elements alone that the kernel does not compute.
    """
    plain = plain_kernel(kernel)
    params = tuple(replace(p, packed=k in packed) for k, p in enumerate(plain.params))
    plain = replace(plain, params=params) if packed else plain
    program, parts = loops_of(plain, target.machine, schedule, target.families, beside)
    places, workspace = workspace_places(program)
    behind = overruns(program)
    count = len(kernel.params) + len(kernel.results)
    if not parts:
        _verify(program, plain)
        everything = tuple((k, 0) for k in range(count + bool(workspace)))
        text = function_text(program, name, disjoint=disjoint)
        _, needs = open_places(program)
        calls = (FunctionCall(name, everything),)
        return CFunction(
            name, {name: text}, calls, workspace, needs, behind, function_stack(program), executed(program)
        )
    tensors = {p.name: (k, p, 0) for k, p in enumerate((*program.params, *program.results))}
    own = (b for b in program.buffers if b.name in places)
    tensors |= {b.name: (count, Param(b.name, b.type), places[b.name]) for b in own}
    definitions: dict[str, str] = {}
    each: list[FunctionCall] = []
    for part in parts:
        _verify(part.program, plain)
        text = function_text(part.program, _PART, disjoint=disjoint)
        title = f"dlc_p_{blake2b(text.encode(), digest_size=16).hexdigest()}"
        definitions[title] = re.sub(rf"\b{_PART}(?=\(|_(?:loop|part)\d)", title, text)
        found = [(tensors[tensor], first) for tensor, first in part.arguments]
        each.append(FunctionCall(title, tuple((k, at + p.bytes_before(first)) for (k, p, at), first in found)))
    stack = max(function_stack(part.program) for part in parts)
    counts = [executed(part.program) for part in parts]
    count = Executed(sum(c.operations for c in counts), sum(c.weight for c in counts))
    return CFunction(name, definitions, tuple(each), workspace, workspace, behind, stack, count)


def _verify(program: LoopProgram, kernel: Kernel) -> None:
    """Raise DlcError (BUG) for loops that are no program: a compiler would refuse them, or not say what is wrong."""
    fault = verify_loops(program)
    if fault is not None:
        raise error(
            "invalid-loops",
            f"the loops of kernel {kernel.digest[:16]} are not valid: {fault}",
            notes=(f"the kernel is {kernel.text()}",),
            help=f"--schedule {kernel.digest[:16]}=loops uses another schedule; please report the kernel",
            exit_code=ExitCode.BUG,
        )


_PART: Final = "part"
"""Name of a part before its text, of which its name is made, is known."""
