"""Inputs of a program: read from files, or random from a seed; and outputs written to a file."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

import numpy as np

from dlc.api.program import Port
from dlc.base.diagnostics import ExitCode, Location, did_you_mean, error, quote
from dlc.base.types import Array, Type, dtype_of_numpy
from dlc.files.array_files import named_file, readable
from dlc.runtime.sizes import is_size
from dlc.runtime.tensor_proto import read_tensor

_NUMBERED = re.compile(r"arr_\d+")


def random_feeds(ports: Sequence[Port], seed: int) -> dict[str, Array]:
    """An array for every port, the same for equal seeds: standard normal floats, integers of all that the port allows.

    Integers that may be anything, and booleans, are 0 and 1: a model may choose by them in a way that no port tells.
    """
    generator = np.random.default_rng(seed)
    found: dict[str, Array] = {}
    for port in ports:
        found[port.name] = _random(port, generator)
    return found


def _random(port: Port, generator: np.random.Generator) -> Array:
    of = port.type
    if port.allowed is not None:
        return port.allowed.draw(generator, of)
    values = generator.standard_normal(of.shape) if of.dtype.is_float else generator.integers(0, 2, of.shape)
    unsigned = of.dtype.format is not None and not of.dtype.format.signed
    return np.asarray(np.abs(values) if unsigned else values).astype(of.dtype.numpy)


def read_feeds(files: Sequence[str], ports: Sequence[Port], what: str = "input") -> dict[str, Array]:
    """Arrays by port name from `name=file`, `file.npy`, `file.npz` and `file.pb`; not necessarily for every port.

    An .npz names its arrays, except for arr_0, arr_1, …, which numpy writes for arrays without names. An array without
    a name takes the one that its .pb holds if a port is called so, else the first port that has no file yet. Raises
    DlcError (USAGE) for names, types and shapes that do not fit, and for elements that are not allowed.
    """
    ports = [port for port in ports if not is_size(port)]
    known = {port.name: port for port in ports}
    found: dict[str, Array] = {}
    unnamed: list[tuple[str, Array]] = []
    for text in files:
        name, path = named_file(text)
        for held, array in _read(path):
            if name or held in known or (path.suffix == ".npz" and not _NUMBERED.fullmatch(held)):
                _add(found, name or held, array, str(path), known, what)
            else:
                unnamed.append((str(path), array))
    free = [port.name for port in ports if port.name not in found]
    if len(unnamed) > len(free):
        raise error(
            f"too-many-{what}s",
            f"{len(found) + len(unnamed)} arrays for {len(ports)} {what}{'s' * (len(ports) != 1)}",
            help=f"{what}s: {', '.join(f'{quote(p.name)} {p.type.text}' for p in ports) or 'none'}",
            exit_code=ExitCode.USAGE,
        )
    for name, (path, array) in zip(free, unnamed, strict=False):
        _add(found, name, array, path, known, what)
    return found


def write_arrays(path: Path, arrays: Mapping[str, Array]) -> None:
    """Write an .npz, whole or not at all. Raises DlcError when it cannot be written."""
    import io

    from dlc.files.writing import write_whole

    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, array in arrays.items():
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w") as file:
                np.lib.format.write_array(file, _as_bytes(np.asarray(array)), allow_pickle=False)
    write_whole(path, content.getvalue())


def _as_bytes(array: Array) -> Array:
    """Elements of a type that numpy does not have as bytes without one: no file of numpy's names it."""
    return array.view(f"V{array.dtype.itemsize}") if array.dtype.isbuiltin == 2 else array


def _read(path: Path) -> list[tuple[str, Array]]:
    """(name or "", array) of everything in one file."""
    with readable(path, "numpy.save and numpy.savez write"):
        match path.suffix:
            case ".npy":
                with path.open("rb") as file:
                    return [("", _read_npy(file))]
            case ".npz":
                return list(_read_npz(path))
            case ".pb":
                return [read_tensor(path.read_bytes())]
            case _:
                pass
    raise error(
        "unknown-format",
        f"{path}: arrays are read from .npy, .npz and .pb files",
        location=Location(str(path)),
        help="numpy.save(path, array) writes an .npy",
        exit_code=ExitCode.USAGE,
    )


def _read_npy(file: IO[bytes]) -> Array:
    """Without numpy's own `load`, which takes whatever is no array for a pickle."""
    return np.lib.format.read_array(file, allow_pickle=False)


def _read_npz(path: Path) -> Iterator[tuple[str, Array]]:
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            with archive.open(name) as file:
                yield name.removesuffix(".npy"), _read_npy(file)


def _add(found: dict[str, Array], name: str, array: Array, path: str, known: Mapping[str, Port], what: str) -> None:
    if name not in known:
        raise error(
            f"unknown-{what}",
            f"{path}: there is no {what} {quote(name)}",
            help=did_you_mean(name, known, f"{what}s"),
            exit_code=ExitCode.USAGE,
        )
    wanted = known[name].type
    if wanted.dtype.library and array.dtype == np.dtype(f"V{wanted.dtype.itemsize}"):  # as numpy stores what it lacks
        array = array.view(wanted.dtype.numpy)
    # Which sizes symbols have is only known when all arrays are there; the call compares them.
    shape = array.shape if wanted.is_open and len(array.shape) == wanted.rank else wanted.shape
    if array.dtype != wanted.dtype.numpy or array.shape != shape:
        raise error(
            f"wrong-{what}",
            f"{what} {quote(name)} is {wanted.text}, but {path} holds {type_text(array)}",
            location=Location(path),
            help=_remedy(array, wanted),
            exit_code=ExitCode.USAGE,
        )
    if (allowed := known[name].allowed) is not None:
        allowed.check(name, array, Location(path))
    found[name] = np.ascontiguousarray(array).reshape(shape)


def type_text(array: Array) -> str:
    """`f32[1,3]`, as types of ports are written."""
    name = dtype_of_numpy(array.dtype) or array.dtype
    return f"{name}[{','.join(map(str, array.shape))}]"


def _remedy(array: Array, wanted: Type) -> str:
    """What would make the array fit."""
    if array.shape == wanted.shape:
        to = f"ml_dtypes.{wanted.dtype.library}" if wanted.dtype.library else repr(str(wanted.dtype.numpy))
        return f"convert it with numpy: array.astype({to})"
    if array.size == wanted.size:
        return f"it has as many elements: reshape it to {list(wanted.shape)}"
    return "a program has the shapes it was built with; dlc build takes others with --dim and --input"
