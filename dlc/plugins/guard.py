"""Running code of plugins that may hang, interrupt, or change settings of the interpreter that everybody shares.

A plugin is imported in the main thread, as its author expects. A second thread watches the clock: after `LIMIT` seconds
a signal raises an exception in the import, again every second, and a plugin that cannot even be interrupted (it hangs
in a library, without Python) ends the process with a message that names it. What it changed of `SETTINGS` is set back.
What it prints on stdout is kept, to be told by its name: stdout has the results of commands, and of programs that use
dlc.
"""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import FrameType
from typing import Any, Final, Generic, TypeVar, cast

from dlc.base.diagnostics import Diagnostic, ExitCode, render

T = TypeVar("T")

LIMIT = 30.0
"""Seconds that importing a plugin may take."""
_GRACE = 5
"""Times that it is interrupted, a second apart, before the process is given up."""


_OUTPUT = 1 << 16
"""Bytes of what a plugin prints that are kept."""


class TooLong(BaseException):
    """Raised in code that takes too long; no Exception, so that `except Exception` does not swallow it."""


@dataclass(frozen=True)
class Guarded(Generic[T]):
    """What became of a call."""

    value: T | None
    problem: BaseException | None = None
    """What it raised instead."""
    changes: tuple[str, ...] = ()
    """What it changed of the interpreter, in words; it has been set back."""
    output: str = ""
    """What it printed on stdout."""


@dataclass(frozen=True)
class Setting:
    """Something of the interpreter that code can change for everybody."""

    name: str
    read: Callable[[], Any]
    write: Callable[[Any], object]


def attempt(call: Callable[[], T], plugin: str, *, ours: bool) -> Guarded[T]:
    """The outcome of a plugin's code, guarded where it is not `ours`; `plugin` names it in messages."""
    if not ours:
        return guarded(call, plugin)
    try:
        return Guarded(call())
    except (Exception, SystemExit) as problem:  # noqa: BLE001  # the other plugins go on
        return Guarded(None, problem)


def guarded(call: Callable[[], T], plugin: str) -> Guarded[T]:
    """The outcome of code of a third party; `plugin` names it. An interruption by the user is raised as ever."""
    before = [(setting, setting.read()) for setting in SETTINGS]
    value: T | None = None
    problem: BaseException | None = None
    watch = _Watch(plugin)
    printed = _Printed()
    stdout, sys.stdout = (
        sys.stdout,
        io.TextIOWrapper(cast("io.BufferedWriter", printed), "utf-8", "backslashreplace", write_through=True),
    )
    try:
        with watch:
            value = call()
    # Whatever it raises, the others go on; the user's own interruption alone is meant for all of dlc.
    except BaseException as raised:  # noqa: BLE001
        problem = raised.with_traceback(None) if isinstance(raised, TooLong) else raised
    finally:
        sys.stdout = stdout
    changes = tuple(_set_back(before))
    if watch.interrupted:
        raise KeyboardInterrupt
    return Guarded(value, problem, changes, printed.end())


class _Printed(io.RawIOBase):
    """What is printed up to `end`. Who keeps the stream, as a handler of logs does, prints on stderr afterwards."""

    def __init__(self) -> None:
        super().__init__()
        self._kept: bytearray | None = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        if self._kept is None:
            sys.stderr.write(bytes(data).decode("utf-8", "backslashreplace"))
        else:
            self._kept += bytes(data)[: max(0, _OUTPUT - len(self._kept))]
        return len(data)

    def end(self) -> str:
        """What was printed so far."""
        kept, self._kept = self._kept or b"", None
        return bytes(kept).decode("utf-8", "replace").strip()


