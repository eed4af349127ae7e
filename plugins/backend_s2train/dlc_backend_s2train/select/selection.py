"""Which instructions compute a graph: start at products, absorb the stages that follow while that is legal.

    relu(batch_norm(conv(x, w)) + r)   →   one instruction: conv, then norm, addition, relu of the unit behind the array

A stage is absorbed if it comes later in the unit's order than those before it, and if the value between has no other
reader (backward, one such value may go to memory beside the result: the gradient before a norm, which the other way of
a residual block reads). Nothing that an instruction reads depends on what it absorbed: values between have one reader,
which was absorbed too. So groups are convex, and no pattern is written down.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

from dlc.diagnostics import Diagnostic, Location
from dlc.graph import Constant, Cotangent, Graph, Op
from dlc.ops.elementwise import Relu
from dlc.ops.linear import Conv, Gemm, MatMul
from dlc.ops.loss import LabelCrossEntropy
from dlc.ops.normalize import BatchNorm
from dlc.ops.pool import MaxPool
from dlc.report import Report
from dlc_backend_s2train.isa.forms import FORM_OF
from dlc_backend_s2train.program import Element, Flag, Hyper, Opcode, Role, Stage
from dlc_backend_s2train.select import parameters
from dlc_backend_s2train.select.effects import Key, addends, gradient, is_sum, key, mask, needs, pointers, source
from dlc_backend_s2train.select.group import Given, Group, Made
from dlc_backend_s2train.select.products import Product, backward_of, product_of

# Orders of the unit's stages, forward and backward.
_NORM, _ADD, _RELU, _POOL = 1, 2, 3, 4
_UNPOOL, _SUM, _MASK, _SCALE = 1, 2, 3, 4


@dataclass
class Selection:
    """The groups of a graph, and what could not be placed."""

    graph: Graph
    report: Report
    loss_scale: float = 1.0
    groups: list[Group] = field(default_factory=list[Group])
    problems: list[Diagnostic] = field(default_factory=list[Diagnostic])
    _open: dict[Key, Group] = field(default_factory=dict[Key, Group])
    """Groups that may absorb more, by the key of what they give so far."""
    _readers: Counter[Key] = field(default_factory=Counter[Key])
    _norms: Counter[Key] = field(default_factory=Counter[Key])
    """How many of the readers of a gradient are backward norms."""
    _second: dict[Key, Group] = field(default_factory=dict[Key, Group])
    """Groups that will take a second backward norm of the same gradient."""

    def refuse(self, op: Op, reason: str, help: str = "") -> None:
        """One thing that cannot be placed."""
        node = ", ".join(self.graph.origin(op)) or op.text_name
        self.problems.append(
            Diagnostic("not-placed", f"{op.text_name}: {reason}", location=Location(node=node), help=help)
        )

    def count(self, ops: tuple[Op, ...], outputs: tuple[Op, ...]) -> None:
        """Note who reads what."""
        for op in ops:
            for value in needs(op):
                self._readers[value] += 1
                self._norms[value] += isinstance(op, Cotangent) and isinstance(op.of, BatchNorm)
        for op in outputs:
            self._readers[key(op)] += 1

    # ---- opening and absorbing ----
    def begin(self, group: Group) -> Group:
        """A group that may absorb what follows."""
        self.groups.append(group)
        self._open[group.tail.digest] = group
        return group

    def _follows(self, value: Op, rank: int, stage: Stage, flags: Flag) -> Group | None:
        """The open group that gives a value to this reader alone, if a stage of this rank may follow there."""
        group = self._open.get(key(value))
        if group is None or group.stage is not stage or group.rank >= rank or source(value) is not group.tail:
            return None
        if flags & ~FORM_OF[group.opcode, stage].flags:
            return None
        if self._readers[key(value)] > 1:
            self.report.missed(self._name(value), f"has {self._readers[key(value)]} readers, so it goes to memory")
            return None
        return group

    def _name(self, op: Op) -> str:
        return ", ".join(self.graph.origin(op)) or op.text_name

    def _stage(self, op: Op, value: Op, rank: int, stage: Stage, flags: Flag) -> Group:
        """The group that `op`, a stage on `value`, ends: the one that gives the value, else one of its own."""
        group = self._follows(value, rank, stage, flags)
        if group is None:
            group = Group(Opcode.ELTWISE, stage, op)
            group.reads["src0"] = Given(key(value), value.shape)
            self.groups.append(group)
        else:
            del self._open[group.tail.digest]
        group.absorb(op, rank, flags)
        self._open[op.digest] = group
        return group

    def close(self) -> None:
        """Say where every group's result goes."""
        for group in self.groups:
            if "dst0" not in group.writes:
                role = Role.ACTIVATION if group.stage is Stage.FORWARD else Role.FEATURE_GRADIENT
                group.writes["dst0"] = Made(group.tail.digest, Element.FP16, group.tail.shape, role)

    # ---- one op after the other ----
    def visit(self, op: Op) -> None:
        """Place an op; ops that are none of the accelerator's business are left for others to refuse."""
        match op:
            case Conv() | Gemm() | MatMul():
                self._product(op)
            case BatchNorm():
                self._norm(op)
            case Relu():
                group = self._stage(op, op.x, _RELU, Stage.FORWARD, Flag.RELU)
                if self._readers[mask(op)]:
                    group.flags |= Flag.MASK_WRITE
                    group.writes["mask"] = Made(mask(op), Element.BIT, op.shape, Role.MASK)
            case MaxPool():
                self._pool(op)
            case Cotangent(of=Conv() | Gemm() | MatMul()):
                self._product_gradient(op)
            case Cotangent(of=Relu() as of):
                group = self._stage(op, op.seed, _MASK, Stage.BACKWARD, Flag.MASK_READ)
                group.reads["mask"] = Given(mask(of), of.shape)
            case Cotangent(of=MaxPool() as of):
                self._unpool(op, of)
            case Cotangent(of=BatchNorm() as of):
                self._norm_gradient(op, of)
            case Cotangent(of=LabelCrossEntropy()):
                pass  # the loss gives its gradient
            case LabelCrossEntropy():
                self.loss(op)
            case _ if is_sum(op):
                self._sum(op)
            case _:
                self.refuse(op, f"{op.text_name} has no instruction", "fallback=host leaves it to the host")

    def _product(self, op: Op) -> None:
        found = product_of(op)
        if isinstance(found, str):
            self.refuse(op, found)
            return
        group = Group(found.opcode, Stage.FORWARD, op, geometry=found.geometry, origin=[op])
        group.reads["src0"] = Given(key(found.x), found.x.shape)
        if (weight := self._weight(found)) is None:
            self.refuse(op, "its weights are computed: they must be stored")
            return
        group.reads["src1"] = Given(weight, weight.shape)
        if found.bias is not None:
            group.flags |= Flag.BN_FORWARD
            group.rank = _NORM
            rows = self._bias(found)
            if rows is None:
                self.refuse(op, "its bias is computed: it must be stored")
                return
            group.reads["bn0"] = Given(rows, rows.shape)
        self.begin(group)

    def _weight(self, product: Product) -> Op | None:
        rows = parameters.weight_rows(product.w, product.transposed)
        return None if rows is None else parameters.held(product.w, rows)

    def _bias(self, product: Product) -> Op | None:
        assert product.bias is not None
        values = parameters.known_value(product.bias)
        if values is None:
            return None
        return parameters.held(product.bias, parameters.bias_rows(values, product.geometry.co))

    def _norm(self, op: BatchNorm) -> None:
        product = self._open.get(key(op.x))
        try:
            group = self._follows(op.x, _NORM, Stage.FORWARD, Flag.BN_FORWARD)
            if group is None and product is not None and self._fixed_bias(product, op):
                # A bias before a norm with stored statistics only moves the mean.
                bias = parameters.known_value(product.tail.operands[2])
                del self._open[product.tail.digest]
                product.absorb(op, _NORM, Flag.BN_FORWARD)
                self._open[op.digest] = group = product
                rows = parameters.norm_rows(op, bias)
            else:
                group = self._stage(op, op.x, _NORM, Stage.FORWARD, Flag.BN_FORWARD)
                rows = parameters.norm_rows(op)
        except ValueError as problem:
            self.refuse(op, str(problem), "keep the norm's parameters as they are: wrt=!norms stored-norms=yes")
            return
        stored = parameters.held(op, rows, op.scale.name if isinstance(op.scale, Constant) else "")
        group.reads["bn0"] = Given(stored, rows.shape)

    def _fixed_bias(self, product: Group, op: BatchNorm) -> bool:
        last = product.tail
        alone = self._readers[last.digest] == 1 and source(op.x) is last and product.rank == _NORM
        return alone and isinstance(last, Conv) and isinstance(last.b, Constant)

    def _pool(self, op: MaxPool) -> None:
        k = window(op)
        if not k:
            told = f"window {list(op.window)}, stride {list(op.stride)}, pads {list(op.pads)}"
            self.refuse(
                op, f"{told}: the unit pools windows of 2 or 4 side by side", "fallback=host leaves it to the host"
            )
            return
        group = self._stage(op, op.x, _POOL, Stage.FORWARD, Flag.POOL_2 if k == 2 else Flag.POOL_4)
        if self._readers[pointers(op)]:
            group.flags |= Flag.POINTER_WRITE
            group.writes["ptr"] = Made(pointers(op), pointer_element(k), op.shape, Role.POINTER)

    def _sum(self, op: Op) -> None:
        a, b = addends(op)
        forward = Stage.BACKWARD if self._is_gradient(a) or self._is_gradient(b) else Stage.FORWARD
        rank = _ADD if forward is Stage.FORWARD else _SUM
        # The later product absorbs the sum: the other one is known by then.
        both = [(self._follows(x, rank, forward, Flag.ADD), x, y) for x, y in ((b, a), (a, b))]
        found = [(self.groups.index(g), x, y) for g, x, y in both if g is not None]
        _, x, y = max(found, key=lambda f: f[0]) if found else (0, a, b)
        group = self._stage(op, x, rank, forward, Flag.ADD)
        group.reads["res"] = Given(key(y), y.shape)

    def _is_gradient(self, op: Op) -> bool:
        found = source(op)
        if isinstance(found, Cotangent):
            return True
        return is_sum(found) and any(isinstance(source(x), Cotangent) for x in found.operands)

    # ---- backward ----
    def _product_gradient(self, op: Cotangent) -> None:
        found = product_of(op.of)
        if isinstance(found, str):
            self.refuse(op, found)
            return
        group = backward_of(op, found)
        group.origin.append(op)
        if op.operand == 0:
            weight = self._weight(found)
            assert weight is not None, "the forward product had weights"
            group.reads["src1"] = Given(weight, weight.shape)
            self.begin(group)
        else:
            self.groups.append(group)

    def _unpool(self, op: Cotangent, of: MaxPool) -> None:
        k = window(of)
        if not k:
            return  # the pool itself was refused
        flags = Flag.POINTER_READ | (Flag.POOL_2 if k == 2 else Flag.POOL_4)
        group = self._stage(op, op.seed, _UNPOOL, Stage.BACKWARD, flags)
        group.reads["ptr"] = Given(pointers(of), of.shape)

    def _norm_gradient(self, op: Cotangent, of: BatchNorm) -> None:
        if op.operand:
            self.refuse(op, "the unit does not train a norm's parameters", "wrt=!norms leaves them as they are")
            return
        rows = parameters.norm_rows(of)
        stored = parameters.held(of, rows, of.scale.name if isinstance(of.scale, Constant) else "")
        seed = key(op.seed)
        group = self._open.get(seed)
        if group is not None and group.stage is Stage.BACKWARD and group.rank < _SCALE and group.tail.digest == seed:
            readers, norms = self._readers[seed], self._norms[seed]
            if readers > 1:
                # The gradient before the norm has other readers, so it goes to memory beside the result.
                group.writes["dst1"] = Made(seed, Element.FP16, group.tail.shape, Role.FEATURE_GRADIENT)
            del self._open[seed]
            group.absorb(op, _SCALE, Flag.BN_BACKWARD)
            group.reads["bn0"] = Given(stored, rows.shape)
            self._open[op.digest] = group
            if readers == norms == 2:
                del group.writes["dst1"]
                self._second[seed] = group
            return
        if (group := self._second.pop(seed, None)) is not None:
            group.flags |= Flag.BN_BACKWARD_2
            group.origin.append(op)
            group.reads["bn1"] = Given(stored, rows.shape)
            group.writes["dst1"] = Made(op.digest, Element.FP16, op.shape, Role.FEATURE_GRADIENT)
            return
        group = self._stage(op, op.seed, _SCALE, Stage.BACKWARD, Flag.BN_BACKWARD)
        group.reads["bn0"] = Given(stored, rows.shape)

    # ---- loss ----
    def loss(self, op: LabelCrossEntropy) -> None:
        """Cross-entropy with its gradient: the end of the forward stage and the begin of the backward one."""
        group = self._follows_alone(op)
        if group is None:
            group = Group(Opcode.LOSS, Stage.FORWARD, op)
            group.reads["src0"] = Given(key(op.scores), op.scores.shape)
            self.groups.append(group)
        else:
            self._open.pop(group.tail.digest, None)
            group.flags |= Flag.SOFTMAX_CE
        group.origin.append(op)
        group.reads["aux"] = Given(key(op.labels), op.labels.shape)
        group.hyper = replace(group.hyper or Hyper(), scale=self.loss_scale)
        group.writes["dst0"] = Made(gradient(op), Element.FP16, op.scores.shape, Role.FEATURE_GRADIENT)
        group.writes["dst1"] = Made(op.digest, Element.FP32, (1,), Role.LOSS)

    def _follows_alone(self, op: LabelCrossEntropy) -> Group | None:
        """The linear layer whose scores nobody but the loss reads."""
        group = self._open.get(key(op.scores))
        if group is None or group.opcode is not Opcode.LINEAR or group.tail is not source(op.scores):
            return None
        return group if self._readers[key(op.scores)] == 1 and group.rank <= _NORM else None


def window(op: MaxPool) -> int:
    """2 or 4 for a pool that the unit has: windows side by side that fill the data; else 0."""
    (k, *rest), shape = op.window, op.x.shape
    fits = rest == [k] and k in (2, 4) and tuple(op.stride) == (k, k) and not any(op.pads)
    plain = all(d == 1 for d in op.dilation) and len(shape) == 4
    return k if fits and plain and shape[2] % k == 0 and shape[3] % k == 0 else 0


def pointer_element(k: int) -> Element:
    """What a place in a window of k × k is stored as."""
    return Element.PTR2 if k == 2 else Element.PTR4
