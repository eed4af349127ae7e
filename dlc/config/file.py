"""The configuration file: find it, read it, and say everything that is wrong in it at once."""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from dlc.base.diagnostics import Diagnostic, DlcError, ExitCode, Location, did_you_mean, error
from dlc.config.config import Config, Setting, default_config
from dlc.config.keys import KEYS, KeyDoc, Paths, Pipeline, doc_of, is_known_prefix, matches
from dlc.config.toml_lines import line_of
from dlc.files.inputs import active
from dlc.spec import Spec
from dlc.spec.convert import Problem, read

Trusts = Callable[[Path, str], bool]
"""Whether the user trusts a configuration file with this text."""

_REMEDY = "read the file; `dlc trust` then trusts its current content, --trust-config trusts it for one command"


def nobody(file: Path, text: str) -> bool:
    """Trusts no file: for whoever builds nothing."""
    del file, text
    return False


def load_config(start: Path, file: Path | None = None, trusts: Trusts = nobody) -> Config:
    """Defaults under `file`, or under the configuration file found from directory `start`.

    Options of targets and pipelines that run something are refused where they are used, unless `trusts` says that the
    user trusts the file. Raises DlcError (USAGE) with everything that is wrong in the file.
    """
    found = file or find_file(start)
    if found is None:
        return default_config()
    text = _read(found)
    table = _table(found, text)
    settings = _Reader(found, text, trusts).settings(table)
    return replace(default_config().with_settings(settings), file=found, text=text)


def find_file(start: Path) -> Path | None:
    """The nearest dlc.toml, or pyproject.toml with [tool.dlc], in `start` or above it inside the same repository.

    Never above the directory that holds `.git`, and only `start` itself outside a repository: a file that somebody else
    left in a common parent (/tmp) could name a compiler to run.
    """
    start = start.absolute()
    above = [start, *start.parents]
    roots = [i for i, directory in enumerate(above) if (directory / ".git").exists()]
    for directory in above[: roots[0] + 1] if roots else above[:1]:
        if (directory / "dlc.toml").is_file():
            return directory / "dlc.toml"
        project = directory / "pyproject.toml"
        if project.is_file() and re.search(r"^\s*\[tool\.dlc[.\]]", _read(project), re.MULTILINE):
            return project
    return None


