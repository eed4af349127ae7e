"""`dlc debug reduce`."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from dlc.base.diagnostics import ExitCode, error
from dlc.base.types import Array
from dlc.cli.debugging import checker, command_line, flag_words, rows_text
from dlc.cli.options import BuildOptions
from dlc.cli.terminal import Outcome, Terminal
from dlc.cli.worker import Ended, Worker
from dlc.debug.onnx_cut import Case, declared_inputs
from dlc.debug.reduce import Reducer
from dlc.files.writing import write_whole
from dlc.runtime.feeds import random_feeds, read_feeds, write_arrays

_SLOWEST: Final = 20
"""Times as long as the whole model that a candidate may take."""
_LEAST_SECONDS: Final = 60.0


@dataclass(frozen=True)
class Asked:
    """What is reduced, and where to."""

    files: Sequence[str]
    check: str
    budget: float
    output: Path
    seed: int
    trust: bool
    """Whether candidates are built with --trust-config."""

    @property
    def feeds(self) -> Path:
        """The file of the inputs, beside the model's."""
        return self.output.with_suffix(".npz")


def reduce_model(terminal: Terminal, chosen: BuildOptions, asked: Asked) -> Outcome:
    """What the command says."""
    start = time.monotonic()
    _check(chosen, asked)
    case = Case.read(Path(chosen.model), _feeds(chosen, asked))
    # Sizes are those of the inputs from here on.
    built = replace(chosen, model="", dims=(), inputs=())
    with TemporaryDirectory(prefix="dlc-") as made, terminal.progress() as line:
        place = Path(made)
        worker = Worker(seconds=3600.0)
        try:
            shows, fault = _oracle(asked, built, worker, place, case)
            reducer = Reducer(
                case,
                shows,
                lambda best: _write(best, asked.output, asked.feeds),
                line.at,
                lambda: time.monotonic() - start > asked.budget,
            )
            _write(case, asked.output, asked.feeds)
            try:
                ended = "done" if reducer.run() else "out of time"
            except KeyboardInterrupt:
                ended = "interrupted"
            finally:
                # An interruption may have come between the two files.
                _write(reducer.best, asked.output, asked.feeds)
        finally:
            worker.close()
    return _outcome(chosen, asked, case, reducer, ended, fault)


def _oracle(
    asked: Asked, built: BuildOptions, worker: Worker, place: Path, whole: Case
) -> tuple[Callable[[Case], bool], str]:
    """(whether a candidate shows the fault, the fault in words). Raises DlcError (USAGE): the whole model has none."""
    model, feeds = place / "model.onnx", place / "feeds.npz"
    if asked.check:
        check = checker(asked.check)

        def shows(case: Case) -> bool:
            _write(case, model, feeds)
            return check(model, feeds)

        if not shows(whole):
            raise _no_fault("--check: it does not exit with 0 on the whole model", "check the command on the model")
        return shows, f"--check {asked.check}"

    def ends(case: Case) -> Ended:
        _write(case, model, feeds)
        words = [
            "verify",
            str(model),
            *([str(feeds)] if case.feeds else []),
            *flag_words(built),
            "--cache",
            "off",
            "-q",
        ]
        return worker.run(words)

    start = time.monotonic()
    fault = ends(whole)
    if fault.code == ExitCode.USAGE:
        raise error(
            "no-fault",
            f"dlc verify refuses what it is given: {fault.error}",
            help="dlc verify with the same flags tells why; no smaller model would change that",
            exit_code=ExitCode.USAGE,
        )
    worker.seconds = max(_LEAST_SECONDS, _SLOWEST * (time.monotonic() - start))
    if fault == Ended(0):
        raise _no_fault(
            "the model builds, and computes what its reference does",
            "give a test of your own with --check, other inputs, or the flags of the build that goes wrong",
        )
    return lambda case: ends(case) == fault, f"dlc verify: {fault}"


def _write(case: Case, model: Path, feeds: Path) -> None:
    write_arrays(feeds, dict(case.feeds))
    write_whole(model, case.to_bytes())


def _feeds(chosen: BuildOptions, asked: Asked) -> Mapping[str, Array]:
    """Values for the inputs: of files, and random for the rest."""
    shapes = {name: _shape(shape) for name, _, shape in (text.rpartition(":") for text in chosen.inputs)}
    dims = {name: int(size) for name, _, size in (text.rpartition("=") for text in chosen.dims) if size.isdigit()}
    ports = declared_inputs(Path(chosen.model), dims, {name: shape for name, shape in shapes.items() if shape})
    return {**random_feeds(ports, asked.seed), **read_feeds(asked.files, ports)}


def _shape(text: str) -> tuple[int, ...]:
    """The sizes of `1x3x8`; none where one is open, or no number."""
    sizes = text.split("x")
    return tuple(map(int, sizes)) if all(n.isdigit() for n in sizes) else ()


def _check(chosen: BuildOptions, asked: Asked) -> None:
    if Path(chosen.model).suffix.lower() != ".onnx":
        raise error(
            "no-effect",
            f"dlc debug reduce cuts .onnx models, not {chosen.model}",
            help="give an .onnx file",
            exit_code=ExitCode.USAGE,
        )
    if not Path(chosen.model).is_file():
        raise error(
            "no-such-file",
            f"{chosen.model} does not exist",
            help="give the file of a model",
            exit_code=ExitCode.USAGE,
        )
    if asked.output.suffix != ".onnx":
        raise error(
            "bad-option",
            f"-o {asked.output}: the result is an ONNX model",
            help="end its name in .onnx; its inputs are written to an .npz beside it",
            exit_code=ExitCode.USAGE,
        )
    if asked.output.exists() and asked.output.samefile(chosen.model):
        raise error(
            "conflict",
            f"-o {asked.output} is the model itself",
            help="write the result to another file",
            exit_code=ExitCode.USAGE,
        )


def _no_fault(message: str, help: str) -> Exception:
    return error("no-fault", message, help=help, exit_code=ExitCode.USAGE)


def _outcome(chosen: BuildOptions, asked: Asked, case: Case, reducer: Reducer, ended: str, fault: str) -> Outcome:
    best = reducer.best
    again = command_line("verify", replace(chosen, model=str(asked.output), dims=(), inputs=()), str(asked.feeds))
    rows = [
        ("fault", fault),
        ("nodes", f"{len(best.nodes)} of {len(case.nodes)}: {', '.join(sorted({n.op_type for n in best.nodes}))}"),
        ("inputs", f"{len(best.feeds)}; outputs {len(best.outputs)}"),
        ("elements", f"{best.elements:,} of {case.elements:,} of inputs and constants"),
        ("search", f"{reducer.tested} candidates, {ended}"),
        ("result", f"{asked.output}, {asked.feeds}"),
    ]
    if not asked.check:
        rows.append(("again", again))
    if ended != "done":
        rows.append(
            ("go on", command_line("debug reduce", replace(chosen, model=str(asked.output), dims=(), inputs=())))
        )
    headline = f"{asked.output}: {len(best.nodes)} node{'s show' if len(best.nodes) > 1 else ' shows'} the fault"
    data = {
        "fault": fault,
        "ended": ended,
        "nodes": len(best.nodes),
        "operators": sorted({n.op_type for n in best.nodes}),
        "nodes_before": len(case.nodes),
        "elements": best.elements,
        "elements_before": case.elements,
        "tested": reducer.tested,
        "model": str(asked.output),
        "feeds": str(asked.feeds),
    }
    code = ExitCode.INTERRUPTED if ended == "interrupted" else ExitCode.OK
    return Outcome("\n".join([headline, *rows_text(rows)]), data, code)
