"""Which values of a model are trained: its named constants, by patterns on their names.

    weights                    every parameter of rank 1 or more; statistics of batch normalisations are none
    classifier.*,*.bias        those whose names match a pattern
    !encoder.*                 all but these; later patterns count more
    !norms                     all but scales and shifts of batch normalisations, if there are any

Patterns are those of a shell: `*`, `?`, `[abc]`; case counts.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Final

from dlc.base.diagnostics import ExitCode, did_you_mean, error, quote
from dlc.graph import Constant, Input, Op, toposort
from dlc.ops.normalize import BatchNorm
from dlc.spec import OptionError

ALL: Final = "weights"
"""The pattern for what is trained by default."""
NORMS: Final = "norms"
"""The pattern for scales and shifts of batch normalisations."""


def parameters(outputs: Sequence[Op]) -> Mapping[str, Op]:
    """Parameters that the outputs depend on through floats: constants with names, inputs that are weights; by name.

    In the order in which the outputs are computed. Constants without elements are left out.
    """
    order = toposort(outputs)
    live = {op.digest for op in outputs if _is_float(op)}
    for op in reversed(order):
        if op.digest in live:
            live.update(x.digest for x in op.operands if _is_float(x))
    return {name: op for op in order if op.digest in live and (name := _name(op)) and op.type.size}


def chosen(patterns: Sequence[str], outputs: Sequence[Op]) -> Mapping[str, Op]:
    """The parameters of `outputs` that patterns choose, by name (see the module).

    Raises:
        DlcError: (USAGE) a pattern fits nothing, or nothing is chosen.
    """
    known = parameters(outputs)
    if not known:
        _check_inputs(patterns, outputs)
        raise refused(
            "the model has no parameters that its output depends on",
            "run autodiff before fold-constants, which drops the names of constants; if the weights are inputs, "
            "name them and set their initial values: wrt=w*,init=kaiming-uniform",
        )
    default = _default(known, outputs)
    taken = set(default) if not patterns or patterns[0].startswith("!") else set[str]()
    for pattern in patterns:
        name = pattern.removeprefix("!")
        fits = default if name == ALL and name not in known else {n for n in known if fnmatchcase(n, name)}
        if name == NORMS and name not in known:
            fits = _of_norms(known, outputs)
            if not fits and pattern.startswith("!"):
                continue
        if not fits and pattern.startswith("!") and _inputs((name,), outputs):
            continue  # data is never trained
        if not fits:
            _check_inputs((name,), outputs)
            if name == ALL:
                raise refused(
                    f"all parameters that the output depends on are scalars: {_listed(known)}",
                    "weights of integers, as in quantised models, are not trained; wrt=NAME trains a scalar",
                    name,
                )
            raise refused(f"no parameter is named {quote(name)}", did_you_mean(name, known, "parameters"), name)
        taken = taken - fits if pattern.startswith("!") else taken | fits
    if not taken:
        raise refused("no parameter is left to train", f"parameters are: {_listed(known)}")
    if stored := [f"{quote(n)} {known[n].type}" for n in known if n in taken and known[n].dtype.library]:
        help = "export the model with them in float or float16, or leave them out: wrt='!NAME'"
        raise refused(f"parameters of types that are for storage alone: {', '.join(stored)}", help)
    return {name: op for name, op in known.items() if name in taken}


def frozen(chosen: Mapping[str, Op], outputs: Sequence[Op]) -> tuple[str, ...]:
    """Names of the weights of `outputs` that are not among those chosen, though they would be by default."""
    known = parameters(outputs)
    default = _default(known, outputs)
    return tuple(name for name in known if name in default and name not in chosen)


def _default(known: Mapping[str, Op], outputs: Sequence[Op]) -> set[str]:
    """Scalars are mostly settings (an epsilon, a scale), and statistics are not what a gradient should move."""
    norms = (op for op in toposort(outputs) if isinstance(op, BatchNorm))
    statistics = {x.digest for op in norms for x in (op.mean, op.var)}
    return {name for name, op in known.items() if op.shape and op.digest not in statistics}


def _of_norms(known: Mapping[str, Op], outputs: Sequence[Op]) -> set[str]:
    norms = (op for op in toposort(outputs) if isinstance(op, BatchNorm))
    own = {x.digest for op in norms for x in (op.scale, op.bias)}
    return {name for name, op in known.items() if op.digest in own}


def _inputs(patterns: Sequence[str], outputs: Sequence[Op]) -> list[str]:
    """Float inputs with data that patterns name."""
    data = (op.name for op in toposort(outputs) if isinstance(op, Input) and op.role == "data" and op.dtype.is_float)
    return [name for name in data if any(fnmatchcase(name, p) for p in patterns)]


def _check_inputs(patterns: Sequence[str], outputs: Sequence[Op]) -> None:
    """Refuse inputs that are named as weights and have no value to start with."""
    if named := _inputs(patterns, outputs):
        message = f"inputs of the model have no initial values: {_listed(named)}"
        raise refused(message, "to train them, set their initial values: init=kaiming-uniform", patterns[0])


def _is_float(op: Op) -> bool:
    return any(t.dtype.is_float for t in op.types)


def _name(op: Op) -> str:
    match op:
        case Constant(name=name):
            return name
        case Input(name=name, role="weight"):
            return name
        case _:
            return ""


def _listed(names: Collection[str], limit: int = 8) -> str:
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(map(quote, list(names)[:limit])) + more


def refused(message: str, help: str, pattern: str = "") -> OptionError:
    """What is wrong with `wrt`, or with one of its patterns."""
    problem = error("no-weights", f"autodiff: {message}", help=help, exit_code=ExitCode.USAGE)
    return OptionError(problem, "wrt", pattern)
