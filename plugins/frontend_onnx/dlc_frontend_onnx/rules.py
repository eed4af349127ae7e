"""Import rules: one function per ONNX operator and range of versions, marked where it is written, found here.

    @onnx("Conv", since=1)
    def conv(node: Node) -> Op: ...

A rule serves all versions from `since` up to the next rule of the same operator. It reads operands and attributes from
its `Node` and returns the op, or a tuple with one op per output.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Final, TypeVar

from dlc.graph import Op

if TYPE_CHECKING:
    from dlc_frontend_onnx.node import Node

Result = Op | Sequence[Op | None]
Function = Callable[["Node"], Result]
F = TypeVar("F", bound=Callable[..., Result])

MODULES: Final = (
    *("math", "activation", "nn", "loss", "recurrent", "reduce", "shape"),
    *("make", "affine", "index", "resize", "quantize", "control", "training", "derivatives", "random", "image"),
    *("signal", "text", "sequence", "trees", "unique", "detection", "linear_models", "vector_machines", "preparation"),
)
"""Modules of `dlc_frontend_onnx.ops` that hold rules."""
OLDEST: Final = 6
"""Oldest version of the ONNX operator set that is read: before, shapes and types were attributes of another form."""
MICROSOFT: Final = "com.microsoft"
"""Domain of onnxruntime's own operators."""


@dataclass(frozen=True)
class ImportRule:
    """How nodes of one operator are imported."""

    operator: str
    since: int
    domain: str
    function: Function


def onnx(*operators: str, since: int = 1, domain: str = "") -> Callable[[F], F]:
    """Mark a function as the rule of these operators from version `since` on."""

    def mark(function: F) -> F:
        marks: list[tuple[str, int, str]] = getattr(function, "onnx_rules", [])
        function.onnx_rules = [*marks, *((name, since, domain) for name in operators)]  # type: ignore[attr-defined]
        return function

    return mark


def rules_of(module: ModuleType) -> list[ImportRule]:
    """The rules that a module's functions are marked as."""
    return [
        ImportRule(operator, since, domain, function)
        for function in vars(module).values()
        for operator, since, domain in getattr(function, "onnx_rules", ())
    ]


@cache
def table() -> dict[tuple[str, str], tuple[ImportRule, ...]]:
    """(domain, operator) → its rules, newest first."""
    found: dict[tuple[str, str], list[ImportRule]] = {}
    for name in MODULES:
        for rule in rules_of(import_module(f"dlc_frontend_onnx.ops.{name}")):
            found.setdefault((rule.domain, rule.operator), []).append(rule)
    return {key: tuple(sorted(rules, key=lambda r: -r.since)) for key, rules in found.items()}


def find(domain: str, operator: str, version: int) -> ImportRule | None:
    """The rule for an operator in a version of its domain, or None."""
    return next((r for r in table().get((domain, operator), ()) if r.since <= version), None)


def support() -> list[tuple[str, str, tuple[int, ...]]]:
    """(domain, operator, first version of each rule) of everything that has a rule: the table `dlc list onnx` shows."""
    return [(domain, name, tuple(sorted(r.since for r in rules))) for (domain, name), rules in sorted(table().items())]
