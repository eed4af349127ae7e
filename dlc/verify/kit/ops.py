"""Checks of ops: each sample by its definition, its override, text and gradient, and in programs of every target."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dlc.base.diagnostics import DlcError
from dlc.base.types import Array, Type, f64
from dlc.graph import Graph, Input, Op, evaluate, parse_graph, print_graph, toposort, verify
from dlc.graph.gradient import gradients
from dlc.graph.walk import evaluate_ops
from dlc.kernel.define import ShapeError
from dlc.kernel.evaluate import run_kernel
from dlc.ops.elementwise import Mul
from dlc.ops.reduce import ReduceSum
from dlc.plugins.discovery import packs_of
from dlc.plugins.plugin import pip_install
from dlc.spec import Spec
from dlc.verify.compare import Tolerance, compare
from dlc.verify.differences import Differences
from dlc.verify.differences import Subject as Scalar
from dlc.verify.kit.check import Check, Skipped, Wrong
from dlc.verify.kit.programs import agree, program_of
from dlc.verify.kit.subject import feed, in_words

if TYPE_CHECKING:
    from dlc.api.samples import OpSample
    from dlc.plugins.entry import Entry
    from dlc.verify.kit.subject import Subject

NEAR = Tolerance(2e-5, 2e-6)
"""How far a value may be from its derivation, in 32-bit floats."""


def derived(op: Op, arrays: list[Array]) -> Array:
    """The value by the declaration alone: the kernel's loops, or the composition down to kernels."""
    if op.expansion is None:
        return run_kernel(op.kernel, arrays)[0]
    known: dict[Op, Array] = dict(zip(op.operands, arrays, strict=True))
    for part in toposort((op.expansion,), known):
        known[part] = derived(part, [known[x] for x in part.operands])
    return known[op.expansion]


def graph_of(op: Op) -> Graph:
    """The op alone, as the result y."""
    return Graph(tuple(i for i in toposort((op,)) if isinstance(i, Input)), (op,), ("y",))


def _samples(subject: Subject, entry: Entry) -> list[OpSample]:
    """Raises Wrong: there are none."""
    kind: type[Op] = entry.load()
    found = [s for s in subject.samples.ops if isinstance(s.op, kind)]
    if not found:
        raise Wrong(
            f"there is no sample of {entry.name}", f"add OpSample({kind.__name__}(…)) to the Samples of dlc_samples"
        )
    return found


def _in_python(subject: Subject, entry: Entry) -> bool:
    """Whether an op is a class of the plugin's; those of packs have examples, and `pack` looks at them."""
    del subject
    # Not by their base, whose import needs the libraries of packs.
    return getattr(entry.target, "declared", None) is None


def _has_packs(subject: Subject, entry: None) -> bool:
    del entry
    return subject.plugin.state == "ok" and bool(packs_of(subject.plugin))


def value(subject: Subject, entry: Entry) -> str:
    """That `evaluate` gives what the declaration does, and the sample's value."""
    count = 0
    for sample in _samples(subject, entry):
        values, op = feed(sample, subject.seed), sample.op
        arrays = [values[x.name] for x in op.operands if isinstance(x, Input)]
        if len(arrays) != len(op.operands):
            raise Wrong(f"the sample {op!r} is of other ops", "give each operand of a sample an Input")
        got = evaluate_ops((op,), dict(zip(op.operands, arrays, strict=True)))[0]
        _same(f"{op!r}: evaluate and the definition", got, derived(op, arrays), "mend evaluate, or leave it out")
        if sample.value is not None:
            _same(
                f"{op!r}: the op and its sample's value",
                got,
                np.asarray(sample.value).astype(got.dtype),
                "mend one of them",
            )
            count += 1
    return f"{len(_samples(subject, entry))} samples, {count} with a value of their own"


def _same(what: str, got: Array, want: Array, help: str, tolerance: Tolerance = NEAR) -> None:
    if (got.shape, got.dtype) != (want.shape, want.dtype):
        raise Wrong(f"{what} differ: {got.dtype}{list(got.shape)} and {want.dtype}{list(want.shape)}", help)
    found = compare("y", got, want, tolerance)
    if not found.ok:
        at = list(found.worst)
        raise Wrong(f"{what} differ in {found.wrong} of {found.size} elements, by {found.max_abs:.3g} at {at}", help)


def text(subject: Subject, entry: Entry) -> str:
    """That a graph of the op prints, and parses back as the same graph; that it verifies."""
    classes = subject.classes
    for sample in _samples(subject, entry):
        graph = graph_of(sample.op)
        if problems := verify(graph):
            raise Wrong(f"{sample.op!r}: {problems[0].message}", "its type has to follow from its operands")
        printed = print_graph(graph)
        try:
            again = parse_graph(printed, classes)
        except DlcError as problem:
            raise Wrong(
                f"{printed!r} does not parse: {in_words(problem)}", "use attributes that text can hold"
            ) from None
        if again.digest != graph.digest or print_graph(again) != printed:
            raise Wrong(
                f"{sample.op!r} parses as another graph: {print_graph(again)!r}", "use attributes that text can hold"
            )
    return "prints and parses"


