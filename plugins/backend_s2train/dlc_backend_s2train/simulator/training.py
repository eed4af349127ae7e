"""`SimulatedTraining`: a training program in the simulator, called with arrays; see `dlc.api.training_program`.

Its loss scale may change between runs (Micikevicius et al., Mixed Precision Training, ICLR 2018). Gradients that
overflow show in a register of the machine: then the scale is halved. Where none did for some runs, it is doubled.
Scales are powers of two, so that nothing but the range of gradients depends on them.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from dlc import DlcError, ExitCode
from dlc.api.program import Port, Signature
from dlc.api.training import Classes
from dlc.base.diagnostics import Diagnostic, error
from dlc.base.types import Array
from dlc.files.writing import write_whole
from dlc.runtime.array_program import ArrayProgram
from dlc.training.step.refusals import no_gradients, no_template, not_finite
from dlc_backend_s2train.codes import Flag, Role
from dlc_backend_s2train.decompose.blocks import assembled
from dlc_backend_s2train.program import LOSS_SCALES, Hyper, Program
from dlc_backend_s2train.select.memory import TURNED
from dlc_backend_s2train.simulator.machine import Machine, Snapshot

_MAGIC: Final = b"S2TK"
_HEADER: Final = struct.Struct("<4sI32sQ")
"""Magic, CRC-32 of what follows, SHA-256 of the program, bytes of the counters."""


@dataclass(frozen=True, eq=False)
class SimulatedTraining:
    """A program that learns on the simulated device. Weights are fp16 in its memory and float32 here."""

    signature: Signature
    """Of a prediction."""
    machine: Machine
    identity: bytes
    """SHA-256 of the program's file."""
    step: Signature
    test: Signature
    """Of the entries `step` and `evaluate`."""
    classes: Classes | None
    facts: Mapping[str, int | str]
    template: tuple[str, bytes] = ("", b"")
    begin: Snapshot = field(init=False, repr=False)
    """What the program was built with."""
    scale: LossScale = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "begin", self.machine.snapshot())
        object.__setattr__(self, "scale", LossScale(self.machine))

    @property
    def arguments(self) -> tuple[Port, ...]:
        """What a step takes: the model's inputs, then the labels."""
        return self.step.inputs

    def __call__(self, *args: object, out: Mapping[str, object] | None = None, **inputs: object) -> dict[str, Array]:
        """The model's outputs by name, with the parameters as they are. Raises DlcError: arguments do not fit."""
        return self._run("predict", self.signature, args, inputs, out)

    def train_step(self, *args: object, **inputs: object) -> float:
        """One step on one batch; its loss, before the weights moved. Where gradients overflow, `notes` says so."""
        loss = float(self._run("step", self.step, args, inputs)["loss"].reshape(()))
        if not math.isfinite(loss):
            raise not_finite(loss, "checked")
        self.scale.stepped()
        return loss

    def notes(self) -> tuple[Diagnostic, ...]:
        """That gradients of the last step overflowed, or that the loss scale of the next one is another."""
        return self.scale.notes

    def evaluate(self, *args: object, **inputs: object) -> dict[str, Array]:
        """`loss` and the model's outputs on one batch, as at inference."""
        found = self._run("evaluate", self.test, args, inputs)
        return {**found, "loss": found["loss"].reshape(())}

    def parameters(self) -> dict[str, Array]:
        """Weights and running statistics by name, as float32: what the device holds now."""
        return self._held({Role.WEIGHT, Role.NORM})

    def state(self) -> dict[str, Array]:
        """The optimizer's state by name."""
        return self._held({Role.STATE})

    def gradients(self) -> dict[str, Array]:
        """None: each is used as soon as it is known."""
        return {}

    def reset(self) -> None:
        """Start again from the values that the program was built with."""
        self.machine.restore(self.begin)
        self.scale.reset()

    def all_reduce(self, hook: Callable[[Array], None] | None) -> None:
        """Refused: there is no moment at which all gradients are known."""
        if hook is not None:
            raise no_gradients()

    def checkpoint(self) -> bytes:
        """Weights, states, counters of random numbers, and the loss scale."""
        now = self.machine.snapshot()
        counters = json.dumps({"runs": dict(now.runs), **self.scale.state()}, sort_keys=True).encode()
        body = counters + now.weights
        return _HEADER.pack(_MAGIC, zlib.crc32(body), self.identity, len(counters)) + body

    def restore(self, checkpoint: bytes) -> None:
        """What `checkpoint` gave; raises DlcError (`bad-checkpoint`) for anything else, and then nothing changes."""
        try:
            given = bytes(memoryview(checkpoint).cast("B"))
        except TypeError:
            raise _bad(f"it is not contiguous bytes, but of type {type(checkpoint).__name__}") from None
        if len(given) < _HEADER.size or given[:4] != _MAGIC:
            raise _bad("it is none" if given[:4] != _MAGIC else f"it ends after {len(given)} bytes")
        _, crc, identity, size = _HEADER.unpack_from(given)
        body = given[_HEADER.size :]
        if identity != self.identity:
            raise _bad("it is of another program")
        if crc != zlib.crc32(body):
            raise _bad("it is damaged: its checksum is another")
        try:
            held = json.loads(body[:size])
            if not {"runs", "scale", "clean"} <= dict(held).keys():
                raise ValueError("its counters are others")
            runs = {str(name): int(count) for name, count in held["runs"].items()}
            scale = self.scale.check(held)
            self.machine.restore(Snapshot(body[size:], runs))
            self.scale.restore(*scale)
        except (ValueError, LookupError, AttributeError, TypeError, OverflowError, RecursionError) as problem:
            raise _bad(str(problem)) from None

    def save_onnx(self, path: Path | str) -> None:
        """Write the model with the parameters as they are now, in the format it came in; raises DlcError."""
        from dlc.runtime.export import filled

        suffix, content = self.template
        if not content:
            raise no_template()
        write_whole(Path(path), filled(suffix, content, self.parameters()))

    def _run(
        self,
        entry: str,
        signature: Signature,
        args: tuple[object, ...],
        inputs: Mapping[str, object],
        out: Mapping[str, object] | None = None,
    ) -> dict[str, Array]:
        called = entry_of(self.machine, entry, signature)
        return called(*args, out=out, **inputs)

    def _held(self, roles: set[Role]) -> dict[str, Array]:
        """What stays in the device by the names of the model: blocks joined, exchanged dimensions put right."""
        program = self.machine.program
        parts: dict[str, Array] = {}
        for number in self._updated():
            tensor = program.tensors[number]
            if tensor.role in roles:
                parts[tensor.name] = self.machine.read(number)
        whole = assembled(parts)
        return {
            name.removesuffix(TURNED): values.T if name.endswith(TURNED) else values for name, values in whole.items()
        }

    def _updated(self) -> list[int]:
        """Tensors that updates write, in the order of the program."""
        found: dict[int, None] = {}
        for instruction in self.machine.program.instructions:
            if instruction.updates:
                operands = instruction.operands
                found |= {operands[slot]: None for slot in ("dst0", "dst1", "aux") if slot in operands}
        return list(found)


