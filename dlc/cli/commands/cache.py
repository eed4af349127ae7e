"""`dlc cache stats | why | verify | trim | clear`, and the commands of `cache_bundle` and `cache_sign`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dlc.base.diagnostics import Diagnostic, ExitCode, error, escape
from dlc.cli import flags
from dlc.cli.app import CONTEXT
from dlc.cli.commands import cache_bundle, cache_sign
from dlc.cli.options import BuildOptions, CacheOptions
from dlc.cli.terminal import Outcome, Terminal, size
from dlc.cli.workspace import Workspace, configuration, open_configured, opened_cache

if TYPE_CHECKING:
    from dlc.base.cache_settings import CacheMode
    from dlc.cache import Cache, Counts, Trimmed
    from dlc.config.config import Config
    from dlc.driver.why import Finding

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings=CONTEXT,
    help="Inspect and clean the cache, and carry it to other machines.",
    no_args_is_help=True,
)

_LONG_DIGEST = re.compile(r"\b([0-9a-f]{12})[0-9a-f]{20,52}\b")

Size = Annotated[
    str, typer.Argument(metavar="[SIZE]", help="Size, as 512MiB or 2GiB. By default cache.size of the configuration.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


def _opened(terminal: Terminal, where: CacheOptions, mode: CacheMode = "rw") -> AbstractContextManager[Cache]:
    """The configured cache, in a mode that suits the command."""
    return opened_cache(terminal, configuration(replace(where, mode=mode)), may_be_absent=True, shared=False)


@app.command()
@flags.spelled
def stats(ctx: typer.Context, where: flags.CacheDirectory, json: flags.Json = False) -> Outcome:
    """Print sizes, hits and misses, and the time that hits saved."""
    del json
    from dlc.cache.signing import causes_of

    with _opened(ctx.obj, where, "ro") as cache:
        found = cache.statistics()
    total = found.total
    lines = [
        f"{found.records} results, {found.objects} objects, {size(found.size)}",
        f"{total.hits} hits, {total.misses} misses ({100 * total.hit_rate:.1f} % hits)",
        f"{_seconds(total)} of work saved; {size(total.bytes_read)} read, {size(total.bytes_written)} written",
    ]
    lines += [
        f"{escape(level.level)}: {level.hits} hits, {level.ms_saved / 1000:.1f} s of work saved; "
        f"{size(level.bytes_read)} downloaded, {size(level.bytes_written)} uploaded, {level.failures} failures"
        for level in total.levels
    ]
    if total.refused:
        lines.append(f"{sum(total.refused.values())} results were there and not used: {causes_of(total.refused)}")
    if total.errors or found.set_aside:
        lines.append(f"{total.errors} damaged entries or failed operations, {found.set_aside} things set aside")
    data = {
        "records": found.records,
        "objects": found.objects,
        "bytes": found.size,
        "set_aside": found.set_aside,
        "total": asdict(total),
        "hit_rate": total.hit_rate,
    }
    return Outcome("\n".join(lines), data)


@app.command()
@flags.spelled
def why(
    ctx: typer.Context,
    model: flags.Model,
    options: BuildOptions,
    cache: flags.ReadCache,
    json: flags.Json = False,
) -> Outcome:
    """Explain why a build would miss the cache, or how it differs from the last build. Takes the flags of build."""
    del json
    from dlc.driver.why import explain, to_json

    terminal: Terminal = ctx.obj
    space = Workspace.open(terminal, replace(cache, mode="ro"))
    prepared = space.prepare(options.of(model))
    with opened_cache(terminal, space.config, may_be_absent=True) as opened:
        found = explain(
            lambda watching, on_step: space.compile(prepared, watching, on_step=on_step),
            prepared.pipeline,
            opened,
            Path(model).name,
        )
    return Outcome("\n".join(_lines(found)), {"findings": [to_json(finding) for finding in found]})


@app.command()
@flags.spelled
def verify(ctx: typer.Context, where: flags.CacheDirectory, json: flags.Json = False) -> Outcome:
    """Check the digest of every entry. Damaged entries are set aside, and the exit code is 1."""
    del json
    with _opened(ctx.obj, where) as cache:
        found = cache.verify()
    lines = [
        f"{found.checked} entries checked, {size(found.size)}: "
        + (f"{len(found.bad)} damaged" if found.bad else "all sound")
    ]
    lines += [f"  {'still there' if digest in found.kept else 'set aside'}: {digest}" for digest in found.bad]
    if found.dangling:
        lines.append(f"{found.dangling} results lack outputs, which were evicted or are in other levels only")
    data = {"checked": found.checked, "bytes": found.size, "bad": list(found.bad), "dangling": found.dangling}
    return Outcome("\n".join(lines), data, ExitCode.MODEL if found.bad else ExitCode.OK)


@app.command()
@flags.spelled
def trim(ctx: typer.Context, where: flags.CacheDirectory, limit: Size = "", json: flags.Json = False) -> Outcome:
    """Evict the least recently used entries down to a size."""
    del json
    from dlc.spec.configurable import parse_bytes
    from dlc.spec.convert import Problem

    config = configuration(replace(where, mode="rw"))
    try:
        wanted = int(parse_bytes(limit)) if limit else config.cache_size
    except Problem as problem:
        raise error("bad-option", f"{limit}: {problem}", help=problem.help, exit_code=ExitCode.USAGE) from None
    return _removal(ctx.obj, config, lambda cache: cache.trim(wanted), left=True)


@app.command()
@flags.spelled
def clear(ctx: typer.Context, where: flags.CacheDirectory, yes: Yes = False, json: flags.Json = False) -> Outcome:
    """Remove everything, statistics included."""
    del json
    terminal: Terminal = ctx.obj
    if not yes and not terminal.json and not _confirmed():
        return Outcome("nothing removed", {})
    config = configuration(replace(where, mode="rw"))
    return _removal(terminal, config, lambda cache: cache.clear())


for _name, _command in (
    ("export", cache_bundle.export),
    ("import", cache_bundle.import_),
    ("keygen", cache_sign.keygen),
    ("sign", cache_sign.sign),
    ("audit", cache_sign.audit),
):
    app.command(_name)(_command)


def _removal(terminal: Terminal, config: Config, remove: Callable[[Cache], Trimmed], *, left: bool = False) -> Outcome:
    """What was removed. What could not be is a failure, and so is a cache that cannot be used at all."""
    from dlc.cache import cache_directory

    cache = open_configured(config, may_be_absent=True)
    try:
        found = remove(cache)
    finally:
        cache.close()
    kept = f", {size(found.left)} left" if left else ""
    text = f"{found.removed} entries removed, {size(found.freed)} freed{kept}"
    data = {"removed": found.removed, "freed": found.freed, "left": found.left, "kept": found.kept}
    if not found.kept and all(w.code != "cache-unusable" for w in cache.warnings):
        terminal.tell(*cache.warnings)
        return Outcome(text, data)
    message = (
        f"{found.kept} of {found.kept + found.removed} entries of the cache in {cache_directory(config.cache_dir)} "
        "could not be removed"
        if found.kept
        else "nothing could be removed"
    )
    notes = [line for w in cache.warnings for line in (w.message, *w.notes)]
    help = "check who owns the directory and whether its medium can be written, or give another with --cache-dir"
    terminal.tell(Diagnostic("cannot-remove", message, notes=tuple(notes), help=help))
    return Outcome(text, data, ExitCode.MODEL)


def _lines(findings: Sequence[Finding]) -> Iterator[str]:
    """What is known step by step; what is not known in one line."""
    for finding in findings:
        if finding.state == "unknown":
            continue
        head = f"{finding.state:4}  {escape(finding.step)}"
        yield f"{head}  ({finding.reason})" if finding.reason else head
        # Digests are shortened; `dlc show` takes them so, and --json has them whole.
        yield from ("        " + _LONG_DIGEST.sub(r"\1…", line) for line in finding.differences)
    if unknown := [escape(f.step.partition("{")[0]) for f in findings if f.state == "unknown"]:
        yield f"not known yet: {', '.join(unknown)}"


def _seconds(counts: Counts) -> str:
    return f"{counts.ms_saved / 1000:.1f} s"


def _confirmed() -> bool:
    """Asked on a terminal only; a script has to say --yes."""
    import sys

    if not sys.stdin.isatty():
        raise error(
            "not-confirmed",
            "the cache is not cleared without confirmation",
            help="dlc cache clear --yes",
            exit_code=ExitCode.USAGE,
        )
    answer: Any = typer.confirm("Remove everything in the cache?", err=True)
    return bool(answer)
