"""s2-select: a graph of ops becomes a graph of instructions of the accelerator.

    relu(batch_norm(conv(x, w)))   →   one instruction: forward conv, bn_forward, relu

It works on a model, or on a training step with gradients as single ops (`autodiff{named=…}`); see `selection` for the
stages that are merged into an instruction. All ops that cannot be placed are reported at once. If the accelerator
computes less of the model than was asked for, the error has the share in nodes and in multiply-adds.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Final, Literal

from dlc.api.passes import Level, Pass
from dlc.base.diagnostics import Diagnostic, DlcError, Location
from dlc.base.narrowing import recording
from dlc.base.report import Report
from dlc.base.types import bf16, f16, f32
from dlc.graph import Graph, Input, Op
from dlc.graph.closed import check_closed
from dlc.graph.floats import with_floats
from dlc.ops.loss import CrossEntropy, LabelCrossEntropy
from dlc.passes.unroll import Unroll
from dlc.spec import option
from dlc_backend_s2train.codes import Element, Role, Stage
from dlc_backend_s2train.isa.instruction_set import Opcode
from dlc_backend_s2train.legalise.legalise import legalised
from dlc_backend_s2train.select import memory
from dlc_backend_s2train.select.build import built, on_single_lines
from dlc_backend_s2train.select.coverage import check_coverage
from dlc_backend_s2train.select.ends import Ends, add_updates, ends_of
from dlc_backend_s2train.select.host_fallback import Left, computes, hosted_graph, joined
from dlc_backend_s2train.select.memory import Key, is_row, key, needs, owner, source
from dlc_backend_s2train.select.partition import moved
from dlc_backend_s2train.select.products import turned
from dlc_backend_s2train.select.rules import visit
from dlc_backend_s2train.select.selection import Group, Made, Selection, Settings
from dlc_backend_s2train.select.value_ranges import tell_losses

_BEGIN: Final = 2.0**15
"""Of a dynamic loss scale."""
ELSEWHERE: Final = "compile for target c"
HOSTED: Final = f"let the host compute it: leave out s2-select{{fallback=none}}; or {ELSEWHERE}"


@dataclass(frozen=True)
class S2Select(Pass[Graph, Graph]):
    """Choose instructions of the S2Train accelerator: relu(batch_norm(conv(x, w)))  →  one instruction."""

    name: ClassVar[str] = "s2-select"
    level_in: ClassVar[Level] = "ops"
    level_out: ClassVar[Level] = "kernels"
    loss_scale: float | Literal["dynamic"] = option(
        1024.0,
        "factor of gradients while they are fp16, a power of two; dynamic: 32768 at first, halved after a step with an "
        "overflow, doubled after scale-steps steps without one",
        low=1,
    )
    scale_steps: int = option(
        2000, "number of steps without overflow after which a dynamic loss scale is doubled", low=1, high=(1 << 32) - 1
    )
    master: bool = option(False, "keep trained weights in fp32 too, and round them to fp16 after each update")
    prune: float = option(
        0.0,
        "gradients of weights smaller than this are replaced by it or by 0 at random, with the same mean; 0: off",
        low=0,
    )
    seed: int = option(0, "seed of the random numbers for prune", low=0, high=(1 << 53) - 1)
    update: Literal["fused", "apart"] = option(
        "fused",
        "fused: apply the gradient of a weight while it is computed, in fp32, without storing it; apart, and always "
        "with fuse=no: store it as fp16 first",
    )
    residual: Literal["double", "single"] = option(
        "double",
        "double: store the gradient of the residual branch and the gradient after the last norm of the block; single: "
        "recover the former from the latter, divided by scale/std, which saves memory and traffic but rounds once more",
    )
    fuse: bool = option(
        True, "merge the stages that follow into an instruction; no: one instruction for each op, for comparison"
    )
    fallback: Literal["none", "host"] = option(
        "host", "ops without an instruction: computed by the host between instructions, or rejected"
    )
    min_ops: float = option(
        0.0, "minimum share of the model's nodes that the device computes, in percent", low=0, high=100
    )
    min_macs: float = option(
        0.0, "minimum share of the model's multiply-adds that the device computes, in percent", low=0, high=100
    )
    masks: bool = option(
        False, "store masks of relu and pointers of pools even if nothing reads them, as words of version 1 do"
    )

    def run(self, state: Graph, report: Report) -> Graph:
        """The graph of instructions.

        Raises:
            DlcError: ops that neither an instruction nor the host computes: all of them, with the reasons; (LIMIT) the
            device computes less of the model than `min_ops` and `min_macs`.
        """
        check_closed(state, "the target s2train")
        if narrow := {t.dtype for op in (*state.inputs, *state.ops) for t in op.types} & {f16, bf16}:
            state = with_floats(state, narrow, f32)  # values are stored as fp16 whatever the model calls them
        with recording() as losses:
            work, left, made = self._selected(state, report)
        tell_losses(losses, report, work, made)
        if left.ops:
            check_coverage(made, left, {"ops": self.min_ops, "macs": self.min_macs})
        return made

    def _selected(self, state: Graph, report: Report) -> tuple[Selection, Left, Graph]:
        """The selection, what it leaves to the host, its instructions."""
        state = Unroll().run(state, Report())  # neither the device nor its host functions have branches and loops
        check_elements(state)
        # As autodiff opens it, which leaves only what it differentiates; a function that evaluates has it whole.
        state = state.rewrite(lambda op: op.expansion if isinstance(op, CrossEntropy) else None)
        state = legalised(without_packs(state)).rewrite(turned)
        apart = self.update == "apart" or not self.fuse
        scale, growth = (_BEGIN, self.scale_steps) if self.loss_scale == "dynamic" else (self.loss_scale, 0)
        single = self.residual == "single"
        settings = Settings(scale, self.master, self.prune, self.seed, self.fuse, apart, growth, self.masks, single)
        left = Left()
        work, found = _settled(state, settings, left, self.fallback)
        outputs = {value for _, value in (*found.plain, *found.new.values())}
        if more := moved(found.order, work.hosted, partial(computes, trains=found.trains), outputs):
            wider = left.wider(work, more)
            try:
                work, found = _settled(state, settings, wider, self.fallback)
                left = wider
            except DlcError:  # a function of the host would be too large
                report.count("functions of the host that stay apart")
        _tell(report, work, found, left)
        return work, left, built(work.graph, work.groups, found.plain, found.new)


def check_elements(graph: Graph) -> None:
    """Refuse element types that neither the device nor the link to it has, and ops that hold graphs.

    Raises:
        DlcError: (`not-placed`) all of them.
    """
    problems = [
        Diagnostic(
            "not-placed",
            f"{op.text_name}: the element type {found[0]} is not supported",
            location=Location(node=op.name if isinstance(op, Input) else ", ".join(graph.origin(op)) or op.text_name),
            help="convert it to float or int32 in the model, or compile for target c",
        )
        for op in dict.fromkeys((*graph.inputs, *graph.ops))
        if (found := [t.dtype for t in op.types if t.dtype.library])
    ]
    problems += [
        Diagnostic(
            "not-placed",
            f"{op.text_name}: a loop that ends at run time, or is too long to be unrolled, is not supported",
            location=Location(node=", ".join(graph.origin(op)) or op.text_name),
            help="export it with a small constant number of iterations, or compile for target c",
        )
        for op in graph.ops
        if op.body_names
    ]
    if problems:
        raise DlcError(*problems)


def without_packs(graph: Graph) -> Graph:
    """The graph with what ops of packs are composed of: the device may have instructions for the parts."""
    while True:
        opened = graph.rewrite(lambda op: op.as_ops() if op.of_pack else None)
        if opened.digest == graph.digest:
            return graph
        graph = opened


def _settled(state: Graph, settings: Settings, left: Left, fallback: str) -> tuple[Selection, _Found]:
    """A selection that refuses nothing, and what it is about; what it refused before is in `left`.

    Raises:
        DlcError: what neither an instruction nor the host computes.
    """
    while True:
        # Told once nothing is refused any more.
        work = Selection(hosted_graph(state, left), Report(), settings, hosted=frozenset(left.ops))
        found = _selected(work)
        if not work.problems:
            return work, found
        if fallback == "none" or not left.take(work, found.trains):
            help = HOSTED if fallback == "none" else ELSEWHERE
            raise DlcError(*(problem if problem.help else replace(problem, help=help) for problem in work.problems))


@dataclass(frozen=True)
class _Found:
    """What a selection is about, besides its groups."""

    plain: list[tuple[str, Key]]
    """Outputs by name."""
    new: Mapping[Input, tuple[str, Key]]
    """What the device holds → name and key of what is written over it."""
    order: tuple[Op, ...]
    """The ops that were placed, operands first."""
    trains: bool


def _selected(work: Selection) -> _Found:
    """Select instructions for the graph; what cannot be placed is in the selection's problems."""
    ends = ends_of(work.graph, work)
    work.running = ends.running
    order = _placed(work.graph, ends.roots, work.hosted)
    work.count(order, tuple(ends.roots))
    for op in order:
        visit(work, op)
    plain = _outputs(work, ends)
    work.close()
    if work.settings.single:
        work.report.count("gradients on single lines", on_single_lines(work))
    new = {**add_updates(work, ends.trained, order), **ends.moved}
    if not work.problems:
        joined(work, (value for _, value in (*plain, *new.values())))
    if ends.trained and work.hosted and not any(isinstance(op, LabelCrossEntropy) for op in order):
        message = (
            "the device scales gradients at its own loss: with ops on the host it trains by loss=cross-entropy only"
        )
        work.refuse(ends.trained[0].weight, message)
    return _Found(plain, new, order, bool(ends.trained))


