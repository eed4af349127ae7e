"""What a model may ask of the compiler: counts that are refused above a limit, which an option raises.

A file of a few kilobytes can stand for more nodes, operands or iterations than there is time and memory for. Bytes of
a tensor have an option of their own, `max-tensor-bytes`.
"""

from __future__ import annotations

from dataclasses import dataclass

from dlc.base.diagnostics import DlcError, ExitCode, Location, error


@dataclass(frozen=True)
class Budget:
    """Limits of one import; each field is the option of that name."""

    nodes: int = 1 << 16
    """Nodes in all, those of iterations, branches, functions and derivatives counted as often as they are imported."""
    operands: int = 2048
    """Operands, or results, of one node."""
    steps: int = 1024
    """Iterations of a loop, which are imported one by one."""

    def check(self, kind: str, count: int, what: str, location: Location | None = None) -> None:
        """Raise DlcError when there are more of a kind than its limit; `what` says what has them."""
        if count > getattr(self, kind):
            raise self.exceeded(kind, f"{count:,}", what, location)

    def exceeded(self, kind: str, count: str, what: str, location: Location | None = None) -> DlcError:
        """The error of a count above its limit, which may be known as "more than" a number only."""
        return error(
            "too-large",
            f"{what} {count} {kind}; the limit is {getattr(self, kind):,}",
            location=location,
            help=f"if this number is meant, raise the limit: --set onnx.max-{kind}=N",
            exit_code=ExitCode.LIMIT,
        )
