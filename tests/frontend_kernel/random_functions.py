"""Random kernels of scalar functions: constants everywhere, conversions, choices, powers, and sums around them.

What the kernels of `random_cases` lack: there the subscripts are hard, here the values. Compiled C is compared with the
reference evaluator, since what a function gives outside of its domain is the reference's business.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from dlc_backend_c.target import CTarget
from dlc_frontend_kernel.frontend import KernelText

from dlc import DlcError, Report, Source
from dlc.graph import Graph, evaluate
from tests.backend_c.harness import STRICT
from tests.frontend_kernel.through_dlc import Array, CompiledGraphs, feeds

SIZES = (1, 2, 3, 4, 5, 7, 8, 9, 11, 12, 13, 15, 16, 17, 23, 31, 33)
"""Around the lanes of vectors, and primes."""
_ANYWHERE = ("exp", "tanh", "erf", "sin", "cos", "atan", "abs", "neg", "sigmoid")
_POSITIVE = ("sqrt", "log", "log1p", "asinh")
_WHOLE = (2, 3, -1, 1, 0)


def random_text(seed: int) -> str:
    """The text of a valid kernel named f."""
    for attempt in range(200):
        text = _Text(random.Random(f"{seed}.{attempt}")).kernel()
        try:
            KernelText().parse(Source(data=text.encode(), label="f.kernel"), Report())
        except DlcError:
            continue
        return text
    raise AssertionError(f"seed {seed}: 200 draws without a valid kernel")


class _Text:
    """Draws the text of a kernel."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.type = rng.choice(("float", "float", "float", "f64", "f32", "i32", "i32", "i64"))
        self.whole = self.type.startswith("i")
        self.n, self.m, self.d = (rng.choice(SIZES) for _ in range(3))
        self.d = min(self.d, 5)

    def kernel(self) -> str:
        """Two or three statements: a sum over d or not, one that reads its result, maybe one of rows."""
        rng, n, m, d, t = self.rng, self.n, self.m, self.d, self.type
        self.loads = ["X[i,j]", "X[i,j]", "v[j]", "u[i]"]
        summed = rng.random() < 0.6
        inner = ["P[i,d]", "P[j,d]", *self.loads] if summed else self.loads
        body = self.value(rng.randint(1, 3), inner)
        if summed:
            body = f"{rng.choice(('sum', 'sum', 'max', 'min'))}[d](({body})*P[i,d])"
            if rng.random() < 0.3:
                body = f"sum[d]((P[j,d]-P[i,d])*(P[j,d]-P[i,d]))+{self.constant()}" if n == m else body
        lines = [f"T<{n},{m}>[i,j] = {body};"]
        self.loads = ["T[i,j]", "T[i,j]", "X[i,j]", "v[j]"]
        lines.append(f"Y[i,j] = {self.value(rng.randint(1, 3), self.loads)};")
        outs = f"Y: {t}[{n},{m}]"
        if rng.random() < 0.5:
            total = self.value(1, ["Y[i,j]", "T[i,j]", "v[j]"])
            lines.append(f"Z[i] = sum[j]({total}){rng.choice(('', f'/{self.divisor()}', f'*{self.constant()}'))};")
            outs += f", Z: {t}[{n}]"
        ins = f"X: {t}[{n},{m}], v: {t}[{m}], u: {t}[{n}], P: {t}[{max(n, m)},{d}]"
        return f"kernel f({ins}) -> ({outs}) {{\n " + "\n ".join(lines) + "\n}\n"

    def value(self, depth: int, loads: Sequence[str]) -> str:
        """An expression of the kernel's type."""
        rng = self.rng
        if depth == 0:
            return rng.choice(loads) if rng.random() < 0.75 else self.constant()
        pick = rng.randrange(10)
        a, b = self.value(depth - 1, loads), self.value(depth - 1, loads)
        if pick < 3:
            return f"({a} {rng.choice('+-*')} {b})"
        if pick == 3:
            return f"{rng.choice(('min', 'max'))}({a}, {rng.choice((b, self.constant()))})"
        if pick == 4:
            return f"select({self.condition(a, b)}, {a}, {rng.choice((b, self.constant()))})"
        if pick == 5:
            return f"select({self.condition(a, b)}, {self.constant()}, {self.constant()})"
        if pick == 6:
            return f"({a}) / {self.divisor()}"
        return self.integer(a) if self.whole else self.function(a)

    def integer(self, a: str) -> str:
        """A function of integers."""
        rng = self.rng
        k = rng.choice((1, 2, 3, 5, 7))
        return rng.choice(
            (f"({a} // {k})", f"({a} % {k})", f"bitand({a}, {k})", f"bitxor({a}, {k})", f"shl({a}, {k % 4})",
             f"shr({a}, {k % 4})", f"abs({a})", f"bitand({a}, 3 + {k})", f"({a} // ({k} + 2))",
             f"{self.type}(f32({a}) * 0.5)")
        )  # fmt: skip

    def function(self, a: str) -> str:
        """A function of floats, within its domain."""
        rng = self.rng
        fn = rng.choice(_ANYWHERE)
        if fn == "sigmoid":
            return f"1/(1 + exp(-({a})))"
        return rng.choice(
            (
                f"neg({a})" if fn == "neg" else f"{fn}({a})",
                f"{rng.choice(_POSITIVE)}(({a})*({a}) + {rng.choice(('0.25', '1', 'sqrt(2)', '1/4'))})",
                f"pow(abs({a}) + 0.5, {rng.choice(('2', '0.5', '-0.5', '3', '1/3', '-2', '1', '0'))})",
                f"erf({a} / sqrt({rng.choice((2, 3, 0.5))}))",
                f"floor({a})" if rng.random() < 0.3 else f"tanh({a} * {self.constant()})",
            )
        )

    def condition(self, a: str, b: str) -> str:
        """What chooses: data, indices, or constants."""
        rng = self.rng
        sign = rng.choice(("<", "<=", ">", ">=", "==", "!="))
        sides = ((a, b), (a, self.constant()), ("i", "j"), ("j", "2"), ("1", "2"), (self.constant(), self.constant()))
        left, right = rng.choice(sides)
        return f"{left} {sign} {right}"

    def constant(self) -> str:
        """A constant, or a formula of constants."""
        rng = self.rng
        if self.whole:
            return rng.choice(
                ("1", "2", "-3", "(7 // 2)", "(5 % 3)", "bitor(4, 1)", "max(2, 1)", "select(1 < 2, 3, 4)")
            )
        formulas = ("1/3", "(2 - 0.5)", "sqrt(2)", "exp(-1)", "log(3)/2", "max(1, 0.5)", "abs(-2)", "pow(2, 0.5)")
        plain = ("2", "0.5", "-1.5", "3", "0.01", "1", "0")
        return rng.choice((*plain, *(f"({f})" for f in formulas), "select(2 > 1, 0.75, 4)", "(1/sqrt(2*3))"))

    def divisor(self) -> str:
        """A divisor that is not zero."""
        rng = self.rng
        if self.whole:
            return rng.choice(("2", "3", "(1 + 2)", "max(2, 1)"))
        own = ("sqrt(2)", "(1 + 1/3)", "2", "3.0", "(sqrt(v[j]*v[j] + 1))", "(2.5 + u[i]*u[i])", "exp(1)", "pow(3, 2)")
        return rng.choice((*own, "sqrt(2) / sqrt(3)"))


