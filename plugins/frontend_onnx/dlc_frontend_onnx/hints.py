"""What helps with operators that have no rule: how to get a model without them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

LISTED: Final = "dlc list onnx shows what is supported"
_TRAINING: Final = "this is part of a training step: export the inference model (model.eval())"
_TREES: Final = "convert the model to tensor operators before exporting it (hummingbird-ml does)"
_TEXT: Final = "texts are not supported: do this part before or after the program"
_FUSED: Final = "export the model without onnxruntime's graph optimisations"
_RANDOM: Final = "draw random numbers outside, and make them an input"
_HINTS: Final[Mapping[str, tuple[str, ...]]] = {
    _RANDOM: ("Multinomial",),
    _TEXT: ("StringConcat", "StringNormalizer", "StringSplit", "RegexFullMatch", "LabelEncoder"),
}
_BY_OPERATOR: Final = {operator: hint for hint, operators in _HINTS.items() for operator in operators}
_DOMAINS: Final[Mapping[str, str]] = {
    "ai.onnx.ml": _TREES,
    "ai.onnx.training": _TRAINING,
    "ai.onnx.preview.training": _TRAINING,
    "com.microsoft": _FUSED,
    "com.microsoft.nchwc": _FUSED,
}


def hint(domain: str, operator: str) -> str:
    """What to do about an operator without a rule."""
    if operator in _BY_OPERATOR:
        return _BY_OPERATOR[operator]
    if domain == "com.microsoft" and operator.endswith("Grad"):
        return _TRAINING
    return _DOMAINS.get(domain, LISTED)
