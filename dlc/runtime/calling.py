"""What every program checks when it is called: names, shapes and dtypes of inputs, and buffers for outputs.

A program that runs here is a function of arrays. What may be passed to it, and what a refusal says, is the same for all
of them, whichever backend made it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from dlc.base.diagnostics import DlcError, ExitCode, did_you_mean, error, quote
from dlc.base.types import Array
from dlc.runtime.sizes import is_size, with_sizes

if TYPE_CHECKING:
    from dlc.api.program import Port, Signature


def named_inputs(
    ports: tuple[Port, ...], args: tuple[object, ...], inputs: Mapping[str, object]
) -> Mapping[str, object]:
    """Input name → what was given for it.

    Args:
        ports: The inputs of the program.
        args: At most one positional argument: a mapping of names, or the array of the only input.
        inputs: Arguments by name.

    Raises:
        DlcError: a name is unknown or an input is missing.
    """
    given = dict(inputs)
    if len(args) > 1:
        raise wrong(f"{len(args)} positional arguments; pass inputs by name: {_names(ports)}")
    for argument in args:
        if isinstance(argument, Mapping):
            given |= cast("Mapping[str, object]", argument)
        elif len(own := [p for p in ports if not is_size(p)]) == 1:
            given[own[0].name] = argument
        else:
            raise wrong(f"the model has {len(own)} inputs; pass them by name: {_names(ports)}")
    _check_names("input", given, ports)
    missing = [p for p in ports if p.name not in given and not is_size(p)]
    if missing:
        raise wrong(f"missing: {', '.join(f'{quote(p.name)} ({p.type.text})' for p in missing)}")
    return with_sizes(ports, given)


def in_order(ports: tuple[Port, ...], args: tuple[object, ...]) -> tuple[object, ...]:
    """Arrays in the order of several inputs as a mapping of names; other arguments as they are."""
    if len(args) < 2 or len(args) != len(ports) or any(isinstance(a, Mapping) for a in args):
        return args
    return ({p.name: a for p, a in zip(ports, args, strict=True)},)


def input_array(port: Port, value: object) -> Array:
    """A given value as a C-contiguous array of the port's exact type; copied only where it cannot be read in place.

    Raises:
        DlcError: (`wrong-argument`) of another type; (`bad-index`, `bad-label`) elements that the port does not allow.
    """
    array = cast("Array", value) if isinstance(value, np.ndarray) else _imported(port, value)
    _check_type("input", port, array)
    if port.allowed is not None:
        port.allowed.check(port.name, array)
    return np.require(array, requirements=("C", "A"))


def output_buffers(signature: Signature, out: Mapping[str, Array], read: list[Array]) -> list[Array | None]:
    """The caller's buffer for each output, None where there is none.

    The array given for an input is also a buffer for the output that may be written over it.

    Raises:
        DlcError: a buffer has the wrong name or type, cannot be written, or overlaps an input or another buffer.
    """
    ports = signature.outputs
    _check_names("output", out, ports)
    over = dict(signature.aliases)
    written: list[Array | None] = []
    for k, port in enumerate(ports):
        array = out.get(port.name)
        if port.name in out:
            _check_buffer(port, array)
            held = [a for j, a in enumerate(read) if j != over.get(k) or not _same_memory(a, cast("Array", array))]
            held += [w for w in written if w is not None]
            if any(np.may_share_memory(cast("Array", array), other) for other in held):
                raise wrong(f"output {quote(port.name)}: its buffer overlaps another one")
        written.append(array)
    return written


def _same_memory(a: Array, b: Array) -> bool:
    """Whether two C-contiguous arrays of one type begin at one address."""
    return bool(a.__array_interface__["data"][0] == b.__array_interface__["data"][0])


def wrong(message: str, help: str = "") -> DlcError:
    """An argument that the program does not take."""
    return error("wrong-argument", message, help=help, exit_code=ExitCode.USAGE)


def _names(ports: tuple[Port, ...]) -> str:
    return ", ".join(quote(p.name) for p in ports)


def _check_names(what: str, given: Mapping[str, object], ports: tuple[Port, ...]) -> None:
    known = [p.name for p in ports]
    for name in given:
        if name not in known:
            raise wrong(f"there is no {what} {quote(str(name))}", did_you_mean(str(name), known, f"{what}s"))


def _imported(port: Port, value: object) -> Array:
    if hasattr(value, "__dlpack__"):
        try:
            return np.from_dlpack(cast("Any", value))
        except (BufferError, RuntimeError, TypeError, ValueError) as problem:
            raise wrong(f"input {quote(port.name)}: its memory cannot be read here: {problem}") from None
    return np.asarray(value)


def _check_type(what: str, port: Port, array: Array) -> None:
    if array.dtype != port.type.dtype.numpy or array.shape != port.type.shape:
        found = f"{array.dtype}[{','.join(map(str, array.shape))}]"
        expected = f"{port.type.dtype.numpy}[{','.join(map(str, port.type.shape))}]"
        raise wrong(f"{what} {quote(port.name)}: expected {expected}, found {found}")


def _check_buffer(port: Port, array: object) -> None:
    if not isinstance(array, np.ndarray):
        raise wrong(f"output {quote(port.name)}: expected a numpy array, found {type(array).__name__}")
    _check_type("output", port, cast("Array", array))
    if not array.flags.c_contiguous or not array.flags.aligned or not array.flags.writeable:
        raise wrong(f"output {quote(port.name)}: its buffer must be C-contiguous, aligned and writable")
