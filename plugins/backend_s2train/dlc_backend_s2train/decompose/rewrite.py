"""Instructions on blocks of kernels in place of those on whole ones.

    y = post(conv(x, w))    →   p₀ = conv(x, w₀);  p₁ = p₀ + conv(x, w₁);  …  y = post(pₙ₋₁ + conv(x, wₙ))
    dx = post(dy * w)       →   the same over blocks
    dw = gradient(dy, x)    →   dwₖ = gradient(dy, x) of each block
    w' = w - r·dw           →   wₖ' = wₖ - r·dwₖ, whether dw was stored or not

Sums between are fp32, so that only the last one is rounded. Where `aux` has another use (bits of dropout), all
products leave a sum, and the unit behind the array works as an instruction of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from dlc.api.backend import Reason
from dlc.api.plan import results_of
from dlc.base.diagnostics import Diagnostic
from dlc.base.types import Type, f32
from dlc.graph import Constant, Graph, Input, Item, Op, Tensor
from dlc_backend_s2train.codes import OPERANDS, Splitting
from dlc_backend_s2train.decompose.blocks import Block, block_name, blocks, part_of
from dlc_backend_s2train.decompose.kernels import FACTORS, GRADIENTS, Blocks, argument, by_element, product, refusal
from dlc_backend_s2train.instruction import S2Instruction, geometry_values, hyper_of, hyper_values, mixed, names_of
from dlc_backend_s2train.program import Geometry

_Operand = tuple[Op, tuple[int, ...], int]
"""A value, the shape in which it is seen, bytes before it."""
_BITS: Final = names_of(~Splitting(0))


@dataclass
class Rewriting:
    """A graph whose kernels come to lie in blocks."""

    graph: Graph
    cut: Mapping[str, Blocks]
    """Digest of a value → the blocks in which it has to lie."""
    problems: list[Diagnostic] = field(default_factory=list[Diagnostic])
    origins: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    decomposed: list[tuple[S2Instruction, Geometry, Blocks]] = field(
        default_factory=list[tuple[S2Instruction, Geometry, Blocks]]
    )
    """Products that were replaced."""
    _new: dict[str, Op] = field(default_factory=dict[str, Op])
    """Digest of an op → what stands for it."""
    _parts: dict[str, tuple[Op, ...]] = field(default_factory=dict[str, tuple[Op, ...]])
    """Digest of a value in blocks → its blocks."""

    def run(self) -> Graph:
        """The rewritten graph; `problems` says what could not be."""
        for op in self.graph.ops:
            self._visit(op)
        if self.problems:
            return self.graph
        inputs = [self._given(i) for i in self.graph.inputs]
        self._check_names(Counter(i.name for held in inputs for i in held))
        outputs: list[list[tuple[str, Op]]] = []
        for name, op in zip(self.graph.names, self.graph.outputs, strict=True):
            parts = self._parts.get(op.digest)
            names = [name] if parts is None else [block_name(name, b) for b in self.cut[op.digest]]
            outputs.append(list(zip(names, parts or (self._new[op.digest],), strict=True)))
        aliases = [
            pair for i, j in self.graph.aliases for pair in zip(_places(outputs, i), _places(inputs, j), strict=True)
        ]
        flat = [each for several in outputs for each in several]
        made = Graph(
            tuple(i for held in inputs for i in held),
            tuple(op for _, op in flat),
            tuple(name for name, _ in flat),
            tuple(aliases),
        )
        live = {op.digest for op in made.ops}
        return replace(made, origins={d: names for d, names in self.origins.items() if d in live})

    def _given(self, x: Input) -> list[Input]:
        parts = self._parts.get(x.digest) or ((x,) if x.digest not in self.cut else self._cut_input(x))
        return [part for part in parts if isinstance(part, Input)]

    def _check_names(self, names: Counter[str]) -> None:
        for held in self.graph.inputs:
            if names[held.name] > 1:
                self.problems.append(refusal(self.graph, held, Reason(f"input {held.name} is called like a block")))

    # ---- one op after the other ----
    def _visit(self, op: Op) -> None:
        match op:
            case Input() if op.digest in self.cut:
                self._parts[op.digest] = self._cut_input(op)
            case Constant() if op.digest in self.cut:
                self._parts[op.digest] = self._cut_constant(op, self.cut[op.digest])
            case Item(of=of, index=k):
                if op.digest not in self.cut:
                    self._new[op.digest] = Item(self._new[of.digest], k)
            case S2Instruction():
                self._instruction(op)
            case _:
                self._keep(op, op.with_operands([self._new[x.digest] for x in op.operands]))

    def _instruction(self, op: S2Instruction) -> None:
        g = product(op)
        results = results_of(op)
        kernel = results[0] if op.stage in GRADIENTS else argument(op, "src1")
        if g is not None and kernel is not None:
            several = blocks(g) if isinstance(kernel, Constant) else self.cut.get(kernel.digest, ())
            if len(several) > 1:
                self.decomposed.append((op, g, several))
                if op.stage in GRADIENTS:
                    self._elements(op, several, [part_of(g, b) for b in several], FACTORS)
                else:
                    self._chain(op, g, several, kernel)
                return
        elif by_element(op) and any(x.digest in self.cut for x in (*op.args, *results)):
            self._elements(op, self.cut[results[0].digest], [None] * len(self.cut[results[0].digest]), set())
            return
        if inside := [x for x in op.args if x.digest in self.cut]:
            names = ", ".join(x.name for x in inside if isinstance(x, Input)) or "a kernel"
            message = f"{op.opcode} {op.stage} reads {names} as a whole, which lies in blocks"
            self.problems.append(refusal(self.graph, op, Reason(message, "a kernel of at most 3 x 3")))
            self._new[op.digest] = op
            return
        self._keep(op, op.with_operands([self._new[x.digest] for x in op.args]))

    def _keep(self, old: Op, new: Op, block: Block | None = None) -> Op:
        """Note what stands for an op, and where it comes from."""
        if names := self.graph.origin(old):
            self.origins[new.digest] = names if block is None else tuple(block_name(name, block) for name in names)
        if block is None:
            self._new[old.digest] = new
        return new

    # ---- values in blocks ----
    def _cut_input(self, x: Input) -> tuple[Op, ...]:
        found: list[Op] = []
        for block in self.cut[x.digest]:
            shape = (*x.shape[:-2], *block.shape)
            initial = x.initial
            if isinstance(initial, Tensor):
                initial = _cut_tensor(initial, block)
            found.append(Input(block_name(x.name, block), Type(x.dtype, shape), x.role, initial))
        return tuple(found)

    def _cut_constant(self, x: Constant, several: Blocks) -> tuple[Op, ...]:
        return tuple(Constant(_cut_tensor(x.tensor, b), block_name(x.name, b)) for b in several)

    def _elements(
        self, op: S2Instruction, several: Blocks, geometries: list[Geometry] | list[None], whole: Collection[str]
    ) -> None:
        """An instruction for each block; operands in `whole` are no kernels."""
        results = results_of(op)
        kernels = [shape for slot, shape, at in op.reads if slot not in whole and not at]
        kernels += [shape for _, _, shape, _, at in op.writes if not at]
        if len(kernels) < len(op.reads) - len(whole) + len(op.writes) or {x.shape for x in results} != set(kernels):
            message = f"{op.opcode} {op.stage} sees a kernel in blocks as {' and '.join(str(list(k)) for k in kernels)}"
            self.problems.append(refusal(self.graph, op, Reason(message)))
        made: list[Op] = []
        for k, (block, g) in enumerate(zip(several, geometries, strict=True)):
            read: dict[str, _Operand] = {
                slot: (self._new[x.digest], shape, at)
                if slot in whole
                else (self._parts[x.digest][k], (*shape[:-2], *block.shape), 0)
                for x, (slot, shape, at) in zip(op.args, op.reads, strict=True)
            }
            changes: dict[str, Any] = {} if g is None else {"geometry": geometry_values(g)}
            if "prune" in op.flags and (hyper := hyper_of(op.hyper)) is not None:
                # Elements of different blocks have equal numbers.
                changes["hyper"] = hyper_values(replace(hyper, seed=mixed(hyper.seed, k)))
            new = _made(
                op,
                read,
                list(op.splitting),
                writes=tuple((s, e, (*shape[:-2], *block.shape), role, at) for s, e, shape, role, at in op.writes),
                results=tuple(Type(t.dtype, (*t.shape[:-2], *block.shape)) for t in op.results),
                **changes,
            )
            made.append(self._keep(op, new, block))
        for k, value in enumerate(results):
            self._parts[value.digest] = tuple(results_of(part)[k] for part in made)

    # ---- sums over blocks ----
    def _chain(self, op: S2Instruction, g: Geometry, several: Blocks, kernel: Op) -> None:
        """The instructions of a product's blocks; the last one, or one behind it, gives what the product gave."""
        constant = isinstance(kernel, Constant)
        weights = self._cut_constant(kernel, several) if constant else self._parts[kernel.digest]
        given: dict[str, _Operand] = {
            slot: (self._new[x.digest], shape, at)
            for x, (slot, shape, at) in zip(op.args, op.reads, strict=True)
            if slot != "src1"
        }
        y = (g.n, g.ci, g.hi, g.wi) if op.stage == "backward" else (g.n, g.co, g.ho, g.wo)
        partial = given.pop("aux") if "accumulate_in" in op.splitting else None
        # `aux` holds something else than a sum: then the array leaves its last sum to the unit alone.
        behind = "aux" in given or "aux" in (slot for slot, *_ in op.writes)
        for k, (block, weight) in enumerate(zip(several, weights, strict=True)):
            ends = k == len(several) - 1 and not behind
            read = {**(given if ends else {"src0": given["src0"]}), "src1": (weight, weight.shape, 0)}
            splitting: list[str] = []
            if partial is not None:
                read["aux"] = partial
                splitting.append("accumulate_in")
            splitting += [bit for bit in op.splitting if bit == "first" and k == 0]
            splitting += [bit for bit in op.splitting if bit in ("last", "accumulate_out") and ends]
            part = geometry_values(part_of(g, block))
            if ends:
                self._keep(op, _made(op, read, splitting, geometry=part))
            else:
                found = _made(
                    op,
                    read,
                    [*splitting, "accumulate_out"],
                    geometry=part,
                    flags=(),
                    hyper=(),
                    writes=(("dst0", "fp32", y, "partial", 0),),
                    results=(Type(f32, y),),
                )
                partial = self._keep(op, found, block), y, 0
        if behind:
            assert partial is not None, "a sum of several blocks"
            self._keep(op, _made(op, {**given, "src0": partial}, ["first", "last"], opcode="eltwise", geometry=()))


def _made(of: S2Instruction, read: Mapping[str, _Operand], splitting: list[str], **changes: Any) -> S2Instruction:
    """An instruction like another; operands in the order of a word, bits in theirs."""
    slots = [slot for slot in OPERANDS if slot in read]
    attrs: dict[str, Any] = {
        **of.attrs,
        "splitting": tuple(bit for bit in _BITS if bit in splitting),
        "reads": tuple((slot, *read[slot][1:]) for slot in slots),
        **changes,
    }
    return S2Instruction(tuple(read[slot][0] for slot in slots), **attrs)


def _cut_tensor(tensor: Tensor, block: Block) -> Tensor:
    return Tensor.of(tensor.array()[..., block.rows.slice, block.columns.slice])


def _places(several: list[list[tuple[str, Op]]] | list[list[Input]], k: int) -> range:
    """Numbers of the k-th one's parts among all parts."""
    begin = sum(len(each) for each in several[:k])
    return range(begin, begin + len(several[k]))
