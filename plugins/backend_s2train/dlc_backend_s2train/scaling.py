"""The loss scale, which the host may change between runs (Micikevicius et al., Mixed Precision Training, ICLR 2018).

Gradients that overflow show in a register of the machine: then the scale is halved. Where none did for some runs, it is
doubled. Scales are powers of two, so that nothing but the range of gradients depends on them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from dlc.base.diagnostics import Diagnostic
from dlc_backend_s2train.codes import Flag
from dlc_backend_s2train.program import LOSS_SCALES, Hyper, Program
from dlc_backend_s2train.simulate import Machine

LOWEST: Final = LOSS_SCALES[0]
HIGHEST: Final = LOSS_SCALES[-1]


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
            told = f"the loss scale is {self.scale:,.0f}, it was {before:,.0f}: {why}"
            self.notes = (Diagnostic("loss-scale", told, "note"),)
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
        told = f"gradients overflowed with the loss scale {self.scale:,.0f}: updates by them were left out"
        help = "try a lower learning rate, or look for values in the data that are huge"
        if not self._growth:
            help = "build with --set s2-select.loss-scale=dynamic, or a smaller one; or try a lower learning rate"
        return Diagnostic("overflow", f"{told}; this is said once", "warning", help=help)


def _steps(count: int) -> str:
    return f"{count:,} step{'s' * (count != 1)}"
