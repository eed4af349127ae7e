"""The pages `docs/s2train*.md` are enough for a simulator: `page_simulator`, written from them, gives the same bits."""

from __future__ import annotations

import ast
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dlc_backend_s2train.codes import NO_FLAGS, Arena, Element, Flag, Need, Role, Slot, Splitting, Stage
from dlc_backend_s2train.container import read, write
from dlc_backend_s2train.isa.access import access, standing
from dlc_backend_s2train.isa.instruction_set import FORM_OF, Opcode
from dlc_backend_s2train.program import Entry, Geometry, Hyper, Instruction, Program, Storage, Tensor
from dlc_backend_s2train.simulator.machine import Machine
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from onnx import numpy_helper, parser

from dlc import DlcError
from dlc.cli.frame import run
from tests.backend_s2train.machines import unverified
from tests.backend_s2train.page_simulator import Simulator
from tests.backend_s2train.programs import PROGRAMS

CONVOLUTIONS = (
    Geometry(2, 3, 4, 4, 8, 4, 8, 3, 3, pads=(1, 1, 1, 1)),
    Geometry(2, 3, 4, 8, 16, 4, 8, 3, 3, (2, 2), (1, 1, 1, 1)),
    Geometry(2, 4, 6, 4, 4, 4, 4, 3, 3, pads=(1, 1, 1, 1), groups=2),
    Geometry(2, 2, 3, 8, 8, 4, 4, 3, 3, pads=(0, 0, 0, 0), dilation=(2, 2)),
    Geometry(2, 3, 2, 8, 12, 4, 4, 2, 3, (1, 2), (-1, 2, -1, 0)),
    Geometry(2, 4, 8, 4, 4, 4, 4),
)
LINEAR = Geometry(4, 16, 8)
POOLS = (
    Geometry(2, 3, 3, 8, 8, 4, 4, pool=(3, 2, 1)),
    Geometry(2, 2, 2, 4, 8, 1, 2, pool=(4, 4, 0)),
    Geometry(2, 2, 2, 7, 6, 5, 4, pool=(3, 1, 0)),
)
MAP = (2, 4, 4, 8)
"""What `eltwise` works on."""
POSITIVE = ("bn0", "bn1")
FIGURES = Hyper(0.0625, 0.875, 0.0009765625, 128.0, 0.75, 0.75, 0.001, (1 << 40) + 17)


