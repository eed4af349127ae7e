"""What each instruction of a program costs (`estimate`), and what it moves over the link (`traffic`).

An instruction begins when the one before it has ended; inside of it loads, computation and stores overlap as the
assumptions say. Instructions of the post-processing unit alone move as many elements a cycle as there are columns;
copies, fills and pools of the host cost the link only.

Over the link go frames of features and weights in, other operands in, results out. Features pass by once for each
column pass if weights stay (weight-stationary), weights once for each unit if features stay; the policy with fewer
bytes of those that the memories allow is taken and recorded. Sums that take several loads of the weight memory go out
and come back in between. Source: link model of the S2Train compiler, section 6.5.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from dlc_backend_s2train.codes import Splitting, Stage
from dlc_backend_s2train.cost.cycles import (
    Assumptions,
    Bound,
    Times,
    Work,
    beats,
    compute_cycles,
    configuration_cycles,
    ppu_latency,
    utilisation,
    work_of,
)
from dlc_backend_s2train.cost.operand_traffic import touched
from dlc_backend_s2train.frames.layout import STRIP, parted
from dlc_backend_s2train.frames.sizes import Policy, sizes
from dlc_backend_s2train.isa.instruction_set import FORM_OF, PRODUCTS, ROW_OF, Opcode, Time, spelled
from dlc_backend_s2train.program import Geometry, Instruction, Program, Target


@dataclass(frozen=True)
class Traffic:
    """Bytes over the link."""

    features: int = 0
    """Frames of one unit's features, sent once."""
    weights: int = 0
    """Frames of all weights, sent once."""
    frames: int = 0
    """All frames, as often as `policy` sends them."""
    others: int = 0
    """Operands without frames that are read: masks, pointers, norms, addends, partial sums."""
    results: int = 0
    """All that is written."""
    spill: int = 0
    """Partial sums inside the instruction, in one direction."""
    policy: Policy | None = None
    """None: no frames."""
    weight_stationary: int = 0
    """Bytes of frames under this policy."""
    feature_stationary: int | None = None
    """None: a unit's features do not fit the feature memory."""

    @property
    def inward(self) -> int:
        """Bytes in."""
        return self.frames + self.others + self.spill

    @property
    def outward(self) -> int:
        """Bytes out."""
        return self.results + self.spill


