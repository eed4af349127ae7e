"""`manifest.json`: the file of an installed artifact that says what it is. Reading it is how a directory is run.

A backend may write its own, with whatever it knows beside the three keys read here; for one that does not, the driver
adds the plainest form.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dlc.api.artifact import Artifact
from dlc.api.program import Port, Signature
from dlc.base.diagnostics import DlcError, ExitCode, Location, error
from dlc.base.extents import Dim
from dlc.files.hashing import Content, content_sha256, content_size

NAME = "manifest.json"


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
    values = {
        "schema": "dlc.artifact/1",
        "target": artifact.target,
        "entry": artifact.entry,
        "signature": signature_json(artifact.signature),
        "memory": dict(sorted(artifact.facts.items())),
        "files": files_json(artifact.files),
    }
    content = (json.dumps(values, indent=2) + "\n").encode("ascii")
    return replace(artifact, files={**artifact.files, NAME: content})


def signature_json(signature: Signature) -> dict[str, list[object]]:
    """A signature as `read_manifest` reads it; names are the model's own, JSON escapes them."""
    ports: dict[str, list[object]] = {
        direction: [port_json(p) for p in ports]
        for direction, ports in (("inputs", signature.inputs), ("outputs", signature.outputs))
    }
    return {**ports, **({"aliases": [list(pair) for pair in signature.aliases]} if signature.aliases else {})}


def port_json(port: Port) -> dict[str, object]:
    """An input or output as `port_of_json` reads it."""
    more: dict[str, object] = {"allowed": port.allowed.json} if port.allowed else {}
    more |= {"labels": list(port.labels)} if port.labels else {}
    of = port.type
    shape = [str(d) if isinstance(d, Dim) else d for d in of.shape]
    size = {"size": str(of.symbol)} if of.symbol else {}
    return {"name": port.name, "dtype": of.dtype.name, "shape": shape, **size, **more}


def port_of_json(value: Mapping[str, Any]) -> Port:
    """The inverse of `port_json`; raises what wrong types raise."""
    from dlc.base.allowed import Allowed
    from dlc.base.extent_text import parse
    from dlc.base.extents import is_open
    from dlc.base.types import DTYPES, Type, parse_dims

    dtype = DTYPES[value["dtype"]]
    if "size" in value:
        of = Type(dtype, *parse_dims(f"={value['size']}"))
    else:
        shape = tuple(parse(n) if isinstance(n, str) else int(n) for n in value["shape"])
        of = Type(dtype, shape, is_open(shape))
    allowed = Allowed.of_json(value["allowed"]) if "allowed" in value else None
    if allowed is not None and not allowed.fits(of):
        raise ValueError(f"{of} cannot be restricted to {allowed.text}")
    return Port(str(value["name"]), of, allowed, tuple(map(str, value.get("labels", ()))))


def files_json(files: Mapping[str, Content]) -> dict[str, dict[str, object]]:
    """Size and digest of every file but the manifest itself, in order of their names."""
    return {
        name: {"bytes": content_size(content), "sha256": content_sha256(content)}
        for name, content in sorted(files.items())
        if name != NAME
    }


def read_manifest(directory: Path) -> Manifest:
    """The manifest of an installed artifact. Raises DlcError (USAGE) when the directory holds none that can be read."""
    path = directory / NAME
    try:
        data: dict[str, Any] = json.loads(path.read_bytes())
        inputs, outputs = (
            tuple(map(port_of_json, found)) for found in (data["signature"]["inputs"], data["signature"]["outputs"])
        )
        aliases = tuple((int(i), int(j)) for i, j in data["signature"].get("aliases", ()))
        files = {str(name): int(facts["bytes"]) for name, facts in data["files"].items()}
        return Manifest(str(data["target"]), Signature(inputs, outputs, aliases), files, data)
    except OSError as problem:
        raise _unusable(directory, f"it has no {NAME} ({problem.strerror})") from None
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        raise _unusable(directory, f"its {NAME} does not parse: {type(problem).__name__} {problem}") from None


def _unusable(directory: Path, reason: str) -> DlcError:
    return error(
        "not-an-artifact",
        f"{directory} does not hold a program made by dlc: {reason}",
        location=Location(str(directory)),
        help=f"build one with: dlc build MODEL -o {directory}",
        exit_code=ExitCode.USAGE,
    )
