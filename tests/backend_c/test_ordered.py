"""`math=ordered`: results equal those of the plain loops, bit by bit, whatever the compiler may know about sums."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from dlc_backend_c.backend import C
from dlc_backend_c.runtime import Model
from dlc_backend_c.target import GENERIC, CTarget, target_for

from dlc import Spec
from dlc.kernel.kernel import Kernel
from dlc.kernel.text import parse_kernel
from tests.backend_c.harness import STRICT, Array, Compiled
from tests.session.building import dlc
from tests.tools import COMPILERS

DIVISIONS = {"f32": "div", "f64": "div", "i32": "truncdiv"}
TYPES = {"f32": "float", "f64": "double", "i32": "int"}
PLAIN = ("-std=c99", "-O2", "-ffp-contract=off")
TARGETS = [t.in_mode("ordered") for t in (GENERIC, target_for("native"))]


@dataclass(frozen=True)
class Case:
    """A computation as a kernel and as C loops over arrays of the same names.

    T is the element type, DIV division as C has it for that type.
    """

    kernel: str
    loops: str

    def kernel_of(self, dtype: str) -> Kernel:
        """The kernel for an element type."""
        return parse_kernel(self.kernel.replace("T[", f"{dtype}[").replace("DIV", DIVISIONS[dtype]))

    def c(self, dtype: str, name: str) -> str:
        """The loops as a C function: results, whose content counts for nothing, behind parameters."""
        k = self.kernel_of(dtype)
        t = TYPES[dtype]
        arguments = ", ".join(
            f"{'const ' if p in k.params else ''}{t} {p.name}{''.join(f'[{d}]' for d in p.shape or (1,))}"
            for p in (*k.params, *k.results)
        )
        return f"void {name}({arguments}) {{ {self.loops.replace('T', t)} }}\n"


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The loops, function `TYPE_NUMBER` each, as gcc compiles them without contraction."""
    folder = tmp_path_factory.mktemp("plain")
    texts = (case.c(t, f"{t}_{n}") for n, case in enumerate(CASES.values()) for t in TYPES)
    (folder / "plain.c").write_text("".join(texts))
    command = [COMPILERS[0], *PLAIN, "-fPIC", "-shared", "plain.c", "-o", "plain.so"]
    subprocess.run(command, cwd=folder, check=True)
    return ctypes.CDLL(str(folder / "plain.so"))


def uniform(kernel: Kernel, seed: int) -> list[Array]:
    rng = np.random.default_rng(seed)
    return [np.asarray(rng.uniform(-10, 10, p.shape)).astype(p.dtype.numpy) for p in kernel.params]


def loops(library: ctypes.CDLL, name: str, kernel: Kernel, args: Sequence[Array]) -> Array:
    """The result of a function of plain loops."""
    out = np.full(kernel.results[0].shape, 7, kernel.results[0].dtype.numpy)
    getattr(library, name)(*(ctypes.c_void_p(a.ctypes.data) for a in (*args, out)))
    return out


def over(**extents: int) -> str:
    return " ".join(f"for (int {a} = 0; {a} < {n}; ++{a})" for a, n in extents.items())


