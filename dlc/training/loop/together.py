"""`Together`: a program that is trained by several ranks, and looks like one that trains on the joint batch.

    rank r:  L_r, g_r = gradients(its rows of the batch)
    all:     g = Σ w_r g_r / Σ w_r                            one sum over the buffer of all gradients
    rank r:  update(g)

w_r is what the rows of a rank count in the loss: where it is a mean and all labels count the same, g is that of the
joint batch up to rounding, and where it is a sum, so is the sum of all g_r. Every rank makes the same update, so
weights and the optimizer's state stay equal without being sent.

Random numbers of a program depend on its seed and the number of the step. Ranks draw their own: rank r computes
gradients as if it were r · K steps further, and makes the update, whose learning rate depends on the step, as itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from dlc.base.diagnostics import DlcError, error
from dlc.training.loop.metrics import loss_of, weight_of

if TYPE_CHECKING:
    from dlc.api.parts import Part
    from dlc.api.training_program import TrainingProgram
    from dlc.base.types import Array
    from dlc.training.loop.ranks import Ranks
    from dlc.training.step.loss import Loss

Statistics = Literal["joint", "local"]
"""Whose running statistics of batch normalisations are kept: the mean of all ranks', or rank 0's."""
_APART: Final = 0x9E3779B1
"""Steps that ranks are apart in their random numbers, of which the low 32 bits count: the golden ratio spreads them."""


@dataclass
class Together:
    """One rank's part in the training of a program."""

    program: TrainingProgram
    ranks: Ranks
    statistics: Statistics = "joint"
    asked: Callable[[], bool] = lambda: False
    """Whether this process was told to stop."""
    losses: Sequence[Part[Loss]] = ()
    """Those of plugins: the program's may be one of them."""
    stopped: bool = False
    """Whether any was, as of the last step: the same on all ranks."""

    def __post_init__(self) -> None:
        """Has the program sum its gradients. Raises DlcError: it has none in memory, or they have several types."""
        if self.ranks.count == 1:
            return
        from dlc.training.step.config import STEP  # with all of what makes steps, which one process does not need

        kind = loss_of(self.program, self.losses)
        self._kind: Any = kind
        self._is_sum = getattr(kind, "reduction", "mean") == "sum"
        self._even = not (getattr(kind, "weights", ()) or (self.program.classes and self._ignore is not None))
        self._share = 1.0 if self._is_sum else 1.0 / self.ranks.count
        accumulate = int(self.program.facts.get("accumulate", 1))
        self._shift = self.ranks.rank * (_APART - _APART % accumulate)
        self._apart, self._step_name = False, STEP
        self.program.all_reduce(self._sum)

    def step(self, feeds: dict[str, Array]) -> float:
        """One step on this rank's rows of a batch; the loss of the whole batch, NaN where it is not finite on a rank.

        Raises:
            DlcError: (`lost-rank`) another does not answer; or as `TrainingProgram.train_step` does.
        """
        if self.ranks.count == 1:
            loss = _finite(self.program, feeds)
            self.stopped = self.asked()
            return loss
        if not (self._even or self._is_sum):
            own = weight_of(self._kind, feeds[self.program.arguments[-1].name], self._ignore)
            whole = np.array([own])
            self.ranks.add(whole)
            self._share = own / float(whole[0]) if whole[0] else 1.0 / self.ranks.count
        self._set_apart(True)
        try:
            loss = _finite(self.program, feeds)
        finally:
            self._set_apart(False)
        found = np.array([loss * self._share, float(self.asked())])
        self.ranks.add(found)
        self.stopped = bool(found[1])
        return float(found[0])

    def settle(self) -> None:
        """Before a checkpoint or a validation: make what rank 0 has what all have.

        Raises:
            DlcError: (`ranks-differ`) weights of ranks are not equal.
        """
        if self.ranks.count == 1:
            return
        trained = self.program.gradients()
        running = {k: v for k, v in self.program.parameters().items() if k not in trained}
        if self.statistics == "joint" and running:
            self._mean(list(running.values()))
        if int(self.program.facts.get("accumulate", 1)) > 1:
            self._mean(list(trained.values()))  # so that a run that goes on in the middle of a sum has all of it
        h = sha256()
        for name in trained:
            h.update(self.program.parameters()[name].tobytes())
        self.check_equal(h.digest(), "weights")

    def check_equal(self, digest: bytes, what: str) -> None:
        """Raises DlcError (`ranks-differ`) where ranks have different digests of something."""
        found = self.ranks.gather(digest)
        if other := [k for k, d in enumerate(found) if d != found[0]]:
            raise error(
                "ranks-differ",
                f"rank {other[0]} of {self.ranks.count} has other {what} than rank 0",
                help="give all ranks the same program, built once for one processor, and the same data",
            )

    @property
    def _ignore(self) -> int | None:
        return self.program.classes.ignore if self.program.classes else None

    def _sum(self, flat: Array) -> None:
        """Between gradients and update."""
        self._set_apart(False)
        flat *= flat.dtype.type(self._share)
        self.ranks.add(flat)

    def _mean(self, arrays: list[Array]) -> None:
        flat = np.concatenate([a.reshape(-1).astype(np.float64) for a in arrays])
        self.ranks.add(flat)
        flat /= self.ranks.count
        at = 0
        for a in arrays:
            a[...] = flat[at : at + a.size].reshape(a.shape).astype(a.dtype)
            at += a.size

    def _set_apart(self, apart: bool) -> None:
        """Count this rank's steps from another number, or from the same as all."""
        step = self.program.state().get(self._step_name)
        if self._shift and step is not None and apart != self._apart:
            step[...] += self._shift if apart else -self._shift
        self._apart = apart


def _finite(program: TrainingProgram, feeds: dict[str, Array]) -> float:
    """A step's loss; NaN where it or a gradient is not finite."""
    try:
        return float(program.train_step(**feeds))
    except DlcError as problem:
        if problem.diagnostics[0].code != "not-finite":
            raise
        return math.nan
