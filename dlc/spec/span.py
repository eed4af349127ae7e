"""Places in spec text, and errors that point at them."""

from dataclasses import dataclass, replace

from dlc.base.diagnostics import Diagnostic, DlcError, ExitCode, Location, error


@dataclass(frozen=True)
class Span:
    """A position in spec text."""

    text: str
    """The whole text that was parsed."""
    source: str
    """Where the text came from: "--pipeline", "dlc.toml:9"."""
    start: int
    """Offset of the first character."""
    foreign: str = ""
    """What the user can do about a text that somebody else may have written: options that run something are refused in
    it. Empty for a text that the user gave."""

    def location(self) -> Location:
        """The position for a diagnostic; its column counts within `line()`."""
        line = self.text.count("\n", 0, self.start) + 1 if "\n" in self.text else 0
        return Location(self.source, line=line, column=self.start - self.text.rfind("\n", 0, self.start))

    def line(self) -> str:
        """The line of the text that holds the position."""
        end = self.text.find("\n", self.start)
        return self.text[self.text.rfind("\n", 0, self.start) + 1 : len(self.text) if end < 0 else end]


@dataclass(frozen=True)
class OptionSpan:
    """Where the two halves of `key=value` stand."""

    key: Span
    value: Span


class OptionError(DlcError):
    """What is wrong with an option, found where its text is not known: `Spec.pointed` shows the place."""

    def __init__(self, problem: DlcError, key: str, word: str = "") -> None:
        """The problem with option `key`, or with one `word` of its value."""
        super().__init__(*problem.diagnostics, exit_code=problem.exit_code)
        self.key = key
        self.word = word


def placed(problem: DlcError, span: Span) -> DlcError:
    """`problem` with a caret at a place, where it names none."""

    def at(d: Diagnostic) -> Diagnostic:
        return d if d.location else replace(d, location=span.location(), source_line=span.line())

    return DlcError(*map(at, problem.diagnostics), exit_code=problem.exit_code)


def fault(code: str, message: str, span: Span | None, help: str = "") -> DlcError:
    """An error in spec text, with a caret when the place is known."""
    if span is None:
        return error(code, message, help=help, exit_code=ExitCode.USAGE)
    return error(code, message, location=span.location(), source_line=span.line(), help=help, exit_code=ExitCode.USAGE)
