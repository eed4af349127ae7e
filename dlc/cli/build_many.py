"""`dlc build` of several models, by processes of this computer or by workers of a cluster."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, cast

from dlc.base.diagnostics import Diagnostic, DlcError, ExitCode, Location, error, escape, of_json, to_json
from dlc.cli.build_job import build_text, interrupt_builds, source_key
from dlc.cli.options import WORDS, BuildOptions, CacheOptions
from dlc.cli.terminal import Outcome, Terminal, columns, size
from dlc.driver.executors.lane import Here, Lane, Lanes
from dlc.driver.executors.run import Done, run_all
from dlc.files.inputs import active

if TYPE_CHECKING:
    from dlc.cache import Cache
    from dlc.cli.progress import Bar
    from dlc.cli.workspace import Workspace

LOCAL = "local"


@dataclass(frozen=True)
class Many:
    """What is asked for."""

    models: Sequence[str]
    options: BuildOptions
    cache: CacheOptions
    output: Path | None
    """A directory in it for each model, or that of the only one; None: in build."""
    executor: str
    jobs: int
    more: tuple[str, ...] = ()
    """Further flags of each build."""


@dataclass
class _Model:
    """One of the models, and what became of it."""

    path: str
    output: Path
    job: str = ""
    worker: str = ""
    tries: int = 0
    began: float = 0.0
    milliseconds: float = 0.0
    document: dict[str, Any] = field(default_factory=dict[str, Any])
    """What `dlc build --json` said; {} while it has said nothing."""

    def fail(self, *diagnostics: Diagnostic, code: int = ExitCode.MODEL) -> None:
        """It cannot be built."""
        self.document = {"ok": False, "exit_code": int(code), "diagnostics": [to_json(d) for d in diagnostics]}

    @property
    def code(self) -> int:
        return int(self.document["exit_code"])


def build_many(terminal: Terminal, asked: Many) -> Outcome:
    """Build all; those that fail are told, and the others are built.

    Raises:
        DlcError: two models would be written to one directory, or the executor cannot be used.
    """
    models = [_Model(m, d) for m, d in zip(asked.models, outputs_of(asked.models, asked.output), strict=True)]
    interrupted = False
    try:
        if asked.executor == LOCAL:
            _here(terminal, asked, models)
        else:
            _there(terminal, asked, models)
    except KeyboardInterrupt:
        interrupted = True
    return _outcome(terminal, models, asked.output or Path("build"), interrupted)


def outputs_of(models: Sequence[str], output: Path | None) -> list[Path]:
    """A directory for each model: by its name, or by the directory it lies in too where two have one name.

    Raises:
        DlcError: (USAGE) that does not tell them apart.
    """
    if len(models) == 1 and output is not None:
        return [output]
    directory = output or Path("build")
    paths = [Path(m) for m in models]
    stems = [p.stem for p in paths]
    names = [s if stems.count(s) == 1 else f"{p.absolute().parent.name}-{s}" for p, s in zip(paths, stems, strict=True)]
    if twice := next((k for k, name in enumerate(names) if name in names[:k]), None):
        first = names.index(names[twice])
        raise error(
            "same-output",
            f"{models[first]} and {models[twice]} would both be written to {directory / names[twice]}",
            help="build them apart, or leave one out",
            exit_code=ExitCode.USAGE,
        )
    return [directory / name for name in names]


def _words(options: BuildOptions, cache: CacheOptions | None) -> list[str]:
    """The flags that say all this again."""
    said = [(WORDS[name][0], value) for name, value in options.asked.items()]
    if cache is not None:
        directory = str(cache.directory) if cache.directory else None
        said += [("--cache", cache.mode), ("--cache-dir", directory), ("--cache-levels", cache.levels)]
        said += [("--trust-config", cache.trust_config), ("--ops", cache.ops), ("--build-budget", cache.budget)]
    found: list[str] = []
    for flag, value in said:
        if isinstance(value, tuple):
            found += [word for text in cast("tuple[str, ...]", value) for word in (flag, text)]
        elif value is True:
            found.append(flag)
        elif value not in (None, False, "") or (flag == "--train" and value is not None):
            found += [flag, str(value)]
    return found


def _here(terminal: Terminal, asked: Many, models: Sequence[_Model]) -> None:
    """Each by a process of this computer."""
    count, each = _processes(asked.jobs, len(models))
    words = [*_words(asked.options, asked.cache), "--jobs", str(each), *asked.more]
    for m in models:
        m.job = json.dumps({"arguments": [m.path, *words, "-o", str(m.output)], "directory": str(Path.cwd())})
    own = [Here(LOCAL) for _ in range(count)]
    lanes = Lanes(own, lambda: [interrupt_builds(), *(h.close() for h in own)])
    _run(terminal, models, lanes, lambda m, done: m.document.update(json.loads(done.text)))


def _processes(jobs: int, models: int) -> tuple[int, int]:
    """(processes at a time, compilers of each)."""
    processors = jobs or os.cpu_count() or 1
    count = max(1, min(processors, models))
    return count, max(1, processors // count)


def _there(terminal: Terminal, asked: Many, models: Sequence[_Model]) -> None:
    """Each by a worker of a cluster; what it made is then installed from the cache."""
    from dlc.cli.workspace import Workspace
    from dlc.driver.executors.cluster import equal_workers, opened_cluster

    space = Workspace.open(terminal, asked.cache)
    mode = space.config.cache_mode
    if mode not in ("rw", "refresh"):
        raise error(
            "no-effect",
            f"--cache {mode}: workers leave what they build in a cache that this computer shares",
            help="leave it out",
            exit_code=ExitCode.USAGE,
        )
    cluster = opened_cluster(asked.executor)
    try:
        workers, warnings = equal_workers(cluster.workers(), asked.executor)
        terminal.tell(*warnings)
        with space.cache() as cache:
            shared = _Sharing(space, cache, asked, mode)
            for m in models:
                try:
                    m.job = shared.job(m.path)
                except DlcError as problem:
                    m.fail(*problem.diagnostics, code=problem.exit_code)
            cache.store.settle()  # a worker may ask for a file at once
        words = [*_words(asked.options, replace(asked.cache, mode=None)), "--cache", "require", *asked.more]
        count, _ = _processes(asked.jobs, len(models))
        with ThreadPoolExecutor(count) as pool:
            installing: list[Future[None]] = []

            def built(m: _Model, done: Done) -> None:
                m.document = json.loads(done.text)
                for d in m.document.get("diagnostics", ()):
                    place = d.get("location", {})
                    if place.get("source") == f"model/{Path(m.path).name}":
                        place["source"] = m.path  # where the user has what the worker got
                if m.document["ok"]:
                    installing.append(pool.submit(_install, m, [m.path, *words, "-o", str(m.output)]))

            _run(terminal, [m for m in models if not m.document], Lanes(workers), built)
            for future in installing:
                future.result()
    finally:
        cluster.close()


def _install(m: _Model, arguments: Sequence[str]) -> None:
    """Write what the cache has of a model that a worker has built."""
    found = json.loads(build_text(json.dumps({"arguments": arguments, "directory": str(Path.cwd())})))
    if found["exit_code"] == ExitCode.CACHE_MISS:
        notes = [n for d in found["diagnostics"] for n in (d["message"], *d.get("notes", ()))]
        m.fail(
            Diagnostic(
                "not-shared",
                f"worker {m.worker} has built {m.path}, and the cache of this computer does not have all of it",
                notes=tuple(notes),
                help="share a cache with the workers (--cache-levels …#rw), and give a target that does not depend on "
                "the computer: a cpu, the same compiler",
            )
        )
        return
    # What is told of the build is how it went there; here it was all hits.
    m.document = {**m.document, **{k: v for k, v in found.items() if k not in ("steps", "cache")}}


@dataclass(frozen=True)
class _Sharing:
    """Makes jobs, and gives their files to the cache."""

    space: Workspace
    cache: Cache
    asked: Many
    mode: str

    def job(self, model: str) -> str:
        """The job of a model. Raises DlcError: it cannot be read, or a file that it needs cannot be sent."""
        prepared = self.space.prepare(self.asked.options.of(model))
        root = Path(model).parent
        files = {f"model/{Path(model).name}": Path(model)}
        for companion in prepared.frontend.companions(prepared.source):
            if companion.path is not None:
                files[f"model/{_beside(companion.path, root)}"] = companion.path
        options = self.asked.options
        for text in (options.machine, options.tune, *map(str, self.space.config.op_packs)):
            files |= {_below(str(p)): p for p in _files(Path(text))} if text else {}
        if self.space.config.file is not None:
            files["dlc.toml"] = self.space.config.file
        levels = self.space.config.cache_levels.levels
        place = None if levels else self.space.config.cache_dir
        if not levels and place is None:
            from dlc.cache import cache_directory

            place = cache_directory(None)
        asked = self.asked.cache
        words = _words(options, CacheOptions(ops=asked.ops, budget=asked.budget, trust_config=self._trusted()))
        return json.dumps(
            {
                "arguments": [*words, "--jobs", "1"],
                "model": f"model/{Path(model).name}",
                "files": {name: self._given(path) for name, path in files.items()},
                "cache": {
                    "mode": self.mode,
                    "directory": str(place.absolute()) if place else "",
                    # Labels hold no credentials: a worker has its own.
                    "levels": ",".join(level.at(level.label) for level in levels),
                },
            }
        )

    def _given(self, path: Path) -> str:
        file = active().open(path)
        digest = file.digest("sha256")
        if self.cache.lookup(source_key(digest)) is None:
            self.cache.save(source_key(digest), {"file": file.view()}, {})
        return digest

    def _trusted(self) -> bool:
        from dlc.config.trust import is_trusted

        config = self.space.config
        return self.asked.cache.trust_config or (config.file is not None and is_trusted(config.file, config.text))


def _files(path: Path) -> list[Path]:
    return sorted(p for p in path.rglob("*.ops.yaml") if p.is_file()) if path.is_dir() else [path]


def _beside(path: Path, root: Path) -> str:
    """A file of a model, relative to the model's directory. Raises DlcError (USAGE)."""
    if path.is_relative_to(root):
        return path.relative_to(root).as_posix()
    raise error(
        "bad-option",
        f"{path}, which the model needs, does not lie below {root}, and cannot be sent to workers",
        help="put it beside the model",
        exit_code=ExitCode.USAGE,
    )


