"""`dlc explain`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from dlc.base.diagnostics import ExitCode, did_you_mean, error, escape, nearest
from dlc.cli import flags
from dlc.cli.complete import complete_codes
from dlc.cli.terminal import Outcome
from dlc.config.file import load_config

Code = Annotated[
    str,
    typer.Argument(
        metavar="CODE",
        help="The word in brackets of a message: unsupported-op of error[unsupported-op].",
        autocompletion=complete_codes,
    ),
]


def explain(ctx: typer.Context, code: Code, json: flags.Json = False) -> Outcome:
    """Explain the code of a message: what it means, an example, and how to fix it."""
    del ctx, json
    from dlc.plugins.explanations import areas

    # A message may be pasted as it is: error[no-effect], or [no-effect].
    word = code.rpartition("[")[2].partition("]")[0].strip().lower()
    known = [e for area in areas(load_config(Path.cwd()).disabled) for e in area.explanations]
    found = [e for e in known if e.code == word]
    if not found:
        codes = [e.code for e in known]
        help = did_you_mean(word, codes) if nearest(word, codes) else "dlc list errors shows all codes"
        raise error("unknown-code", f"there is no explanation of {escape(word)}", help=help, exit_code=ExitCode.USAGE)
    text = "\n\n".join("\n".join(map(escape, e.text.splitlines())) for e in found)
    return Outcome(text, {"explanations": [asdict(e) for e in found]})
