"""What Python code says of a build, checked before anything starts: values of the wrong kind end where they are given.

`check` knows every argument of `dlc.build` and `dlc.compile`; `target_text` is what `--target` would be.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from numbers import Integral
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast, get_args

from dlc.base.cache_settings import CacheMode
from dlc.base.diagnostics import ExitCode, error
from dlc.base.wrong_kind import wrong_kind
from dlc.spec import Spec

if TYPE_CHECKING:
    from dlc.api.backend import Backend
    from dlc.plugins.registry import Registry


class _Takes(NamedTuple):
    """What an argument may be."""

    fits: Callable[[object], bool]
    what: str
    """In words: "a list of texts"."""
    example: str


def check(**given: object) -> None:
    """Look at arguments of `dlc.build` or `dlc.compile`, by their names.

    Raises:
        DlcError: (USAGE) one is of the wrong kind; its name, what it takes, and an example.
    """
    for name, value in given.items():
        takes = _TAKES[name]
        if not takes.fits(value):
            raise wrong_kind(name, value, takes.what, f"for example {name}={takes.example}")


def target_text(target: str | Spec | Backend, registry: Registry) -> str:
    """A target as `--target` takes it.

    Args:
        target: That text itself; or a spec; or an instance of an installed backend, of which its options count.
        registry: The installed backends.

    Raises:
        DlcError: (USAGE) the backend is not the installed one of its name: programs could not be loaded again, nor
            results be found in the cache.
    """
    from dlc.api.backend import Backend

    if not isinstance(target, Backend):
        return str(target or "")  # None, too, is the default
    installed: type[Any] | None = None
    if target.name in registry.backends:
        installed = registry.find("backends", Spec(target.name)).load()
    # Not `is`: the registry makes subclasses that know more machines.
    if installed is None or _place(type(target)) != _place(installed):
        message = f"target: the backend {target.name} ({'.'.join(_place(type(target)))}) is not installed"
        if installed:
            message += f"; the one of this name is {'.'.join(_place(installed))}"
        help = "offer it in a package by the hook dlc_backends: dlc plugins new backend NAME writes one"
        raise error("unknown-target", message, help=help, exit_code=ExitCode.USAGE)
    return target.brief


def _place(kind: type) -> tuple[str, str]:
    return kind.__module__, kind.__qualname__


_MODES: Final[tuple[str, ...]] = get_args(CacheMode)


def _is_target(value: object) -> bool:
    from dlc.api.backend import Backend

    return value is None or isinstance(value, (str, Spec, Backend))


def _is_path(value: object) -> bool:
    return isinstance(value, (str, os.PathLike))


def _is_size(value: object) -> bool:
    return not isinstance(value, bool) and isinstance(value, Integral)


def _is_count(value: object) -> bool:
    return _is_size(value) and cast("int", value) >= 0


def _is_size_or_text(value: object) -> bool:
    return isinstance(value, str) or _is_size(value)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_switch(value: object) -> bool:
    return isinstance(value, bool)


def _is_mode(value: object) -> bool:
    return value in _MODES


def _maybe(fits: Callable[[object], bool]) -> Callable[[object], bool]:
    """Whether it fits, or is None."""
    return lambda value: value is None or fits(value)


def _list_of(fits: Callable[[object], bool]) -> Callable[[object], bool]:
    """Whether it is a list, tuple or set of what fits. A single text is a list of characters, which nobody means."""

    def found(value: object) -> bool:
        if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Collection):
            return False
        return all(map(fits, cast("Collection[object]", value)))

    return found


def _by_name(fits: Callable[[object], bool]) -> Callable[[object], bool]:
    def found(value: object) -> bool:
        if not isinstance(value, Mapping):
            return False
        return all(isinstance(k, str) and fits(v) for k, v in cast("Mapping[object, object]", value).items())

    return found


_TAKES: Final[Mapping[str, _Takes]] = {
    "target": _Takes(
        _is_target,
        "the name of a backend with its options, a Spec, or an installed backend's instance",
        '"c{cpu=generic}"',
    ),
    "dims": _Takes(
        _by_name(_is_size_or_text), "a dict of names and sizes or ranges", '{"batch": 1, "length": "1..128"}'
    ),
    "shapes": _Takes(_by_name(_list_of(_is_size_or_text)), "a dict of names and shapes", '{"x": (1, 3, 224, 224)}'),
    "specialise": _Takes(_by_name(_list_of(_is_size)), "a dict of names and lists of sizes", '{"batch": (1, 8)}'),
    "settings": _Takes(_list_of(_is_text), "a list of texts", '["fuse.max-arguments=16"]'),
    "pipeline": _Takes(_maybe(_is_text), "a text", '"infer"'),
    "without": _Takes(_list_of(_is_text), "a list of names of passes", '["winograd"]'),
    "frontend": _Takes(_is_text, "the name of a frontend with its options", '"onnx"'),
    "lenient": _Takes(_is_switch, "True or False", "True"),
    "machine": _Takes(_is_path, "the path of a file", '"machine.toml"'),
    "math": _Takes(_is_text, "a text", '"ordered"'),
    "tune": _Takes(_is_path, "the path of a file", '"schedules.json"'),
    "output": _Takes(_maybe(_is_path), "the path of a directory", '"build/model"'),
    "ops": _Takes(_list_of(_is_path), "a list of paths of op packs", '["vision.ops.yaml"]'),
    "jobs": _Takes(_is_count, "a number of processes, 0 for all processors", "4"),
    "cache": _Takes(_is_mode, f"one of {', '.join(map(repr, _MODES))}", '"off"'),
    "cache_dir": _Takes(_maybe(_is_path), "the path of a directory", '"cache"'),
    "cache_levels": _Takes(_list_of(_is_text), "a list of texts", '["https://cache.example/dlc"]'),
    "trusted_keys": _Takes(_list_of(_is_text), "a list of texts", '["ed25519:…"]'),
    "signing_key": _Takes(_maybe(_is_path), "the path of a file", '"key"'),
    "cache_key": _Takes(_is_text, "a text", 'os.environ.get("DLC_CACHE_KEY", "")'),
}
