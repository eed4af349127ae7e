"""Flags that several commands share, as types; and what they say, as one value."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from dlc.cli.complete import complete_passes, complete_pipelines, complete_targets

CacheMode = Literal["rw", "ro", "off", "require", "refresh"]

Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout instead of text.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no table.")]
Model = Annotated[str, typer.Argument(metavar="MODEL", help="The model's file.")]
Target = Annotated[
    str,
    typer.Option(
        "--target",
        "-t",
        metavar="SPEC",
        help="Backend with options, or a target of dlc.toml.",
        autocompletion=complete_targets,
    ),
]
Pipeline = Annotated[
    str | None,
    typer.Option(
        "--pipeline",
        "-p",
        metavar="SPEC",
        help="What to run: steps and names of pipelines.",
        autocompletion=complete_pipelines,
    ),
]
Frontend = Annotated[str, typer.Option("--frontend", metavar="SPEC", help="Reader of the model, with options.")]
Dim = Annotated[
    list[str] | None, typer.Option("--dim", metavar="NAME=N", help="Size of a symbolic dimension; may repeat.")
]
Input = Annotated[
    list[str] | None,
    typer.Option("--input", metavar="NAME:SHAPE", help="Shape of an input, as x:1x3x224x224; may repeat."),
]
Set = Annotated[
    list[str] | None, typer.Option("--set", metavar="STEP.KEY=VALUE", help="One option of a step; may repeat.")
]
Without = Annotated[
    list[str] | None,
    typer.Option("--without", metavar="STEP", help="Leave a step out; may repeat.", autocompletion=complete_passes),
]
Cache = Annotated[CacheMode | None, typer.Option("--cache", help="How the cache is used.")]
CacheDir = Annotated[Path | None, typer.Option("--cache-dir", metavar="DIR", help="Directory of the cache.")]
Jobs = Annotated[int, typer.Option("--jobs", "-j", min=0, help="Sub-steps at once; 0: one per processor.")]


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
