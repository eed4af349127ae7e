"""Schedules of kernels that were measured: what `dlc tune` finds, and the file that it keeps them in.

A file is TOML in a canonical form, to be committed and reviewed:

    format = 1

    [[machine]]
    id = "6f1c2a90b3d4"
    description = "-O3 -mavx2 vectors=32 registers=16 l1=32768 l2=524288 …"
    compiler = "gcc version 12.2.0"
    processor = "AMD Ryzen 7 5800X"

    [[kernel]]
    digest = "392454940dcc27dc…"
    machine = "6f1c2a90b3d4"
    nodes = ["conv1"]
    schedule = "tiles{columns=2 vectors=2 rows=8 block=64}"
    default = "tiles{columns=2 vectors=2 rows=6 block=48}"
    cycles = 15900
    default-ns = 5210
    tuned-ns = 4480
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from dlc.base.diagnostics import DlcError, ExitCode, Location, error
from dlc.base.toml_text import BadToml, read_toml
from dlc.files.inputs import input_bytes

if TYPE_CHECKING:
    from dlc.kernel.kernel import Kernel

FORMAT: Final = 1
_HEAD: Final = "# Schedules of kernels, measured by dlc tune. dlc build --tune FILE uses them.\n"
_MOST_BYTES: Final = 64 << 20
"""Of a file: a larger one is something else."""


@dataclass(frozen=True, order=True)
class Fingerprint:
    """Where times were measured: those of one fingerprint can be compared."""

    machine: str
    """What schedules and code are made for: sizes, and the flags of the compiler."""
    compiler: str
    """Name and version."""
    processor: str
    """As the system calls it."""

    @cached_property
    def id(self) -> str:
        """Digits that stand for it in a file."""
        text = "\0".join((self.machine, self.compiler, self.processor))
        return blake2b(text.encode("utf-8", "replace"), digest_size=6).hexdigest()

    def __str__(self) -> str:
        return f"{self.processor}, {self.compiler}"


@dataclass(frozen=True)
class Record:
    """A kernel's fastest schedule of those that were measured."""

    kernel: str
    """Digest."""
    fingerprint: Fingerprint
    nodes: tuple[str, ...]
    """Of the model, that the kernel comes from: for readers."""
    schedule: str
    """The fastest; the default one where no other is faster."""
    default: str
    """What the estimate chooses."""
    cycles: int
    """Of the fastest, as estimated."""
    default_ns: int
    """Nanoseconds of a call with the default schedule, the median of several."""
    tuned_ns: int
    """The same with the fastest one, measured in turn with it."""

    @property
    def ratio(self) -> float:
        """Time of the fastest in units of the default's."""
        return self.tuned_ns / max(self.default_ns, 1)

    @property
    def rank(self) -> tuple[float, str, str, int, int, int, tuple[str, ...]]:
        """Of two records of a kernel the lower one stays, whatever order they come in."""
        return self.ratio, self.schedule, self.default, self.default_ns, self.tuned_ns, self.cycles, self.nodes


@dataclass(frozen=True)
class Trial:
    """A schedule to be measured."""

    schedule: str
    """With every number."""
    cycles: int
    """As estimated."""


class Tuner(Protocol):
    """What a backend knows of the schedules of kernels, for `dlc tune`."""

    def fingerprint(self) -> Fingerprint:
        """Of this computer and the backend's options. Raises DlcError (TOOL) without a compiler."""
        ...

    def trials(self, kernel: Kernel, most: int, seed: int) -> Sequence[Trial]:
        """Schedules of a kernel that are worth measuring, at most so many, the default one first."""
        ...


