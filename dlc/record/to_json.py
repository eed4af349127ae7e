"""A record, or a part of one, as JSON. Imports nothing: every build writes its steps so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, cast


def to_json(value: object) -> Any:
    """A declaration's instance as JSON has it: an object with a key for each field."""
    if is_dataclass(value):
        return {f.name: to_json(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, tuple | list):
        return [to_json(each) for each in cast("tuple[object, ...]", value)]
    if isinstance(value, Mapping):
        return {key: to_json(each) for key, each in cast("Mapping[str, object]", value).items()}
    return value
