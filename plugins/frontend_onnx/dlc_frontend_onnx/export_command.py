"""`dlc export`: a training step as an ONNX model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dlc.base.diagnostics import ExitCode, error

Model = Annotated[Path, typer.Argument(metavar="MODEL.onnx", help="The model to train.")]
Train = Annotated[
    str,
    typer.Option(metavar="OPTIONS", help="What a step does: loss=cross-entropy,optimizer=adam{lr=1e-3}; see autodiff."),
]
Output = Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The file to write.")]
Dims = Annotated[list[str] | None, typer.Option("--dim", metavar="NAME=SIZE", help="Size of a symbolic dimension.")]


def export(model: Model, train: Train, output: Output, dim: Dims = None) -> None:
    """Write one training step of an ONNX model as an ONNX model, with the operators of ai.onnx.preview.training."""
    from dlc import Source, Spec
    from dlc.passes.autodiff import Autodiff
    from dlc_frontend_onnx.frontend import Onnx
    from dlc_frontend_onnx.training_export import (
        training_model,  # this and all above: names of commands are listed often
    )

    if not model.is_file():
        raise error("no-model", f"{model} is not a file", help="give an ONNX model", exit_code=ExitCode.USAGE)
    wanted = Autodiff.from_spec(Spec.parse_options(Autodiff.name, train, "--train"))
    content = training_model(Onnx(dims=tuple(dim or ())), Source(model), wanted)
    try:
        output.write_bytes(content)
    except OSError as problem:
        message = f"{output} cannot be written: {problem.strerror or problem}"
        raise error("cannot-write", message, help="check the directory", exit_code=ExitCode.USAGE) from None
    typer.echo(f"{output}: {len(content):,} bytes; feed every NAME.new back as NAME")