def _tell(report: Report, work: Selection, found: _Found, left: Left) -> None:
    """What was selected, and what is left to the host."""
    report.misses += work.report.misses
    for what, count in work.report.counts.items():
        report.count(what, count)
    report.count("instructions", len(work.groups))
    report.count("ops", len(found.order))
    if left.ops:
        report.count("ops of the host", len(left.ops))
    for node, why in left.by_node().items():
        report.missed(node, f"is left to the host: {why}")
    if found.trains:
        scale = "dynamic" if work.settings.growth else f"{work.settings.loss_scale:g}"
        report.note(
            f"loss scale {scale}: each update checks its own gradient alone for overflow and waits for no other; a "
            "check of all gradients before the first update would need all of them in memory at once"
        )


def _placed(graph: Graph, roots: list[Op], hosted: Set[str]) -> tuple[Op, ...]:
    """The ops that instructions are for: what the roots need, through what instructions read."""
    ops = {op.digest: op for op in graph.ops}
    wanted: set[str] = set()
    pending = [op.digest for op in roots]
    while pending:
        digest = pending.pop()
        op = ops[digest]
        if digest in wanted or isinstance(op, Input) or memory.known_value(op) is not None:
            continue
        wanted.add(digest)
        pending += [owner(value) for value in needs(op, hosted)]
    return tuple(op for op in graph.ops if op.digest in wanted)


