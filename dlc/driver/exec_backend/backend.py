"""`Exec`: a backend that an executable implements, in any language."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar, cast

from dlc.api.artifact import Artifact
from dlc.api.backend import Backend, Reason, Region
from dlc.api.plan import Plan
from dlc.api.program import Port, Program, Signature
from dlc.base.diagnostics import DlcError, ExitCode, did_you_mean, error, escape, quote
from dlc.base.level import Level
from dlc.driver.exec_backend import SCHEME
from dlc.driver.exec_backend import protocol as p
from dlc.driver.exec_backend.form import FormError, from_json, to_json
from dlc.driver.exec_backend.options import option_values
from dlc.driver.exec_backend.process import ask
from dlc.files.inputs import active
from dlc.spec import Spec, option
from dlc.version import __version__

if TYPE_CHECKING:
    from dlc.base.report import Report
    from dlc.base.types import Type
    from dlc.graph import Op
    from dlc.graph.graph import Graph
    from dlc.kernel.kernel import Kernel

T = TypeVar("T")
MOST_FILES: Final = 10_000
MOST_BYTES: Final = 4 << 30
"""Of a program."""
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_PIPELINES: Final[Mapping[Level, str]] = {
    "ops": "fold-constants,simplify,fold-constants",
    "plan": "integers,fold-constants,simplify,expand{only=batch_norm,batch_norm_training,ctc,ctc_rows,dft},"
    "fold-constants,lower,fuse,order,plan-memory",
}
"""Without the passes that lay data out for the caches and vectors of processors."""
_FAULTS: Final[Mapping[str, ExitCode]] = {
    "model": ExitCode.MODEL,
    "options": ExitCode.USAGE,
    "limit": ExitCode.LIMIT,
    "protocol": ExitCode.PLUGIN,
    "internal": ExitCode.PLUGIN,
}


@dataclass(frozen=True)
class Exec(Backend):
    """A backend that is an executable: --target exec:PATH; docs/exec-backends.md describes how it is asked."""

    name: ClassVar[str] = "exec"
    tools_decide: ClassVar[bool] = True
    title: ClassVar[str] = "model"
    command: str = option("", "the executable: a path, or a name that is found on PATH", runs=True, path=True)
    options: tuple[tuple[str, str], ...] = option((), "options that the executable declares: name:value")
    timeout: float = option(60.0, "seconds that it may take for an answer", low=0.01, high=86400, path=True)

    # ---- what it says of itself ----
    def description(self) -> p.Description:
        """The answer to describe, asked once for each content of the executable. Raises DlcError (USAGE, PLUGIN)."""
        program = self.program()
        return _described(program, _digest(program), min(self.timeout, 10.0))

    def program(self) -> Path:
        """The executable. Raises DlcError (USAGE): there is none."""
        if not self.command:
            help = "--target exec:PATH, or exec{command=PATH}"
            raise error("exec-backend", "exec: no executable is given", help=help, exit_code=ExitCode.USAGE)
        found = self.command if "/" in self.command else shutil.which(self.command)
        path = Path(found or self.command).absolute()
        if found is None or not path.is_file():  # a name alone never means a file of the current directory
            what = "is not on PATH" if found is None else "is a directory" if path.is_dir() else "does not exist"
            help = f"a program in this directory is {SCHEME}./{self.command}" if Path(self.command).is_file() else ""
            message = f"exec: the executable {self.command} {what}"
            raise error("exec-backend", message, help=help, exit_code=ExitCode.USAGE)
        return path

    def toolchain(self) -> str:
        """Content of the executable and of what it depends on, and what it says of itself: part of cache keys."""
        if not self.command:
            return ""  # what is listed is no target yet
        program, described = self.program(), self.description()
        lines = [f"executable sha256 {_digest(program)}", f"backend {described.name} {described.version}"]
        for name in described.depends:
            path = program.parent / name
            if not path.is_file():
                raise self._broken(f"it depends on {quote(name)}, which is not a file beside it")
            lines.append(f"file {quote(name)} sha256 {_digest(path)}")
        return "\n".join(lines)

    def own_level(self) -> Level:
        """What it consumes."""
        return self.description().consumes

    def own_pipeline(self) -> str:
        """Its own, or one that gives what it consumes."""
        described = self.description()
        option_values(described, self.options)  # what is wrong with them is said before a model is read
        return described.pipeline or _PIPELINES[described.consumes]

    def regions(self) -> Mapping[str, Region]:
        """Its memory."""
        found = {m.name: Region(m.align, m.limit) for m in self.description().memory}
        return found or {"arena": Region()}

    def settings(self) -> Mapping[str, Mapping[str, str]]:
        """The alignment of its arena."""
        arena = self.regions().get("arena", Region())
        return {"plan-memory": {"align": str(arena.align)}}

    # ---- which ops it takes ----
    def accepts(self, op: Op) -> bool | Reason:
        """See `Backend`."""
        return self.accepts_all((op,))[0]

    def accepts_all(self, ops: Sequence[Op]) -> Sequence[bool | Reason]:
        """Those that the description excludes are refused; of the others it is asked, each kind once."""
        from dlc.driver.exec_backend.program import no_words, op_info

        described = self.description()
        values = option_values(described, self.options)
        infos = [op_info(op) for op in ops]
        found: list[bool | Reason] = [
            no_words(op) or _excluded(info, described) or True for op, info in zip(ops, infos, strict=True)
        ]
        kinds: dict[str, list[int]] = {}
        for k, info in enumerate(infos):
            if found[k] is True:
                kinds.setdefault(json.dumps(to_json(info)), []).append(k)
        if not described.legalises or not kinds:
            return found
        places = list(kinds.values())
        request = p.LegaliseRequest(values, tuple(infos[at[0]] for at in places))
        with tempfile.TemporaryDirectory(prefix="dlc-exec-") as directory:
            answer = self._ask("legalise", request, p.Legality, Path(directory))
        for refusal in answer.refused:
            if not 0 <= refusal.op < len(places):
                raise self._broken(f"it refuses op {refusal.op} of {len(places)}")
            for k in places[refusal.op]:
                found[k] = Reason(refusal.reason, refusal.help)
        return found

    def accepts_type(self, type: Type) -> bool | Reason:
        """Whether the description has the element type."""
        return _no_element(str(type.dtype), self.description()) or True

    def accepts_kernel(self, kernel: Kernel) -> bool | Reason:
        """Whether the description has the functions."""
        described = self.description()
        if described.functions is None or not (lacking := sorted(kernel.functions - set(described.functions))):
            return True
        what = "functions" if len(lacking) > 1 else "function"
        return Reason(
            f"{described.name} has no {what} {', '.join(lacking)}", f"it has {', '.join(described.functions)}"
        )

    # ---- programs ----
    def for_model(self, title: str) -> Exec:
        """The backend that knows the name of the model's file."""
        new = replace(self)
        object.__setattr__(new, "title", title)
        return new

    def emit(self, state: Graph | Plan, report: Report) -> Artifact:
        """The files that the executable writes."""
        from dlc.driver.exec_backend.program import program_of

        values = option_values(self.description(), self.options)
        with tempfile.TemporaryDirectory(prefix="dlc-exec-") as temporary:
            directory = Path(temporary)
            (directory / "output").mkdir()
            with (directory / "weights.bin").open("wb") as weights:
                program = program_of(state, self.title, weights)
            request = p.EmitRequest(values, "weights.bin", "output", program)
            answer = self._ask("emit", request, p.Emitted, directory)
            files = self._files(directory / "output")
        if answer.entry not in files:
            help = f"it wrote: {', '.join(map(quote, sorted(files)[:8]))}" if files else "it wrote no file"
            raise self._broken(f"its entry {quote(answer.entry)} is not among the files", help)
        report.count("files", len(files))
        facts = {quote(key)[1:-1]: value for key, value in answer.facts.items()}
        return Artifact(str(self.placeless), files, answer.entry, signature_of(state), facts)

    def _files(self, output: Path) -> dict[str, bytes]:
        """What it wrote, by relative name."""
        found: dict[str, bytes] = {}
        size = 0
        for path in sorted(output.rglob("*")):
            name = path.relative_to(output).as_posix()
            if path.is_dir() and not path.is_symlink():
                continue
            if path.is_symlink() or not path.is_file():
                raise self._broken(f"it wrote {quote(name)}, which is not a regular file")
            if not all(_NAME.fullmatch(part) for part in PurePosixPath(name).parts) or name == "manifest.json":
                help = "names have letters, digits, dots, - and _; manifest.json is written by dlc"
                raise self._broken(f"it wrote a file that cannot be installed: {quote(name)}", help)
            size += path.stat().st_size
            if len(found) >= MOST_FILES or size > MOST_BYTES:
                raise self._broken(f"it wrote more than {MOST_FILES:,} files or {MOST_BYTES >> 30} GiB")
            found[name] = path.read_bytes()
        return found

    def load(self, directory: Path) -> Program:
        """Refused: what the files are for is known to the executable alone."""
        from dlc.runtime.manifest import read_manifest

        entry = str(read_manifest(directory).data.get("entry", ""))
        message = f"programs of executable backends do not run in dlc: what {quote(entry)} is for, only they know"
        help = (
            "build with -o DIR and run what is there with the target's own tools, as docs/exec-backends.md does; "
            "dlc run MODEL --target c -o FILE.npz computes outputs to compare with"
        )
        raise error("cannot-load", message, help=help, exit_code=ExitCode.USAGE)

    # ---- questions ----
    def _ask(self, method: p.Method, params: Any, kind: type[T], directory: Path) -> T:
        return question(self.program(), method, params, kind, directory, self.timeout)

    def _broken(self, what: str, help: str = "") -> DlcError:
        return error("exec-backend", f"{self.program()}: {what}", help=help, exit_code=ExitCode.PLUGIN)


