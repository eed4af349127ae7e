"""Domains of ONNX operators, and where our import rules for them are."""

from __future__ import annotations

from typing import Final

from dlc import Lazy

STANDARD: Final = "ai.onnx"
"""How offers of rules call the domain of ONNX's own operators, which models call ""."""
MICROSOFT: Final = "com.microsoft"
"""Domain of onnxruntime's own operators."""
OFFERS: Final = tuple(
    Lazy(domain, "dlc_frontend_onnx.ops") for domain in (STANDARD, "ai.onnx.ml", "ai.onnx.preview.training", MICROSOFT)
)
"""Our modules of import rules."""
