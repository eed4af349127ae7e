"""Places in spec text, and errors that point at them."""

from dataclasses import dataclass

from dlc.diagnostics import DlcError, ExitCode, Location, error


@dataclass(frozen=True)
class Span:
    """A position in spec text."""

    text: str
    """The whole text that was parsed."""
    source: str
    """Where the text came from: "--pipeline", "dlc.toml:9"."""
    start: int
    """Offset of the first character."""

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


def fault(code: str, message: str, span: Span | None, help: str = "") -> DlcError:
    """An error in spec text, with a caret when the place is known."""
    if span is None:
        return error(code, message, help=help, exit_code=ExitCode.USAGE)
    return error(code, message, location=span.location(), source_line=span.line(), help=help, exit_code=ExitCode.USAGE)
