"""`.pt2` files: a zip archive of JSON and raw tensors, read without PyTorch and without pickle.

    NAME/models/model.json                        the graph, by torch.export's schema
    NAME/data/weights/model_weights_config.json   name → file and type of each weight
    NAME/data/weights/weight_0                    bytes
    NAME/data/constants/…                         the same for constants
    NAME/data/sample_inputs/model.pt              a pickle, which is never opened

Weights that PyTorch stored as a pickle (subclasses of tensors) are refused.
"""

# pyright: basic
# JSON has no types: what is read is checked.

from __future__ import annotations

import json
import struct
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, cast

import numpy as np

from dlc.api.source import Source
from dlc.base.diagnostics import DlcError, ExitCode, Location, error
from dlc.base.types import Array, Type
from dlc_frontend_torch.schema import SCALARS

MOST_JSON: Final = 512 << 20
"""Bytes of the graph's text."""
HELP: Final = "save it again: torch.export.save(torch.export.export(module, inputs), path)"
SCHEMA: Final = 8
"""Major version of the schema that is read."""


@dataclass(frozen=True)
class Archive:
    """An opened file."""

    source: Source
    limit: int
    """Bytes that one tensor may have."""

    @classmethod
    def open(cls, source: Source, limit: int) -> Archive:
        """The archive; raises DlcError when it is none."""
        found = cls(source, limit)
        _ = found.prefix
        return found

    @cached_property
    def _zip(self) -> zipfile.ZipFile:
        try:
            return zipfile.ZipFile(self.source.stream())
        except (zipfile.BadZipFile, OSError, ValueError, struct.error) as problem:
            raise self.damaged(f"it is no zip archive: {problem}") from None

    @cached_property
    def prefix(self) -> str:
        """The directory that holds everything."""
        names = [n for n in self._zip.namelist() if n.endswith("/models/model.json")]
        if len(names) == 1:
            return names[0].removesuffix("models/model.json")
        if names:
            raise self.damaged(f"it holds {len(names)} programs")
        older = any(n.endswith("serialized_exported_program.json") for n in self._zip.namelist())
        reason = "it was saved by PyTorch before 2.8" if older else "it holds no models/model.json"
        raise self.damaged(reason)

    def read(self, name: str, most: int) -> bytes:
        """A member, of at most so many bytes."""
        try:
            info = self._zip.getinfo(self.prefix + name)
            if info.file_size > most:
                message = f"{self.source.name}: {name} has {info.file_size:,} bytes; the limit is {most:,}"
                raise error("too-large", message, location=Location(self.source.name), exit_code=ExitCode.LIMIT)
            with self._zip.open(info) as file:
                content = file.read(most + 1)
        except KeyError:
            raise self.damaged(f"{name} is missing") from None
        except (
            zipfile.BadZipFile,
            OSError,
            ValueError,
            EOFError,
            NotImplementedError,
            RuntimeError,
            struct.error,
        ) as e:
            raise self.damaged(f"{name}: {e}") from None
        if len(content) != info.file_size:
            raise self.damaged(f"{name} has {len(content)} bytes, not {info.file_size}")
        return content

    def document(self, name: str) -> dict[str, Any]:
        """A JSON member."""
        content = self.read(name, MOST_JSON)
        try:
            found = json.loads(content)
        except (ValueError, RecursionError) as problem:
            raise self.damaged(f"{name} is no JSON: {problem}") from None
        if not isinstance(found, dict):
            raise self.damaged(f"{name} holds no object")
        return cast("dict[str, Any]", found)

    @cached_property
    def model(self) -> dict[str, Any]:
        """The program's document, of a version that is read."""
        found = self.document("models/model.json")
        version = found.get("schema_version")
        major = version.get("major") if isinstance(version, dict) else None
        if major != SCHEMA:
            message = f"{self.source.name} has version {major} of torch.export's schema; version {SCHEMA} is read"
            raise error("wrong-version", message, location=Location(self.source.name), help=HELP)
        return found

    @cached_property
    def configs(self) -> Mapping[str, tuple[str, Mapping[str, Any]]]:
        """Name of a weight or constant → directory and description."""
        found: dict[str, tuple[str, Mapping[str, Any]]] = {}
        for kind in ("weights", "constants"):
            document = self.document(f"data/{kind}/model_{kind}_config.json").get("config", {})
            found |= {name: (kind, what) for name, what in document.items()}
        return found

    def tensor(self, name: str) -> Array:
        """The value of a weight, buffer or constant, by its name in the module."""
        if name not in self.configs:
            raise self.damaged(f"it holds no value of {name}")
        kind, what = self.configs[name]
        place, meta = str(what.get("path_name", "")), what.get("tensor_meta")
        if what.get("use_pickle") or not isinstance(meta, dict) or "/" in place or ".." in place:
            message = f"{self.source.name}: {name} is stored as a pickle, which is not opened: it can run any code"
            raise error(
                "unsafe-file", message, location=Location(self.source.name), help="store plain tensors: " + HELP
            )
        dtype = SCALARS.get(meta["dtype"])
        if dtype is None:
            raise self.damaged(f"{name} has an element type that dlc does not have")
        shape, strides = ([int(d["as_int"]) for d in meta[key]] for key in ("sizes", "strides"))
        offset = int(meta["storage_offset"]["as_int"])
        content = self.read(f"data/{kind}/{place}", self.limit)
        return self._strided(name, Type(dtype, tuple(shape)), strides, offset, content)

    def _strided(self, name: str, of: Type, strides: list[int], offset: int, content: bytes) -> Array:
        if any(d < 0 for d in (*of.shape, *strides, offset)):
            raise self.damaged(f"{name} has a negative size")
        flat = np.frombuffer(content, of.dtype.numpy, count=len(content) // of.dtype.itemsize)
        last = offset + sum((d - 1) * s for d, s in zip(of.shape, strides, strict=True))
        if 0 in of.shape:
            return np.zeros(of.shape, of.dtype.numpy)
        if last >= flat.size:
            raise self.damaged(f"{name} {of.text} needs {last + 1} elements, of which {flat.size} are there")
        if of.size * of.dtype.itemsize > self.limit:
            raise self.damaged(f"{name} {of.text} is larger than {self.limit:,} bytes")
        step = of.dtype.itemsize
        view = np.lib.stride_tricks.as_strided(flat[offset:], of.shape, [s * step for s in strides], writeable=False)
        return np.ascontiguousarray(view).reshape(of.shape)

    def damaged(self, reason: str) -> DlcError:
        """What is wrong with the file."""
        return error(
            "not-a-model",
            f"{self.source.name} is not a program of torch.export: {reason}",
            location=Location(self.source.name),
            help=HELP,
        )
