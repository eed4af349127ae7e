"""Recurrent idioms: layers as operators, cells written out step by step, loops and scans over steps."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from onnx import helper

from tests.fuzz.idioms.weaver import Weaver
from tests.fuzz.kinds_rare import graph_of
from tests.fuzz.sizes import Refused, Size
from tests.fuzz.values import Value


def layer(m: Weaver, x: Value) -> Value:
    """LSTM, GRU or RNN as PyTorch exports it: transposed in front, a direction squeezed or joined, transposed back."""
    n, t, d = x.shape
    op, gates = m.one(("LSTM", 4), ("GRU", 3), ("RNN", 1))
    hidden, ways = m.one(3, 4, 8), m.one(1, 1, 2)
    y = m.transpose(x, 1, 0, 2)
    operands: list[Value | None] = [
        y,
        m.weight_of(ways, gates * hidden, d, fan=d),
        m.weight_of(ways, gates * hidden, hidden, fan=hidden),
        m.weight_of(ways, 2 * gates * hidden) if m.chance(0.8) else None,
    ]
    if m.chance(0.6):
        states = 2 if op == "LSTM" else 1
        start = m.node("Expand", m.number(0), m.ints(ways, n, hidden)) if m.chance(0.5) else None
        if start is None:
            start = m.given(ways, n, hidden)
        operands += [None, *[start] * states]
    figures: dict[str, Any] = {"hidden_size": hidden, "direction": "bidirectional" if ways == 2 else "forward"}
    if op == "GRU":
        figures["linear_before_reset"] = m.one(0, 1, 1)
    results = m.nodes_of(op, 3 if op == "LSTM" else 2, *operands, **figures)
    joined = m.squeeze(results[0], 1) if ways == 1 else None
    y = joined or m.reshape(m.transpose(results[0], 0, 2, 1, 3), t, n, ways * hidden)
    if m.chance(0.3):
        m.also.append(results[1])
    return m.transpose(y, 1, 0, 2)


def _gru_cell(m: Weaver, x: Value, h: Value, weights: tuple[Value, Value, Value]) -> Value:
    w, u, b = weights
    both = m.node("Add", m.node("Gemm", x, w, b), m.node("MatMul", h, u))
    r, z, n = m.split(both, 3, 1)
    r, z = m.node("Sigmoid", r), m.node("Sigmoid", z)
    n = m.node("Tanh", m.node("Mul", n, r))
    return m.node("Add", n, m.node("Mul", z, m.node("Sub", h, n)))


def _lstm_cell(m: Weaver, x: Value, h: Value, c: Value, weights: tuple[Value, Value, Value]) -> tuple[Value, Value]:
    w, u, b = weights
    both = m.node("Add", m.node("Add", m.node("MatMul", x, w), m.node("MatMul", h, u)), b)
    i, f, o, g = m.split(both, 4, 1)
    kept = m.node("Mul", m.node("Sigmoid", m.node("Add", f, m.number(1))), c)
    c = m.node("Add", kept, m.node("Mul", m.node("Sigmoid", i), m.node("Tanh", g)))
    return m.node("Mul", m.node("Sigmoid", o), m.node("Tanh", c)), c


def unrolled(m: Weaver, x: Value) -> Value:
    """Cells written out for every token, which share their weights."""
    n, t, d = x.shape
    if isinstance(t, Size) or t > 6:
        raise Refused("no number of steps")
    hidden, gates = m.one(3, 4, 8), m.one(3, 4)
    w, u = m.weight_of(d, gates * hidden, fan=d), m.weight_of(hidden, gates * hidden, fan=hidden)
    weights = (w, u, m.weight_of(gates * hidden))
    h = m.node("Expand", m.number(0), m.ints(n, hidden)) if m.chance(0.6) else m.given(n, hidden)
    c, found = h, list[Value]()
    split = m.chance(0.3)
    rows = [m.squeeze(p, 1) for p in m.split(x, t, 1)] if split and t > 1 else None
    for k in range(t):
        row = rows[k] if rows else m.node("Gather", x, m.constant(np.array(k, np.int64)), axis=1)
        if gates == 3:
            h = _gru_cell(m, row, h, weights)
        else:
            h, c = _lstm_cell(m, row, h, c, weights)
        found.append(m.unsqueeze(h, 1))
    return m.node("Concat", *found, axis=1) if t > 1 else found[0]


def scanned(m: Weaver, x: Value) -> Value:
    """A cell in Scan: a state that decays, and what it gives at each token; or in Loop with a counter."""
    n, t, d = x.shape
    y = m.transpose(x, 1, 0, 2)
    w = m.weight_of(d, d, fan=d)
    start = m.node("Expand", m.number(0), m.ints(n, d)) if m.chance(0.5) else m.given(n, d)
    row = Value("", "float32", (n, d))
    cell = [
        helper.make_node("MatMul", ["s", w.name], ["sw"]),
        helper.make_node("Add", ["sw", "r"], ["sum"]),
        helper.make_node("Tanh", ["sum"], ["next"]),
        helper.make_node(m.one("Identity", "Relu", "Neg"), ["next"], ["left"]),
    ]
    whole = Value("", "float32", (t, n, d))
    if m.chance(0.6):
        body = graph_of("body", cell, [("s", row), ("r", row)], [("next", row), ("left", row)])
        _, rows = m.known("Scan", [row, whole], start, y, reads=(w,), body=body, num_scan_inputs=1)
    else:
        if isinstance(t, Size):
            raise Refused("no number of turns")
        one, flag = Value("", "int64", ()), Value("", "bool", ())
        nodes = [
            helper.make_node("Gather", [y.name, "k"], ["r"], axis=0),
            *cell,
            helper.make_node("Identity", ["go"], ["on"]),
        ]
        given, left = [("k", one), ("go", flag), ("s", row)], [("on", flag), ("next", row), ("left", row)]
        body = graph_of("body", nodes, given, left)
        turns, true = m.constant(np.array(t, np.int64)), m.constant(np.array(True))
        _, rows = m.known("Loop", [row, whole], turns, true, start, reads=(w, y), body=body)
    return m.node("Add", x, m.transpose(rows, 1, 0, 2))


def state_space(m: Weaver, x: Value) -> Value:
    """A diagonal recurrence as a sum with powers of its decay: a lower triangular product."""
    t, d = x.shape[1:]
    if isinstance(t, Size):
        raise Refused("a constant has a known shape")
    steps = np.maximum(np.arange(t)[:, None] - np.arange(t)[None], 0).astype(np.float32)
    lower = np.tril(np.ones((t, t), np.float32))
    decay = m.node("Exp", m.node("Mul", m.constant(-steps), m.node("Softplus", m.weight_of(1))))
    y = m.node("MatMul", m.node("Mul", decay, m.constant(lower)), m.linear(x, d))
    return m.node("Add", m.node("Mul", y, m.node("Sigmoid", m.linear(x, d))), x)


def branch(m: Weaver, x: Value) -> Value:
    """An If on an input, as scripted modules have it."""
    flag = m.input(array=np.array(m.chance(0.5)))
    w = m.weight_of(x.shape[-1], near=1.0)
    then = graph_of("then", [helper.make_node("Mul", [x.name, w.name], ["t"])], [], [("t", x)])
    other = [helper.make_node("Tanh", [x.name], ["a"]), helper.make_node("Add", ["a", x.name], ["e"])]
    otherwise = graph_of("otherwise", other, [], [("e", x)])
    (y,) = m.known("If", [x], flag, reads=(x, w), then_branch=then, else_branch=otherwise)
    return y


STEPS: Final = ((4, layer), (3, unrolled), (2, scanned), (1, state_space), (1, branch))