class Tuning:
    """Records, of a kernel at most one for each fingerprint."""

    def __init__(self, records: Iterable[Record] = ()) -> None:
        """Of several records of a kernel on one fingerprint the fastest one, relative to its default, stays."""
        found: dict[tuple[str, Fingerprint], Record] = {}
        for record in records:
            key = record.kernel, record.fingerprint
            old = found.get(key)
            found[key] = record if old is None else min(old, record, key=lambda r: r.rank)
        self.records: Final = tuple(found[key] for key in sorted(found))

    def of_machine(self, machine: str) -> Mapping[str, Record]:
        """By kernel what was measured for a machine, on whatever processor and by whatever compiler: of several
        records the fastest one, so that a program depends on the file and its target only."""
        found: dict[str, Record] = {}
        for record in self.records:
            if record.fingerprint.machine == machine:
                old = found.get(record.kernel, record)
                found[record.kernel] = min(old, record, key=lambda r: (r.rank, r.fingerprint))
        return found

    @cached_property
    def kernels(self) -> frozenset[str]:
        """Digests of all kernels that were measured, on any machine."""
        return frozenset(r.kernel for r in self.records)

    @cached_property
    def digest(self) -> str:
        """Of the text."""
        return blake2b(self.text.encode("ascii"), digest_size=16).hexdigest()

    @property
    def text(self) -> str:
        """The file."""
        lines = [_HEAD, f"format = {FORMAT}\n"]
        for f in sorted({r.fingerprint for r in self.records}):
            parts = {"id": f.id, "description": f.machine, "compiler": f.compiler, "processor": f.processor}
            lines += ["\n[[machine]]\n", *(f"{key} = {_quoted(value)}\n" for key, value in parts.items())]
        for r in self.records:
            nodes = ", ".join(map(_quoted, r.nodes))
            lines += [
                "\n[[kernel]]\n",
                f"digest = {_quoted(r.kernel)}\n",
                f"machine = {_quoted(r.fingerprint.id)}\n",
                f"nodes = [{nodes}]\n",
                f"schedule = {_quoted(r.schedule)}\n",
                f"default = {_quoted(r.default)}\n",
                f"cycles = {r.cycles}\n",
                f"default-ns = {r.default_ns}\n",
                f"tuned-ns = {r.tuned_ns}\n",
            ]
        return "".join(lines)

    @classmethod
    def parse(cls, text: str, source: str) -> Tuning:
        """The inverse of `text`.

        Args:
            text: Content of a file.
            source: Its name, for messages.

        Raises:
            DlcError: (`bad-tuning`) it is not TOML, or not such a file; the place and what is wrong are named.
        """
        try:
            content = read_toml(text)
            if content.get("format") != FORMAT:
                raise _Wrong(f"its format is {content.get('format')!r}, not {FORMAT}")
            machines = {_get(m, "id", str): _fingerprint(m) for m in _tables(content, "machine")}
            return cls(_record(entry, machines) for entry in _tables(content, "kernel"))
        except (BadToml, _Wrong) as problem:
            raise error(
                "bad-tuning",
                f"{source} is not a file of dlc tune: {problem}",
                location=Location(source),
                help="write one with dlc tune MODEL -o FILE",
                exit_code=ExitCode.USAGE,
            ) from None


def read_tuning(path: Path) -> Tuning:
    """The records of a file.

    Raises:
        DlcError: (USAGE) it cannot be read, or is no such file.
    """
    return tuning_of_content(tuning_content(path), str(path))


def tuning_content(path: Path) -> bytes:
    """What a file of records holds, as the build that is going on read it. Raises DlcError (USAGE) if that fails."""
    try:
        content = input_bytes(path, _MOST_BYTES)
    except OSError as problem:
        raise _not_read(str(path), problem.strerror or str(problem)) from None
    if len(content) > _MOST_BYTES:
        raise _not_read(str(path), f"it has more than {_MOST_BYTES:,} bytes")
    return content


def tuning_of_content(content: bytes, source: str) -> Tuning:
    """The records that a file holds. Raises DlcError (USAGE) if it is no such file."""
    try:
        return Tuning.parse(content.decode("utf-8"), source)
    except UnicodeDecodeError:
        raise _not_read(source, "it is not UTF-8") from None


def _not_read(source: str, reason: str) -> DlcError:
    return error(
        "bad-tuning",
        f"{source} cannot be read: {reason}",
        location=Location(source),
        help="write one with dlc tune MODEL -o FILE",
        exit_code=ExitCode.USAGE,
    )


class _Wrong(Exception):
    """What is wrong with a file."""


def _tables(content: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    found = content.get(key, [])
    if not isinstance(found, list) or not all(isinstance(entry, dict) for entry in cast("list[Any]", found)):
        raise _Wrong(f"{key} is not a list of tables")
    return cast("list[Mapping[str, Any]]", found)


def _get(entry: Mapping[str, Any], key: str, kind: type) -> Any:
    value = entry.get(key)
    if not isinstance(value, kind) or isinstance(value, bool):
        of = f" of kernel {entry['digest']}" if isinstance(entry.get("digest"), str) else ""
        raise _Wrong(f"{key}{of} is {value!r}" if key in entry else f"{key}{of} is missing")
    if isinstance(value, int) and value < 0:
        raise _Wrong(f"{key} is {value}, and cannot be negative")
    return value


def _fingerprint(entry: Mapping[str, Any]) -> Fingerprint:
    return Fingerprint(*(_get(entry, key, str) for key in ("description", "compiler", "processor")))


def _record(entry: Mapping[str, Any], machines: Mapping[str, Fingerprint]) -> Record:
    machine = _get(entry, "machine", str)
    if machine not in machines:
        raise _Wrong(f"there is no machine {machine}")
    nodes = _get(entry, "nodes", list)
    if not all(isinstance(n, str) for n in nodes):
        raise _Wrong(f"nodes of kernel {entry.get('digest')} are not texts")
    return Record(
        _get(entry, "digest", str),
        machines[machine],
        tuple(nodes),
        _get(entry, "schedule", str),
        _get(entry, "default", str),
        _get(entry, "cycles", int),
        _get(entry, "default-ns", int),
        _get(entry, "tuned-ns", int),
    )


def _quoted(text: str) -> str:
    """A string of TOML in printable ASCII."""
    return f'"{"".join(map(_shown, text.encode("utf-8", "replace").decode()))}"'


def _shown(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    if " " <= character <= "~":
        return character
    code = ord(character)
    return f"\\u{code:04x}" if code < 1 << 16 else f"\\U{code:08x}"
