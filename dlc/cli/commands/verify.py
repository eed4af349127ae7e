"""`dlc verify`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from dlc.base.diagnostics import DlcError, ExitCode, error, escape, quote
from dlc.cli import flags
from dlc.cli.commands.run import Files, Seed, Subject
from dlc.cli.options import BuildOptions, CacheOptions
from dlc.cli.terminal import Outcome, Terminal, columns, json_number

if TYPE_CHECKING:
    from dlc.cli.programs import Opened
    from dlc.cli.workspace import Workspace
    from dlc.graph import Graph
    from dlc.verify.compare import Comparison
    from dlc.verify.reference import Array, Kind, Reference, Tolerances

Expected = Annotated[
    list[str] | None,
    typer.Option("--expected", "-e", metavar="FILE", help="Expected output: .pb, .npy, .npz or name=file; may repeat."),
]
Ref = Annotated[
    str,
    typer.Option(
        "--reference",
        metavar="auto|onnxruntime|numpy|torch|TARGET",
        help="Reference to compare with. auto is onnxruntime for .onnx files where it is installed, else numpy; for "
        "--gradients torch, in addition to finite differences. A target, as c{math=ordered}: a program "
        "of the same model for that one.",
    ),
]
ModelFile = Annotated[
    Path | None,
    typer.Option("--model", metavar="MODEL", help="The model that DIR or FILE was built from, for the reference."),
]
Rtol = Annotated[
    float | None,
    typer.Option(
        metavar="X",
        min=0.0,
        help="Relative tolerance: |a - b| <= ATOL + RTOL |b|. [default: 1e-3, or the target's; for --gradients 1e-6]",
    ),
]
Atol = Annotated[
    float | None,
    typer.Option(
        metavar="X",
        min=0.0,
        help="Absolute tolerance. [default: 1e-7 for expected files, else 1e-4 of the output's largest element; or the "
        "target's; for --gradients 1e-8 of the value or its largest derivative]",
    ),
]
Gradients = Annotated[
    bool,
    typer.Option(
        "--gradients",
        help="Compare the gradients that dlc derives, with respect to weights or --grad, with finite differences in "
        "double precision and with PyTorch: gradients of the outputs, or of the loss of --train.",
    ),
]
Samples = Annotated[
    int | None,
    typer.Option(
        "--samples",
        metavar="N",
        min=1,
        help="For --gradients: number of random directions, and of single elements, for each weight. [default: 2]",
    ),
]

_REFERENCES: Final[Mapping[str, Kind]] = {"auto": "auto", "onnxruntime": "onnxruntime", "numpy": "numpy"}
"""References by name; all others are targets."""


@flags.spelled
def verify(
    ctx: typer.Context,
    subject: Subject,
    options: BuildOptions,
    cache: CacheOptions,
    inputs: Files = None,
    expected: Expected = None,
    reference: Ref = "auto",
    model: ModelFile = None,
    rtol: Rtol = None,
    atol: Atol = None,
    gradients: Gradients = False,
    samples: Samples = None,
    seed: Seed = 0,
    max_memory: flags.MaxMemory = None,
    quiet: flags.Quiet = False,
    json: flags.Json = False,
) -> Outcome:
    """Compare outputs with files, onnxruntime, the numpy reference or another target; exit code 3 if they differ.

    A program in a single file is checked without running it; with inputs, or something to compare with, it is also run.
    If a directory holds such a file, the file is checked as well.

    A program built with --train holds the model that it is compared with; for other built programs, --model names it.
    Without input files, every open dimension is tried at several sizes within its bounds: the likely one, those around
    the lanes of a vector, and one beyond two tiles. A line says which sizes ran.

    Per output: the largest absolute and relative difference, the largest difference in units in the last place (ulp),
    the cosine of the angle between the two, and the tolerance. Integers and booleans must be equal.
    """
    del json
    terminal: Terminal = ctx.obj
    terminal.quiet = quiet
    chosen = options.of(subject)
    if gradients:
        from dlc.cli.commands.verify_gradients import Asked, verify_gradients

        _refuse({"--expected": expected, "--model": model}, "gradients are compared with differences")
        asked = Asked(inputs or (), reference, rtol, atol, samples, seed)
        return verify_gradients(terminal, chosen, cache, asked)
    _refuse({"--samples": samples, "--train": options.train}, "only --gradients asks for it")
    from dlc.cli.other_target import other_values
    from dlc.cli.programs import built_file, call, gather_feeds, open_program, own_model, tell_random
    from dlc.cli.workspace import Workspace
    from dlc.runtime.feeds import read_feeds

    space = Workspace.open(terminal, cache)
    file = built_file(space, subject, max_memory)
    checked = file[0].check(file[1]) if file else ""
    built = Path(subject).is_dir() or file is not None
    unasked = {"--rtol": rtol is not None, "--atol": atol is not None, "--seed": seed}
    alone = bool(checked) and not (inputs or expected or model)
    if alone and not Path(subject).is_dir():
        return _only(chosen, checked, unasked)
    behind = model or (None if built else Path(subject))
    if expected and (reference != "auto" or model):
        raise error(
            "no-effect",
            f"{'--model' if model else '--reference'} has no effect here: outputs are compared with --expected files",
            help="leave one of the two out",
            exit_code=ExitCode.USAGE,
        )
    check = partial(_checked, space, reference, chosen)
    kind = "expected" if expected else check(behind) if behind else ""
    with (
        open_program(terminal, chosen, cache, max_memory) as opened,
        nullcontext(behind) if kind else own_model(opened.program) as behind,
    ):
        if alone and behind is None:
            return _only(chosen, checked, unasked)
        kind = kind or check(behind)
        feeds, random = gather_feeds(opened.program, inputs or (), seed)
        tolerance = opened.backend.tolerance
        graph = None if expected or built else _differentiated(opened, chosen)
        if graph is not None:
            feeds, random = _started(graph, feeds, random)
            kind = "numpy" if reference == "auto" else kind
        tell_random(terminal, random, seed)
        if expected:
            want = read_feeds(expected, opened.program.signature.outputs, "output")
        elif kind not in _REFERENCES:
            want, tolerance = other_values(
                terminal, opened, replace(chosen, target=kind), cache, behind, feeds, max_memory
            )
        else:
            found_by = partial(_reference, kind, reference == "auto", opened, behind, chosen, graph)
            kind, want = _wanted(terminal, kind, found_by, feeds)
        judged = _judge(kind, call(opened.program, feeds), want, rtol, atol, tolerance)
        judged = _at_sizes(
            judged,
            opened,
            seed,
            partial(
                _wanted, terminal, kind, partial(_reference, kind, reference == "auto", opened, behind, chosen, None)
            ),
            partial(_judge, rtol=rtol, atol=atol, tolerance=tolerance),
            applies=kind in _REFERENCES and graph is None and not (inputs or expected),
        )
    return _with_check(judged, subject, checked) if checked else judged


def _at_sizes(
    first: Outcome,
    opened: Opened,
    seed: int,
    wanted: Callable[[Mapping[str, Array]], tuple[str, dict[str, Array]]],
    judge: Callable[[str, dict[str, Array], dict[str, Array]], Outcome],
    *,
    applies: bool,
) -> Outcome:
    """What was found first, with what is found at other sizes of open dimensions, where that applies."""
    from dlc.cli.commands.verify_sizes import Runs, Sizes, likely, size_sets
    from dlc.cli.programs import call, gather_feeds

    signature = opened.program.signature
    if not (applies and likely(signature)):
        return first

    def values(sizes: Sizes) -> tuple[dict[str, Array], str, dict[str, Array]]:
        feeds, _ = gather_feeds(opened.program, (), seed, sizes)
        return (feeds, *wanted(feeds))

    def judged(values: tuple[dict[str, Array], str, dict[str, Array]]) -> Outcome:
        feeds, name, want = values
        return judge(name, call(opened.program, feeds), want)

    return Runs(first, likely(signature)).run(size_sets(signature, opened.backend.verified_sizes()), values, judged)


def _with_check(judged: Outcome, subject: str, checked: str) -> Outcome:
    """What was found by running a program, after what its file said."""
    text = f"{escape(subject)}: {checked}\n{judged.text}"
    return replace(judged, text=text, data={"checked": checked, **judged.data})


def _started(
    graph: Graph, feeds: dict[str, Array], random: tuple[str, ...]
) -> tuple[dict[str, Array], tuple[str, ...]]:
    """Inputs, and the names of the random ones, where weights and states begin with what the model has."""
    from dlc.training.step.step import initial_values

    starts = {name: array for name, array in initial_values(graph).items() if name in random}
    return feeds | starts, tuple(name for name in random if name not in starts)


def _only(chosen: BuildOptions, checked: str, unasked: Mapping[str, object]) -> Outcome:
    """What was found without running a program."""
    from dlc.cli.programs import refuse_flags

    refuse_flags(chosen)
    _refuse(unasked, "no outputs are compared")
    return Outcome(f"{escape(chosen.model)}: {checked}", {"checked": checked})


def _refuse(given: Mapping[str, object], reason: str) -> None:
    """Raises DlcError (USAGE): a flag says nothing here."""
    for flag, value in given.items():
        if value:
            raise error("no-effect", f"{flag}: {reason}", help="leave it out", exit_code=ExitCode.USAGE)


def _checked(space: Workspace, reference: str, chosen: BuildOptions, model: Path | None) -> str:
    """Which reference, if everything it needs is there: asked before the model is built."""
    from dlc.verify.reference import choose

    if reference not in _REFERENCES:
        from dlc.cli.other_target import check_target

        check_target(space, reference, tuple(_REFERENCES))
    if model is None:
        raise error(
            "no-reference",
            "the program does not hold the model to compare it with",
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
    if reference not in _REFERENCES:
        return reference
    return choose("numpy" if chosen.by else _REFERENCES[reference], model)


def _differentiated(opened: Opened, chosen: BuildOptions) -> Graph | None:
    """What the pipeline makes of the model, where it is something else, as a training step; None where it is not."""
    steps = opened.space.prepare(chosen).pipeline.steps
    return opened.space.reference_graph(chosen) if any(step.stage.computes_other for step in steps) else None


def _reference(
    kind: str, auto: bool, opened: Opened, model: Path | None, chosen: BuildOptions, graph: Graph | None
) -> Reference:
    """What computes the reference; of itself (`auto`) numpy where onnxruntime does not know the model's operators."""
    from dlc.verify.reference import Reference, onnxruntime

    assert model is not None
    if kind == "onnxruntime":
        try:
            return onnxruntime(model, {p.name: p.labels for p in opened.program.signature.outputs if p.labels})
        except DlcError:
            if not auto:
                raise
    from dlc.cli.programs import bound
    from dlc.graph.evaluate import evaluate

    if graph is None:
        behind = model
        return Reference(
            "numpy", lambda feeds: evaluate(opened.space.graph(bound(opened, chosen, behind, feeds)), feeds)
        )
    from dlc.training.step.step import initial_values

    # A device that keeps weights and states takes no inputs for them.
    held = initial_values(graph)
    return Reference("numpy", lambda feeds: evaluate(graph, {**held, **feeds}))


