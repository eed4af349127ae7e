"""One build as a job that any computer may do: arguments of `dlc build` and digests of files, in JSON.

    {"arguments": ["--dim", "batch=1"], "directory": "/work"}                                on this computer
    {"arguments": […], "model": "model/net.onnx", "files": {path: digest}, "cache": {…}}     on another one

The build is a process of its own: one that runs out of memory, or is killed, takes nothing with it. On another computer
its files are fetched from the cache that both share, and all that it makes is left there.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any, Final

from dlc.base.cache_levels import Level, parse_levels, without_credentials
from dlc.base.cache_settings import DIRECTORY_VARIABLE, LEVELS_VARIABLE, TOKEN_VARIABLE
from dlc.base.diagnostics import error, to_json
from dlc.driver.executors.lane import ProcessLost

_GRACE: Final = 5.0
"""Seconds that a build has to end when it is interrupted."""
_SAID: Final = 2000
"""Characters of what a process said that a message repeats."""
_RUNNING: Final[set[subprocess.Popen[bytes]]] = set()
"""Builds of this process."""
_LOCK: Final = threading.Lock()


def build_text(text: str) -> str:
    """Do a job, here; what `dlc build --json` says of it, as JSON.

    Raises:
        ProcessLost: the build's process was killed.
    """
    job = json.loads(text)
    if "files" not in job:
        return _built(job["arguments"], job["directory"], {})
    with tempfile.TemporaryDirectory(prefix="dlc-job-") as made:
        place = Path(made)
        job["cache"]["levels"] = _with_own_credentials(job["cache"]["levels"])
        if lost := _fetched(job, place):
            return lost
        words = [*job["arguments"], "-o", str(place / "out"), "--cache", job["cache"]["mode"]]
        return _built([job["model"], *words], made, _cache_variables(job["cache"]))


def interrupt_builds() -> None:
    """End what this process builds, as Ctrl-C does."""
    with _LOCK:
        running = list(_RUNNING)
    for process in running:
        _signalled(process, signal.SIGINT)
    for process in running:
        try:
            process.wait(_GRACE)
        except subprocess.TimeoutExpired:
            _signalled(process, signal.SIGKILL)


def source_key(digest: str) -> Any:
    """The key under which the cache holds a file that a job needs, by its SHA-256."""
    from dlc.cache import Key

    return Key((("step", "source"), ("input", digest)))


def _built(arguments: list[str], directory: str, variables: Mapping[str, str]) -> str:
    line = [sys.executable, "-m", "dlc", "build", *arguments, "--json"]
    pipe = subprocess.PIPE
    # A session of its own: Ctrl-C in a terminal reaches this process only, which ends its builds in order. It is known
    # to whoever ends them from the moment that it runs.
    with _LOCK:
        process = subprocess.Popen(
            line,
            cwd=directory,
            env=_environment(variables),
            stdin=subprocess.DEVNULL,
            stdout=pipe,
            stderr=pipe,
            start_new_session=True,
        )
        _RUNNING.add(process)
    try:
        out, err = process.communicate()
    finally:
        with _LOCK:
            _RUNNING.discard(process)
    if process.returncode < 0:
        raise ProcessLost(f"the build's process was ended by signal {-process.returncode}")
    try:
        found = json.loads(out)
    except ValueError:
        said = (err or out).decode("utf-8", "replace")[-_SAID:].strip()
        return _failed("build-failed", f"dlc build ended with code {process.returncode} and gave no document: {said}")
    return json.dumps(found)


def _environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Of the build: the paths that this process imports from come first, however it was started."""
    paths = [p for p in sys.path if p and Path(p).is_dir() and "site-packages" not in p]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), **variables}


def _cache_variables(cache: Mapping[str, str]) -> dict[str, str]:
    names = {"directory": DIRECTORY_VARIABLE, "levels": LEVELS_VARIABLE}
    return {name: cache[key] for key, name in names.items() if cache.get(key)}


def _with_own_credentials(levels: str) -> str:
    """The levels of a job, with the credentials that this computer's environment has for the same URLs: it has none."""

    def parsed(text: str) -> tuple[Level, ...]:
        return parse_levels(text.split(","))

    try:
        own = {level.label: level.url for level in parsed(os.environ.get(LEVELS_VARIABLE, ""))}
    except ValueError:
        own = {}  # the build says what is wrong with it
    return ",".join(level.at(own.get(level.label, level.url)) for level in parsed(levels))


def _fetched(job: Mapping[str, Any], place: Path) -> str:
    """Put the files of a job where its build finds them; what to say if one is not to be had, or ""."""
    from dlc.cli.options import CacheOptions
    from dlc.cli.workspace import configuration, open_configured

    cache = job["cache"]
    options = CacheOptions("rw", Path(cache["directory"]) if cache["directory"] else None, cache["levels"] or None)
    with open_configured(configuration(options), shared=True) as opened:
        for name, digest in job["files"].items():
            parts = PurePosixPath(name)
            if parts.is_absolute() or ".." in parts.parts:
                return _failed("bad-job", f"the job has a file {name}, outside of its directory")
            target = place / name
            target.parent.mkdir(parents=True, exist_ok=True)
            record = opened.lookup(source_key(digest))
            outputs = dict(record.outputs) if record else {}
            if "file" not in outputs or not opened.export(outputs["file"], target):
                where = without_credentials(cache["levels"]) or cache["directory"]
                return _failed("not-shared", f"the worker does not find {name} ({digest[:16]}…) in the cache {where}")
    (place / "dlc.toml").touch()  # whatever configuration lies above is not of this job
    return ""


def _failed(code: str, message: str) -> str:
    shared = (
        "give a cache that this computer and the workers reach: --cache-levels redis://HOST#rw. Credentials are not "
        f"part of jobs: if the cache needs some, each worker has to have them in its environment, "
        f"{LEVELS_VARIABLE} or {TOKEN_VARIABLE}"
    )
    help = {"not-shared": shared}
    found = error(code, message, help=help.get(code, ""))
    return json.dumps({"ok": False, "exit_code": 1, "diagnostics": [to_json(d) for d in found.diagnostics]})


def _signalled(process: subprocess.Popen[bytes], number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)
