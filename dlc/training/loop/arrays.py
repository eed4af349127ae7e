"""Arrays of a data set in .npz and .npy files: read where they lie uncompressed, unpacked only when asked for.

Data is hostile: what a header says is compared with the size of what follows before memory is taken, and nothing is
ever unpickled.
"""

from __future__ import annotations

import math
import os
import struct
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

import numpy as np

from dlc.base.diagnostics import ExitCode, Location, error, quote
from dlc.base.free_memory import free_memory
from dlc.base.types import Array
from dlc.files.array_files import named_file, readable, unreadable
from dlc.files.inputs import InputFile, active, input_stream

_LOCAL_HEADER: Final = struct.Struct("<4s22xHH")
"""Of a member of a zip file: signature, bytes of its name, bytes of its extra field."""
_HEADER_LIMIT: Final = 10_000
"""Characters of an .npy header, as numpy has it."""
_WRITER: Final = "numpy.savez(file, x=…, y=…) writes"


@dataclass(frozen=True)
class Stored:
    """An array in a file, known by its header."""

    path: Path
    member: str
    """Name inside an .npz; "" for an .npy."""
    dtype: np.dtype[np.generic]
    shape: tuple[int, ...]
    load: Callable[[], Array]
    """Finds or unpacks it. Raises DlcError."""

    @property
    def place(self) -> str:
        """`train.npz: "x"`."""
        return f"{self.path}: {quote(self.member)}" if self.member else str(self.path)


def stored_arrays(files: Sequence[str], expected: Sequence[str]) -> dict[str, Stored]:
    """Arrays by name from `file.npz` and `name=file.npy`.

    Args:
        files: As given on the command line.
        expected: Names that are asked for, for messages.

    Raises:
        DlcError: (USAGE) a file cannot be read, an array has no name or two.
    """
    found: dict[str, Stored] = {}
    for text in files:
        name, path = named_file(text)
        for member, array in _opened(name, path, expected):
            if member in found:
                raise error(
                    "duplicate-array",
                    f"{quote(member)} is given twice: {found[member].place} and {array.place}",
                    location=Location(str(path)),
                    help="leave one out",
                    exit_code=ExitCode.USAGE,
                )
            found[member] = array
    return found


def _opened(name: str, path: Path, expected: Sequence[str]) -> list[tuple[str, Stored]]:
    """(name, array) of everything in one file."""
    with readable(path, _WRITER):
        if path.suffix == ".npy" and name:
            return [(name, _npy(path))]
        if path.suffix == ".npz" and not name:
            return list(_npz(path))
    names = ", ".join(map(quote, expected))
    if path.suffix == ".npz":
        raise error(
            "bad-data",
            f"{quote(name)}={path}: an .npz names its arrays itself",
            help=f"give the file alone, with arrays named {names}, or NAME=FILE.npy for one array",
            exit_code=ExitCode.USAGE,
        )
    raise error(
        "bad-data" if path.suffix == ".npy" else "unknown-format",
        f"{path}: " + ("an .npy does not say which array it is" if path.suffix == ".npy" else "this is not a data set"),
        location=Location(str(path)),
        help=f"give FILE.npz or NAME=FILE.npy; names of the arrays: {names}",
        exit_code=ExitCode.USAGE,
    )


def _npy(path: Path) -> Stored:
    with input_stream(path) as file:
        shape, fortran, dtype = _header(file)
        offset = file.tell()
        _check_size(shape, dtype, file.seek(0, os.SEEK_END) - offset)
    return Stored(path, "", dtype, shape, lambda: _in_place(path, dtype, offset, shape, fortran))


def _npz(path: Path) -> Iterator[tuple[str, Stored]]:
    with zipfile.ZipFile(input_stream(path)) as archive:
        for info in archive.infolist():
            name = info.filename.removesuffix(".npy")
            if name == info.filename:
                continue  # numpy writes nothing else, but whatever else lies there is no array
            with archive.open(info) as file:
                shape, fortran, dtype = _header(file)
                start = file.tell()
            _check_size(shape, dtype, info.file_size - start)
            yield name, Stored(path, name, dtype, shape, _loader(path, info, start, shape, fortran, dtype))


