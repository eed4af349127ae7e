"""What the lowering of a program has made so far: versions of tensors, and nests."""

from __future__ import annotations

from dataclasses import replace

from dlc.base.lexer import MAX_DEPTH
from dlc.base.types import DType, Type
from dlc.kernel.expr import Axis, axes_in
from dlc.kernel.nest import MAX_POINTS, Nest, Param
from dlc.kernel.simplify import depth, simplify_nest
from dlc_frontend_kernel.syntax import BOUND, KernelSource


class Workspace:
    """The state of one lowering.

    Attributes:
        inputs: The inputs by name.
        current: The version of a tensor that a statement reads now, by the tensor's name; none before it is written.
        made: What nests write, by its own name.
    """

    def __init__(self, program: KernelSource, max_bytes: int) -> None:
        self.program, self.tokens, self.max_bytes = program, program.tokens, max_bytes
        self.inputs: dict[str, Param] = {}
        for name in program.ins:
            declared = program.tensors[name]
            self.inputs[name] = self.tensor(name, declared.dtype or program.dtype, declared.shape, declared.at)
        self.current: dict[str, Param] = dict(self.inputs)
        self.made: dict[str, Param] = {}
        self.nests: list[Nest] = []
        self._shared: dict[Nest, Param] = {}

    def tensor(self, name: str, dtype: DType, shape: tuple[int, ...], at: int) -> Param:
        """A tensor of a size that is accepted."""
        of = Type(dtype, shape)
        if of.nbytes > self.max_bytes:
            message = f"{name} of type {of} takes {of.nbytes:,} bytes; the limit is {self.max_bytes:,}"
            help = "if this size is meant, raise the limit: --set kernel.max-tensor-bytes=64GiB"
            raise self.tokens.fault("too-large", message, at, help)
        return Param(name, of)

    def fresh(self, name: str, dtype: DType, shape: tuple[int, ...], at: int) -> Param:
        """A tensor that the kernel itself writes."""
        found = self.tensor(name, dtype, shape, at)
        found = replace(found, name=f"{name}@{len(self.made)}")
        self.made[found.name] = found
        return found

    def shared(self, nest: Nest, dtype: DType, at: int) -> Param:
        """A new tensor with what a nest with plain subscripts computes, or the one that an equal nest has made."""
        axes = {a: Axis(f"i{k}", a.extent) for k, a in enumerate(nest.axes)}
        key = nest.substitute(axes, tuple(axes.values()))
        if key not in self._shared:
            shape = tuple(a.extent for a in axes_in(*nest.index))
            self._shared[key] = self.fresh("t", dtype, shape, at)
            self.emit(replace(nest, out=self._shared[key].name), at)
        return self._shared[key]

    def emit(self, nest: Nest, at: int) -> None:
        """Append a nest, simplified, of a size and depth that everything behind can handle."""
        if any(depth(e) > MAX_DEPTH for e in nest.exprs()):
            message = f"a term has more than {MAX_DEPTH} operations in each other"
            raise self.tokens.fault("too-large", message, at, "divide it into several statements")
        if nest.points > MAX_POINTS:
            shown = " x ".join(f"{a.name.partition(BOUND)[0]}<{a.extent}" for a in nest.axes)
            message = f"a term has {nest.points:,} points ({shown}); the limit is {MAX_POINTS:,}"
            raise self.tokens.fault("too-large", message, at)
        self.nests.append(simplify_nest(nest))
