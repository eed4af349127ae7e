"""Requests and what is found, as the JSON that travels to workers and back."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from dlc.api.tuning import Fingerprint, Record
from dlc.base.types import Array
from dlc.kernel.text import parse_kernel, print_kernel
from dlc.tune.kernels import ProgramKernel
from dlc.tune.place import Failed, Request, Tuned, tune_here


def request_text(request: Request) -> str:
    """A request as text."""
    k = request.kernel
    kernel = {
        "digest": k.digest,
        "nodes": k.nodes,
        "calls": k.calls,
        "kernel": print_kernel(k.kernel),
        "graph": k.graph,
        "tensors": {digest: _base64(content) for digest, content in k.tensors.items()},
        "fixed": {name: [a.dtype.str, a.shape, _base64(a.tobytes())] for name, a in k.fixed.items()},
        "warm": k.warm,
        "cold": k.cold,
    }
    rest = {name: getattr(request, name) for name in ("backend", "pipeline", "most", "seed", "seconds", "version")}
    return json.dumps({"kernel": kernel, **rest})


def request_of(text: str) -> Request:
    """The inverse of `request_text`; raises what wrong types raise, DlcError for a kernel that is none."""
    values = json.loads(text)
    k = values.pop("kernel")
    kernel = ProgramKernel(
        str(k["digest"]),
        tuple(map(str, k["nodes"])),
        int(k["calls"]),
        parse_kernel(k["kernel"], "a kernel to be tuned"),
        str(k["graph"]),
        {str(digest): b64decode(content) for digest, content in k["tensors"].items()},
        {str(name): _array(*a) for name, a in k["fixed"].items()},
        tuple(map(str, k["warm"])),
        int(k["cold"]),
    )
    return Request(kernel, **values)


def tune_text(text: str) -> str:
    """Tune a kernel in this process, as a worker of a cluster does."""
    found = tune_here(request_of(text))
    return json.dumps({"message": found.message} if isinstance(found, Failed) else asdict(found))


def found_of(text: str) -> Tuned | Failed:
    """What `tune_text` gave; raises what wrong types raise."""
    values: dict[str, Any] = json.loads(text)
    if "message" in values:
        return Failed(str(values["message"]))
    record: Mapping[str, Any] = values["record"]
    fields: dict[str, Any] = {
        **record,
        "fingerprint": Fingerprint(**record["fingerprint"]),
        "nodes": tuple(record["nodes"]),
    }
    failed = tuple((str(schedule), str(message)) for schedule, message in values["failed"])
    return Tuned(Record(**fields), int(values["measured"]), tuple(values["wrong"]), failed)


def _base64(content: bytes) -> str:
    return b64encode(content).decode("ascii")


def _array(dtype: str, shape: list[int], content: str) -> Array:
    found = np.dtype(dtype)
    if found.kind not in "iub":
        raise ValueError(f"{dtype} are no whole numbers")
    return np.frombuffer(b64decode(content), found).reshape(shape)
