"""Spec text: parse with spans, print canonically. `Spec.parse` and `str` are inverse."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias, Union

from dlc.base.diagnostics import DlcError, quote
from dlc.spec.span import OptionError, OptionSpan, Span, fault, placed

Value: TypeAlias = Union[str, "Spec", tuple[Union[str, "Spec"], ...]]
"""Untyped value: a word or string, a nested spec, or a list of these (never of exactly one)."""

_SPACE = re.compile(r"\s*")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*(?::[A-Za-z_][A-Za-z0-9_./-]*)?")
"""A name, perhaps with the plugin that it is of: acme:c."""
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_WORD = re.compile(r'[^\s{},"()\x00-\x1f\x7f]+')
_PLAIN = re.compile(r"[A-Za-z0-9_./:+\-*=@%~^<>|&;!?$#\[\]\\']+")
"""Words that print without quotes: a subset of _WORD, so that printed text is plain ASCII."""
_NEXT = re.compile(r"\s*,\s*[A-Za-z_][A-Za-z0-9_-]*\s*=")
"""A comma and what can only be the next option."""
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)

_DEPTH_LIMIT = 32
"""Nested specs; hostile text must not exhaust the stack."""


@dataclass(frozen=True)
class Spec:
    """A parsed, untyped `name{key=value …}`."""

    name: str
    options: tuple[tuple[str, Value], ...] = ()
    """In the order of the text; keys are unique."""
    span: Span | None = field(default=None, compare=False, repr=False)
    """Where the name stands, if the spec was parsed."""
    spans: tuple[OptionSpan | None, ...] = field(default=(), compare=False, repr=False)
    """One per option, or empty."""

    def __post_init__(self) -> None:
        """Give every value its one form: a list of one is its element."""
        options = tuple((key, v[0] if isinstance(v, tuple) and len(v) == 1 else v) for key, v in self.options)
        object.__setattr__(self, "options", options)
        if len(self.spans) != len(options):
            object.__setattr__(self, "spans", (None,) * len(options))

    @staticmethod
    def parse(text: str, source: str = "spec", foreign: str = "") -> "Spec":
        """The one spec that `text` holds; `foreign` as in `Span`. Raises DlcError (USAGE) with a caret."""
        parser = _Parser(text, source, foreign=foreign)
        spec = parser.spec(0)
        parser.end()
        return spec

    @staticmethod
    def parse_pipeline(text: str, source: str = "pipeline", foreign: str = "") -> "tuple[Spec, ...]":
        """The specs of `spec, spec, …`; blank text is the empty pipeline. Raises DlcError (USAGE) with a caret."""
        parser = _Parser(text, source, foreign=foreign)
        parser.space()
        specs: list[Spec] = []
        while parser.at < len(text):
            specs.append(parser.spec(0))
            if not parser.take(","):
                break
            parser.space()
            if parser.at == len(text):
                raise parser.expected("a name after ','")
        parser.end()
        return tuple(specs)

    @staticmethod
    def parse_options(name: str, text: str, source: str) -> "Spec":
        """The spec `name` with the options of `key=value, key=value …`, commas or spaces between them.

        A comma before `key=` ends a value; any other belongs to it. Raises DlcError (USAGE) with a caret.
        """
        parser = _Parser(text, source, loose=True)
        spec = parser.options(name)
        parser.end()
        return spec

    @staticmethod
    def print_pipeline(specs: "Sequence[Spec]") -> str:
        """Inverse of `parse_pipeline`."""
        return ",".join(str(s) for s in specs)

    def __str__(self) -> str:
        """Canonical text: options in order, single spaces, quotes only where needed."""
        if not self.options:
            return self.name
        return self.name + "{" + " ".join(f"{key}={_print(value)}" for key, value in self.options) + "}"

    def get(self, key: str) -> Value | None:
        """The value of `key`, if given."""
        return dict(self.options).get(key)

    def with_option(self, key: str, value: Value, span: OptionSpan | None = None) -> "Spec":
        """This spec with `key` set to `value`, in its old place or at the end."""
        keys = [k for k, _ in self.options]
        at = keys.index(key) if key in keys else len(keys)
        options = (*self.options[:at], (key, value), *self.options[at + 1 :])
        return replace(self, options=options, spans=(*self.spans[:at], span, *self.spans[at + 1 :]))

    def pointed(self, problem: OptionError) -> DlcError:
        """`problem` with a caret at the option that it is about, where this spec was parsed with it."""
        found = dict(zip((key for key, _ in self.options), self.spans, strict=True)).get(problem.key)
        if found is None:
            return problem
        word = re.compile(rf'(?<![^\s=,"!]){re.escape(problem.word)}')
        at = word.search(found.value.text, found.value.start)
        # No word: it was written otherwise, with escapes.
        return placed(problem, replace(found.value, start=at.start()) if at else found.value)


def parse_setting(text: str, source: str = "--set") -> tuple[str, str, Value, OptionSpan]:
    """Split `fuse.max-nests=4` into the step's name, the option's key, its value and where they stand."""
    parser = _Parser(text, source)
    name, dot, _ = text.partition("=")[0].strip().rpartition(".")
    if not dot or not _NAME.fullmatch(name):
        raise fault("bad-setting", f"{quote(text)} is not of the form STEP.KEY=VALUE", Span(text, source, 0))
    parser.space()
    parser.at += len(name) + 1
    key, value, span = parser.option(0)
    parser.end()
    return name, key, value, span


def _print(value: Value) -> str:
    match value:
        case Spec(options=()):
            return value.name + "{}"  # tells a nested spec from a word
        case Spec():
            return str(value)
        case str():
            return value if _PLAIN.fullmatch(value) else _print_string(value)
        case ():
            return "()"
        case _:
            return ",".join(_print(v) for v in value)


def _print_string(text: str) -> str:
    import json  # only unusual words need it

    return json.dumps(text)


class _Parser:
    """Recursive descent over one text; `at` is the offset of the next character."""

    def __init__(self, text: str, source: str, *, loose: bool = False, foreign: str = "") -> None:
        self.text = text
        self.source = source
        self.foreign = foreign
        self.loose = loose
        """Whether options may have commas between them."""
        self.at = 0

    def spec(self, depth: int) -> Spec:
        self.space()
        start = self.span()
        name = self.match(_NAME)
        if not name:
            raise self.expected("a name")
        return self.body(name, start, depth)

    def body(self, name: str, start: Span, depth: int) -> Spec:
        """The optional `{…}` after a name."""
        if not self.take("{"):
            return Spec(name, span=start)
        if depth >= _DEPTH_LIMIT:
            raise fault("spec-depth", f"specs nest deeper than {_DEPTH_LIMIT}", start)
        loose, self.loose = self.loose, False
        options: dict[str, Value] = {}
        spans: list[OptionSpan] = []
        while not self.take("}"):
            if self.at >= len(self.text):
                raise self.expected(f"'}}' to close {name}{{")
            self.add(name, options, spans, depth)
        self.loose = loose
        return Spec(name, tuple(options.items()), start, tuple(spans))

    def options(self, name: str) -> Spec:
        """Options up to the end of the text, with commas or spaces between them."""
        start = self.span()
        options: dict[str, Value] = {}
        spans: list[OptionSpan] = []
        self.space()
        while self.at < len(self.text):
            self.add(name, options, spans, 0)
            if self.take(","):
                self.space()
                if self.at == len(self.text):
                    raise self.expected("an option after ','")
            self.space()
        return Spec(name, tuple(options.items()), start, tuple(spans))

    def add(self, name: str, options: dict[str, Value], spans: list[OptionSpan], depth: int) -> None:
        """One more `key=value`."""
        key, value, span = self.option(depth + 1)
        if key in options:
            raise fault("duplicate-option", f"{name}: option {key} is given twice", span.key)
        options[key] = value
        spans.append(span)

    def option(self, depth: int) -> tuple[str, Value, OptionSpan]:
        self.space()
        start = self.span()
        key = self.match(_KEY)
        if not key:
            raise self.expected("an option, key=value")
        if not self.take("="):
            raise self.expected(f"'=' after option {key}")
        self.space()
        at = self.span()
        first = self.item(depth)
        items = [first]
        while not (self.loose and _NEXT.match(self.text, self.at)) and self.take(","):
            self.space()
            items.append(self.item(depth))
        if () in items and len(items) > 1:
            raise fault("spec-syntax", "'()' is the empty list and stands alone", at)
        value = first if len(items) == 1 else tuple(i for i in items if not isinstance(i, tuple))
        return key, value, OptionSpan(start, at)

    def item(self, depth: int) -> "str | Spec | tuple[()]":
        """One value without commas."""
        start = self.span()
        if self.text.startswith('"', self.at):
            return self.string()
        if self.text.startswith("()", self.at):
            self.at += 2
            return ()
        word = self.match(_WORD)
        if not word:
            raise self.expected(
                "a value",
                "a list is written a,b and an empty one ()" if self.text[self.at : self.at + 1] == "(" else "",
            )
        if not self.text.startswith("{", self.at):
            return word
        if not _NAME.fullmatch(word):
            raise fault("spec-syntax", f"{quote(word)} cannot be the name of a spec", start)
        return self.body(word, start, depth)

    def string(self) -> str:
        import json  # only quoted words need it

        start = self.span()
        literal = self.match(_STRING)
        if not literal:
            raise fault("spec-syntax", "the string has no closing quote", start)
        try:
            return str(json.loads(literal))
        except ValueError as problem:
            raise fault("spec-syntax", f"bad string: {problem}", start, 'write it as in JSON: "a\\nb"') from None

    def space(self) -> None:
        found = _SPACE.match(self.text, self.at)
        self.at = found.end() if found else self.at

    def take(self, mark: str) -> bool:
        """Skip spaces and then `mark`, if it is there."""
        self.space()
        if not self.text.startswith(mark, self.at):
            return False
        self.at += len(mark)
        return True

    def match(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self.text, self.at)
        if not found:
            return ""
        self.at = found.end()
        return found.group()

    def end(self) -> None:
        self.space()
        if self.at < len(self.text):
            raise self.expected("',' or the end")

    def span(self) -> Span:
        return Span(self.text, self.source, self.at, self.foreign)

    def expected(self, what: str, help: str = "") -> DlcError:
        found = quote(self.text[self.at]) if self.at < len(self.text) else "the end of the text"
        return fault("spec-syntax", f"expected {what}, found {found}", self.span(), help)
