"""What a model should compute: expected files, onnxruntime, or the numpy interpreter of the graph as it was parsed."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal, cast

import numpy as np

from dlc.api.source import Source
from dlc.base.diagnostics import DlcError, ExitCode, Location, error
from dlc.base.types import Array, in_compute_type
from dlc.verify.compare import Tolerance

Kind = Literal["auto", "onnxruntime", "numpy"]
Evaluate = Callable[[Mapping[str, Array]], dict[str, Array]]

SUITE = Tolerance(1e-3, 1e-7)
"""What ONNX's own test suite allows for expected files."""
_NEAR: Final = (1e-3, 1e-4)
"""What is allowed of a reference computed elsewhere: relative, and absolute as a part of its largest element."""
Tolerances = tuple[float, float] | None
"""Those of a backend, as `Backend.tolerance`."""


@dataclass(frozen=True)
class Reference:
    """A way to compute outputs."""

    name: str
    evaluate: Evaluate


def choose(kind: Kind, model: Path | None) -> Literal["onnxruntime", "numpy"]:
    """Which reference will be used; checked before any work starts.

    Raises DlcError (USAGE): onnxruntime is asked for but not installed, or there is no ONNX model for it.
    """
    is_onnx = model is not None and model.suffix.lower() == ".onnx"
    if kind == "auto":
        return "onnxruntime" if is_onnx and find_spec("onnxruntime") else "numpy"
    if kind == "onnxruntime" and not find_spec("onnxruntime"):
        raise error(
            "missing-package",
            "--reference onnxruntime: onnxruntime is not installed",
            help="pip install onnxruntime, or use --reference numpy",
            exit_code=ExitCode.USAGE,
        )
    if kind == "onnxruntime" and not is_onnx:
        raise error(
            "no-effect",
            f"--reference onnxruntime reads .onnx files, not {model}",
            help="use --reference numpy",
            exit_code=ExitCode.USAGE,
        )
    return kind


def exact_session(runtime: Any, model: Path | bytes) -> Any:
    """A session of onnxruntime that computes what a model says: without optimisation, and without overflow.

    On x86 without VNNI, its products of uint8 and int8 add pairs of products in 16 bits, which may overflow. It has an
    option against that, an optimisation of weights, which knows no int8 activations: such models are taken as they are.

    Args:
        runtime: The module onnxruntime.
        model: A file, or its content.
    """
    given = model if isinstance(model, bytes) else str(model)
    providers = ["CPUExecutionProvider"]
    if _multiplies_integers(model):
        options = _session_options(runtime, runtime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED)
        options.add_session_config_entry("session.x64quantprecision", "1")
        with suppress(Exception):  # onnxruntime raises classes of its own, RuntimeError among them
            return runtime.InferenceSession(given, options, providers=providers, disabled_optimizers=[*_OTHERS])
    options = _session_options(runtime, runtime.GraphOptimizationLevel.ORT_DISABLE_ALL)
    return runtime.InferenceSession(given, options, providers=providers)


def _session_options(runtime: Any, level: Any) -> Any:
    options: Any = runtime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = level
    return options


def _multiplies_integers(model: Path | bytes) -> bool:
    """Whether a model names an operator that multiplies integers."""
    if isinstance(model, bytes):
        return any(name in model for name in _OF_INTEGERS)
    content = Source(model).view()
    return any(re.search(re.escape(name), content) for name in _OF_INTEGERS)


_OTHERS: Final = (
    *("Level1_RuleBasedTransformer", "Level2_RuleBasedTransformer"),
    *("BiasDropoutFusion", "BiasGeluFusion", "BiasSkipLayerNormFusion", "BiasSoftmaxFusion", "CastChainElimination"),
    *("ClipQuantRewrite", "CommonSubexpressionElimination", "ConstantFolding", "ConstantSharing"),
    *("ConvAddActivationFusion", "ConvAddFusion", "ConvBNFusion", "ConvMulFusion", "DQMatMulNBitsFusion"),
    *("DivMulFusion", "DynamicQuantizeMatMulFusion", "EmbedLayerNormFusion", "ExpandElimination", "FastGeluFusion"),
    *("GatherToSliceFusion", "GemmActivationFusion", "GemmSumFusion", "GemmTransposeFusion"),
    *("GqaValueLayoutTransformer", "GroupQueryAttentionFusion", "GroupQueryAttentionPreNormFusion"),
    *("LayerNormFusion", "MatMulActivationFusion", "MatMulAddFusion", "MatMulIntegerToFloatFusion"),
    *("MatMulNBitsMlpFusion", "MatMulNBitsQLoRAFusion", "MatMulNBitsQkvFusion", "MatMulScaleFusion"),
    *("MatMul_BatchNormalization_Fusion", "MatmulBNFusion", "MatmulTransposeFusion", "NotWhereFusion"),
    *("PreShapeNodeElimination", "QDQFinalCleanupTransformer", "QDQPropagationTransformer"),
    *("QDQSelectorActionTransformer", "QuickGeluFusion", "ReluQuantRewrite", "RemoveDuplicateCastTransformer"),
    *("ReshapeFusion", "SimplifiedLayerNormFusion", "SliceConcatToSpaceToDepthFusion", "SwiGluFusion"),
    *("TransposeOptimizer", "UnsqueezeElimination"),
)
"""Every other optimization of that level. Some take operators for others (`QDQSelectorActionTransformer` a softmax for
one of integers), one aborts the process (`QDQPropagationTransformer` of 1.32). Names that are unknown are ignored."""
_OF_INTEGERS: Final = (
    *(b"QLinearConv", b"QLinearMatMul", b"QGemm", b"QAttention"),
    *(b"ConvInteger", b"MatMulInteger", b"DynamicQuantize"),
)
"""Operators that multiply integers, or what their names begin with."""


