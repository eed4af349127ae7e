"""Around every command: parse, run, print, and turn whatever goes wrong into a diagnostic and an exit code."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Sequence
from contextvars import copy_context
from typing import Any

from dlc.base.diagnostics import Diagnostic, DlcError, ExitCode, did_you_mean, to_json
from dlc.cli.launched import launched
from dlc.cli.terminal import Outcome, Terminal, off_stdout


def run(arguments: Sequence[str]) -> int:
    """Run one command line; the exit code. What it sets in its context ends with it."""
    return copy_context().run(_run, arguments)


def _run(arguments: Sequence[str]) -> int:
    """The commonest small requests are answered without typer, whose import takes half the time they may take."""
    terminal = Terminal()
    if not os.environ.get("_DLC_COMPLETE"):
        if list(arguments) in ([], ["-h"], ["--help"]):
            from dlc.cli.table import first_screen

            return _print(first_screen())
        if list(arguments) == ["--version"]:
            from dlc.version import __version__

            return _print(f"dlc {__version__}")
        if 1 <= len(arguments) <= 2 and arguments[0] == "list" and not arguments[-1].startswith("-"):
            from dlc.cli.listed import list_outcome

            def listed() -> Outcome:
                with off_stdout():
                    return list_outcome(terminal, "".join(arguments[1:]))

            return _guarded(arguments, terminal, listed)
    from dlc.files.inputs import Inputs

    with Inputs().active():
        return _reading(arguments, terminal)


def _reading(arguments: Sequence[str], terminal: Terminal) -> int:
    """The same for a command that may read files, each of which it sees as it was when it was opened first."""
    if not os.environ.get("_DLC_COMPLETE"):
        if list(arguments[:1]) == ["train"]:
            terminal.silent = launched(os.environ)[0] > 0
        if list(arguments[:1]) == ["build"]:
            from dlc.cli.quick import quick_build

            try:
                with off_stdout():
                    done = quick_build(terminal, arguments[1:])
            except KeyboardInterrupt:
                done = _interrupted(terminal)
            if done is not None:
                return finish(arguments, terminal, done)
    return _typer(list(arguments), terminal)  # the same one: what it told already it does not tell again


def finish(arguments: Sequence[str], terminal: Terminal, outcome: Outcome) -> int:
    """Print what a command found; the exit code."""
    if terminal.silent:
        return int(outcome.code)
    if terminal.json:
        import json

        from dlc.cli.table import schema_name

        document = {
            "schema": f"dlc.{schema_name(arguments)}/1",
            "ok": outcome.code == ExitCode.OK,
            "exit_code": int(outcome.code),
            "diagnostics": [to_json(d) for d in terminal.said],
            **outcome.data,
        }
        return _print(json.dumps(document, indent=2, ensure_ascii=True), outcome.code)
    return _print(outcome.text, outcome.code) if outcome.text else int(outcome.code)


def _typer(arguments: list[str], terminal: Terminal) -> int:
    import typer

    from dlc.cli.app import root

    terminal.json = "--json" in arguments

    def outcome() -> Outcome:
        try:
            found: Any = root().main(arguments, prog_name="dlc", standalone_mode=False, obj=terminal)
        except typer.Exit as request:
            found = request.exit_code
        except typer.Abort as end:
            # typer takes the end of any file for the end of the user's input.
            raise end.__cause__ or KeyboardInterrupt from None
        except Exception as problem:
            if type(problem).__name__ == "NoArgsIsHelpError":  # a group of commands alone, as `dlc cache`
                shown: Any = problem
                return Outcome(str(shown.ctx.get_help()))
            usage_error = _usage(problem, arguments)
            if usage_error is None:
                raise
            raise usage_error from None
        if isinstance(found, Outcome):
            return found
        if found == ExitCode.INTERRUPTED:  # what typer makes of a KeyboardInterrupt
            raise KeyboardInterrupt
        return Outcome(code=found if isinstance(found, int) else 0)  # a command of a plugin may return anything

    if any(a in ("-h", "--help", "--version") for a in arguments):
        terminal.json = False  # help is for people
    return _guarded(arguments, terminal, outcome)


def _guarded(arguments: Sequence[str], terminal: Terminal, command: Callable[[], Outcome]) -> int:
    """Run a command; every way it can end becomes one exit code and, with --json, one document."""
    try:
        outcome = command()
    except DlcError as problem:
        terminal.tell(*problem.diagnostics)
        outcome = Outcome(code=problem.exit_code)
    except KeyboardInterrupt:
        outcome = _interrupted(terminal)
    except BrokenPipeError:
        return _quiet_pipe()
    # Whatever else a command raises is a bug of dlc or of a plugin, to be reported with what reproduces it, never shown
    # as a bare traceback.
    except (Exception, SystemExit) as bug:
        from dlc.cli.crash import crash
        from dlc.plugins.owner import owner_of

        # A command of a plugin may end the process as it likes, as completion does; code that dlc calls may not.
        if isinstance(bug, SystemExit) and not (_command_words(arguments) and owner_of(bug)):
            raise
        report = crash(bug, arguments)
        terminal.tell(*report.diagnostics)
        outcome = Outcome(code=report.exit_code)
    return finish(arguments, terminal, outcome)


def _interrupted(terminal: Terminal) -> Outcome:
    terminal.tell(Diagnostic("interrupted", "interrupted; no output was written"))
    return Outcome(code=ExitCode.INTERRUPTED)


def _usage(problem: Exception, arguments: Sequence[str]) -> DlcError | None:
    """A complaint of click about the flags as a diagnostic; None for anything else.

    Its classes are private to typer, but all have the message and an exit code; most have the context, which knows the
    command, and those about an unknown name have that name.
    """
    if not hasattr(problem, "format_message") or not hasattr(problem, "exit_code"):
        return None
    usage_error: Any = problem
    context: Any = getattr(problem, "ctx", None)
    path = context.command_path if context is not None else " ".join(["dlc", *_command_words(arguments)])
    message = str(usage_error.format_message()).rstrip(".").replace("Value error, ", "")
    message, _, hint = message.partition("; did you mean ")
    help = f"did you mean {hint}" if hint else f"see {path} --help"
    unknown = str(getattr(problem, "option_name", "") or "")
    if context is not None and message.startswith("No such option"):
        message = f"no such option: {unknown}"
        help = did_you_mean(unknown, [name for p in context.command.params for name in p.opts], f"options of {path}")
    elif context is not None and (found := re.match(r"No such command '(.*?)'", message)):
        message = f"there is no command {path.removeprefix('dlc ')} {found[1]}"
        help = did_you_mean(found[1], getattr(context.command, "commands", ()), "commands")
    diagnostic = Diagnostic("usage", message[:1].lower() + message[1:], help=help)
    return DlcError(diagnostic, exit_code=ExitCode.USAGE)


def _command_words(arguments: Sequence[str]) -> list[str]:
    from dlc.cli.table import schema_name

    name = schema_name(arguments)
    return [] if name == "error" else name.split("-", 1)


def _print(text: str, code: int = 0) -> int:
    try:
        sys.stdout.write(text if text.endswith("\n") else text + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        return _quiet_pipe()
    except OSError as problem:
        _quiet_pipe()
        Terminal().tell(Diagnostic("cannot-write", f"stdout cannot be written: {problem.strerror}"))
        return int(ExitCode.MODEL)
    except UnicodeEncodeError:
        # A terminal with a narrow encoding still gets everything, signs it lacks as escapes.
        encoding = sys.stdout.encoding or "ascii"
        sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding) + "\n")
    return int(code)


def _quiet_pipe() -> int:
    """`dlc list ops | head`: the reader has gone, which is no error of ours; keep the interpreter from complaining."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0
