"""The one table of operators: ATen's name → the function that makes ops of dlc of a call.

    @aten("relu")                      all overloads
    @aten("sum.dim_IntList", "mean.dim")   these overloads

A rule takes the call's arguments as ATen declares them, tensors as ops, and gives an op, or several where the operator
has several results. What only says where a result lives (device, layout, memory format) is dropped before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any, Final

Rule = Callable[..., Any]

MODULES: Final = (
    "elementwise",
    "activation",
    "sizes",
    "make",
    "shape",
    "index",
    "reduce",
    "linear",
    "nn",
    "pool",
    "recurrent",
    "backward",
)
"""Modules of `dlc_frontend_torch.ops`."""

DROPPED: Final = frozenset({"device", "layout", "pin_memory", "non_blocking", "memory_format", "out_dtype"})
"""Keywords that change no value."""

_TABLE: dict[str, Rule] = {}


def aten(*names: str) -> Callable[[Rule], Rule]:
    """Declare the rule of operators, "relu" or "add.Tensor"."""

    def declare(rule: Rule) -> Rule:
        for name in names:
            if name in _TABLE:
                raise AssertionError(f"{name} has two rules")
            _TABLE[name] = rule
        return rule

    return declare


def table() -> Mapping[str, Rule]:
    """All rules by name."""
    for module in MODULES:
        import_module(f"dlc_frontend_torch.ops.{module}")
    return _TABLE


def rule_of(target: str) -> Rule | None:
    """The rule of "aten.add.Tensor": that of the overload, or else of all overloads; None without one."""
    rules = table()
    namespace, _, name = target.partition(".")
    if namespace == "_operator" or namespace == "math" or namespace == "torch":
        return rules.get(target)
    if namespace != "aten":
        return None
    return rules.get(name) or rules.get(name.partition(".")[0])


def supported() -> Iterable[tuple[str, str]]:
    """(operator, overloads) of the table, for listings."""
    found: dict[str, list[str]] = {}
    for name in table():
        base, _, overload = name.partition(".")
        if not name.startswith(("_operator.", "math.", "torch.")):
            found.setdefault(base, []).append(overload)
    for base, overloads in sorted(found.items()):
        yield f"aten.{base}", "all overloads" if "" in overloads else ", ".join(sorted(overloads))
