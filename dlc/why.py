"""Why a build's steps miss the cache, or how they differ from what was built before: a comparison of key texts.

Nothing runs: steps are followed from digest to digest as far as the cache knows them.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from dlc.cache import Cache, Key, Record, Store, diff_keys
from dlc.cache.key import equal_lines
from dlc.cache.upkeep import complete, records
from dlc.diagnostics import DlcError
from dlc.interfaces import Artifact, Job
from dlc.report import Report
from dlc.story import Damaged

if TYPE_CHECKING:
    from dlc.recipe import Recipe
    from dlc.session import Handle, StepResult

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


class Past:
    """Everything that was built before, by step name."""

    def __init__(self, cache: Cache) -> None:
        """Reads every record once."""
        self._cache = cache
        self._by_step: dict[str, list[tuple[float, Record]]] = {}
        for entry, record in records(cache.store):
            self._by_step.setdefault(record.key.step_name, []).append((entry.used, record))

    def has(self, key: Key) -> bool:
        """Whether the result under `key` is complete."""
        found = self._same(key)
        return found is not None and complete(self._cache.store, found)

    def finding(self, step: str, key: Key, subject: str = "", own: Container[str] = ()) -> Finding:
        """`key` held against the nearest other one of the same step; texts of keys in `own` are no others."""
        state: State = "hit" if self.has(key) else "miss"
        near = self._nearest(key, subject, own)
        if near is None:
            reason = "" if state == "hit" else "nothing is cached for this step"
            return Finding(step, state, (), reason, key.lines)
        if state == "miss" and self._same(key) is not None:
            return Finding(step, state, (), "its outputs were evicted", key.lines)
        differences = diff_keys(near.key, key)
        reason = "differs from the nearest other result" if state == "hit" else "the nearest earlier result differs"
        return Finding(step, state, differences, reason, key.lines)

    def _same(self, key: Key) -> Record | None:
        return next((r for _, r in self._by_step.get(key.step_name, ()) if r.key_text == key.text), None)

    def _nearest(self, key: Key, subject: str, own: Container[str]) -> Record | None:
        """Of the same subject if there is one, then with most equal lines, then last used."""
        held = self._by_step.get(key.step_name, ())
        others = [(used, r) for used, r in held if r.key_text != key.text and r.key_text not in own]
        if not others:
            return None

        def rank(item: tuple[float, Record]) -> tuple[bool, int, float]:
            used, record = item
            same = bool(subject) and dict(record.meta).get("subject") == subject
            return same, equal_lines(record.key, key), used

        return max(others, key=rank)[1]


@dataclass
class _Asking:
    """A workshop that makes nothing: it notes which sub-steps the cache lacks."""

    past: Past
    cache: Cache
    report: Report
    findings: list[Finding]

    def cached(self, jobs: Sequence[Job]) -> list[bytes]:
        """Contents, if the cache has all of them; else the search ends here."""
        from dlc.session import job_key

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


Follow = Callable[[Cache, "Callable[[StepResult[Any]], None]"], object]
"""Compiles with a cache, telling a function every step."""


def explain(follow: Follow, recipe: Recipe, store: Store) -> tuple[Finding, ...]:
    """How a build stands to what a store holds: a finding per step, and one per kernel where those are known."""
    cache = Watching(store, "ro")
    past = Past(cache)
    steps: list[StepResult[Any]] = []
    names = ["parse", *_between(recipe), f"emit {recipe.backend}", f"build {recipe.backend}"]
    missing: Key | None = None
    try:
        follow(cache, steps.append)
    except _Missed as missed:
        missing = missed.key
    own = {step.key.text for step in steps}  # a pass may stand in a pipeline twice
    findings = [past.finding(_of(step.function, step.spec), step.key, own=own) for step in steps]
    if missing is None:
        return tuple(findings)
    # Steps between parse and emit tell which function they belong to; their names begin with it.
    function = names[len(steps)].partition(": ")[0] if recipe.training and 0 < len(steps) < len(names) - 2 else ""
    findings.append(past.finding(_of(function, missing.value("step")), missing, own=own))
    if len(steps) == len(names) - 1:
        findings += _kernels(recipe, steps[-1].handle, cache, past)
    findings += [Finding(name, "unknown", (), "its input is not known yet") for name in names[len(steps) + 1 :]]
    return tuple(findings)


def _between(recipe: Recipe) -> list[str]:
    """Names of the steps between parse and emit, in the order of a build."""
    texts = [str(step.stage) for step in recipe.steps]
    if recipe.training is None:
        return texts
    return [_of(name, text) for name in recipe.order for text in ("autodiff", *texts)]


def _of(function: str, text: str) -> str:
    return f"{function}: {text}" if function else text


def _kernels(recipe: Recipe, artifact: Handle[Artifact], cache: Cache, past: Past) -> Iterable[Finding]:
    """What the last step would compile."""
    asking = _Asking(past, cache, Report(), [])
    # Damaged: the text was evicted. DlcError: a tool that cannot work on what is there. What was asked for is noted.
    with suppress(_Enough, Damaged, DlcError, _Missed):
        recipe.backend.build(artifact.value, asking)
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
