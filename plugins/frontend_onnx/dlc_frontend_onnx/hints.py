"""What helps with operators that have no rule: how to get a model without them, or what reads them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

LISTED: Final = "dlc list onnx shows what is supported"
_TRAINING: Final = "this is part of a training step: export the inference model (model.eval())"
_TREES: Final = "convert the model to tensor operators before exporting it (hummingbird-ml does)"
_TEXT: Final = "texts are not supported: do this part before or after the program"
_FUSED: Final = "export the model without onnxruntime's graph optimisations"
_NCHWC: Final = (
    "write the model with graph_optimization_level ORT_ENABLE_EXTENDED: the level above arranges data for one processor"
)
_RANDOM: Final = "draw random numbers outside, and make them an input"
_HINTS: Final[Mapping[str, tuple[str, ...]]] = {
    _RANDOM: ("Multinomial",),
    _TEXT: ("StringConcat", "StringNormalizer", "StringSplit", "RegexFullMatch", "LabelEncoder"),
}
_BY_OPERATOR: Final = {operator: hint for hint, operators in _HINTS.items() for operator in operators}
_EXTENSIONS: Final = (
    "these operators of onnxruntime-extensions prepare texts, sounds and images: split the model, and do this part "
    "before or after the program"
)
_ATEN: Final = "export the model without operator_export_type=ONNX_ATEN_FALLBACK: torch.onnx.export(..., dynamo=True)"
_FUNCTIONS: Final = (
    "this is a function that the exporter left out of the model: export it with its functions, "
    "torch.onnx.export(..., dynamo=True), or inline them with onnx.inliner"
)
_MMDEPLOY: Final = "export the model with torch.onnx.export: mmdeploy writes operators of its own"
_TENSORRT: Final = "this operator is a plugin of TensorRT: export the model for onnxruntime instead"
_DOMAINS: Final[Mapping[str, str]] = {
    "ai.onnx.contrib": _EXTENSIONS,
    "ai.onnx.ml": _TREES,
    "ai.onnx.training": _TRAINING,
    "ai.onnx.preview.training": _TRAINING,
    "com.microsoft": _FUSED,
    "com.microsoft.extensions": _EXTENSIONS,
    "com.microsoft.nchwc": _NCHWC,
    "com.ms.internal.nhwc": _NCHWC,
    "mmdeploy": _MMDEPLOY,
    "mmcv": _MMDEPLOY,
    "org.pytorch.aten": _ATEN,
    "pkg.onnxscript.torch_lib": _FUNCTIONS,
    "pkg.onnxscript.torch_lib.common": _FUNCTIONS,
    "trt.plugins": _TENSORRT,
}
"""Remedy by domain, for domains that are often met."""


def hint(domain: str, operator: str) -> str:
    """What to do about an operator without a rule."""
    if operator in _BY_OPERATOR and domain in ("", "ai.onnx.ml"):
        return _BY_OPERATOR[operator]
    if domain == "com.microsoft" and operator.endswith("Grad"):
        return _TRAINING
    if domain in _DOMAINS:
        return _DOMAINS[domain]
    if not domain:
        return LISTED
    return (
        f"install a dlc plugin with import rules for {domain}, write one (docs/writing-a-plugin.md), "
        "give an op pack by --ops (docs/op-packs.md), or export the model with the functions of that domain"
    )
