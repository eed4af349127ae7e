"""The core's own ops, passes and text format, as a plugin like any other.

Nothing is listed twice: a pass is found by its file's name (`plan_memory.py` holds `PlanMemory`, spelled
`plan-memory`), an op by being an `Op` class in a module of `dlc.ops`.
"""

import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from dlc.base.lazy import Lazy
from dlc.plugins.hookspecs import hookimpl

if TYPE_CHECKING:
    from dlc.graph import Op

_CORE = Path(__file__).parent.parent
_FAMILY = re.compile(r'^class (?P<type>\w+)\(Choice\):\n    """.*"""\n\n    name = "(?P<name>[\w-]+)"', re.MULTILINE)
"""A family of schedules, whose docstring is a line."""
_NAMED = re.compile(r'^    name: ClassVar\[str\] = "([\w-]+)"$', re.MULTILINE)


@hookimpl
def dlc_frontends() -> Iterable[Lazy]:
    """The compiler's own text."""
    return [Lazy("dlc", "dlc.driver.dlc_text:Dlc")]


@hookimpl
def dlc_backends() -> Iterable[Lazy]:
    """Executables that the user names."""
    return [Lazy("exec", "dlc.driver.exec_backend.backend:Exec")]


@hookimpl
def dlc_passes() -> Iterable[Lazy]:
    """Every file of `dlc/passes` that holds the class its name promises."""
    return _passes()


@hookimpl
def dlc_pipelines() -> Mapping[str, str]:
    """The presets of the core."""
    from dlc.passes.presets import PIPELINES

    return PIPELINES


@hookimpl
def dlc_allocators() -> Iterable[Lazy]:
    """The solver of the extra `exact`."""
    return [Lazy("cp-sat", "dlc.placement.cp_sat:CpSat")]


@hookimpl
def dlc_schedules() -> Iterable[Lazy]:
    """Every family that a file of `dlc/kernel/schedules` declares; their order is that of `FAMILIES` there."""
    return _schedules()


@hookimpl
def dlc_optimizers() -> Iterable[Lazy]:
    """Every optimizer that `dlc.training` declares."""
    return _training_parts("adam", "optimizers")


@hookimpl
def dlc_losses() -> Iterable[Lazy]:
    """Every loss that `dlc.training` declares."""
    return _training_parts("class_losses", "difference_losses", "sequence_losses", "losses")


@hookimpl
def dlc_initializers() -> Iterable[Lazy]:
    """Every initializer that `dlc.training` declares."""
    return _training_parts("initializers")


# A command asks several times, and a process may run many: what the files of this version declare stays the same.
@cache
def _passes() -> tuple[Lazy, ...]:
    found: list[Lazy] = []
    for path in sorted((_CORE / "passes").glob("*.py")):
        class_name = "".join(word.capitalize() for word in path.stem.split("_"))
        if re.search(rf"^class {class_name}\(", path.read_text(encoding="utf-8"), re.MULTILINE):
            found.append(Lazy(path.stem.replace("_", "-"), f"dlc.passes.{path.stem}:{class_name}"))
    return tuple(found)


@cache
def _schedules() -> tuple[Lazy, ...]:
    return tuple(
        Lazy(found["name"], f"dlc.kernel.schedules.{path.stem}:{found['type']}")
        for path in sorted((_CORE / "kernel" / "schedules").glob("*.py"))
        for found in _FAMILY.finditer(path.read_text(encoding="utf-8"))
    )


@cache
def _training_parts(*modules: str) -> tuple[Lazy, ...]:
    """The classes of modules of `dlc/training/step` that have a name for specs."""
    return tuple(
        Lazy(found[1], f"dlc.training.step.{module}:{text.partition('(')[0]}")
        for module in modules
        for text in (_CORE / "training" / "step" / f"{module}.py").read_text(encoding="utf-8").split("\nclass ")[1:]
        if (found := _NAMED.search(text))
    )


@hookimpl
def dlc_ops() -> "Iterable[type[Op]]":
    """Every op that a module of `dlc.ops` declares."""
    from dlc.ops.every import every_op

    return every_op().values()
