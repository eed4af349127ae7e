"""What commands work with: configuration, registry, cache and session, put together from flags and environment.

Nothing below the command line reads the environment, so everything it may say (DLC_CACHE, DLC_CACHE_DIR,
DLC_CACHE_LEVELS, DLC_CACHE_TRUSTED_KEYS, DLC_CACHE_SIGNED_SINCE, DLC_CACHE_SIGNING_KEY) is read here, or in
`dlc.cli.credentials`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlc.api.artifact import Artifact
from dlc.api.frontend import Frontend
from dlc.api.source import Source
from dlc.base.cache_levels import NO_LEVELS
from dlc.base.cache_settings import DIRECTORY_VARIABLE, KEY_VARIABLE, LEVELS_VARIABLE
from dlc.base.diagnostics import DlcError, ExitCode, error
from dlc.cli.options import FROM_CACHE, BuildOptions, CacheOptions
from dlc.cli.progress import BuildProgress, Progress
from dlc.cli.terminal import Terminal
from dlc.cli.trusting import said_trusted
from dlc.config.config import Config, Setting
from dlc.config.file import load_config
from dlc.config.trust import is_trusted
from dlc.driver.pipeline import gradient_spec, resolve_steps
from dlc.driver.prepare import Prepared, reader, resolved, special_sizes
from dlc.plugins.discovery import KINDS, load_registry
from dlc.plugins.entry import Kind
from dlc.plugins.plugin import pip_install
from dlc.plugins.registry import Registry
from dlc.spec import parse_setting

if TYPE_CHECKING:
    from dlc.api.tuning import Record
    from dlc.cache import Cache
    from dlc.cache.signing import Policy
    from dlc.cache.step_record import StepRecord
    from dlc.driver.build import Build
    from dlc.driver.session import Running, Session
    from dlc.files.hashing import OwnedFile
    from dlc.graph.graph import Graph


@dataclass(frozen=True)
class Workspace:
    """Configuration and plugins of one command."""

    terminal: Terminal
    config: Config
    registry: Registry

    @classmethod
    def open(cls, terminal: Terminal, flags: CacheOptions | None = None, kinds: tuple[Kind, ...] = KINDS) -> Workspace:
        """From dlc.toml, the environment and flags, in rising order; plugins that do not work are reported.

        `kinds`: what plugins are asked for. To call a program takes backends alone, in half the time.
        """
        config = configuration(flags or CacheOptions())
        registry = load_registry(config.disabled, kinds, packs=config.op_packs)
        terminal.tell(*registry.problems)
        return cls(terminal, config, registry)

    @contextmanager
    def cache(self) -> Generator[Cache]:
        """See `opened_cache`."""
        with opened_cache(self.terminal, self.config) as cache:
            yield cache

    def session(self, cache: Cache, model: Path, jobs: int, on_start: Callable[[Running], None]) -> Session:
        """A session on a model's file."""
        from dlc.driver.program import session_of

        session = session_of(self.registry, cache, model, jobs)
        watch = self.registry.watcher(self.terminal.tell, str(model))
        return replace(session, observers=(watch,), on_start=on_start, budget=self.config.budget)

    def source(self, model: str) -> Source:
        """The model's file. Raises DlcError (USAGE) when there is none."""
        from dlc.driver.program import source_of

        return source_of(model)

    def reader(self, source: Source, choice: BuildOptions, *, forward: bool = False) -> tuple[Frontend, str]:
        """The frontend for a source with the shapes and options that flags give, and the package it comes from.

        Files of some formats say that they want gradients. `forward`, or a flag that says which are wanted, overrides
        them: the frontend then gives what the gradients are of.
        """
        return reader(self.registry, source, choice.choice, forward=forward)

    def graph(self, choice: BuildOptions, *, forward: bool = False) -> Graph:
        """The model's graph or that of gradients, with nothing cached: to be looked at or interpreted."""
        from dlc.api.inside import run_inside
        from dlc.base.report import Report

        source = self.source(choice.model)
        frontend, _ = self.reader(source, choice, forward=forward)
        graph = frontend.graph(source, Report())
        if not choice.by or forward:
            return graph
        own = [text for text in choice.settings if parse_setting(text)[0] == "gradient"]
        (step,) = resolve_steps(self.registry, (gradient_spec(choice.by),), settings=own)
        return run_inside(step.stage, graph, Report())

    def reference_graph(self, choice: BuildOptions) -> Graph:
        """What a build of the choice computes: the model's graph, or what its pipeline makes of it by differentiating.

        Nothing is cached: it is to be interpreted.
        """
        from dlc.api.inside import run_inside
        from dlc.base.report import Report

        prepared, report = self.prepare(choice), Report()
        state: Any = prepared.frontend.graph(prepared.source, report)
        stages = [step.stage for step in prepared.pipeline.steps]
        for stage in stages[: 1 + max((k for k, s in enumerate(stages) if s.computes_other), default=-1)]:
            state = run_inside(stage, state, report)
        return state

    def prepare(self, choice: BuildOptions) -> Prepared:
        """Everything a build needs, resolved; nothing of the model is read but what tells its format.

        With `--tune cache` it is read up to where schedules are chosen, for the digests of its kernels.
        """
        tuned = self._from_cache(choice) if choice.tune == FROM_CACHE else None
        if tuned is not None:
            choice = replace(choice, tune=str(tuned))
        source = self.source(choice.model)
        frontend, package = self.reader(source, choice)

        wanted, target = choice.choice, choice.target or self.default_target()
        try:
            pipeline = resolved(self.registry, self.config, frontend, target, wanted)
        except DlcError as problem:
            if not said_trusted(self.terminal, self.config, problem):
                raise
            trusted = load_config(Path.cwd(), self.config.file, is_trusted)
            pipeline = resolved(self.registry, trusted, frontend, target, wanted)
        special = special_sizes(self.registry, source, wanted)
        return Prepared(source, frontend, package, pipeline, special, tuned)

    def _from_cache(self, choice: BuildOptions) -> OwnedFile:
        """A file with what the cache has of the kernels of a model, as measured on this computer."""
        from dlc.api.tuning import Tuning
        from dlc.driver.kernel_graphs import before_order, kernel_graphs
        from dlc.files.hashing import OwnedFile
        from dlc.tune.kernels import kernels_of
        from dlc.tune.known import recalled

        prepared = self.prepare(replace(choice, tune=""))
        tuner = prepared.pipeline.backend.tuner()
        file = OwnedFile.create("tuned.toml")
        found: list[Record] = []
        if tuner is not None:
            last, _ = before_order(prepared.pipeline)
            with self.cache() as cache:
                kernels, _ = kernels_of(kernel_graphs(self.compile(prepared, cache, stop_after=last).steps))
                found = recalled(cache, (k.digest for k in kernels), tuner.fingerprint())
        file.write_text(Tuning(found).text, encoding="ascii")
        return file

    def default_target(self) -> str:
        """The only backend there is, or c."""
        names = self.registry.plugin_backends
        if not names:
            raise error("no-backend", "no backend is installed", help=pip_install("c"), exit_code=ExitCode.USAGE)
        if len(names) > 1 and "c" not in names:
            raise error("no-target", "which target?", help=f"--target {' | '.join(names)}", exit_code=ExitCode.USAGE)
        return "c" if "c" in names else names[0]

    def compile(
        self,
        prepared: Prepared,
        cache: Cache,
        *,
        jobs: int = 0,
        stop_after: str = "",
        on_step: Callable[[StepRecord[Any]], None] = lambda step: None,  # noqa: ARG005
        progress: Progress | None = None,
    ) -> Build:
        """Run a build with progress on the terminal, on a line of its own or that which the caller has."""
        from dlc.driver.build import compile_source

        assert prepared.source.path is not None
        with nullcontext(progress) if progress else self.terminal.progress() as line:
            shown = BuildProgress(line)

            def done(step: StepRecord[Any]) -> None:
                shown.done(step)
                on_step(step)

            session = self.session(cache, prepared.source.path, jobs, shown.at)
            return compile_source(
                prepared.source,
                prepared.frontend,
                prepared.package,
                prepared.pipeline,
                session,
                special=prepared.special,
                stop_after=stop_after,
                on_step=done,
            )

    def build_into(self, prepared: Prepared, directory: Path) -> Build:
        """Build a model into a directory, for commands that need the program and perhaps what it was made from."""
        from dlc.runtime.install import install

        with self.cache() as cache:
            build = self.compile(prepared, cache)
            artifact: Artifact = build.last.value
            install(artifact, directory)
            return build


