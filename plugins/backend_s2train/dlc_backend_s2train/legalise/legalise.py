"""Ops that the device has no instruction for become compositions of ops that it has, before selection.

    clip(x, 0, 6)               →   relu(x) - relu(relu(x) - 6)
    cotangent(clip(x, 0, 6))    →   the gradient of that composition, by autodiff

Rules are declared for ops of a model (`rules.RULES`); gradients follow from them, for the composition is
differentiated with its own parts named again. Only what has a better gradient than that declares it (`GRADIENTS`).
Rules apply until none does: a composition may hold what another rule takes apart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from dlc.graph import Constant, Cotangent, Graph, Input, Op, Splat
from dlc.graph.evaluate import is_constant
from dlc.graph.gradient import sweep
from dlc.graph.graph import make_graph
from dlc_backend_s2train.defaults import NAMED
from dlc_backend_s2train.legalise.rules import GRADIENTS, RULES

Rule = Callable[[Op], Op | None]
_NAMES: Final = frozenset(NAMED)
_ROUNDS: Final = 8
"""Compositions inside of compositions; there are three at most today."""


def legalised(graph: Graph) -> Graph:
    """The graph with every op composed that a rule composes, and the gradients of those."""
    # All gradients first: as long as the ops that they belong to are there.
    return graph.rewrite(_gradient, _ROUNDS).rewrite(composed, _ROUNDS)


def composed(op: Op) -> Op | None:
    """The composition that an op becomes, of the same type; None: it stays."""
    rule = RULES.get(type(op))
    found = None if rule is None else rule(op)
    return None if found is None or found.digest == op.digest else found


def _gradient(op: Op) -> Op | None:
    if not isinstance(op, Cotangent) or op.of.text_name != op.name:
        return None
    own = GRADIENTS.get(type(op.of))
    if own is not None and (found := own(op.of, op.seed, op.operand)) is not None:
        return found
    return _derived(op)


def _derived(op: Cotangent) -> Op | None:
    """The gradient of the composition of an op; None where it has none."""
    if type(op.of) not in RULES:
        return None
    # Operands by other names: one may be computed from another, and only the op itself is differentiated.
    names: dict[Op, Op] = {
        x: Input(f"%{k}", x.type) for k, x in enumerate(op.of.operands) if not isinstance(x, Input | Constant | Splat)
    }
    names = {x: name for x, name in names.items() if not is_constant(x)}
    whole = composed(op.of.with_operands([names.get(x, x) for x in op.of.operands]))
    if whole is None:
        return None
    seed, wrt = Input("%seed", op.seed.type), names.get(op.xs[op.operand], op.xs[op.operand])
    (found,) = sweep((whole,), (seed,), (wrt,), named=_NAMES).gradients
    return _with(found, {seed: op.seed, **{name: x for x, name in names.items()}})


def _with(op: Op, known: Mapping[Op, Op]) -> Op:
    """An op with its inputs replaced."""
    return make_graph([i for i in known if isinstance(i, Input)], {"y": op}).substitute(known).outputs[0]
