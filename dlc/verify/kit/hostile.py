"""Files that nobody wrote: what a frontend makes of damaged models, in a process of its own.

Truncated, with random bytes, with huge and negative numbers, nested deeply, empty. For each a frontend has to give a
graph that verifies or raise a DlcError, in a few seconds of processor time and `MEMORY` more bytes than before.
"""

from __future__ import annotations

import base64
import json
import re
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from dlc.api.source import Source

MEMORY: Final = 2 << 30
"""Bytes that reading one file may take."""
_NUMBER: Final = re.compile(rb"-?\d+(\.\d+)?([eE][-+]?\d+)?")
_SHORT: Final = 256
"""Bytes of a file that is cut everywhere."""
_HUGE: Final = (b"99999999999999999999", b"4611686018427387904", b"-1", b"2000000000", b"1e308", b"nan")


class _TooLong(BaseException):
    """Raised by the clock in what it interrupts; no Exception, so that a frontend cannot take it for its own."""


@dataclass(frozen=True)
class Damage:
    """A file made of a sound one."""

    how: str
    data: bytes


def damages(data: bytes, seed: int, rounds: int = 1) -> Iterator[Damage]:
    """Damaged copies of a model."""
    rng = Random(seed)
    yield Damage("an empty file", b"")
    for size in lengths(data, rounds):
        yield Damage(f"the first {size:,} of {len(data):,} bytes", data[:size])
    yield Damage("the model twice", data + data)
    for depth in (50, 100_000):
        for bracket in (b"[", b"{", b"("):
            yield Damage(f"{depth:,} times {bracket.decode()}", bracket * depth)
    for k in range(4 * rounds):
        yield Damage(f"{64 << k % 4} random bytes", rng.randbytes(64 << k % 4))
    if not data:
        return
    for _ in range(24 * rounds):
        changed, places = bytearray(data), [rng.randrange(len(data)) for _ in range(rng.choice((1, 1, 2, 8)))]
        for at in places:
            changed[at] = rng.randrange(256)
        yield Damage(f"other bytes at {places}", bytes(changed))
    numbers = list(_NUMBER.finditer(data))
    for found in rng.sample(numbers, min(len(numbers), 10 * rounds)):
        for huge in _HUGE:
            how = f"{huge.decode()} for the number at byte {found.start():,}"
            yield Damage(how, data[: found.start()] + huge + data[found.end() :])
    for width in (4, 8):
        for fill in (b"\xff" * width, b"\xff" * (width - 1) + b"\x7f"):
            for at in (rng.randrange(len(data)) for _ in range(4 * rounds)):
                yield Damage(f"{fill.hex()} at byte {at:,}", data[:at] + fill + data[at + width :])


def lengths(data: bytes, rounds: int) -> list[int]:
    """Where a file is cut: a short one everywhere, a long one in some places, and at the ends of its first lines."""
    if len(data) <= _SHORT:
        return list(range(1, len(data)))
    ends = [found.start() for found in islice(re.finditer(rb"\n", data), _SHORT // 8)]
    places = {len(data) * k // (24 * rounds) for k in range(1, 24 * rounds)}
    return sorted({*places, *ends, *(end + 1 for end in ends)})


def verdict(frontend: Any, source: Source, seconds: float = 60.0) -> str:
    """What is wrong with how a frontend reads a damaged file; "" if nothing is."""
    from dlc.base.diagnostics import DlcError
    from dlc.base.report import Report
    from dlc.graph import Graph, verify
    from dlc.verify.kit.subject import in_words

    _clock(seconds)
    try:
        sniffed = type(frontend)().sniff(source)
        if not isinstance(sniffed, bool):
            return f"sniff gives {sniffed!r}, not whether it is one"
        graph = frontend.graph(source, Report())
        _clock(0)
        if not isinstance(graph, Graph):
            return f"parse gives {type(graph).__name__}, not a Graph"
        return problems[0].message if (problems := verify(graph)) else ""
    except DlcError as problem:
        return "" if all(d.message.strip() for d in problem.diagnostics) else "a DlcError without a message"
    except _TooLong:
        return f"it is not done after {seconds:g} s of processor time"
    except MemoryError:
        return f"it takes more than {MEMORY >> 30} GiB of memory"
    except (Exception, SystemExit) as problem:  # noqa: BLE001  # which one it is is the finding
        return in_words(problem)
    finally:
        _clock(0)


def _clock(seconds: float) -> None:
    signal.setitimer(signal.ITIMER_PROF, seconds)


def _expire(*_: object) -> None:
    raise _TooLong


def main() -> None:
    """Read a request from standard input; print each damage before it is tried, and what was wrong after."""
    import resource

    from dlc.api.source import Source
    from dlc.plugins.discovery import load_registry
    from dlc.spec import Spec

    wanted: Any = json.load(sys.stdin)
    registry = load_registry()
    frontend = registry.frontend(Spec.parse(wanted["frontend"]))
    data, label = base64.b64decode(wanted["data"]), wanted["label"]
    files = {Path(name): base64.b64decode(content) for name, content in wanted["companions"].items()}
    for path, content in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    def model(content: bytes) -> Source:
        """A model with other files lies beside them, under its own name; another one is in memory."""
        if not files:
            return Source(data=content, label=label)
        path = Path(Path(label).name)
        path.write_bytes(content)
        return Source(path)

    # What is imported when the first file is read counts for no file.
    verdict(frontend, model(data))
    signal.signal(signal.SIGPROF, _expire)
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm", encoding="ascii") as file:
        pages = int(file.read().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY, hard))
    for damage in damages(data, wanted["seed"], wanted["rounds"]):
        say({"how": damage.how})
        if wrong := verdict(frontend, model(damage.data), wanted["seconds"]):
            say({"wrong": wrong})
            return
    for path, content in files.items():
        for damage in damages(content, wanted["seed"], wanted["rounds"]):
            say({"how": f"{path}: {damage.how}"})
            path.write_bytes(damage.data)
            if wrong := verdict(frontend, model(data), wanted["seconds"]):
                say({"wrong": wrong})
                return
        path.write_bytes(content)
    say({"done": True})


def say(what: dict[str, Any]) -> None:
    """A line for who started this process."""
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
