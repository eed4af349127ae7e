"""What the flags that several commands share say, as values."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class CacheFlags:
    """Which cache, and how."""

    mode: str | None = None
    directory: Path | None = None


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


def choice(
    model: str,
    target: str,
    pipeline: str | None,
    frontend: str,
    dim: list[str] | None,
    input: list[str] | None,
    set: list[str] | None,
    without: list[str] | None,
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
    )