IJ = over(i=16, j=32)
CASES = {
    "example": Case(
        "kernel(p0: T[32,16], p1: T[32,16]) -> (r0: T[32,16]) {\n r0[i,j] = p0[i,j]*p1[i,j]\n}",
        f"{over(i=32, j=16)} r0[i][j] = p0[i][j] * p1[i][j];",
    ),
    "constant": Case("kernel() -> (r0: T[32,16]) {\n r0[i,j] = 2\n}", f"{over(i=32, j=16)} r0[i][j] = 2;"),
    "add in place": Case(
        "kernel(p0: T[16,8]) -> (r0: T[16,8]) {\n r0[i,j] = p0[i,j]+2\n}", f"{over(i=16, j=8)} r0[i][j] = p0[i][j] + 2;"
    ),
    "add": Case(
        "kernel(p0: T[16,32], p1: T[16,32]) -> (r0: T[16,32]) {\n r0[i,j] = p0[i,j]+p1[i,j]\n}",
        f"{IJ} r0[i][j] = p0[i][j] + p1[i][j];",
    ),
    "matrix product": Case(
        """kernel(p0: T[16,32], p1: T[16,32], p2: T[32,32]) -> (r0: T[16,32]) {
          r0[i,j] = p0[i,j]
          k<32: r0[i,j] += p1[i,k]*p2[k,j]
        }""",
        f"{IJ} {{ T t = 0; t += p0[i][j]; {over(k=32)} t += p1[i][k] * p2[k][j]; r0[i][j] = t; }}",
    ),
    "matrix product behind": Case(
        """kernel(p0: T[16,32], p1: T[16,32], p2: T[32,32]) -> (r0: T[16,32]) {
          k<32: r0[i,j] += p1[i,k]*p2[k,j]
          r0[i,j] += p0[i,j]
        }""",
        f"{IJ} {{ T t = 0; {over(k=32)} t += p1[i][k] * p2[k][j]; t += p0[i][j]; r0[i][j] = t; }}",
    ),
    "scaled product and sum": Case(
        """kernel(p0: T[16,32], p1: T[16,32], p2: T[32,32], p3: T[16,32], p4: T[], p5: T[]) -> (r0: T[16,32]) {
          r0[i,j] = p0[i,j]
          k<32: r0[i,j] += p4[]*(p1[i,k]*p2[k,j])
          r0[i,j] += p5[]*p3[i,j]
        }""",
        f"""{IJ} {{ r0[i][j] = p0[i][j]; {over(k=32)} r0[i][j] += p4[0] * (p1[i][k] * p2[k][j]); }}
        {IJ} r0[i][j] = r0[i][j] + p5[0] * p3[i][j];""",
    ),
    "convolution": Case(
        """kernel(p0: T[2,8,5,5], p1: T[2,16,7,7], p2: T[8,16,3,3]) -> (r0: T[2,8,5,5]) {
          r0[n,k,p,q] = p0[n,k,p,q]
          c<16 r<3 s<3: r0[n,k,p,q] += p1[n,c,p+r,q+s]*p2[k,c,r,s]
        }""",
        f"""{over(n=2, k=8, p=5, q=5)} {{ T t = p0[n][k][p][q];
        {over(c=16, r=3, s=3)} t += p1[n][c][p + r][q + s] * p2[k][c][r][s]; r0[n][k][p][q] = t; }}""",
    ),
    "transpose": Case("kernel(p0: T[32,16]) -> (r0: T[16,32]) {\n r0[i,j] = p0[j,i]\n}", f"{IJ} r0[i][j] = p0[j][i];"),
    "broadcast": Case(
        "kernel(p0: T[8,16]) -> (r0: T[8,2,16]) {\n r0[i,j,k] = p0[i,k]\n}",
        f"{over(i=8, j=2, k=16)} r0[i][j][k] = p0[i][k];",
    ),
    "matricised tensor": Case(
        """kernel(p0: T[16,32], p1: T[16,32,8], p2: T[32,32], p3: T[8,32]) -> (r0: T[16,32]) {
          r0[i,j] = p0[i,j]
          k<32 l<8: r0[i,j] += p1[i,k,l]*p2[k,j]*p3[l,j]
        }""",
        f"{IJ} {{ T t = p0[i][j]; {over(k=32, l=8)} t += p1[i][k][l] * p2[k][j] * p3[l][j]; r0[i][j] = t; }}",
    ),
    "blur": Case(
        "kernel(p0: T[10,10]) -> (r0: T[8,8]) {\n r0[i,j] = DIV(p0[i,j]+p0[i+1,j]+p0[i+2,j], 3)\n}",
        f"{over(i=8, j=8)} r0[i][j] = (p0[i][j] + p0[i + 1][j] + p0[i + 2][j]) / 3;",
    ),
    "long sums": Case(
        "kernel(p0: T[7,300], p1: T[7,300]) -> (r0: T[7]) {\n k<300: r0[i] += p0[i,k]*p1[i,k]\n}",
        f"{over(i=7)} {{ T t = 0; {over(k=300)} t += p0[i][k] * p1[i][k]; r0[i] = t; }}",
    ),
    "a sum of everything": Case(
        "kernel(p0: T[40,30]) -> (r0: T[]) {\n i<40 j<30: r0[] += p0[i,j]\n}",
        f"{{ T t = 0; {over(i=40, j=30)} t += p0[i][j]; r0[0] = t; }}",
    ),
    "columns": Case(
        "kernel(p0: T[50,33]) -> (r0: T[33]) {\n k<50: r0[i] += p0[k,i]\n}",
        f"{over(i=33)} {{ T t = 0; {over(k=50)} t += p0[k][i]; r0[i] = t; }}",
    ),
    "overlapping windows": Case(
        "kernel(p0: T[9,8]) -> (r0: T[24]) {\n k<9 i<8: r0[i+2*k] += p0[k,i]\n}",
        f"{over(i=24)} r0[i] = 0; {over(k=9, i=8)} r0[i + 2 * k] += p0[k][i];",
    ),
    "scatter with a reduced axis outside": Case(
        "kernel(p0: T[5,9,8]) -> (r0: T[24]) {\n m<5 i<8 k<9: r0[i+2*k] += p0[m,k,i]\n}",
        f"{over(i=24)} r0[i] = 0; {over(m=5, i=8, k=9)} r0[i + 2 * k] += p0[m][k][i];",
    ),
}


