"""The programs that a test sees: those that the README asks for, and what the test says that it uses (tests/tools.py).

Each test runs with a PATH of its own. Directories that have an optional program are replaced by directories of links to
all their other programs; the programs that the test uses come before these.

Most of the time of a build goes into the C compiler, and half of that into what `-O3` does beyond `-O1`. Tests in
`OPTIMISED` compile with the flags that users get; in all others `gcc` and `clang` are scripts that replace `-O3`. These
build the same few models again and again, each with a cache of its own, so the scripts go through ccache where it is
installed.

    python -m tests.programs pytest …

runs a command on a PATH without optional programs, as on a machine that has none.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.tools import OPTIONAL, PATH, program

OPTIMISED = ("backend_c", "bench", "fuzz", "kernel", "models", "tune")
"""Folders of tests of the code that compilers make."""
COMPILERS = ("gcc", "clang")
_SCRIPT = """\
#!/bin/sh
for word do
  shift
  [ "$word" = -O3 ] && word=-O1
  set -- "$@" "$word"
done
export CCACHE_DIR={folder}/ccache CCACHE_SLOPPINESS=include_file_mtime,include_file_ctime
exec {command} "$@"
"""
SHARED = "TESTS_SHARED"
"""The variable by which workers know the directory that they share."""
_WORD = re.compile(r"[\w+-]+")


def declared(item: pytest.Item) -> frozenset[str]:
    """The optional tools that a test says it uses: by marks, and by parameters that name them."""
    marked = (tool for name in ("needs", "uses") for mark in item.iter_markers(name) for tool in mark.args)
    spec: Any = getattr(item, "callspec", None)
    named = (word for value in (spec.params.values() if spec else ()) for word in _words(value))
    return frozenset(marked) | frozenset(named) & frozenset(OPTIONAL)


def _words(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield from _WORD.findall(value)
    elif isinstance(value, tuple):
        for part in value:  # pyright: ignore[reportUnknownVariableType]
            yield from _words(part)


def write_programs(folder: Path) -> None:
    """Make what `choose_programs` chooses from."""
    ccache = shutil.which("ccache", path=PATH)
    for name in COMPILERS:
        if path := shutil.which(name, path=PATH):
            script = folder / "faster" / name / name
            script.parent.mkdir(parents=True)
            command = shlex.join([ccache, path] if ccache else [path])
            script.write_text(_SCRIPT.format(folder=shlex.quote(str(folder)), command=command), encoding="utf-8")
            script.chmod(0o755)
    for tool in OPTIONAL:
        if path := program(tool):
            place = folder / "optional" / tool
            place.mkdir(parents=True)
            (place / tool).symlink_to(path)
    (folder / "path").write_text(plain_path(folder / "plain"), encoding="utf-8")


def plain_path(folder: Path, hidden: Iterable[str] = OPTIONAL) -> str:
    """PATH without some programs, under any name: its directories, or links to the others of their programs."""
    targets = {os.path.realpath(path) for tool in hidden if (path := program(tool))}
    found: dict[str, str] = {}
    for place in PATH.split(os.pathsep):
        real = os.path.realpath(place)
        if real in found or not os.path.isdir(real):
            continue
        names = {name: os.path.realpath(os.path.join(real, name)) for name in os.listdir(real)}
        if targets.isdisjoint(names.values()):
            found[real] = place
            continue
        links = folder / str(len(found))
        links.mkdir(parents=True)
        for name, target in names.items():
            if target not in targets:
                (links / name).symlink_to(os.path.join(place, name))
        found[real] = str(links)
    return os.pathsep.join(found.values())


def choose_programs(folder: Path, test: Path, tools: Iterable[str]) -> None:
    """Put the programs of a test on PATH: `test` is its file, relative to the root."""
    places = [folder / "optional" / tool for tool in tools]
    if not set(OPTIMISED) & set(test.parts[1:2]):
        places[:0] = [folder / "faster" / cc for cc in COMPILERS if cc == "gcc" or cc in tools]
    os.environ["PATH"] = os.pathsep.join([*(str(place) for place in places if place.is_dir()), _plain(folder)])


def path_with(tools: Iterable[str]) -> str:
    """The PATH of this test with some tools besides, for a part of it."""
    places = (Path(os.environ[SHARED], "programs", "optional", tool) for tool in tools)
    return os.pathsep.join([os.environ["PATH"], *(str(place) for place in places if place.is_dir())])


@cache
def _plain(folder: Path) -> str:
    return (folder / "path").read_text(encoding="utf-8")


def main(command: list[str]) -> int:
    """Run a command without optional programs; returns its exit code."""
    with tempfile.TemporaryDirectory(prefix="dlc-plain-") as place:
        path = plain_path(Path(place))
        changed = {**os.environ, "PATH": path, "TESTS_PATH": path}
        code = subprocess.run(
            [shutil.which(command[0]) or command[0], *command[1:]], env=changed, check=False
        ).returncode
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
