"""`docs/cli.md`, written from the commands themselves: `python -m dlc.cli.pages > docs/cli.md`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from inspect import cleandoc
from typing import Any

from dlc.base.diagnostics import ExitCode
from dlc.cli.app import load_command
from dlc.cli.help import EXAMPLES, OWN_PANEL, Flag, flags_of, panels, subcommands, usage
from dlc.cli.table import COMMANDS, Command
from dlc.config.keys import VARIABLES

_HEAD = """\
<!-- Written by `python -m dlc.cli.pages > docs/cli.md`; a test compares. Change the commands, not this file. -->
# Commands

Results go to stdout and everything else to stderr, so the file that `dlc show model.onnx --text > graph.dlc` writes
contains only the graph. On a terminal, a progress line shows the step that is running; `--quiet` and the variable `CI`
turn it off. `NO_COLOR` turns colours off.

Every command takes `--json`: it then prints one JSON document to stdout and nothing to stderr.

```json
{"schema": "dlc.build/1", "ok": false, "exit_code": 1,
 "diagnostics": [{"code": "cycle", "severity": "error", "message": "…"}]}
```

`schema` names the command and the version of the document's format: within a version keys may be added, but no key
changes its meaning or is removed. A diagnostic may also have `location` (`source`, `node`, `line`, `column`, `byte`),
`notes`, `help`, `nodes` and `source_line`. `nodes` are all nodes of the model with this problem.

## Exit codes

| code | meaning |
|---|---|
"""

_MEANING = {
    ExitCode.OK: "success",
    ExitCode.MODEL: "the model cannot be compiled, or the program cannot be written; "
    "for `cache verify`: an entry is damaged; for `cache trim` and `clear`: something could not be removed; "
    "for `train`: the loss or a gradient is not finite",
    ExitCode.USAGE: "the command line, the configuration or an input file is wrong",
    ExitCode.MISMATCH: "`verify` or `--verify-steps` found a difference beyond the tolerance, `--verify-loops` wrong "
    "loops; a check of `ops check` or `plugins test` failed",
    ExitCode.LIMIT: "a limit is exceeded: the size of a tensor or of the arena, the budget of a build, or "
    "`--min-offload`",
    ExitCode.TOOL: "another program is missing or failed: the C compiler, onnxruntime",
    ExitCode.PLUGIN: "error in a plugin",
    ExitCode.CACHE_MISS: "`--cache require`, and a result is not in the cache",
    ExitCode.BUG: "internal error of dlc; the message names the files to send with a bug report",
    ExitCode.INTERRUPTED: "interrupted from the keyboard; `train` has written its checkpoint",
}

_ENVIRONMENT = """
## Environment

| variable | meaning |
|---|---|
VARIABLES| `NO_COLOR`, `FORCE_COLOR` | messages without, or always with colours |
| `CI`, `TERM=dumb` | no progress line |

Flags override variables, and variables override `dlc.toml`, which [Configuration](configuration.md) describes.

## Completion

`dlc --install-completion bash` installs completion, and `dlc --show-completion bash` prints the script; `zsh`, `fish`,
`powershell` and `pwsh` are supported too. Names of passes, targets and pipelines from installed plugins and `dlc.toml`
are completed as well.
"""


def cli_page() -> str:
    """The whole page."""
    codes = "".join(f"| {int(code)} | {meaning} |\n" for code, meaning in _MEANING.items())
    variables = "".join(f"| `{v.name}` | {v.doc} |\n" for v in VARIABLES)
    lines = [_HEAD + codes + _ENVIRONMENT.replace("VARIABLES", variables)]
    for row in COMMANDS:
        lines += _command(row, load_command(row))
    return "\n".join(lines).rstrip() + "\n"


def _command(row: Command, command: Any) -> Iterator[str]:
    path = f"dlc {row.name}"
    yield f"## {path}\n"
    yield from _body(command, path, row.name)
    for below in subcommands(command):
        yield f"### {path} {below.name}\n"
        yield from _body(below, f"{path} {below.name}", f"{row.name}-{below.name}")


def _body(command: Any, path: str, schema: str) -> Iterator[str]:
    yield f"```\n{usage(command, path)}\n```\n"
    yield _escaped(cleandoc(command.help or "")) + "\n"
    flags = flags_of(command)
    if any(f.is_argument for f in flags):
        yield from _rows("argument", [f for f in flags if f.is_argument])
    options = [f for f in flags if not f.is_argument]
    for panel in (OWN_PANEL, *panels(options)):
        if rows := [f for f in options if f.panel == panel]:
            yield from _rows("option" if panel == OWN_PANEL else panel.lower(), rows)
    if not subcommands(command):
        yield f"Schema with `--json`: `dlc.{schema}/1`.\n"
    if examples := EXAMPLES.get(path.partition(" ")[2]):
        width = max(len(line) for line, _ in examples)
        shown = "\n".join(f"{line:{width}}  # {meaning}" for line, meaning in examples)
        yield f"```text\n{shown}\n```\n"


def _rows(title: str, flags: Sequence[Flag]) -> Iterator[str]:
    rows = [f"| `{_escaped(f.names)}` | {_escaped(f.text)} |" for f in flags]
    yield "\n".join([f"| {title} | |", "|---|---|", *rows]) + "\n"


def _escaped(text: str) -> str:
    """A bar would end a table's cell."""
    return text.replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(cli_page())
