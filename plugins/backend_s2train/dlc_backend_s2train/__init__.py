"""Programs for the S2Train accelerator. Holds the hooks only; what they name is imported when it is used."""

from collections.abc import Iterable, Mapping

from dlc import Lazy, hookimpl

__version__ = "0.1.0"

_PLACED = "s2-select,s2-decompose,schedule,plan-memory"
_NAMED = "named=conv,gemm,mat_mul,batch_norm,relu,max_pool,label_cross_entropy"


@hookimpl
def dlc_backends() -> Iterable[Lazy]:
    """The accelerator."""
    return [Lazy("s2train", "dlc_backend_s2train.backend:S2Train")]


@hookimpl
def dlc_ops() -> Iterable[Lazy]:
    """An instruction, as an op of a graph."""
    return [Lazy("s2_instruction", "dlc_backend_s2train.instruction:S2Instruction")]


@hookimpl
def dlc_passes() -> Iterable[Lazy]:
    """Selection of instructions, and those that the array has."""
    return [
        Lazy("s2-select", "dlc_backend_s2train.select.s2_select:S2Select"),
        Lazy("s2-decompose", "dlc_backend_s2train.decompose.s2_decompose:S2Decompose"),
    ]


@hookimpl
def dlc_pipelines() -> Mapping[str, str]:
    """A training step with norms as they are, which is what the accelerator is for; and inference."""
    step = "autodiff{loss=cross-entropy optimizer=sgd{lr=0.01 momentum=0.9} wrt=!norms stored-norms=yes " + _NAMED + "}"
    return {"s2train": f"{step},{_PLACED}", "s2train-predict": _PLACED}