def traffic(program: Program, instruction: Instruction, partial: int = 4) -> Traffic:
    """The traffic of one instruction of a verified program.

    Args:
        program: Where its operands and geometry are.
        instruction: Which.
        partial: Bytes of a partial sum that leaves the array between two loads of weights: 4, 2, or 0 if a column has
            room for all.

    Raises:
        DlcError: "bad-instruction", "bad-geometry", "too-large".
    """
    if ROW_OF[instruction.opcode].time is Time.NOTHING:
        return Traffic()
    if instruction.opcode not in PRODUCTS:
        sides = touched(program, instruction)
        return Traffic(others=sides.read_bytes, results=sides.written_bytes)
    sides = touched(program, instruction, ("src0", "src1"))
    g = shape_of(program, instruction)
    found = sizes(instruction.opcode, instruction.product, g, None, program.target, instruction.cores)
    return Traffic(
        found.features.bytes,
        found.weights.bytes,
        found.total.bytes,
        sides.read_bytes,
        sides.written_bytes,
        (found.splits // g.groups - 1) * _sums(instruction.product, g) * partial,
        found.policy,
        found.weight_stationary.bytes,
        found.feature_stationary.bytes if found.resident else None,
    )


def shape_of(program: Program, instruction: Instruction) -> Geometry:
    """The geometry of an instruction for the array; the gradient of a bias is that of a 1 x 1 kernel over ones."""
    assert instruction.geometry is not None, "the array's instructions have one"
    g = program.geometries[instruction.geometry]
    if instruction.product is Stage.WEIGHT_GRADIENT and "src1" not in instruction.operands:
        one = replace(g, ci=1, groups=1, hi=g.ho, wi=g.wo, kh=1, kw=1, channels=(0, 0))
        return replace(one, stride=(1, 1), pads=(0, 0, 0, 0), dilation=(1, 1))
    return g


def _sums(stage: Stage, g: Geometry) -> int:
    """Elements of an instruction's result before the post-processing unit."""
    n = g.n if g.samples == (0, 0) else g.samples[1] - g.samples[0]
    ci = g.ci if g.channels == (0, 0) else g.channels[1] - g.channels[0]
    match stage:
        case Stage.FORWARD:
            return n * g.co * g.ho * g.wo
        case Stage.BACKWARD:
            return n * g.ci * g.hi * g.wi
        case _:
            return g.co * ci // g.groups * g.kh * g.kw


@dataclass(frozen=True)
class Cost:
    """One instruction."""

    number: int
    """In the program."""
    title: str
    """`conv backward`."""
    result: str
    """Name of the tensor that it writes; as the model spelled it, so it is escaped wherever it is shown."""
    traffic: Traffic
    times: Times
    start: int
    """Cycle at which it begins."""
    work: Work | None = None
    """None: nothing for the array."""

    @property
    def end(self) -> int:
        """First cycle after it."""
        return self.start + self.times.total

    @property
    def macs(self) -> int:
        """Products that the results need."""
        return self.work.macs if self.work else 0

    @property
    def steps(self) -> int:
        """Broadcast steps."""
        return self.work.steps if self.work else 0


@dataclass(frozen=True)
class Total:
    """Some instructions together."""

    instructions: int
    macs: int
    steps: int
    inward: int
    """Bytes in."""
    outward: int
    configuration: int
    """Cycles."""
    load: int
    compute: int
    store: int
    cycles: int
    """From begin to end."""
    utilisation: Fraction
    """macs / (4096·steps)."""

    @property
    def bound(self) -> Bound:
        """What takes longest; of link and array together, what a faster one of would help most."""
        return Times(self.configuration, self.load, self.compute, self.store).bound

    @property
    def bound_in_words(self) -> str:
        """The bound for people."""
        return {"compute": "compute bound", "load": "link bound, inwards", "store": "link bound, outwards"}.get(
            self.bound, "bound by configuration"
        )


def estimate(
    program: Program, assumptions: Assumptions | None = None, begin: int = 0, end: int | None = None
) -> tuple[Cost, ...]:
    """Costs of instructions `begin` to before `end` of a verified program; time begins with the first.

    Raises:
        DlcError: "bad-instruction", "bad-geometry", "too-large", "bad-target".
    """
    assumptions = assumptions or Assumptions()
    found: list[Cost] = []
    at = 0
    for number, instruction in enumerate(program.instructions[begin:end], begin):
        found.append(_cost(program, number, instruction, assumptions, at))
        at = found[-1].end
    return tuple(found)


def total(costs: Sequence[Cost], target: Target | None = None) -> Total:
    """The sums of some costs that follow each other."""
    macs, steps = sum(c.macs for c in costs), sum(c.steps for c in costs)
    return Total(
        len(costs),
        macs,
        steps,
        sum(c.traffic.inward for c in costs),
        sum(c.traffic.outward for c in costs),
        sum(c.times.configuration for c in costs),
        sum(c.times.load for c in costs),
        sum(c.times.compute for c in costs),
        sum(c.times.store for c in costs),
        sum(c.times.total for c in costs),
        utilisation(macs, steps, target),
    )


def _cost(program: Program, number: int, instruction: Instruction, assumptions: Assumptions, at: int) -> Cost:
    moved = traffic(program, instruction, assumptions.partial_bytes)
    stages = sum(opcode is instruction.opcode for opcode, _ in FORM_OF)
    title = spelled(instruction.opcode) + (f" {spelled(instruction.stage)}" if stages > 1 else "")
    written = instruction.operands.get("dst0")
    result = program.tensors[written].name if written is not None else ""
    load, store = beats(moved.inward), beats(moved.outward)
    if instruction.opcode not in PRODUCTS:
        compute, chunks, work = *_posted(program, instruction), None
        times = Times(0, load, compute, store, chunks, overlapped=assumptions.overlapped)
        return Cost(number, title, result, moved, times, at, work)
    g = shape_of(program, instruction)
    work = work_of(instruction.opcode, instruction.product, g, program.target, instruction.cores)
    posted = instruction.stage is not Stage.WEIGHT_GRADIENT and Splitting.ACCUMULATE_OUT not in instruction.splitting
    times = Times(
        configuration_cycles(_columns(instruction, g)),
        load,
        compute_cycles(work, assumptions),
        store,
        work.tile_passes * work.splits * work.pieces,
        ppu_latency(program.target) if posted else 0,
        assumptions.overlapped,
    )
    return Cost(number, title, result, moved, times, at, work)


def _posted(program: Program, instruction: Instruction) -> tuple[int, int]:
    """(cycles, tiles) of the post-processing units: an element a cycle in each column."""
    held = [program.tensors[n].count for slot, n in instruction.operands.items() if slot in ("src0", "dst0")]
    tile = ppu_latency(program.target)
    columns = program.target.cores * program.target.columns
    tiles = -(-max(held, default=0) // (tile * columns))
    return (tiles * tile if ROW_OF[instruction.opcode].time is Time.UNIT else 0), max(tiles, 1)


def _columns(instruction: Instruction, g: Geometry) -> int:
    """Columns that are set up, over all passes."""
    g = parted(g, instruction.product)
    outputs = g.ci if instruction.stage is Stage.BACKWARD else g.co
    return -(-outputs // STRIP) if instruction.opcode is Opcode.LINEAR else outputs
