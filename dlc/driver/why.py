"""Why a build's steps miss the cache, or how they differ from what was built before: a comparison of key texts.

Nothing runs: steps are followed from digest to digest as far as the cache knows them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from dlc.api.artifact import Artifact, Job
from dlc.base.diagnostics import DlcError
from dlc.base.report import Report
from dlc.cache import Cache, Key, Record, diff_keys
from dlc.cache.envelope import Damaged
from dlc.cache.key import equal_lines
from dlc.cache.signing import CAUSES
from dlc.cache.upkeep import records
from dlc.driver.build import function_steps
from dlc.driver.pipeline import BUILD, EMIT, PARSE
from dlc.driver.replay import steps_of
from dlc.files.hashing import OwnedFile

if TYPE_CHECKING:
    from dlc.cache.step_record import Handle, StepRecord
    from dlc.driver.pipeline import ResolvedPipeline

State = Literal["hit", "miss", "unknown"]


@dataclass(frozen=True)
class Finding:
    """One step or kernel, held against the cache."""

    step: str
    """Spec text of the step, or the name of what a sub-step works on."""
    state: State
    """unknown: its input is what a missing step before it makes."""
    differences: tuple[str, ...] = ()
    """Lines in which its key differs from the nearest other one."""
    reason: str = ""
    """What the differences are against, in words."""
    key: tuple[tuple[str, str], ...] = ()


_STATE = ("input", "weights", "names")
"""Labels of the lines that tell what goes into a step: they differ in every step behind a change."""
_FEW = 4
"""Lines in which a result of another model may differ to be worth a comparison."""


class Past:
    """Everything that was built before, by step name; and which of it belongs to a model."""

    def __init__(self, cache: Cache, model: str = "") -> None:
        """Reads every record once. `model` is the name of the model's file."""
        self._cache = cache
        self._model = model
        self._by_step: dict[str, list[tuple[float, Record]]] = {}
        self._own: Counter[str] = Counter()  # in how many builds of the model a step was
        for entry, record in records(cache.store):
            if record.leads_on:
                continue
            self._by_step.setdefault(record.key.step_name, []).append((entry.used, record))
            if record.key.step_name == "request" and record.key.value("subject") == model:
                self._own.update(steps_of(record))

    def has(self, key: Key) -> bool:
        """Whether the result under `key` is complete."""
        found = self._same(key)
        return found is not None and self._cache.has(found)

    def finding(self, step: str, key: Key, subject: str = "", own: Container[str] = ()) -> Finding:
        """`key` held against the nearest other one of the same step; texts of keys in `own` are no others.

        A hit is held against builds of the same model only.
        """
        hit = self.has(key)
        if hit and self._own[key.digest] > 1:  # an earlier build had this very result
            return Finding(step, "hit", key=key.lines)
        near = self._nearest(key, subject, own)
        related = near is not None and self._related(near, key)
        if hit:
            lines = diff_keys(near.key, key) if near and related else ()
            reason = "differs from an earlier build of this model" if lines else ""
            return Finding(step, "hit", lines, reason, key.lines)
        if (same := self._same(key)) is not None:
            cause = self._cache.policy.refusal(same)
            return Finding(step, "miss", (), CAUSES[cause] if cause else "its outputs were evicted", key.lines)
        if near is None:
            return Finding(step, "miss", (), "nothing is cached for this step", key.lines)
        lines = diff_keys(near.key, key)
        if not related and len(lines) > _FEW:
            return Finding(step, "miss", (), f"nothing of {self._model} is cached for this step", key.lines)
        return Finding(step, "miss", lines, "the nearest earlier result differs", key.lines)

    def _same(self, key: Key) -> Record | None:
        return next((r for _, r in self._by_step.get(key.step_name, ()) if r.key_text == key.text), None)

    def _related(self, record: Record, key: Key) -> bool:
        """Whether a record is of the same model: of an earlier build of its file, or made from the same input."""
        given = key.value("input")
        return record.key.digest in self._own or (given != "" and record.key.value("input") == given)

    def _nearest(self, key: Key, subject: str, own: Container[str]) -> Record | None:
        """Of the same model and subject if there is one, then with most equal lines, then last used."""
        held = self._by_step.get(key.step_name, ())
        others = [(used, r) for used, r in held if r.key_text != key.text and r.key_text not in own]
        if not others:
            return None

        def rank(item: tuple[float, Record]) -> tuple[bool, bool, int, float]:
            used, record = item
            same = bool(subject) and dict(record.meta).get("subject") == subject
            return self._related(record, key), same, equal_lines(record.key, key), used

        return max(others, key=rank)[1]


