"""Checks of what Python code makes graphs and gradients of: what is no op would be found far from where it is given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, cast

from dlc.base.wrong_kind import wrong_kind
from dlc.graph.op import Op
from dlc.graph.structure import Input

_INPUT: Final = 'for example Input("x", Type(f32, (2, 3)))'
_OUTPUTS: Final = 'for example {"y": Relu(x)}'


def check_inputs(inputs: object) -> None:
    """Raises DlcError (USAGE): something else than a list or tuple of Inputs."""
    for k, one in enumerate(_listed("inputs", inputs, "Inputs")):
        if not isinstance(one, Input):
            raise wrong_kind(f"inputs[{k}]", one, "an Input", _INPUT)


def check_outputs(outputs: object) -> None:
    """Raises DlcError (USAGE): something else than a mapping of texts to ops."""
    if not isinstance(outputs, Mapping):
        raise wrong_kind("outputs", outputs, "a dict of names and ops", _OUTPUTS)
    for name, op in cast("Mapping[object, object]", outputs).items():
        if not isinstance(name, str):
            raise wrong_kind("the name of an output", name, "a text", _OUTPUTS)
        if not isinstance(op, Op):
            raise wrong_kind(f"outputs[{name!r}]", op, "an op", _OUTPUTS)


def check_ops(name: str, ops: object) -> None:
    """Raises DlcError (USAGE): the argument of this name is something else than a list or tuple of ops."""
    for k, one in enumerate(_listed(name, ops, "ops")):
        if not isinstance(one, Op):
            raise wrong_kind(f"{name}[{k}]", one, "an op", "for example dlc.ops.elementwise.Relu(x)")


def _listed(name: str, given: object, what: str) -> list[object]:
    if not isinstance(given, (list, tuple)):
        raise wrong_kind(name, given, f"a list of {what}", "put it into a list or tuple")
    return list(cast("list[object] | tuple[object, ...]", given))
