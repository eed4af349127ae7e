"""Where the sources of a program define the functions of its kernels."""

import re
from collections.abc import Mapping
from pathlib import PurePosixPath

from dlc import Artifact
from dlc.api.artifact import KernelFunction
from dlc.runtime.manifest import NAME
from dlc_backend_c import manifest
from dlc_backend_c.sections import LINKAGE

_DEFINITION = re.compile(rf"^{LINKAGE} \w[\w *]*?\b(\w+)\(", re.MULTILINE)


def kernel_functions(artifact: Artifact) -> Mapping[str, KernelFunction]:
    """Digest of a kernel → its function, with the line of its definition in `PREFIX.c`; of an artifact of C only."""
    found = manifest.from_bytes(manifest.read(artifact.files[NAME]))
    file = str(PurePosixPath(artifact.entry).with_suffix(".c"))
    text = manifest.read(artifact.files[file]).decode("ascii")
    lines: dict[str, int] = {}
    line, at = 1, 0
    for definition in _DEFINITION.finditer(text):
        line, at = line + text.count("\n", at, definition.start()), definition.start()
        lines[definition[1]] = line
    functions: dict[str, KernelFunction] = {}
    for kernel in found["kernels"]:
        name = kernel["function"]
        counts = kernel["stack"], kernel.get("operations"), kernel.get("weight")
        functions.setdefault(kernel["digest"], KernelFunction(name, file, lines.get(name, 0), *counts))
    return functions
