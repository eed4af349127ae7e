"""Arguments and results in lists, tuples and dicts: every leaf with its path, and the same containers around others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast


def mapped(value: Any, path: str, of: Callable[[str, Any], Any]) -> Any:
    """The containers of a value around what `of` makes of each leaf and its path: `params.w`, `layers[0]`."""
    if isinstance(value, Mapping):
        pairs = cast("Mapping[Any, Any]", value).items()
        return {key: mapped(v, f"{path}.{key}" if path else str(key), of) for key, v in pairs}
    if isinstance(value, (list, tuple)):
        items = [mapped(v, f"{path}[{k}]", of) for k, v in enumerate(cast("list[Any]", value))]
        if hasattr(cast("Any", value), "_fields"):  # a named tuple
            return type(cast("Any", value))(*items)
        return items if isinstance(value, list) else tuple(items)
    return of(path, value)


def leaves(value: Any, path: str = "") -> dict[str, Any]:
    """Path → leaf."""
    found: dict[str, Any] = {}
    mapped(value, path, found.__setitem__)
    return found


def shape_of(value: Any) -> str:
    """The containers as text: what a program for a value is known by, beside its leaves."""
    if isinstance(value, Mapping):
        pairs = cast("Mapping[Any, Any]", value).items()
        return f"{{{','.join(f'{key!r}:{shape_of(v)}' for key, v in pairs)}}}"
    if isinstance(value, (list, tuple)):
        return f"{type(cast('Any', value)).__name__}({','.join(map(shape_of, cast('list[Any]', value)))})"
    return "*"
