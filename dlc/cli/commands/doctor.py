"""`dlc doctor`."""

from __future__ import annotations

import typer

from dlc.base.diagnostics import ExitCode
from dlc.cli import flags
from dlc.cli.terminal import Outcome


@flags.spelled
def doctor(ctx: typer.Context, cache: flags.CacheDirectory, json: flags.Json = False) -> Outcome:
    """Check what builds on this machine need: compilers, plugins, cache, reference. Exit code 5 if a check fails."""
    del ctx, json
    from dlc.cli.workspace import configuration
    from dlc.plugins.doctor import examine

    found = examine(configuration(cache))
    marks = {"ok": "ok  ", "warning": "note", "error": "FAIL"}
    lines: list[str] = []
    for check in found:
        lines.append(f"{marks[check.state]}  {check.name}: {check.text}")
        if check.help:
            lines.append(f"      {check.help}")
    ok = all(check.state != "error" for check in found)
    data = {"checks": [{"name": c.name, "state": c.state, "text": c.text, "help": c.help} for c in found]}
    return Outcome("\n".join(lines), data, ExitCode.OK if ok else ExitCode.TOOL)
