"""Sizes of a call: what the symbols of a program's dimensions are, told from the arrays that it is given."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dlc.base.allowed import check_found
from dlc.base.diagnostics import ExitCode, error, quote
from dlc.base.extents import Dim, capacity, line_of, settled
from dlc.base.polynomials import Symbol
from dlc.base.types import Array, Type

if TYPE_CHECKING:
    from dlc.api.program import Port, Signature

_REMEMBERED: Final = 256
"""Combinations of sizes whose signatures are kept."""


def is_size(port: Port) -> bool:
    """Whether an input is the size of a symbol, which arrays tell."""
    return port.type.symbol is not None


def with_sizes(ports: Sequence[Port], given: Mapping[str, object]) -> Mapping[str, object]:
    """What was given, and the sizes that it implies.

    Args:
        ports: The inputs of a program.
        given: Arrays by name; sizes that are given are kept.

    Raises:
        DlcError: (`wrong-argument`) a dimension is no size that the program is built for, or no input tells a size.
    """
    found = dict(given)
    for port in ports:
        if (of := port.type.symbol) is None or port.name in found:
            continue
        size = _told(of, ports, given)
        if size is None:
            raise error(
                "wrong-argument",
                f"no dimension of an input is {of.name}",
                help=f"pass it as an input: {of.name}=numpy.int64({of.least})",
                exit_code=ExitCode.USAGE,
            )
        found[port.name] = np.asarray(size, np.int64)
    return found


def with_likely(ports: Sequence[Port], given: Mapping[str, Array]) -> dict[str, Array]:
    """What was given, with the sizes that it implies; a size that it does not tell is the likely one.

    Raises:
        DlcError: (`wrong-argument`) a dimension is no size that the program is built for.
    """
    found = dict(given)
    for port in ports:
        if (of := port.type.symbol) is not None and port.name not in found:
            size = _told(of, ports, given)
            found[port.name] = np.asarray(of.likely if size is None else size, np.int64)
    return found


def _told(of: Symbol, ports: Sequence[Port], given: Mapping[str, object]) -> int | None:
    """The size of a symbol; None where no array that is given has such a dimension."""
    for port in ports:
        shape = _shape(given[port.name]) if port.name in given else ()
        if len(shape) != len(port.type.shape):
            continue
        for k, d in enumerate(port.type.shape):
            if isinstance(d, Dim) and (line := line_of(d, of)) is not None:
                units, rest = divmod(shape[k] - line[1], line[0])
                if rest or not of.low <= units <= of.high:
                    message = f"dimension {k} of input {quote(port.name)} is {shape[k]}: {of.name} is {of.sizes}"
                    help = "build the model with other bounds: --dim NAME=LOW..HIGH"
                    raise error("wrong-argument", message, help=help, exit_code=ExitCode.USAGE)
                return units * of.unit
    return None


def _shape(value: Any) -> tuple[int, ...]:
    """Of anything that is an array or makes one."""
    found: tuple[int, ...] = np.shape(value)
    return found


def at_sizes(signature: Signature, given: Mapping[str, object]) -> Signature:
    """A signature in numbers, for the sizes that were given; itself if it has no symbols.

    Outputs whose sizes the call finds have room for the largest.
    """
    sizes = {p.type.symbol: int(np.asarray(given[p.name])) for p in signature.inputs if p.type.symbol}
    if not sizes and not any(p.type.symbol for p in signature.outputs):
        return signature
    known = signature.__dict__.setdefault("_at_sizes", {})  # frozen, but what is remembered is no part of its value
    key = tuple(sizes.values())
    if key not in known:
        if len(known) >= _REMEMBERED:
            known.clear()

        def ports(of: Sequence[Port]) -> tuple[Port, ...]:
            rooms = (tuple(capacity(settled(d, sizes)) for d in p.type.shape) for p in of)
            return tuple(
                replace(p, type=Type(p.type.dtype, room, symbol=p.type.symbol))
                for p, room in zip(of, rooms, strict=True)
            )

        known[key] = replace(signature, inputs=ports(signature.inputs), outputs=ports(signature.outputs))
    return known[key]


def check_sizes(signature: Signature, written: Sequence[Array]) -> dict[str, int]:
    """The sizes that a call found, by name. Raises DlcError (USAGE, `other-shape`): one is not within its bounds."""
    found: dict[str, int] = {}
    for p, array in zip(signature.outputs, written, strict=True):
        if (of := p.type.symbol) is not None:
            found[of.name] = int(array)
            check_found(of, int(array))
    return found


def results(signature: Signature, given: Mapping[str, object], written: Sequence[Array]) -> dict[str, Array]:
    """Output name → array, of the sizes that the call found; those sizes are no outputs of their own.

    Args:
        signature: How the program is called, in symbols.
        given: The inputs, with their sizes.
        written: What it wrote, in order.
    """
    pairs = list(zip(signature.outputs, written, strict=True))
    found = check_sizes(signature, written)
    if not found:
        return {p.name: array for p, array in pairs}
    sizes = found | {p.type.symbol.name: int(np.asarray(given[p.name])) for p in signature.inputs if p.type.symbol}
    out: dict[str, Array] = {}
    for p, array in pairs:
        if p.type.symbol is None:
            shape = p.type.at(sizes).shape
            out[p.name] = array if array.shape == shape else array.reshape(-1)[: math.prod(shape)].reshape(shape)
    return out
