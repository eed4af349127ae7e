"""What is wrong with a kernel by itself: names, ranks, axes, types, and subscripts that leave their tensors."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache

from dlc.base.types import bool_
from dlc.kernel.check.access import accesses
from dlc.kernel.check.inside import find
from dlc.kernel.expr import Apply, Axis, Load, walk
from dlc.kernel.kernel import Kernel
from dlc.kernel.nest import Nest
from dlc.kernel.print import axis_names, print_expr, print_nest
from dlc.kernel.scalar import SCALARS


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong, and the nest that it is wrong with."""

    message: str
    nest: str = ""
    """Text of the nest; "" where the kernel as a whole is meant."""

    def __str__(self) -> str:
        """The message alone."""
        return self.message


@lru_cache(maxsize=1 << 12)  # the steps of a build leave most kernels as they are, and layers of a model share them
def kernel_problems(kernel: Kernel) -> tuple[Problem, ...]:
    """Everything that is wrong with a kernel; empty when it is sound."""
    names = Counter(p.name for p in (*kernel.params, *kernel.results, *kernel.locals))
    out = [Problem(f"{count} tensors are named {name}") for name, count in names.items() if count > 1]
    writable = {p.name for p in (*kernel.results, *kernel.locals)}
    for k, nest in enumerate(kernel.nests):
        if nest.out in writable:
            # Types are asked only of names that exist, subscripts only of what has types.
            wrong = _name_problems(kernel, nest) or _type_problems(kernel, nest) or _range_problems(kernel, nest)
            found = [f"nest {k}: {m}" for m in wrong]
        else:
            found = [f"nest {k} writes {nest.out}, which is not a result or local"]
        shape = kernel.tensors[nest.out].shape if nest.out in kernel.tensors else ()
        out += [Problem(message, print_nest(nest, shape, {})) for message in found]
    return tuple(out)


def _name_problems(kernel: Kernel, nest: Nest) -> list[str]:
    rank = len(kernel.tensors[nest.out].shape)
    out = [] if len(nest.index) == rank else [f"{nest.out} has {rank} dimensions, written with {len(nest.index)}"]
    if len({a.name for a in nest.axes}) < len(nest.axes):
        out.append("two axes have one name")
    out += [f"axis {a.name} has the extent {a.extent}" for a in nest.axes if a.extent < 0]
    repeated = [a for a in nest.reduction_axes if a.extent > 1]
    if nest.reduce is None and nest.where is None and repeated:
        out.append(f"{nest.out} is written again for each {repeated[0].name}, and nothing reduces")
    known = set(nest.axes)
    for x in (x for e in nest.exprs() for x in walk(e)):
        match x:
            case Axis(name, _) if x not in known:
                out.append(f"axis {name} is not one of the nest's")
            case Load(param, _) if param not in kernel.tensors:
                out.append(f"{param} is not a tensor of the kernel")
            case Load(param, index) if len(index) != len(kernel.tensors[param].shape):
                out.append(f"{param} is loaded with {len(index)} subscripts")
            case Apply(fn, args) if fn not in SCALARS or len(args) != SCALARS[fn].arity:
                out.append(f"{fn} of {len(args)} arguments is not a function")
            case _:
                pass
    return list(dict.fromkeys(out))


def _type_problems(kernel: Kernel, nest: Nest) -> list[str]:
    out: list[str] = []
    try:
        found = kernel.dtype_of(nest.body)
        if found is not None and found != kernel.tensors[nest.out].dtype:
            out.append(f"a value of type {found} is stored into {kernel.tensors[nest.out].type}")
        guard = bool_ if nest.where is None else kernel.dtype_of(nest.where)
        if guard not in (bool_, None):
            out.append(f"the guard is of type {guard}")
        for i in (*nest.index, *(i for e in nest.exprs() for x in walk(e) if isinstance(x, Load) for i in x.index)):
            subscript = kernel.dtype_of(i)
            if subscript is not None and not subscript.is_integer:
                out.append(f"a subscript is of type {subscript}")
    except TypeError as e:
        return [str(e)]
    return out


def _range_problems(kernel: Kernel, nest: Nest) -> list[str]:
    """Subscripts that leave their tensor at a point where the nest loads or stores."""
    if nest.points == 0:
        return []
    out: dict[str, None] = {}
    names = axis_names(nest)
    for access in accesses(nest):
        for d, size in enumerate(kernel.tensors[access.tensor].shape):
            found = find(kernel, access, d)
            if found.verdict == "outside":
                low, high = found.span
                place = f"subscript {print_expr(access.index[d], 0, names)} of {access.tensor}"
                out[f"{place} runs from {low} to {high}, dimension {d} has {size}"] = None
    return list(out)