def _loader(
    path: Path,
    info: zipfile.ZipInfo,
    start: int,
    shape: tuple[int, ...],
    fortran: bool,
    dtype: np.dtype[np.generic],
) -> Callable[[], Array]:
    """How one member is read: in place if it is stored as it is, else unpacked."""

    def in_place() -> Array:
        with readable(path, _WRITER), zipfile.ZipFile(input_stream(path)) as archive, archive.open(info) as content:
            while content.read(1 << 22):
                pass  # reaching the end has the checksum compared
        with readable(path, _WRITER), input_stream(path) as file:
            file.seek(info.header_offset)
            signature, name, extra = _LOCAL_HEADER.unpack(file.read(_LOCAL_HEADER.size))
            if signature != b"PK\3\4":
                raise unreadable(path, f"{quote(info.filename)} does not begin where the directory says", _WRITER)
            offset = info.header_offset + _LOCAL_HEADER.size + name + extra + start
            return _in_place(path, dtype, offset, shape, fortran)

    def unpacked() -> Array:
        size = math.prod(shape) * dtype.itemsize
        if size > (limit := free_memory()):
            raise error(
                "too-large",
                f"{path}: {quote(info.filename)} unpacks to {size:,} bytes, and {limit:,} are free",
                location=Location(str(path)),
                help="numpy.savez writes it uncompressed; of such files rows are read as they are needed",
                exit_code=ExitCode.LIMIT,
            )
        with readable(path, _WRITER), zipfile.ZipFile(input_stream(path)) as archive, archive.open(info) as file:
            file.read(start)
            whole = np.empty(math.prod(shape), dtype)
            content, at = whole.view(np.uint8).data, 0
            while at < size:
                part = file.read(min(size - at, 1 << 22))
                if not part:
                    raise EOFError("it ends early")
                content[at : at + len(part)] = part
                at += len(part)
            file.read(1)  # reaching the end has the checksum compared
            return whole.reshape(shape, order="F" if fortran else "C")

    plain = info.compress_type == zipfile.ZIP_STORED and not info.flag_bits & 1
    return in_place if plain else unpacked


def _header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[np.generic]]:
    """(shape, whether columns are contiguous, element type) of an .npy. Raises what `readable` is for."""
    version = np.lib.format.read_magic(file)
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    if version not in readers:
        raise ValueError(f"it is an .npy of version {version[0]}.{version[1]}, which is for records")
    shape, fortran, dtype = readers[version](file, max_header_size=_HEADER_LIMIT)
    if dtype.hasobject:
        raise ValueError("it holds Python objects, which are not loaded")
    if dtype.kind not in "fiub" or dtype.subdtype:
        raise ValueError(f"its elements are {dtype}, not numbers")
    if any(n < 0 for n in shape):
        raise ValueError(f"its shape is {shape}")
    return shape, fortran, dtype


def _check_size(shape: tuple[int, ...], dtype: np.dtype[np.generic], found: int) -> None:
    expected = math.prod(shape) * dtype.itemsize
    if expected != found:
        raise ValueError(f"{dtype}{list(shape)} takes {expected:,} bytes, but {found:,} follow its header")


def _in_place(path: Path, dtype: np.dtype[np.generic], offset: int, shape: tuple[int, ...], fortran: bool) -> Array:
    """An array where it lies: a small file is in memory, rows of a large one are read when they are asked for."""
    size = math.prod(shape) * dtype.itemsize
    if not size:
        return np.empty(shape, dtype)
    with readable(path, _WRITER):
        file = active().open(path, in_parts=True)
    if file.kept or fortran:  # a row of the latter lies in as many places as it has elements
        content = np.frombuffer(file.read(offset, size), dtype)
        return content.reshape(shape, order="F" if fortran else "C")
    rows: Any = FileRows(file, dtype, offset, shape)
    return rows


@dataclass(frozen=True)
class FileRows:
    """An array in a file of which rows are read: what data sets need of a numpy array."""

    file: InputFile
    dtype: np.dtype[np.generic]
    offset: int
    """Bytes before the first element."""
    shape: tuple[int, ...]

    @property
    def ndim(self) -> int:
        """Dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Elements."""
        return math.prod(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def reshape(self, shape: tuple[int, ...]) -> FileRows:
        """The same elements in rows of another shape."""
        return FileRows(self.file, self.dtype, self.offset, shape)

    def __getitem__(self, index: slice | Array) -> Array:
        """Rows, copied. Raises DlcError where the file changed since it was opened."""
        self.file.check()
        row = math.prod(self.shape[1:]) * self.dtype.itemsize
        slices = range(*index.indices(len(self))) if isinstance(index, slice) else range(0)
        numbers: Sequence[int] = slices if isinstance(index, slice) else index.reshape(-1).tolist()
        content = memoryview(bytearray(len(numbers) * row))
        if isinstance(index, slice) and slices.step == 1:
            self.file.read_into(content, self.offset + slices.start * row)
        else:
            for k, number in enumerate(numbers):
                self.file.read_into(content[k * row : (k + 1) * row], self.offset + number * row)
        lead = (len(numbers),) if isinstance(index, slice) else index.shape
        return np.frombuffer(content, self.dtype).reshape((*lead, *self.shape[1:]))
