"""`dlc ops check`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from dlc.base.diagnostics import ExitCode, escape
from dlc.cli import flags
from dlc.cli.app import CONTEXT
from dlc.cli.terminal import Outcome, columns

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings=CONTEXT,
    help="Check op packs.",
    no_args_is_help=True,
)

Packs = Annotated[list[Path], typer.Argument(metavar="FILE|DIR...", help="Files *.ops.yaml, or directories of such.")]
Targets = Annotated[
    list[str] | None,
    typer.Option(
        "--target",
        "-t",
        metavar="SPEC",
        help="Backend that builds and runs the ops, with options; none: no backend. May repeat. By default c.",
    ),
]
All = Annotated[bool, typer.Option("--all", help="List every check, not only those that fail.")]


@app.callback()
def _group() -> None:
    """Check op packs."""


@app.command()
def check(
    ctx: typer.Context, packs: Packs, target: Targets = None, all_: All = False, json: flags.Json = False
) -> Outcome:
    """Load op packs and compare examples, reference, gradients, differences and programs. Exit code 3: some differ."""
    del ctx, json
    from dlc.verify.op_packs import check_packs

    targets = ["c"] if target is None else [t for t in target if t != "none"]
    found = check_packs(packs, targets)
    wrong = [c for c in found if not c.ok]
    shown = found if all_ else wrong
    rows = [("op", "example", "check", "", "detail")] if shown else []
    rows += [(c.op, str(c.example), c.what, "ok" if c.ok else "DIFFERS", c.detail) for c in shown]
    ops = len({c.op for c in found})
    lines = [columns([tuple(map(escape, row)) for row in rows])] if rows else []
    lines.append(f"{ops} op{'s' * (ops != 1)}, {len(found)} checks, {len(wrong)} of them failed")
    data = {"ops": ops, "checks": [asdict(c) for c in found], "failed": len(wrong)}
    return Outcome("\n".join(lines), data, ExitCode.MISMATCH if wrong else ExitCode.OK)
