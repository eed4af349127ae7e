"""`dlc` and `python` as commands whose processes are forked from one that has imported dlc already.

Tests start them hundreds of times, and half of their time was spent importing the same modules. In everything else a
forked process is one of its own: directory, environment, open files, signals and exit code are those of the command.
Tests of how dlc starts, of terminals and of processes that are killed start it as users do.
"""

import atexit
import contextlib
import gc
import importlib
import marshal
import os
import pkgutil
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import NoReturn

PACKAGES = ("dlc", "dlc_frontend_onnx", "dlc_frontend_kernel", "dlc_backend_c", "dlc_backend_s2train")
"""Whose modules are imported before; that of PyTorch would import PyTorch."""
_EXAMPLES = Path(__file__).parents[1] / "examples"
REHEARSED = (
    "build examples/mnist.onnx -q -t c{lib=none} -o out",
    "build examples/digits/lenet.onnx -q --dim batch=2 --train loss=cross-entropy -t c{lib=none} -o step",
    "verify examples/mnist.onnx -q --reference numpy -t c{flags=-O0}",
)
"""Commands that the process runs before it answers."""
_LARGEST = 1 << 20
_FILES = 3  # stdin, stdout, stderr
_COMMAND = """\
#!{python} -IS
import sys
sys.path.insert(0, {folder!r})
import asking
asking.main({program!r}, {address!r}, {largest}, {files})
"""


@cache
def commands() -> Path:
    """A directory with the commands, which ask a process that this one has started. It ends with this one."""
    folder = Path(tempfile.mkdtemp(prefix="dlc-warm-"))
    atexit.register(shutil.rmtree, folder)
    address = str(folder / "socket")
    server = subprocess.Popen(
        [sys.executable, "-P", __file__, address], cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert server.stdout and server.stdout.readline() == "ready\n"
    given = {"python": sys.executable, "folder": str(Path(__file__).parent), "address": address}
    for program in ("dlc", "python"):
        script = folder / program
        script.write_text(_COMMAND.format(program=program, largest=_LARGEST, files=_FILES, **given), encoding="utf-8")
        script.chmod(0o755)
    atexit.register(server.kill)
    return folder


def serve(address: str) -> None:
    """Import dlc, then fork for every command that is asked for, until the process is ended."""
    for name in PACKAGES:
        package = importlib.import_module(name)
        for module in pkgutil.walk_packages(package.__path__, f"{name}."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
    rehearse()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as waiting:
        waiting.bind(address)
        waiting.listen()
        gc.collect()
        gc.freeze()  # or each child would copy the pages of all objects to look for garbage
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # those that answer are nobody's to wait for
        print("ready", flush=True)
        while waiting in select.select([waiting, sys.stdin], [], [])[0]:  # until the process that started it ends
            asking, _ = waiting.accept()
            if os.fork() == 0:
                waiting.close()
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                answer(asking)
            asking.close()


def rehearse() -> None:
    """Run commands once, because a first run imports what is imported late, and compiles patterns and templates."""
    before, here = dict(os.environ), Path.cwd()
    with tempfile.TemporaryDirectory() as place, open(os.devnull, "w", encoding="utf-8") as nowhere:
        os.chdir(place)
        Path("dlc.toml").touch()
        Path("examples").symlink_to(_EXAMPLES)
        os.environ.update({"DLC_CACHE": "off", "XDG_STATE_HOME": place, "HOME": place})
        with contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
            for line in REHEARSED:
                if code := run(dlc, line.split()):
                    raise RuntimeError(f"dlc {line}: exit code {code}")
        os.chdir(here)
    os.environ.clear()
    os.environ.update(before)


def answer(asking: socket.socket) -> None:
    """Run the command of one connection in a process of its own, and tell its exit code; does not return."""
    asked, files, _, _ = socket.recv_fds(asking, _LARGEST, _FILES)
    program, arguments, place, environment = marshal.loads(asked)
    child = os.fork()
    if child == 0:
        asking.close()
        for number, file in enumerate(files):
            os.dup2(file, number)
            os.close(file)
        os.chdir(place)
        os.environ.clear()
        os.environ.update(environment)
        sys.path[:0] = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]
        end(run(dlc if program == "dlc" else script, arguments))
    asking.send(str(child).encode())
    asking.send(str(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])).encode())
    os._exit(0)


def run(main: Callable[[Sequence[str]], None], arguments: Sequence[str]) -> int:
    """The exit code of a program."""
    try:
        main(arguments)
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    except BaseException as fault:  # noqa: BLE001 - as the interpreter does
        sys.excepthook(type(fault), fault, fault.__traceback__)
        return 1
    return 0


def dlc(arguments: Sequence[str]) -> None:
    """The command."""
    from dlc.cli import main

    sys.argv = ["dlc", *arguments]
    main()


def script(arguments: Sequence[str]) -> None:
    """`python -`, `python -c TEXT` or `python FILE`, with arguments."""
    name, *more = arguments
    module = ModuleType("__main__")
    if name == "-":
        text, file, place = sys.stdin.read(), "<stdin>", ""
    elif name == "-c":
        text, file, place = more.pop(0), "<string>", ""
    else:
        text, file, place = Path(name).read_text(encoding="utf-8"), name, str(Path(name).resolve().parent)
        module.__file__ = name
    sys.argv, sys.modules["__main__"] = [name, *more], module
    sys.path.insert(0, place)
    exec(compile(text, file, "exec"), vars(module))


def end(code: int) -> NoReturn:
    """End as an interpreter does, but for millions of objects that it need not free one by one."""
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):  # who would read it has gone
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    serve(sys.argv[1])
