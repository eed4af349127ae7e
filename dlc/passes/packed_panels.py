"""Constants of less than 8 bits that one row is multiplied by, in panels of columns: a run reads them in order.

    r[c] += x[k]·((f32(q[c,k]) - z[c,b])·s[c,b])
    →
    r[c] += x[k]·((f32(q'[c//32,k//8,c%32,k%8]) - z'[c//32,b,c%32])·s'[c//32,b,c%32])

A word of 32 bits holds neighbouring terms of one column, and a vector of words those of a panel's columns: an element
of each word is a shift and a mask of the whole vector.
"""

from __future__ import annotations

from collections.abc import Collection

from dlc.graph.op import Op
from dlc.kernel.expr import Apply, Axis, Expr, Load, axes_in, loads
from dlc.kernel.kernel import Kernel
from dlc.kernel.nest import Nest, Param
from dlc.kernel.schedules.machine import PANEL, WIDE_PANEL, WORD_BITS
from dlc.kernel.simplify import linear, simplify_nest
from dlc.passes.panels import in_words, packed, packed_index, words_index


def row_in_panels(
    kernel: Kernel, args: tuple[Op, ...], opened: Collection[str]
) -> tuple[Kernel, tuple[Op, ...]] | None:
    """The same on constants in panels; None where no product of one row reads them alone.

    Args:
        kernel: With a factor that is computed of constants.
        args: Of its parameters.
        opened: Digests of the constants that factors are computed of.
    """
    given = {p.name: a for p, a in zip(kernel.params, args, strict=True)}
    for k, nest in enumerate(kernel.nests):
        found = _factor(nest)
        if found is None:
            continue
        column, factor = found
        reads = [x for x in loads(factor) if x.param in given]
        if not reads or not all(given[x.param].digest in opened and _alone(kernel, x) for x in reads):
            continue
        if not all(column in x.index and column.extent == given[x.param].shape[x.index.index(column)] for x in reads):
            continue
        each = [x for x in reads if set(nest.reduction_axes) <= set(axes_in(x))]  # not zero points of blocks
        narrow = [x for x in each if given[x.param].dtype.per_byte > 1 and _terms(x, nest, given[x.param]) is not None]
        if len(narrow) == 1:
            return _moved(kernel, k, given, column, reads, narrow[0])
    return None


def _factor(nest: Nest) -> tuple[Axis, Expr] | None:
    """The only axis of a product's result, and the factor that has it, if whole panels of it there are."""
    match nest.body:
        case Apply("mul", (x, y)) if nest.reduce == "add" and nest.where is None:
            a, b = (x, y) if isinstance(x, Load) else (y, x)
        case _:
            return None
    columns = axes_in(*nest.index)
    if not isinstance(a, Load) or len(columns) != 1 or columns[0] in axes_in(a) or columns[0] not in axes_in(b):
        return None
    return (columns[0], b) if columns[0].extent % PANEL == 0 else None


def _alone(kernel: Kernel, load: Load) -> bool:
    """Whether nothing else reads a load's tensor."""
    return sum(e.param == load.param for n in kernel.nests for x in n.exprs() for e in loads(x)) == 1


def _terms(load: Load, nest: Nest, value: Op) -> Axis | None:
    """The axis along whose neighbouring elements words are made; None where words would hold other terms too."""
    word = WORD_BITS // value.dtype.bits
    others = [i for i in load.index if i not in nest.index]
    form = linear(others[-1]) if others else None
    if form is None or value.shape[-1] % word or load.index[-1] != others[-1]:
        return None
    steps = dict(form.terms)
    near = [x for x in nest.reduction_axes if steps.pop(x, 0) == 1 and x.extent % word == 0]
    whole = form.constant % word == 0 and all(step % word == 0 for step in steps.values())
    return near[0] if len(near) == 1 and whole else None


def _moved(
    kernel: Kernel, k: int, given: dict[str, Op], column: Axis, reads: list[Load], narrow: Load
) -> tuple[Kernel, tuple[Op, ...]]:
    nest = kernel.nests[k]
    word = WORD_BITS // given[narrow.param].dtype.bits
    terms = _terms(narrow, nest, given[narrow.param])
    assert terms is not None
    values, places = dict(given), dict[str, tuple[Expr, ...]]()
    panel = PANEL if column.extent % WIDE_PANEL else WIDE_PANEL
    for x in reads:
        d = x.index.index(column)
        order = (d, *(j for j in range(len(x.index)) if j != d))
        values[x.param], places[x.param] = packed(given[x.param], order, panel), packed_index(x, order, panel)
    values[narrow.param] = in_words(values[narrow.param], word)
    places[narrow.param] = words_index(places[narrow.param], word)
    nest = nest.map_loads(lambda x: Load(x.param, places[x.param]) if x.param in places else x)
    outer, each = Axis(terms.name, terms.extent // word), Axis(_other_name(nest), word)
    axes = tuple(y for x in nest.axes for y in ((outer, each) if x == terms else (x,)))
    nests = list(kernel.nests)
    nests[k] = simplify_nest(nest.substitute({terms: outer * word + each}, axes))
    params = tuple(Param(p.name, values[p.name].type) for p in kernel.params)
    changed = Kernel.canonical(params, kernel.results, tuple(nests), kernel.locals)
    return changed, tuple(values[p.name] for p in kernel.params)


def _other_name(nest: Nest) -> str:
    names = {a.name for a in nest.axes}
    return next(n for n in (f"w{k}" for k in range(len(names) + 1)) if n not in names)