class _Watch:
    """Interrupts what runs inside of it when it takes too long. In other threads than the main one it does nothing:
    only that one can be interrupted."""

    def __init__(self, plugin: str) -> None:
        self.plugin = plugin
        self.interrupted = False
        """Whether the user has pressed Ctrl-C."""
        self._main = threading.current_thread() is threading.main_thread()
        self._active = False
        self._late = False
        self._done = threading.Event()
        self._earlier: dict[int, Any] = {}
        self._own = {signal.SIGINT: self._on_interrupt, signal.SIGALRM: self._on_alarm}

    def __enter__(self) -> None:
        if self._main:
            self._earlier = {number: signal.signal(number, handler) for number, handler in self._own.items()}
            self._active = True
            self._clock = threading.Thread(target=self._watch, daemon=True, name="dlc-guard")
            self._clock.start()

    def __exit__(self, *_: object) -> None:
        self._active = False  # first: a signal that is on its way must not raise any more
        if self._main:
            self._done.set()
            self._clock.join()
            for number, handler in self._own.items():
                # A handler that the plugin put there instead is found, and set back, with the other settings.
                if signal.getsignal(number) == handler and self._earlier[number] is not None:
                    signal.signal(number, self._earlier[number])

    def _on_interrupt(self, number: int, frame: FrameType | None) -> None:
        self.interrupted = True
        self._pass_on(number, frame)

    def _on_alarm(self, number: int, frame: FrameType | None) -> None:
        if not self._late:
            self._pass_on(number, frame)
        elif self._active:
            place = f", at {frame.f_code.co_filename}:{frame.f_lineno}" if frame else ""
            raise TooLong(f"it was still running after {LIMIT:g} s{place}")

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        earlier = self._earlier.get(number)
        if callable(earlier):
            earlier(number, frame)

    def _watch(self) -> None:
        end = time.monotonic() + LIMIT
        # What Ctrl-C raises may be lost, as in a finaliser: then the call is interrupted again.
        while not self.interrupted and (left := end - time.monotonic()) > 0:
            if self._done.wait(min(1.0, left)):
                return
        if self.interrupted and self._done.wait(1.0):
            return
        self._late = True
        for _ in range(_GRACE):
            signal.pthread_kill(cast("int", threading.main_thread().ident), signal.SIGALRM)
            if self._done.wait(1.0):
                return
        message = f"plugin {self.plugin} hangs when it is imported, and cannot be interrupted"
        help = f'remove it, or disable it in dlc.toml: [plugins] disable = ["{self.plugin.partition(" ")[0]}"]'
        os.write(2, (render(Diagnostic("broken-plugin", message, help=help)) + "\n").encode())
        os._exit(ExitCode.PLUGIN)


def _set_back(before: list[tuple[Setting, Any]]) -> Iterator[str]:
    """What has changed since, in words, each set back."""
    for setting, old in before:
        new = setting.read()
        if new != old:
            setting.write(old)
            yield f"{setting.name} ({_difference(old, new)})"


def _difference(old: Any, new: Any) -> str:
    """What differs: names of entries, or the two values."""
    if not isinstance(old, Mapping):
        return f"{old} → {new}"
    was, now = cast("Mapping[str, object]", old), cast("Mapping[str, object]", new)
    return ", ".join(name for name in sorted({*was, *now}) if was.get(name) != now.get(name))


def _handlers() -> dict[str, Any]:
    return {number.name: signal.getsignal(number) for number in signal.Signals}


def _set_handlers(wanted: Mapping[str, Any]) -> None:
    for name, handler in wanted.items():
        number = signal.Signals[name]
        if handler is not None and signal.getsignal(number) != handler:
            signal.signal(number, handler)


def _set_environment(wanted: Mapping[str, str]) -> None:
    for name in [name for name in os.environ if name not in wanted]:
        del os.environ[name]
    os.environ.update(wanted)


def _directory() -> str:
    try:
        return os.getcwd()
    except OSError:
        return ""  # it was removed


def _set_directory(wanted: str) -> None:
    if wanted:
        os.chdir(wanted)


def _strict() -> int:
    """How many filters turn warnings into errors; libraries add others when they are imported, as they may."""
    return sum(1 for found in warnings.filters if found[0] == "error")


def _set_strict(wanted: int) -> None:
    """New filters stand in front."""
    for found in [found for found in warnings.filters if found[0] == "error"][: max(0, _strict() - wanted)]:
        cast("list[Any]", warnings.filters).remove(found)


SETTINGS: Final = (
    Setting("the recursion limit", sys.getrecursionlimit, sys.setrecursionlimit),
    Setting("the limit of digits of integers", sys.get_int_max_str_digits, sys.set_int_max_str_digits),
    Setting("the switch interval of threads", sys.getswitchinterval, sys.setswitchinterval),
    Setting("handlers of signals", _handlers, _set_handlers),
    Setting("the current directory", _directory, _set_directory),
    Setting("the environment", lambda: dict(os.environ), _set_environment),
    Setting("the stream of errors", lambda: sys.stderr, lambda stream: setattr(sys, "stderr", stream)),
    Setting("filters that turn warnings into errors", _strict, _set_strict),
)
"""What is set back."""
