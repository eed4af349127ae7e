"""Element types that S2Train does not have are refused, all at once."""

from __future__ import annotations

import pytest
from dlc_backend_s2train.select.s2_select import S2Select

from dlc import DlcError, Report
from dlc.base.types import NARROW, DType, Type, bf16, f32
from dlc.graph import Input, make_graph
from dlc.ops.elementwise import Cast, Relu


@pytest.mark.parametrize("dtype", [dtype for dtype in NARROW if dtype is not bf16], ids=str)
def test_narrow_types_are_refused(dtype: DType) -> None:
    """All but bf16, whose numbers are computed as those of f32 are."""
    graph = make_graph((x := Input("x", Type(dtype, (4, 8))),), {"y": Cast(Relu(Cast(x, to=f32)), to=dtype)})
    with pytest.raises(DlcError) as caught:
        S2Select().run(graph, Report())
    assert [d.code for d in caught.value.diagnostics] == ["not-placed"] * 2
    assert all(str(dtype) in d.message for d in caught.value.diagnostics)
