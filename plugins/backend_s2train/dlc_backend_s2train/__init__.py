"""Programs for the S2Train accelerator. Holds the hooks only; what they name is imported when it is used."""

from collections.abc import Iterable, Mapping

from dlc import Lazy, hookimpl

__version__ = "0.1.0"


@hookimpl
def dlc_ops() -> Iterable[Lazy]:
    """An instruction, as an op of a graph."""
    return [Lazy("s2_instruction", "dlc_backend_s2train.instruction:S2Instruction")]


@hookimpl
def dlc_passes() -> Iterable[Lazy]:
    """Selection of instructions."""
    return [Lazy("s2-select", "dlc_backend_s2train.select.s2_select:S2Select")]
