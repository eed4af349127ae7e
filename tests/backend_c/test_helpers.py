"""Helpers of the prelude: a program has those that it uses and no others, and minds no other program's."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
from dlc_backend_c import condition_indices, in_order, masks
from dlc_backend_c.backend import C
from dlc_backend_c.function import c_function
from dlc_backend_c.helpers import macros, names, needed, paragraphs
from dlc_backend_c.indices import index
from dlc_backend_c.lanes_to_c import converted, dots, pick, splat, vector
from dlc_backend_c.prelude import prelude, whole_prelude
from dlc_backend_c.sections import split, units
from dlc_backend_c.spelling import STORAGE, VALUE, spell
from dlc_backend_c.target import GENERIC, X86_64_V3, X86_64_V4, CTarget

from dlc import Report, Spec
from dlc.base.types import DTYPES, DType, bf16, f32, f64, i32, u8
from dlc.graph import evaluate
from dlc.kernel.expr import Apply, Axis, Const, Expr
from dlc.kernel.loops.program import Dots, Local
from dlc.kernel.scalar import SCALARS
from dlc.kernel.schedules.lanes import has_vectors
from dlc.runtime.install import install
from tests.backend_c.models import content, plan_of, shell, small_net
from tests.backend_c.test_build import EXAMPLE, driver, printed
from tests.backend_c.test_functions import table
from tests.tools import COMPILERS, SANITIZE

TARGETS = {t.cpu: t for t in (GENERIC, X86_64_V3, X86_64_V4)}
STRICT = ("-Wall", "-Wextra", "-Werror", "-Wunused-function")


@cache
def everything(target: CTarget) -> str:
    """Functions that use all that kernels may use: every function of every type, scalar and in lanes."""
    a, b = Axis("a", 3) - 5, Axis("b", 4)
    subscripts = [index(Apply(fn, (a, b))) for fn in ("min", "max", "floordiv", "mod")]
    found = [c_function(k, f"f{n}", target).text for n, k in enumerate(table())]
    found += [f"ptrdiff_t g{n}(ptrdiff_t a, ptrdiff_t b) {{ return {text}; }}" for n, text in enumerate(subscripts)]
    for t in (f32, f64):
        # A number as the second argument has a shorter form; rounded division of floats is no function of the table.
        texts = (f"dlc_minc_{t}(a, 1)", f"dlc_maxc_{t}(a, 1)", spell("floordiv", t, ("a", "2")))
        found += [f"{VALUE[t]} h{n}_{t}({VALUE[t]} a) {{ return {text}; }}" for n, text in enumerate(texts)]
        # What the table's kernels compute in vectors where there are any.
        for fn in ("min", "max"):
            found.append(f"{VALUE[t]} {fn}_{t}({VALUE[t]} a, {VALUE[t]} b) {{ return {spell(fn, t, ('a', 'b'))}; }}")
    found += [f"float {fn}_of(float a) {{ return {spell(fn, f32, ('a',))}; }}" for fn in ("exp", "tanh", "erf")]
    found.append("int32_t byte_of(float x) { return dlc_to_byte(x, 3, 0, 255); }")
    found.append(f"ptrdiff_t chosen(ptrdiff_t i) {{ return {condition_indices.HELPER}(i); }}")
    found.append(f"{in_order.MACRO} void marked(void) {{ {masks.MACRO}; }}")
    found += [f"int p_{t}(const uint8_t *p) {{ return dlc_{t}_at(p, 1); }}" for t in DTYPES.values() if t.per_byte > 1]
    for t in (f32, f64) if target.vector_bytes else ():
        size = target.vector_bytes
        while size >= 16:
            found += _of_lanes(t, size // t.itemsize)
            size //= 2
    if target.vector_bytes:
        found.append("int32_t bounded(float x, const uint8_t *p) { return dlc_bounded(x) + *(const dlc_word *)p; }")
        widths = [n for n in (4, 8, 16) if 4 * n <= target.vector_bytes]
        found += [_of_bytes(n) for n in widths]
        found += [
            f"u32x{n} bytes_of_{t}x{n}(const uint8_t *p) {{ return dlc_bytes_{t}_u32x{n}(p, 1, 0); }}"
            for n in widths
            for t in ("u2", "u4")
        ]
    else:
        found.append("int32_t bounded(float x) { return dlc_bounded(x); }")
    return "\n".join(found)


def _of_lanes(t: DType, n: int) -> list[str]:
    v = f"{t}x{n}"
    number: tuple[Expr, ...] = (Axis("a", 1), Const(1.0))
    any_two: tuple[Expr, ...] = (Axis("a", 1), Axis("b", 1))
    values = [
        vector(fn, t, n, ("*a", "*b")[: SCALARS[fn].arity], args)
        for fn in sorted(fn for fn in SCALARS if has_vectors(fn, t))
        for args in (any_two, number)
    ]
    values += [splat(t, n, "x"), f"*({v}_any *)c", f"dlc_load_second_{v}(c)", f"dlc_kept_{v}(*a)"]
    lines = "".join(f"    *r = {value};\n" for value in dict.fromkeys(values))
    lines += "".join(f"    *c = dlc_fold_{fn}_{v}(*a);\n" for fn in ("add", "mul", "min", "max"))
    lines += f"    dlc_store_past_{v}(c, *a);\n    dlc_stored_past();\n"
    given = f"const {v} *a, const {v} *b, {VALUE[t]} *c, {VALUE[t]} x, {v} *r"
    used = [f"void use_{v}({given})\n{{\n{lines}    (void)x;\n}}"]
    if t is not f32:
        return used
    a = Local("*a", t, n)
    picked = " + ".join(pick(parts, "at", 1) for parts in ((a, a), (a, a, a, a)))
    used.append(f"{v} picked_{v}(const {v} *a, const int32_t *at) {{ return {picked}; }}")
    return used + [_of_narrow(narrow, v) for narrow in DTYPES.values() if narrow.narrow]


def _of_bytes(n: int) -> str:
    """Vectors of sums of words: loaded, computed with and stored."""
    v = f"i32x{n}"
    of_bytes, of_bf16 = (Dots(Local("*b", t, n * k), Local("*b", t, n * k)) for t, k in ((i32, 1), (bf16, 2)))
    values = [vector(fn, i32, n, ("*a", "*b"), (Axis("a", 1), Axis("b", 1))) for fn in ("add", "sub", "mul")]
    values += [dots(of_bytes, n, "*a"), splat(i32, n, "1"), f"*(const {v}_bytes *)p", f"*(const {v}_any *)a"]
    values += [f"dlc_load_u8_{v}(p)", f"dlc_load_i8_{v}(q)", converted(f32, u8, n, "*x")]
    values += [f"dlc_to_byte_{v}(*x, 3, 0, 255)"]
    lines = "".join(f"    *r = {value};\n" for value in values)
    stores = f"    dlc_store_u8_{v}(p, *r);\n    dlc_store_i8_{v}(q, *r);\n    *x = {dots(of_bf16, n, '*x')};\n"
    stores += f"    *x = dlc_whole_f32x{n}(*x, 0.0f, 9.0f);\n"
    given = f"const {v} *a, const {v} *b, f32x{n} *x, uint8_t *p, int8_t *q, {v} *r"
    return f"void use_{v}({given})\n{{\n{lines}{stores}}}"


def _of_narrow(t: DType, v: str) -> str:
    """Vectors that are loaded from a narrow type, rounded and stored."""
    value = f"dlc_load_{t}_{v}(p)"
    if t.per_byte > 1:
        value += f" + dlc_unpack_{t}_{v}(p, 1) + dlc_every_{t}_{v}(p, 0, 1)"
        value += f" + dlc_raised_{t}_{v}(p, 0, 1)" if t.name in ("u2", "u4") else ""
    if t.format is None:
        return f"{v} use_{t}_{v}(const {STORAGE[t]} *p) {{ return {value}; }}"
    value += f" + {converted(f32, t, int(v.partition('x')[2]), 'x')}"
    return f"void use_{t}_{v}({STORAGE[t]} *p, {v} x)\n{{\n    dlc_store_{t}_{v}(p, {value});\n}}"


@pytest.mark.parametrize("cpu", TARGETS)
def test_something_uses_every_helper(cpu: str) -> None:
    whole = whole_prelude(TARGETS[cpu])
    text = everything(TARGETS[cpu])
    assert len(names(whole)) == len(set(names(whole))) > 50
    assert needed(whole, text) == prelude(TARGETS[cpu], text)
    assert set(names(whole)) - set(names(needed(whole, text))) == set()
    assert needed(whole, "") == needed(whole, "int main(void) { return 0; }")
    assert names(needed(whole, "")) == ()


@pytest.mark.parametrize("cc", COMPILERS)
@pytest.mark.parametrize("cpu", TARGETS)
def test_no_compiler_finds_an_unused_one(cc: str, cpu: str, tmp_path: Path) -> None:
    """Functions that are inline are nothing that gcc tells of, so they are not."""
    text = everything(TARGETS[cpu])
    _check_text(f"{prelude(TARGETS[cpu], text)}\n{text}\n", cc, TARGETS[cpu], tmp_path)
    # In parts, so that helpers which others use come along, and none beside them.
    kernels = table()
    for part in (kernels[::40], kernels[7::40]):
        own = "\n".join(c_function(k, f"f{n}", TARGETS[cpu]).text for n, k in enumerate(part))
        _check_text(f"{prelude(TARGETS[cpu], own)}\n{own}\n", cc, TARGETS[cpu], tmp_path)


def _check_text(text: str, cc: str, target: CTarget, place: Path) -> None:
    (place / "text.c").write_text(text.replace("#define DLC_INLINE static inline", "#define DLC_INLINE static"))
    shell(cc, *target.flags, "-O0", *STRICT, "-Wno-psabi", "-c", "text.c", "-o", "text.o", cwd=place)


def test_a_kernel_compiled_apart_has_its_own_helpers() -> None:
    """Whatever else the model computes: its text, and so its object, is that of every other model with this kernel."""
    source = content(
        C.from_spec(Spec.parse("c{cpu=x86-64-v3}")).emit(plan_of(small_net()), Report()), "model.c"
    ).decode()
    kernels = {s.name: s.text for s in split(source) if s.kind == "kernel"}
    for unit in units(source)[:-1]:
        assert prelude(X86_64_V3, kernels[unit.name]) in unit.text
    assert "dlc_exp_f32" in source and not all("dlc_exp_f32" in unit.text for unit in units(source))


def test_paragraphs() -> None:
    first, second = "DLC_INLINE int f(int x) { return x; }\n", "DLC_INLINE int g(int x)\n{\n    return f(x);\n}\n"
    text = paragraphs(f"#include <a.h>\n{first}/* Why. */\n{second}")
    assert text == f"#include <a.h>\n\n{first}\n/* Why. */\n{second}"
    assert names(text) == ("f", "g") and macros(text) == ()
    assert needed(text, "f(1)") == f"#include <a.h>\n\n{first}"
    assert needed(text, "g(1)") == text
    assert needed(text, "ff(1)") == "#include <a.h>\n"


@pytest.mark.parametrize("cc", COMPILERS)
@pytest.mark.parametrize("second", ["generic", "x86-64-v3"])
def test_two_programs_in_one_unit(cc: str, second: str, tmp_path: Path) -> None:
    """Some of their kernels and helpers have one name, and other texts where they are for two processors."""
    graphs = {"first": small_net(), "second": small_net(seed=5)}
    for (name, graph), cpu in zip(graphs.items(), ("x86-64-v3", second), strict=True):
        backend = C.from_spec(Spec.parse(f"c{{cpu={cpu} lib=none prefix={name}}}"))
        install(backend.emit(plan_of(graph, backend), Report()), tmp_path)
        (tmp_path / f"{name}_main.c").write_text(driver(name).replace("int main(void)", f"int {name}_main(void)"))
    both = "int first_main(void);\nint second_main(void);\nint main(void) { return first_main() || second_main(); }\n"
    (tmp_path / "main.c").write_text(f'#include "first.c"\n#include "second.c"\n{both}')
    files = ("main.c", "first_main.c", "second_main.c", "first_weights.S", "second_weights.S")
    shell(cc, "-std=c99", *X86_64_V3.flags, *STRICT, "-O1", *SANITIZE, *files, "-o", "run", "-lm", cwd=tmp_path)
    want = [evaluate(g, {"x": EXAMPLE})["probabilities"].ravel() for g in graphs.values()]
    assert not np.allclose(want[0], want[1])
    np.testing.assert_allclose(printed(shell("./run", cwd=tmp_path)), np.concatenate(want), rtol=1e-4)
