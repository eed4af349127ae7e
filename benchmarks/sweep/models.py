"""Small models of the tests, and the kernels that the default pipeline makes of them."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import onnx

from dlc.api.source import Source
from dlc.base.diagnostics import DlcError
from dlc.driver.build import compile_source
from dlc.driver.prepare import Choice
from dlc.driver.program import Compiler, session_of
from dlc.graph.structure import Copy
from dlc.kernel.kernel import Kernel
from tests.frontend_onnx.quantising import convolutions, recurrent, statically_quantised
from tests.models.test_zoo import MODELS as ZOO
from tests.models.zoo import bert, darts_cell, gpt, light, mlp, mobilenet_v2

ROOT: Final = Path(__file__).parents[2]
Make = Callable[[Path], object]


def _written(make: Callable[[], onnx.ModelProto], path: Path, open_batch: bool = False) -> None:
    model = make()
    for port in (*model.graph.input, *model.graph.output) if open_batch else ():
        port.type.tensor_type.shape.dim[0].dim_param = "batch"
    path.write_bytes(model.SerializeToString())


def _quantised(make: Callable[[], onnx.ModelProto], form: str, path: Path) -> None:
    statically_quantised(form)(make(), path)


def _copied(file: Path, path: Path) -> None:
    path.write_bytes(file.read_bytes())


def _stored() -> dict[str, Make]:
    files = [ROOT / "examples" / "mnist.onnx", *sorted((ROOT / "tests/data/models").glob("*/*.onnx"))]
    chosen = [f for f in files if "train" not in str(f)]
    return {f"{f.parent.name}/{f.stem}": partial(_copied, f) for f in chosen}


MODELS: Final[Mapping[str, Make]] = {
    "mlp": partial(_written, mlp),
    "mlp, open batch": partial(_written, mlp, open_batch=True),
    "mobilenet": partial(_written, partial(mobilenet_v2, size=32)),
    "mobilenet, open batch": partial(_written, partial(mobilenet_v2, size=32), open_batch=True),
    "darts cell": partial(_written, partial(darts_cell, channels=20, size=9)),
    "bert": partial(_written, partial(bert, length=9)),
    "gpt": partial(_written, partial(gpt, length=9)),
    "gpt, decode": partial(_written, partial(gpt, length=1, past=9)),
    "squeezenet": partial(_written, partial(light, "squeezenet", 1)),
    "shufflenet": partial(_written, partial(light, "shufflenet", 1)),
    "convolutions": partial(_written, convolutions),
    "recurrent": partial(_written, recurrent),
    "quantised": partial(_quantised, convolutions, "QDQ"),
    "quantised, per operator": partial(_quantised, convolutions, "QOperator"),
    **{name: make for name, (make, _) in ZOO.items()},
    **_stored(),
}
"""Name → what writes it to a path."""


def kernels_of(name: str, cpu: str, most: int) -> list[Kernel]:
    """The kernels of a model for a machine, its named dimensions open up to a size; none if its maker is missing."""
    with tempfile.TemporaryDirectory(prefix="dlc-sweep-") as place:
        path = Path(place, "model.onnx")
        try:
            feeds: Any = MODELS[name](path)
        except ImportError:
            return []
        dims = _open_dims(path)
        try:
            return _kernels(path, cpu, dict.fromkeys(dims, f"1..{most}"))
        except DlcError:  # not for such sizes
            return _kernels(path, cpu, _dims_of(path, feeds or {}))


def _kernels(path: Path, cpu: str, dims: Mapping[str, int | str]) -> list[Kernel]:
    compiler = Compiler.open(path.parent / "cache", jobs=1)
    choice = Choice(target=f"c{{lib=none cpu={cpu}}}", dims=tuple(f"{dim}={size}" for dim, size in dims.items()))
    prepared = compiler.prepare(Source(path), choice)
    session = session_of(compiler.registry, compiler.cache, path, 1)
    source, frontend, package, pipeline = prepared.source, prepared.frontend, prepared.package, prepared.pipeline
    built = compile_source(source, frontend, package, pipeline, session, stop_after="plan-memory")
    plan: Any = built.last.value
    calls = [call for each in plan.plans for call in each.calls]
    return list(dict.fromkeys(call.body for call in calls if not isinstance(call, Copy)))


def _inputs(path: Path) -> list[Any]:
    model = onnx.ModelProto()
    model.ParseFromString(path.read_bytes())
    return list(model.graph.input)


def _dims_of(path: Path, feeds: Mapping[str, Any]) -> dict[str, int]:
    """The sizes that named dimensions have in the inputs that belong to a model."""
    ports = [port for port in _inputs(path) if port.name in feeds]
    pairs = (
        (d.dim_param, size)
        for port in ports
        for d, size in zip(port.type.tensor_type.shape.dim, feeds[port.name].shape, strict=False)
    )
    return {name: size for name, size in pairs if name}


def _open_dims(path: Path) -> list[str]:
    named = (d.dim_param for port in _inputs(path) for d in port.type.tensor_type.shape.dim)
    return list(dict.fromkeys(name for name in named if re.fullmatch(r"\w+", name)))