@contextmanager
def opened_cache(
    terminal: Terminal, config: Config, *, may_be_absent: bool = False, shared: bool = True
) -> Generator[Cache]:
    """The cache, closed in the end; what is wrong with it is reported, and work goes on without.

    `shared`: with the levels behind the directory. DlcError where the file that names them is not trusted.
    """
    try:
        cache = open_configured(config, may_be_absent=may_be_absent, shared=shared)
    except DlcError as problem:
        if not said_trusted(terminal, config, problem):
            raise
        cache = open_configured(config.as_trusted, may_be_absent=may_be_absent, shared=shared)
    try:
        yield cache
    finally:
        cache.close()
        # A command that opens it twice meets the same trouble twice, perhaps for another reason.
        said = {(d.code, d.message) for d in terminal.said}
        terminal.tell(*(w for w in cache.warnings if (w.code, w.message) not in said))


def configuration(flags: CacheOptions) -> Config:
    """Defaults < dlc.toml < environment < flags."""
    config = load_config(Path.cwd(), trusts=(lambda _file, _text: True) if flags.trust_config else is_trusted)
    layers = (
        ("cache.mode", os.environ.get("DLC_CACHE"), "DLC_CACHE"),
        ("cache.dir", os.environ.get(DIRECTORY_VARIABLE), DIRECTORY_VARIABLE),
        ("cache.levels", os.environ.get(LEVELS_VARIABLE), LEVELS_VARIABLE),
        ("cache.trusted-keys", os.environ.get("DLC_CACHE_TRUSTED_KEYS"), "DLC_CACHE_TRUSTED_KEYS"),
        ("cache.signed-since", os.environ.get("DLC_CACHE_SIGNED_SINCE"), "DLC_CACHE_SIGNED_SINCE"),
        ("cache.mode", flags.mode, "--cache"),
        ("cache.dir", str(flags.directory) if flags.directory else None, "--cache-dir"),
        ("cache.levels", flags.levels, "--cache-levels"),
        ("build.budget", flags.budget and flags.budget.replace(",", " "), "--build-budget"),
    )
    for key, text, origin in layers:
        if text:
            config = config.with_flag(key, text, origin)
    if flags.ops:
        config = config.with_settings({"plugins.ops": Setting(tuple(map(Path, flags.ops)), "--ops")})
    return config


