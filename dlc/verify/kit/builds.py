"""Checks of builds as users run them: bytes and cache keys depend on the model and the options, and on nothing else."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dlc.graph import print_graph
from dlc.runtime.manifest import NAME as MANIFEST
from dlc.spec import Spec
from dlc.verify.kit.backends import sample_graph
from dlc.verify.kit.check import Check, Skipped, Wrong
from dlc.verify.kit.process import python

if TYPE_CHECKING:
    from dlc.plugins.entry import Entry
    from dlc.verify.kit.subject import Subject

_LIMIT: Final = 300.0
"""Seconds for one build."""
_PLACES: Final[Mapping[str, Mapping[str, str]]] = {
    "first": {"PYTHONHASHSEED": "0", "LC_ALL": "C", "TZ": "UTC", "USER": "first-of-trillian"},
    "second": {"PYTHONHASHSEED": "77", "TZ": "Pacific/Kiritimati", "LANG": "tr_TR.UTF-8", "USER": "second-of-trillian"},
    "again": {"PYTHONHASHSEED": "5", "TZ": "Asia/Kolkata", "CFLAGS": "-O0", "USER": "again-of-trillian"},
}
"""Environment of each build; no two are alike in anything that could leak into a file or a key."""


def _built(subject: Subject, entry: Entry) -> Mapping[str, tuple[dict[str, bytes], dict[str, Any]]]:
    """Files and document of each of three builds: two with a cache of their own, one with that of the second."""
    key = f"builds of {entry.name}"
    if key not in subject.kept:
        subject.kept[key] = _build_all(subject, entry)
    return subject.kept[key]


def _build_all(subject: Subject, entry: Entry) -> Mapping[str, tuple[dict[str, bytes], dict[str, Any]]]:
    backend = subject.registry.backend(Spec(entry.name))
    graph = sample_graph(subject, backend)
    found: dict[str, tuple[dict[str, bytes], dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory(prefix="trillian-") as text:
        top = Path(text)
        for name, environment in _PLACES.items():
            place = top / f"work of {name}"
            place.mkdir()
            (place / "graph.dlc").write_text(print_graph(graph), encoding="utf-8")
            cache = top / ("cache" if name != "first" else "first cache")
            line = [
                "-m",
                "dlc",
                "build",
                "graph.dlc",
                "-t",
                entry.name,
                "-o",
                "out",
                "--cache-dir",
                str(cache),
                "--json",
            ]
            homes = {"HOME": str(place), "XDG_CACHE_HOME": str(place / "cache"), "TMPDIR": str(top)}
            ran = python(line, place, _LIMIT, {**environment, **homes})
            document = _document(ran.out)
            if ran.code:
                reasons = [d["message"] for d in document.get("diagnostics", ())] or [ran.err.strip()[-500:]]
                raise Wrong(
                    f"dlc build -t {entry.name} ends with status {ran.code}: {reasons[0]}",
                    "dlc doctor says what is missing",
                )
            files = {
                str(p.relative_to(place / "out")): p.read_bytes()
                for p in sorted((place / "out").rglob("*"))
                if p.is_file()
            }
            found[name] = files, document
    return found


def _document(text: str) -> dict[str, Any]:
    try:
        return json.loads(text)
    except ValueError:
        return {}


def is_deterministic(subject: Subject, entry: Entry) -> str:
    """That two builds, in other directories and environments, give equal bytes without traces of either."""
    builds = _built(subject, entry)
    (first, _), (second, _) = builds["first"], builds["second"]
    if first.keys() != second.keys():
        odd = sorted(first.keys() ^ second.keys())
        raise Wrong(
            f"one of two builds has {', '.join(odd)}, the other has not", "emit must depend on its arguments only"
        )
    # The manifest has digests of all others, and differs where one of them does.
    for name, data in sorted(first.items(), key=lambda pair: pair[0] == MANIFEST):
        if data != second[name]:
            at = next(
                (k for k, (a, b) in enumerate(zip(data, second[name], strict=False)) if a != b),
                min(len(data), len(second[name])),
            )
            shown = [d[max(0, at - 20) : at + 20] for d in (data, second[name])]
            raise Wrong(
                f"{name} differs between two builds at byte {at}: {shown[0]!r} and {shown[1]!r}",
                "emit must depend on its arguments only: no time, no paths, no random numbers, no order of sets",
            )
        for trace in (b"trillian", b"Kiritimati"):
            if trace in data:
                raise Wrong(
                    f"{name} contains {trace!r}, from the environment of the build",
                    "leave paths and users out of what emit gives",
                )
    return f"{len(first)} files, {sum(map(len, first.values())):,} bytes"


def keys_are_pure(subject: Subject, entry: Entry) -> str:
    """That a build elsewhere takes every step from the cache of another one."""
    _, document = _built(subject, entry)["again"]
    steps: list[Mapping[str, Any]] = document["steps"]
    missed = [str(step["step"]) for step in steps if not step["cached"]]
    if missed:
        raise Wrong(
            f"{', '.join(missed)} ran again for an equal model in another directory and environment",
            "options and toolchain() must not depend on the directory or the environment; dlc cache why shows the key",
        )
    if not steps:
        raise Skipped("the build has no steps")
    return f"{len(steps)} steps from the cache"


CHECKS = (
    Check("backend-bytes", "two builds elsewhere give equal bytes", is_deterministic, "backends", 4),
    Check("backend-keys", "a build elsewhere takes everything from the cache", keys_are_pure, "backends", 4),
)
