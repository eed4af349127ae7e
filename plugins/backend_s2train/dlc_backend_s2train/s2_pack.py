"""s2-pack: convolutions over small maps take several images of the batch as one.

    conv (x[4, 512, 4, 4], w)   →   the same on 2 images of 4 x 9: 2 maps side by side, a column of zeros between

Results and addresses in memory do not depend on it: the geometry of an instruction describes how the batch is laid out
in the array, see `frames.parts`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from dlc.api.backend import Reason
from dlc.api.passes import Level, Pass
from dlc.base.report import Report
from dlc.graph import Graph, Op
from dlc.spec import option
from dlc_backend_s2train.build_lines import CostModel
from dlc_backend_s2train.cost.batch_packing import Gain, pack, packs
from dlc_backend_s2train.frames.parts import ALONE
from dlc_backend_s2train.instruction import (
    S2Instruction,
    flags_of,
    geometry_of,
    geometry_values,
    opcode_of,
    sample_parts,
    slot_of,
)
from dlc_backend_s2train.program import Geometry, Instruction


@dataclass(frozen=True)
class S2Pack(Pass[Graph, Graph]):
    """Take several small images as one, which leaves fewer lanes idle: maps of 4 x 4 side by side."""

    name: ClassVar[str] = "s2-pack"
    level_in: ClassVar[Level] = "kernels"
    level_out: ClassVar[Level] = "kernels"
    idempotent: ClassVar[bool] = True
    cost_model: Literal["parallel", "serial"] = option(
        "parallel", "what to minimise: array steps (parallel), or single products (serial)"
    )

    def run(self, state: Graph, report: Report) -> Graph:
        """The graph whose convolutions have the batch packing with the fewest steps; a note for each that gains."""
        found: dict[_Kind, tuple[int, ...]] = {}
        for op in state.ops:
            if not isinstance(op, S2Instruction) or (gain := self._gain(op)) is None:
                continue
            g = geometry_of(op.geometry)
            assert g is not None, "what gains has a geometry"
            found[_kind(op)] = geometry_values(replace(g, mosaic=gain.mosaic))
            report.count("convolutions packed")
            report.count("array steps before", gain.before)
            report.count("array steps after", gain.after)
            report.note(_described(state, op, g, gain))

        def packed(op: Op) -> Op | None:
            if not isinstance(op, S2Instruction) or (geometry := found.get(_kind(op))) is None:
                return None
            values: dict[str, Any] = {**op.attrs, "geometry": geometry}
            return S2Instruction(op.args, **values)

        return state.rewrite(packed) if found else state

    def _gain(self, op: S2Instruction) -> Gain | None:
        """What the best mosaic of an instruction saves; None: nothing, or it has that already."""
        opcode, stage = opcode_of(op)
        made = Instruction(opcode, stage, flags_of(op), operands={slot_of(slot): 0 for slot, _, _ in op.reads})
        g = geometry_of(op.geometry)
        if g is None or not packs(made):
            return None
        # What becomes several instructions has maps that fill tiles, or else a batch of thousands.
        several = sample_parts(op)
        if isinstance(several, Reason) or len(several) > 1:
            return None
        gain = pack(g, made.product, cost_model=CostModel(self.cost_model))
        return gain if gain.mosaic not in (ALONE, g.mosaic) else None


_Kind = tuple[str, str, tuple[str, ...], tuple[str, ...], tuple[int, ...]]


def _kind(op: S2Instruction) -> _Kind:
    """All that a mosaic depends on."""
    return op.opcode, op.stage, op.flags, tuple(slot for slot, _, _ in op.reads), op.geometry


def _described(graph: Graph, op: S2Instruction, g: Geometry, gain: Gain) -> str:
    name = ", ".join(graph.origin(op)) or op.opcode
    how = f"{gain.mosaic[0]} x {gain.mosaic[1]} of {g.n} images as one"
    return f"{name} {op.stage}: {how}, {gain.after:,} of {gain.before:,} array steps"