def entry_of(machine: Machine, name: str, signature: Signature) -> ArrayProgram:
    """An entry as a function of arrays."""

    def run(*arrays: Array) -> Sequence[Array]:
        given = {port.name: array for port, array in zip(signature.inputs, arrays, strict=True)}
        found = machine.run(name, given)
        return [found[port.name] for port in signature.outputs]

    return ArrayProgram(signature, run)


def identity_of(content: bytes | memoryview) -> bytes:
    """What ties checkpoints to a program."""
    return hashlib.sha256(content).digest()


def _bad(reason: str) -> DlcError:
    return error(
        "bad-checkpoint",
        f"the checkpoint cannot be read: {reason}",
        help="pass what `checkpoint` returned for the same program; nothing has changed",
        exit_code=ExitCode.USAGE,
    )


LOWEST: Final = LOSS_SCALES[0]
HIGHEST: Final = LOSS_SCALES[-1]


def learns(program: Program) -> bool:
    """Whether it was built for training: it has the three entries, of which two tell a loss."""
    outputs = {entry.name: [name for name, _ in entry.outputs] for entry in program.entries}
    return "predict" in outputs and all("loss" in outputs.get(name, ()) for name in ("step", "evaluate"))


def growth_of(program: Program) -> int:
    """Runs without overflow after which the host doubles the scale; 0: it is fixed."""
    return max((h.growth for h in program.hypers), default=0)


