"""What must hold of every kernel: dlc against brute force, and how gradients are written.

Each check raises `Wrong` with the kernel's text and the numbers; tests and the long run share them.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from unittest import mock

import numpy as np

from dlc.graph import Graph
from dlc.graph.gradient import gradients as graph_gradients
from dlc.graph.structure import Input
from dlc.kernel.evaluate import run_kernel
from dlc.kernel.expr import Apply, Axis, Const, Expr, axes_in
from dlc.kernel.gradient.adjoint import adjoint
from dlc.kernel.gradient.gather import NoInverse
from dlc.kernel.nest import Nest
from dlc.kernel.schedules.count import iterations
from dlc.kernel.simplify import conjuncts
from dlc.kernel.text import print_kernel
from tests.frontend_kernel.brute_force import run
from tests.frontend_kernel.derivatives import Gradients, gradients, second_order
from tests.frontend_kernel.random_cases import inputs
from tests.frontend_kernel.small_language import Case
from tests.frontend_kernel.through_dlc import as_double, interpreted, kernels_of, lowered, parse

Array = np.ndarray[Any, np.dtype[Any]]
Values = Mapping[str, Sequence[float]]

TOLERANCE: Final = {"float32": 1e-4, "float64": 1e-10, "int32": 0.0}
"""Of the largest element: sums of some hundred products and quotients, in another order."""
MOST_ITERATIONS: Final = 2
"""Times the iterations of the scatters and the elements written: a gather visits every element and every point."""
CENTRAL: Final = 1e-5
"""Of the largest element, for differences with a step of 1e-4."""


class Wrong(AssertionError):
    """A kernel for which a property does not hold."""

    def __init__(self, case: Case, what: str) -> None:
        super().__init__(f"{what}\n{case.text}\nins {case.ins} outs {case.outs} grad_to {case.grad_to}")


def seeds_of(case: Case, seed: int) -> dict[str, list[float]]:
    """Weights of the outputs, between -1 and 1."""
    rng = random.Random(seed)
    return {o: [rng.uniform(-1, 1) for _ in range(math.prod(case.shapes[o]))] for o in case.outs}


def compare(case: Case, name: str, got: Array, want: Any, tolerance: float | None = None) -> None:
    """Raise unless an array is what is wanted, to within its type's tolerance."""
    wanted = np.reshape(np.asarray(want, np.float64), case.shapes[name])
    if got.shape != wanted.shape:
        raise Wrong(case, f"{name} has shape {got.shape}, not {wanted.shape}")
    limit = TOLERANCE[got.dtype.name] if tolerance is None else tolerance
    scale = max(1.0, float(np.max(np.abs(wanted), initial=0.0)))
    difference = np.abs(got.astype(np.float64) - wanted)
    if not np.all(difference <= limit * scale):  # not >: NaN fails
        raise Wrong(case, f"{name} differs by {np.max(difference):.3g}\n{got}\ninstead of\n{wanted}")


def check_forward(case: Case, seed: int) -> None:
    """The reference interpreter gives what brute force gives."""
    case = as_double(case) if case.dtype == "float" else case
    values = inputs(case, seed)
    got = interpreted(parse(case), values, {})
    for name, want in run(case, values).items():
        compare(case, name, got[name], want)


def check_gradient(case: Case, seed: int) -> None:
    """Gradients are the derivatives of brute force, by the complex step and by central differences, and are gathers."""
    case = as_double(case)
    graph = parse(case, grad=True)
    values, seeds = inputs(case, seed), seeds_of(case, seed + 1)
    want = gradients(case, values, seeds, case.grad_to)
    check_gradients_are(case, interpreted(graph, values, seeds), want)
    check_written(case, graph)


def check_gradients_are(case: Case, got: Mapping[str, Array], want: Gradients) -> None:
    """All gradients asked for, in order, with these values."""
    if list(got) != [f"d{name}" for name in case.grad_to]:
        raise Wrong(case, f"gradients {list(got)}")
    for name in case.grad_to:
        compare(case, name, got[f"d{name}"], want.exact[name])
        if got[f"d{name}"].dtype == np.float64:
            compare(case, name, got[f"d{name}"], want.central[name], CENTRAL)