def graphs_of(text: str) -> list[Graph]:
    """The graph of a text, and that of its gradients where it is of floats."""
    source = Source(data=text.encode(), label="f.kernel")
    forward = KernelText().parse(source, Report())
    if re.search(r": i\d", text):
        return [forward]
    floats = tuple(i.name for i in forward.inputs if i.dtype.is_float)
    return [forward, KernelText(grad=floats).parse(source, Report())]


def values_of(graph: Graph, seed: int) -> dict[str, list[float]]:
    """Values for its inputs: floats of magnitude 0.3 to 1.3, or integers of -4 to 4."""
    rng = random.Random(seed)
    found: dict[str, list[float]] = {}
    for i in graph.inputs:
        size = int(np.prod(i.shape))
        if i.dtype.is_float:
            found[i.name] = [rng.choice((-1, 1)) * rng.uniform(0.3, 1.3) for _ in range(size)]
        else:
            found[i.name] = [rng.randint(-4, 4) for _ in range(size)]
    return found


def check_functions(
    seeds: Sequence[int], target: CTarget, folder: Path, cc: str, flags: Sequence[str] = STRICT
) -> None:
    """Compile the kernels of some seeds, and their gradients, and compare them with the reference evaluator.

    Raises:
        AssertionError: the first kernel that computes something else, with its text.
    """
    check_texts({seed: random_text(seed) for seed in seeds}, target, folder, cc, flags)


def check_texts(
    texts: Mapping[int, str], target: CTarget, folder: Path, cc: str, flags: Sequence[str] = STRICT
) -> None:
    """The same of some texts, by the seeds of their values."""
    graphs = [(seed, text, g) for seed, text in texts.items() for g in graphs_of(text)]
    library = CompiledGraphs([g for _, _, g in graphs], target, folder, cc, flags)
    for n, (seed, text, graph) in enumerate(graphs):
        values = values_of(graph, seed)
        want = evaluate(graph, feeds(graph, values, {}))
        for name, got in library(n, values, {}).items():
            assert _close(got, want[name]), f"seed {seed}, {name}\n{text}\n{got}\n{want[name]}"


def _close(got: Array, want: Array) -> bool:
    """Whether results agree: integers exactly, floats up to the order of sums."""
    if got.dtype.kind in "iub":
        return np.array_equal(got, want)
    tolerance = 2e-3 if got.dtype == np.float32 else 1e-7
    both = np.isclose(
        got,
        want,
        rtol=tolerance,
        atol=tolerance * max(1.0, float(np.nanmax(np.abs(want), initial=0.0))),
        equal_nan=True,
    )
    return bool(both.all())
