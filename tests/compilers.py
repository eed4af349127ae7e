"""Compilers that optimise less, for tests whose subject is not what a compiler makes of the generated code.

Most of the time of a build goes into the C compiler, and half of that into what `-O3` does beyond `-O1`. Tests in
`OPTIMISED` compile with the flags that users get; in all others `gcc` and `clang` are scripts that replace `-O3`. These
build the same few models again and again, each with a cache of its own, so the scripts go through ccache where it is
installed.
"""

from __future__ import annotations

import os
import shlex
import shutil
from pathlib import Path

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


def write_compilers(folder: Path) -> None:
    """Make a directory of scripts, one for each compiler that is here; with ccache, equal texts are compiled once."""
    folder.mkdir(exist_ok=True)
    ccache = shutil.which("ccache")
    for name in COMPILERS:
        if path := shutil.which(name):
            script = folder / name
            command = shlex.join([ccache, path] if ccache else [path])
            script.write_text(_SCRIPT.format(folder=shlex.quote(str(folder)), command=command), encoding="utf-8")
            script.chmod(0o755)


def choose_compilers(folder: Path, test: Path) -> None:
    """Put the scripts on PATH for a test, or take them away: `test` is its file, relative to the root."""
    path = os.environ["PATH"].split(os.pathsep)
    path = [place for place in path if place != str(folder)]
    if not set(OPTIMISED) & set(test.parts[1:2]):
        path.insert(0, str(folder))
    os.environ["PATH"] = os.pathsep.join(path)
