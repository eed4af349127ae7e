"""Memory of other libraries as numpy arrays over it, by DLPack (dmlc.github.io/dlpack): nothing is copied.

Numpy reads the element types that it has itself. For the narrow floats of dlc, which other libraries have too, the
capsule is read here: it stays alive, unconsumed, for as long as an array over its memory does.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

import numpy as np

from dlc.base.types import DTYPES, Array

_HOST: Final = frozenset({1, 3, 11, 13})
"""Kinds of devices whose memory the processor reads: CPU, pinned for CUDA and ROCm, and managed by CUDA."""
_DEVICES: Final[Mapping[int, str]] = {
    2: "CUDA",
    4: "OpenCL",
    7: "Vulkan",
    8: "Metal",
    9: "VPI",
    10: "ROCm",
    12: "an extension device",
    14: "oneAPI",
    15: "WebGPU",
    16: "Hexagon",
}
_NARROW: Final[Mapping[tuple[int, int], str]] = {
    (4, 16): "bf16",
    (10, 8): "f8e4m3fn",
    (11, 8): "f8e4m3fnuz",
    (12, 8): "f8e5m2",
    (13, 8): "f8e5m2fnuz",
    (14, 8): "f8e8m0",
}
"""(code, bits) of DLPack → the element type: those that numpy's own reader does not know."""
_READ_ONLY: Final = 1


class _Device(ctypes.Structure):
    _fields_ = (("kind", ctypes.c_int32), ("number", ctypes.c_int32))


class _ElementType(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", _Device),
        ("rank", ctypes.c_int32),
        ("dtype", _ElementType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Versioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


class _Lent:
    """Memory of a capsule, which lives as long as this does; numpy keeps it as the base of its array."""

    def __init__(self, capsule: object, interface: Mapping[str, Any]) -> None:
        self._capsule = capsule
        self.__array_interface__ = interface


def is_foreign(value: object) -> bool:
    """Whether an object is another library's, which lends its memory."""
    return not isinstance(value, np.ndarray) and hasattr(value, "__dlpack__")


def lent(value: Any, *, to_write: bool = False) -> Array:
    """An array over the memory of a tensor.

    Args:
        value: An object with `__dlpack__` and `__dlpack_device__`.
        to_write: What is written into the array has to be in the tensor: a library that would copy refuses.

    Raises:
        BufferError: its memory cannot be reached from here, or the library does not lend it; why, and what to do.
    """
    kind, number = value.__dlpack_device__()
    if kind not in _HOST:
        device = _DEVICES.get(int(kind), f"device type {int(kind)}")
        raise BufferError(f"it lies on {device} {int(number)}; copy it to the CPU first")
    try:
        return _read(value, to_write)
    except RuntimeError as problem:
        if "dtype" not in str(problem):
            raise BufferError(str(problem)) from None
    except (TypeError, ValueError) as problem:
        raise BufferError(str(problem)) from None
    return _narrow(value, to_write)


def _read(value: Any, to_write: bool) -> Array:
    """What numpy makes of a tensor."""
    if to_write:
        with suppress(TypeError):  # a library from before version 1.0, which takes no options, and copies nothing
            return np.from_dlpack(value, copy=False)
    return np.from_dlpack(value)


def _narrow(value: Any, to_write: bool) -> Array:
    """The same for a tensor of a type that numpy does not read."""
    options: dict[str, Any] = {"copy": False} if to_write else {}
    try:
        capsule = value.__dlpack__(max_version=(1, 0), **options)
    except TypeError:
        capsule = value.__dlpack__()
    found, read_only = _opened(capsule)
    key = (found.dtype.code, found.dtype.bits)
    if key not in _NARROW or found.dtype.lanes != 1:
        raise BufferError(f"its elements (DLPack type {key[0]} of {key[1]} bits) are none that dlc has")
    of = DTYPES[_NARROW[key]]
    shape = tuple(found.shape[k] for k in range(found.rank))
    strides = tuple(found.strides[k] * of.itemsize for k in range(found.rank)) if found.strides else None
    # Without elements there may be no memory, and numpy takes no address 0.
    address = (found.data or 0) + found.byte_offset
    if not address or 0 in shape:
        return np.empty(shape, of.numpy)
    bits = f"<u{of.itemsize}"
    interface = {"version": 3, "typestr": bits, "shape": shape, "strides": strides, "data": (address, read_only)}
    return np.asarray(_Lent(capsule, interface)).view(of.numpy)


def _opened(capsule: object) -> tuple[_Tensor, bool]:
    """(what a capsule tells of its tensor, whether that may only be read)."""
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    try:
        versioned = _Versioned.from_address(pointer(capsule, b"dltensor_versioned"))
    except ValueError:
        return _Tensor.from_address(pointer(capsule, b"dltensor")), False
    if versioned.major != 1:
        raise BufferError(f"it is lent by version {versioned.major} of DLPack; dlc reads version 1")
    return versioned.tensor, bool(versioned.flags & _READ_ONLY)
