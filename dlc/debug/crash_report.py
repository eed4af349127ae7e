"""What a crash report holds for programs: one line of JSON in it, enough to run the command again elsewhere.

    dlc-report: {"command": ["build", "net.onnx"], "fault": "KeyError", "model": {…}, …}

The weights of an ONNX model stay at home: its report has their shapes, and running it again fills them at random.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import platform
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import numpy as np

from dlc.base.diagnostics import DlcError, ExitCode, Location, error
from dlc.base.libraries import versions
from dlc.plugins.entry_points import entry_points
from dlc.version import __version__

MARK: Final = "dlc-report: "
"""What the line begins with, after `# ` in a `.dlc` file."""
LIBRARIES: Final = "numpy", "onnx", "onnxruntime", "protobuf"
_SMALL: Final = 16
"""Elements of an integer tensor whose values a report holds: they may be shapes."""
_MOST: Final = 1 << 28
"""Bytes of a model without its weights that are unpacked, and elements that are made up for them."""
_LARGEST: Final = 1 << 20
"""Bytes of a text, as of a kernel, that a report holds as it is."""


@dataclass(frozen=True)
class CrashReport:
    """What ran where, and how it failed."""

    command: tuple[str, ...]
    """The arguments of dlc."""
    fault: str
    """See `fault_name`."""
    dlc: str
    python: str
    platform: str
    libraries: str
    plugins: tuple[str, ...]
    model: str = ""
    """Which of the arguments is the model's file; "" where none is, or the report has a graph instead."""
    content: str = ""
    """The file, without weights: compressed, in base64; "" where its weights cannot be told apart."""

    @classmethod
    def of(cls, command: Sequence[str], bug: BaseException, model: str) -> CrashReport:
        """The report of a command that failed here; `model` as the attribute."""
        content = _content(Path(model)) if model else b""
        plugins = tuple(f"{p.distribution} {p.version}" for p in entry_points("dlc"))
        packed = base64.b64encode(zlib.compress(content, 9)).decode() if content else ""
        return cls(tuple(command), fault_name(bug), *_here(), plugins, model, packed)

    @classmethod
    def read(cls, path: Path) -> CrashReport:
        """The report in a file. Raises DlcError (USAGE): it cannot be read, or there is none in it."""
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except OSError as problem:
            raise _unreadable(path, f"cannot be read: {problem.strerror}") from None
        lines = (line.removeprefix("# ") for line in text.splitlines())
        found = next((line.removeprefix(MARK) for line in lines if line.startswith(MARK)), None)
        if found is None:
            raise _unreadable(path, "is no crash report of this version of dlc")
        try:
            data: Any = json.loads(found)
            return cls(
                command=tuple(map(str, data["command"])),
                fault=str(data["fault"]),
                dlc=str(data["dlc"]),
                python=str(data["python"]),
                platform=str(data["platform"]),
                libraries=str(data["libraries"]),
                plugins=tuple(map(str, data["plugins"])),
                model=str(data["model"]),
                content=str(data["content"]),
            )
        except (ValueError, KeyError, TypeError, AttributeError):
            raise _unreadable(path, "has a damaged report") from None

    @property
    def line(self) -> str:
        """The line in the report."""
        return MARK + json.dumps(asdict(self))

    def differences(self) -> list[str]:
        """What is another here than where it was written."""
        own = dict(zip(("dlc", "python", "platform", "libraries"), _here(), strict=True))
        found = [
            f"{key}: {getattr(self, key)} there, {now} here" for key, now in own.items() if now != getattr(self, key)
        ]
        plugins = {f"{p.distribution} {p.version}" for p in entry_points("dlc")}
        return found + [f"plugin {name} is not here" for name in self.plugins if name not in plugins]

    def model_bytes(self) -> bytes:
        """The model's file, with random weights where it had some. Raises DlcError (USAGE): it is damaged."""
        try:
            reader = zlib.decompressobj()
            content = reader.decompress(base64.b64decode(self.content, validate=True), _MOST)
        except (binascii.Error, zlib.error):
            raise _unreadable(Path(self.model), "is damaged in the report") from None
        if not reader.eof:
            raise _unreadable(Path(self.model), f"takes more than {_MOST:,} bytes in the report")
        return _filled(content) if Path(self.model).suffix.lower() == ".onnx" else content


def fault_name(bug: BaseException) -> str:
    """What two failures that are the same have in common: the code of an error, or the class of an exception."""
    return bug.diagnostics[0].code if isinstance(bug, DlcError) else type(bug).__name__


def _here() -> tuple[str, str, str, str]:
    return __version__, platform.python_version(), f"{platform.system()} {platform.machine()}", versions(LIBRARIES)


def _content(path: Path) -> bytes:
    """A model's file without weights; nothing where that cannot be told apart."""
    try:
        if path.suffix.lower() == ".onnx":
            return _emptied(path)
        content = path.read_bytes() if path.stat().st_size <= _LARGEST else b""
        content.decode("utf-8")
    # The model may be what crashed the command: a report without it is better than none.
    except Exception:  # noqa: BLE001
        return b""
    return content


def _emptied(path: Path) -> bytes:
    """A model whose large tensors have types and shapes alone."""
    library: Any = import_module("onnx")
    model = library.load(str(path), load_external_data=False)
    for tensor in _tensors(model):
        is_shape = tensor.data_type in (library.TensorProto.INT64, library.TensorProto.INT32)
        if not (is_shape and math.prod(tensor.dims) <= _SMALL):
            kept = library.TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
            tensor.CopyFrom(kept)
    return model.SerializeToString()


def _filled(content: bytes) -> bytes:
    library: Any = import_module("onnx")
    numpy_helper: Any = import_module("onnx.numpy_helper")
    model = library.load_from_string(content)
    for number, tensor in enumerate(_tensors(model)):
        size = math.prod(tensor.dims)
        if size > _MOST:
            raise _unreadable(Path(tensor.name), f"has {size:,} elements, too many to make up")
        if not size or len(tensor.ListFields()) > 3:
            continue
        generator = np.random.default_rng(number)
        dtype = library.helper.tensor_dtype_to_np_dtype(tensor.data_type)
        # Positive, as variances have to be, and of a size that products of many do not overflow.
        is_whole = dtype.kind in "iub"
        values = generator.integers(0, 2, size) if is_whole else generator.uniform(0.01, 0.1, size)
        tensor.CopyFrom(numpy_helper.from_array(values.astype(dtype).reshape(tuple(tensor.dims)), tensor.name))
    return model.SerializeToString()


def _tensors(model: Any) -> list[Any]:
    """The tensors of a model: initialisers, and those of Constant nodes."""
    held = [a.t for node in model.graph.node if node.op_type == "Constant" for a in node.attribute if a.HasField("t")]
    return [*model.graph.initializer, *held]


def _unreadable(path: Path, what: str) -> DlcError:
    return error(
        "unreadable-file",
        f"{path} {what}",
        location=Location(str(path)),
        help="give a file dlc-crash-….dlc or dlc-crash-….txt as dlc writes it",
        exit_code=ExitCode.USAGE,
    )
