"""`dlc list`."""

from __future__ import annotations

from typing import Annotated

import typer

from dlc.cli import flags
from dlc.cli.complete import complete_listings
from dlc.cli.listed import list_outcome
from dlc.cli.terminal import Outcome

What = Annotated[
    str,
    typer.Argument(
        metavar="[KIND]",
        help="passes, ops, frontends, backends, pipelines, schedules, optimizers, losses, initializers, machines, "
        "allocators or errors; the name of a frontend, as onnx, for what it reads; exec:PATH for what an executable "
        "backend says of itself. By default an overview.",
        autocompletion=complete_listings,
    ),
]


def list_(ctx: typer.Context, what: What = "", json: flags.Json = False) -> Outcome:
    """List what is installed, with every option and its default."""
    del json
    return list_outcome(ctx.obj, what)
