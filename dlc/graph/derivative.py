"""The derivative of an op that declares a kernel: a call of the kernel's adjoint.

    y = call(k, x, w), dy     →     dx = call(adjoint of k by x, w, dy)

The adjoint reads only what it needs. A cotangent that passes through unchanged, as that of a sum does, takes no call.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from dlc.base.diagnostics import DlcError
from dlc.graph.op import Op
from dlc.graph.structure import Call, Input, Item
from dlc.kernel.define import ShapeError
from dlc.kernel.expr import Load
from dlc.kernel.fusion.inline import is_pointwise_map
from dlc.kernel.gradient.adjoint import Adjoint, adjoint
from dlc.kernel.kernel import Kernel
from dlc.kernel.nest import Nest, Param
from dlc.kernel.rounding import rounded_as, unrounded

_HELP: Final = "differentiate with respect to inputs after it, or write it with ops that have a gradient"


class Refused(Exception):
    """Why an op has no gradient."""

    def __init__(self, reason: str, help: str = _HELP) -> None:
        super().__init__(reason)
        self.reason, self.help = reason, help


class Derivatives:
    """Makes the calls; remembers adjoints, because equal kernels occur many times in a model."""

    def __init__(self) -> None:
        self._adjoints: dict[tuple[str, tuple[int, ...]], Adjoint] = {}

    def __call__(
        self, op: Op, seeds: Sequence[Op | None], wanted: Sequence[bool]
    ) -> tuple[Sequence[Op | None], tuple[str, ...]]:
        """Cotangents of the operands that are wanted, and why derivatives are scatters, if they are.

        Raises:
            Refused: the op has no kernel, or its kernel no derivative.
        """
        try:
            kernel = _of_results(op.kernel, [s is not None for s in seeds])
        except (TypeError, ShapeError) as e:
            raise Refused(str(e)) from None
        given = [s for s in seeds if s is not None]
        kernel, distinct = _of_distinct(kernel, op.operands)
        wrt = tuple(k for k, x in enumerate(distinct) if wanted[op.operands.index(x)])
        passed = self._passed_on(kernel, wrt)
        found = {k: given[n] for k, n in passed.items() if n is not None}
        rest = tuple(k for k in wrt if k not in passed)
        reasons: tuple[str, ...] = ()
        if rest:
            made = self._adjoint(kernel, rest)
            reasons = tuple(_named(reason, distinct) for reason in made.scattered)
            args = (*(distinct[k] for k in made.primals), *(given[k] for k in made.cotangents))
            call = Call(made.kernel, args)
            found |= zip(rest, [call] if len(rest) == 1 else [Item(call, k) for k in range(len(rest))], strict=True)
        # A value that is read as several operands has one cotangent; it must not count once for each.
        first = {op.operands.index(x): found.get(k) for k, x in enumerate(distinct)}
        return [first.get(k) for k in range(len(wanted))], reasons

    def _passed_on(self, kernel: Kernel, wrt: tuple[int, ...]) -> Mapping[int, int | None]:
        """Parameters whose cotangent needs no work: which result's it is, or None where it is zero."""
        made = self._adjoint(kernel, wrt)
        return {k: n for k, r in zip(wrt, made.kernel.results, strict=True) if (n := _source(made, r)) != -1}

    def _adjoint(self, kernel: Kernel, wrt: tuple[int, ...]) -> Adjoint:
        key = kernel.digest, wrt
        if key not in self._adjoints:
            try:
                self._adjoints[key] = _of_numbers(kernel, wrt)
            except DlcError as e:
                diagnostic = e.diagnostics[0]
                raise Refused(diagnostic.message, diagnostic.help or _HELP) from None
        return self._adjoints[key]


def _of_numbers(kernel: Kernel, wrt: tuple[int, ...]) -> Adjoint:
    """The adjoint of a kernel. That of narrow floats is computed in f32, and rounded once."""
    plain = unrounded(kernel)
    made = adjoint(plain, wrt)
    if plain is kernel:
        return made
    read = (*(kernel.params[k] for k in made.primals), *(kernel.results[k] for k in made.cotangents))
    params = {p.name: of.dtype for p, of in zip(made.kernel.params, read, strict=True)}
    results = {r.name: kernel.params[k].dtype for r, k in zip(made.kernel.results, wrt, strict=True)}
    return replace(made, kernel=rounded_as(made.kernel, params, results))


def _named(reason: str, operands: Sequence[Op]) -> str:
    """A reason that names parameters, with the model's inputs by their names: d.p0 is the gradient of p0."""

    def name(found: re.Match[str]) -> str:
        op = operands[int(found[2])]
        return f"{'d' if found[1] else ''}{op.name}" if isinstance(op, Input) else found[0]

    return re.sub(r"\b(d\.)?p(\d+)\b", name, reason)


def _source(made: Adjoint, result: Param) -> int | None:
    """Which result of the primal kernel a gradient is the plain cotangent of; None: it is zero; -1: none of these."""
    writers = [n for n in made.kernel.nests if n.out == result.name]
    if not writers:
        return None
    match writers:
        case [Nest(index=index, body=Load(param, subscripts)) as nest] if subscripts == index:
            names = [p.name for p in made.kernel.params[len(made.primals) :]]
            if (
                param in names
                and is_pointwise_map(nest, result.shape)
                and made.kernel.tensors[param].type == result.type
            ):
                return made.cotangents[names.index(param)]
            return -1
        case _:
            return -1


def _of_results(kernel: Kernel, wanted: Sequence[bool]) -> Kernel:
    """The kernel with the results that nobody differentiates as locals."""
    if all(wanted):
        return kernel
    results = tuple(r for r, use in zip(kernel.results, wanted, strict=True) if use)
    others = tuple(r for r, use in zip(kernel.results, wanted, strict=True) if not use)
    return Kernel.canonical(kernel.params, results, kernel.nests, (*kernel.locals, *others))


def _of_distinct(kernel: Kernel, operands: Sequence[Op]) -> tuple[Kernel, tuple[Op, ...]]:
    """The kernel with one parameter per distinct operand: x·x has one derivative, not two to be added."""
    distinct = tuple(dict.fromkeys(operands))
    if len(distinct) == len(operands):
        return kernel, distinct
    params = tuple(kernel.params[operands.index(x)] for x in distinct)
    names = {p.name: params[distinct.index(x)].name for p, x in zip(kernel.params, operands, strict=True)}
    nests: tuple[Nest, ...] = tuple(n.rename(names) for n in kernel.nests)
    return Kernel.canonical(params, kernel.results, nests, kernel.locals), distinct
