"""What the commands of `dlc debug` share: a build whose states are kept, its program, inputs, and a reference."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, cast

from dlc.base.diagnostics import DlcError, ExitCode, error, escape, quote
from dlc.cli.options import WORDS, BuildOptions, CacheOptions
from dlc.cli.terminal import Terminal, columns, json_number
from dlc.cli.workspace import Workspace
from dlc.debug.states import Closeness
from dlc.driver.prepare import Prepared

if TYPE_CHECKING:
    from dlc.api.program import Program
    from dlc.base.types import Array
    from dlc.cache import Cache
    from dlc.cache.step_record import StepRecord
    from dlc.graph.graph import Graph
    from dlc.verify.compare import Comparison

AGAINST = "auto", "onnxruntime", "reference"
"""What --against takes."""


@dataclass(frozen=True)
class Asked:
    """What results are compared with, and on which inputs."""

    against: str
    files: Sequence[str]
    seed: int
    rtol: float | None
    atol: float | None


@dataclass
class Subject:
    """A model that is built to be searched."""

    space: Workspace
    chosen: BuildOptions
    prepared: Prepared
    cache: Cache
    records: list[StepRecord[Any]] = field(default_factory=list["StepRecord[Any]"])

    @property
    def terminal(self) -> Terminal:
        """Where progress is shown."""
        return self.space.terminal

    @property
    def parsed(self) -> Graph:
        """The model as it was read."""
        return self.records[0].handle.value

    def build(self) -> Any:
        """The artifact, or the bundle of a training program. Raises DlcError as a build does."""
        return self.space.compile(self.prepared, self.cache, on_step=self.records.append).last.value

    def close(self, asked: Asked) -> Closeness:
        """How far values may be apart."""
        return Closeness(asked.rtol, asked.atol, self.prepared.pipeline.backend.tolerance)

    def line(self, word: str, *more: str) -> str:
        """The command line of another command on this model, with what this one was given."""
        return command_line(word, self.chosen, *more)


@contextmanager
def opened(terminal: Terminal, chosen: BuildOptions, cache: CacheOptions) -> Generator[Subject]:
    """A model, ready to be built."""
    space = Workspace.open(terminal, cache)
    prepared = space.prepare(chosen)
    with space.cache() as store:
        yield Subject(space, chosen, prepared, store)


@contextmanager
def loaded(subject: Subject, artifact: Any) -> Generator[tuple[Program, Path]]:
    """The program of an artifact and its directory, which is there as long."""
    from dlc.runtime.install import install
    from dlc.runtime.loading import load

    with TemporaryDirectory(prefix="dlc-") as made:
        install(artifact, Path(made))
        yield load(made, subject.space.registry), Path(made)


def feeds_for(subject: Subject, graph: Graph, asked: Asked) -> dict[str, Array]:
    """Values for the inputs of a graph: of files, and random for the rest. Raises DlcError (USAGE): a size is open."""
    from dlc.api.program import Port
    from dlc.cli.programs import tell_random
    from dlc.runtime.feeds import read_feeds
    from dlc.verify.steps import feeds_of

    if names := [i.name for i in graph.inputs if i.type.is_open]:
        raise error(
            "open-size",
            f"the search needs one size for each dimension; open: {', '.join(map(quote, names))}",
            help="give single sizes: --dim NAME=N, or --input NAME:SHAPE",
            exit_code=ExitCode.USAGE,
        )
    given = read_feeds(asked.files, [Port(i.name, i.type, i.range) for i in graph.inputs])
    random = feeds_of(graph, asked.seed)
    tell_random(subject.terminal, [name for name in random if name not in given], asked.seed)
    return {**random, **given}


def check_against(against: str, chosen: BuildOptions) -> str:
    """onnxruntime or numpy, asked for before any work. Raises DlcError (USAGE)."""
    from dlc.verify.reference import choose

    if against not in AGAINST:
        raise error(
            "bad-option",
            f"--against {against}: there is no such reference",
            help="auto, onnxruntime or reference",
            exit_code=ExitCode.USAGE,
        )
    other = bool(chosen.by) or chosen.train is not None
    if other and against == "onnxruntime":
        raise error(
            "no-effect",
            "--against onnxruntime: it computes no gradients",
            help="use --against reference",
            exit_code=ExitCode.USAGE,
        )
    if other or against == "reference":
        return "numpy"
    return choose("auto" if against == "auto" else "onnxruntime", Path(chosen.model))


def expected(
    subject: Subject, kind: str, auto: bool, graph: Graph, feeds: Mapping[str, Array]
) -> tuple[str, Mapping[str, Array]]:
    """(what computed the reference, outputs by name); of itself (`auto`) numpy where onnxruntime refuses the model."""
    from dlc.verify.reference import onnxruntime
    from dlc.verify.steps import evaluated

    if kind == "onnxruntime":
        try:
            found = onnxruntime(Path(subject.chosen.model), graph.labels).evaluate(feeds)
        except DlcError:
            if not auto:
                raise
        else:
            return kind, found
    values = evaluated(graph, feeds)
    if isinstance(values, str):
        raise error("no-reference", f"the model cannot be evaluated: {values}", exit_code=ExitCode.USAGE)
    return "numpy", values


def checker(command: str) -> Callable[..., bool]:
    """`--check CMD`: whether the fault shows, which exit code 0 says, with paths behind the words of the command.

    Raises DlcError (USAGE): no command, or no such program; (TOOL) it cannot be run.
    """
    import shutil

    try:
        words = shlex.split(command)
    except ValueError as problem:
        raise error(
            "bad-option", f"--check: {problem}", help="quote it as for a shell", exit_code=ExitCode.USAGE
        ) from None
    if not words or shutil.which(words[0]) is None:
        raise error(
            "no-such-file",
            f"--check: there is no program {escape(words[0]) if words else command!r}",
            help="give a program and its arguments: --check 'python check.py'",
            exit_code=ExitCode.USAGE,
        )

    def shows(*paths: object) -> bool:
        try:
            # What it prints would end up among the results.
            ran = subprocess.run([*words, *map(str, paths)], capture_output=True, check=False)
        except OSError as problem:
            message = f"--check: {words[0]} cannot be run: {problem.strerror}"
            raise error("check-failed", message, exit_code=ExitCode.TOOL) from None
        return ran.returncode == 0

    return shows


def comparison_text(found: Comparison) -> str:
    """`output "y": largest error 0.31 at [0,2], 8 of 8 elements beyond …`."""
    place = f" at [{','.join(map(str, found.worst))}]" if found.max_abs else ""
    beyond = "all elements within" if found.ok else f"{found.wrong:,} of {found.size:,} elements beyond"
    return f"output {quote(found.name)}: largest error {found.max_abs:.3g}{place}, {beyond} {found.tolerance}"


def comparison_json(found: Comparison | None) -> dict[str, Any] | None:
    """The same for programs."""
    if found is None:
        return None
    return {
        "output": found.name,
        "ok": found.ok,
        "max_abs": json_number(found.max_abs),
        "max_rel": json_number(found.max_rel),
        "worst": list(found.worst),
        "wrong": found.wrong,
        "size": found.size,
    }


def command_line(word: str, chosen: BuildOptions, *more: str) -> str:
    """A command on a model, with the flags that say what to build, as a shell reads it."""
    return " ".join(["dlc", word, *(shlex.quote(part) for part in (chosen.model, *flag_words(chosen), *more))])


def rows_text(rows: Sequence[tuple[str, str]]) -> list[str]:
    """Lines of what is known, below a headline."""
    return [f"  {line}" for line in columns(rows).splitlines()]


def flag_words(chosen: BuildOptions) -> list[str]:
    """The flags that say what to build, as words of a command line."""
    found: list[str] = []
    for name, value in chosen.asked.items():
        word = next(w for w in WORDS[name] if str(w).startswith("--"))
        several = cast("tuple[object, ...]", value if isinstance(value, tuple) else (value,))
        found += [part for each in several if each not in ("", None, False) for part in _said(word, each)]
    return found


def _said(word: str, value: object) -> list[str]:
    return [word] if value is True else [word, str(value)]
