"""Pages of HTML in one file each: what all of them share, for light and dark, narrow and wide screens."""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

    from jinja2 import Environment

STYLE = "style.css"
"""What templates include for colours, tables and drawings."""
STYLESHEET = files("dlc") / "base" / "page.css"
"""Where it is."""


def environment(templates: Traversable | None = None) -> Environment:
    """What renders templates; values are escaped for HTML there, and names that are not given are errors.

    Args:
        templates: A directory of further texts that templates may include, by their names.
    """
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    def included(name: str) -> str | None:
        place = STYLESHEET if name == STYLE else templates and templates / name
        return place.read_text(encoding="utf-8") if place else None

    made = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=FunctionLoader(included),
    )
    made.filters["grouped"] = lambda n: f"{n:,}"
    return made
