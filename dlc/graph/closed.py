"""Graphs whose dimensions are numbers: what some steps need, and what they say where a dimension is none."""

from __future__ import annotations

from collections.abc import Iterable

from dlc.base.diagnostics import DlcError, ExitCode, Location, error, quote
from dlc.base.extents import symbols
from dlc.base.polynomials import Symbol
from dlc.graph.graph import Graph
from dlc.graph.structure import Constant, Splat


def check_closed(graph: Graph, who: str) -> None:
    """Raises DlcError (USAGE, `symbolic-dimension`): an input has a dimension that is known when the program runs.

    Args:
        graph: The model.
        who: What needs numbers, as a message begins with it.
    """
    found = {s: i.name for i in graph.inputs for s in symbols(*i.type.shape)}
    if not found:
        _check_decided(graph, who)
        return
    notes = [f"{s.name} is {s.sizes}: of input {quote(name)}" for s, name in found.items()]
    raise error(
        "symbolic-dimension",
        f"{who} needs sizes that are known when the model is built",
        notes=notes,
        help=f"give one size: {' '.join(f'--dim {s.name}={s.likely}' for s in found)}",
        exit_code=ExitCode.USAGE,
    )


def check_limited(graph: Graph) -> None:
    """Raises DlcError (USAGE, `unbound-dimension`): a size without limit decides how far elements lie apart.

    Args:
        graph: Kernels. Their tensors lie in memory as if every size was the largest, so that a size without limit has
            to be that of the outermost dimension, of which no stride depends.
    """
    for op in graph.ops:
        for of in () if isinstance(op, (Constant, Splat)) else op.types:
            dims = () if of.dense else of.shape
            outermost = next((k for k, d in enumerate(dims) if d != 1), 0)
            free = [s for s in symbols(*dims[outermost + 1 :]) if not s.limited]
            if of.symbol is not None and not of.symbol.limited and op in graph.outputs:
                free.append(of.symbol)
            if free:
                raise unlimited(free, f"a value {of.text} needs a limit of its size", graph.origin(op))


def without_limit(graph: Graph) -> tuple[Symbol, ...]:
    """The sizes of a program that nobody limits: there is no largest call, for which memory could be planned."""
    # As dimensions of inputs, and of kernels as inputs of their own.
    every = (s for i in graph.inputs for s in (*symbols(*i.type.shape), *filter(None, [i.type.symbol])))
    return tuple(dict.fromkeys(s for s in every if not s.limited))


def unlimited(sizes: Iterable[Symbol], why: str, nodes: Iterable[str] = ()) -> DlcError:
    """The error about sizes that nobody limited, and need a limit."""
    names = list(dict.fromkeys(s.name for s in sizes))
    flags = [f"--dim {n}=1" for n in names]
    return needs_sizes(f"{', '.join(names)}: {why}", flags, location=Location(node=", ".join(nodes)))


def needs_sizes(
    message: str, flags: Iterable[str], *, notes: Iterable[str] = (), location: Location | None = None
) -> DlcError:
    """The error (USAGE, `unbound-dimension`) about dimensions of which too little is said; `flags` say something."""
    return error(
        "unbound-dimension",
        message,
        location=location,
        notes=notes,
        help=f"give sizes, or ranges such as 1..8, for example {' '.join(flags)}",
        exit_code=ExitCode.USAGE,
    )


def _check_decided(graph: Graph, who: str) -> None:
    """Raises DlcError (USAGE, `symbolic-dimension`): values of inputs have to lead to the shapes of results."""
    names = list(dict.fromkeys(s.name for op in graph.ops for s in op.requires()))
    if names:
        raise error(
            "symbolic-dimension",
            f"{who} needs shapes that do not depend on the values of inputs: {', '.join(names[:8])}",
            help="export the model with the operands that decide shapes as constants",
            exit_code=ExitCode.USAGE,
        )
