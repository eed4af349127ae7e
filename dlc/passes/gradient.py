"""gradient: outputs are replaced by their gradients with respect to inputs.

    y = f(x, w)      →   dw = vjp of f(x, w), dy

The new graph takes the inputs that the gradients depend on, in their order, then one cotangent `dy` for each output
that is differentiated. It returns one gradient `dw` for each input of `wrt`, in that order. The pass may be repeated: a
second `gradient{of=dw wrt=x}` computes second derivatives.

Each element of a gradient is computed by itself, as a gather. Where a subscript has no inverse, such as an index that
is read from a tensor, the derivative is a scatter that adds into zeroed memory; `--explain gradient` lists those nodes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeVar

from dlc.api.passes import Level, Pass
from dlc.base.diagnostics import DlcError, ExitCode, did_you_mean, error, quote
from dlc.base.report import Report
from dlc.graph.closed import check_closed
from dlc.graph.gradient import Sweep, sweep
from dlc.graph.graph import Graph, with_live_origins
from dlc.graph.op import Op
from dlc.graph.structure import Input, Splat
from dlc.graph.walk import toposort
from dlc.spec import option

T = TypeVar("T", bound=Op)


@dataclass(frozen=True)
class Gradient(Pass[Graph, Graph]):
    """Differentiate: y = f(x, w)  →  dw of x, w and dy."""

    name: ClassVar[str] = "gradient"
    is_structural: ClassVar[bool] = True
    level_in: ClassVar[Level] = "ops"
    level_out: ClassVar[Level] = "ops"
    computes_other: ClassVar[bool] = True
    of: tuple[str, ...] = option((), "outputs to differentiate; () means all float outputs")
    wrt: tuple[str, ...] = option((), "inputs to differentiate with respect to; () means all float inputs")

    def compares(self) -> None:
        """See `Pass`: it is told names of inputs and outputs."""

    def run(self, state: Graph, report: Report) -> Graph:
        """The graph of gradients. Raises DlcError: unknown names, no floats, or ops that have no gradient."""
        check_closed(state, self.name)
        outputs = chosen_floats("output", self.of, dict(zip(state.names, state.outputs, strict=True)))
        wrt = chosen_floats("input", self.wrt, {i.name: i for i in state.inputs})
        seeds = seed_inputs(outputs, {i.name for i in state.inputs})
        found = sweep(tuple(outputs.values()), seeds, tuple(wrt.values()), state.origins)
        report.count("gradients", len(wrt))
        if found.scattered:
            report.note(f"scattered derivatives: {len(found.scattered)}")
        return differentiated(state, seeds, tuple(wrt), found, report, self.name)


def differentiated(
    state: Graph, seeds: Sequence[Input], names: Sequence[str], found: Sweep, report: Report, what: str
) -> Graph:
    """The graph of the derivatives that a sweep found, one per name, and what there is to say of them.

    It takes the inputs of `state` that are still read, then `seeds`.
    """
    report.missed_as = "scattered"
    for node, reason in found.scattered:
        report.missed(node, f"its {what} adds into memory at computed indices: {reason}")
    zero = [name for name, g in zip(names, found.gradients, strict=True) if isinstance(g, Splat)]
    if zero:
        report.note(f"zero everywhere: {', '.join(zero)}")
    read = set(toposort(found.gradients))
    inputs = (*(i for i in state.inputs if i in read), *seeds)
    outputs = tuple(f"d{name}" for name in names)
    aliases = _in_and_out(inputs, outputs, found.gradients)
    return with_live_origins(Graph(inputs, found.gradients, outputs, aliases, found.origins))


def chosen_floats(what: str, names: Sequence[str], known: Mapping[str, T], stage: str = "gradient") -> dict[str, T]:
    """The values of these names, or of all that are floats. Raises DlcError (USAGE)."""
    floats = {name: op for name, op in known.items() if op.dtype.is_float}
    if not names and not floats:
        raise _refused(stage, f"the model has no {what} of a float type", "only floats have gradients")
    for k, name in enumerate(names):
        if name not in known:
            raise _refused(stage, f"the model has no {what} {quote(name)}", did_you_mean(name, known, f"{what}s"))
        if name not in floats:
            raise _refused(
                stage,
                f"{what} {quote(name)} is {known[name].type}: only floats have gradients",
                f"{what}s that have: {', '.join(map(quote, floats)) or 'none'}",
            )
        if name in names[:k]:
            raise _refused(stage, f"{what} {quote(name)} is named twice", "name it once")
    return {name: floats[name] for name in names} if names else floats


def _refused(stage: str, message: str, help: str) -> DlcError:
    return error("no-gradient", f"{stage}: {message}", help=help, exit_code=ExitCode.USAGE)


def seed_inputs(outputs: Mapping[str, Op], taken: set[str]) -> tuple[Input, ...]:
    """One input per value, named `d` and its name; with `_` behind where the model has an input of that name."""
    found: list[Input] = []
    for output, op in outputs.items():
        name = f"d{output}"
        while name in taken:
            name += "_"
        taken.add(name)
        found.append(Input(name, op.type))
    return tuple(found)


def _in_and_out(inputs: Sequence[Input], names: Sequence[str], outputs: Sequence[Op]) -> tuple[tuple[int, int], ...]:
    """(output, input) of one name: what the model updates in place has one derivative, updated in place too."""
    places = {(i.name, i.type): k for k, i in enumerate(inputs)}
    pairs = ((n, places.get((name, op.type))) for n, (name, op) in enumerate(zip(names, outputs, strict=True)))
    return tuple((n, k) for n, k in pairs if k is not None)
