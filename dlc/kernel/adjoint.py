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

from dlc.diagnostics import ExitCode, error
from dlc.kernel.adjoint_expr import Pull, tree_size
from dlc.kernel.adjoint_nests import Program, elements, flows
from dlc.kernel.expr import Const, Expr, Load
from dlc.kernel.merge import inline_locals
from dlc.kernel.nest import Kernel, Nest, Param
from dlc.kernel.schedules.groups import plain_write
from dlc.kernel.simplify import depth, simplify_nest
from dlc.kernel.tidy import tidy

MAX_NODES = 100_000
"""Nodes of all expressions of an adjoint: the product of 200 factors has 80,000."""
MAX_DEPTH = 400
"""Height of an expression: what the recursive functions of this package walk safely."""


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
    sweep = _Sweep(kernel, tuple(wrt))
    sweep.run()
    return sweep.finished()


@dataclass
class _Sweep:
    """One reverse sweep under construction."""

    kernel: Kernel
    wrt: tuple[int, ...]
    program: Program = field(default_factory=Program)
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
                for (load, where), value in self.pull(flow.nest.body, flow.g, flow.nest.where).items():
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

    def _feed(self, load: Load, scatter: Nest) -> None:
        """Add to a cotangent at the subscripts of a load."""
        self.kept.append(scatter.body)  # sizes are told by identity, so what was counted must stay
        self.nodes += tree_size(scatter.body, self.sizes)
        if self.nodes > MAX_NODES or depth(scatter.body) > MAX_DEPTH:
            raise error(
                "kernel-gradient",
                f"the derivative has more than {MAX_NODES} operations, or more than {MAX_DEPTH} inside one another",
                help="give parts of the expression a name: a tensor of their own",
                exit_code=ExitCode.LIMIT,
            )
        self.fed.add(load.param)
        out = self.own[load.param]
        scatter = simplify_nest(replace(scatter, out=out.name))
        if scatter.where == Const(False):
            return
        if not plain_write(scatter, out.shape):
            self.scattered.append(f"the subscripts of {load.param} are not axes")
        self.program.nests.append(scatter)

    def finished(self) -> Adjoint:
        """The kernel of what the cotangents asked for need."""
        results = tuple(self.own[self.kernel.params[k].name] for k in self.wrt)
        tensors = self._tensors(results)
        used = _live((*self.kernel.nests, *self.program.nests), {p.name for p in results})
        nests = tidy(used, tensors)
        read = {name for n in nests for name in n.reads()}
        written = {n.out for n in nests}
        locals_ = tuple(p for p in tensors.values() if p.name in written and p not in results)
        primals = tuple(k for k, p in enumerate(self.kernel.params) if p.name in read)
        cotangents = tuple(k for k, p in enumerate(self.kernel.results) if self.given[p.name].name in read)
        params = (
            *(self.kernel.params[k] for k in primals),
            *(self.given[self.kernel.results[k].name] for k in cotangents),
        )
        whole = inline_locals(Kernel.canonical(params, results, nests, locals_))
        return Adjoint(whole, primals, cotangents, tuple(self.scattered))

    def _tensors(self, results: Sequence[Param]) -> Mapping[str, Param]:
        """All tensors of the primal kernel and of its adjoint, by name."""
        found = (*self.kernel.tensors.values(), *self.given.values(), *results, *self.program.locals)
        return {p.name: p for p in found}


def _live(nests: Iterable[Nest], wanted: set[str]) -> tuple[Nest, ...]:
    """The nests that what is wanted depends on."""
    kept: list[Nest] = []
    for nest in reversed(tuple(nests)):
        if nest.out in wanted:
            wanted |= nest.reads()
            kept.append(nest)
    return tuple(reversed(kept))
