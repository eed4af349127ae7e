"""What pages must be, and programs whose names try to break them."""

from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser

from dlc_backend_s2train.program import Program

HOSTILE = '</title><script>alert("x")</script>&\u202e\n\x00'


class Reader(HTMLParser):
    """Collects tags and attributes; pages must be well-formed enough to be balanced."""

    VOID = ("meta", "line", "rect", "polyline")

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.attributes: list[tuple[str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag


def read(page: str) -> Reader:
    """The page, checked: balanced, nothing from elsewhere, no scripts."""
    reader = Reader()
    reader.feed(page)
    reader.close()
    assert not reader.open
    assert "script" not in reader.tags
    assert not [value for name, value in reader.attributes if name in ("src", "href") or name.startswith("on")]
    assert "url(" not in page and "@import" not in page
    return reader


def hostile(program: Program) -> Program:
    return replace(
        program,
        tensors=tuple(replace(t, name=f"{t.name}{HOSTILE}") for t in program.tensors),
        entries=tuple(replace(e, name=HOSTILE) for e in program.entries),
    )
