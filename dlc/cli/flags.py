"""Flags as typer takes them: those that are declared as fields of values (`dlc.cli.options`), and a few single ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import Field, dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, TypeVar, get_type_hints

import typer

from dlc.cli import complete
from dlc.cli.options import CACHE, BuildOptions, CacheOptions

R = TypeVar("R")

Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout instead of text.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, table or notes; errors are still printed.")]
Model = Annotated[str, typer.Argument(metavar="MODEL", help="The model's file.")]


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
        help="Memory limit of a program whose target has one, such as a simulator: 16GiB.",
    ),
]
Jobs = Annotated[
    int,
    typer.Option(
        "--jobs",
        "-j",
        metavar="N",
        min=0,
        help="Number of compilers that run in parallel; 0: one per processor.",
        rich_help_panel=CACHE,
    ),
]


@dataclass(frozen=True)
class Fields:
    """In the annotation of a parameter: the fields of its value that the command has flags for."""

    only: tuple[str, ...] = ()
    """Names; () for all."""
    but: tuple[str, ...] = ()

    def has(self, field: Field[Any]) -> bool:
        """Whether the command has the field's flag."""
        return bool(field.metadata) and field.name not in self.but and (not self.only or field.name in self.only)


ShapeOptions = Annotated[BuildOptions, Fields(only=("dims", "inputs", "lenient", "frontend", "grad"))]
"""How a model is read."""
StepOptions = Annotated[BuildOptions, Fields(only=("settings", "without"))]
"""What a pipeline's steps are changed by."""
RunOptions = Annotated[BuildOptions, Fields(but=("train",))]
"""What a program is built by that is run at once."""
BenchOptions = Annotated[BuildOptions, Fields(but=("train", "special"))]
"""What a program is built by that is measured, at the sizes of one call."""
TargetOptions = Annotated[BuildOptions, Fields(only=("target",))]
"""What a command is about that builds nothing."""
TuneOptions = Annotated[BuildOptions, Fields(but=("special", "tune"))]
"""What a program is built by whose kernels are tuned."""
BisectOptions = Annotated[BuildOptions, Fields(but=("special",))]
"""What a build is made by whose steps are searched for a fault."""
DebugOptions = Annotated[BuildOptions, Fields(but=("special", "train"))]
"""What a program is built by that is searched for a fault."""
CacheDirectory = Annotated[CacheOptions, Fields(only=("directory",))]
ReadCache = Annotated[CacheOptions, Fields(but=("mode",))]
"""Of commands that only look into the cache."""
ReadModel = Annotated[CacheOptions, Fields(only=("directory", "ops"))]
"""Of commands that read a model, or look into the cache."""
OpPacks = Annotated[CacheOptions, Fields(only=("ops",))]
"""Of commands that are about ops alone."""
Trust = Annotated[CacheOptions, Fields(only=("trust_config", "ops"))]
"""Of commands that cache nothing."""


def spelled(command: Callable[..., R]) -> Callable[..., R]:
    """The command with a flag for each field of the values that it takes, as typer reads flags off a signature."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, tuple[type, dict[str, Field[Any]]]] = {}
    parameters: list[Parameter] = []
    for p in signature(command).parameters.values():
        hint = hints[p.name]
        kind = getattr(hint, "__origin__", hint)
        known = next((m for m in getattr(hint, "__metadata__", ()) if isinstance(m, Fields)), Fields())
        if not dataclasses.is_dataclass(kind):
            parameters.append(p.replace(annotation=hint))
            continue
        assert isinstance(kind, type)
        groups[p.name] = kind, {f"{p.name}_{f.name}": f for f in dataclasses.fields(kind) if known.has(f)}
        own = get_type_hints(kind)
        for name, f in groups[p.name][1].items():
            default: Any = None if f.default == () else f.default
            parameters.append(Parameter(name, p.kind, default=default, annotation=_annotation(f, own[f.name])))

    @wraps(command)
    def called(*args: Any, **given: Any) -> R:
        for name, (kind, flags) in groups.items():
            said = {f.name: (given.pop(flag), f.default) for flag, f in flags.items()}
            given[name] = kind(**{key: tuple(v or ()) if default == () else v for key, (v, default) in said.items()})
        return command(*args, **given)

    called.__signature__ = Signature(parameters)  # pyright: ignore[reportAttributeAccessIssue]
    called.__annotations__ = {p.name: p.annotation for p in parameters}
    return called


def _annotation(field: Field[Any], kind: Any) -> Any:
    """The type of a field, and its flag."""
    said = field.metadata
    option = typer.Option(
        *said["words"],
        metavar=said["metavar"],
        help=said["help"],
        min=said["low"],
        rich_help_panel=said["panel"],
        autocompletion=getattr(complete, f"complete_{said['completes']}") if said["completes"] else None,
    )
    return Annotated[list[str] | None if field.default == () else kind, option]
