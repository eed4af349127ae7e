"""`dlc cache export | import`: what a cache holds, as one file."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dlc.base.diagnostics import ExitCode, Location, error
from dlc.cli import flags
from dlc.cli.terminal import Outcome, Terminal, size
from dlc.cli.workspace import configuration, opened_cache

if TYPE_CHECKING:
    from collections.abc import Set

    from dlc.cache.bundle import Imported

Bundle = Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="File to write, as NAME.dlccache.")]
SinceBuild = Annotated[
    bool, typer.Option("--since-build", help="What the last build used or made. The default.", show_default=False)
]
Since = Annotated[
    Path | None,
    typer.Option(
        "--since", metavar="FILE", help="What builds used or made that ended after FILE was last changed, as by touch."
    ),
]
All = Annotated[bool, typer.Option("--all", help="All that the cache holds.")]
File = Annotated[Path, typer.Argument(metavar="FILE", help="A file of dlc cache export.")]


@flags.spelled
def export(
    ctx: typer.Context,
    output: Bundle,
    where: flags.CacheDirectory,
    since_build: SinceBuild = False,
    since: Since = None,
    everything: All = False,
    json: flags.Json = False,
) -> Outcome:
    """Write results of the cache, with all their files, to one compressed file that dlc cache import reads."""
    del json
    if since_build + everything + (since is not None) > 1:
        raise error(
            "bad-option",
            "--since-build, --since and --all exclude each other",
            help="give one of them",
            exit_code=ExitCode.USAGE,
        )
    from dlc.cache import cache_directory
    from dlc.cache.bundle import chosen, export_bundle

    terminal: Terminal = ctx.obj
    config = configuration(replace(where, mode="ro"))
    uses = None if everything else _uses(cache_directory(config.cache_dir), since)
    with opened_cache(terminal, config, may_be_absent=True, shared=False) as cache, terminal.progress() as progress:
        there = chosen(cache.store, uses)
        results = [record for record in there if not cache.policy.refusal(record)]
        try:
            made = export_bundle(cache.store, results, output, lambda _, done: progress.at(f"writing {size(done)}"))
            length = output.stat().st_size
        except OSError as problem:
            raise error(
                "cannot-write",
                f"{output} cannot be written: {problem.strerror or problem}",
                location=Location(str(output)),
                help="choose another place, or free space and check its permissions",
            ) from None
    lines = [f"{output}: {made.records} results, {made.objects} objects, {size(made.size)} in {size(length)}"]
    if made.lacking:
        lines.append(f"{made.lacking} results lack files that were evicted")
    if untrusted := len(there) - len(results):
        lines.append(f"{untrusted} results are left out: no trusted key signed them")
    data = {"output": str(output), **asdict(made), "untrusted": untrusted, "file_size": length}
    return Outcome("\n".join(lines), data)


def _uses(directory: Path, since: Path | None) -> Set[str]:
    """Digests of what the last build used, or builds that ended after a file was changed."""
    from dlc.cache.running import past_uses

    try:
        after = None if since is None else since.stat().st_mtime
    except OSError as problem:
        raise error(
            "no-such-file",
            f"--since: {since} cannot be examined: {problem.strerror or problem}",
            help="make the file with touch before the builds",
            exit_code=ExitCode.USAGE,
        ) from None
    found = past_uses(directory, after)
    if found is None:
        when = f"after {since} was changed" if since else "yet"
        raise error(
            "no-build",
            f"no build with the cache in {directory} has ended {when}",
            help="build first, with `--cache rw`: only such builds are noted; or take --all",
            exit_code=ExitCode.USAGE,
        )
    return found


@flags.spelled
def import_(ctx: typer.Context, file: File, where: flags.CacheDirectory, json: flags.Json = False) -> Outcome:
    """Put the results of a file of dlc cache export into the cache. What the cache has stays as it is."""
    del json
    from dlc.cache.bundle import import_bundle

    terminal: Terminal = ctx.obj
    if not file.is_file():
        what = "is no file" if file.exists() else "does not exist"
        help = "give a file of `dlc cache export`"
        raise error("no-such-file", f"{file} {what}", help=help, exit_code=ExitCode.USAGE)
    config = configuration(replace(where, mode="rw"))
    total = file.stat().st_size
    with opened_cache(terminal, config, shared=False) as cache, terminal.progress() as progress:

        def tell(name: str, done: int) -> None:
            progress.at(f"reading {name[:12]}…", "import", done >> 10, total >> 10)

        found = import_bundle(cache.store, file, config.cache_size, cache.policy, tell)
        cache.make_room(found.digests)
    return Outcome(_lines(file, found), _document(file, found))


def _lines(file: Path, found: Imported) -> str:
    from dlc.cache.signing import causes_of

    text = f"{file}: {found.members} entries, {size(found.size)}; {found.new} are new"
    text += f" ({found.new_records} results, {found.new_objects} objects)" if found.new else ""
    if not found.refused:
        return text
    return f"{text}\n{found.refused.total()} results were not taken: {causes_of(found.refused)}"


def _document(file: Path, found: Imported) -> dict[str, object]:
    return {
        "file": str(file),
        "entries": found.members,
        "size": found.size,
        "new": found.new,
        "new_records": found.new_records,
        "new_objects": found.new_objects,
        "refused": dict(found.refused),
    }
