"""Initializers: what a weight starts with, as a function of a seed and of its name.

    stored     zeros     constant{value=0.1}     uniform{low=-0.1 high=0.1}     normal{mean=0 std=0.02}
    xavier-uniform{gain=1}     kaiming-uniform{mode=fan-out nonlinearity=relu}     xavier-normal     kaiming-normal

They are those of torch.nn.init of the same names, with its defaults; `fans` says what fan-in and fan-out are. Numbers
are drawn by Philox-4x32-10 (`dlc.ops.random`): each weight has a stream of its own, which follows from its name, so
that a layer more changes no other, and an element depends on the seed, the name and its place alone.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import ClassVar, Final, Literal

import numpy as np

from dlc.api.parts import Part
from dlc.base.diagnostics import ExitCode, error
from dlc.base.types import Array, Type, f64, i64
from dlc.graph import Constant, Tensor
from dlc.graph.walk import evaluate_ops
from dlc.ops.random import RandomNormal, RandomUniform
from dlc.spec import Configurable, Spec, option
from dlc.training.step.fans import Fans
from dlc.training.step.selection import selected

Nonlinearity = Literal["linear", "sigmoid", "tanh", "relu", "leaky-relu", "selu"]
_GAIN: Final = "factor of the standard deviation"


@dataclass(frozen=True)
class Draw:
    """Random numbers of one weight, in f64."""

    seed: int
    name: str

    def uniform(self, low: float, high: float, shape: tuple[int, ...]) -> Array:
        """U[low, high)."""
        u = self._numbers(RandomUniform, shape)
        return low + (high - low) * u

    def normal(self, mean: float, std: float, shape: tuple[int, ...]) -> Array:
        """N(mean, std²)."""
        return mean + std * self._numbers(RandomNormal, shape)

    def _numbers(self, kind: type[RandomUniform | RandomNormal], shape: tuple[int, ...]) -> Array:
        # 63 bits of the name's digest stand for it: 31 as stream, of which a normal number takes two, 32 as step.
        word = int.from_bytes(sha256(self.name.encode()).digest()[:8], "little")
        seed, step = (Constant(Tensor.of(np.asarray(v, np.int64), i64)) for v in (self.seed, word >> 32))
        (found,) = evaluate_ops((kind(seed, Type(f64, shape), step, word & 0x7FFFFFFF),), {})
        return found


@dataclass(frozen=True)
class Initializer(Configurable):
    """What a weight starts with."""


@dataclass(frozen=True)
class Stored(Initializer):
    """What the model has."""

    name: ClassVar[str] = "stored"


@dataclass(frozen=True)
class Drawn(Initializer, ABC):
    """Other numbers than the model has."""

    @abstractmethod
    def values(self, shape: tuple[int, ...], fans: Fans, draw: Draw) -> Array:
        """Numbers of a shape, in f64."""


@dataclass(frozen=True)
class Zeros(Drawn):
    """0; torch.nn.init.zeros_."""

    name: ClassVar[str] = "zeros"

    def values(self, shape: tuple[int, ...], fans: Fans, draw: Draw) -> Array:
        """Zeros."""
        return np.zeros(shape)


@dataclass(frozen=True)
class ConstantValue(Drawn):
    """One value; torch.nn.init.constant_."""

    name: ClassVar[str] = "constant"
    value: float = option(0.0, "the value of every element")

    def values(self, shape: tuple[int, ...], fans: Fans, draw: Draw) -> Array:
        """The value."""
        return np.full(shape, self.value)


@dataclass(frozen=True)
class Uniform(Drawn):
    """U[low, high); torch.nn.init.uniform_."""

    name: ClassVar[str] = "uniform"
    low: float = option(0.0, "least value")
    high: float = option(1.0, "value that all are below")

    def __post_init__(self) -> None:
        """Refuse an empty interval."""
        if not self.low <= self.high:
            message = f"uniform: low={self.low} is above high={self.high}"
            raise error("bad-option", message, help="write uniform{low=-0.1 high=0.1}", exit_code=ExitCode.USAGE)

    def values(self, shape: tuple[int, ...], fans: Fans, draw: Draw) -> Array:
        """Draw them."""
        return draw.uniform(self.low, self.high, shape)


@dataclass(frozen=True)
class Normal(Drawn):
    """N(mean, std²); torch.nn.init.normal_."""

    name: ClassVar[str] = "normal"
    mean: float = option(0.0, "mean")
    std: float = option(1.0, "standard deviation", low=0)

    def values(self, shape: tuple[int, ...], fans: Fans, draw: Draw) -> Array:
        """Draw them."""
        return draw.normal(self.mean, self.std, shape)


def _uniform_of(std: float, shape: tuple[int, ...], draw: Draw) -> Array:
    return draw.uniform(-math.sqrt(3.0) * std, math.sqrt(3.0) * std, shape)


@dataclass(frozen=True)
class Xavier(Drawn):
    """Variance gain² · 2 / (fan-in + fan-out): Glorot and Bengio 2010."""

    gain: float = option(1.0, _GAIN, low=0)

    def _std(self, fans: Fans) -> float:
        return self.gain * math.sqrt(2.0 / (fans.fan_in + fans.fan_out))


@dataclass(frozen=True)
class XavierUniform(Xavier):
    """U[-b, b) with b = gain · √(6 / (fan-in + fan-out)): Glorot and Bengio 2010; torch.nn.init.xavier_uniform_."""

    name: ClassVar[str] = "xavier-uniform"

    def values(self, shape: tuple[int, ...], fans: Fans, draw: Draw) -> Array:
        """Draw them."""
        return _uniform_of(self._std(fans), shape, draw)


@dataclass(frozen=True)
class XavierNormal(Xavier):
    """N(0, gain² · 2 / (fan-in + fan-out)): Glorot and Bengio 2010; torch.nn.init.xavier_normal_."""

    name: ClassVar[str] = "xavier-normal"

    def values(self, shape: tuple[int, ...], fans: Fans, draw: Draw) -> Array:
        """Draw them."""
        return draw.normal(0.0, self._std(fans), shape)


@dataclass(frozen=True)
class Kaiming(Drawn):
    """Variance gain² / fan, where the gain follows from the nonlinearity behind the layer: He et al. 2015."""

    a: float = option(0.0, "slope of leaky-relu below zero")
    mode: Literal["fan-in", "fan-out"] = option("fan-in", "keep the variance forward, or that of gradients backward")
    nonlinearity: Nonlinearity = option("leaky-relu", "what follows the layer")

    def _std(self, fans: Fans) -> float:
        return self._gain() / math.sqrt(fans.fan_in if self.mode == "fan-in" else fans.fan_out)

    def _gain(self) -> float:
        """As torch.nn.init.calculate_gain."""
        match self.nonlinearity:
            case "linear" | "sigmoid":
                return 1.0
            case "tanh":
                return 5.0 / 3.0
            case "relu":
                return math.sqrt(2.0)
            case "leaky-relu":
                return math.sqrt(2.0 / (1.0 + self.a**2))
            case "selu":
                return 0.75


@dataclass(frozen=True)
class KaimingUniform(Kaiming):
    """U[-b, b) with b = gain · √(3 / fan): He et al. 2015; torch.nn.init.kaiming_uniform_."""

    name: ClassVar[str] = "kaiming-uniform"

    def values(self, shape: tuple[int, ...], fans: Fans, draw: Draw) -> Array:
        """Draw them."""
        return _uniform_of(self._std(fans), shape, draw)


@dataclass(frozen=True)
class KaimingNormal(Kaiming):
    """N(0, gain² / fan): He et al. 2015; torch.nn.init.kaiming_normal_."""

    name: ClassVar[str] = "kaiming-normal"

    def values(self, shape: tuple[int, ...], fans: Fans, draw: Draw) -> Array:
        """Draw them."""
        return draw.normal(0.0, self._std(fans), shape)


INITIALIZERS: Final[Mapping[str, type[Initializer]]] = {
    kind.name: kind
    for kind in (
        *(Stored, Zeros, ConstantValue, Uniform, Normal),
        *(XavierUniform, XavierNormal, KaimingUniform, KaimingNormal),
    )
}
"""Name in a spec → initializer."""


def parse_initializer(
    text: str | Spec, source: str = "initializer", more: Sequence[Part[Initializer]] = ()
) -> Initializer:
    """The initializer that a spec describes: `kaiming-normal{nonlinearity=relu}`.

    `more` are those of plugins.

    Raises:
        DlcError: (USAGE) with a caret: the text is no spec, or names an initializer or option that does not exist.
    """
    return selected(text, source, INITIALIZERS, "initializer", "initializers", more)


def initial_value(name: str, of: Type, fans: Fans, initializer: Drawn, seed: int) -> Tensor:
    """What one weight starts with, rounded to its type."""
    values = initializer.values(of.shape, fans, Draw(seed, name))
    with np.errstate(over="ignore"):
        return Tensor.of(values.astype(of.dtype.numpy), of.dtype)
