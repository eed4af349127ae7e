"""`dlc cache keygen | sign | audit`: who stands for a cache's results, and whether these are what a build gives."""

from __future__ import annotations

import secrets
from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dlc.base.diagnostics import ExitCode, error, escape
from dlc.cli import flags
from dlc.cli.options import BuildOptions
from dlc.cli.terminal import Outcome, Terminal
from dlc.cli.workspace import Workspace, configuration, opened_cache

if TYPE_CHECKING:
    from dlc.cache import Cache, Record

KeyFile = Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="File to make for the private key.")]
AsIs = Annotated[
    bool,
    typer.Option(
        "--as-is",
        help="Sign without building anything again: whoever wrote the results is trusted. Has to be given.",
    ),
]
Sample = Annotated[
    str, typer.Option("--sample", metavar="SHARE", help="Share of the results that are built again, as 1%.")
]
Seed = Annotated[
    int | None,
    typer.Option("--seed", metavar="N", min=0, help="Draws the sample; by default another one each time."),
]


def keygen(output: KeyFile, json: flags.Json = False) -> Outcome:
    """Make a private key that signs results, readable by its owner only, and print the public key."""
    del json
    from dlc.cache.signing import write_key

    public = write_key(output)
    return Outcome(public, {"output": str(output), "public_key": public})


@flags.spelled
def sign(ctx: typer.Context, where: flags.CacheDirectory, as_is: AsIs = False, json: flags.Json = False) -> Outcome:
    """Sign the unsigned results that the cache has, with the key of DLC_CACHE_SIGNING_KEY.

    Nothing is built: their content may be anybody's. dlc build --cache refresh builds results anew and signs them.
    """
    del json
    if not as_is:
        raise error(
            "not-confirmed",
            "results are signed as they are only if the flag --as-is says so",
            help="dlc build MODEL --cache refresh builds and signs; or dlc cache audit MODEL before, then --as-is",
            exit_code=ExitCode.USAGE,
        )
    terminal: Terminal = ctx.obj
    config = configuration(replace(where, mode="rw"))
    with opened_cache(terminal, config, may_be_absent=True, shared=False) as cache:
        if cache.policy.signer is None:
            raise error(
                "no-key",
                "there is no key to sign with",
                help="give the path of a file of `dlc cache keygen` in DLC_CACHE_SIGNING_KEY",
                exit_code=ExitCode.USAGE,
            )
        done = _sign_all(terminal, cache)
    lines = [f"{done['signed']} results signed by {cache.policy.signer.public}"]
    lines += [f"{done['before']} were signed before"] * bool(done["before"])
    lines += [f"{done['lacking']} left out: files of theirs are gone or damaged"] * bool(done["lacking"])
    return Outcome("\n".join(lines), {"public_key": cache.policy.signer.public, **done})


def _sign_all(terminal: Terminal, cache: Cache) -> dict[str, int]:
    """Sign what is unsigned and whole; how many results were signed, were so before, and lack something."""
    from dlc.cache.files import STEP as FILE_STEP
    from dlc.cache.upkeep import records

    done = Counter(signed=0, before=0, lacking=0)
    # What is known of this machine's files is left out: it is not what somebody built.
    found: list[Record] = [
        r for e, r in records(cache.store) if e.digest == r.key.digest and r.key.step_name != FILE_STEP
    ]
    with terminal.progress() as progress:
        for number, record in enumerate(found):
            progress.at(record.key.step_name, "sign", number, len(found))
            if record.signature is not None:
                done["before"] += 1
            elif not all(cache.store.check(digest) for _, digest in record.outputs):
                done["lacking"] += 1
            else:
                cache.store.put(record.key.digest, cache.policy.signed(record).to_bytes(), "record")
                done["signed"] += 1
    return dict(done)


@flags.spelled
def audit(
    ctx: typer.Context,
    model: flags.Model,
    options: BuildOptions,
    cache: flags.ReadCache,
    sample: Sample = "100%",
    seed: Seed = None,
    jobs: flags.Jobs = 0,
    json: flags.Json = False,
) -> Outcome:
    """Build a sample of the results again that the cache has of a model, and compare the bytes.

    Takes the flags of build. Exit code 3 if a result differs: it was not made by this build. Nothing is written.
    """
    del json
    from dlc.cli.rebuild import request
    from dlc.driver.audit import audit_request, audited

    terminal: Terminal = ctx.obj
    share = _share(sample)
    seed = secrets.randbelow(1 << 32) if seed is None else seed
    space = Workspace.open(terminal, replace(cache, mode="ro"))
    chosen = options.of(model)
    prepared = space.prepare(chosen)
    with opened_cache(terminal, space.config, may_be_absent=True) as opened:
        build, found = audited(opened, lambda watched: space.compile(prepared, watched, jobs=jobs), share, seed)
        asked = opened.peek(request(opened, space.config, space.registry, chosen).digest)
        audit_request(found, asked, build.steps)
    if not found.met:
        raise error(
            "cache-miss",
            f"the cache has no results of {model} that could be compared",
            notes=[f"{found.absent} results are absent, or not trusted"],
            help="build the model with this cache first, with the same flags",
            exit_code=ExitCode.CACHE_MISS,
        )
    head = f"{found.rebuilt} of {found.met} results built again (--seed {seed}): "
    lines = [head + (f"{len(found.differences)} differ" if found.differences else "all equal")]
    lines += [f"  {d.key}  {escape(d.step)}: {', '.join(map(escape, d.parts))}" for d in found.differences]
    lines += [f"{found.absent} are absent, or not trusted"] * bool(found.absent)
    data = {
        "seed": seed,
        "results": found.met,
        "rebuilt": found.rebuilt,
        "absent": found.absent,
        "differences": [asdict(d) for d in found.differences],
    }
    return Outcome("\n".join(lines), data, ExitCode.MISMATCH if found.differences else ExitCode.OK)


def _share(text: str) -> float:
    """0 to 1 of `1%`."""
    try:
        share = float(text.removesuffix("%")) / 100 if text.endswith("%") else -1.0
    except ValueError:
        share = -1.0
    if not 0 < share <= 1:
        raise error(
            "bad-option", f"--sample {text}: a share above 0% up to 100% is needed", help="1%", exit_code=ExitCode.USAGE
        )
    return share
