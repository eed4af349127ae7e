"""`dlc debug bisect-passes | first-divergence | reduce | repro`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dlc.base.diagnostics import ExitCode, error
from dlc.cli import flags
from dlc.cli.app import CONTEXT
from dlc.cli.commands.run import Files, Seed
from dlc.cli.options import CacheOptions
from dlc.cli.terminal import Outcome, Terminal

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings=CONTEXT,
    help="Find where a wrong result or a failure comes from.",
    no_args_is_help=True,
)

Against = Annotated[
    str,
    typer.Option(
        "--against",
        metavar="auto|onnxruntime|reference",
        help="What is right: onnxruntime, or reference, the model as it was read, interpreted with numpy. auto is "
        "onnxruntime for .onnx files where it is installed and runs the model.",
    ),
]
Rtol = Annotated[
    float | None,
    typer.Option(metavar="X", min=0.0, help="Relative tolerance, as for dlc verify. [default: 1e-3, or the target's]"),
]
Atol = Annotated[
    float | None,
    typer.Option(
        metavar="X",
        min=0.0,
        help="Absolute tolerance. [default: 1e-4 of the tensor's largest element, or the target's]",
    ),
]
Check = Annotated[
    str,
    typer.Option(
        "--check",
        metavar="CMD",
        help="Your own test: CMD DIR is run on built programs, and exits with 0 where the fault shows.",
    ),
]

CheckModel = Annotated[
    str,
    typer.Option(
        "--check",
        metavar="CMD",
        help="Your own test: CMD MODEL.onnx INPUTS.npz is run on candidates, and exits with 0 where the fault shows.",
    ),
]
Reduced = Annotated[
    Path,
    typer.Option("--output", "-o", metavar="FILE.onnx", help="The smallest model; its inputs go to FILE.npz."),
]
Budget = Annotated[
    float,
    typer.Option("--budget", metavar="SECONDS", min=0.0, help="Time for the search, after which the best is kept."),
]

Report = Annotated[Path, typer.Argument(metavar="CRASH-FILE", help="A file dlc-crash-….dlc or dlc-crash-….txt.")]
Yes = Annotated[
    bool,
    typer.Option(
        "--yes",
        "-y",
        help="Run the command line that a .txt report holds. It may name programs and files: without the flag it is "
        "only shown.",
    ),
]
Weights = Annotated[
    Path | None,
    typer.Option("--model", metavar="MODEL", help="Run it on this model, with its weights, instead of the report's."),
]


@app.command("bisect-passes")
@flags.spelled
def bisect_passes(
    ctx: typer.Context,
    model: flags.Model,
    options: flags.BisectOptions,
    cache: CacheOptions,
    inputs: Files = None,
    against: Against = "auto",
    check: Check = "",
    rtol: Rtol = None,
    atol: Atol = None,
    seed: Seed = 0,
    quiet: flags.Quiet = False,
    json: flags.Json = False,
) -> Outcome:
    """Find the first pass, and its first rule or node, after which the result is wrong; exit code 3 if there is one.

    The graphs between passes are evaluated on the same inputs, by halves; then the pass with only the first so many of
    its applications. If all graphs are right, the program and its loops are checked. With --check, programs of the
    first so many optional passes are built instead.
    """
    del json
    from dlc.cli.commands.debug_bisect import bisect, bisect_by_check
    from dlc.cli.debugging import Asked, opened

    terminal = _terminal(ctx, quiet)
    if check and (against != "auto" or rtol is not None or atol is not None or inputs or seed):
        raise error(
            "no-effect",
            "--check decides by itself: --against, --rtol, --atol, --seed and inputs have no effect",
            help="leave either --check or these out",
            exit_code=ExitCode.USAGE,
        )
    with opened(terminal, options.of(model), cache) as subject:
        if check:
            return bisect_by_check(subject, check)
        return bisect(subject, Asked(against, inputs or (), seed, rtol, atol))


@app.command("first-divergence")
@flags.spelled
def first_divergence(
    ctx: typer.Context,
    model: flags.Model,
    options: flags.DebugOptions,
    cache: CacheOptions,
    inputs: Files = None,
    against: Against = "auto",
    rtol: Rtol = None,
    atol: Atol = None,
    seed: Seed = 0,
    quiet: flags.Quiet = False,
    json: flags.Json = False,
) -> Outcome:
    """Find the first tensor that differs from the reference; exit code 3 if there is one.

    Parts of the program are run on tensors of the reference, by halves over the order of the graph, so that errors do
    not add up and few tensors are held at once. Prints the nodes of the model, the kernel and C function, and the
    largest error.
    """
    del json
    from dlc.cli.commands.debug_divergence import diverge
    from dlc.cli.debugging import Asked, opened

    with opened(_terminal(ctx, quiet), options.of(model), cache) as subject:
        return diverge(subject, Asked(against, inputs or (), seed, rtol, atol))


@app.command("reduce")
@flags.spelled
def reduce(
    ctx: typer.Context,
    model: flags.Model,
    options: flags.DebugOptions,
    trust: flags.Trust,
    inputs: Files = None,
    check: CheckModel = "",
    output: Reduced = Path("reduced.onnx"),
    budget: Budget = 600.0,
    seed: Seed = 0,
    quiet: flags.Quiet = False,
    json: flags.Json = False,
) -> Outcome:
    """Make a model smaller as long as it shows the same fault; write the smallest one, and its inputs beside it.

    The fault is how dlc verify ends on the model: an error, a difference, a crash; or what --check says. Nodes,
    outputs, dimensions and values are reduced, in this order. The result is written whenever it gets smaller, so that
    an interrupted search goes on from it.
    """
    del json
    from dlc.cli.commands.debug_reduce import Asked, reduce_model

    asked = Asked(tuple(inputs or ()), check, budget, output, seed, trust.trust_config)
    return reduce_model(_terminal(ctx, quiet), options.of(model), asked)


@app.command("repro")
@flags.spelled
def repro(
    ctx: typer.Context,
    file: Report,
    trust: flags.Trust,
    model: Weights = None,
    yes: Yes = False,
    quiet: flags.Quiet = False,
    json: flags.Json = False,
) -> Outcome:
    """Run what a crash report holds again, and tell whether it still happens; exit code 3 if it does.

    The step that failed runs on its graph, or the command line on the model, whose weights are random: reports have
    their shapes only. It runs in a directory of its own, and a crash does not end the command.
    """
    del json
    from dlc.cli.commands.debug_repro import reproduce

    return reproduce(_terminal(ctx, quiet), file, model, trust=trust.trust_config, yes=yes)


def _terminal(ctx: typer.Context, quiet: bool) -> Terminal:
    terminal: Terminal = ctx.obj
    terminal.quiet = quiet
    return terminal
