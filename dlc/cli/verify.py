"""`dlc verify`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dlc.cli import flags
from dlc.cli.run import Files, Seed, Subject
from dlc.cli.terminal import Outcome, Terminal, columns, json_number
from dlc.diagnostics import ExitCode, error, escape, quote

if TYPE_CHECKING:
    from dlc.cli.programs import Opened
    from dlc.compare import Comparison
    from dlc.reference import Array, Kind, Reference

Expected = Annotated[
    list[str] | None,
    typer.Option("--expected", "-e", metavar="FILE", help="Expected output: .pb, .npy, .npz or name=file; may repeat."),
]
Ref = Annotated[
    str,
    typer.Option(
        "--reference",
        metavar="auto|onnxruntime|numpy",
        help="What computes the reference; auto takes onnxruntime for .onnx files where it is installed.",
    ),
]
ModelFile = Annotated[
    Path | None, typer.Option("--model", metavar="MODEL", help="The model behind DIR, for the reference.")
]
Rtol = Annotated[
    float | None,
    typer.Option(metavar="X", min=0.0, help="Relative tolerance: |a - b| <= ATOL + RTOL |b|. [default: 1e-3]"),
]
Atol = Annotated[
    float | None,
    typer.Option(
        metavar="X",
        min=0.0,
        help="Absolute tolerance. [default: 1e-7 for expected files, else 1e-4 of the output's largest element]",
    ),
]


def verify(
    ctx: typer.Context,
    subject: Subject,
    inputs: Files = None,
    expected: Expected = None,
    reference: Ref = "auto",
    model: ModelFile = None,
    rtol: Rtol = None,
    atol: Atol = None,
    seed: Seed = 0,
    target: flags.Target = "",
    pipeline: flags.Pipeline = None,
    dim: flags.Dim = None,
    input: flags.Input = None,
    set: flags.Set = None,
    without: flags.Without = None,
    frontend: flags.Frontend = "",
    grad: flags.Grad = None,
    cache: flags.Cache = None,
    cache_dir: flags.CacheDir = None,
    quiet: flags.Quiet = False,
    json: flags.Json = False,
) -> Outcome:
    """Compare outputs with expected files, onnxruntime or the numpy reference; exit code 3 if they differ.

    Per output: the largest absolute and relative difference, the largest difference in units in the last place (ulp),
    the cosine of the angle between the two, and the tolerance. Integers and booleans must be equal.
    """
    del json
    terminal: Terminal = ctx.obj
    terminal.quiet = quiet
    chosen = flags.choice(subject, target, pipeline, frontend, dim, input, set, without, grad)
    source = None if Path(subject).is_dir() else Path(subject)
    if expected and (reference != "auto" or model):
        raise error(
            "no-effect",
            f"{'--model' if model else '--reference'} has no effect here: outputs are compared with --expected files",
            help="leave one of the two out",
            exit_code=ExitCode.USAGE,
        )
    kind = "expected" if expected else _checked(reference, model or source, chosen)
    from dlc.cli.programs import call, gather_feeds, open_program, tell_random

    with open_program(terminal, chosen, flags.CacheFlags(cache, cache_dir)) as opened:
        feeds, random = gather_feeds(opened.program, inputs or (), seed)
        tell_random(terminal, random, seed)
        if expected:
            from dlc.feeds import read_feeds

            want = read_feeds(expected, opened.program.signature.outputs, "output")
        else:
            with terminal.progress() as progress:
                progress.at(f"reference: {kind}")
                want = _reference(kind, opened, model or source, chosen).evaluate(feeds)
        found = call(opened.program, feeds)
    return _judge(kind, found, want, rtol, atol)


def _checked(reference: str, model: Path | None, chosen: flags.Choice) -> str:
    """Which reference, if everything it needs is there: asked before the model is built."""
    from dlc.reference import choose

    kinds: dict[str, Kind] = {"auto": "auto", "onnxruntime": "onnxruntime", "numpy": "numpy"}
    if reference not in kinds:
        raise error(
            "bad-option",
            f"--reference {reference}: there is no such reference",
            help="auto, onnxruntime or numpy; files are given with --expected",
            exit_code=ExitCode.USAGE,
        )
    if model is None:
        raise error(
            "no-reference",
            "a directory holds the program, but not the model to compare it with",
            help="add --model MODEL or --expected FILE",
            exit_code=ExitCode.USAGE,
        )
    if chosen.by and reference == "onnxruntime":
        raise error(
            "no-effect",
            "--reference onnxruntime computes no gradients",
            help="use --reference numpy",
            exit_code=ExitCode.USAGE,
        )
    return choose("numpy" if chosen.by else kinds[reference], model)


def _reference(kind: str, opened: Opened, model: Path | None, chosen: flags.Choice) -> Reference:
    from dlc.reference import Reference, onnxruntime

    assert model is not None
    if kind == "onnxruntime":
        return onnxruntime(model)
    from dlc.graph.evaluate import evaluate

    graph = opened.space.graph(replace(chosen, model=str(model)))
    return Reference("numpy", lambda feeds: evaluate(graph, feeds))


def _judge(
    kind: str, found: dict[str, Array], want: dict[str, Array], rtol: float | None, atol: float | None
) -> Outcome:
    from dlc.compare import compare
    from dlc.feeds import type_text
    from dlc.reference import missing, tolerance_for

    absent = missing(list(found), want)
    if absent and kind != "expected":
        raise error(
            "no-reference",
            f"{kind} gives no value for {', '.join(map(quote, absent))}",
            help="is --model the model that the program was built of?",
            exit_code=ExitCode.MISMATCH,
        )
    results: list[Comparison] = []
    for name, array in found.items():
        if name not in want:
            continue
        if want[name].shape != array.shape or want[name].dtype != array.dtype:
            raise error(
                "shape-mismatch",
                f"output {quote(name)} is {type_text(array)}, but {kind} gives {type_text(want[name])}",
                help="is --model the model that the program was built of, with the same --dim and --input?",
                exit_code=ExitCode.MISMATCH,
            )
        results.append(compare(name, array, want[name], tolerance_for(kind, want[name], rtol, atol)))
    ok = all(r.ok for r in results)
    rows = [("output", "max abs", "max rel", "max ulp", "cosine", "tolerance", "")]
    rows += [_row(r) for r in results]
    text = f"reference: {kind}\n" + columns(rows)
    if absent:
        text += f"\nnot compared: {', '.join(map(escape, absent))}"
    data = {"reference": kind, "outputs": [_json(r) for r in results], "not_compared": absent}
    return Outcome(text, data, ExitCode.OK if ok else ExitCode.MISMATCH)


def _row(r: Comparison) -> tuple[str, ...]:
    verdict = "ok" if r.ok else f"MISMATCH: {r.wrong} of {r.size} elements, worst at {list(r.worst)}"
    figures = f"{r.max_abs:.3g}", f"{r.max_rel:.3g}", f"{r.max_ulp}", f"{r.cosine:.9f}"
    return escape(r.name), *figures, str(r.tolerance), verdict


def _json(r: Comparison) -> dict[str, Any]:
    return {
        "name": r.name,
        "ok": r.ok,
        "max_abs": json_number(r.max_abs),
        "max_rel": json_number(r.max_rel),
        "max_ulp": r.max_ulp,
        "cosine": json_number(r.cosine),
        "wrong": r.wrong,
        "size": r.size,
        "worst": list(r.worst),
        "rtol": r.tolerance.relative,
        "atol": r.tolerance.absolute,
    }
