"""The tests of an op pack: every op on its examples, by several ways that have to agree.

    example     the reference gives what the example says
    text        a graph of the op prints, and parses back
    gradient    derivatives against differences, in double precision
    declared    a gradient that the pack gives against the one that is derived
    composition what targets that take ops have instead, against the definition
    TARGET      values and gradients of a program against the reference

For an author's own tests: `assert not failed(check_packs([Path("vision.ops.yaml")]))`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from dlc.api.source import Source
from dlc.base.diagnostics import DlcError
from dlc.base.types import Array, Type, dtype_of_numpy, f64
from dlc.graph import Input, Op, evaluate, make_graph, parse_graph, print_graph
from dlc.graph.gradient import gradients
from dlc.graph.walk import evaluate_ops
from dlc.kernel.define import ShapeError
from dlc.op_packs.declared import op_class
from dlc.op_packs.examples import Example
from dlc.op_packs.load import LoadedOp, Pack, load_pack, pack_files
from dlc.ops.elementwise import Mul
from dlc.ops.reduce import ReduceSum
from dlc.spec import Spec
from dlc.verify.compare import Comparison, Tolerance, compare
from dlc.verify.differences import Differences, Subject
from dlc.verify.reference import tolerance_for

if TYPE_CHECKING:
    from dlc.driver.program import Compiler

EXAMPLE: Final = Tolerance(1e-5, 1e-6)
"""How far values may be from those of an example, which are written with a few digits."""
_DERIVED: Final = Tolerance(1e-8, 1e-9)


@dataclass(frozen=True)
class Check:
    """One result."""

    op: str
    example: int
    """Its number, from 0."""
    what: str
    """"example", "text", "composition", "gradient x", "declared x", or a target."""
    ok: bool
    detail: str = ""
    """The largest error, or what went wrong."""


@dataclass(frozen=True)
class _Case:
    """An op on one example."""

    of: LoadedOp
    number: int
    example: Example

    @property
    def name(self) -> str:
        return self.of.read.name

    def check(self, what: str, found: Comparison) -> Check:
        detail = f"largest difference {found.max_abs:.2g}"
        if not found.ok:
            detail += f" at {list(found.worst)}; {found.wrong} of {found.size} elements differ"
        return Check(self.name, self.number, what, found.ok, detail)

    def failed(self, what: str, problem: object) -> Check:
        return Check(self.name, self.number, what, False, " ".join(str(problem).split()))

    def floats(self, op: Op) -> list[Input]:
        """The operands that have a gradient."""
        inputs = [i for i in op.operands if isinstance(i, Input)]
        return [i for i in inputs if i.dtype.is_float] if op.dtype.is_float else []

    def seed(self, op: Op) -> tuple[Input, Array]:
        """A cotangent of the result, and a value for it."""
        values = np.random.default_rng(7).standard_normal(op.shape)
        return Input(f"d{self.of.read.record.result}", op.type), np.asarray(values, op.dtype.numpy)


def check_packs(paths: Iterable[Path], targets: Sequence[str] = ("c",)) -> list[Check]:
    """All checks of the packs in files or directories.

    Args:
        paths: Files `*.ops.yaml`, or directories of such.
        targets: Backends with options, as for `--target`, that build and run the ops.

    Raises:
        DlcError: a pack is not sound, or a target does not exist.
    """
    files = [file for path in paths for file in pack_files(path)]
    packs = [load_pack(file) for file in files]
    out = [check for pack in packs for case in _cases(pack) for check in _checks(case)]
    if targets:
        compiler = _compiler(packs, files)
        for target in targets:
            for pack in packs:
                out += _built(pack, target, compiler)
    return out


def failed(checks: Iterable[Check]) -> list[str]:
    """A line for each check that failed."""
    return [f"{c.op}, example {c.example}, {c.what}: {c.detail}" for c in checks if not c.ok]


def _cases(pack: Pack) -> Iterator[_Case]:
    for op in pack.ops:
        for number, example in enumerate(op.examples):
            yield _Case(op, number, example)


def _checks(case: _Case) -> Iterator[Check]:
    op = case.example.op(case.of.kind)
    graph = make_graph([i for i in op.operands if isinstance(i, Input)], {"y": op})
    got = evaluate(graph, case.example.operands)["y"]
    want = case.example.result.astype(got.dtype)
    yield case.check("example", compare("y", got, want, EXAMPLE))
    again = parse_graph(print_graph(graph), {"input": Input, op.text_name: type(op)})
    yield Check(case.name, case.number, "text", again == graph, "" if again == graph else "it parses as another graph")
    if case.of.read.statements and (other := op.as_ops()) is not None and op.as_ops() != op.expansion:
        instead = evaluate(make_graph(graph.inputs, {"y": other}), case.example.operands)["y"]
        yield case.check("composition", compare("y", instead, got, EXAMPLE))
    if case.floats(op):
        try:
            yield from _gradients(case)
        except (DlcError, ShapeError) as problem:
            yield case.failed("gradient", problem)


def _gradients(case: _Case) -> Iterator[Check]:
    """In double precision where the op accepts it."""
    types = {n: _wide(a) for n, a in case.example.operands.items()}
    try:
        op = case.example.with_types(case.of.kind, types)
    except ShapeError:
        return  # its operands are of one type by declaration: a program's gradients are still held against this one
    wrt = case.floats(op)
    seed, values = case.seed(op)
    feeds: dict[Op, Array] = {
        i: case.example.operands[i.name].astype(i.dtype.numpy) for i in op.operands if isinstance(i, Input)
    }
    feeds[seed] = values
    found = gradients([op], [seed], wrt)
    subject = Subject(_total(Mul(op, seed)), dict(zip(wrt, found, strict=True)), {i: i.name for i in wrt}, feeds)
    for checked in Differences.at(subject).check(2, 0):
        worst = checked.worst
        detail = "no difference settles" if worst is None else f"largest error {checked.error(worst):.2g}"
        # Where a function has a corner in every direction, differences decide nothing, and so nothing against it.
        yield Check(case.name, case.number, f"gradient {checked.name}", checked.ok or worst is None, detail)
    if case.of.kind.declared.gradient is not None:
        plain = op_class(replace(case.of.kind.declared, gradient=None))
        derived = gradients([case.example.with_types(plain, types)], [seed], wrt)
        got, want = evaluate_ops(found, feeds), evaluate_ops(derived, feeds)
        for i, a, b in zip(wrt, got, want, strict=True):
            yield case.check(f"declared {i.name}", compare(i.name, a, b, _DERIVED))


def _total(x: Op) -> Op:
    return ReduceSum(x, axes=tuple(range(len(x.shape))), keep=False) if x.shape else x


def _wide(a: Array) -> Type:
    dtype = dtype_of_numpy(a.dtype)
    assert dtype is not None
    return Type(f64 if dtype.is_float else dtype, a.shape)


def _compiler(packs: Sequence[Pack], files: Sequence[Path]) -> Compiler:
    """A compiler that has the packs, those that no plugin brings by name."""
    from dlc.cache import open_cache
    from dlc.driver.program import Compiler
    from dlc.plugins.discovery import load_registry

    brought = load_registry(kinds=("ops",)).ops
    named = [f for f, p in zip(files, packs, strict=True) if not all(kind.text_name in brought for kind in p.classes)]
    return Compiler(load_registry(packs=named), open_cache(None, "off"))


def _built(pack: Pack, target: str, compiler: Compiler) -> Iterator[Check]:
    """One program that computes everything, against the reference."""
    inputs: dict[Input, Array] = {}
    outputs: dict[str, tuple[_Case, Op]] = {}
    for k, case in enumerate(_cases(pack)):
        op = case.example.op(case.of.kind)
        seed, values = case.seed(op)
        own = {i: Input(f"{k}.{i.name}", i.type) for i in (*op.operands, seed) if isinstance(i, Input)}
        moved = op.with_operands([own[i] for i in op.operands if isinstance(i, Input)])
        inputs |= {own[i]: case.example.operands[i.name] for i in op.operands if isinstance(i, Input)}
        outputs[f"{k}"] = case, moved
        if wrt := case.floats(moved):
            inputs[own[seed]] = values
            for i, found in zip(wrt, gradients([moved], [own[seed]], wrt), strict=True):
                outputs[f"d{i.name}"] = case, found
    graph = make_graph(list(inputs), {name: op for name, (_, op) in outputs.items()})
    feeds = {i.name: a for i, a in inputs.items()}
    want = evaluate(graph, feeds)
    program: Any = compiler.program(Source(data=print_graph(graph).encode()), target)
    got: Mapping[str, Array] = program(**{p.name: feeds[p.name] for p in program.signature.inputs})
    backend = compiler.registry.backend(Spec.parse(target))
    for name, (case, _) in outputs.items():
        limit = tolerance_for("numpy", want[name], None, None, backend.tolerance)
        what = target if name.isdigit() else f"{target} d{name.partition('.')[2]}"
        yield case.check(what, compare(name, got[name], want[name], limit))
