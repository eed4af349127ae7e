"""`Compiler`: models to loaded programs inside of Python, as `dlc build` and `dlc.load` do it for files.

model → source → frontend and pipeline as resolved → the build's steps → a directory → a loaded program
"""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, cast

from dlc.api.source import Source
from dlc.base.diagnostics import ExitCode, error
from dlc.config.config import Config, default_config
from dlc.driver import arguments
from dlc.driver.prepare import Choice, Prepared, reader, resolved, special_sizes

if TYPE_CHECKING:
    from dlc.api.artifact import Artifact
    from dlc.api.backend import Backend
    from dlc.api.program import Program
    from dlc.base.cache_settings import CacheMode
    from dlc.cache import Cache
    from dlc.cache.step_record import StepRecord
    from dlc.driver.build import Build
    from dlc.driver.session import Session
    from dlc.plugins.registry import Registry
    from dlc.spec import Spec

_NONE: Final[Mapping[str, Any]] = MappingProxyType({})


@dataclass(frozen=True)
class Compiler:
    """Plugins, configuration and cache with which models are compiled."""

    registry: Registry
    cache: Cache
    config: Config = field(default_factory=default_config)
    jobs: int = 0
    """Tools that run at once; 0: as many as there are processors."""

    @classmethod
    def open(
        cls,
        cache_dir: str | Path | None = None,
        cache: CacheMode = "rw",
        *,
        jobs: int = 0,
        ops: Sequence[str | Path] = (),
        trusted_keys: Sequence[str] = (),
        signing_key: str | Path | None = None,
        cache_key: str = "",
        levels: Sequence[str] = (),
    ) -> Compiler:
        """All installed plugins and the op packs in `ops`, no configuration file, and the cache in a directory.

        By default that is the user's. `trusted_keys`, `signing_key`, `cache_key` and `levels` as for `dlc.compile`.
        """
        from dlc.base.cache_levels import Levels, parse_levels
        from dlc.cache import open_cache
        from dlc.cache.own_key import UserKey
        from dlc.cache.signing import policy_of
        from dlc.plugins.discovery import load_registry

        directory = None if cache_dir is None else Path(cache_dir)
        policy = policy_of(trusted_keys, "", None if signing_key is None else Path(signing_key), UserKey(cache_key))
        registry = load_registry(packs=map(Path, ops))
        try:
            behind = Levels(parse_levels(levels))
        except ValueError as problem:
            raise error("bad-option", f"cache_levels: {problem}", exit_code=ExitCode.USAGE) from None
        return cls(registry, open_cache(directory, cache, levels=behind, policy=policy), jobs=jobs)

    def artifact(
        self,
        model: Source,
        target: str = "c",
        settings: Sequence[str] = (),
        *,
        dims: Mapping[str, int | str] = _NONE,
        shapes: Mapping[str, Sequence[int]] = _NONE,
        specialise: Mapping[str, Sequence[int]] = _NONE,
    ) -> Artifact:
        """What `dlc build` would write for the model. Raises DlcError as it does.

        Args:
            model: The model.
            target: The backend and its options, as for `--target`.
            settings: Options of the frontend and of passes, as for `--set`: "onnx.max-nodes=1000000".
            dims: Sizes of the model's symbolic dimensions, or ranges, as for `--dim`.
            shapes: Shapes of inputs, as for `--input`.
            specialise: Sizes with fast paths, as for `--specialise`.
        """
        choice = choice_of(target, settings, dims=dims, shapes=shapes, specialise=specialise)
        return cast("Artifact", self.build(self.prepare(model, choice)).last.value)

    def prepare(self, model: Source, choice: Choice) -> Prepared:
        """Frontend and pipeline for a model, resolved. Raises DlcError as the commands do."""
        frontend, package = reader(self.registry, model, choice)
        pipeline = resolved(self.registry, self.config, frontend, choice.target or "c", choice)
        return Prepared(model, frontend, package, pipeline, special_sizes(self.registry, model, choice))

    def build(self, prepared: Prepared, on_step: Callable[[StepRecord[Any]], None] | None = None) -> Build:
        """All steps of a build; `on_step` is told each as it comes."""
        from dlc.driver.build import compile_source

        session = session_of(self.registry, self.cache, prepared.source.path or Path(), self.jobs)
        session = replace(session, budget=self.config.budget)
        return compile_source(
            prepared.source,
            prepared.frontend,
            prepared.package,
            prepared.pipeline,
            session,
            special=prepared.special,
            on_step=on_step,
        )

    def loaded(self, artifact: Artifact, output: Path | None = None) -> Program:
        """A program installed into a directory, by default one that goes with it, and loaded."""
        from dlc.runtime.install import install
        from dlc.runtime.loading import load

        if output is not None:
            install(artifact, output)
            return load(output, self.registry)
        directory = Path(tempfile.mkdtemp(prefix="dlc-"))
        remove = partial(shutil.rmtree, directory, ignore_errors=True)
        try:
            install(artifact, directory)
            found: Any = load(directory, self.registry)
        except BaseException:
            remove()
            raise
        weakref.finalize(found, remove)
        return found

    def program(
        self,
        model: Source,
        target: str = "c",
        settings: Sequence[str] = (),
        output: Path | None = None,
        *,
        dims: Mapping[str, int | str] = _NONE,
        shapes: Mapping[str, Sequence[int]] = _NONE,
        specialise: Mapping[str, Sequence[int]] = _NONE,
    ) -> Program:
        """The program of a model, loaded.

        Args:
            model: See `artifact`, as for what is not explained here.
            target: See there.
            settings: See there.
            dims: See there.
            shapes: See there.
            specialise: See there.
            output: Directory to write the program to; by default one that goes with the program.
        """
        artifact = self.artifact(model, target, settings, dims=dims, shapes=shapes, specialise=specialise)
        return self.loaded(artifact, output)


