"""`dlc debug repro`."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from dlc.base.diagnostics import ExitCode, error, escape
from dlc.cli.debugging import rows_text
from dlc.cli.terminal import Outcome, Terminal
from dlc.cli.worker import Worker
from dlc.config.file import load_config
from dlc.debug.crash_report import CrashReport
from dlc.files.writing import write_whole

if TYPE_CHECKING:
    from collections.abc import Sequence

_SECONDS = 600.0
"""After which a command hangs."""


def reproduce(terminal: Terminal, file: Path, model: Path | None, *, trust: bool, yes: bool) -> Outcome:
    """What the command says: of the step in a report, or else of its command line.

    Args:
        terminal: Where progress is shown.
        file: The report.
        model: A model to run the command line on in place of that in the report: the real one, with its weights.
        trust: Whether options of a step may run what they name.
        yes: Whether the command line of a report may run.
    """
    report = CrashReport.read(file)
    of_step = file.suffix == ".dlc"
    if of_step and model is not None:
        raise error(
            "no-effect",
            f"--model: {file} holds the graph of the step that failed",
            help="leave it out, or run the command line of the report on the model",
            exit_code=ExitCode.USAGE,
        )
    if model is not None and not report.model:
        raise error(
            "no-effect",
            f"--model: the command of {file} has no model",
            help="leave it out",
            exit_code=ExitCode.USAGE,
        )
    if report.model and model is None and not report.content:
        raise error(
            "no-model",
            f"{file} does not hold the model {escape(report.model)}",
            help=f"give it with --model; the command was: dlc {_shown(report)}",
            exit_code=ExitCode.USAGE,
        )
    if not of_step and not yes:
        raise error(
            "not-trusted",
            f"{file} holds a command line, which may write files and run programs: dlc {_shown(report)}",
            help="read it; then --yes runs it",
            exit_code=ExitCode.USAGE,
        )
    with TemporaryDirectory(prefix="dlc-") as made, terminal.progress() as line:
        place = Path(made)
        if (config := load_config(Path.cwd()).file) is not None:
            shutil.copyfile(config, place / "dlc.toml")
        command = ["opt", str(file.absolute()), "-q"] if of_step else _command(report, model, place)
        worker = Worker(_SECONDS, place)
        line.at(f"dlc {' '.join(command)}")
        try:
            ended = worker.run([*command, *["--trust-config"] * trust])
        finally:
            worker.close()
    verdict = "happens" if ended.error == report.fault else "other" if ended.error else "gone"
    text = {
        "happens": f"{file}: it still happens: {report.fault}",
        "other": f"{file}: something else happens: {ended} instead of {report.fault}",
        "gone": f"{file}: it no longer happens",
    }[verdict]
    differences = report.differences()
    rows = [("command", f"dlc {_shown(report)}"), ("now", str(ended))]
    rows += [("differs", escape(text)) for text in differences]
    if report.content and model is None and not of_step:
        rows.append(("weights", "random: the report has shapes only; --model runs it on the real model"))
    data = {
        "verdict": verdict,
        "fault": report.fault,
        "now": {"exit_code": ended.code, "error": ended.error},
        "command": list(report.command),
        "differences": differences,
    }
    code = ExitCode.OK if verdict == "gone" else ExitCode.MISMATCH
    return Outcome("\n".join([text, *rows_text(rows)]), data, code)


def _shown(report: CrashReport) -> str:
    return escape(shlex.join(report.command))


def _command(report: CrashReport, model: Path | None, place: Path) -> Sequence[str]:
    """The command line on the model, in a directory where what it writes is in nobody's way."""
    path = place / Path(report.model).name
    if model is None and report.model:
        write_whole(path, report.model_bytes())
    elif model is not None:
        path = model.absolute()
        if not path.is_file():
            raise error(
                "no-such-file", f"--model {model} is not a file", help="give the model", exit_code=ExitCode.USAGE
            )
    # Other files that the command reads are where they were.
    others = {word: str(Path(word).absolute()) for word in report.command if Path(word).is_file()}
    return [{**others, report.model: str(path)}.get(word, word) for word in report.command]
