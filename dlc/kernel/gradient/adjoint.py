"""The adjoint of a kernel: cotangents of its parameters from those of its results, as a kernel again.

    out[g(v)] (r)= body(x[f(v)], …)     →     d(x)[f(v)] += d(out)[g(v)] · ∂body/∂x[f(v)]     for every load of x

Nests are swept in reverse. Each occurrence of a tensor is one nest over the same points, which `gather` turns around so
that it has plain subscripts on the left; where that is impossible (subscripts are data) it adds into zeroed memory.
`tidy` merges what runs over equal spaces. Values of the primal kernel that derivatives need are computed again.

Griewank and Walther, "Evaluating Derivatives", 2nd ed. 2008, chapters 3 and 4.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from dlc.base.diagnostics import DlcError, ExitCode, error
from dlc.kernel.expr import Expr, Load
from dlc.kernel.fusion.merge import inline_locals
from dlc.kernel.fusion.tidy import tidy
from dlc.kernel.gradient.adjoint_expr import Pull, tree_size
from dlc.kernel.gradient.adjoint_nests import NestBuilder, elements, flows
from dlc.kernel.gradient.gather import NoInverse, gather
from dlc.kernel.kernel import Kernel
from dlc.kernel.nest import Nest, Param
from dlc.kernel.rounding import rounded_once
from dlc.kernel.simplify import depth, simplify_nest
from dlc.kernel.text import parse_kernel, print_kernel

MAX_NODES = 100_000
"""Nodes of all expressions of an adjoint: the product of 200 factors has 80,000."""
MAX_DEPTH = 256
"""Height of an expression: what the recursive functions of this package walk safely."""
_PLAIN_DEPTH = 60
"""Height up to which the text of any expression can be read again."""


@dataclass(frozen=True)
class Adjoint:
    """The adjoint of a kernel, and what it reads.

    Attributes:
        kernel: Its parameters are the primal parameters that it reads (ascending), then the cotangents of results that
            it reads (ascending); its results are the cotangents of the parameters asked for, in the order asked for.
        primals: Numbers of the primal kernel's parameters among its own.
        cotangents: Numbers of the primal kernel's results whose cotangents it reads.
        scattered: For every nest that adds at computed subscripts, why it must.
    """

    kernel: Kernel
    primals: tuple[int, ...]
    cotangents: tuple[int, ...]
    scattered: tuple[str, ...]


def adjoint(kernel: Kernel, wrt: Sequence[int]) -> Adjoint:
    """Cotangents of parameters, given those of the results: `d(p) = Σ d(r) · ∂r/∂p` over all results r.

    Args:
        kernel: Every tensor is written completely before it is read.
        wrt: Numbers of parameters, each once. One of integers, or that no result depends on, gets zeros.

    Raises:
        DlcError: an expression of the adjoint would be too large, or the kernel reads what it has not finished.
    """
    if len(set(wrt)) < len(wrt):
        raise ValueError(f"parameters {list(wrt)} are not distinct")
    deepest = max((depth(n.body) for n in kernel.nests), default=0)
    if deepest > MAX_DEPTH:
        raise _too_large(f"an expression is {deepest} operations deep, derivatives are taken of {MAX_DEPTH}")
    sweep = _Sweep(kernel, tuple(wrt))
    sweep.run()
    return sweep.finished()


@dataclass
class _Sweep:
    """One reverse sweep under construction."""

    kernel: Kernel
    wrt: tuple[int, ...]
    program: NestBuilder = field(default_factory=NestBuilder)
    fed: set[str] = field(default_factory=set[str])
    scattered: list[str] = field(default_factory=list[str])
    sizes: dict[int, int] = field(default_factory=dict[int, int])
    nodes: int = 0
    kept: list[Expr] = field(default_factory=list[Expr])

    def __post_init__(self) -> None:
        self.pull = Pull(self.kernel, self._active())
        self.given = {p.name: Param(f"given.{p.name}", p.type) for p in self.kernel.results}
        self.own = {p.name: Param(f"d.{p.name}", p.type) for p in self.kernel.tensors.values()}

    def _active(self) -> frozenset[str]:
        """The parameters asked for, and what depends on them through values of floating point."""
        found = frozenset(p.name for k in self.wrt if (p := self.kernel.params[k]).dtype.is_float)
        for nest in self.kernel.nests:
            if self.kernel.tensors[nest.out].dtype.is_float and Pull(self.kernel, found).reaches(nest.body):
                found |= {nest.out}
        return found

    def run(self) -> None:
        """Every tensor that the kernel writes, the last finished first: then all that it feeds are done before it."""
        last = {n.out: k for k, n in enumerate(self.kernel.nests)}
        for k, n in enumerate(self.kernel.nests):
            early = next((name for name in sorted(n.reads()) if last.get(name, -1) >= k), None)
            if early is not None:
                message = f"nest {k} reads {early}, which nest {last[early]} still writes"
                raise error("kernel-gradient", message, help="give each version of a tensor a name of its own")
        for name in sorted((n for n in last if n in self.pull.active), key=lambda n: -last[n]):
            cotangent = self._cotangent(name)
            if cotangent is None:
                continue
            for flow in flows(self.kernel, self.kernel.tensors[name], cotangent, self.program):
                found = self.pull(flow.nest.body, flow.g, flow.nest.where)
                self._measure(found.values())
                for (load, where), value in found.items():
                    self._feed(load, replace(flow.nest, index=load.index, body=value, reduce="add", where=where))

    def _cotangent(self, name: str) -> Param | None:
        """Where the whole cotangent of a result or local is; None when it receives nothing."""
        own, given = self.own[name], self.given.get(name)
        if name not in self.fed:
            return given
        self.program.locals.append(own)
        if given is not None:
            self.program.each(own, given[elements(own.shape)[0]], "add")
        return own

    def _measure(self, bodies: Iterable[Expr]) -> None:
        """Refuse expressions that are too large, before anything walks them."""
        for body in bodies:
            self.kept.append(body)  # sizes are looked up by identity, so what was counted must stay
            self.nodes += tree_size(body, self.sizes)
            if self.nodes > MAX_NODES:
                raise _too_large(f"the derivative has more than {MAX_NODES} operations")
            if depth(body) > MAX_DEPTH:
                raise _too_large(f"the derivative nests its operations deeper than {MAX_DEPTH}")

    def _feed(self, load: Load, scatter: Nest) -> None:
        """Add to a cotangent at the subscripts of a load."""
        self.fed.add(load.param)
        out = self.own[load.param]
        scatter = replace(scatter, out=out.name)
        turned = gather(scatter, out.shape)
        if isinstance(turned, NoInverse):
            self.scattered.append(turned.reason)
            self.program.nests.append(simplify_nest(scatter))
        else:
            self.program.nests += turned

    def finished(self) -> Adjoint:
        """The kernel of what the cotangents asked for need."""
        results = tuple(self.own[self.kernel.params[k].name] for k in self.wrt)
        tensors = self._tensors(results)
        used = _live((*self.kernel.nests, *self.program.nests), {p.name for p in results})
        # What is computed again keeps its order of operations: its bits are those of the primal kernel.
        again = [simplify_nest(n) for n in used if n.out in self.kernel.tensors]
        nests = (*again, *tidy([n for n in used if n.out not in self.kernel.tensors], tensors))
        read = {name for n in nests for name in n.reads()}
        given = {p.name for p in (*self.kernel.params, *self.given.values(), *results)}
        # A tensor whose nests all had no points is read, as zeros, but not written.
        used_names = read | {n.out for n in nests}
        locals_ = tuple(p for p in tensors.values() if p.name in used_names and p.name not in given)
        primals = tuple(k for k, p in enumerate(self.kernel.params) if p.name in read)
        cotangents = tuple(k for k, p in enumerate(self.kernel.results) if self.given[p.name].name in read)
        params = (
            *(self.kernel.params[k] for k in primals),
            *(self.given[self.kernel.results[k].name] for k in cotangents),
        )
        whole = rounded_once(inline_locals(Kernel.canonical(params, results, nests, locals_)))
        _check_text(whole)
        return Adjoint(whole, primals, cotangents, tuple(self.scattered))

    def _tensors(self, results: Sequence[Param]) -> Mapping[str, Param]:
        """All tensors of the primal kernel and of its adjoint, by name."""
        found = (*self.kernel.tensors.values(), *self.given.values(), *results, *self.program.locals)
        return {p.name: p for p in found}


def _check_text(kernel: Kernel) -> None:
    """Kernels travel as text, whose reader has a limit of its own."""
    if max((depth(n.body) for n in kernel.nests), default=0) > _PLAIN_DEPTH:
        try:
            parse_kernel(print_kernel(kernel))
        except DlcError as e:
            raise _too_large("the derivative nests its operations too deep for the text of a kernel") from e


def _too_large(message: str) -> DlcError:
    return error(
        "kernel-gradient",
        message,
        help="give parts of the expression a name: a tensor of their own",
        exit_code=ExitCode.LIMIT,
    )


def _live(nests: Iterable[Nest], wanted: set[str]) -> tuple[Nest, ...]:
    """The nests that what is wanted depends on."""
    kept: list[Nest] = []
    for nest in reversed(tuple(nests)):
        if nest.out in wanted:
            wanted |= nest.reads()
            kept.append(nest)
    return tuple(reversed(kept))