def _wanted(
    terminal: Terminal, kind: str, reference: Callable[[], Reference], feeds: Mapping[str, Array]
) -> tuple[str, dict[str, Array]]:
    with terminal.progress() as progress:
        progress.at(f"reference: {kind}")
        found = reference()
        return found.name, found.evaluate(feeds)


def _judge(
    kind: str,
    found: dict[str, Array],
    want: dict[str, Array],
    rtol: float | None,
    atol: float | None,
    tolerance: Tolerances,
) -> Outcome:
    from dlc.runtime.feeds import type_text
    from dlc.verify.compare import compare
    from dlc.verify.reference import missing, tolerance_for

    absent = missing(list(found), want)
    if absent and kind != "expected":
        raise error(
            "no-reference",
            f"{kind} gives no value for {', '.join(map(quote, absent))}",
            help="check that --model is the model that the program was built from",
            exit_code=ExitCode.MISMATCH,
        )
    results: list[Comparison] = []
    for name, array in found.items():
        if name not in want:
            continue
        want[name] = _as_given(want[name], array)
        if want[name].shape != array.shape or want[name].dtype != array.dtype:
            raise error(
                "shape-mismatch",
                f"output {quote(name)} is {type_text(array)}, but {kind} gives {type_text(want[name])}",
                help="check that --model, --dim and --input are those that the program was built from",
                exit_code=ExitCode.MISMATCH,
            )
        results.append(compare(name, array, want[name], tolerance_for(kind, want[name], rtol, atol, tolerance)))
    ok = all(r.ok for r in results)
    rows = [("output", "max abs", "max rel", "max ulp", "cosine", "tolerance", "")]
    rows += [_row(r) for r in results]
    text = f"reference: {kind}\n" + columns(rows)
    if absent:
        text += f"\nnot compared: {', '.join(map(escape, absent))}"
    data = {"reference": kind, "outputs": [_json(r) for r in results], "not_compared": absent}
    return Outcome(text, data, ExitCode.OK if ok else ExitCode.MISMATCH)


def _as_given(wanted: Array, found: Array) -> Array:
    """Floats of a model in the wider type in which a target gives all of them, as S2Train those of f16 in f32."""
    from dlc.base.types import in_compute_type

    narrow, wide = in_compute_type(wanted), found.dtype
    widens = narrow.dtype.kind == "f" and wide.kind == "f" and wide.isbuiltin == 1 and wide.itemsize > wanted.itemsize
    return narrow.astype(wide) if widens else wanted


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
