"""Real models of a folder as entries of the zoo, with the outputs that came with them or onnxruntime's."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import onnx

from benchmarks.zoo.entry import Entry, Feeds


def taken(path: Path, *, source: Path, stored: bool) -> Feeds:
    """Copy a model; its stored inputs, or random numbers for open dimensions of 1."""
    shutil.copy(source, path)
    if stored:
        shutil.copy(source.parent / "outputs.npz", path.with_suffix(".outputs.npz"))
        return dict(np.load(source.parent / "inputs.npz"))
    graph = onnx.load(str(source)).graph
    initial = {t.name for t in graph.initializer}
    random = np.random.default_rng(0)
    found: Feeds = {}
    for port in graph.input:
        if port.name not in initial:
            tensor = port.type.tensor_type
            shape = [d.dim_value or 1 for d in tensor.shape.dim]
            dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
            found[port.name] = random.standard_normal(shape).astype(dtype)
    return found


def entries(folder: Path) -> Iterator[Entry]:
    """All models below a folder; steps of training, whose operators onnxruntime lacks, with the outputs beside them."""
    for source in sorted(folder.rglob("*.onnx")):
        operators = {n.op_type for n in onnx.load(str(source), load_external_data=False).graph.node}
        stored = any("Grad" in name for name in operators)
        make = partial(taken, source=source, stored=stored)
        exact = bool(operators & {"ConvInteger", "MatMulInteger", "QuantizeLinear"})
        name = f"{source.parent.name}-{source.stem}"
        yield Entry(name, "real", make, 1e-2 if exact else 2e-4, oracle="stored" if stored else "plain onnxruntime")
