"""Every op of the core, found by being an `Op` class in a module of this package."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pathlib import Path

from dlc.graph import Op
from dlc.graph.pointwise import Cast


@cache
def every_op() -> Mapping[str, type[Op]]:
    """The ops by the name that they have in text; all modules are imported."""
    found: dict[str, type[Op]] = {Cast.text_name: Cast}  # declared where the graph can make it
    root = Path(__file__).parent
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root.parent).with_suffix("").parts
        module = import_module(".".join(("dlc", *parts)).removesuffix(".__init__"))
        for value in vars(module).values():
            if isinstance(value, type) and issubclass(value, Op) and value.__module__ == module.__name__:
                op: type[Op] = value
                if not op.is_abstract:
                    found[op.text_name] = op
    return found
