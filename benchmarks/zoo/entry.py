"""`Entry`: one model of the zoo; `export`: a torch module through either of torch's exporters."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnx

Array = np.ndarray[Any, np.dtype[Any]]
Feeds = dict[str, Array]

BITS = "bfloat16:"
"""Before the name of an array in a .npz file that holds the bits of bfloat16."""
FLOAT, HALF = 1e-4, 2e-2
"""Errors relative to the largest magnitude of an output: of networks in float32, and with values of 16 bits."""


@dataclass(frozen=True)
class Entry:
    """A model of the zoo."""

    name: str
    family: str
    make: Callable[[Path], Feeds]
    """Writes the model and returns inputs for it, which fix its open dimensions."""
    tolerance: float = FLOAT
    """Largest error relative to the largest magnitude of an output; whole numbers and truth values are equal."""
    unit: int = 1
    """What open sizes are multiples of, if their sizes in the inputs are."""
    oracle: Literal["onnxruntime", "plain onnxruntime", "reference", "stored"] = "onnxruntime"
    """What the outputs are compared with; plain: onnxruntime without its optimiser, where that changes results;
    reference: ONNX's own evaluator, where onnxruntime has no kernel; stored: what came with the model, which is read
    leniently and run once."""


def export(
    module: Any,
    arguments: Sequence[Any],
    path: Path,
    *,
    names: Sequence[str],
    outputs: Sequence[str] | None = None,
    dynamic: Mapping[str, Mapping[int, str]] | None = None,
    opset: int,
    new: bool = False,
    arrays: bool = True,
) -> Feeds:
    """Write a torch module by the old exporter or the `new` one; returns the arguments as arrays, by name.

    Args:
        module: A torch module.
        arguments: Tensors, as its `forward` takes them by position.
        path: Where the model is written.
        names: Names of the inputs.
        outputs: Names of the outputs.
        dynamic: Input → dimension → name of the dimensions that stay open.
        opset: The operator set.
        new: Whether `torch.export` reads the module, or the tracer of old.
        arrays: Whether numpy has the arguments' types; else nothing is returned.
    """
    torch: Any = import_module("torch")
    module.eval()
    torch.backends.mha.set_fastpath_enabled(False)  # the old exporter does not know the fused layers
    shapes: Any = dynamic
    if new:
        shapes = None
        if dynamic is not None:
            open_dims = {d: torch.export.Dim(d, min=1, max=4096) for dims in dynamic.values() for d in dims.values()}
            shapes = [{k: open_dims[d] for k, d in dynamic.get(n, {}).items()} or None for n in names]
    options: dict[str, Any] = {"dynamic_shapes" if new else "dynamic_axes": shapes}
    with quiet(), torch.no_grad():
        torch.onnx.export(
            module,
            tuple(arguments),
            str(path),
            input_names=list(names),
            output_names=list(outputs) if outputs else None,
            opset_version=opset,
            dynamo=new,
            external_data=False,
            **options,
        )
    if not arrays:
        return {}
    used = {i.name for i in onnx.load(str(path), load_external_data=False).graph.input}  # exporters drop the others
    return {n: a.detach().cpu().numpy() for n, a in zip(names, arguments, strict=True) if n in used}


@contextlib.contextmanager
def quiet() -> Any:
    """Exporters talk a lot."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
