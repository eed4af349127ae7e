"""The numpy interpreter of graphs: the reference semantics of the language, and the engine of constant folding."""

from __future__ import annotations

from collections.abc import Mapping

from dlc.base.diagnostics import ExitCode, error
from dlc.graph.graph import Graph
from dlc.graph.op import Op
from dlc.graph.sized import at_sizes_of
from dlc.graph.structure import Input
from dlc.graph.tensor import Array
from dlc.graph.walk import as_result, evaluate_ops


def evaluate(graph: Graph, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """Outputs of a graph by name, for inputs by name; symbolic dimensions have the sizes that the inputs have.

    Raises:
        KeyError: an input is missing.
        DlcError: (USAGE, `symbolic-dimension`) a result has a size that depends on data, or no input tells a size;
            (`wrong-argument`) an input has a size that it may not have.
    """
    graph = at_sizes_of(graph, feeds)
    _check_sizes(graph)
    known: dict[Op, Array] = {i: as_result(feeds[i.name], i.type) for i in graph.inputs}
    return dict(zip(graph.names, evaluate_ops(graph.outputs, known), strict=True))


def _check_sizes(graph: Graph) -> None:
    found = {s for op in graph.ops for s in op.finds}
    if names := sorted({s.name for op in graph.ops for s in op.symbols if s in found} if found else ()):
        raise error(
            "symbolic-dimension",
            f"the reference needs sizes that do not depend on data: {', '.join(names[:8])}",
            help="compare with onnxruntime: --reference onnxruntime",
            exit_code=ExitCode.USAGE,
        )


def is_constant(op: Op, memo: dict[str, bool] | None = None) -> bool:
    """Whether an op depends on no input, and on no op that holds graphs; `memo` carries answers between calls.

    Ends at the first of these that it comes to.
    """
    memo = {} if memo is None else memo
    stack = [op]
    while stack:
        x = stack[-1]
        unknown = None
        constant = not isinstance(x, Input) and not x.symbols and not x.body_names
        for operand in x.operands if constant else ():
            known = memo.get(operand.digest)
            if known is None:
                unknown = operand
            elif not known:
                constant = False
                break
        if constant and unknown is not None:
            stack.append(unknown)
            continue
        memo[x.digest] = constant
        stack.pop()
    return memo[op.digest]