class _Reader:
    """Turns the tables of one file into settings, collecting every problem."""

    def __init__(self, file: Path, text: str, trusts: Trusts) -> None:
        self.file = file
        self.text = text
        self.trusts = trusts
        self.prefix = ("tool", "dlc") if file.name == "pyproject.toml" else ()
        self.problems: list[Diagnostic] = []

    def settings(self, table: Mapping[str, object]) -> dict[str, Setting]:
        found: dict[str, Setting] = {}
        self.walk(table, (), found)
        if self.problems:
            raise DlcError(*self.problems, exit_code=ExitCode.USAGE)
        return found

    def walk(self, table: Mapping[str, object], path: tuple[str, ...], found: dict[str, Setting]) -> None:
        for name, value in table.items():
            here = (*path, name)
            doc = doc_of(here)
            if doc:
                self.leaf(doc, here, value, found)
            elif not is_known_prefix(here):
                self.unknown(path, name)
            elif isinstance(value, dict):
                self.walk(cast("dict[str, object]", value), here, found)
            else:
                self.fail("bad-config", f"{'.'.join(here)} must be a table, not {_kind(value)}", here)

    def leaf(self, doc: KeyDoc, path: tuple[str, ...], value: object, found: dict[str, Setting]) -> None:
        key = ".".join(path)
        try:
            result = self.pipeline(path, value) if doc.kind is Pipeline else self.plain(doc, path, value)
        except Problem as problem:
            self.fail("bad-config", f"{key}: {problem}", path, problem.help)
        except DlcError as problem:
            self.problems += problem.diagnostics
        else:
            found[key] = Setting(result, self.place(path), self.foreign if doc.trust in ("file", "elsewhere") else "")

    def plain(self, doc: KeyDoc, path: tuple[str, ...], value: object) -> object:
        if doc.kind is Path:
            if not isinstance(value, str):
                raise Problem(f"a path is needed, not {_kind(value)}")
            return self.file.parent / value
        text = _text_of(value)
        if doc.kind is Paths:
            return tuple(self.file.parent / path for path in ((text,) if isinstance(text, str) else text))
        if doc.kind is Spec and isinstance(text, str):
            return Spec.parse(text, self.place(path), self.foreign)
        return read(doc.kind, text)

    def pipeline(self, path: tuple[str, ...], value: object) -> Pipeline:
        """A text, or a list of texts, each with the line it stands on."""
        texts = _text_of(value)
        if isinstance(texts, str):
            texts = (texts,)
        places = [(text, self.place(path, text)) for text in texts]
        return tuple(spec for text, place in places for spec in Spec.parse_pipeline(text, place, self.foreign))

    @cached_property
    def foreign(self) -> str:
        """What to do about options that run something; asked only for a file that has such."""
        return "" if self.trusts(self.file, self.text) else _REMEDY

    def unknown(self, path: tuple[str, ...], name: str) -> None:
        known = {doc.key.split(".")[len(path)] for doc in KEYS if matches(doc, path)}
        key = ".".join((*path, name))
        self.fail("unknown-key", f"there is no key {key}", (*path, name), did_you_mean(name, known, "keys"))

    def fail(self, code: str, message: str, path: tuple[str, ...], help: str = "") -> None:
        line = line_of(self.text, (*self.prefix, *path))
        source = self.text.splitlines()[line - 1] if self.text else ""
        where = Location(str(self.file), line=line)
        self.problems.append(Diagnostic(code, message, location=where, help=help, source_line=source))

    def place(self, path: tuple[str, ...], item: str = "") -> str:
        return f"{self.file.name}:{line_of(self.text, (*self.prefix, *path), item)}"


def _read(file: Path) -> str:
    try:
        return active().once(file).decode("utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) else "it is not UTF-8 text"
        raise error(
            "bad-config", f"{file} cannot be read: {reason}", location=Location(str(file)), exit_code=ExitCode.USAGE
        ) from None


def _table(file: Path, text: str) -> Mapping[str, object]:
    from dlc.base.toml_text import BadToml, read_toml  # most runs of `dlc` for help or listings read no file

    try:
        table: dict[str, Any] = read_toml(text)
    except BadToml as problem:
        place = re.search(r"\s*\(at line (\d+), column (\d+)\)$", str(problem))
        line, column = (int(place[1]), int(place[2])) if place else (0, 0)
        raise error(
            "bad-config",
            f"not valid TOML: {str(problem)[: place.start()] if place else problem}",
            location=Location(str(file), line=line, column=column),
            source_line=text.splitlines()[line - 1] if 0 < line <= len(text.splitlines()) else "",
            exit_code=ExitCode.USAGE,
        ) from None
    return table.get("tool", {}).get("dlc", {}) if file.name == "pyproject.toml" else table


def _text_of(value: object) -> str | tuple[str, ...]:
    """A TOML value as spec values are: text, or a list of texts."""
    match value:
        case bool():
            return "yes" if value else "no"
        case str():
            return value
        case int() | float():
            return str(value)
        case list():
            items = [_text_of(item) for item in cast("list[object]", value)]
            if all(isinstance(item, str) for item in items):
                return tuple(cast("list[str]", items))
            raise Problem("a list of lists is not allowed")
        case _:
            raise Problem(f"text is needed, not {_kind(value)}")


def _kind(value: object) -> str:
    match value:
        case dict():
            return "a table"
        case list():
            return "a list"
        case bool():
            return "yes or no"
        case str():
            return "text"
        case _:
            return "a number or a date"
