"""What a stage did, reported to its caller: a stage never prints."""

from dataclasses import dataclass, field, replace

from dlc.base.diagnostics import Diagnostic, Location


@dataclass
class Report:
    """Collects what one run of a stage counted, missed and noted.

    The only mutable argument a stage gets; it must not influence the stage's result, but for what `applies` withholds.
    """

    counts: dict[str, int] = field(default_factory=dict[str, int])
    """Statistics by name: {"merged": 442}."""
    misses: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """(subject, reason) of what the stage looked at and left alone, or chose something for; shown by `--explain`."""
    notes: list[str] = field(default_factory=list[str])
    """Facts worth a line in the log."""
    missed_as: str = "not done"
    """What the stage did not do to the subjects of `misses`, or did, as output names it: "not fused"."""

    parts: list[str] = field(default_factory=list[str])
    """Digests of the keys of the sub-steps that the result was made from."""
    jobs: list[tuple[str, str, float, bool]] = field(default_factory=list[tuple[str, str, float, bool]])
    """Of each sub-step its kind, what it worked on, the milliseconds that it took when it ran, and whether the cache
    had its result."""
    kernels: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    """Digest of a kernel → its cycles of one core and the bytes beyond its caches, as they were estimated."""
    warnings: list[Diagnostic] = field(default_factory=list[Diagnostic])
    """What the user should know before the result is used, told by every build that uses it, also from the cache."""

    passing: str = ""
    """Why another run may give another result, as where a time limit ended a search; the cache does not keep such."""

    def count(self, what: str, n: int = 1) -> None:
        """Add `n` to the statistic `what`."""
        self.counts[what] = self.counts.get(what, 0) + n

    def applies(self, what: str, subject: object) -> bool:
        """Count an application of `what` to `subject` and say whether to make it: always, except in a bisection.

        `dlc debug bisect-passes` withholds all applications after the first so many, to find the one at fault. A stage
        whose applications can be left out one by one asks before each, in an order that depends on its input only.
        """
        del subject
        self.count(what)
        return True

    def missed(self, subject: str, reason: str) -> None:
        """Record that `subject` was left alone, and why."""
        self.misses.append((subject, reason))

    def note(self, text: str) -> None:
        """Record one fact."""
        self.notes.append(text)

    def warn(self, diagnostic: Diagnostic) -> None:
        """Record what the user should know. Its location needs no file: whoever tells it knows which file is built."""
        self.warnings.append(replace(diagnostic, severity="warning"))

    def warnings_of(self, file: str) -> list[Diagnostic]:
        """The warnings, for a build of `file`: a cached result serves files of several names."""
        return [replace(w, location=replace(w.location or Location(), source=file)) for w in self.warnings]
