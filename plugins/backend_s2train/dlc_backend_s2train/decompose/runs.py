"""Copies of several runs of elements: one op of the graph, an instruction for each run in the program."""

from __future__ import annotations

from itertools import accumulate

from dlc.graph import Op
from dlc_backend_s2train.codes import Element
from dlc_backend_s2train.instruction import S2Instruction, packed_type


def copied_runs(op: S2Instruction) -> list[tuple[Op, tuple[int, ...], int, int]]:
    """Of several runs that one op copies: value, shape, byte in the value, byte in the result; none for other ops."""
    if op.opcode != "copy" or len(op.reads) < 2:
        return []
    sizes = [packed_type(Element.FP16, shape).nbytes for _, shape, _ in op.reads]
    begins = accumulate(sizes, initial=0)
    return [(arg, shape, at, into) for arg, (_, shape, at), into in zip(op.args, op.reads, begins, strict=False)]
