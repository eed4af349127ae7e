"""An op is a value: what it is called, holds and computes comes from its declaration; equal content is one op."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from dlc.base.types import Type, bool_, f16, f32, f64, i8, i64, u8
from dlc.graph import Call, Constant, Input, Item, Op, Splat, Tensor
from dlc.graph.op import attr_text, quote
from dlc.kernel.define import Comp, ShapeError, comp, grid
from dlc.kernel.expr import apply
from dlc.kernel.text import parse_kernel
from dlc.ops.elementwise import Add, Cast, LeakyRelu, Neg, Relu
from dlc.ops.linear import Conv
from dlc.ops.shape import Concat, Reshape

X = Input("x", Type(f32, (2, 3)))
Y = Input("y", Type(f32, (2, 3)))


class ThreeWords(Op):
    """y = x² + bias: one operand of each kind."""

    x: Op
    bias: Op | None = None
    rest: tuple[Op, ...] = ()
    factor: float = 1.0

    def define(self, *params: Any) -> Comp:
        x, bias, rest = params
        i = grid(x.shape)
        body = x[i] * x[i]
        for more in ((bias,) if bias is not None else ()) + rest:
            body = body + more[i]
        return comp(i, body * self.factor)


def test_a_declaration_gives_name_and_fields() -> None:
    assert ThreeWords.text_name == "three_words"
    assert ThreeWords.operand_names == ("x", "bias", "rest")
    assert ThreeWords.attr_names == ("factor",)
    op = ThreeWords(X, rest=(Y, X))
    assert op.operands == (X, Y, X)
    assert dict(op.attrs) == {"factor": 1.0}
    assert op.type == Type(f32, (2, 3))
    assert repr(op) == f"three_words<{op.digest[:8]}>"


def test_a_definition_evaluates() -> None:
    x, y = np.arange(6, dtype=np.float32).reshape(2, 3), np.ones((2, 3), np.float32)
    assert np.array_equal(ThreeWords(X, Y, (X,), 2.0).evaluate(x, y, x), (x * x + y + x) * 2)


def test_equal_content_is_one_op() -> None:
    assert Relu(X) == Relu(Input("x", Type(f32, (2, 3))))
    assert len({Relu(X), Relu(X), Neg(X), Add(X, Y), Add(Y, X)}) == 4
    assert Relu(X) != "relu"


def test_everything_that_matters_is_in_the_digest() -> None:
    base = ThreeWords(X)
    others = (
        ThreeWords(Y),
        ThreeWords(X, Y),
        ThreeWords(X, None, (Y,)),
        ThreeWords(X, factor=1),
        ThreeWords(X, factor=True),
        ThreeWords(X, factor=2.0),
        Neg(X),
    )
    assert len({base, *others}) == 1 + len(others)
    assert len({Concat((X, Y)), Concat((Y, X)), Concat((X,)), Concat((X, X))}) == 4
    assert Input("x", Type(f32, ())) != Input("x", Type(f32, ()), "weight")


def test_digests_do_not_depend_on_the_process() -> None:
    program = (
        "from dlc.graph import Input, Splat, make_graph\nfrom dlc.ops.elementwise import Add\n"
        "from dlc.base.types import Type, f32\nx = Input('x', Type(f32, (2,)))\n"
        "g = make_graph([x], {'y': Add(x, Splat(1.0, Type(f32, ())))})\nprint(g.digest, [o.digest for o in g.ops])"
    )
    message = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "77")
    }
    assert len(message) == 1


def test_kernels_are_distinguished_by_what_they_compute_not_by_names() -> None:
    a = parse_kernel("kernel(x: f32[2,3]) -> (y: f32[2,3]) { a<2 b<3: y[a,b] = x[a,b]+1.0 }")
    b = parse_kernel("kernel(f32[2,3]) -> (f32[2,3]) { r0[i,j] = p0[i,j]+1.0 }")
    assert Call(a, (X,)) == Call(b, (X,))
    assert Call(a, (X,)) != Call(a, (Y,))


def test_operands_are_exchanged_and_the_rest_is_kept() -> None:
    op = ThreeWords(X, None, (Y, X), factor=3.0)
    assert op.with_operands((X, Y, X)) is op
    new = op.with_operands((Y, Y, X))
    assert new == ThreeWords(Y, None, (Y, X), factor=3.0)
    assert new.types == op.types
    wide = Input("w", Type(f64, (4, 5)))
    assert op.with_operands((wide, wide, wide)).type == wide.type
    with pytest.raises(ShapeError):
        Reshape(X, to=(6,)).with_operands((wide,))


def test_shapes_are_judged_where_an_op_is_made() -> None:
    with pytest.raises(ShapeError, match="do not broadcast"):
        Add(X, Input("z", Type(f32, (4,))))
    with pytest.raises(ShapeError, match=r"of different types: f32, i64"):
        Add(X, Input("z", Type(i64, ())))
    with pytest.raises(ShapeError, match="argument 0"):
        Call(parse_kernel("kernel(f32[2]) -> (f32[2]) { r0[i] = p0[i] }"), (X,))
    with pytest.raises(ShapeError, match="takes 1 arguments, not 0"):
        Call(parse_kernel("kernel(f32[2]) -> (f32[2]) { r0[i] = p0[i] }"))


def test_results_of_an_op_with_several() -> None:
    two = parse_kernel("kernel(f32[2,3]) -> (f32[2,3], i64[]) { r0[i,j] = p0[i,j] r1[] = 7 }")
    call = Call(two, (X,))
    assert [str(t) for t in call.types] == ["f32[2,3]", "i64[]"]
    assert Item(call, 1).type == Type(i64, ())
    for index in (2, -1):
        with pytest.raises(ShapeError, match="of an op that has 2"):
            Item(call, index)


@pytest.mark.parametrize("value", [300, -1, 1.5])
def test_a_splat_holds_what_its_type_can(value: float) -> None:
    with pytest.raises(ShapeError, match="is not a value of u8"):
        Splat(value, Type(u8, (2,)))


def test_a_splat_has_one_spelling() -> None:
    third = float(np.float32(0.1))
    assert Splat(third, Type(f32, ())) == Splat(0.1, Type(f32, ()))
    assert Splat(third, Type(f64, ())) != Splat(0.1, Type(f64, ()))
    assert Splat(1, Type(f32, ())) == Splat(1.0, Type(f32, ())) == Splat(True, Type(f32, ()))
    assert Splat(-0.0, Type(f32, ())) != Splat(0.0, Type(f32, ()))
    assert Splat(1e9, Type(f16, ())).evaluate() == np.inf
    assert Splat(float("nan"), Type(f32, (1,))) == Splat(float("nan"), Type(f32, (1,)))
    assert Splat(True, Type(i8, ())).value is not True
    assert Splat(1, Type(bool_, ())).value is True


def test_text_of_attributes() -> None:
    values = (None, True, 1, -0.5, float("inf"), "a", (1, (2.0,)), f32, Type(f32, (2,)))
    assert [attr_text(v) for v in values] == [
        *("none", "true", "1", "-0.5", "inf", '"a"', "(1,(2.0))", "f32", "f32[2]")
    ]
    with pytest.raises(TypeError, match="list is not an attribute type"):
        attr_text([1])
    assert quote('a"\\\n\x7fé') == '"a\\"\\\\\\n\\u{7f}\\u{e9}"'


def test_what_computes_nothing_has_no_value() -> None:
    with pytest.raises(ValueError, match="input x has no value"):
        X.evaluate()
    assert np.array_equal(Constant(Tensor.of([1.0, 2.0])).evaluate(), [1.0, 2.0])


def test_optional_operands() -> None:
    x, w, b = (Input(n, Type(f32, s)) for n, s in (("x", (1, 2, 4, 4)), ("w", (3, 2, 1, 1)), ("b", (3,))))
    assert Conv(x, w).operands == (x, w)
    assert Conv(x, w, b).operands == (x, w, b)
    assert Conv(x, w, b).with_operands((x, w, b)).operands == (x, w, b)
    assert Conv(x, w).expansion is None


def test_an_op_without_a_definition_says_so() -> None:
    class Hollow(Op):
        x: Op

    with pytest.raises(TypeError, match="Hollow has no definition"):
        Hollow(X)
    assert apply("neg", 1.0) is not None
    assert LeakyRelu(X, alpha=0.5).kernel.digest != LeakyRelu(X).kernel.digest
    assert Cast(X, to=f64).type.dtype is f64
