"""Vectors along several short axes: for which products they are, and that they are right wherever rows end."""

from __future__ import annotations

import pytest

from dlc.kernel.loops.program import Lanes, Load, Shuffle, exprs_of, subexpressions, walk_stmts
from dlc.kernel.schedules.machine import Machine
from dlc.kernel.schedules.schedule import schedule, scheduled
from dlc.kernel.schedules.text import parse_choices, print_choices
from dlc.kernel.schedules.unfit import Unfit
from dlc.kernel.text import parse_kernel
from tests.kernel.triples import Triple

MACHINES = {bytes: Machine(bytes, 32 if bytes == 64 else 16) for bytes in (16, 32, 64)}
FORMS = {
    "product": "p0[b,i,l]*p1[b,l,j]",
    "gradient of the left": "p0[b,i,l]*p1[b,j,l]",
    "gradient of the right": "p0[b,l,i]*p1[b,l,j]",
}


def products(n: int, batch: int, body: str, dtype: str = "f32") -> str:
    of = f"{dtype}[{batch},{n},{n}]"
    return f"kernel({of}, {of}) -> ({of}) {{ l<{n}: r0[b,i,j] += {body} }}"


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("bytes", MACHINES)
def test_small_products_of_any_size(bytes: int, form: str) -> None:
    machine, kinds = MACHINES[bytes], set[str]()
    for n in range(2, 8 if bytes == 64 else bytes // 4):
        kernel = parse_kernel(products(n, 19, FORMS[form]))
        found = scheduled(kernel, machine, parse_choices("shuffled"))
        assert not Triple(kernel, machine, found.choices).problem(), n
        kinds.add(scheduled(kernel, machine).choices[0].name)
    assert "shuffled" in kinds


@pytest.mark.parametrize("form", FORMS)
def test_no_element_of_a_4x4_product_is_loaded_by_itself(form: str) -> None:
    found = scheduled(parse_kernel(products(4, 64, FORMS[form])), MACHINES[64])
    assert print_choices(found.choices) == "shuffled{vectors=4}"
    parts = list(subexpressions(e for s in walk_stmts(found.program.body) for e in exprs_of(s)))
    assert sum(isinstance(e, Lanes) for e in parts) == sum(isinstance(e, Load) for e in parts) == 8
    assert all(e.a == e.b for e in parts if isinstance(e, Shuffle))


@pytest.mark.parametrize(
    "text",
    [
        products(3, 7, FORMS["product"], "f64"),
        # What follows a sum is computed in its lanes, and every statement may be a result.
        """kernel(f32[16,3,3], f32[16,3,3]) -> (f32[16,3,3]) local (f32[16,3,3]) {
          l<3: t0[b,i,j] += p0[b,i,l]*p1[b,l,j]
          r0[b,i,j] = max(exp(t0[b,i,j])*0.5+p0[b,j,i], 0.0)
        }""",
        "kernel(f32[40,3,2]) -> (f32[40,2]) { k<3: r0[i,j] max= p0[i,2-k,j] }",
        "kernel(f32[31,5]) -> (f32[31,3]) { k<2: r0[i,j] += p0[i,j+2-k]*p0[30-i,4-2*j] }",
    ],
)
@pytest.mark.parametrize("bytes", [32, 64])
def test_what_else_has_short_rows(text: str, bytes: int) -> None:
    kernel, machine = parse_kernel(text), MACHINES[bytes]
    found = scheduled(kernel, machine, parse_choices("shuffled"))
    assert not Triple(kernel, machine, found.choices).problem()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (products(8, 4, FORMS["product"]), "its rows are no shorter than a vector of 8 elements"),
        (products(2, 1, FORMS["product"]), "no few results that lie together are 1 vectors of 8 elements"),
        (
            "kernel(f32[90,4]) -> (f32[30,4]) { k<2: r0[i,j] max= p0[3*i+k,j]/p0[i//7,j] }",
            "what it reads lies in no straight order",
        ),
        (
            "kernel(f32[30,4], i64[4,2]) -> (f32[30,4]) { k<2: r0[i,j] += p0[i,p1[j,k]] }",
            "p1 is no operand of f32 in memory",
        ),
        # Rows at the end would be computed again from what may lie in the place of the result.
        (
            """kernel(f32[31,3], f32[31,3,2]) -> (f32[31,3]) local (f32[31,3]) {
              k<2: t0[i,j] += p1[i,j,k]*p1[i,2-j,k]
              r0[i,j] = p0[i,j]*t0[i,j]
            }""",
            "an element may not be computed twice",
        ),
        ("kernel(f32[31,3]) -> (f32[31,3]) { r0[i,j] = p0[i,2-j] }", "it adds nothing up"),
        (
            "kernel(f32[3,2], f32[30]) -> (f32[30,3]) { k<2: r0[i,j] max= p0[2-j,k]+p1[i] }",
            "p0 has less than 8 elements",
        ),
        ("kernel(f32[30,4,40]) -> (f32[30,4]) { k<40: r0[i,j] += p0[i,j,k] }", "its sums have more than 16 terms"),
    ],
)
def test_reasons(text: str, reason: str) -> None:
    with pytest.raises(Unfit, match=reason):
        schedule(parse_kernel(text), MACHINES[32], parse_choices("shuffled"))
