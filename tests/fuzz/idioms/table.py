"""All idioms, by the rank of what they extend, and models that are drawn of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, cast

import numpy as np

from tests.fuzz.idioms import quantised
from tests.fuzz.idioms.attention import windows
from tests.fuzz.idioms.between import BETWEEN, embedded
from tests.fuzz.idioms.images import IMAGES
from tests.fuzz.idioms.steps import STEPS
from tests.fuzz.idioms.tokens import ROWS, TOKENS
from tests.fuzz.idioms.weaver import Weaver
from tests.fuzz.model import Model
from tests.fuzz.sizes import Refused, Size
from tests.fuzz.values import Value

Make = Callable[[Weaver, Value], Value]
Rows = tuple[tuple[int, Make], ...]

IDIOMS: Final[dict[int, Rows]] = {
    4: cast("Rows", (*IMAGES, (3, windows))),
    3: cast("Rows", (*TOKENS, *STEPS)),
    2: cast("Rows", ROWS),
}
QUANTISED: Final[dict[int, Rows]] = {4: quantised.IMAGES, 3: quantised.ROWS, 2: quantised.ROWS}
CHANGE: Final = {4: 0.1, 3: 0.12, 2: 0.35}
"""How often the kind of the value changes, by its rank."""
LAST: Final = 3
"""Ends of a model among which the next idiom chooses."""


@dataclass(frozen=True)
class Character:
    """What kind of model is drawn.

    Attributes:
        sizes: With named dimensions.
        learns: With one output, a float that depends on weights; no operators without a gradient.
        most: Nodes.
    """

    sizes: bool = False
    learns: bool = False
    least: int = 30
    most: int = 200


def start(m: Weaver) -> Value:
    """An input, and what a network makes of it first."""
    n = m.dim("batch", m.one(1, 1, 2, 3))
    match m.random.randrange(8):
        case 0 | 1 | 2 | 6:
            high = m.dim("high", m.one(4, 6, 7, 8, 9))
            return m.given(n, m.one(1, 3, 4), high, high if isinstance(high, Size) else m.one(4, 5, 6, 8))
        case 7:
            ids = m.input("int64", (n, t := m.dim("seq", m.one(2, 3, 4, 6, 7))), _ids(m, n, t))
            return embedded(m, ids)
        case 3 | 4:
            return m.given(n, m.dim("seq", m.one(2, 3, 4, 6, 8)), m.one(4, 8, 12, 16))
        case _:
            return m.given(n, m.one(4, 7, 8, 12, 16))


def _ids(m: Weaver, n: int, t: int) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    return m.rng.integers(0, 11, (m.most(n), m.most(t)))


def woven(seed: int, character: Character) -> tuple[Model, tuple[str, ...]]:
    """The model of a seed, and the names of its idioms in order."""
    m = Weaver.woven(seed, sizes=character.sizes)
    wanted = m.one(*(k for k in (30, 40, 40, 60, 60, 90, 130, 200) if character.least <= k <= character.most))
    quantises = m.chance(0.25) and not character.learns
    ends, names = [start(m)], list[str]()
    for _ in range(60):
        if len(m.nodes) >= wanted:
            break
        if m.chance(0.06) and not character.learns:
            ends.append(start(m))
        x = m.random.choice(ends[-LAST:] if m.chance(0.3) else ends[-1:])
        made = _extended(m, x, quantises)
        if made is not None:
            names.append(made[0])
            ends.append(made[1])
    return _ended(m, ends, character), tuple(names)


def _extended(m: Weaver, x: Value, quantises: bool) -> tuple[str, Value] | None:
    """What an idiom makes of a value; None where it does not fit."""
    rank = x.rank
    small = rank == 4 and max(map(m.most, x.shape[2:])) < 3
    table = QUANTISED if quantises and m.chance(0.5) else IDIOMS
    kinds = BETWEEN[rank] if small or m.chance(CHANGE[rank]) else table[rank]
    (chosen,) = m.random.choices([f for _, f in kinds], [w for w, _ in kinds])
    nodes, also = len(m.nodes), len(m.also)
    try:
        y = cast("Make", chosen)(m, x)
        if y.rank not in IDIOMS or not y.of("f"):
            raise Refused("a value that no idiom extends")
    except Refused:
        for node in m.nodes[nodes:]:  # half of an idiom is none
            for name in node.outputs:
                m.values.pop(name, None)
                m.data.pop(name, None)
        del m.nodes[nodes:], m.also[also:]
        return None
    return chosen.__name__, y


def _ended(m: Weaver, ends: list[Value], character: Character) -> Model:
    """The model with its outputs: the last value, others that nothing reads, values in between, an input."""
    last = ends[-1]
    if character.learns:
        if not m.constants or last.rank > 2:
            last = m.linear(m.mean(last, *range(2, last.rank), keep=0) if last.rank > 2 else last, 4)
        return m.model([last.name])
    read = {x for n in m.nodes for x in n.operands}
    outputs = [last.name, *(v.name for v in m.also)]
    outputs += [v.name for v in ends[:-1] if v.name not in read and m.chance(0.5)]
    if m.chance(0.3):
        outputs.append(m.random.choice(ends).name)
    return m.model(list(dict.fromkeys(outputs)))
