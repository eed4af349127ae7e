"""Kernel text through the frontend: graphs, values by the reference interpreter, messages."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from dlc_frontend_kernel.frontend import KernelText

from dlc import DlcError, Graph, Report, Source
from dlc.graph import Call, Item, evaluate, verify
from dlc.kernel.kernel import Kernel

Array = np.ndarray[Any, np.dtype[Any]]


def parse(text: str | bytes, label: str = "test.kernel", **options: Any) -> Graph:
    """The graph of a text, verified."""
    data = text if isinstance(text, bytes) else text.encode()
    graph = KernelText(**options).parse(Source(data=data, label=label), Report())
    assert not verify(graph)
    return graph


def case(kernel: str, ins: str = "", outs: str = "A", data_type: str = "float", **more: Any) -> str:
    """A JSON case; `ins` and `outs` are names with spaces between."""
    found = {"name": "test", "ins": ins.split(), "outs": outs.split(), "data_type": data_type, "kernel": kernel}
    return json.dumps(found | more)


def kernel_of(graph: Graph) -> Kernel:
    """The kernel of a graph with one call."""
    first = graph.outputs[0]
    call = first.of if isinstance(first, Item) else first
    assert isinstance(call, Call)
    return call.body


def values(
    text: str, label: str = "test.kernel", options: dict[str, Any] | None = None, **feeds: Any
) -> dict[str, Array]:
    """What a text computes, by name."""
    graph = parse(text, label, **(options or {}))
    given = {i.name: np.asarray(feeds[i.name], i.dtype.numpy).reshape(i.shape) for i in graph.inputs}
    return evaluate(graph, given)


def random(*shape: int, seed: int = 0) -> Array:
    """Doubles from -2 to 2."""
    return np.random.default_rng((seed, *shape)).uniform(-2, 2, shape)


def fault(text: str | bytes, label: str = "test.kernel", **options: Any) -> str:
    """The message for a text that is refused; it tells a place."""
    with pytest.raises(DlcError) as caught:
        parse(text, label, **options)
    for d in caught.value.diagnostics:
        assert d.location is not None
    return str(caught.value)