def open_configured(config: Config, *, may_be_absent: bool = False, shared: bool = False) -> Cache:
    """The cache that the configuration names; an empty one if it `may_be_absent` and nothing was ever built.

    `shared`: with the levels behind the directory.
    """
    from dlc.cache import Cache, MemoryStore, cache_directory, open_cache

    if config.cache_mode == "off":
        return open_cache(None, "off")
    policy, levels = cache_policy(config), NO_LEVELS
    if shared and (levels := config.cache_levels).levels:
        from dlc.cli.credentials import with_credentials

        levels = with_credentials(levels)
    if may_be_absent and not levels.levels and not cache_directory(config.cache_dir).exists():
        return Cache(MemoryStore(), config.cache_mode, policy=policy)
    limit = config.cache_size
    return open_cache(config.cache_dir, config.cache_mode, size_limit=limit, levels=levels, policy=policy)


def cache_policy(config: Config) -> Policy:
    """Whose results are used, by the configuration, and who signs those that are made: a private key is named by the
    user's environment only, never by a project."""
    from dlc.cache.own_key import UserKey
    from dlc.cache.signing import policy_of

    private = os.environ.get("DLC_CACHE_SIGNING_KEY")
    own = UserKey(os.environ.get(KEY_VARIABLE, ""))
    return policy_of(config.trusted_keys, config.signed_since, Path(private).expanduser() if private else None, own)
