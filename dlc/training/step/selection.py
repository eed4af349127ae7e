"""Choosing one of several kinds, such as losses, by spec text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from dlc.api.parts import Part
from dlc.base.diagnostics import did_you_mean, quote
from dlc.spec import Configurable, Spec, fault

T = TypeVar("T", bound=Configurable)


def selected(
    text: str | Spec, source: str, kinds: Mapping[str, type[T]], what: str, several: str, more: Sequence[Part[T]] = ()
) -> T:
    """The object that a spec describes.

    Args:
        text: The spec, as `huber{delta=2}`; a parsed one keeps its place in messages.
        source: How messages call the text.
        kinds: Name in a spec → class.
        what, several: What kinds are called, one and many of them.
        more: Kinds that plugins add.

    Raises:
        DlcError: (USAGE) with a caret: the text is no spec, or names a kind or option that does not exist.
            (PLUGIN) what a plugin adds cannot be loaded.
    """
    spec = text if isinstance(text, Spec) else Spec.parse(text, source)
    if kind := kinds.get(spec.name):
        return kind.from_spec(spec)
    added = {part.name: part for part in more}
    if part := added.get(spec.name):
        return part.load().from_spec(spec)
    help = did_you_mean(spec.name, (*kinds, *added), several)
    raise fault(f"unknown-{what}", f"there is no {what} {quote(spec.name)}", spec.span, help)
