"""Whether a value grows with the gradients that it is computed from, so that the loss scale comes out of it again.

    g → c·g   ⇒   f(g) → c·f(g)        sums, products with something else, choices, whatever moves elements

The device's gradients are multiplied by the loss scale, and its updates divide by it. A gradient of a weight that the
host computes from such gradients has to be linear in them, as all of backpropagation is; clipping by a norm is not.
That is read off the kernels of the ops.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dlc.graph import Call, Cotangent, Input, Item, Op, toposort
from dlc.kernel.expr import Apply, Const, Expr, Load
from dlc.kernel.kernel import Kernel
from dlc_backend_s2train.select.memory import is_gradient


def is_linear(op: Op) -> bool:
    """Whether a value is linear in gradients of the device, and depends on some."""
    return _linear((op,), {})


def _linear(roots: Sequence[Op], known: Mapping[str, bool]) -> bool:
    """The same of an op on values of which it is known whether they are linear in gradients, or free of them."""
    found = dict(known)
    for x in toposort(roots):
        if x.digest in found:
            continue
        linear = _step(x, found)
        if linear is None:
            return False
        found[x.digest] = linear
    return all(found[op.digest] for op in roots)


def _step(op: Op, known: Mapping[str, bool]) -> bool | None:
    """True: linear in gradients; False: free of them; None: neither."""
    if isinstance(op, Cotangent):
        return is_gradient(op) or known[op.seed.digest]  # of a transposed convolution: as what it is made of
    if isinstance(op, Input) and op.role == "state":
        return None  # what a step counts or remembers is no part of a gradient
    given = [known[x.digest] for x in op.operands]
    if not any(given):
        return False
    if isinstance(op, Item):
        return True
    if not isinstance(op, Call) and (inner := op.expansion) is not None:
        return _linear((inner,), dict(zip((x.digest for x in op.operands), given, strict=True))) or None
    return _is_linear(op.body if isinstance(op, Call) else op.kernel, given) or None


def _is_linear(kernel: Kernel, given: Sequence[bool]) -> bool:
    """Whether all results of a kernel are linear in some of its parameters together."""
    names = {p.name for p, linear in zip(kernel.params, given, strict=True) if linear}
    for nest in kernel.nests:
        match _degree(nest.body, names):
            case 1 if nest.reduce in (None, "add"):
                names.add(nest.out)
            case 0 if not _is_zero(nest.body) and nest.out in {r.name for r in kernel.results}:
                return False
            case 0:
                pass
            case _:
                return False
    return True


def _degree(body: Expr, names: set[str]) -> int | None:
    """1: each term has just one factor of these names; 0: there is none of them; None: neither."""
    match body:
        case Load(param=param):
            return 1 if param in names else 0
        case Apply("mul", (a, b)):
            one, other = _degree(a, names), _degree(b, names)
            return None if one is None or other is None or one + other > 1 else one + other
        case Apply("div", (a, b)):
            return _degree(a, names) if _degree(b, names) == 0 else None
        case Apply("neg", (a,)):
            return _degree(a, names)
        case Apply("add" | "sub", (a, b)):
            return _together(a, b, names)
        case Apply("select", (condition, a, b)):
            return _together(a, b, names) if _degree(condition, names) == 0 else None
        case Apply(_, args):
            return 0 if all(_degree(a, names) == 0 for a in args) else None
        case _:
            return 0


def _together(a: Expr, b: Expr, names: set[str]) -> int | None:
    one, other = _degree(a, names), _degree(b, names)
    if one == other:
        return one
    free = a if one == 0 else b if other == 0 else None
    return 1 if free is not None and _is_zero(free) and 1 in (one, other) else None


def _is_zero(body: Expr) -> bool:
    return isinstance(body, Const) and body.value == 0