def question(program: Path, method: p.Method, params: Any, kind: type[T], directory: Path, seconds: float) -> T:
    """The answer to a request. Raises DlcError: as `ask`; it is of another form, or refuses the model."""
    request = json.dumps(to_json(p.Request(p.VERSION, 1, method, params)), allow_nan=False, separators=(",", ":"))
    answer, notes = ask(program, request.encode(), directory, seconds)

    def broken(what: str, help: str = "") -> DlcError:
        message = f"{program}: its answer to {method} is not of protocol {p.VERSION}: {what}"
        return error("exec-backend", message, notes=notes, help=help, exit_code=ExitCode.PLUGIN)

    if not isinstance(answer, dict):
        raise broken("it is not an object")
    given = cast("dict[str, Any]", answer)
    try:
        result, failure = cast("Any", given.get("result")), given.get("error")
        envelope = from_json(p.Response, {**given, "result": None, "error": failure}, "answer")
        if envelope.id != 1:
            raise broken(f"it has id {envelope.id}, the request has 1")
        if envelope.error:
            raise _failed(program, method, envelope.error, notes)
        if result is None:
            raise broken("it has neither a result nor an error")
        if method == "describe" and isinstance(result, dict):
            _check_version(program, cast("dict[str, Any]", result).get("protocol"))
        return from_json(kind, result, "result")
    except FormError as problem:
        raise broken(str(problem), problem.help) from None