def onnxruntime(model: Path, labels: Mapping[str, Sequence[str]] = MappingProxyType({})) -> Reference:
    """The model in onnxruntime, on one thread and without optimisation, so that it is judged as it is written.

    Args:
        model: The file.
        labels: Output → `Port.labels`: texts become their numbers, and maps from labels rows of numbers, as in dlc.
    """
    import onnxruntime as ort  # pyright: ignore

    runtime: Any = ort
    try:
        session = exact_session(runtime, model)
    # onnxruntime raises classes of its own, RuntimeError among them, for a model that it does not accept.
    except Exception as problem:  # noqa: BLE001
        raise _refused(model, problem) from None
    names: list[str] = [o.name for o in session.get_outputs()]
    wanted: list[Any] = session.get_inputs()

    def evaluate(feeds: Mapping[str, Array]) -> dict[str, Array]:
        # Some programs have no input that nothing reads; onnxruntime wants all of them.
        given = {i.name: _as_taken(feeds[i.name], i) if i.name in feeds else _unread(i) for i in wanted}
        try:
            values: list[Array] = session.run(names, {n: v for n, v in given.items() if v is not None})
        except Exception as problem:  # noqa: BLE001
            raise _refused(model, problem) from None
        return {name: _numbers(v, labels.get(name, ())) for name, v in zip(names, values, strict=True)}

    return Reference("onnxruntime", evaluate)


def _as_taken(array: Array, port: Any) -> Array:
    """Values in the type that the model takes: programs of some targets take others, as f32 for f16."""
    wanted = _dtype(port)
    if wanted is None or array.dtype == wanted or array.dtype.kind not in "fiu" or wanted.kind not in "fiu":
        return array
    return array.astype(wanted) if (array.dtype.kind == "f") == (wanted.kind == "f") else array


def _dtype(port: Any) -> np.dtype[Any] | None:
    """None for what is no tensor of numbers that numpy has."""
    kind = str(port.type).removeprefix("tensor(").removesuffix(")")
    try:
        return np.dtype({"float": "float32", "double": "float64"}.get(kind, kind))
    except TypeError:
        return None


def _unread(port: Any) -> Array | None:
    """Zeros for an input that a program does not have; None for what is no tensor of numbers."""
    kind = _dtype(port)
    return None if kind is None else np.zeros([n if isinstance(n, int) else 1 for n in port.shape], kind)


def _numbers(value: Any, labels: Sequence[str]) -> Array:
    """An output of onnxruntime as dlc gives it."""
    if labels and isinstance(value, list):  # maps from labels: of each row, in the order of the labels
        rows = [{str(key): number for key, number in row.items()} for row in cast("list[dict[Any, float]]", value)]
        return np.array([[row[label] for label in labels] for row in rows], np.float32)
    found: Array = np.asarray(value)
    if found.dtype.kind in "OUS":
        number = {label: k for k, label in enumerate(labels)}
        return np.array([number.get(str(text), -1) for text in found.flat], np.int64).reshape(found.shape)
    return found


def tolerance_for(
    name: str,
    want: Array,
    relative: float | None,
    absolute: float | None,
    backend: Tolerances = None,
) -> Tolerance:
    """What the user asked for; else the backend's; else the suite's for expected files, and one scaled to the output.

    Integers and booleans have to be equal.
    """
    if in_compute_type(want).dtype.kind in "iub":
        return Tolerance(0.0, 0.0)
    scale = float(np.nanmax(np.abs(want.astype(np.float64)), initial=0.0)) if want.size else 0.0
    near, part = backend or _NEAR
    suite = name == "expected" and backend is None
    default = SUITE if suite else Tolerance(near, part * (scale if np.isfinite(scale) else 1.0))
    return Tolerance(
        default.relative if relative is None else relative, default.absolute if absolute is None else absolute
    )


def wider(one: Tolerances, other: Tolerances) -> Tolerances:
    """How far programs of two backends may be from each other: as far as the less exact of them allows."""
    if one is None and other is None:
        return None
    (a, b), (c, d) = one or _NEAR, other or _NEAR
    return max(a, c), max(b, d)


def missing(expected: Sequence[str], found: Mapping[str, Array]) -> list[str]:
    """Outputs for which the reference has no value."""
    return [name for name in expected if name not in found]


def _refused(model: Path, problem: Exception) -> DlcError:
    return error(
        "reference-failed",
        f"onnxruntime does not run {model}: {problem}",
        location=Location(str(model)),
        help="use --reference numpy",
        exit_code=ExitCode.TOOL,
    )
