"""The flags that several commands share, declared once: fields of values, read by typer and by the quick form.

Nothing here imports typer, whose import takes longer than a build that the cache has: `dlc.cli.flags` spells them out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from dlc.base.cache_settings import CacheMode

if TYPE_CHECKING:
    from dlc.driver.prepare import Choice

WHAT: Final = "What to build"
CACHE: Final = "Cache and machine"

FROM_CACHE: Final = "cache"
"""What --tune says for the records of the cache."""

Completes = Literal["", "targets", "pipelines", "passes", "steps"]
"""What a shell completes the value of a flag with."""


def flag(
    default: Any,
    *words: str,
    help: str,
    metavar: str | None = None,
    panel: str | None = None,
    completes: Completes = "",
    low: int | None = None,
) -> Any:
    """A field that a flag says. A field whose default is () takes a flag that may repeat."""
    flag = {"words": words, "help": help, "metavar": metavar, "panel": panel, "completes": completes, "low": low}
    return field(default=default, metadata=flag)


@dataclass(frozen=True)
class CacheOptions:
    """Which cache, and how; and whether the directory's configuration is trusted, as all that reads it gets these."""

    mode: CacheMode | None = flag(
        None,
        "--cache",
        metavar="rw|ro|off|require|refresh",
        help="rw: read and write; ro: read only; off: no cache; require: exit code 7 on a miss; refresh: rebuild "
        "everything and write. "
        "By default cache.mode of the configuration, else rw.",
        panel=CACHE,
    )
    directory: Path | None = flag(
        None,
        "--cache-dir",
        metavar="DIR",
        help="Directory of the cache. By default cache.dir of the configuration, else the user's cache directory.",
        panel=CACHE,
    )
    levels: str | None = flag(
        None,
        "--cache-levels",
        metavar="URLS",
        help="Caches behind the directory that machines share, nearest first: https://cache.example/dlc#rw,s3://ci. "
        "Builds upload to those that end in #rw. disk stands for the directory, and alone for no others. By default "
        "cache.levels of the configuration.",
        panel=CACHE,
    )
    trust_config: bool = flag(
        False,
        "--trust-config",
        help="Trust this directory's configuration to run programs, for this command; dlc trust does so permanently.",
        panel=CACHE,
    )
    budget: str | None = flag(
        None,
        "--build-budget",
        metavar="KIND=N,…",
        help="What a build may cost before it ends with exit code 4: seconds of processor time and elements of "
        "constants, for every 4 KiB of the model's file; memory of an array in bytes; nodes, kernels, passes. 0: no "
        "limit. By default build.budget of the configuration.",
        panel=CACHE,
    )
    ops: tuple[str, ...] = flag(
        (),
        "--ops",
        metavar="FILE|DIR",
        help="Load the op packs of a file *.ops.yaml or of a directory, in addition to those of plugins; may repeat. "
        "By default plugins.ops of the configuration.",
        panel=WHAT,
    )


