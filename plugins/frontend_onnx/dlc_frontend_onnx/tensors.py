"""TensorProto → Tensor: element types, data in the message, in the model's file, and in other files."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path, PurePosixPath
from typing import Any, Final

import numpy as np
import onnx

from dlc.api.source import Source
from dlc.base.diagnostics import DlcError, ExitCode, Location, error
from dlc.base.extents import Dim, likely
from dlc.base.types import DTYPES as CORE_DTYPES
from dlc.base.types import DType, Type, f32, f64, i64, u32, u64
from dlc.graph import FileData, MemoryData, Tensor
from dlc.runtime.tensor_proto import ELEMENT_TYPES, listed_elements, raw_bytes, raw_elements
from dlc_frontend_onnx.unsupported import Unsupported
from dlc_frontend_onnx.wire import Place

T = onnx.TensorProto

DTYPES: Final[Mapping[int, DType]] = ELEMENT_TYPES
_TYPED_FIELD: Final[Mapping[DType, str]] = {
    f32: "float_data",
    f64: "double_data",
    i64: "int64_data",
    u32: "uint64_data",
    u64: "uint64_data",
}
"""Where values lie that are not raw; all other types share int32_data."""
HASHED_ALONE: Final = 1 << 20
"""Bytes up to which equal tensors are recognised wherever they lie."""
MAX_RANK: Final = 64
MAX_COMPUTED: Final = 1 << 24
"""Elements of a table that the reader computes from a few numbers in the model, like a range."""


def dtype_of(code: int) -> DType:
    """The element type behind an ONNX type code."""
    if code not in DTYPES:
        name = T.DataType.Name(code) if code in T.DataType.values() else str(code)  # type: ignore[arg-type]
        raise Unsupported(f"element type {name.lower()}", f"supported types: {', '.join(CORE_DTYPES)}")
    return DTYPES[code]


def code_of(dtype: DType) -> int:
    """The ONNX type code of an element type."""
    return next(code for code, known in DTYPES.items() if known == dtype)


def type_of(proto: onnx.TensorProto) -> Type:
    """Element type and shape of a tensor; raises Unsupported or DlcError."""
    dims = tuple(proto.dims)
    if len(dims) > MAX_RANK or any(d < 0 for d in dims):
        raise error("bad-tensor", f"the shape {list(dims[:MAX_RANK])} is not a shape")
    return Type(dtype_of(proto.data_type), dims)


def check_rank(rank: int) -> None:
    """Refuse a number of dimensions that no model has."""
    if rank > MAX_RANK:
        raise error("bad-shape", f"a tensor with {rank} dimensions; at most {MAX_RANK} are supported")


def check_count(count: float, what: str) -> None:
    """Refuse a table that the reader would compute itself when it is larger than any that models need."""
    if isinstance(count, Dim):
        count = likely(count)
    if not 0 <= count <= MAX_COMPUTED:
        raise error(
            "too-large",
            f"{what} would have {count:.0f} elements; tables of at most {MAX_COMPUTED} are computed",
            help="store the value as an initializer instead, if this size is meant",
            exit_code=ExitCode.LIMIT,
        )


def check_size(type: Type, limit: int, what: str, location: Location) -> None:
    """Refuse a tensor that takes more than `limit` bytes."""
    taken = type.likely_bytes
    if taken > limit:
        raise error(
            "too-large",
            f"{what} of type {type} takes {taken:,} bytes; the limit is {limit:,}",
            location=location,
            help="if this size is meant, raise the limit: --set onnx.max-tensor-bytes=64GiB",
            exit_code=ExitCode.LIMIT,
        )


def memory_tensor(proto: onnx.TensorProto) -> Tensor:
    """A tensor whose values lie in the message; raises Unsupported or DlcError when they do not match its type."""
    type = type_of(proto)
    if proto.data_location == T.EXTERNAL:
        raise Unsupported("a constant with external data in an attribute", "store it as an initializer")
    if proto.HasField("raw_data"):
        return _from_bytes(type, proto.raw_data)
    values: Any = getattr(proto, _TYPED_FIELD.get(type.dtype, "int32_data"))
    try:
        return Tensor.of(listed_elements(type, values), type.dtype)
    except (ValueError, OverflowError) as problem:
        raise error("bad-tensor", str(problem)) from None


def _from_bytes(type: Type, data: bytes | memoryview) -> Tensor:
    if len(data) != raw_bytes(type):
        raise error("bad-tensor", f"{type} takes {raw_bytes(type)} bytes, {len(data)} are stored")
    flat = raw_elements(type, data) if type.size else np.zeros(type.shape, type.dtype.numpy)
    return Tensor.stored(type, MemoryData(flat))


@dataclass(frozen=True)
class Storage:
    """Where the data of a model's initializers is."""

    source: Source
    view: memoryview
    limit: int

    def tensor(self, proto: onnx.TensorProto, place: Place | None) -> Tensor:
        """The tensor of an initializer whose raw data was cut out at `place`.

        Raises:
            DlcError: its data is missing, too short, too long, or lies where it must not.
            Unsupported: its element type is not supported.
        """
        at = Location(self.source.name, node=proto.name)
        try:
            type = type_of(proto)
            check_size(type, self.limit, f"initializer {proto.name}", at)
            if proto.data_location == T.EXTERNAL:
                return self._external(type, proto)
            if place is None:
                return memory_tensor(proto)
            if place.length != raw_bytes(type):
                raise error("bad-tensor", f"{type} takes {raw_bytes(type)} bytes, {place.length} are stored")
            if self.source.path is None or type.dtype.bits < 8:
                return _from_bytes(type, self.view[place.offset : place.offset + place.length])
            path = self.source.path
            return _in_file(type, FileData(path, "", place.offset), self.source)
        except DlcError as e:
            if e.diagnostics[0].location is not None:
                raise
            d = e.diagnostics[0]
            raise error(d.code, f"initializer {proto.name}: {d.message}", location=at, help=d.help) from None

    def _external(self, type: Type, proto: onnx.TensorProto) -> Tensor:
        entries = {e.key: e.value for e in proto.external_data}
        root, name = external_file(self.source, entries.get("location", ""), proto.name)
        offset = _count(entries.get("offset", "0"), "offset")
        file = Source(root / name)
        size = file.size
        length = _count(entries.get("length", str(max(size - offset, 0))), "length")
        if offset + length > size:
            raise error("bad-tensor", f"bytes {offset} to {offset + length} of {name}, which has {size}")
        if length != raw_bytes(type):
            raise error("bad-tensor", f"{type} takes {raw_bytes(type)} bytes, {length} are stored in {name}")
        if type.dtype.bits < 8:  # packed: no array can be mapped onto it
            return _from_bytes(type, file.part(offset, length))
        return _in_file(type, FileData(root, name, offset), file)