def check_written(case: Case, graph: Graph) -> None:
    """No nest of a gradient writes at computed places, and none tests for equality under a reduction.

    Locals may hold what the kernel itself computes on the way, and its own left side may be `A[i * 2]`.
    """
    for kernel in kernels_of(lowered(graph)):
        results = {r.name for r in kernel.results}
        for nest in kernel.nests:
            if nest.out in results and is_scatter(nest):
                raise Wrong(case, f"a scatter in\n{print_kernel(kernel)}")
            if any(equalities_under_reduction(nest)):
                raise Wrong(case, f"an equality under a reduction in\n{print_kernel(kernel)}")


def is_scatter(nest: Nest) -> bool:
    """Whether subscripts on the left are more than distinct axes, each perhaps moved by a constant."""
    axes: list[Axis] = []
    for e in nest.index:
        match e:
            case Const():
                pass
            case Axis() | Apply("add", (Axis(), Const())):
                axes += axes_in(e)
            case _:
                return True
    return len(set(axes)) < len(axes)


def equalities_under_reduction(nest: Nest) -> Iterator[Expr]:
    """Conditions `… == …` of the guard in which a reduction axis occurs."""
    reduced = set(nest.reduction_axes)
    for g in conjuncts(nest.where):
        if isinstance(g, Apply) and g.fn == "eq" and reduced & set(axes_in(g)):
            yield g


def check_scatter(case: Case, seed: int) -> None:
    """Each kernel's adjoint gives what it gives when nothing is turned into a gather, in about as many iterations."""
    rng = np.random.default_rng(seed)
    for kernel in kernels_of(lowered(parse(as_double(case)))):
        wrt = [k for k, p in enumerate(kernel.params) if p.dtype.is_float]
        with mock.patch("dlc.kernel.gradient.adjoint.gather", _refuse):
            scattered = adjoint(kernel, wrt)
        gathered = adjoint(kernel, wrt)
        arrays = [rng.choice((-1, 1), p.shape) * rng.uniform(0.5, 1.5, p.shape) for p in kernel.params]
        seeds = [rng.uniform(-1, 1, r.shape) for r in kernel.results]
        want, got = (
            run_kernel(a.kernel, [*(arrays[k] for k in a.primals), *(seeds[k] for k in a.cotangents)])
            for a in (scattered, gathered)
        )
        for k, g, w in zip(wrt, got, want, strict=True):
            if not np.allclose(g, w, rtol=1e-10, atol=1e-10 * max(1.0, float(np.max(np.abs(w), initial=0.0)))):
                raise Wrong(case, f"gather and scatter differ for parameter {k} of\n{print_kernel(kernel)}\n{g}\n{w}")
        points, more = (sum(map(iterations, a.kernel.nests)) for a in (scattered, gathered))
        if more > MOST_ITERATIONS * (points + sum(r.type.size for r in gathered.kernel.results)):
            raise Wrong(case, f"{points} iterations become {more}\n{print_kernel(gathered.kernel)}")


def _refuse(nest: Nest, shape: tuple[int, ...]) -> NoInverse:
    return NoInverse(f"{nest.out}: kept as it is, {shape}")


def check_second_order(case: Case, seed: int) -> None:
    """The gradient of a gradient, by dlc, is the difference of gradients of brute force."""
    case = as_double(case)
    first = parse(case, grad=True)
    values, seeds = inputs(case, seed), seeds_of(case, seed + 1)
    rng = random.Random(seed + 2)
    direction = {name: [rng.uniform(-1, 1) for _ in values[name]] for name in case.grad_to}
    want = second_order(case, values, seeds, direction, case.grad_to)
    there = [i for i in first.inputs if i.name in case.grad_to]
    along = [Input(f"along {name}", op.type) for name, op in zip(case.grad_to, first.outputs, strict=True)]
    found = graph_gradients(first.outputs, along, there)
    second = Graph((*first.inputs, *along), found, tuple(i.name for i in there))
    got = interpreted(second, {**values, **{f"along {name}": v for name, v in direction.items()}}, seeds)
    for name in case.grad_to:
        absent = np.zeros(case.shapes[name])  # what a gradient does not read changes nothing of it
        compare(case, name, got.get(name, absent), want[name], 10 * CENTRAL)
