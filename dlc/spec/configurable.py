"""Fields ↔ options: the typed half of a spec. A stage declares its options as dataclass fields, and nothing else.

The example every stage follows, spelled `fuse{max-nests=8}`:

    @dataclass(frozen=True)
    class Fuse(Configurable):
        name = "fuse"
        max_nests: int = option(8, "largest group", low=1)
"""

import dataclasses
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cache
from types import SimpleNamespace
from typing import Any, ClassVar, Final, Self, TypeVar, cast, get_type_hints

from dlc.base.diagnostics import DlcError, did_you_mean
from dlc.spec.convert import Bytes, Problem, describe, format_bytes, format_option, parse_bytes, read, write
from dlc.spec.span import OptionError, Span, fault, placed
from dlc.spec.text import Spec

__all__ = ["Bytes", "Configurable", "OptionDoc", "format_bytes", "option", "parse_bytes"]

T = TypeVar("T")
UNTRUSTED: Final = "untrusted"
"""Code of the diagnostic for an option that runs something, in a file that the user does not trust."""


@dataclass(frozen=True)
class OptionDoc:
    """One option, as documentation shows it."""

    key: str
    """As written in a spec: "max-nests"."""
    type: str
    """Accepted values in words: "integer", "yes | no", "best-fit | greedy"."""
    default: str
    """Default in spec text."""
    doc: str
    """What it does."""
    runs: bool = False
    """Whether it says what program runs, or is passed to one that can run others."""


def option(
    default: T, doc: str, *, low: float | None = None, high: float | None = None, runs: bool = False, path: bool = False
) -> T:
    """A field of a Configurable: its default, one sentence, and the inclusive bounds of a number.

    Args:
        default: The value where a spec does not give the option.
        doc: A phrase that says what the option does, as listings show it, without a full stop.
        low: Least value of a number; None for no bound.
        high: Largest value of a number; None for no bound.
        runs: Whether the value says what program runs, or is passed to one that can run others (flags of a compiler):
            such an option counts in a directory's configuration only if the user trusts the file.
        path: Whether the value only says where a file lies, whose content the Configurable tells in another way, as
            `Backend.processor` does: results do not depend on the path.

    Returns:
        A dataclass field, typed as its default.
    """
    return field(default=default, metadata={"doc": doc, "low": low, "high": high, "runs": runs, "path": path})


class Configurable:
    """Base of passes, frontends and backends: frozen dataclasses that convert to and from spec text.

    Field types: bool, int, Bytes, float, str, Literal, Enum, another Configurable (or a union of them), Spec,
    `T | None`, `tuple[T, ...]`, `tuple[T, U]`, and `tuple[tuple[str, T], ...]`, which is written `a:1,b:2`.
    """

    name: ClassVar[str]
    """The word that selects this class in a spec."""
    renamed: ClassVar[Mapping[str, str]] = {}
    """Options that there were once: key → what to write instead, in a sentence."""

    @classmethod
    def from_spec(cls, spec: Spec) -> Self:
        """The instance that `spec` describes; raises DlcError (USAGE) with a caret under the wrong part."""
        known = _options(cls)
        values: dict[str, object] = {}
        for (key, value), span in zip(spec.options, spec.spans, strict=True):
            if key not in known:
                help = cls.renamed.get(key) or did_you_mean(key, known, "options")
                raise fault("unknown-option", f"{spec.name} has no option {key}", span.key if span else spec.span, help)
            declared, annotation = known[key]
            if span and span.value.foreign and declared.metadata.get("runs"):
                raise _untrusted(spec.name, key, span.value)
            try:
                if annotation is Spec and isinstance(value, str) and span:
                    value = Spec(value, span=span.value)  # keeps its place for whoever reads the spec
                found = read(annotation, value)
                _check_bounds(declared, found)
            except Problem as problem:
                place = span.value if span else spec.span
                raise fault("bad-option", f"{spec.name}: option {key}: {problem}", place, problem.help) from None
            values[declared.name] = found
        try:
            return cls(**values)
        except OptionError as problem:
            raise spec.pointed(problem) from None
        except DlcError as problem:
            raise (placed(problem, spec.span) if spec.span else problem) from None

    def to_spec(self) -> Spec:
        """Every option in declaration order, in canonical form."""
        options = _options(type(self))
        return Spec(
            self.name,
            tuple((key, write(annotation, getattr(self, f.name))) for key, (f, annotation) in options.items()),
        )

    @property
    def brief(self) -> str:
        """Spec text for people: only those options that differ from their defaults."""
        options = _options(type(self))
        own = {key for key, (f, _) in options.items() if getattr(self, f.name) != f.default}
        return str(Spec(self.name, tuple(o for o in self.to_spec().options if o[0] in own)))

    @property
    def placeless(self) -> Self:
        """The same without the paths of files that only say where these lie: what results may depend on."""
        paths = {f.name: f.default for f, _ in _options(type(self)).values() if f.metadata.get("path")}
        return replace(cast("Any", self), **paths) if paths else self

    @classmethod
    def options_doc(cls) -> tuple[OptionDoc, ...]:
        """What `dlc list` and the documentation say about the options."""
        return tuple(
            OptionDoc(
                key,
                describe(annotation),
                _default(f, annotation),
                str(f.metadata.get("doc", "")),
                bool(f.metadata.get("runs")),
            )
            for key, (f, annotation) in _options(cls).items()
        )

    def __str__(self) -> str:
        """Spec text."""
        return str(self.to_spec())


def _untrusted(name: str, key: str, value: Span) -> DlcError:
    message = f"{name}: option {key} sets what dlc runs, and {value.location().source} is not trusted"
    return fault(UNTRUSTED, message, value, value.foreign)


@cache  # reading annotations takes longer than anything that is done with them
def _options(cls: type[Configurable]) -> "Mapping[str, tuple[dataclasses.Field[Any], object]]":
    """Option key → (field, annotation), in declaration order."""
    if not is_dataclass(cls):
        return {}
    declared = fields(cls)
    hints = _resolved({f.name: f.type for f in declared if isinstance(f.type, str)}, cls)
    return {f.name.rstrip("_").replace("_", "-"): (f, hints.get(f.name, f.type)) for f in declared if f.init}


def _resolved(texts: dict[str, str], cls: type) -> dict[str, object]:
    """The types behind string annotations of fields.

    Not get_type_hints(cls): it insists on every ClassVar too, whose types may exist for type checkers only.
    """
    hints: dict[str, object] = {}
    for owner in cls.__mro__:
        own = {k: v for k, v in texts.items() if k in vars(owner).get("__annotations__", {}) and k not in hints}
        if own:
            scope = vars(sys.modules[owner.__module__])
            hints |= get_type_hints(SimpleNamespace(__annotations__=own), scope, include_extras=True)
    return hints


def _default(declared: "dataclasses.Field[Any]", annotation: object) -> str:
    return "" if declared.default is dataclasses.MISSING else format_option(annotation, declared.default)


def _check_bounds(declared: "dataclasses.Field[Any]", value: object) -> None:
    low = cast("float | None", declared.metadata.get("low"))
    high = cast("float | None", declared.metadata.get("high"))
    numbers = cast("tuple[object, ...]", value) if isinstance(value, tuple) else (value,)
    for number in numbers:
        if isinstance(number, int | float):
            if low is not None and number < low:
                raise Problem(f"{number} is below the least value, {low}")
            if high is not None and number > high:
                raise Problem(f"{number} is above the greatest value, {high}")