@pytest.mark.parametrize("cc", COMPILERS)
@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.cpu)
@pytest.mark.parametrize("dtype", TYPES)
def test_results_are_those_of_plain_loops(
    dtype: str, target: CTarget, cc: str, plain: ctypes.CDLL, tmp_path: Path
) -> None:
    kernels = [case.kernel_of(dtype) for case in CASES.values()]
    compiled = Compiled(kernels, target, tmp_path, cc, (*STRICT,))
    for n, (name, kernel) in enumerate(zip(CASES, kernels, strict=True)):
        for seed in range(5):
            args = uniform(kernel, seed)
            (got,) = compiled(n, args)
            want = loops(plain, f"{dtype}_{n}", kernel, args)
            assert got.tobytes() == want.tobytes(), f"{name}\n{compiled.functions[n].text}"


def test_the_option_reaches_schedule_and_compiler() -> None:
    options = C.from_spec(Spec.parse("c{cpu=x86-64-v3 math=ordered}"))
    target = target_for(options.cpu, options.math)
    assert target.machine.ordered
    assert [f for f in target.flags if "contract" in f] == ["-ffp-contract=off"]
    assert not target_for(options.cpu).machine.ordered
    assert "-ffp-contract=off" in options.toolchain()


@pytest.mark.parametrize(
    ("file", "name", "order"),
    [
        ("case4", "matrix product", ("A", "B", "C")),
        ("case5", "scaled product and sum", ("A", "B", "C", "D", "alpha", "beta")),
        ("case6", "convolution", ("A", "B", "C")),
        ("case9", "matricised tensor", ("A", "B", "C", "D")),
    ],
)
def test_so_are_those_of_a_whole_build(
    file: str, name: str, order: tuple[str, ...], plain: ctypes.CDLL, tmp_path: Path
) -> None:
    source = Path(__file__).parents[1] / "data" / "kernel" / "project1" / f"{file}.json"
    done = dlc("build", source, "-q", "-t", "c{math=ordered}", "-o", tmp_path / "out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    model = Model.load(tmp_path / "out")
    random = np.random.default_rng(1)
    given = {a.name: np.asarray(random.uniform(-10, 10, a.shape)).astype(a.dtype) for a in model.inputs}
    number = list(CASES).index(name)
    want = loops(plain, f"f32_{number}", CASES[name].kernel_of("f32"), [given[n] for n in order])
    assert model(given)["A"].tobytes() == want.tobytes()