@dataclass
class Case:
    """An instruction, and what its operands are."""

    instruction: Instruction
    geometry: Geometry | None
    hyper: Hyper
    operands: dict[Slot, tuple[tuple[int, ...], Element]]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Legal instructions of all opcodes that compute, with all of their flags."""
    opcode, stage = draw(st.sampled_from([key for key, form in FORM_OF.items() if form.uses and key[0] < 0x80]))
    form = FORM_OF[opcode, stage]
    flags = NO_FLAGS
    for flag in form.flags:
        flags |= flag if draw(st.booleans()) else NO_FLAGS
    splitting = Splitting.FIRST
    if form.accumulates:
        splitting |= draw(st.sampled_from([Splitting(0), Splitting.ACCUMULATE_IN, Splitting.ACCUMULATE_OUT]))
    uses = standing(form, flags, splitting)
    slots: list[Slot] = [slot for slot, use in uses.items() if not use.optional or draw(st.booleans())]
    geometry = _geometry(draw, opcode, stage, flags)
    figures = replace(FIGURES, nesterov=draw(st.booleans()), decay=draw(st.sampled_from([0.0, 0.25])))
    numbers: dict[Slot, int] = {slot: number for number, slot in enumerate(slots)}
    placed = None if geometry is None else 0
    hyper = None if form.geometry is Need.NONE else 0
    made = Instruction(opcode, stage, flags, splitting, geometry=placed, hyper=hyper, operands=numbers)
    try:
        access(made)
    except DlcError:
        assume(False)
    shapes = _shapes(made, geometry)
    if geometry is not None and geometry.samples != (0, 0):
        # Samples of bits and pointers begin at a byte.
        sampled = [shapes[slot] for slot in slots if slot in ("mask", "ptr", "aux")]
        assume(all(math.prod(shape[1:]) * element.bits % 8 == 0 for shape, element in sampled))
    return Case(made, geometry, figures, {slot: shapes[slot] for slot in slots})


def _geometry(draw: st.DrawFn, opcode: Opcode, stage: Stage, flags: Flag) -> Geometry | None:
    if opcode is Opcode.POOL:
        return draw(st.sampled_from(POOLS))
    if opcode not in (Opcode.CONV, Opcode.LINEAR):
        return None
    g = LINEAR if opcode is Opcode.LINEAR else draw(st.sampled_from(CONVOLUTIONS))
    if g.groups == 1 and draw(st.booleans()):
        g = replace(g, channels=(1, (g.co if stage is Stage.BACKWARD else g.ci)))
    if Flag.SOFTMAX_CE not in flags and draw(st.booleans()):
        g = replace(g, samples=(1, g.n))
    return g


def _shapes(i: Instruction, g: Geometry | None) -> dict[Slot, tuple[tuple[int, ...], Element]]:
    """Slot → shape and element, for all slots that the instruction may have."""
    half, whole, bit = Element.FP16, Element.FP32, Element.BIT
    window = 4 if Flag.POOL_4 in i.flags else 2 if Flag.POOL_2 in i.flags else 1
    pointer = Element.PTR4 if window == 4 or i.opcode is Opcode.POOL else Element.PTR2
    if i.opcode is Opcode.UPDATE:
        return {"src0": ((3, 5), half), "dst0": ((3, 5), half), "dst1": ((3, 5), whole), "aux": ((3, 5), whole)}
    if i.opcode is Opcode.LOSS:
        return {"src0": ((4, 5), half), "dst0": ((4, 5), half), "dst1": ((1,), whole), "aux": ((4,), Element.INT32)}
    if i.opcode in (Opcode.COPY, Opcode.FILL):
        return {"src0": ((6, 5), half), "dst0": ((2, 15), half)}
    if g is None:
        x = y = MAP
    else:
        x, y = (g.n, g.ci, g.hi, g.wi), (g.n, g.co, g.ho, g.wo)
    if i.opcode is Opcode.POOL:
        return {"src0": (y if i.stage else x, half), "dst0": (x if i.stage else y, half), "ptr": (y, pointer)}
    # Forward, `bn1` holds running statistics.
    statistics = (2 if Flag.BN_TRAIN in i.flags or not i.stage else 4, (x if i.stage else y)[1])
    sums = whole if Splitting.ACCUMULATE_OUT in i.splitting else half
    found: dict[Slot, tuple[tuple[int, ...], Element]] = {"src0": (y if i.stage else x, half)}
    if g is not None:
        low, high = g.channels if g.channels != (0, 0) else (0, g.co if i.stage is Stage.BACKWARD else g.ci)
        w = (high - low, g.ci // g.groups, g.kh, g.kw) if i.stage is Stage.BACKWARD else ()
        found["src1"] = w or (g.co, (high - low) // g.groups, g.kh, g.kw), half
        if i.product is Stage.WEIGHT_GRADIENT:
            dw = found["src1"][0] if "src1" in i.operands else (g.co,)
            if i.updates:
                return {**found, "src1": (x, half), "dst0": (dw, half), "dst1": (dw, whole), "aux": (dw, whole)}
            return {**found, "src1": (x, half), "dst0": (dw, sums), "aux": (dw, whole)}
    result = x if i.stage else y
    n, c, h, v = result
    # Forward the unit makes maps smaller, backward larger.
    after = (n, c, h * window, v * window) if i.stage else (n, c, h // window, v // window)
    wide = after if i.stage else result
    found |= {"res": (wide, half), "mask": (wide, bit), "ptr": (result if i.stage else after, pointer)}
    found |= {"bn0": ((4, c), half), "bn1": (statistics, whole), "aux": (after, bit), "dst0": (after, sums)}
    found["dst1"] = (statistics, whole) if Flag.BN_TRAIN in i.flags else (after, half)
    if Flag.BN_TRAIN in i.flags and i.stage:
        found["src1"] = (after, half)
    if Flag.ADD_SINGLE in i.flags and Flag.BN_BACKWARD_2 in i.flags:
        found["aux"] = ((4, c), half)
    if Splitting.ACCUMULATE_IN in i.splitting:
        found["aux"] = (result, whole)
    if Flag.SOFTMAX_CE in i.flags:
        found |= {"aux": ((n,), Element.INT32), "dst1": ((1,), whole)}
    return found


def _program(case: Case) -> bytes:
    tensors: list[Tensor] = []
    storages: list[Storage] = []
    at = 0
    for slot, (shape, element) in case.operands.items():
        tensors.append(Tensor(slot, len(storages), shape, element, Role.WEIGHT))
        storages.append(Storage(Arena.WEIGHTS, at, tensors[-1].nbytes, 0, 1))
        at += -(-tensors[-1].nbytes // 64) * 64
    geometries = () if case.geometry is None else (case.geometry,)
    entry = Entry("step", 0, 1)
    tables = tuple(tensors), tuple(storages), geometries, (case.hyper,), (case.instruction,), (entry,)
    return write(Program(*tables))


def _values(slot: str, shape: tuple[int, ...], element: Element, rng: np.random.Generator, odd: bool) -> Any:
    match element:
        case Element.INT32:
            return rng.integers(-1, 5, shape, np.int32)
        case Element.BIT:
            return rng.integers(0, 2, shape).astype(np.bool_)
        case Element.PTR2 | Element.PTR4:
            return rng.integers(0, 1 << element.bits, shape).astype(np.uint8)
        case _:
            values = rng.standard_normal(shape).astype(np.float32)
            if odd and slot in ("src0", "res"):
                strange = rng.choice([np.nan, np.inf, -np.inf, -0.0, 6e-8, 65504.0, 0.0], shape)
                values = np.where(rng.random(shape) < 0.2, strange, values).astype(np.float32)
            positive = slot in POSITIVE or (slot == "aux" and element is Element.FP16)
            return np.abs(values) + np.float32(0.25) if positive else values


@settings(max_examples=300)
@given(case=cases(), seed=st.integers(0, 2**32), odd=st.booleans())
def test_every_instruction_gives_the_same_bits(case: Case, seed: int, odd: bool) -> None:
    rng = np.random.default_rng(seed)
    machine, simulator = _both(_program(case))
    for number, (slot, (shape, element)) in enumerate(case.operands.items()):
        values = _values(slot, shape, element, rng, odd)
        machine.write(number, values)
        simulator.write(number, values)
    for _ in range(2):
        machine.run("step", {})
        simulator.run("step")
        _same(machine, simulator)


TINY = """
<ir_version: 10, opset_import: ["": 21]>
tiny (float[3,2,8,8] x) => (float[3,5] y) {
    c = Conv<pads = [1, 1, 1, 1]>(x, w)
    n = BatchNormalization(c, scale, shift, mean, var)
    r = Relu(n)
    p = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(r)
    d = Conv<pads = [2, 2, 2, 2], strides = [2, 2]>(p, v)
    q = Relu(d)
    f = Flatten(q)
    y = Gemm<transB = 1>(f, head, bias)
}"""
DENSE = """
<ir_version: 10, opset_import: ["": 21]>
dense (float[6,10] x) => (float[6,5] y) {
    a = Gemm<transB = 1>(x, w1, b1)
    h = Relu(a)
    y = Gemm<transB = 1>(h, head, bias)
}"""
MODELS = {
    "tiny": (
        TINY,
        {
            "w": (4, 2, 3, 3),
            "scale": (4,),
            "shift": (4,),
            "mean": (4,),
            "var": (4,),
            "v": (6, 4, 5, 5),
            "head": (5, 24),
        },
    ),
    "dense": (DENSE, {"w1": (12, 10), "b1": (12,), "head": (5, 12)}),
}


def _built(name: str, folder: Path) -> bytes:
    """What `dlc build` makes of a model for training."""
    text, shapes = MODELS[name]
    model: Any = parser.parse_model(text)
    rng = np.random.default_rng(0)
    for weight, shape in {**shapes, "bias": (5,)}.items():
        values = rng.uniform(-0.5, 0.5, shape) + (weight in ("scale", "var"))
        model.graph.initializer.append(numpy_helper.from_array(values.astype(np.float32), weight))
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    line = ["build", str(folder / "model.onnx"), "--target", "s2train", "--train", "loss=cross-entropy", "-q"]
    assert run([*line, "-o", str(folder / "out"), "--cache", "off"]) == 0
    (file,) = (folder / "out").glob("*.s2t")
    return file.read_bytes()


@pytest.mark.parametrize("name", MODELS)
def test_training_steps_of_a_network_give_the_same_bits(name: str, tmp_path: Path) -> None:
    machine, simulator = _both(_built(name, tmp_path))
    first = np.asarray(simulator.read(1))
    shapes = {port: machine.program.tensors[n].shape for port, n in machine.program.entries[0].inputs}
    label = next(e for e in machine.program.entries if e.labels).labels[0][0]
    fed: dict[str, Any] = {}
    for step, entry in enumerate(("predict", "step", "step", "predict", "evaluate")):
        rng = np.random.default_rng(step)
        fed = {port: rng.standard_normal(shape).astype(np.float32) for port, shape in shapes.items()}
        fed |= {} if entry == "predict" else {label: rng.integers(0, 5, len(fed["x"]), np.int32)}
        one, other = machine.run(entry, fed), simulator.run(entry, **fed)
        assert one.keys() == other.keys() and all(_bits(one[k]) == _bits(other[k]) for k in one)
        _same(machine, simulator)
    assert not np.array_equal(first, simulator.read(1)), "no weight has changed"
    # The host scales gradients until they overflow.
    machine.hypers = tuple(replace(h, scale=h.scale * 2**16, threshold=h.threshold * 2**16) for h in machine.hypers)
    simulator.rescale(2**16)
    before = np.asarray(simulator.read(1))
    machine.run("step", fed)
    simulator.run("step", **fed)
    assert simulator.overflow and np.array_equal(before, simulator.read(1))
    _same(machine, simulator)


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_made_by_hand_give_the_same_bits(name: str) -> None:
    machine, simulator = _both(write(PROGRAMS[name]()))
    for entry in machine.program.entries * 2:
        fed = {port: np.random.default_rng(3).standard_normal(_shape(machine, n)) for port, n in entry.inputs}
        fed |= {port: np.arange(_shape(machine, n)[0]) % 3 for port, n in entry.labels}
        machine.run(entry.name, fed)
        simulator.run(entry.name, **fed)
        _same(machine, simulator)


def test_the_simulator_imports_nothing_of_dlc() -> None:
    for name in ("page_simulator", "page_arithmetic", "page_operation", "page_frames"):
        tree = ast.parse((Path(__file__).parent / f"{name}.py").read_text(encoding="utf-8"))
        imported = {n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
        imported |= {alias.name for n in ast.walk(tree) if isinstance(n, ast.Import) for alias in n.names}
        own = {module for module in imported if module.startswith("tests.backend_s2train.page_")}
        assert imported - own <= {"binascii", "collections.abc", "dataclasses", "math", "numpy", "struct", "typing"}


def _both(data: bytes) -> tuple[Machine, Simulator]:
    return unverified(read(memoryview(data), "page.s2t"), "bit-true"), Simulator(data)


def _same(machine: Machine, simulator: Simulator) -> None:
    """Everything that lives in memory, and the register."""
    assert machine.overflow == simulator.overflow
    for number, tensor in enumerate(machine.program.tensors):
        one, other = machine.read(number), simulator.read(number)
        assert _bits(one) == _bits(other), f"tensor {number}, {tensor.name}"


def _bits(values: Any) -> bytes:
    return np.asarray(values, np.uint8 if values.dtype.kind == "b" else values.dtype).tobytes()


def _shape(machine: Machine, tensor: int) -> tuple[int, ...]:
    return machine.program.tensors[tensor].shape