def _in_file(type: Type, data: FileData, file: Source) -> Tensor:
    """A tensor in a file, whose digest the key of the import needs anyway: where a large one lies in it tells its
    content without reading that once more."""
    if type.nbytes <= HASHED_ALONE:
        return Tensor.stored(type, data)
    digest = blake2b(f"{type} at {data.offset} of {file.digest}".encode(), digest_size=16).hexdigest()
    return Tensor(type, digest, data)


def _count(text: str, what: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise error("bad-tensor", f"external data with {what} {text!r}, which is not a number of bytes")
    return int(text)


def external_file(source: Source, location: str, tensor: str) -> tuple[Path, str]:
    """(directory of the model, name below it) of a file with tensor data.

    A model may name only plain files below its own directory: a path that leads elsewhere, through `..`, a link of
    either kind or an absolute name, could read any file of the user's into the program.
    """
    root = (source.path or Path()).parent
    shown = f"the data of {tensor}, {location!r},"

    def refuse(what: str, help: str) -> DlcError:
        place = Location(source.name, node=tensor)
        return error("external-data", f"{shown} {what}", location=place, help=help)

    if source.path is None:
        raise refuse("is in another file, and the model is not a file", "give the model's path")
    pure = PurePosixPath(location.replace("\\", "/"))
    if not pure.parts or "\0" in location or pure.is_absolute() or ".." in pure.parts or ":" in pure.parts[0]:
        help = "external data must lie in the model's own directory: save the model again with relative locations"
        raise refuse("is outside the model's directory", help)
    path = root
    try:
        found = os.lstat(path)
        for part in pure.parts:
            path = path / part
            found = os.lstat(path)
            if stat.S_ISLNK(found.st_mode):
                raise refuse(f"is behind a symbolic link ({path})", "copy the file instead of linking it")
        if not stat.S_ISREG(found.st_mode):
            raise refuse("is not a file", "save the model again")
        if found.st_nlink > 1:
            raise refuse("is a file with other hard links", "copy the file instead of linking it")
    except (OSError, ValueError) as problem:
        reason = getattr(problem, "strerror", None) or str(problem)
        raise refuse(f"cannot be read: {reason}", f"put {location} beside the model, as it was exported") from None
    return root, str(PurePosixPath(*pure.parts))
