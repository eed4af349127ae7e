"""Batches that the unit behind the array cannot count, in parts: the bits of the whole, in programs that check out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import pytest
from dlc_backend_s2train import instruction
from dlc_backend_s2train.decompose.s2_decompose import S2Decompose
from dlc_backend_s2train.instruction import S2Instruction
from dlc_backend_s2train.program import Geometry, Program
from dlc_backend_s2train.v1.control_words import control_of

from dlc import DlcError, Report
from dlc.api.backend import Reason
from dlc.base.types import Array, Type, f16
from dlc.graph import Graph, Input
from tests.backend_s2train.products_by_hand import integers, program, same, simulated, square
from tests.backend_s2train.unit_by_hand import backward_with_all, forward_with_all

SEVEN = replace(square(3), n=7)
"""Seven samples of 16 x 16."""


def given(graph: Graph) -> dict[str, Array]:
    return {i.name: integers(k, *i.shape, dtype=np.float32) for k, i in enumerate(graph.inputs)}


def ranges(of: Program) -> list[tuple[int, int]]:
    found = [of.geometries[i.geometry].samples for i in of.instructions if i.geometry is not None]
    return [each for each in found if each != (0, 0)]


def whole(graph: Graph, arrays: Mapping[str, Array], limit: pytest.MonkeyPatch) -> dict[str, Array]:
    """What it gives if the unit could count everything."""
    with limit.context() as context:
        context.setattr(instruction, "COUNTED", 1 << 40)
        return simulated(graph, arrays)


@pytest.mark.parametrize("dropout", [False, True])
@pytest.mark.parametrize(("counted", "parts"), [(256, 7), (512, 4), (1024, 2), (1791, 2), (1792, 0)])
@pytest.mark.parametrize("make", [forward_with_all, backward_with_all])
def test_parts_give_the_bits_of_the_whole(
    make: Callable[[Geometry, bool], Graph], counted: int, parts: int, dropout: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Norms, sums, masks, pointers and random bits of each sample are its own."""
    graph = make(SEVEN, dropout)
    arrays = given(graph)
    wanted = whole(graph, arrays, monkeypatch)
    monkeypatch.setattr(instruction, "COUNTED", counted)
    same(simulated(graph, arrays), wanted)
    found = ranges(program(graph))
    assert len(found) == parts
    assert [k for first, end in found for k in range(first, end)] == (list(range(7)) if parts else [])


def test_decomposed_products_are_divided_where_they_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums of blocks pass no unit; only the last instruction, which adds and norms, has parts."""
    graph = S2Decompose().run(forward_with_all(replace(square(5), n=7), False), Report())
    arrays = given(graph)
    wanted = whole(graph, arrays, monkeypatch)
    monkeypatch.setattr(instruction, "COUNTED", 512)
    same(simulated(graph, arrays), wanted)
    assert ranges(program(graph)) == [(0, 2), (2, 4), (4, 6), (6, 7)]


def test_the_published_unit_counts_all_parts() -> None:
    """81920 elements of a channel: twice 40960."""
    g = Geometry(20, 1, 2, 64, 64, 64, 64, 3, 3, (1, 1), (1, 1, 1, 1))
    graph, report = forward_with_all(g, False), Report()
    assert S2Decompose().run(graph, report) is graph
    assert report.notes == ["conv forward: its samples in 2 parts, of at most 65,536 in a channel"]
    made = program(graph)
    assert ranges(made) == [(0, 10), (10, 20)]
    for each in made.instructions:
        assert each.geometry is not None
        assert control_of(each, made.geometries[each.geometry]).bn_finish == 40959


def added(shape: tuple[int, ...], *more: str) -> Graph:
    a, b = Input("a", Type(f16, shape)), Input("b", Type(f16, shape))
    op = S2Instruction(
        (a, b),
        opcode="eltwise",
        flags=("add", *more),
        reads=(("src0", shape, 0), ("res", shape, 0)),
        writes=(("dst0", "fp16", shape, "activation", 0),),
        results=(Type(f16, shape),),
    )
    return Graph((a, b), (op,), ("y",), origins={op.digest: ("add1",)})


@pytest.mark.parametrize("shape", [(9, 3, 8, 4), (90, 3), (9, 3, 31)])
def test_sums_without_a_product_have_parts_too(shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instruction, "COUNTED", 64)
    graph = added(shape, "relu")
    arrays = given(graph)
    found = program(graph)
    assert len(ranges(found)) == -(-shape[0] // (64 // int(np.prod(shape[2:]))))
    made = simulated(graph, arrays)
    np.testing.assert_array_equal(made["y"], np.maximum(arrays["a"] + arrays["b"], 0))


def test_a_sample_that_is_too_large_is_refused() -> None:
    with pytest.raises(DlcError) as refused:
        S2Decompose().run(added((1, 2, 300, 300)), Report())
    (only,) = refused.value.diagnostics
    assert only.code == "not-decomposed"
    assert only.message == (
        "add1: a sample of 90,000 elements in a channel: the unit behind the array counts 65,536 at once"
    )


def test_masks_that_begin_inside_a_byte_keep_samples_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """3 channels of 5 x 5: 8 samples to a whole byte, 200 elements of a channel."""
    shape = (24, 3, 5, 5)
    op = S2Instruction(
        (Input("x", Type(f16, shape)), Input("r", Type(f16, shape))),
        opcode="eltwise",
        flags=("add", "relu", "mask_write"),
        reads=(("src0", shape, 0), ("res", shape, 0)),
        writes=(("dst0", "fp16", shape, "activation", 0), ("mask", "bit", shape, "mask", 0)),
        results=(Type(f16, shape), Type(f16, (225,))),
    )
    monkeypatch.setattr(instruction, "COUNTED", 399)
    found = instruction.sample_parts(op)
    assert not isinstance(found, Reason)
    assert [g.samples for g in found if g] == [(0, 8), (8, 16), (16, 24)]
    monkeypatch.setattr(instruction, "COUNTED", 199)
    refused = instruction.sample_parts(op)
    assert isinstance(refused, Reason)
    assert refused.text.startswith("8 samples, whose masks fill whole bytes, of 25 elements in a channel")
