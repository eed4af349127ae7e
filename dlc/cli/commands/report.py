"""`dlc report`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dlc.base.diagnostics import ExitCode, error, escape
from dlc.cli import flags
from dlc.cli.report_text import difference_text, record_text
from dlc.cli.terminal import Outcome, Terminal

if TYPE_CHECKING:
    from dlc.record.record import Record

Records = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="RECORD [OTHER]",
        help="A record, or the directory of a program that was built with --record or --html; with a second one, what "
        "differs between the two.",
    ),
]
Html = Annotated[
    Path | None, typer.Option("--html", metavar="FILE.html", help="Write the page of the record, or of the difference.")
]
Trace = Annotated[
    Path | None,
    typer.Option(
        "--trace", metavar="FILE.json", help="Write a trace of the build and the layers for Perfetto and Chrome."
    ),
]
Schema = Annotated[bool, typer.Option("--schema", help="Print the JSON Schema of records.")]
All = Annotated[bool, typer.Option("--all", help="List every layer, not only those that take longest or differ.")]


@flags.spelled
def report(
    ctx: typer.Context,
    records: Records = None,
    html: Html = None,
    trace: Trace = None,
    schema: Schema = False,
    whole: All = False,
    quiet: flags.Quiet = False,
    json: flags.Json = False,
) -> Outcome:
    """Show the record of a build or a measurement: layers, kernels, memory; or what differs between two builds.

    dlc build --record writes one beside the program, dlc bench --record one with measured times.
    """
    del json
    terminal: Terminal = ctx.obj
    terminal.quiet = quiet
    given = records or []
    if schema:
        return _schema(given)
    if len(given) not in (1, 2):
        message = f"report takes one record, or two to compare; {len(given)} are given"
        raise error("usage", message, help="dlc report out, or dlc report before after", exit_code=ExitCode.USAGE)
    from dlc.cli.train_files import check_outputs
    from dlc.record.files import read_record
    from dlc.record.record import NAME

    files = [path / NAME if path.is_dir() else path for path in given]
    check_outputs({"--html": html, "--trace": trace}, [str(path) for path in files])
    if trace and len(given) == 2:
        message = "--trace: a difference has no trace"
        raise error("no-effect", message, help="give one record", exit_code=ExitCode.USAGE)
    found = [read_record(path) for path in given]
    return _one(found[0], html, trace, whole) if len(found) == 1 else _two(found[0], found[1], html, whole)


def _schema(given: list[Path]) -> Outcome:
    import json

    from dlc.record.json_form import schema

    if given:
        message = f"--schema: it is that of all records; {given[0]} has no other"
        raise error("no-effect", message, help="leave the record out", exit_code=ExitCode.USAGE)
    found = schema()
    return Outcome(json.dumps(found, indent=2), {"json_schema": found})


def _one(record: Record, html: Path | None, trace: Path | None, whole: bool) -> Outcome:
    from dlc.record.to_json import to_json

    lines = [record_text(record, whole=whole)]
    if html:
        from dlc.html.build import report_html

        lines.append(_write("report", html, report_html(record)))
    if trace:
        import json

        from dlc.record.trace import trace as trace_of

        lines.append(_write("trace", trace, json.dumps(trace_of(record))))
    return Outcome("\n".join(lines), {"record": to_json(record), **_named(html=html, trace=trace)})


def _two(before: Record, after: Record, html: Path | None, whole: bool) -> Outcome:
    from dlc.record.diff import difference
    from dlc.record.to_json import to_json

    found = difference(before, after)
    lines = [difference_text(found, whole=whole)]
    if html:
        from dlc.html.diff import difference_html

        lines.append(_write("report", html, difference_html(found)))
    return Outcome("\n".join(lines), {"difference": to_json(found), **_named(html=html)})


def _named(**files: Path | None) -> dict[str, Any]:
    return {name: str(path) if path else None for name, path in files.items()}


def _write(what: str, path: Path, text: str) -> str:
    from dlc.files.writing import write_whole

    write_whole(path, text.encode("utf-8"))
    return f"{what}: {escape(str(path))}"
