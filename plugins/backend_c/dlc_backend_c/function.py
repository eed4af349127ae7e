"""One kernel, one C function: what `emit` writes to files and `build` compiles."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from dlc import Job, Workshop
from dlc.kernel.kernel import Kernel
from dlc.kernel.loops.program import Program
from dlc.kernel.schedules import Machine, schedule
from dlc_backend_c.loops_to_c import function_text, scratch_places
from dlc_backend_c.prelude import prelude
from dlc_backend_c.target import CTarget

__all__ = ["CFunction", "Wanted", "c_function", "c_functions", "prelude"]


@dataclass(frozen=True)
class CFunction:
    """A complete C definition.

    Attributes:
        name: The function's name.
        text: `void NAME(const T0 *p0, …, R0 *r0, …[, unsigned char *scratch])` with its body; needs the prelude.
        scratch: Bytes of working memory, 64-aligned, that the caller passes last; 0: no such parameter.
    """

    name: str
    text: str
    scratch: int

    def to_bytes(self) -> bytes:
        """For the cache."""
        return json.dumps([self.name, self.scratch, self.text]).encode()

    @classmethod
    def from_bytes(cls, content: bytes) -> CFunction:
        """The inverse of `to_bytes`."""
        name, scratch, text = json.loads(content)
        return cls(name, text, scratch)


@dataclass(frozen=True)
class Wanted:
    """A function to be generated: the arguments of `c_function`."""

    kernel: Kernel
    name: str
    disjoint: bool

    def job(self, target: CTarget) -> Job:
        """Generating it: all that the text depends on is the kernel, its name, the machine, and what may overlap."""
        key = (
            ("kernel", self.kernel.digest),
            ("name", self.name),
            ("buffers", "disjoint" if self.disjoint else "shared"),
            ("machine", str(target.machine)),
        )
        return Job("generate", self.name, key, lambda: self.function(target).to_bytes())

    def function(self, target: CTarget) -> CFunction:
        """The function itself."""
        return c_function(self.kernel, self.name, target, disjoint=self.disjoint)


def c_functions(wanted: Sequence[Wanted], target: CTarget, workshop: Workshop | None = None) -> list[CFunction]:
    """The functions in the order given; a workshop keeps their text, because schedules take long to find."""
    if workshop is None:
        return [w.function(target) for w in wanted]
    return [CFunction.from_bytes(made) for made in workshop.cached([w.job(target) for w in wanted])]


def workspaces(kernels: Sequence[Kernel], target: CTarget, workshop: Workshop | None = None) -> list[int]:
    """Bytes that the function of each kernel works in, whatever its results overwrite; 64-aligned."""
    if workshop is None:
        return [workspace(k, target) for k in kernels]
    machine = ("machine", str(target.machine))
    jobs = [
        Job("workspace", k.digest, (("kernel", k.digest), machine), lambda k=k: b"%d" % workspace(k, target))
        for k in kernels
    ]
    return [int(made) for made in workshop.cached(jobs)]


def workspace(kernel: Kernel, target: CTarget) -> int:
    """`CFunction.scratch` of a kernel."""
    _, size = scratch_places(_loops(_plain(kernel), target.machine))
    return size


def c_function(kernel: Kernel, name: str, target: CTarget, *, disjoint: bool = True) -> CFunction:
    """The function that computes a kernel; results need no initial content.

    Buffers may not overlap. Unless `disjoint`, the compiler is not told so: a result may then overwrite an argument of
    which the kernel reads each element before it writes that one.
    """
    text, scratch = function_text(_loops(_plain(kernel), target.machine), name, disjoint=disjoint)
    return CFunction(name, text, scratch)


def _plain(kernel: Kernel) -> Kernel:
    return Kernel.canonical(kernel.params, kernel.results, kernel.nests, kernel.locals)


@lru_cache(maxsize=1024)
def _loops(kernel: Kernel, machine: Machine) -> Program:
    """A kernel's loops: memory is planned with what they work in before their text is written."""
    return schedule(kernel, machine)