def _below(text: str) -> str:
    """A path as a worker has it: below the directory of the command. Raises DlcError (USAGE)."""
    path = PurePath(text)
    if path.is_absolute() and path.is_relative_to(Path.cwd()):
        path = path.relative_to(Path.cwd())
    if path.is_absolute() or ".." in path.parts:
        raise error(
            "bad-option",
            f"{text} does not lie below the current directory, and cannot be sent to workers",
            help="copy it there, and give its relative path",
            exit_code=ExitCode.USAGE,
        )
    return path.as_posix()


def _run(terminal: Terminal, models: Sequence[_Model], lanes: Lanes, use: Callable[[_Model, Done], object]) -> None:
    """Have jobs done, with a bar; an interruption ends them and is raised."""
    with terminal.bar(len(models)) as bar:
        shown = _Shown(terminal, bar, models, use)
        try:
            run_all("build", [m.job for m in models], lanes.all, shown.started, shown.done, shown.lost)
        finally:
            lanes.close()


@dataclass
class _Shown:
    """What is told while jobs are done."""

    terminal: Terminal
    bar: Bar
    models: Sequence[_Model]
    use: Callable[[_Model, Done], object]
    count: int = 0

    def started(self, number: int, lane: Lane) -> None:
        """A job begins."""
        m = self.models[number]
        m.worker, m.began = lane.name, time.perf_counter()
        self.bar.at(self.count, m.path)

    def lost(self, number: int, lane: Lane, reason: str) -> None:
        """A worker is lost with a job."""
        message = f"worker {lane.name} was lost while it built {self.models[number].path}: {reason}"
        self.terminal.tell(Diagnostic("lost-worker", message, "warning", help="another one builds it"))

    def done(self, done: Done) -> None:
        """A job is done."""
        m = self.models[done.number]
        m.tries, m.milliseconds = done.tries, round((time.perf_counter() - m.began) * 1000, 1)
        if done.failure is not None:
            reason = f"{type(done.failure).__name__}: {done.failure}"
            m.fail(Diagnostic("lost-worker", f"{m.path} was not built: {reason}"), code=ExitCode.TOOL)
        else:
            self.use(m, done)
        self.count += 1
        self.bar.at(self.count, m.path)
        if not self.terminal.quiet:
            where = "" if m.worker == LOCAL else f" on {m.worker}"
            state = "built" if m.document["ok"] else "failed"
            self.terminal.log(f"{escape(m.path)}: {state}{where} ({m.milliseconds / 1000:.1f} s)")


