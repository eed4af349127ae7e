"""`dlc` as a command whose process is forked from one that has imported dlc already.

Tests start dlc hundreds of times, and half of their time was spent importing the same modules. In everything else a
forked process is one of its own: directory, environment, open files, signals and exit code are those of the command.
Tests of how dlc starts, of terminals and of processes that are killed start it as users do.
"""

import array
import atexit
import contextlib
import gc
import importlib
import json
import os
import pkgutil
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from types import FrameType
from typing import NoReturn

PACKAGES = ("dlc", "dlc_frontend_onnx", "dlc_frontend_kernel", "dlc_backend_c", "dlc_backend_s2train")
"""Whose modules are imported before; that of PyTorch would import PyTorch."""
_LARGEST = 1 << 20
_FILES = 3  # stdin, stdout, stderr
_COMMAND = """\
#!{python} -IS
import importlib.util, sys
spec = importlib.util.spec_from_file_location("warm", {module!r})
warm = importlib.util.module_from_spec(spec)
spec.loader.exec_module(warm)
sys.exit(warm.ask({address!r}, sys.argv[1:]))
"""


@cache
def commands() -> Path:
    """A directory with the command `dlc`, which asks a process that this one has started. It ends with this one."""
    folder = Path(tempfile.mkdtemp(prefix="dlc-warm-"))
    atexit.register(shutil.rmtree, folder)
    address = str(folder / "socket")
    server = subprocess.Popen(
        [sys.executable, "-P", __file__, address], cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert server.stdout and server.stdout.readline() == "ready\n"
    script = folder / "dlc"
    script.write_text(_COMMAND.format(python=sys.executable, module=__file__, address=address), encoding="utf-8")
    script.chmod(0o755)
    atexit.register(server.kill)
    return folder


def ask(address: str, arguments: list[str]) -> int:
    """Run `dlc ARGUMENTS` with this process's surroundings, wait, and return its exit code."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as asking:
        asking.connect(address)
        asked = json.dumps([arguments, os.getcwd(), dict(os.environ)]).encode()
        asking.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _LARGEST)
        files = array.array("i", range(_FILES))
        asking.sendmsg([asked], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, files)])
        child = int(asking.recv(64))

        def forward(number: int, frame: FrameType | None) -> None:
            os.kill(child, number)

        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, forward)
        code = int(asking.recv(64))
    if code < 0:  # killed by a signal: so is this process, for a shell to see
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


def serve(address: str) -> None:
    """Import dlc, then fork for every command that is asked for, until the process is ended."""
    for name in PACKAGES:
        package = importlib.import_module(name)
        for module in pkgutil.walk_packages(package.__path__, f"{name}."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
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


def answer(asking: socket.socket) -> None:
    """Run the command of one connection in a process of its own, and tell its exit code; does not return."""
    asked, files, _, _ = socket.recv_fds(asking, _LARGEST, _FILES)
    arguments, place, environment = json.loads(asked)
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
        sys.argv = ["dlc", *arguments]
        end(run())
    asking.send(str(child).encode())
    asking.send(str(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])).encode())
    os._exit(0)


def run() -> int:
    """The exit code of the command."""
    from dlc.cli import main

    try:
        main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException as fault:  # noqa: BLE001 - as the interpreter does
        sys.excepthook(type(fault), fault, fault.__traceback__)
        return 1
    return 0


def end(code: int) -> NoReturn:
    """End as an interpreter does, but for millions of objects that it need not free one by one."""
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):  # who would read it has gone
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    serve(sys.argv[1])
