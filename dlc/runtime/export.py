"""A trained model in the format it came in: its template, filled by the frontend of that format."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import TYPE_CHECKING

from dlc.api.source import Source
from dlc.spec import Spec

if TYPE_CHECKING:
    from dlc.base.types import Array
    from dlc.plugins.registry import Registry


def filled(format: str, template: bytes, values: Mapping[str, Array], registry: Registry | None = None) -> bytes:
    """The content of a model file with these values of its parameters.

    Args:
        format: The suffix of the file that was built, with its dot, or the spec of a frontend.
        template: What that frontend's `template` gave.
        values: The value of every parameter that was left out, with its shape and element type, or f32 for a
            narrow float.
        registry: Frontends to choose from; the installed ones by default.

    Raises:
        DlcError: no frontend reads the format, it cannot write it, or values do not fit.
    """
    from dlc.plugins.discovery import load_registry

    found = registry or load_registry(kinds=("frontends",))
    if format.startswith("."):
        spec = Spec(found.frontend_for(Source(data=template, label=str(PurePath(f"model{format}")))).name)
    else:
        spec = Spec.parse(format, "the format")
    return found.frontend(spec).filled(template, values)
