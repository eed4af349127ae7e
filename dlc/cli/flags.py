"""Flags that several commands share, as types; what they say is a value of `dlc.cli.choice`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from dlc.cli.choice import FLAGS, CacheFlags, Choice, choice
from dlc.cli.complete import complete_passes, complete_pipelines, complete_targets

CacheMode = Literal["rw", "ro", "off", "require", "refresh"]
_WHAT = "What to build"
_CACHE = "Cache and machine"

Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout instead of text.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, no table, no notes; errors are still told.")]
Model = Annotated[str, typer.Argument(metavar="MODEL", help="The model's file.")]
Target = Annotated[
    str,
    typer.Option(
        *FLAGS["target"],
        metavar="SPEC",
        help="Backend with options, as c{cpu=generic}, or the name of a target of dlc.toml. By default the backend c.",
        autocompletion=complete_targets,
        rich_help_panel=_WHAT,
    ),
]
Pipeline = Annotated[
    str | None,
    typer.Option(
        *FLAGS["pipeline"],
        metavar="SPEC",
        help="Steps and names of pipelines, as expand,simplify{fast=yes},lower. By default the target's own.",
        autocompletion=complete_pipelines,
        rich_help_panel=_WHAT,
    ),
]
Frontend = Annotated[
    str,
    typer.Option(
        *FLAGS["frontend"],
        metavar="SPEC",
        help="Reader of the model, with options. By default the one that knows the file.",
        rich_help_panel=_WHAT,
    ),
]
Dim = Annotated[
    list[str] | None,
    typer.Option(
        *FLAGS["dims"], metavar="NAME=N", help="Size of a symbolic dimension; may repeat.", rich_help_panel=_WHAT
    ),
]
Input = Annotated[
    list[str] | None,
    typer.Option(
        *FLAGS["inputs"],
        metavar="NAME:SHAPE",
        help="Shape of an input, as x:1x3x224x224; may repeat.",
        rich_help_panel=_WHAT,
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        *FLAGS["settings"],
        metavar="STEP.KEY=VALUE",
        help="One option of a step or of the frontend, as fuse.max-nests=8; may repeat.",
        rich_help_panel=_WHAT,
    ),
]
Without = Annotated[
    list[str] | None,
    typer.Option(
        *FLAGS["without"],
        metavar="STEP",
        help="Leave a step out; may repeat.",
        autocompletion=complete_passes,
        rich_help_panel=_WHAT,
    ),
]
Grad = Annotated[
    list[str] | None,
    typer.Option(
        *FLAGS["grad"],
        metavar="INPUT[,INPUT]",
        help="Gradients of the outputs with respect to these inputs instead of the outputs; may repeat.",
        rich_help_panel=_WHAT,
    ),
]
Train = Annotated[
    str | None,
    typer.Option(
        *FLAGS["train"],
        metavar="KEY=VALUE,…",
        help="A training program instead of the model: loss, optimizer and other options of the pass autodiff, "
        "as 'loss=cross-entropy,optimizer=adam{lr=1e-3}'.",
        rich_help_panel=_WHAT,
    ),
]
MinOffload = Annotated[
    str | None,
    typer.Option(
        *FLAGS["min_offload"],
        metavar="PERCENT",
        help="How much the target computes at least, where it may leave ops to the host: of the model's nodes and of "
        "its multiply-adds, as 95%, or ops=80%,macs=99%. Exit code 4 if it is less.",
        rich_help_panel=_WHAT,
    ),
]


def _size(text: str) -> int:
    """Bytes of `16GiB`."""
    from dlc.spec.convert import Problem, parse_bytes

    try:
        return parse_bytes(text)
    except Problem as problem:
        raise typer.BadParameter(f"{problem}: {problem.help}") from None


MaxMemory = Annotated[
    int | None,
    typer.Option(
        "--max-memory",
        metavar="SIZE",
        parser=_size,
        help="How much memory a program may take where its target bounds that, as a simulator does: 16GiB.",
    ),
]
Cache = Annotated[
    CacheMode | None,
    typer.Option(
        "--cache",
        metavar="rw|ro|off|require|refresh",
        help="Read and write; read only; neither; fail with exit code 7 on a miss; build everything again. "
        "By default cache.mode of the configuration, else rw.",
        rich_help_panel=_CACHE,
    ),
]
CacheDir = Annotated[
    Path | None,
    typer.Option(
        "--cache-dir",
        metavar="DIR",
        help="Directory of the cache. By default cache.dir of the configuration, else the user's cache directory.",
        rich_help_panel=_CACHE,
    ),
]
TrustConfig = Annotated[
    bool,
    typer.Option(
        "--trust-config",
        help="Let this directory's configuration say what is run, this once; dlc trust says so for good.",
        rich_help_panel=_CACHE,
    ),
]
Jobs = Annotated[
    int,
    typer.Option(
        "--jobs", "-j", metavar="N", min=0, help="Compilers at once; 0: one per processor.", rich_help_panel=_CACHE
    ),
]

__all__ = ["CacheFlags", "Choice", "choice"]
"""The values live in `dlc.cli.choice`, which imports no typer."""
