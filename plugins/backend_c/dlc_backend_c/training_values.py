"""Values in the memory of a training program: what it starts with, which labels there are, what is not finite."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from dlc.api.training import Bundle, Place
from dlc.base.types import Array, DType
from dlc.graph import Tensor
from dlc_backend_c.header import CPort
from dlc_backend_c.spelling import STORAGE, literal

# Unsigned type, bits of the exponent, and a quiet NaN of each float type.
_FLOATS: Mapping[str, tuple[str, str, str]] = {
    "f16": ("uint16_t", "0x7c00u", "0x7e00u"),
    "f32": ("uint32_t", "0x7f800000u", "0x7fc00000u"),
    "f64": ("uint64_t", "((uint64_t)0x7ff00000u << 32)", "((uint64_t)0x7ff80000u << 32)"),
}


def constant_value(initial: Tensor | bool | float | None) -> Array | None:
    """The one element that a tensor starts with everywhere (its type is numpy's guess unless it was a tensor's), or
    None where elements differ."""
    if initial is None:
        return np.asarray(0)
    if not isinstance(initial, Tensor):
        return np.asarray(initial)
    flat = initial.array().reshape(-1)
    if not flat.size:
        return np.zeros((), flat.dtype)
    bits = flat.view(f"u{flat.itemsize}")
    # Most tensors that differ do so at once: no reason to read gigabytes.
    return flat[0] if bits[0] == bits[-1] and bool(np.all(bits == bits[0])) else None


def initial_lines(place: Place, offsets: Mapping[Place, int]) -> list[str]:
    """Statements that write what a tensor starts with, into zeroed memory."""
    at, count, dtype = f"{place.region} + {place.offset}", place.type.size, place.type.dtype
    if place in offsets and dtype.per_byte > 1:
        count, bits, each = place.type.size, dtype.bits, dtype.per_byte
        element = f"w[{offsets[place]} + i / {each}] >> i % {each} * {bits} & {(1 << bits) - 1}"
        loop = f"for (i = 0; i < {count}; i++) ({at})[i] = (unsigned char)({element});"
        return ["    {", "        size_t i;", f"        {loop}", "    }"]
    if place in offsets:
        return [f"    memcpy({at}, w + {offsets[place]}, {place.type.nbytes});"]
    value = constant_value(place.initial)
    assert value is not None, place
    exact = value.astype(dtype.numpy)
    if not count or not exact.view(f"u{dtype.itemsize}"):
        return []
    storage = STORAGE[dtype]
    return [
        "    {",
        f"        {storage} *const to = ({storage} *)(void *)({at});",
        "        size_t i;",
        f"        for (i = 0; i < {count}; i++) {{",
        f"            to[i] = {_element(exact, dtype)};",
        "        }",
        "    }",
    ]


def _element(value: Array, dtype: DType) -> str:
    return f"{int(value.view(f'u{dtype.itemsize}'))}u" if dtype.narrow else literal(value.item(), dtype)


def not_finite(prefix: str, loss: CPort) -> str:
    """A condition on a number among the outputs."""
    return f"!{prefix}_finite_{_name(loss)}((const unsigned char *)outputs[{loss.index}], 1)"


def not_a_number(place: Place | None) -> list[str]:
    """Statements, inside of a block, that make the first element of a tensor NaN."""
    if place is None:
        return []
    unsigned, _, nan = _FLOATS[place.type.dtype.name]
    return [
        f"        const {unsigned} nan = {nan};",
        f"        memcpy({place.region} + {place.offset}, &nan, sizeof nan);",
    ]


def value_functions(prefix: str, bundle: Bundle, loss: CPort) -> list[str]:
    """Definitions of the functions that the others are made of."""
    gradients = [g for g in bundle.regions["gradients"] if g.type.size] if "update" in bundle.functions else []
    kinds = dict.fromkeys((_name(loss), *(g.type.dtype.name for g in gradients)))
    lines = [line for kind in kinds for line in _finite(prefix, kind)]
    if "update" in bundle.functions:
        lines += _all_finite(prefix, gradients)
    return lines


def _name(port: CPort) -> str:
    return port.type.partition("[")[0]


def _finite(prefix: str, kind: str) -> list[str]:
    """By bits, which no option of a compiler makes it forget."""
    unsigned, exponent, _ = _FLOATS[kind]
    return [
        f"static int {prefix}_finite_{kind}(const unsigned char *at, size_t count)",
        "{",
        f"    {unsigned} bits;",
        "    size_t i;",
        "    int found = 0;",
        "",
        "    for (i = 0; i < count; i++) {",
        "        memcpy(&bits, at + i * sizeof bits, sizeof bits);",
        f"        found |= (bits & {exponent}) == {exponent};",
        "    }",
        "    return !found;",
        "}",
        "",
    ]


def _all_finite(prefix: str, gradients: Sequence[Place]) -> list[str]:
    calls = [f"{prefix}_finite_{g.type.dtype}(gradients + {g.offset}, {g.type.size})" for g in gradients]
    return [
        f"static int {prefix}_gradients_are_finite(const unsigned char *gradients)",
        "{",
        *([] if calls else ["    (void)gradients;"]),
        f"    return {f'{chr(10)}        && '.join(calls) or '1'};",
        "}",
        "",
    ]
