"""`dlc doctor`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dlc.base.diagnostics import ExitCode, error, escape
from dlc.cli import flags
from dlc.cli.options import BuildOptions, CacheOptions
from dlc.cli.terminal import Outcome, Terminal

if TYPE_CHECKING:
    from dlc.api.profile import MeasuredMachine

MeasureMachine = Annotated[
    bool,
    typer.Option(
        "--measure-machine",
        help="Measure this machine instead, in a second or two, and describe it as a file for --machine: caches, rates "
        "of memory, operations in a cycle. Nothing else should run meanwhile.",
    ),
]
Output = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="FILE.toml", help="Where the machine is described.")
]


@flags.spelled
def doctor(
    ctx: typer.Context,
    options: flags.TargetOptions,
    cache: flags.CacheDirectory,
    measure_machine: MeasureMachine = False,
    output: Output = None,
    json: flags.Json = False,
) -> Outcome:
    """Check what builds on this machine need: compilers, plugins, cache, reference. Exit code 5 if a check fails."""
    del json
    if measure_machine:
        return _measured(ctx.obj, options, cache, output)
    if output is not None or options.target:
        flag = "--target" if output is None else "--output"
        help = "add --measure-machine, or leave it out"
        raise error("no-effect", f"{flag}: nothing is measured", help=help, exit_code=ExitCode.USAGE)
    from dlc.cli.credentials import with_credentials
    from dlc.cli.workspace import configuration
    from dlc.plugins.doctor import examine

    found = examine(configuration(cache), with_credentials)
    marks = {"ok": "ok  ", "warning": "note", "error": "FAIL"}
    lines: list[str] = []
    for check in found:
        lines.append(f"{marks[check.state]}  {check.name}: {check.text}")
        if check.help:
            lines.append(f"      {check.help}")
    ok = all(check.state != "error" for check in found)
    checks = [{"name": c.name, "state": c.state, "text": c.text, "help": c.help} for c in found]
    return Outcome("\n".join(lines), {"checks": checks, "machine": None}, ExitCode.OK if ok else ExitCode.TOOL)


def _measured(terminal: Terminal, options: BuildOptions, cache: CacheOptions, output: Path | None) -> Outcome:
    """This machine as a file, or on stdout, which is then the file alone."""
    from dlc.cli.workspace import Workspace
    from dlc.driver.pipeline import resolve_target
    from dlc.files.writing import write_whole

    space = Workspace.open(terminal, cache)
    spec, _ = resolve_target(space.registry, space.config, options.target or space.default_target())
    found = space.registry.backend(spec).measured_machine()
    if found is None:
        raise error(
            "no-effect",
            f"--measure-machine: {spec.name} does not measure machines",
            help="choose another target, as --target c",
            exit_code=ExitCode.USAGE,
        )
    data: dict[str, Any] = {"file": str(output) if output else None, "text": found.text, "facts": dict(found.facts)}
    text = found.text.rstrip("\n")
    if output is not None:
        write_whole(output, found.text.encode("utf-8"))
        text = "\n".join((*_facts(found), f"written to {escape(str(output))}, for --machine"))
    return Outcome(text, {"checks": [], "machine": data})


def _facts(found: MeasuredMachine) -> list[str]:
    wide = max(map(len, found.facts))
    return [f"{name:{wide}}  {escape(str(value))}" for name, value in found.facts.items()]
