"""`manifest.json`: what was built, from what, and how; the same bytes wherever and whenever the same build runs."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path, PurePath
from typing import Any, TypeAlias

import dlc
import dlc_backend_c
from dlc import Signature
from dlc_backend_c.options import Options

Content: TypeAlias = bytes | memoryview | Path
"""A file of an artifact: what it holds, or where it lies."""

NAME = "manifest.json"
SCHEMA = "dlc.c/1"
_BLOCK = 1 << 20


def public_options(options: Options) -> str:
    """The options in spec text, without what does not change the result (jobs) or names this machine (directories)."""
    return str(replace(options, jobs=0, cc=PurePath(options.cc).name))


def versions() -> dict[str, str]:
    """Who wrote the program."""
    return {"dlc": dlc.__version__, "dlc-backend-c": dlc_backend_c.__version__}


def read(content: Content) -> bytes:
    """The bytes of a file of an artifact."""
    return content.read_bytes() if isinstance(content, Path) else bytes(content)


def sha256(content: Content) -> str:
    """Of bytes or a file, in hexadecimal."""
    if not isinstance(content, Path):
        return hashlib.sha256(content).hexdigest()
    digest = hashlib.sha256()
    with content.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def size_of(content: Content) -> int:
    """Bytes."""
    return content.stat().st_size if isinstance(content, Path) else memoryview(content).nbytes


def describe(signature: Signature) -> dict[str, list[dict[str, object]]]:
    """A signature as JSON; names are the model's own, JSON escapes them."""
    return {
        direction: [{"name": p.name, "dtype": p.type.dtype.name, "shape": list(p.type.shape)} for p in ports]
        for direction, ports in (("inputs", signature.inputs), ("outputs", signature.outputs))
    }


def to_bytes(values: Mapping[str, Any], files: Mapping[str, Content]) -> bytes:
    """The manifest of `files` (itself left out), in ASCII."""
    listed = {
        name: {"bytes": size_of(content), "sha256": sha256(content)}
        for name, content in sorted(files.items())
        if name != NAME
    }
    return (json.dumps({**values, "files": listed}, indent=2, ensure_ascii=True) + "\n").encode("ascii")


def from_bytes(text: bytes) -> dict[str, Any]:
    """The inverse of `to_bytes`, files included."""
    return json.loads(text)