def scale_of(program: Program) -> float:
    """The scale that losses begin with."""
    found = (_hyper(program, number) for number in range(len(program.instructions)))
    return next((h.scale for i, h in zip(program.instructions, found, strict=True) if Flag.SOFTMAX_CE in i.flags), 1.0)


def _hyper(program: Program, number: int) -> Hyper:
    index = program.instructions[number].hyper
    return Hyper() if index is None else program.hypers[index]


class LossScale:
    """The scale of a machine's gradients, as the host has it."""

    def __init__(self, machine: Machine) -> None:
        """Of a machine whose registers are as its program has them."""
        self._machine = machine
        self._growth = growth_of(machine.program)
        self._begin = scale_of(machine.program)
        self.reset()

    def reset(self) -> None:
        """As the program begins."""
        self._clean = 0
        self._warned = False
        self._set(self._begin)
        self.notes: tuple[Diagnostic, ...] = ()
        """What a user should know of the last step."""

    def stepped(self) -> None:
        """After a step: look at the register, and choose the scale of the next one."""
        self.notes, before = (), self.scale
        overflow = self._machine.overflow
        self._clean = 0 if overflow else self._clean + 1
        if self._growth and overflow:
            self._set(max(before / 2, LOWEST))
        elif self._growth and self._clean >= self._growth:
            self._clean = 0
            self._set(min(before * 2, HIGHEST))
        if self.scale != before:
            why = f"{_steps(self._growth)} without overflow"
            why = "gradients overflowed, updates by them were left out" if overflow else why
            message = f"the loss scale is {self.scale:,.0f}, it was {before:,.0f}: {why}"
            self.notes = (Diagnostic("loss-scale", message, "note"),)
        elif overflow and not self._warned:
            self._warned = True
            self.notes = (self._overflowed(),)

    def state(self) -> dict[str, float]:
        """What `restore` takes."""
        return {"scale": self.scale, "clean": self._clean}

    def check(self, state: dict[str, float]) -> tuple[float, int]:
        """Scale and count of a state; raises ValueError and what wrong types raise where it is none."""
        scale, clean = float(state["scale"]), int(state["clean"])
        known = {self._begin} if not self._growth else set(LOSS_SCALES)
        if scale not in known or clean < 0:
            raise ValueError(f"its loss scale is {scale:g}, unchanged for {clean} steps")
        return scale, clean

    def restore(self, scale: float, clean: int) -> None:
        """What `check` gave."""
        self.reset()
        self._clean = clean
        self._set(scale)

    def _set(self, scale: float) -> None:
        """Write the machine's registers: thresholds are those of gradients that are multiplied by the scale."""
        self.scale = scale
        factor = scale / self._begin if self._begin else 1.0
        built = self._machine.program.hypers
        if self._growth:
            self._machine.hypers = tuple(
                replace(h, scale=h.scale * factor, threshold=h.threshold * factor) for h in built
            )

    def _overflowed(self) -> Diagnostic:
        message = f"gradients overflowed with the loss scale {self.scale:,.0f}: updates by them were left out"
        help = "try a lower learning rate, or look for very large values in the data"
        if not self._growth:
            help = "build with --set s2-select.loss-scale=dynamic, or a smaller one; or try a lower learning rate"
        return Diagnostic("overflow", f"{message}; this warning is printed once", "warning", help=help)


def _steps(count: int) -> str:
    return f"{count:,} step{'s' * (count != 1)}"