def _outcome(terminal: Terminal, models: Sequence[_Model], directory: Path, interrupted: bool) -> Outcome:
    told = [m for m in models if m.document]
    failed = [m for m in told if not m.document["ok"]]
    for m in told:
        diagnostics = [of_json(d) for d in m.document.get("diagnostics", ())]
        if not m.document["ok"] or not terminal.quiet:
            terminal.tell(*(d if d.location else replace(d, location=Location(m.path)) for d in diagnostics))
    rows = [(escape(m.path), _result(m)) for m in told]
    built = len(told) - len(failed)
    end = f"{built} of {len(models)} models built in {escape(str(directory))}"
    if interrupted:
        message = f"interrupted: {built} of {len(models)} models are built"
        terminal.tell(Diagnostic("interrupted", message, "warning", help="the same command continues with the others"))
    codes = {m.code for m in failed}
    code = ExitCode.INTERRUPTED if interrupted else (codes.pop() if len(codes) == 1 else int(bool(codes)))
    data = {"models": [_record(m) for m in models], "built": built, "failed": len(failed)}
    return Outcome("\n".join([columns(rows), end] if rows else [end]), data, code)


def _result(m: _Model) -> str:
    if not m.document["ok"]:
        return f"failed, exit code {m.code}"
    files, counts = m.document.get("files", ()), m.document.get("cache", {})
    total = size(sum(int(f["bytes"]) for f in files))
    return f"{escape(str(m.output))}: {len(files)} files, {total} ({counts.get('misses', 0)} steps were not cached)"


def _record(m: _Model) -> dict[str, Any]:
    document = {k: v for k, v in m.document.items() if k != "schema"} or {"ok": False, "exit_code": None}
    about = {"model": m.path, "worker": m.worker, "tries": m.tries, "job_milliseconds": m.milliseconds}
    return {**about, **document, "output": str(m.output)}
