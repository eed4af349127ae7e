"""What the flags that several commands share say, as values; and how each of them is written, for all who read them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final


@dataclass(frozen=True)
class CacheFlags:
    """Which cache, and how; and whether the directory's configuration is trusted, as all that reads it gets these."""

    mode: str | None = None
    directory: Path | None = None
    trust_config: bool = False


@dataclass(frozen=True)
class Choice:
    """Everything that says what to build."""

    model: str
    target: str = ""
    pipeline: str | None = None
    frontend: str = ""
    dims: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    grad: tuple[str, ...] = ()
    """Inputs to differentiate by, as they were given: names, or several with commas between them."""
    train: str | None = None
    """Options of the training program to build; None: build the model itself."""
    min_offload: str | None = None
    """How much of the model the target has to compute itself, as `dlc.driver.offload` reads it."""

    @property
    def by(self) -> tuple[str, ...]:
        """Names of the inputs to differentiate by; the model itself is built when empty."""
        return tuple(name.strip() for text in self.grad for name in text.split(","))

    @property
    def asked(self) -> dict[str, object]:
        """All but the model, by name."""
        return {name: getattr(self, name) for name in FLAGS}


FLAGS: Final[Mapping[str, tuple[str, ...]]] = {
    "target": ("--target", "-t"),
    "pipeline": ("--pipeline", "-p"),
    "frontend": ("--frontend",),
    "dims": ("--dim",),
    "inputs": ("--input",),
    "settings": ("--set",),
    "without": ("--without",),
    "grad": ("--grad",),
    "train": ("--train",),
    "min_offload": ("--min-offload",),
}
"""Field of a choice → how the flag is written; each takes a value."""

MANY: Final = tuple(f.name for f in fields(Choice) if f.default == ())
"""Fields whose flags may repeat."""


def choice(
    model: str,
    target: str = "",
    pipeline: str | None = None,
    frontend: str = "",
    dim: list[str] | None = None,
    input: list[str] | None = None,
    set: list[str] | None = None,
    without: list[str] | None = None,
    grad: list[str] | None = None,
    train: str | None = None,
    min_offload: str | None = None,
) -> Choice:
    """The flags of a command as a value."""
    return Choice(
        model,
        target,
        pipeline,
        frontend,
        tuple(dim or ()),
        tuple(input or ()),
        tuple(set or ()),
        tuple(without or ()),
        tuple(grad or ()),
        train,
        min_offload,
    )
