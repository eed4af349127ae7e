"""`dlc verify --reference TARGET`: what a program of another target gives for the same model and inputs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from dlc.base.diagnostics import ExitCode, error
from dlc.cli.options import BuildOptions, CacheOptions
from dlc.cli.programs import Opened, bound, call, open_program
from dlc.cli.terminal import Terminal
from dlc.driver.pipeline import resolve_target
from dlc.runtime.sizes import is_size
from dlc.verify.reference import Tolerances, wider

if TYPE_CHECKING:
    from dlc.base.types import Array
    from dlc.cli.workspace import Workspace


def check_target(space: Workspace, reference: str, known: tuple[str, ...]) -> None:
    """Asked before anything is built. Raises DlcError (USAGE): it is neither `known` nor a target."""
    name = reference.partition("{")[0].partition(":")[0].strip()
    targets = space.config.named("target", "backend")
    if name not in targets and name not in space.registry.backends:
        raise error(
            "bad-option",
            f"--reference {reference}: there is no such reference or target",
            help=f"{', '.join(known)}, or a target: {', '.join((*targets, *space.registry.backends))}; files are given "
            "with --expected",
            exit_code=ExitCode.USAGE,
        )
    spec, _ = resolve_target(space.registry, space.config, reference, "--reference")
    space.registry.backend(spec)


def other_values(
    terminal: Terminal,
    opened: Opened,
    chosen: BuildOptions,
    cache: CacheOptions,
    model: Path | None,
    feeds: Mapping[str, Array],
    max_memory: int | None,
) -> tuple[dict[str, Array], Tolerances]:
    """Outputs of a program for another target, and how far those of both may be from each other.

    Args:
        terminal: For progress and messages of its build.
        opened: The program that is judged: the other one is for the sizes that it is called with.
        chosen: How that is built, with the other target as its target. What says how the model is read, and what is
            computed, counts; options of passes and machines do not: the other target has passes of its own.
        cache: As for `open_program`.
        model: The model of both.
        feeds: Values of the inputs.
        max_memory: As for `open_program`.
    """
    assert model is not None
    sized = bound(opened, chosen, model, feeds)
    frontends = tuple(f"{name}." for name in opened.space.registry.frontends)
    asked = BuildOptions(
        sized.model,
        sized.target,
        dims=sized.dims,
        inputs=sized.inputs,
        settings=tuple(text for text in sized.settings if text.lstrip().startswith(frontends)),
        lenient=sized.lenient,
        frontend=sized.frontend,
        grad=sized.grad,
        train=sized.train,
    )
    with open_program(terminal, asked, cache, max_memory) as other:
        ports = [p.name for p in other.program.signature.inputs if not is_size(p)]
        found = call(other.program, {name: feeds[name] for name in ports if name in feeds})
        return {name: array.copy() for name, array in found.items()}, wider(
            opened.backend.tolerance, other.backend.tolerance
        )
