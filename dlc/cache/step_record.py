"""`StepRecord`: how a step of a build went, as stored, passed to observers and shown; `Handle`: the state it gave."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeAlias, TypeVar

from dlc.base.diagnostics import of_json, to_json
from dlc.base.report import Report
from dlc.cache.envelope import Damaged
from dlc.cache.record import PARTS

if TYPE_CHECKING:
    from dlc.cache.key import Key
    from dlc.cache.record import Record

T = TypeVar("T")

PartDigests: TypeAlias = tuple[tuple[str, str], ...]
"""(label, digest) of the parts of a state: its weights and its names."""
FILE: Final = "file/"
"""What the names of an artifact's files begin with, among the outputs of the step that made it."""
MAX_MISSES = 1000
"""Misses are kept with the result so that `--explain` works on a warm build; more than this would only be noise."""


@dataclass(frozen=True)
class Placeholders:
    """What a record says of a state without names and weights, see `dlc.driver.left_out`."""

    pattern: str
    """Digest of what its own digest leaves out: which numbers of names its nodes have."""
    inputs: frozenset[str] = frozenset()
    """Names of inputs and parameters that no table has: passes made them."""
    outputs: frozenset[str] = frozenset()
    """The same of outputs."""
    own: bool = False
    """Whether the table is with the record; else it is that of the state before."""
    added: str = ""
    """Digest of the tensors that the step added to the table; "" for none."""

    @classmethod
    def parse(cls, text: str) -> Placeholders:
        """Inverse of `text`. Raises ValueError, KeyError or TypeError."""
        found = json.loads(text)
        inputs, outputs = (frozenset(map(str, found[key])) for key in ("inputs", "outputs"))
        return cls(str(found["pattern"]), inputs, outputs, bool(found["own"]), str(found["added"]))

    @property
    def text(self) -> str:
        """As records hold it."""
        names = {"inputs": sorted(self.inputs), "outputs": sorted(self.outputs)}
        return json.dumps({"pattern": self.pattern, **names, "own": self.own, "added": self.added})


class Restoring(Protocol):
    """Names and weights of a state."""

    def put_back(self, state: Any) -> Any:
        """The state with them."""
        ...


@dataclass
class Handle(Generic[T]):
    """A state by digest; its value is loaded when somebody asks."""

    kind: str
    """graph, plan, bundle, artifact, or source."""
    digest: str
    load: Callable[[], T]
    part_digests: PartDigests = ()
    """Digests of parts of it, which are lines of the keys of the steps that read them."""
    placeholders: Placeholders | None = None
    """Of a state without names and weights."""
    left_out: Restoring | None = None
    """These."""
    _bare: list[T] = field(default_factory=list["T"])
    _value: list[T] = field(default_factory=list["T"])

    @property
    def bare(self) -> T:
        """The state as steps work on it, without names and weights."""
        if not self._bare:
            self._bare.append(self.load())
        return self._bare[0]

    @property
    def value(self) -> T:
        """The state itself."""
        if not self._value:
            self._value.append(self.bare if self.left_out is None else self.left_out.put_back(self.bare))
        return self._value[0]

    @property
    def named_lines(self) -> PartDigests:
        """Key lines of a step that sees names and weights: with the digest, they are all of the state."""
        if self.placeholders is None:
            return self.part_digests
        pattern = self.placeholders.pattern
        return tuple((label, f"{digest}{f' {pattern}' * (label == 'names')}") for label, digest in self.part_digests)

    def known(self, value: T) -> Handle[T]:
        """The handle, which has the state already."""
        self._value.append(value)
        return self


@dataclass(frozen=True)
class StepRecord(Generic[T]):
    """One finished step of a build."""

    key: Key
    """Everything that its result depends on."""
    handle: Handle[T]
    """The state that it gave."""
    milliseconds: float = 0.0
    """That it took: to run, or to be found."""
    made_ms: float = 0.0
    """That it took when it ran, in this build or in an earlier one."""
    cached: bool = False
    """Whether the cache had its result."""
    report: Report = field(default_factory=Report)
    """What it counted, missed and noted."""
    title: str = ""
    """What people call the step: its spec text without options that have their defaults."""
    function: str = ""
    """Which function of the program the step belongs to; "" where it serves all, and where a program has only one."""

    @property
    def spec(self) -> str:
        """Canonical spec text of what ran."""
        return self.key.value("step")

    @property
    def name(self) -> str:
        """`fuse` of `fuse{max-nests=8}`; frontends stand under their name, backends under `emit` and `build`."""
        return self.spec.partition("{")[0].partition(" ")[0]

    @property
    def input(self) -> str:
        """Digest of the state that it got."""
        return self.key.value("input").rpartition(" ")[2]

    @property
    def output(self) -> str:
        """Digest of the state that it gave."""
        return self.handle.digest

    @property
    def counts(self) -> Mapping[str, int]:
        """Statistics by name."""
        return self.report.counts

    def to_meta(self) -> dict[str, str]:
        """For `Cache.save`, beside the key and the state itself."""
        report, handle = self.report, self.handle
        misses = report.misses[:MAX_MISSES]
        texts = {
            "counts": report.counts,
            "misses": misses,
            "missed_as": report.missed_as,
            "notes": report.notes,
            **({"warnings": [to_json(w) for w in report.warnings]} if report.warnings else {}),
            **({"jobs": report.jobs} if report.jobs else {}),
            **({"kernels": report.kernels} if report.kernels else {}),
        }
        facts = {"ms": f"{self.milliseconds:.3f}", "kind": handle.kind, "digest": handle.digest, "title": self.title}
        if handle.placeholders is not None:
            facts["placeholders"] = handle.placeholders.text
        if report.parts:
            facts[PARTS] = " ".join(report.parts)
        return {**facts, "report": json.dumps(texts), "part_digests": json.dumps(handle.part_digests)}

    @classmethod
    def of(cls, record: Record, load: Callable[[], T]) -> StepRecord[T]:
        """The inverse, as of a step that the cache had; `load` gives the state. Raises Damaged for another's record."""
        meta = dict(record.meta)
        try:
            stored = json.loads(meta["report"])
            misses = [(s, r) for s, r in stored["misses"]]
            report = Report(dict(stored["counts"]), misses, list(stored["notes"]), stored["missed_as"])
            report.warnings = [of_json(w) for w in stored.get("warnings", ())]
            report.jobs = [(str(s), str(of), float(ms), bool(hit)) for s, of, ms, hit in stored.get("jobs", ())]
            report.kernels = {k: (int(c), int(b)) for k, (c, b) in stored.get("kernels", {}).items()}
            parts = tuple((str(label), str(digest)) for label, digest in json.loads(meta["part_digests"]))
            placeholders = Placeholders.parse(meta["placeholders"]) if "placeholders" in meta else None
            handle = Handle(meta["kind"], meta["digest"], load, parts, placeholders)
            ms = record.milliseconds
            return cls(record.key, handle, ms, ms, cached=True, report=report, title=meta["title"])
        except (KeyError, ValueError, TypeError, AttributeError) as e:
            raise Damaged("record without the facts of a step") from e


def files_of(record: Record) -> dict[str, str]:
    """Name of each file of the artifact that a step made → digest of its content in the cache."""
    return {name.removeprefix(FILE): digest for name, digest in record.outputs if name.startswith(FILE)}
