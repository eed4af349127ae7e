"""`compile`: a module in memory, exported, built and called with tensors."""

# pyright: basic
# PyTorch's own types are partly unknown.

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import Any

import torch

from dlc import ExitCode, Source, build, error
from dlc_frontend_torch.calls import Call


class CompiledModule:
    """A module as a program of dlc: called as the module is, with tensors, without autograd."""

    def __init__(self, call: Call, names: Sequence[str], weights: Mapping[str, torch.Tensor]) -> None:
        """`names` of inputs are in the order of the arguments; `weights` are inputs that are shared."""
        self._call, self._names, self._weights = call, tuple(names), dict(weights)

    @property
    def program(self) -> Any:
        """The loaded program, which takes arrays."""
        return self._call.program

    def __call__(self, *args: torch.Tensor, **named: torch.Tensor) -> Any:
        """What the module returns: a tensor, a tuple, or a dictionary.

        Raises:
            DlcError: a tensor is missing, or of another shape or type than the program takes.
        """
        if len(args) > len(self._names):
            message = f"{len(args)} arguments; the module takes {len(self._names)}: {', '.join(self._names)}"
            raise error("wrong-argument", message, exit_code=ExitCode.USAGE)
        given = dict(zip(self._names, args, strict=False)) | named
        found = self._call({**self._weights, **given})
        if list(found) == ["output"]:
            return found["output"]
        if all(name.startswith("output_") for name in found):
            return tuple(found.values())
        return found


def compile(
    module: torch.nn.Module,
    example_inputs: Sequence[Any],
    *,
    target: str = "c",
    dynamic_shapes: Any = None,
    dims: Mapping[str, int | str] | None = None,
    settings: Sequence[str] = (),
    share_weights: bool = False,
    cache_dir: str | None = None,
) -> CompiledModule:
    """A module as a program of dlc.

    Args:
        module: In inference mode: `module.eval()`.
        example_inputs: Positional arguments of the module: tensors, whose shapes the program has.
        target: The backend and its options, as for `dlc build --target`.
        dynamic_shapes: Which dimensions may vary, as for torch.export.export.
        dims: Sizes or bounds of these dimensions by name, as for `dlc build --dim`.
        settings: Options of passes, as for `dlc build --set`.
        share_weights: Whether the program reads the module's own weights when it is called, so that it follows when
            they change; else they are constants, which are laid out for speed.
        cache_dir: Directory of the cache, by default the user's.

    Raises:
        DlcError: with all operators that are unsupported, and their source lines.
    """
    exported = torch.export.export(module, tuple(example_inputs), dynamic_shapes=dynamic_shapes, strict=False)
    functional = exported.run_decompositions({})
    content = BytesIO()
    torch.export.save(functional, content)
    source = Source(data=content.getvalue(), label=f"{type(module).__name__}.pt2")
    own = [f"torch.weights={'input' if share_weights else 'constant'}"]
    program: Any = build(source, target, dims=dims or {}, settings=[*own, *settings], cache_dir=cache_dir)
    names = [s.arg.name for s in functional.graph_signature.input_specs if s.kind.name == "USER_INPUT"]
    ports = {p.name for p in program.signature.inputs}
    weights = {n: t.detach() for n, t in _tensors(functional).items() if n in ports} if share_weights else {}
    return CompiledModule(Call(program), names, weights)


def _tensors(exported: torch.export.ExportedProgram) -> dict[str, torch.Tensor]:
    """Weights, buffers and constants by name."""
    constants = {n: t for n, t in exported.constants.items() if isinstance(t, torch.Tensor)}
    return {**exported.state_dict, **constants}