def _outputs(work: Selection, ends: Ends) -> list[tuple[str, Key]]:
    """The keys of outputs by name: values that instructions give, copied where one is wanted in a second shape."""
    found: list[tuple[str, Key]] = []
    for name, op, shape in ends.plain:
        constant = memory.known_value(op) is not None
        if constant and not op.dtype.is_float:
            message = f"output {name} is a constant of {op.dtype.name}: the device gives floats"
            work.refuse(op, message, "leave it out of the model's outputs")
        elif is_row(op):
            found.append((name, _copied(work, op, name, Element.FP32, shape)))
        elif constant or isinstance(source(op), Input) or work.shown.get(key(op), shape) != shape:
            found.append((name, _copied(work, op, name, _element(work, op), shape)))
        else:
            found.append((name, key(op)))
    return found


def _element(work: Selection, op: Op) -> Element:
    """How a value is stored."""
    stored = (made.element for group in work.groups for made in group.writes.values() if made.key == key(op))
    return next(stored, Element.FP16 if op.dtype.is_float else Element.INT32)


def _copied(work: Selection, op: Op, name: str, element: Element, shape: tuple[int, ...]) -> Key:
    """The key of a copy of a value, or of a row of what an instruction gives, for an output."""
    made = Made(f"{op.digest}.copy.{name}", element, shape, Role.WEIGHT_GRADIENT if is_row(op) else Role.ACTIVATION)
    group = Group(Opcode.COPY, Stage.BACKWARD if is_row(op) else Stage.FORWARD, op, origin=[op])
    group.reads["src0"] = work.given(op)
    group.writes["dst0"] = made
    work.groups.append(group)
    return made.key
