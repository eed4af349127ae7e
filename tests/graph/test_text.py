"""Graph text: printed graphs parse back to the same graph, and mistakes are reported with their place and a remedy."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dlc.base.diagnostics import DlcError
from dlc.base.types import DTYPES, Type, f32, i64, shortest
from dlc.graph import Constant, Input, Splat, Tensor, make_graph, parse_graph, print_graph, verify
from dlc.graph.attributes import unquote
from dlc.graph.constants import without_names
from dlc.graph.op import attr_text, quote
from dlc.kernel.print import print_literal
from dlc.ops.elementwise import Add, Neg, Relu
from dlc.ops.shape import Pad
from tests.graph.random_graphs import OPS, random_graph, tensors_of

Golden = Callable[[str, str], None]

TEXT = """kernel @k0(f32[2,3], f32[3]) -> (f32[2,3]) {
  r0[i,j] = max(p0[i,j]+p1[j], 0.0)
}
graph(%0 "x": f32[2,3], %1 "w": f32[3] weight) {
  %2 = @k0(%0, %1) | "conv \\"1\\"" "relu_1"
  %3 = constant() tensor=f32[3]{0.1,-0.0,inf}
  %4 = add(%2, %3)
  %5 = splat() value=0.1 of=f32[]
  %6 = concat([%4, %5]) axis=1
  %7 = clip(%6) low=0.0 high=6.0 | "relu6"
  return %7 "y", %0 "x again"
  alias 1 0
  workspace @k0 4096
  schedule @k0 "tiles{columns=1 rows=4},loops"
}
"""


@settings(deadline=None, max_examples=150)
@given(st.integers(0, 1 << 30), st.booleans())
def test_random_graphs_survive_their_text(seed: int, origins: bool) -> None:
    graph = random_graph(seed)
    text = print_graph(graph, origins)
    known = tensors_of(graph)
    again = parse_graph(text, OPS, lambda of, digest: known.get(digest))
    assert again.digest == graph.digest
    assert print_graph(again, origins) == text
    assert dict(again.origins) == (dict(graph.origins) if origins else {})
    assert text.isascii()
    assert verify(graph) == ()


def test_the_example_of_the_documentation() -> None:
    text = TEXT.replace("%5 = splat() value=0.1 of=f32[]", "%5 = splat() value=0.1 of=f32[2,1]").replace(", %5", ",%5")
    graph = parse_graph(text, OPS)
    assert print_graph(graph, origins=True) == text
    call = graph.ops[2]
    assert graph.origin(call) == ('conv "1"', "relu_1")
    assert [i.role for i in graph.inputs] == ["data", "weight"]
    assert graph.aliases == ((1, 0),)
    assert graph.workspace(call) == 4096 and graph.workspace(graph.ops[3]) == 0
    assert list(graph.schedules.values()) == ["tiles{columns=1 rows=4},loops"]
    other = parse_graph(text.replace("rows=4", "rows=5"), OPS)
    assert other.digest != graph.digest


def test_calls_may_be_written_as_any_op() -> None:
    head = 'kernel @a(x: f32[2]) -> (y: f32[2]) { e<2: y[e] = x[e]*2.0 }\ngraph(%x "x": f32[2]) {'
    short = parse_graph(f'{head} %y = @a(%x) return %y "y" }}', OPS)
    assert parse_graph(f'{head} %y = call([%x]) body=@a return %y "y" }}', OPS) == short
    assert print_graph(short).splitlines()[1] == "  r0[i] = p0[i]*2.0"


@given(st.text())
def test_quoted_names_survive(name: str) -> None:
    if any("\ud800" <= c <= "\udfff" for c in name):
        return
    assert unquote(quote(name)) == name
    graph = make_graph([Input(name, Type(f32, ()))], {name: Relu(Input(name, Type(f32, ())))})
    assert parse_graph(print_graph(graph), OPS) == graph


@given(st.one_of(st.floats(), st.integers(), st.booleans()))
def test_literals_keep_every_bit(value: float) -> None:
    graph = make_graph([], {"y": Pad(Splat(1.0, Type(f32, (1,))), pads=(1, 1), value=value)})
    if not isinstance(value, int) or abs(value) < 10**99:  # longer numbers are refused
        again = parse_graph(print_graph(graph), OPS)
        assert again == graph
    assert attr_text(value) == print_literal(value)


@given(st.floats(width=32))
@example(999999995904.0)
def test_the_shortest_literal_is_the_same_element(value: float) -> None:
    for name in ("f16", "f32", "f64"):
        dtype = DTYPES[name]
        with np.errstate(over="ignore"):
            element, short = dtype.numpy.type(value), dtype.numpy.type(shortest(value, dtype))
        assert element.tobytes() == short.tobytes() or np.isnan(element)
        assert len(repr(shortest(float(element), dtype))) <= len(repr(float(element)))


def test_large_constants_stand_by_digest_and_are_asked_for() -> None:
    tensor = Tensor.of(np.arange(100.0))
    graph = make_graph([], {"y": Relu(Constant(tensor))})
    text = print_graph(graph)
    assert f"f64[100]:{tensor.digest}" in text
    asked: list[str] = []

    def find(of: Type, digest: str) -> Tensor | None:
        asked.append(f"{of}:{digest}")
        return tensor

    assert parse_graph(text, OPS, find) == graph
    assert asked == [f"f64[100]:{tensor.digest}"]
    with pytest.raises(DlcError, match="is not at hand"):
        parse_graph(text, OPS)


def test_inputs_tell_what_they_start_with() -> None:
    large = Tensor.of(np.arange(100.0))
    inputs = (
        Input("w", Type(f32, (2,)), "weight", Tensor.of([1.0, 2.0], f32)),
        Input("large", large.type, "weight", large),
        Input("m", Type(f32, (2,)), "state", 0.0),
        Input("step", Type(i64, ()), "state", 0),
    )
    graph = make_graph(inputs, {"y": Neg(inputs[0])})
    text = print_graph(graph)
    assert '"w": f32[2] weight = f32[2]{1.0,2.0}' in text and f"= f64[100]:{large.digest}" in text
    assert '"m": f32[2] state = 0.0, %3 "step": i64[] state = 0)' in text
    assert parse_graph(text, OPS, lambda of, digest: large) == graph
    assert {t.digest for t in graph.tensors} == {large.digest, inputs[0].initial.digest}  # type: ignore[union-attr]  # pyright: ignore
    assert make_graph((Input("w", Type(f32, (2,)), "weight"),), {}) != make_graph(inputs[:1], {})


def test_parameters_of_equal_values_are_two_until_their_names_go() -> None:
    a, b = (Constant(Tensor.of([1.0, 2.0], f32), name) for name in "ab")
    graph = make_graph([], {"y": Add(Neg(a), Neg(b))})
    assert len(graph.ops) == 5 and parse_graph(print_graph(graph), OPS) == graph
    assert len(without_names(graph).ops) == 3 and without_names(without_names(graph)) == without_names(graph)


GRAPH = 'graph(%0 "x": f32[2,3]) {{\n  {}\n  return %1 "y"\n}}\n'
KERNEL = 'kernel @k0(f32[3]) -> (f32[3]) {{\n  {}\n}}\ngraph(%0 "x": f32[3]) {{\n  %1 = @k0(%0)\n  return %1 "y"\n}}\n'
MISTAKES: dict[str, str] = {
    "unknown-op": GRAPH.format("%1 = rleu(%0)"),
    "initial-type": 'graph(%0 "w": f32[2] weight = f32[3]{1.0,2.0,3.0}) {\n  return %0 "y"\n}\n',
    "initial-value": 'graph(%0 "w": i8[2] weight = 300) {\n  return %0 "y"\n}\n',
    "initial-kind": 'graph(%0 "w": f32[2] weight = "one") {\n  return %0 "y"\n}\n',
    "unknown-attribute": GRAPH.format("%1 = clip(%0) hihg=6.0"),
    "attribute-twice": GRAPH.format("%1 = clip(%0) high=6.0 high=7.0"),
    "attribute-value": GRAPH.format("%1 = clip(%0) high=six"),
    "attribute-wrong-kind": GRAPH.format('%1 = reshape(%0) to="six"'),
    "attribute-missing": GRAPH.format("%1 = cast(%0)"),
    "undefined-value": GRAPH.format("%1 = relu(%7)"),
    "value-twice": GRAPH.format("%0 = relu(%0)"),
    "too-many-operands": GRAPH.format("%1 = relu(%0, %0)"),
    "too-few-operands": GRAPH.format("%1 = add(%0)"),
    "operand-kind": GRAPH.format("%1 = concat(%0)"),
    "result": GRAPH.format("%2 = relu(%0)\n  %1 = item(%2) index=1"),
    "operand-list": GRAPH.format("%1 = relu([%0])"),
    "operand-none": GRAPH.format("%1 = relu(none)"),
    "shape": GRAPH.format("%1 = reshape(%0) to=(7)"),
    "types": GRAPH.format("%2 = splat() value=1 of=i64[]\n  %1 = add(%0, %2)"),
    "splat-value": GRAPH.format("%1 = splat() value=300 of=u8[]"),
    "constant-count": GRAPH.format("%1 = constant() tensor=f32[2]{1.0,2.0,3.0}"),
    "constant-value": GRAPH.format("%1 = constant() tensor=u8[1]{-1}"),
    "constant-elsewhere": GRAPH.format("%1 = constant() tensor=f32[99]:00112233445566778899aabbccddeeff"),
    "element-type": 'graph(%0 "x": float32[2]) { return %0 "x" }',
    "dimension": 'graph(%0 "x": f32[-1]) { return %0 "x" }',
    "role": 'graph(%0 "x": f32[2] weights) { return %0 "x" }',
    "input-name": "graph(%0 x: f32[2]) { }",
    "character": GRAPH.format("%1 = relu(%0) & 1"),
    "escape": 'graph(%0 "\\u{110000}": f32[2]) { return %0 "x" }',
    "end": 'graph(%0 "x": f32[2]) {\n  %1 = relu(%0)\n',
    "behind-the-end": 'graph(%0 "x": f32[2]) { return %0 "x" } graph',
    "undefined-kernel": 'kernel @k0() -> () {}\ngraph(%0 "x": f32[2]) {\n  %1 = @k1(%0)\n  return %1 "y"\n}\n',
    "kernel-twice": "kernel @k0() -> () {}\nkernel @k0() -> () {}\ngraph() { return }",
    "kernel-arguments": KERNEL.format("r0[i] = p0[i]").replace("@k0(%0)", "@k0(%0, %0)"),
    "kernel-argument-type": KERNEL.format("r0[i] = p0[i]").replace('"x": f32[3]', '"x": f32[4]'),
    "kernel-word": KERNEL.format("r0[i] = frob(p0[i])"),
    "kernel-axis": KERNEL.format("k<3: r0[i] += p0[j]"),
    "kernel-assignment": KERNEL.format("r0[i] -= p0[i]"),
    "kernel-subscripts": KERNEL.format("r0[i] = p0[i,i]"),
    "nothing": "",
    "not-a-graph": "PK\x03\x04",
}


@pytest.mark.parametrize("name", MISTAKES)
def test_every_mistake_is_reported_with_its_place_and_a_remedy(name: str, golden: Golden) -> None:
    with pytest.raises(DlcError) as refused:
        parse_graph(MISTAKES[name], OPS, source="model.dlc")
    golden(f"{name}.txt", str(refused.value))


PIECES = (
    *'()[]{}<:=,|-"%@#\\\n',
    *("%0", "%3", "@k0", "kernel", "graph", "return", "alias", "f32", "f32[2,3]", "none", "999", "1e999", "1..2"),
    *("nan", "inf", "\0", "é", "١", "axis=", "tensor=", "u8[1]{300}", "i64[", "x" * 50, "->"),
)


def mutated(rng: random.Random, text: str) -> str:
    for _ in range(rng.randint(1, 4)):
        a = rng.randrange(len(text) + 1)
        b = min(len(text), a + rng.randint(0, 12))
        kind = rng.random()
        text = text[:a] + (rng.choice(PIECES) if kind < 0.5 else text[a:b] * 2 if kind < 0.6 else "") + text[b:]
    return text


def test_every_text_is_a_graph_or_an_error_with_a_place() -> None:
    rng = random.Random(11)
    good = [TEXT, print_graph(random_graph(3), origins=True), print_graph(random_graph(8), origins=True)]
    texts = [mutated(rng, rng.choice(good)) for _ in range(3000)]
    texts += ["".join(rng.choices(PIECES, k=rng.randint(1, 60))) for _ in range(500)]
    texts += [rng.randbytes(rng.randint(1, 80)).decode("latin-1") for _ in range(500)]
    accepted = 0
    for text in texts:
        try:
            graph = parse_graph(text, OPS, source="hostile.dlc")
        except DlcError as refused:
            (found,) = refused.diagnostics
            assert found.location is not None, text
            assert found.location.line >= 1, text
            assert found.location.column >= 1, text
            continue
        accepted += 1
        assert parse_graph(print_graph(graph, origins=True), OPS) == graph, text
    assert accepted > 20


@pytest.mark.parametrize("attribute", ["to=", "tensor=f32[1]{"])
def test_deep_nesting_is_refused(attribute: str) -> None:
    op = "reshape(%0)" if attribute == "to=" else "constant()"
    with pytest.raises(DlcError, match="nested deeper than 200"):
        parse_graph(GRAPH.format(f"%1 = {op} {attribute}{'(' * 9000}"), OPS)


def test_an_error_in_a_long_line_shows_the_place() -> None:
    inputs = [f'%{k} "x{k}": f32[1]' for k in range(500)]
    text = f"graph({', '.join([*inputs, inputs[7]])}) {{}}"
    with pytest.raises(DlcError) as refused:
        parse_graph(text, OPS)
    shown = str(refused.value).splitlines()
    assert shown[1][shown[2].index("^")] == "%"
    assert max(map(len, shown)) < 200