def choice_of(
    target: str,
    settings: Sequence[str] = (),
    *,
    dims: Mapping[str, int | str] = _NONE,
    shapes: Mapping[str, Sequence[int | str]] = _NONE,
    specialise: Mapping[str, Sequence[int]] = _NONE,
) -> Choice:
    """What Python values say of a build, as flags would say it."""
    return Choice(
        target,
        dims=tuple(f"{name}={size}" for name, size in dims.items()),
        inputs=tuple(f"{name}:{'x'.join(map(str, shape)) or 'scalar'}" for name, shape in shapes.items()),
        special=tuple(f"{name}={','.join(map(str, sizes))}" for name, sizes in specialise.items()),
        settings=tuple(settings),
    )


def session_of(registry: Registry, cache: Cache, model: Path, jobs: int = 0) -> Session:
    """A session on a model's file; `jobs` as in `Compiler`."""
    from dlc.driver.codec import Context
    from dlc.driver.session import Session
    from dlc.driver.state_text import op_classes

    context = Context(lambda: op_classes(registry), model)
    return Session(cache, context, jobs=jobs or os.cpu_count() or 1, acting=registry.acting, op_packs=registry.op_packs)


def build(
    model: str | Path | bytes | Source,
    target: str | Spec | Backend = "c",
    *,
    output: str | Path | None = None,
    dims: Mapping[str, int | str] = _NONE,
    shapes: Mapping[str, Sequence[int]] = _NONE,
    specialise: Mapping[str, Sequence[int]] = _NONE,
    settings: Sequence[str] = (),
    ops: Sequence[str | Path] = (),
    cache_dir: str | Path | None = None,
    cache: CacheMode = "rw",
    trusted_keys: Sequence[str] = (),
    signing_key: str | Path | None = None,
    cache_key: str = "",
) -> Program:
    """Compile a model and load the program, as `dlc build` and `dlc.load` do.

    Args:
        model: A model's file, its content, or a `Source`.
        target: The backend and its options, as for `--target`: "c{cpu=generic}"; or an installed backend's instance.
        output: Directory to write the program to; by default a temporary one that goes with the program.
        dims: Sizes of the model's symbolic dimensions, or ranges, as for `--dim`: {"batch": 1, "seq": "1..128"}.
        shapes: Shapes of inputs, as for `--input`: {"x": (1, 3, 224, 224)}.
        specialise: Sizes with fast paths, as for `--specialise`: {"batch": (1, 8)}.
        settings: Options of the frontend and of passes, as for `--set`: "fuse.max-arguments=16".
        ops: Op packs beside those of plugins, as for `--ops`: files or directories.
        cache_dir: Directory of the cache, by default the user's.
        cache: How the cache is used, as for `--cache`.
        trusted_keys: Public keys, as for cache.trusted-keys; () uses all results, whoever made them.
        signing_key: File of the private key that signs results, as for DLC_CACHE_SIGNING_KEY.
        cache_key: Secret text that says whose results are used, as DLC_CACHE_KEY, which only the command line reads.

    Returns:
        The program, loaded: called with arrays by input name, it returns arrays by output name.

    Raises:
        DlcError: the model cannot be read or built, or an argument is of the wrong kind or not known.
    """
    arguments.check(**{name: value for name, value in locals().items() if name != "model"})
    keys: dict[str, Any] = {"trusted_keys": trusted_keys, "signing_key": signing_key, "cache_key": cache_key}
    compiler = Compiler.open(cache_dir, cache, ops=ops, **keys)
    try:
        place = None if output is None else Path(output)
        said = arguments.target_text(target, compiler.registry)
        return compiler.program(
            source_of(model), said, settings, place, dims=dims, shapes=shapes, specialise=specialise
        )
    finally:
        compiler.cache.close()


def source_of(model: Any) -> Source:
    """A model's file, its content, or an ONNX model as the package onnx has it, as a source.

    Raises:
        DlcError: (USAGE) it is none of these, or there is no such file.
    """
    from dlc.runtime import manifest

    if isinstance(model, Source):
        return model
    if isinstance(model, (bytes, bytearray, memoryview)):
        return Source(data=bytes(cast("bytes", model)))
    if callable(content := getattr(model, "SerializeToString", None)):
        return Source(data=cast("bytes", content()), label="model.onnx")
    if not isinstance(model, (str, os.PathLike)):
        from dlc.base.wrong_kind import described

        raise error(
            "no-model",
            f"{described(model)} is no model's file",
            help="give the path of a model's file, its content as bytes, or an onnx.ModelProto; dlc.compile also takes "
            "a dlc.Graph, or a function made by @dlc.kernel",
            exit_code=ExitCode.USAGE,
        )
    path = Path(cast("str", model))
    if (path / manifest.NAME).is_file():
        raise error(
            "built-already",
            f"{path} is not a model but a program",
            help="use dlc run, train, verify or show; dlc build needs the model that it was built from",
            exit_code=ExitCode.USAGE,
        )
    if not path.is_file():
        what = "is a directory" if path.is_dir() else "is not a file" if path.exists() else "does not exist"
        raise error("no-such-file", f"{path} {what}", help="give the file of a model", exit_code=ExitCode.USAGE)
    return Source(path)
