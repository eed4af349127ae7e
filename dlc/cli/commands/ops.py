"""`dlc ops show | check`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from dlc.base.diagnostics import ExitCode, did_you_mean, error, escape, nearest
from dlc.cli import flags
from dlc.cli.app import CONTEXT
from dlc.cli.terminal import Outcome, Terminal, columns
from dlc.cli.workspace import configuration
from dlc.op_packs.libraries import check_libraries
from dlc.plugins.discovery import load_registry

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings=CONTEXT,
    help="Show an op; check op packs.",
    no_args_is_help=True,
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the op, as dlc list ops shows it.")]
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


@app.command()
@flags.spelled
def show(ctx: typer.Context, name: Name, packs: flags.OpPacks, json: flags.Json = False) -> Outcome:
    """Show what an op computes, its operands and attributes, its gradient, and the ONNX operators of a pack's op."""
    del json
    from dlc.cli.op_page import op_document, op_page

    terminal: Terminal = ctx.obj
    config = configuration(packs)
    registry = load_registry(config.disabled, ("ops",), config.op_packs)
    terminal.tell(*registry.problems)
    if name not in registry.ops:
        help = did_you_mean(name, registry.ops, "ops") if nearest(name, registry.ops) else "dlc list ops shows all"
        raise error("unknown-op", f"there is no op {escape(name)}", help=help, exit_code=ExitCode.USAGE)
    entry = registry.ops[name]
    document = op_document(entry.load(), entry.plugin)
    return Outcome(op_page(document), document)


@app.command()
def check(
    ctx: typer.Context, packs: Packs, target: Targets = None, all_: All = False, json: flags.Json = False
) -> Outcome:
    """Load op packs and compare examples, reference, gradients, differences and programs. Exit code 3: some differ."""
    del ctx, json
    check_libraries()
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
