"""Other runtimes that run the same model, to be called in turn with a program of dlc."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from dlc.base.types import Array

Run = Callable[[], dict[str, Array]]
"""One call with the arrays that the peer was opened with; outputs by name."""


class Unavailable(Exception):
    """A peer cannot be measured here: the reason, with what would help."""


@dataclass(frozen=True)
class Peer:
    """A runtime with the model loaded."""

    name: str
    version: str
    run: Run


def open_peer(name: str, model: Path | None, inputs: Mapping[str, Array], threads: int) -> Peer:
    """A peer, ready to run.

    Args:
        name: One of `PEERS`.
        model: The model's file; None: there is only a program that was built from one.
        inputs: Arrays by input name, whose shapes the model gets.
        threads: That a call runs on.

    Raises:
        Unavailable: it is not installed, or does not run the model.
    """
    if name == "torch":
        raise Unavailable("not measured: PyTorch does not read ONNX files")
    if model is None or model.suffix.lower() != ".onnx":
        raise Unavailable(f"not measured: {name} reads .onnx files only")
    if not find_spec(name):
        raise Unavailable(f"not installed: pip install {name}")
    try:
        return _OPENERS[name](model, inputs, threads)
    # Runtimes raise classes of their own, RuntimeError among them, for a model that they do not accept.
    except Exception as problem:  # noqa: BLE001
        lines = str(problem).strip().splitlines() or [type(problem).__name__]
        raise Unavailable(f"does not run the model: {lines[0]}") from None


def _onnxruntime(model: Path, inputs: Mapping[str, Array], threads: int) -> Peer:
    import onnxruntime  # pyright: ignore

    runtime: Any = onnxruntime
    options: Any = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    session: Any = runtime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    names: list[str] = [o.name for o in session.get_outputs()]
    wanted = {i.name for i in session.get_inputs()}
    given = {n: v for n, v in inputs.items() if n in wanted}

    def run() -> dict[str, Array]:
        return dict(zip(names, session.run(names, given), strict=True))

    run()
    return Peer("onnxruntime", str(runtime.__version__), run)


def _openvino(model: Path, inputs: Mapping[str, Array], threads: int) -> Peer:
    import openvino  # pyright: ignore

    runtime: Any = openvino
    core: Any = runtime.Core()
    network: Any = core.read_model(str(model))
    ports = {name: port for port in network.inputs for name in port.get_names() if name in inputs}
    network.reshape({port: list(inputs[name].shape) for name, port in ports.items()})
    # Precision as the model has it: on some processors the default is less.
    settings = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"}
    compiled: Any = core.compile_model(network, "CPU", settings)
    request: Any = compiled.create_infer_request()
    given = {name: inputs[name] for name in ports}

    def run() -> dict[str, Array]:
        results = request.infer(given, share_inputs=True, share_outputs=True)
        return {name: results[port] for port in compiled.outputs for name in port.get_names()}

    run()
    return Peer("openvino", str(runtime.__version__).partition("-")[0], run)


_OPENERS: Final[Mapping[str, Callable[[Path, Mapping[str, Array], int], Peer]]] = {
    "onnxruntime": _onnxruntime,
    "openvino": _openvino,
}
PEERS: Final = (*_OPENERS, "torch")
"""Names, as --against takes them."""
