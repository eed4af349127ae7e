"""What a build needs, resolved from what was asked for: by flags of commands, or by arguments of `dlc.compile`.

choice → frontend with its options ┐
         pipeline and backend      ┤→ Prepared
         sizes with fast paths     ┘
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dlc.api.frontend import Frontend
from dlc.api.source import Source
from dlc.base.diagnostics import ExitCode, error
from dlc.driver.pipeline import ResolvedPipeline, resolve
from dlc.driver.special import Special, combined
from dlc.spec import Spec, parse_setting

if TYPE_CHECKING:
    from dlc.config.config import Config
    from dlc.files.hashing import OwnedFile
    from dlc.plugins.registry import Registry


@dataclass(frozen=True)
class Choice:
    """Everything that says what to build of a model; the flags of `dlc build` describe each field."""

    target: str = ""
    frontend: str = ""
    pipeline: str | None = None
    dims: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    special: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    lenient: bool = False
    by: tuple[str, ...] = ()
    train: str | None = None
    min_offload: str | None = None
    machine: str = ""
    math: str = ""
    schedules: tuple[str, ...] = ()
    tune: str = ""


@dataclass(frozen=True)
class Prepared:
    """A build that is ready to start."""

    source: Source
    frontend: Frontend
    package: str
    """Of the frontend."""
    pipeline: ResolvedPipeline
    special: tuple[Special, ...] = ()
    """Sizes with fast paths."""
    tuned: OwnedFile | None = None
    """The file of schedules that the cache has; it lives as long as this."""


def reader(registry: Registry, source: Source, choice: Choice, *, forward: bool = False) -> tuple[Frontend, str]:
    """The frontend for a source with the shapes and options that were chosen, and the package it comes from.

    Files of some formats say that they want gradients. `forward`, or a choice that says which are wanted, overrides
    them: the frontend then gives what the gradients are of.

    Raises:
        DlcError: (USAGE) no frontend reads it, or it has no such option.
    """
    if choice.frontend:
        spec = Spec.parse(choice.frontend, "--frontend")
        entry = registry.find("frontends", spec)
    else:
        entry = registry.frontend_for(source)
        spec = Spec(entry.name)
    frontend = registry.frontend(spec)
    given = (
        ("--dim", "dims", _pairs("--dim", "=", choice.dims)),
        ("--input", "input", _pairs("--input", ":", choice.inputs)),
        ("--lenient", "lenient", "yes" if choice.lenient else ""),
    )
    known = {doc.key for doc in frontend.options_doc()}
    if (choice.by or choice.train is not None or forward) and "forward" in known:
        spec = spec.with_option("forward", "yes")
    for flag, key, value in given:
        if not value:
            continue
        if key not in known:
            why, help = "takes no shapes: the file contains them", "leave it out"
            if key == "lenient":
                why = "has no lenient reading"
            elif key == "dims" and "input" in known:
                why, help = "has no sizes with names", "set shapes: --input NAME:SHAPE"
            raise error(
                "no-effect",
                f"{flag}: the frontend {entry.name} {why}",
                help=help,
                exit_code=ExitCode.USAGE,
            )
        spec = spec.with_option(key, value)
    return registry.frontend(with_settings(spec, choice.settings)), entry.package


def resolved(registry: Registry, config: Config, frontend: Frontend, target: str, choice: Choice) -> ResolvedPipeline:
    """The pipeline of a choice for a target. Raises DlcError (USAGE) as `resolve` does."""
    return resolve(
        registry,
        config,
        target,
        pipeline=choice.pipeline,
        settings=tuple(text for text in choice.settings if text.partition(".")[0].strip() != frontend.name),
        without=choice.without,
        grad=choice.by,
        train=choice.train,
        min_offload=choice.min_offload,
        schedules=choice.schedules,
        options={"machine": choice.machine, "math": choice.math, "tune": choice.tune},
    )


def special_sizes(registry: Registry, source: Source, choice: Choice) -> tuple[Special, ...]:
    """The model for every combination of sizes that has a fast path: read as for these sizes alone."""

    def read(sizes: Mapping[str, int]) -> Frontend:
        others = (text for text in choice.dims if text.rpartition("=")[0] not in sizes)
        dims = (*others, *(f"{name}={size}" for name, size in sizes.items()))
        return reader(registry, source, replace(choice, dims=dims))[0]

    return tuple(Special(sizes, read(sizes)) for sizes in combined(choice.special))


def with_settings(spec: Spec, settings: Sequence[str]) -> Spec:
    """A spec with the options that settings `name.key=value` give it; those of other names are left to others."""
    for text in settings:
        name, option, value, span = parse_setting(text)
        if name == spec.name:
            spec = spec.with_option(option, value, span)
    return spec


def _pairs(flag: str, mark: str, texts: Iterable[str]) -> tuple[str, ...]:
    """`batch=1` and `x:1x3x224x224` in the form that options of frontends have: `batch:1`."""
    found: list[str] = []
    for text in texts:
        name, middle, value = text.rpartition(mark)
        if not middle or not name or not value:
            form, example = ("NAME=N", "batch=1") if mark == "=" else ("NAME:SHAPE", "x:1x3x224x224")
            raise error(
                "bad-option",
                f"{flag} {text} is not of the form {form}",
                help=f"for example {flag} {example}",
                exit_code=ExitCode.USAGE,
            )
        found.append(f"{name}:{value}")
    return tuple(found)
