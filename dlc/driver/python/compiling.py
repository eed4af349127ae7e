"""`dlc.compile`: whatever is a model becomes something to call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from dlc.driver.program import source_of
from dlc.driver.python.building import program_of, program_of_graph
from dlc.driver.python.function import Function
from dlc.driver.python.options import Options
from dlc.graph.graph import Graph

if TYPE_CHECKING:
    from dlc.api.backend import Backend
    from dlc.base.cache_settings import CacheMode
    from dlc.spec import Spec

_NO_NAMES: Mapping[str, Any] = MappingProxyType({})


def compile(
    model: Any,
    target: str | Spec | Backend = "c",
    *,
    dims: Mapping[str, int | str] = _NO_NAMES,
    shapes: Mapping[str, Sequence[int | str]] = _NO_NAMES,
    specialise: Mapping[str, Sequence[int]] = _NO_NAMES,
    settings: Sequence[str] = (),
    pipeline: str | None = None,
    without: Sequence[str] = (),
    frontend: str = "",
    lenient: bool = False,
    machine: str | Path = "",
    math: str = "",
    tune: str | Path = "",
    output: str | Path | None = None,
    ops: Sequence[str | Path] = (),
    jobs: int = 0,
    cache: CacheMode = "rw",
    cache_dir: str | Path | None = None,
    cache_levels: Sequence[str] = (),
    trusted_keys: Sequence[str] = (),
    signing_key: str | Path | None = None,
    cache_key: str = "",
) -> Any:
    """Compile a model to something that is called with arrays; what was compiled before comes from the cache.

    Args:
        model: The path of a model's file in any format that an installed frontend reads, its content as bytes, an
            `onnx.ModelProto`, a `dlc.Graph`, a `dlc.Source`, or a function made by `@dlc.kernel`.
        target: The backend and its options, as for `--target`: "c{cpu=generic}"; or an installed backend's instance.
        dims: Sizes of the model's symbolic dimensions, or ranges, as for `--dim`: {"batch": 1, "seq": "1..128"}.
        shapes: Shapes of inputs, as for `--input`: {"x": (1, 3, 224, 224)}.
        specialise: Sizes with fast paths, as for `--specialise`: {"batch": (1, 8)}.
        settings: Options of the frontend and of passes, as for `--set`: "fuse.max-arguments=16".
        pipeline: Passes, as for `--pipeline`; by default the target's own.
        without: Passes to leave out, as for `--without`.
        frontend: The frontend that reads the model, as for `--frontend`; by default the one that recognises it.
        lenient: Read what exporters write against the format's standard, as for `--lenient`.
        machine: File that describes the machine, as for `--machine`.
        math: What floating point may do, as for `--math`: "ordered", "strict", "fast".
        tune: File of measured schedules, as for `--tune`.
        output: Directory to write the program to; by default one of its own, which goes with the object.
        ops: Op packs beside those of plugins, as for `--ops`.
        jobs: Tools that run at once; 0: as many as there are processors.
        cache: How the cache is used, as for `--cache`: "rw", "ro", "off", "require" or "refresh".
        cache_dir: Directory of the cache, by default the user's.
        cache_levels: Caches behind the directory, as for `--cache-levels`: ["https://cache.example/dlc#rw"].
        trusted_keys: Public keys, as for cache.trusted-keys; () uses all results, whoever made them.
        signing_key: File of the private key that signs results.
        cache_key: Secret text that says whose results are used, as DLC_CACHE_KEY, which the command line reads; by
            default the key in the user's state directory.

    Returns:
        A `Compiled`; of a function, the function with these options, compiled now where its annotations tell all types.

    Raises:
        DlcError: the model cannot be read or built, an option is unknown, of the wrong kind, or has no effect here.
    """
    given = locals()
    options = Options(**{f.name: given[f.name] for f in fields(Options)})
    if isinstance(model, (Function, Graph)):
        refuse_shapes(options, "a graph" if isinstance(model, Graph) else "a function")
    if isinstance(model, Function):
        found = model.with_options(options)
        found.compile_annotated()
        return found
    if isinstance(model, Graph):
        return program_of_graph(model, "graph", options)
    return program_of(source_of(model), options)


def refuse_shapes(options: Options, what: str) -> None:
    """Raises DlcError (USAGE): options that say how a file is read have no effect on what is no file."""
    from dlc.base.diagnostics import ExitCode, error

    for name in ("dims", "shapes", "specialise", "frontend", "lenient"):
        if getattr(options, name):
            raise error(
                "no-effect",
                f"{name}: {what} says itself what shapes it takes",
                help="leave it out; sizes stand in the annotations of functions, as dlc.f32['n=1..64', 8]",
                exit_code=ExitCode.USAGE,
            )
