"""A model and one way to compile it: everything that a run of the fuzzer decides for a graph, and that a file keeps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from random import Random
from typing import Any, Final, Literal

from tests.fuzz import kinds_elementwise, kinds_found, kinds_index, kinds_movement, kinds_narrow, kinds_rare, kinds_sums
from tests.fuzz.drawing import Maker, draw
from tests.fuzz.found import FINDING
from tests.fuzz.idioms.table import Character, woven
from tests.fuzz.model import Model, from_json, to_json
from tests.fuzz.narrow import narrow_types

Kind = Literal["forward", "gradient", "train"]
KINDS: Final[tuple[tuple[int, Callable[[Maker], object]], ...]] = (
    *kinds_elementwise.KINDS,
    *kinds_movement.KINDS,
    *kinds_sums.KINDS,
    *kinds_index.KINDS,
    *kinds_rare.KINDS,
    *kinds_found.KINDS,
    *kinds_narrow.KINDS,
)
MOST_NODES: Final = 40
OPEN: Final = 0.4
"""Part of the forward models that have dimensions without a number."""
OPEN_NODES: Final = 16
"""In these: what one node is refused for, all are."""
NARROW: Final = 0.25
"""Part of the forward models that have values of types that numpy does not have."""
LEFT_OUT: Final = ("fold-constants", "simplify", "layout", "fuse")
"""Passes that a pipeline need not have."""
SETTINGS: Final = (
    *("plan-memory.strategy=none", "plan-memory.strategy=greedy", "plan-memory.strategy=best-fit"),
    *("plan-memory.in-place=no", "plan-memory.align=128", "order.policy=depth-first", "order.state-limit=3"),
    *("fuse.max-nests=2", "fuse.max-nests=200", "fuse.epilogues=no", "layout.values=no", "layout.weights=no"),
    *("layout.panel=1", "layout.panel=4", "layout.panel=32", "simplify.compose=no", "simplify.rounds=1"),
    *("fold-constants.max-bytes=0", "expand.only=()"),
)
TRAININGS: Final = (
    *("loss=mse", "loss=l1", "loss=huber", "loss=mse optimizer=adam", "loss=mse optimizer=adamw clip=1.0"),
    *("loss=mse optimizer=sgd{momentum=0.9}", "loss=mse optimizer=rmsprop", "loss=mse optimizer=lamb"),
)
OPEN_IDIOMS: Final = 0.3
"""Part of the forward models of idioms that have named dimensions."""
LOSSES: Final = ("mse", "l1", "huber", "mse")
OPTIMIZERS: Final = (
    *("sgd", "sgd{momentum=0.9}", "sgd{momentum=0.9 nesterov=yes weight-decay=0.01}", "adam", "lamb"),
    *("adamw{weight-decay=0.05}", "adagrad", "rmsprop", "rmsprop{momentum=0.9 centered=yes}"),
)


@dataclass(frozen=True)
class Tools:
    """How a whole batch is compiled."""

    cc: str = "gcc"
    cpu: str = "native"
    strict: bool = False
    flags: tuple[str, ...] = ()
    """Behind dlc's own."""
    machine: tuple[int, ...] = ()
    """Bytes and number of vector registers, bytes of both caches, in place of those of this processor."""
    threads: int = 1
    target: str = "c"
    """Or `s2train`, with its options: nothing else then matters."""

    def __str__(self) -> str:
        if self.target != "c":
            return self.target
        machine = [f"as of {'/'.join(map(str, self.machine))}"] * bool(self.machine)
        more = [*(["strict"] * self.strict), *machine, *([f"{self.threads} threads"] * (self.threads > 1))]
        return " ".join((self.cc, self.cpu, *more, *(self.flags or ["default flags"])))


@dataclass(frozen=True)
class Case:
    """What is built, and how."""

    model: Model
    seed: int = 0
    """Of seeds of gradients and labels, and of the alignment of buffers."""
    kind: Kind = "forward"
    without: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    train: str = ""
    """Options of the pass autodiff."""
    tools: Tools = field(default_factory=Tools)
    idioms: tuple[str, ...] = ()
    """Names of those that the model consists of; onnxruntime is the judge of such a model."""

    def to_json(self) -> dict[str, Any]:
        """For a file."""
        how = {k: v for k, v in asdict(self).items() if k not in ("model", "tools")}
        return {**how, "tools": asdict(self.tools), **to_json(self.model)}

    @property
    def unroll(self) -> int:
        """Nodes of loops that are unrolled: of every other model none."""
        return 0 if self.seed % 2 else 512

    @property
    def traits(self) -> tuple[str, ...]:
        """What a summary counts."""
        ops, model = {n.op for n in self.model.nodes}, self.model
        return (
            self.kind,
            *(["with named dimensions"] if model.ranges else []),
            *(["with sizes that a call finds"] if model.calls and ops & {*FINDING} else []),
            *(f"with {op}" for op in ("If", "Loop", "Scan") if op in ops),
            *(f"with {name}" for name in sorted(narrow_types(model))),
        )

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Case:
        """The inverse of `to_json`; other keys are ignored."""
        how = data["tools"]
        tools = Tools(
            str(how["cc"]),
            str(how["cpu"]),
            bool(how["strict"]),
            tuple(how["flags"]),
            tuple(how.get("machine", ())),
            int(how.get("threads", 1)),
            str(how.get("target", "c")),
        )
        without, settings = tuple(data["without"]), tuple(data["settings"])
        idioms, seed, train = tuple(data.get("idioms", ())), int(data["seed"]), str(data["train"])
        return cls(from_json(data), seed, data["kind"], without, settings, train, tools, idioms)


def drawn(seed: int, tools: Tools, *, idioms: bool = False) -> Case:
    """The case of a seed; of single operators, or of idioms."""
    if idioms:
        return _woven(seed, tools)
    random = Random(f"case {seed}")
    kind: Kind = random.choices(("forward", "gradient", "train"), (80, 13, 7))[0]
    sizes = kind == "forward" and random.random() < OPEN  # gradients and training need a number for every dimension
    most = OPEN_NODES if sizes else MOST_NODES if kind == "forward" else 12
    narrow = kind == "forward" and random.random() < NARROW  # a derivative of rounding is none
    model = draw(seed, KINDS, most, learns=kind == "train", sizes=sizes, narrow=narrow)
    without, kept = _pipeline(random)
    return Case(model, seed, kind, without, kept, random.choice(TRAININGS) if kind == "train" else "", tools)


def _pipeline(random: Random) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Passes that are left out, and settings of others."""
    without = tuple(name for name in LEFT_OUT if random.random() < 0.12)
    settings = {text.partition("=")[0]: text for text in random.choices(SETTINGS, k=random.choice((0, 0, 0, 1, 2, 3)))}
    return without, tuple(text for text in settings.values() if text.partition(".")[0] not in without)


def _woven(seed: int, tools: Tools) -> Case:
    random = Random(f"idiom case {seed}")
    shares = (72, 5, 23) if tools.target == "c" else (1, 0, 0)
    kind: Kind = random.choices(("forward", "gradient", "train"), shares)[0]
    forward = kind == "forward"
    character = Character(forward and random.random() < OPEN_IDIOMS, not forward, most=200 if forward else 60)
    model, names = woven(seed, character)
    without, settings = _pipeline(random) if random.random() < 0.3 else ((), ())
    train = ""
    if kind == "train":
        train = (
            f"loss={random.choice(LOSSES)} optimizer={random.choice(OPTIMIZERS)}{random.choice(('', '', ' clip=1.0'))}"
        )
    return Case(model, seed, kind, without, settings, train, tools, names)
