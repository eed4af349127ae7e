"""`manifest.json`: what was built, from what, and how; the same bytes wherever and whenever the same build runs."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path, PurePath
from typing import Any

import dlc
import dlc_backend_c
from dlc.files.hashing import Content
from dlc.runtime.manifest import files_json
from dlc_backend_c.options import Options

SCHEMA = "dlc.c/1"


def public_options(options: Options) -> str:
    """The options in spec text, without what does not change the result (jobs) or names this machine (directories)."""
    options = replace(options, jobs=0, machine=PurePath(options.machine).name)
    return str(options.placeless)


def versions() -> dict[str, str]:
    """Who wrote the program."""
    return {"dlc": dlc.__version__, "dlc-backend-c": dlc_backend_c.__version__}


def read(content: Content) -> bytes:
    """The bytes of a file of an artifact."""
    return content.read_bytes() if isinstance(content, Path) else bytes(content)


def to_bytes(values: Mapping[str, Any], files: Mapping[str, Content]) -> bytes:
    """The manifest of `files` (itself left out), in ASCII."""
    return (json.dumps({**values, "files": files_json(files)}, indent=2, ensure_ascii=True) + "\n").encode("ascii")


def from_bytes(text: bytes) -> dict[str, Any]:
    """The inverse of `to_bytes`, files included."""
    return json.loads(text)