def _check_version(program: Path, version: Any) -> None:
    """Before its form: another version may have another one."""
    if isinstance(version, int) and version != p.VERSION:
        message = f"{program} speaks protocol {version}, this dlc speaks {p.VERSION}"
        which = "a newer dlc" if version > p.VERSION else "a newer version of the executable"
        raise error("exec-backend", message, help=f"use {which}", exit_code=ExitCode.PLUGIN)


def _failed(program: Path, method: str, failure: p.Failure, notes: Sequence[str]) -> DlcError:
    return error(
        "exec-refused",
        f"{program.name}: {method}: {escape(failure.message)}",
        notes=notes,
        help=escape(failure.help),
        exit_code=_FAULTS[failure.kind],
    )


@lru_cache(maxsize=32)
def _described(program: Path, digest: str, seconds: float) -> p.Description:
    del digest  # another content is another executable
    params = p.DescribeRequest((p.VERSION,), __version__)
    with tempfile.TemporaryDirectory(prefix="dlc-exec-") as directory:
        found = question(program, "describe", params, p.Description, Path(directory), seconds)
    if problem := _problem(found):
        raise error("exec-backend", f"{program}: its description: {problem}", exit_code=ExitCode.PLUGIN)
    return found


def _problem(found: p.Description) -> str:
    """What is wrong with a description although its form is right."""
    if not _NAME.fullmatch(found.name):
        return f"{quote(found.name)} is not a name: letters, digits, dots, - and _"
    for m in found.memory:
        if m.align & (m.align - 1) or not 8 <= m.align <= 65536:
            return f"memory {quote(m.name)}: {m.align} is not a power of two from 8 to 65536"
    if found.memory and "arena" not in (m.name for m in found.memory):
        return "there is no memory called arena, which plans use"
    for o in found.options:
        if not re.fullmatch(r"[a-z][a-z0-9-]*", o.name):
            return f"{quote(o.name)} is not a name of an option: lower-case letters, digits and -"
    return ""


def _excluded(info: p.OpInfo, described: p.Description) -> Reason | None:
    if described.ops is not None and info.op not in described.ops:
        return Reason(f"{described.name} has no such operation", did_you_mean(info.op, described.ops, "operations"))
    operands = [t for v in info.operands.values() if v for t in (v if isinstance(v, tuple) else (v,))]
    reasons = (_no_element(t.element, described) for t in (*operands, *info.results))
    return next((reason for reason in reasons if reason), None)


def _no_element(name: str, described: p.Description) -> Reason | None:
    if described.elements is None or name in described.elements:
        return None
    return Reason(f"element type {name}", f"{described.name} has {', '.join(described.elements)}")


def _digest(path: Path) -> str:
    try:
        return active().open(path).digest("sha256")
    except OSError as problem:
        raise error("exec-backend", f"{path} cannot be read: {problem.strerror}", exit_code=ExitCode.USAGE) from None


def signature_of(state: Graph | Plan) -> Signature:
    """How the program of a graph or plan is called."""
    if isinstance(state, Plan):
        return state.signature
    outputs = zip(state.names, state.outputs, strict=True)
    return Signature(
        tuple(Port(i.name, i.type, i.range) for i in state.inputs),
        tuple(Port(name, op.type, labels=state.labels.get(name, ())) for name, op in outputs),
        state.aliases,
    )


def target_spec(text: str, source: str) -> Spec:
    """The spec that `exec:PATH{NAME=VALUE}` means. Raises DlcError (USAGE)."""
    path, brace, rest = text.removeprefix(SCHEME).partition("{")
    options: list[str] = []
    if brace:
        for key, value in Spec.parse(f"exec{{{rest}", source).options:
            if not isinstance(value, str):
                message = f"{source}: {key} is a list or has options; options of executables are texts and numbers"
                raise error("bad-option", message, exit_code=ExitCode.USAGE)
            options.append(f"{key}:{value}")
    return Spec("exec", (("command", path.strip()), *((("options", tuple(options)),) if options else ())))
