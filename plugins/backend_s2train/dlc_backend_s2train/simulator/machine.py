"""`Machine`: executes a program out of its memory and nothing else.

machine = Machine(verified(program))
loss = machine.run("step", {"x": images, "label": labels})["loss"]

Tensors are looked at by their names (`tensor_called`), which several may share: views of one storage, values of
several entries.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from dlc_backend_s2train.checks import Verified
from dlc_backend_s2train.codes import Flag, Slot, Stage
from dlc_backend_s2train.isa.access import access
from dlc_backend_s2train.isa.instruction_set import ROW_OF, THREE_NORMS, Opcode
from dlc_backend_s2train.program import Entry, Function, Hyper, Instruction, Program
from dlc_backend_s2train.simulator.arithmetic import compute
from dlc_backend_s2train.simulator.memory import Memory, title
from dlc_backend_s2train.simulator.operands import Array, Mode, OperandError, Operands
from dlc_backend_s2train.simulator.tensor_names import tensor_called

if TYPE_CHECKING:
    from dlc.base.diagnostics import DlcError


@dataclass(frozen=True)
class Snapshot:
    """What a machine keeps from one run to the next."""

    weights: bytes
    """What the storages of weights and states hold, one after the other."""
    runs: Mapping[str, int]
    """Entry → how often it ran."""


class Machine:
    """A device with a program in its memory.

    Inputs are rounded to what their tensors store (fp16, int32), outputs widen to float32.
    """

    def __init__(self, verified: Verified, mode: Mode = "fast", checked: bool = False) -> None:
        """Take memory and fill in the weights.

        Args:
            verified: What to run, once the verifier has found it right (`checks.verified`); its limit of memory holds.
            mode: `bit-true` adds in the device's order; `fast` takes numpy's products, with the same roundings else.
            checked: Refuse reads of bytes that were never written in this entry, or that another storage overwrote;
                this takes nine times the memory.

        Raises:
            TypeError: a program that nobody verified.
            DlcError: `checked` needs more memory than the limit.
        """
        if not isinstance(verified, Verified):  # pyright: ignore[reportUnnecessaryIsInstance]  # callers without types
            raise TypeError("a machine is made of what checks.verified gives: verified(program)")
        self.program = program = verified.program
        self.mode: Mode = mode
        self._ways = [access(instruction) for instruction in program.instructions]
        self._memory = Memory(program, verified.limit, checked)
        self._runs = {entry.name: 0 for entry in program.entries}
        self._hypers = program.hypers
        self.overflow = False
        """The register `overflow`: whether the last run left an update out, its gradient having infinities or NaN."""

    @property
    def hypers(self) -> tuple[Hyper, ...]:
        """The registers of hyper-parameters, which begin as the program's; the host may write them between runs."""
        return self._hypers

    @hypers.setter
    def hypers(self, hypers: tuple[Hyper, ...]) -> None:
        if len(hypers) != len(self._hypers):
            raise _error("bad-array", f"the machine has {len(self._hypers)} hyper-parameters, not {len(hypers)}")
        self._hypers = hypers

    def run(
        self, entry: str, inputs: Mapping[str, Array], watch: Callable[[int], object] | None = None
    ) -> dict[str, Array]:
        """One run of an entry: inputs and labels by name → outputs by name.

        Args:
            entry: Its name.
            inputs: Inputs and labels by name.
            watch: Told the number of each instruction once it was executed; it may read memory, where values live
                for a few instructions only.

        Raises:
            DlcError: no such entry; inputs that are missing, unknown or of another shape; operands that do not fit;
                when `checked`, a read of what is not there.
        """
        function = self.entry(entry)
        run = self.begin(entry, inputs)
        for number in range(function.begin, function.end):
            self.execute(number, run)
            if watch is not None:
                watch(number)
        return {name: self._memory.read(self._memory.span(tensor)) for name, tensor in function.outputs}

    def begin(self, entry: str, inputs: Mapping[str, Array]) -> int:
        """Begin a run of an entry, whose instructions the caller executes: how often the entry ran before.

        Raises:
            DlcError: as `run`, of entry and inputs.
        """
        function = self.entry(entry)
        if self._memory.shadow:
            self._memory.shadow.forget()
        self._take(function, inputs)
        run = self._runs[entry]
        self._runs[entry] = run + 1
        self.overflow = False
        return run

    def bytes_at(self, address: int, size: int) -> bytes:
        """What memory holds there."""
        return self._memory.bytes_at(address, size)

    def put_bytes(self, address: int, data: bytes) -> None:
        """Put bytes into memory."""
        self._memory.put_bytes(address, data)

    def read(self, tensor: int | str, entry: str = "") -> Array:
        """What a tensor holds now, by number or by its name, in an entry where several have that.

        Raises:
            DlcError: no tensor has the name, or several, which are listed.
        """
        return self._memory.read(self._memory.span(self._number(tensor, entry)))

    def write(self, tensor: int | str, values: Array, entry: str = "") -> None:
        """Put values of the tensor's shape into memory, rounded to what it stores; names as in `read`."""
        number = self._number(tensor, entry)
        span = self._memory.span(number)
        if values.shape != span.shape:
            raise _error("bad-array", f'"{span.tensor.name}" has the shape {span.shape}, not {values.shape}')
        try:
            self._memory.write(span, values)
        except OperandError as problem:
            raise _error("bad-array", f'"{span.tensor.name}": {problem}') from None

    def snapshot(self) -> Snapshot:
        """Weights, states and counters as they are now."""
        return Snapshot(self._memory.weights, dict(self._runs))

    def restore(self, snapshot: Snapshot) -> None:
        """Back to a snapshot of a machine with the same program."""
        size = self._memory.weights_size
        if len(snapshot.weights) != size or snapshot.runs.keys() != self._runs.keys():
            found = f"{len(snapshot.weights):,} bytes of weights, not {size:,}"
            raise _error("bad-array", f"the snapshot is of another program: {found}")
        self._memory.put_weights(snapshot.weights)
        self._runs = dict(snapshot.runs)

    def execute(self, number: int, run: int) -> None:
        """One instruction of a run that `begin` began; raises DlcError as `run`."""
        instruction = self.program.instructions[number]
        ways = self._ways[number]
        if instruction.opcode in (Opcode.FRAME, Opcode.STORE):
            return
        try:
            if instruction.function is not None:
                self._call(number, self.program.functions[instruction.function])
                return
            rows = {slot: _rows(self.program, instruction, slot) for slot in ways}
            spans = {slot: self._memory.span(instruction.operands[slot], rows[slot]) for slot in ways}
            if instruction.opcode is Opcode.FILL:
                self._memory.clear(spans["dst0"], number)
                return
            values: dict[Slot, Array] = {}
            values |= {slot: self._memory.read(spans[slot], number) for slot, way in ways.items() if way.reads}
            results = compute(instruction.opcode, instruction.stage, self._operands(instruction, values, run))
            self.overflow |= instruction.stage is Stage.WEIGHT_UPDATE and not results
            # All operands are read before any is written, so that a result may take the place of an operand.
            for slot, value in results.items():
                self._memory.write(spans[slot], value, number)
        except OperandError as problem:
            raise _error("bad-operands", f"{title(self.program, number)}: {problem}") from None

    def _call(self, number: int, function: Function) -> None:
        """A function of the host, on what lies in memory."""
        from dlc_backend_s2train.host_functions import compiled  # imports all ops; few programs have functions

        values = [self._memory.read(self._memory.span(tensor), number) for tensor in function.reads]
        for tensor, value in zip(function.writes, compiled(function.text).run(values), strict=True):
            self._memory.write(self._memory.span(tensor), value, number)

    def _operands(self, instruction: Instruction, values: Mapping[Slot, Array], run: int) -> Operands:
        program, number = self.program, instruction.geometry
        geometry = None if number is None else program.geometries[number]
        first = 0
        if geometry is not None and geometry.samples != (0, 0):
            low, high = geometry.samples
            geometry = replace(geometry, n=high - low, samples=(0, 0))
            if Flag.DROPOUT in instruction.flags:
                tensor = program.tensors[instruction.operands["aux"]]
                first = low * (tensor.count // max(tensor.shape[0], 1))
        hyper = Hyper() if instruction.hyper is None else self._hypers[instruction.hyper]
        given = frozenset(instruction.operands)
        return Operands(instruction.flags, instruction.splitting, geometry, hyper, values, given, run, first, self.mode)

    def _take(self, function: Entry, inputs: Mapping[str, Array]) -> None:
        wanted = {**dict(function.inputs), **dict(function.labels)}
        for name in (*(wanted.keys() - inputs.keys()), *(inputs.keys() - wanted.keys())):
            from dlc.base.diagnostics import quote  # only errors need it

            problem = "is missing" if name in wanted else "is none of its inputs"
            message = f"entry {function.name}: array {quote(name)} {problem}"
            raise _error("bad-array", message, help=f"it takes {', '.join(wanted) or 'nothing'}")
        for name, number in wanted.items():
            self.write(number, np.asarray(inputs[name]))

    def entry(self, name: str) -> Entry:
        """The entry of a name; raises DlcError where there is none."""
        for entry in self.program.entries:
            if entry.name == name:
                return entry
        from dlc.base.diagnostics import did_you_mean  # only errors need it

        help = did_you_mean(name, self._runs, "entries")
        raise _error("unknown-entry", f"the program has no entry {name}", help=help)

    def _number(self, tensor: int | str, entry: str = "") -> int:
        return tensor if isinstance(tensor, int) else tensor_called(self.program, tensor, entry)


def _rows(program: Program, instruction: Instruction, slot: Slot) -> tuple[int, int] | None:
    """Which samples of an operand an instruction touches; None: all there is."""
    if instruction.geometry is None or (samples := program.geometries[instruction.geometry].samples) == (0, 0):
        return None
    whole = instruction.flags & (Flag.BN_TRAIN | Flag.SOFTMAX_CE) or THREE_NORMS in instruction.flags
    if whole or not ROW_OF[instruction.opcode].by_sample:
        raise OperandError("it works on whole batches, but its geometry names samples")
    if slot not in _SAMPLED[instruction.stage]:
        return None
    n = program.geometries[instruction.geometry].n
    shape = program.tensors[instruction.operands[slot]].shape
    if not 0 <= samples[0] < samples[1] <= n or shape[:1] != (n,):
        raise OperandError(f"samples {samples[0]} to {samples[1]} of {n}, but {slot} is {shape}")
    return samples


_POSTED: Final[frozenset[Slot]] = frozenset(("src0", "dst0", "dst1", "mask", "ptr", "res", "aux"))
_SAMPLED: Final[Mapping[Stage, frozenset[Slot]]] = {
    Stage.FORWARD: _POSTED,
    Stage.BACKWARD: _POSTED,
    Stage.WEIGHT_GRADIENT: frozenset(("src0", "src1")),
    Stage.WEIGHT_UPDATE: frozenset(("src0", "src1")),
}
"""Operands whose first dimension counts samples."""


def _error(code: str, message: str, help: str = "") -> DlcError:
    from dlc.base.diagnostics import error  # only errors need it

    return error(code, message, help=help)