@dataclass
class _Asking:
    """A workshop that makes nothing: it notes which sub-steps the cache lacks."""

    past: Past
    cache: Cache
    report: Report
    findings: list[Finding]

    def file(self, name: str, size: int) -> OwnedFile:
        """See `Workshop.file`: nothing is kept."""
        del size
        return OwnedFile.create(name)

    def cached(self, jobs: Sequence[Job]) -> list[bytes]:
        """Contents, if the cache has all of them; else the search ends here."""
        from dlc.driver.session import job_key

        found: list[bytes] = []
        for job in jobs:
            key = job_key(job)
            finding = self.past.finding(f"{job.step} {job.subject}", key, job.subject)
            self.findings.append(finding if finding.state == "miss" else replace(finding, differences=(), reason=""))
            record = self.cache.lookup(key) if finding.state == "hit" else None
            content = self.cache.read(record.outputs[0][1]) if record else None
            if content is not None:
                found.append(content)
        if len(found) < len(jobs):
            raise _Enough
        return found


class _Enough(Exception):
    """Some sub-step is missing, so nothing behind it can be known."""


class _Missed(BaseException):
    """The key of a step that the cache lacks. Not an Exception: a step on the way would report it as a bug."""

    def __init__(self, key: Key) -> None:
        super().__init__(key.digest)
        self.key = key


class Watching(Cache):
    """A cache that reads only, and ends the build at the first miss."""

    def lookup(self, key: Key) -> Record | None:
        """See `Cache.lookup`; a miss raises `_Missed`."""
        record = super().lookup(key)
        if record is None:
            raise _Missed(key)
        return record


Follow = Callable[[Cache, "Callable[[StepRecord[Any]], None]"], object]
"""Compiles with a cache, telling a function every step."""


def explain(follow: Follow, pipeline: ResolvedPipeline, given: Cache, model: str) -> tuple[Finding, ...]:
    """How a build stands to what a cache holds: a finding per step, and one per kernel where those are known.

    `model` is the name of the model's file: earlier builds of it are what is compared with.
    """
    cache = Watching(given.store, "ro", policy=given.policy)
    past = Past(cache, model)
    steps: list[StepRecord[Any]] = []
    between = [(f.name, step.spec) for f in pipeline.functions for step in function_steps(f, pipeline)]
    names = [("", PARSE), *between, ("", f"{EMIT} {pipeline.backend}"), ("", f"{BUILD} {pipeline.backend}")]
    missing: Key | None = None
    try:
        follow(cache, steps.append)
    except _Missed as missed:
        missing = missed.key
    own = {step.key.text for step in steps}  # a pass may stand in a pipeline twice
    findings = [past.finding(_of(step.function, step.spec), step.key, own=own) for step in steps]
    findings = list(_causes(findings))
    if missing is None:
        return tuple(findings)
    findings.append(past.finding(_of(names[len(steps)][0], missing.value("step")), missing, own=own))
    if len(steps) == len(names) - 1:
        findings += _kernels(pipeline, steps[-1].handle, cache, past)
    findings += [Finding(_of(*name), "unknown", (), "its input is not known yet") for name in names[len(steps) + 1 :]]
    return tuple(findings)


def _causes(findings: Sequence[Finding]) -> Iterator[Finding]:
    """Findings of steps in order; of hits without the lines that only follow from what a step before them says.

    What goes into a step differs behind every change. Of another model's file it is said once which part of it differs.
    """
    seen: set[str] = set()
    other_file = bool(findings and findings[0].differences)
    for number, finding in enumerate(findings):
        labelled = [(line.partition(":")[0].lstrip("+- "), line) for line in finding.differences]
        if number and finding.state == "hit":
            new = {label for label, _ in labelled if other_file and label != "input"} - seen
            labelled = [(label, line) for label, line in labelled if label not in _STATE or label in new]
        seen |= {label for label, _ in labelled}
        lines = tuple(line for _, line in labelled)
        yield replace(finding, differences=lines, reason=finding.reason if lines or finding.state != "hit" else "")


def _of(function: str, text: str) -> str:
    return f"{function}: {text}" if function else text


def _kernels(pipeline: ResolvedPipeline, artifact: Handle[Artifact], cache: Cache, past: Past) -> Iterable[Finding]:
    """What the last step would compile."""
    asking = _Asking(past, cache, Report(), [])
    # Damaged: the text was evicted. DlcError: a tool that cannot work on what is there. What was asked for is noted.
    with suppress(_Enough, Damaged, DlcError, _Missed):
        pipeline.backend.build(artifact.value, asking)
    return asking.findings


def to_json(finding: Finding) -> Mapping[str, Any]:
    """For programs."""
    return {
        "step": finding.step,
        "state": finding.state,
        "reason": finding.reason,
        "differences": list(finding.differences),
        "key": [list(line) for line in finding.key],
    }
