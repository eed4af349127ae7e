"""`Compiler`: models to loaded programs inside of Python, as `dlc build` and `dlc.load` do it for files.

model → source → frontend and pipeline as resolved → the build's steps → a directory → a loaded program
"""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, cast

from dlc.api.source import Source
from dlc.config.config import Config, default_config
from dlc.driver.pipeline import resolve
from dlc.spec import Spec, parse_setting

if TYPE_CHECKING:
    from dlc.api.artifact import Artifact
    from dlc.api.frontend import Frontend
    from dlc.api.program import Program
    from dlc.base.cache_settings import CacheMode
    from dlc.cache import Cache
    from dlc.driver.session import Session
    from dlc.plugins.registry import Registry

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
    ) -> Compiler:
        """All installed plugins and the op packs in `ops`, no configuration file, and the cache in a directory.

        By default that is the user's. `trusted_keys` and `signing_key` as for `dlc.build`.
        """
        from dlc.cache import open_cache
        from dlc.cache.signing import policy_of
        from dlc.plugins.discovery import load_registry

        directory = None if cache_dir is None else Path(cache_dir)
        policy = policy_of(trusted_keys, "", None if signing_key is None else Path(signing_key))
        registry = load_registry(packs=map(Path, ops))
        return cls(registry, open_cache(directory, cache, policy=policy), jobs=jobs)

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
        from dlc.driver.build import compile_source
        from dlc.driver.special import Special, combined

        entry = self.registry.frontend_for(model)

        def read(dims: Mapping[str, int | str]) -> Frontend:
            given = {
                "dims": tuple(f"{name}:{size}" for name, size in dims.items()),
                "input": tuple(f"{name}:{'x'.join(map(str, shape)) or 'scalar'}" for name, shape in shapes.items()),
            }
            spec = Spec(entry.name)
            for key, texts in given.items():
                spec = spec.with_option(key, texts) if texts else spec
            return self.registry.frontend(with_settings(spec, settings))

        listed = [f"{name}={','.join(map(str, sizes))}" for name, sizes in specialise.items()]
        special = [Special(sizes, read({**dims, **sizes})) for sizes in combined(listed)]
        others = [text for text in settings if parse_setting(text)[0] != entry.name]
        pipeline = resolve(self.registry, self.config, target, settings=others)
        session = session_of(self.registry, self.cache, model.path or Path(), self.jobs)
        build = compile_source(model, read(dims), entry.package, pipeline, session, special=special)
        return cast("Artifact", build.last.value)

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
        from dlc.runtime.install import install
        from dlc.runtime.loading import load

        artifact = self.artifact(model, target, settings, dims=dims, shapes=shapes, specialise=specialise)
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


def session_of(registry: Registry, cache: Cache, model: Path, jobs: int = 0) -> Session:
    """A session on a model's file; `jobs` as in `Compiler`."""
    from dlc.driver.codec import Context
    from dlc.driver.session import Session
    from dlc.driver.state_text import op_classes

    context = Context(lambda: op_classes(registry), model)
    return Session(cache, context, jobs=jobs or os.cpu_count() or 1, acting=registry.acting, op_packs=registry.op_packs)


def with_settings(spec: Spec, settings: Sequence[str]) -> Spec:
    """A spec with the options that settings `name.key=value` give it; those of other names are left to others."""
    for text in settings:
        name, option, value, span = parse_setting(text)
        if name == spec.name:
            spec = spec.with_option(option, value, span)
    return spec


def build(
    model: str | Path | bytes | Source,
    target: str = "c",
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
) -> Program:
    """Compile a model and load the program, as `dlc build` and `dlc.load` do.

    Args:
        model: A model's file, its content, or a `Source`.
        target: The backend and its options, as for `--target`: "c{cpu=generic}".
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

    Returns:
        The program, loaded: called with arrays by input name, it returns arrays by output name.

    Raises:
        DlcError: the model cannot be read or built, or an option is unknown.
    """
    source = (
        Source(data=model) if isinstance(model, bytes) else model if isinstance(model, Source) else Source(Path(model))
    )
    compiler = Compiler.open(cache_dir, cache, ops=ops, trusted_keys=trusted_keys, signing_key=signing_key)
    try:
        place = None if output is None else Path(output)
        return compiler.program(source, target, settings, place, dims=dims, shapes=shapes, specialise=specialise)
    finally:
        compiler.cache.close()
