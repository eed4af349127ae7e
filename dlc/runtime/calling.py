"""What every program checks when it is called: names, shapes and dtypes of inputs, and buffers for outputs.

A program that runs here is a function of arrays. What may be passed to it, and what a refusal says, is the same for all
of them, whichever backend made it.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

import numpy as np

from dlc.base.diagnostics import DlcError, ExitCode, did_you_mean, error, quote
from dlc.base.types import Array
from dlc.runtime.dlpack import is_foreign, lent
from dlc.runtime.sizes import is_size, with_sizes

if TYPE_CHECKING:
    from dlc.api.program import Port, Signature


@dataclass
class Copied:
    """Inputs that a program had to copy, because they could not be read where they were."""

    arrays: int = 0
    """How many."""
    bytes: int = 0
    """Of all of them."""
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def add(self, array: Array) -> None:
        """One more."""
        with self._lock:
            self.arrays += 1
            self.bytes += array.nbytes


def named_inputs(
    ports: tuple[Port, ...], args: tuple[object, ...], inputs: Mapping[str, object]
) -> Mapping[str, object]:
    """Input name → what was given for it.

    Args:
        ports: The inputs of the program.
        args: Arrays of the first inputs, in order, or one mapping of names.
        inputs: Arguments by name.

    Raises:
        DlcError: a name is unknown or given twice, or an input is missing.
    """
    own = [p for p in ports if not is_size(p)]
    if len(args) == 1 and isinstance(args[0], Mapping):
        given = {**inputs, **cast("Mapping[str, object]", args[0])}
    elif len(args) > len(own):
        raise wrong(f"{len(args)} positional arguments; the program has {len(own)} inputs: {_names(own)}")
    else:
        given = {p.name: argument for p, argument in zip(own, args, strict=False)}
        if twice := [name for name in given if name in inputs]:
            raise wrong(f"input {quote(twice[0])} is given twice: by its place and by its name")
        given |= inputs
    _check_names("input", given, ports)
    missing = [p for p in ports if p.name not in given and not is_size(p)]
    if missing:
        raise wrong(f"missing: {', '.join(f'{quote(p.name)} ({p.type.text})' for p in missing)}")
    return with_sizes(ports, given)


def input_array(port: Port, value: object, copied: Copied | None = None) -> Array:
    """A given value as a C-contiguous array of the port's exact type; copied only where it cannot be read in place.

    `copied` counts what was.

    Raises:
        DlcError: (`wrong-argument`) of another type; (`bad-index`, `bad-label`) elements that the port does not allow.
    """
    array = as_array("input", port.name, value)
    _check_type("input", port, array)
    if port.allowed is not None:
        port.allowed.check(port.name, array)
    read = np.require(array, requirements=("C", "A"))
    if copied is not None and (read is not array or _made(array, value)):
        copied.add(read)
    return read


def as_array(what: str, name: str, value: object, *, to_write: bool = False) -> Array:
    """A given value as an array: over the same memory, if it is one or anything with `__dlpack__`.

    Raises:
        DlcError: (`wrong-argument`) its memory cannot be reached, or is not what is written to.
    """
    if isinstance(value, np.ndarray):
        return cast("Array", value)
    try:
        if is_foreign(value):
            return lent(value, to_write=to_write)
        if not to_write:
            return np.asarray(value)
    except (BufferError, ValueError, TypeError, OverflowError) as problem:
        raise wrong(f"{what} {quote(name)}: its memory cannot be used here: {problem}") from None
    raise wrong(
        f"{what} {quote(name)}: expected a numpy array, found {type(value).__name__}",
        "results are written into numpy arrays, or into tensors with __dlpack__",
    )


def _made(array: Array, value: object) -> bool:
    """Whether an array holds numbers of its own that were read out of a list, say."""
    return array is not value and array.base is None and not is_foreign(value)


def output_buffers(signature: Signature, out: Mapping[str, object], read: list[Array]) -> list[Array | None]:
    """The caller's buffer for each output, None where there is none; what is no array lends its memory by `__dlpack__`.

    The array given for an input is also a buffer for the output that may be written over it.

    Raises:
        DlcError: a buffer has the wrong name or type, cannot be written, or overlaps an input or another buffer.
    """
    ports = signature.outputs
    _check_names("output", out, ports)
    over = dict(signature.aliases)
    written: list[Array | None] = []
    for k, port in enumerate(ports):
        array: Array | None = None
        if port.name in out:
            array = _buffer(port, out[port.name])
            held = [a for j, a in enumerate(read) if j != over.get(k) or not _same_memory(a, array)]
            held += [w for w in written if w is not None]
            if any(np.may_share_memory(array, other) for other in held):
                raise wrong(f"output {quote(port.name)}: its buffer overlaps another one")
        written.append(array)
    return written


def _same_memory(a: Array, b: Array) -> bool:
    """Whether two C-contiguous arrays of one type begin at one address."""
    return bool(a.__array_interface__["data"][0] == b.__array_interface__["data"][0])


def wrong(message: str, help: str = "") -> DlcError:
    """An argument that the program does not take."""
    return error("wrong-argument", message, help=help, exit_code=ExitCode.USAGE)


def _names(ports: Sequence[Port]) -> str:
    return ", ".join(quote(p.name) for p in ports)


def _check_names(what: str, given: Mapping[str, object], ports: tuple[Port, ...]) -> None:
    known = [p.name for p in ports]
    for name in given:
        if name not in known:
            raise wrong(f"there is no {what} {quote(str(name))}", did_you_mean(str(name), known, f"{what}s"))


def _check_type(what: str, port: Port, array: Array) -> None:
    wanted = port.type.dtype.numpy
    if array.dtype == wanted and array.shape == port.type.shape:
        return
    found = f"{array.dtype}[{','.join(map(str, array.shape))}]"
    expected = f"{wanted}[{','.join(map(str, port.type.shape))}]"
    help = f"give an array of shape {port.type.shape}, or build the model for other shapes"
    if array.dtype != wanted:
        help = f"convert it to {wanted}: numpy.asarray(x, {str(wanted)!r})"
    raise wrong(f"{what} {quote(port.name)}: expected {expected}, found {found}", help)


def _buffer(port: Port, given: object) -> Array:
    array = as_array("output", port.name, given, to_write=True)
    _check_type("output", port, array)
    flags = array.flags
    has = {"C-contiguous": flags.c_contiguous, "aligned": flags.aligned, "writable": flags.writeable}
    if lacking := [word for word, there in has.items() if not there]:
        raise wrong(
            f"output {quote(port.name)}: its buffer must be C-contiguous, aligned and writable; "
            f"it is not {' nor '.join(lacking)}",
            f"pass numpy.empty({port.type.shape}, {str(port.type.dtype.numpy)!r}), or leave it out",
        )
    return array