def kernel(subject: Subject, entry: Entry) -> str:
    """That loops follow from attributes and operand types alone: `lower` uses a kernel for every equal op."""
    count = 0
    for sample in _samples(subject, entry):
        if sample.op.expansion is not None:
            continue
        same = {x.type: Input("same", x.type) for x in sample.op.operands}
        if sample.op.with_operands([same[x.type] for x in sample.op.operands]).kernel != sample.op.kernel:
            raise Wrong(f"{sample.op!r}: its loops depend on what its operands are", "define must use their types only")
        count += 1
    return f"{count} kernels" if count else "a composition of other ops"


def gradient(subject: Subject, entry: Entry) -> str:
    """That derivatives are those that differences show, in double precision."""
    checked = 0
    for sample in _samples(subject, entry):
        values = feed(sample, subject.seed)
        wide = [
            Input(x.name, Type(f64, x.shape)) if x.dtype.is_float and isinstance(x, Input) else x
            for x in sample.op.operands
        ]
        try:
            op = sample.op.with_operands(wide)
        except ShapeError:
            op = sample.op
        wrt = [i for i in op.operands if isinstance(i, Input) and i.dtype.is_float] if op.dtype.is_float else []
        if not wrt:
            continue
        rng = np.random.default_rng(subject.seed)
        seed = Input("cotangent of y", op.type)
        feeds: dict[Op, Array] = {i: values[i.name].astype(i.dtype.numpy) for i in op.operands if isinstance(i, Input)}
        feeds[seed] = np.asarray(rng.standard_normal(op.shape), op.dtype.numpy)
        try:
            found = gradients([op], [seed], wrt)
        except DlcError as problem:
            raise Skipped(f"it has no gradient: {in_words(problem)}") from None
        product = Mul(op, seed)
        total = ReduceSum(product, axes=tuple(range(len(op.shape))), keep=False) if op.shape else product
        for d in Differences.at(
            Scalar(total, dict(zip(wrt, found, strict=True)), {i: i.name for i in wrt}, feeds)
        ).check(2, 0):
            if (worst := d.worst) is not None and not d.ok:
                both = f"is {worst.derivative:.6g}, differences show {worst.difference:.6g}"
                raise Wrong(
                    f"{op!r}: the derivative by {d.name} {both}",
                    "mend vjp, or leave it out: a gradient is derived from the definition",
                )
            checked += d.worst is not None
    if not checked:
        raise Skipped("nothing to differentiate, or no difference settles")
    return f"{checked} derivatives"


def target(subject: Subject, entry: Entry) -> str:
    """That programs for every target give the reference's values."""
    samples = _samples(subject, entry)
    done: list[str] = []
    refused: list[str] = []
    for spec in subject.all_targets:
        backend = subject.registry.backend(Spec.parse(spec))
        for sample in samples:
            graph, feeds = graph_of(sample.op), feed(sample, subject.seed)
            want = evaluate(graph, feeds)["y"]
            program = program_of(subject, graph, spec)
            if program is None:
                refused.append(spec)
            else:
                agree(f"{sample.op!r}: a program for {spec}", program, feeds, {"y": want}, backend)
        if spec not in refused:
            done.append(spec)
    if subject.targets and refused:
        raise Wrong(f"{refused[0]} refuses the op", "name the targets that have it by --target")
    if len(refused) == len(samples) * len(subject.all_targets):
        raise Skipped(
            f"{', '.join(dict.fromkeys(refused))} refuse it" if refused else "no backend is installed",
            pip_install("c"),
        )
    return ", ".join(done) + (f"; {len(refused)} refused with a reason" if refused else "")


def pack(subject: Subject, entry: None) -> str:
    """Everything that `dlc ops check` looks at, for the packs of the plugin and every target."""
    del entry
    from dlc.verify.op_packs import check_packs, failed

    found = check_packs(packs_of(subject.plugin), subject.all_targets)
    if wrong := failed(found):
        raise Wrong(f"{len(wrong)} of {len(found)} checks failed: {wrong[0]}", "dlc ops check FILE shows all")
    return f"{len({c.op for c in found})} ops, {len(found)} checks"


CHECKS = (
    *(
        Check(name, asks, run, "ops", concerns=_in_python)
        for name, asks, run in (
            ("op-value", "evaluate gives what the definition gives, and what the samples say", value),
            ("op-text", "a graph of it prints, parses back and verifies", text),
            ("op-kernel", "its loops follow from attributes and operand types", kernel),
            ("op-gradient", "its gradient agrees with finite differences", gradient),
            ("op-target", "programs for every target give the reference's values", target),
        )
    ),
    Check(
        "op-pack",
        "ops of packs agree with examples, differences, and programs for every target",
        pack,
        concerns=_has_packs,
    ),
)
