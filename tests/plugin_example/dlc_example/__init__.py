"""What the plugin adds to dlc. This module holds the hooks only; what they name is imported when it is used."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from dlc import Lazy, hookimpl

dlc_api = ">=0.1,<0.2"
"""Versions of dlc that the plugin works with; with any other it is named and skipped."""


@hookimpl
def dlc_frontends() -> Iterable[Lazy]:
    """Perceptrons in JSON."""
    return [Lazy("mlp", "dlc_example.mlp:Mlp")]


@hookimpl
def dlc_ops() -> Iterable[Lazy]:
    """x · sigmoid(β·x)."""
    return [Lazy("swish", "dlc_example.swish:Swish")]


@hookimpl
def dlc_onnx_rules() -> Iterable[Lazy]:
    """The operators of the domain org.example in ONNX models."""
    return [Lazy("org.example", "dlc_example.onnx_rules")]


@hookimpl
def dlc_passes() -> Iterable[Lazy]:
    """The pass that finds `swish` in models that spell it out."""
    return [Lazy("find-swish", "dlc_example.find_swish:FindSwish")]


@hookimpl
def dlc_rules() -> Iterable[Lazy]:
    """An equation for `simplify`."""
    return [Lazy("unit_beta", "dlc_example.swish:unit_beta")]


@hookimpl
def dlc_pipelines() -> Mapping[str, str]:
    """The core's pipeline behind the plugin's pass."""
    return {"swish": "fold-constants,find-swish,infer"}


@hookimpl
def dlc_schedules() -> Iterable[Lazy]:
    """How cumulative sums become loops."""
    return [Lazy("running", "dlc_example.running:Running")]


@hookimpl
def dlc_optimizers() -> Iterable[Lazy]:
    """For `dlc build --train optimizer=lion`."""
    return [Lazy("lion", "dlc_example.lion:Lion")]


@hookimpl
def dlc_losses() -> Iterable[Lazy]:
    """For `dlc build --train loss=log-cosh`."""
    return [Lazy("log-cosh", "dlc_example.log_cosh:LogCosh")]


@hookimpl
def dlc_initializers() -> Iterable[Lazy]:
    """For `dlc build --train init=orthogonal`."""
    return [Lazy("orthogonal", "dlc_example.orthogonal:Orthogonal")]


@hookimpl
def dlc_machines() -> Iterable[Path]:
    """For `dlc build --target "c{cpu=example-m33 cc=arm-none-eabi-gcc}"`."""
    return [Path(__file__).parent / "machines"]


@hookimpl
def dlc_backends() -> Iterable[Lazy]:
    """Programs in Python."""
    return [Lazy("numpy", "dlc_example.backend:Numpy")]


@hookimpl
def dlc_samples() -> Lazy:
    """What `dlc plugins test` runs all of this on."""
    return Lazy("samples", "dlc_example.samples:SAMPLES")
