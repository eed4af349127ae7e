"""`manifest.json`: the file of an installed artifact that says what it is. Reading it is how a directory is run.

A backend may write its own, with whatever it knows beside the three keys read here; for one that does not, the driver
adds the plainest form.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from dlc.diagnostics import DlcError, ExitCode, Location, error
from dlc.interfaces import Artifact, Port, Signature

NAME = "manifest.json"
_BLOCK = 1 << 20


@dataclass(frozen=True)
class Manifest:
    """What a directory holds."""

    target: str
    """Spec text of the backend that made it."""
    signature: Signature
    files: Mapping[str, int]
    """Name → bytes."""
    data: Mapping[str, Any]
    """The whole file."""


def with_manifest(artifact: Artifact) -> Artifact:
    """The artifact, with a manifest if its backend wrote none."""
    if NAME in artifact.files:
        return artifact
    ports = {
        direction: [{"name": p.name, "dtype": p.type.dtype.name, "shape": list(p.type.shape)} for p in found]
        for direction, found in (("inputs", artifact.signature.inputs), ("outputs", artifact.signature.outputs))
    }
    files = {name: _described(content) for name, content in sorted(artifact.files.items())}
    values = {
        "schema": "dlc.artifact/1",
        "target": artifact.target,
        "entry": artifact.entry,
        "signature": ports,
        "memory": dict(sorted(artifact.facts.items())),
        "files": files,
    }
    content = (json.dumps(values, indent=2) + "\n").encode("ascii")
    return replace(artifact, files={**artifact.files, NAME: content})


def read_manifest(directory: Path) -> Manifest:
    """The manifest of an installed artifact. Raises DlcError (USAGE) when the directory holds none that can be read."""
    from dlc.types import DTYPES, Type

    path = directory / NAME
    try:
        data: dict[str, Any] = json.loads(path.read_bytes())
        ports = [
            tuple(Port(p["name"], Type(DTYPES[p["dtype"]], tuple(int(n) for n in p["shape"]))) for p in found)
            for found in (data["signature"]["inputs"], data["signature"]["outputs"])
        ]
        files = {str(name): int(facts["bytes"]) for name, facts in data["files"].items()}
        return Manifest(str(data["target"]), Signature(*ports), files, data)
    except OSError as problem:
        raise _unusable(directory, f"it has no {NAME} ({problem.strerror})") from None
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        raise _unusable(directory, f"its {NAME} does not parse: {type(problem).__name__} {problem}") from None


def _described(content: bytes | memoryview | Path) -> dict[str, object]:
    if isinstance(content, Path):
        digest = hashlib.sha256()
        with content.open("rb") as file:
            while block := file.read(_BLOCK):
                digest.update(block)
        return {"bytes": content.stat().st_size, "sha256": digest.hexdigest()}
    return {"bytes": len(content), "sha256": hashlib.sha256(cast("bytes", content)).hexdigest()}


def _unusable(directory: Path, reason: str) -> DlcError:
    return error(
        "not-an-artifact",
        f"{directory} does not hold a program made by dlc: {reason}",
        location=Location(str(directory)),
        help=f"build one with: dlc build MODEL -o {directory}",
        exit_code=ExitCode.USAGE,
    )
