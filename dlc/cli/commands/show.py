"""`dlc show`: what a model, a built program or something in the cache is."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dlc.base.diagnostics import DlcError, ExitCode, error, escape
from dlc.cli import flags
from dlc.cli.describe import describe_graph, port_rows, ports_data
from dlc.cli.options import BuildOptions, CacheOptions
from dlc.cli.programs import program_file
from dlc.cli.terminal import Outcome, Terminal, columns, size
from dlc.cli.workspace import Workspace
from dlc.plugins.discovery import BACKENDS, KINDS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dlc.api.artifact import Description

What = Annotated[
    str,
    typer.Argument(
        metavar="MODEL|DIR|FILE|DIGEST",
        help="A model's file, the directory or file of a program, a checkpoint of dlc train, or the first digits "
        "(four or more) of a digest.",
    ),
]
Text = Annotated[bool, typer.Option("--text", help="Print the graph, the plan or the cached file itself.")]
Origins = Annotated[
    bool, typer.Option("--origins", help="With --text: after each op, the nodes of the model that it comes from.")
]
Parts = Annotated[
    str,
    typer.Option(
        "--what",
        metavar="kernel|gradient|loops",
        help="Print the kernels, the kernels of the gradients, or the loops; several separated by commas.",
    ),
]
Raw = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write the bytes of a cached file to FILE.")
]
_DIGEST = re.compile(r"[0-9a-f]{4,64}")


@flags.spelled
def show(
    ctx: typer.Context,
    what: What,
    options: flags.ShapeOptions,
    cache: flags.ReadModel,
    text: Text = False,
    origins: Origins = False,
    parts: Parts = "",
    output: Raw = None,
    json: flags.Json = False,
) -> Outcome:
    """Show a model, a built program, a checkpoint, or anything that the cache holds."""
    del json
    terminal: Terminal = ctx.obj
    path = Path(what)
    if origins and not text:
        raise _no_effect("--origins", "it belongs to --text")
    if path.exists() and output:
        raise _no_effect("--output", f"{what} is a file already")
    if text and parts:
        raise _no_effect("--what", "--text prints the whole graph")
    given = {"--text": text, "--what": parts, **options.given}
    if path.is_file() and _is_checkpoint(path):
        return _checkpoint(path, given)
    kinds = BACKENDS if path.is_dir() else KINDS
    space = Workspace.open(terminal, CacheOptions(ops=cache.ops), kinds) if path.exists() else None
    file = program_file(space, what) if space else None
    is_program = bool(file) or path.is_dir()
    for flag, value in given.items():
        if value and (is_program or (flag != "--text" and not path.exists())):
            raise _no_effect(flag, f"{what} is {'a program' if is_program else 'no model'}")
    if file:
        described = file[0].describe(file[1])
        return Outcome(described.text, {**described.data, "kind": "program", "target": file[0].name, "file": what})
    if space and path.is_dir():
        return _program(space, path)
    if space:
        return _model(space, options.of(what), text, origins, parts)
    if not _DIGEST.fullmatch(what):
        raise error(
            "no-such-thing",
            f"{what} is not a file, a directory or a digest",
            help="digests have 4 to 64 of the digits 0-9 and a-f; dlc build --json prints the digests of its steps",
            exit_code=ExitCode.USAGE,
        )
    from dlc.cli.commands.show_cached import show_cached

    return show_cached(Workspace.open(terminal, replace(cache, mode="ro")), what, text, origins, output)


def _is_checkpoint(path: Path) -> bool:
    from dlc.api.source import Source

    # By its content: dlc 0.1 gave checkpoints the suffix of graphs in text.
    if path.suffix not in (".ckpt", ".dlc"):
        return False
    from dlc.training.loop.checkpoint import is_checkpoint

    return path.suffix == ".ckpt" or is_checkpoint(Source(path).part(0, 64))


def _checkpoint(path: Path, given: Mapping[str, object]) -> Outcome:
    from dlc.cli.commands.show_checkpoint import show_checkpoint

    for flag, value in given.items():
        if value:
            raise _no_effect(flag, f"{path} is a checkpoint of dlc train")
    return show_checkpoint(path)


def _model(space: Workspace, choice: BuildOptions, text: bool, origins: bool, parts: str) -> Outcome:
    from dlc.cli.commands.show_kernels import Views

    source = space.source(choice.model)
    frontend, _ = space.reader(source, choice)
    with space.terminal.progress() as progress:
        progress.at(str(frontend))
        views = Views.of(space, choice)
    wanted = views.chosen(parts)
    rows, table, data = describe_graph(views.shown)
    values: dict[str, Any] = {"kind": "model", "name": source.name, "frontend": frontend.name, **data}
    if text:
        from dlc.driver.state_text import print_state

        values["text"] = print_state(views.shown, origins=origins)
        return Outcome(values["text"], values)
    found = {part: views.text(part) for part in wanted}
    values |= found
    if parts:
        return Outcome("\n\n".join(found.values()), values)
    bytes_ = source.path.stat().st_size if source.path else 0
    head = [("model", escape(choice.model)), ("format", f"{frontend.name}, {size(bytes_)}")]
    summary = f"{columns([*head, *rows])}\n{table}"
    return Outcome("\n\n".join([summary, *found.values()]), {**values, "bytes": bytes_})


def _program(space: Workspace, directory: Path) -> Outcome:
    """What the manifest says, held against the files that are there; and what its backend says of the program."""
    from dlc.cli.steps import memory_line
    from dlc.runtime.manifest import read_manifest

    manifest = read_manifest(directory)
    memory: Mapping[str, int | str] = manifest.data.get("memory", {})
    files = [
        (name, count, _state(directory / name, manifest.data["files"][name].get("sha256")))
        for name, count in manifest.files.items()
    ]
    rows = [("program", escape(str(directory))), ("target", escape(manifest.target))]
    rows += port_rows("input", manifest.signature.inputs)
    rows += port_rows("output", manifest.signature.outputs)
    rows += [("memory", line) for line in [memory_line(memory)] if line]
    listed = columns([(f"  {escape(name)}", size(count), state) for name, count, state in files], right=(1,))
    data = {
        "kind": "program",
        "directory": str(directory),
        "target": manifest.target,
        "entry": manifest.data.get("entry", ""),
        "inputs": ports_data(manifest.signature.inputs),
        "outputs": ports_data(manifest.signature.outputs),
        "memory": dict(memory),
        "files": [{"name": name, "bytes": count, "state": state} for name, count, state in files],
    }
    described = _described(space, manifest.target, directory / str(data["entry"]))
    parts = [f"{columns(rows)}\nfiles\n{listed}", *([described.summary] if described else [])]
    return Outcome("\n\n".join(parts), {**data, **({"program": described.data} if described else {})})


def _described(space: Workspace, target: str, entry: Path) -> Description | None:
    """The program's file as its backend tells it, where it can; a fault of the file is reported as a warning."""
    from dlc.api.source import Source
    from dlc.spec import Spec

    try:
        backend = space.registry.backend(Spec.parse(target, "manifest.json"))
    except DlcError:
        return None  # not installed here: the manifest still tells most of it
    if entry.suffix not in backend.suffixes or not entry.is_file():
        return None
    try:
        return backend.describe(Source(entry))
    except DlcError as problem:
        space.terminal.tell(*(replace(d, severity="warning") for d in problem.diagnostics))
        return None


def _state(path: Path, expected: str | None) -> str:
    """Whether an installed file is what was installed."""
    from dlc.files.hashing import file_sha256

    if not path.is_file():
        return "missing"
    if expected is None:
        return "not checked"
    try:
        return "as built" if file_sha256(path) == expected else "changed"
    except OSError as problem:
        return f"not readable: {problem.strerror}"


def _no_effect(flag: str, reason: str) -> Exception:
    return error(
        "no-effect",
        f"{flag} has no effect here: {reason}",
        help="leave it out; dlc show --help lists all flags",
        exit_code=ExitCode.USAGE,
    )