@dataclass(frozen=True)
class BuildOptions:
    """Everything that says what to build."""

    model: str = ""
    """The model's file: an argument, which each command names in its own way."""
    target: str = flag(
        "",
        "--target",
        "-t",
        metavar="SPEC",
        help="Backend with options, as c{cpu=generic}, or the name of a target of dlc.toml. By default the backend c.",
        panel=WHAT,
        completes="targets",
    )
    pipeline: str | None = flag(
        None,
        "--pipeline",
        "-p",
        metavar="SPEC",
        help="Passes and names of pipelines, as expand,simplify{fast=yes},lower. By default the target's own.",
        panel=WHAT,
        completes="pipelines",
    )
    dims: tuple[str, ...] = flag(
        (),
        "--dim",
        metavar="NAME=N|LOW..HIGH",
        help="Set the size of a symbolic dimension, or the sizes that it may have when the program runs: batch=1..8, "
        "height=64..512/8 (multiples of 8); or say what it is in terms of others: total=past+seq. May repeat.",
        panel=WHAT,
    )
    special: tuple[str, ...] = flag(
        (),
        "--specialise",
        metavar="NAME=N[,N]",
        help="Add fast paths for single sizes of an open dimension, which calls of these sizes take: batch=1,8. Of "
        "several dimensions, for every combination; may repeat.",
        panel=WHAT,
    )
    inputs: tuple[str, ...] = flag(
        (), "--input", metavar="NAME:SHAPE", help="Set the shape of an input, as x:1x3x224x224; may repeat.", panel=WHAT
    )
    settings: tuple[str, ...] = flag(
        (),
        "--set",
        metavar="PASS.KEY=VALUE",
        help="Set an option of a pass or of the frontend, as fuse.max-nests=8; may repeat.",
        panel=WHAT,
    )
    without: tuple[str, ...] = flag(
        (), "--without", metavar="PASS", help="Leave a pass out; may repeat.", panel=WHAT, completes="passes"
    )
    lenient: bool = flag(
        False,
        "--lenient",
        help="Read what exporters write against the format's standard where there is one sensible reading; a note says "
        "how each was read.",
        panel=WHAT,
    )
    frontend: str = flag(
        "",
        "--frontend",
        metavar="SPEC",
        help="Frontend that reads the model, with options. By default the one that recognises the file.",
        panel=WHAT,
    )
    grad: tuple[str, ...] = flag(
        (),
        "--grad",
        metavar="INPUT[,INPUT]",
        help="Compute gradients of the outputs with respect to these inputs instead of the outputs; may repeat.",
        panel=WHAT,
    )
    train: str | None = flag(
        None,
        "--train",
        metavar="KEY=VALUE,…",
        help="Build a training program: loss, optimizer and other options of the pass autodiff, "
        "as 'loss=cross-entropy,optimizer=adam{lr=1e-3}'.",
        panel=WHAT,
    )
    min_offload: str | None = flag(
        None,
        "--min-offload",
        metavar="PERCENT",
        help="Minimum share of the model's nodes and multiply-adds that an accelerator has to compute, if the target "
        "may leave ops to the host: 95%, or ops=80%,macs=99%. Exit code 4 if it computes less.",
        panel=WHAT,
    )

    machine: str = flag(
        "",
        "--machine",
        metavar="FILE",
        help="Build for the machine that a TOML file describes: vectors, registers, caches, flags of the compiler.",
        panel=WHAT,
    )
    math: str = flag(
        "",
        "--math",
        metavar="MODE",
        help="What floating point may do, from exact to fast: ordered, strict, fast (by default), or less precision, "
        "which docs/math.md describes.",
        panel=WHAT,
    )
    schedules: tuple[str, ...] = flag(
        (),
        "--schedule",
        metavar="KERNEL=SCHEDULE",
        help="Set how a kernel becomes loops, as 392454940dcc27dc='tiles{columns=2 vectors=2 rows=8}'; --explain "
        "schedule-kernels lists kernels with their schedules. May repeat.",
        panel=WHAT,
    )

    tune: str = flag(
        "",
        "--tune",
        metavar="FILE|cache",
        help="Use the schedules of kernels that dlc tune measured for the target's machine: those of a file, or those "
        "that the cache has for this computer. Other kernels have the estimate's, and a note says how many.",
        panel=WHAT,
    )

    def of(self, model: str) -> BuildOptions:
        """The same for a model's file."""
        return replace(self, model=model)

    @property
    def by(self) -> tuple[str, ...]:
        """Names of the inputs to differentiate by; the model itself is built when empty."""
        return tuple(name.strip() for text in self.grad for name in text.split(","))

    @property
    def choice(self) -> Choice:
        """The same as the driver takes it."""
        from dlc.driver.prepare import Choice

        return Choice(**{f.name: getattr(self, f.name) for f in fields(Choice)})

    @property
    def given(self) -> dict[str, object]:
        """What is said, by the long form of its flag."""
        return {words[0]: value for name, words in WORDS.items() if (value := getattr(self, name))}

    @property
    def asked(self) -> dict[str, object]:
        """All but the model, by name."""
        return {name: getattr(self, name) for name in WORDS}


WORDS: Final[Mapping[str, tuple[str, ...]]] = {f.name: f.metadata["words"] for f in fields(BuildOptions) if f.metadata}
"""Field of `BuildOptions` → how the flag is written."""

FLAGS: Final = {f.name: WORDS[f.name] for f in fields(BuildOptions) if f.name in WORDS and f.default is not False}
"""Those that take a value."""

MANY: Final = tuple(f.name for f in fields(BuildOptions) if f.default == ())
"""Fields whose flags may repeat."""
