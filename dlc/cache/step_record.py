"""What the record of a step tells beside its outputs: the kind and digest of the state it gave, and its report."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from dlc.base.report import Report

if TYPE_CHECKING:
    from dlc.cache import Record

Aspects: TypeAlias = tuple[tuple[str, str], ...]
"""(label, digest) of the parts of a state: its weights and its names."""
MAX_MISSES = 1000
"""Misses are kept with the result so that `--explain` works on a warm build; more than this would only be noise."""


class Damaged(Exception):
    """A cached state that cannot be decoded; its step runs again."""


@dataclass(frozen=True)
class Story:
    """How a step went."""

    kind: str
    """Of the state it gave: graph, plan, artifact."""
    digest: str
    """Of that state."""
    milliseconds: float
    """That it took to run."""
    report: Report
    aspects: Aspects = ()
    """Digests of parts of that state."""
    title: str = ""
    """What people call the step."""

    def to_meta(self) -> dict[str, str]:
        """For `Cache.save`."""
        told = {"counts": self.report.counts, "misses": self.report.misses[:MAX_MISSES], "notes": self.report.notes}
        facts = {"ms": f"{self.milliseconds:.3f}", "kind": self.kind, "digest": self.digest, "title": self.title}
        return {**facts, "report": json.dumps(told), "aspects": json.dumps(self.aspects)}

    @classmethod
    def of(cls, record: Record) -> Story:
        """The inverse. Raises Damaged for the record of something else."""
        meta = dict(record.meta)
        try:
            told = json.loads(meta["report"])
            report = Report(dict(told["counts"]), [(s, r) for s, r in told["misses"]], list(told["notes"]))
            aspects = tuple((str(label), str(digest)) for label, digest in json.loads(meta["aspects"]))
            return cls(meta["kind"], meta["digest"], record.milliseconds, report, aspects, meta["title"])
        except (KeyError, ValueError, TypeError) as e:
            raise Damaged("record without its story") from e
