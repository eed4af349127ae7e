"""What the commands of `tests/warm.py` run: it imports only what takes no time, because it runs hundreds of times."""

import _socket
import marshal
import os
import signal
import sys
from array import array


def main(program: str, address: str, largest: int, files: int) -> None:
    """Run `dlc`, or a script of Python, with this process's arguments and surroundings, and end as it does.

    Args:
        program: "dlc" or "python"; that one with options of the interpreter is started as it is.
        address: Of the process that answers.
        largest: Bytes that a message may have.
        files: How many open files, from stdin on, the command gets.
    """
    if program == "python" and (len(sys.argv) < 2 or (sys.argv[1][0] == "-" and sys.argv[1] not in ("-", "-c"))):
        os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
    asking = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
    asking.connect(address)
    asking.setsockopt(_socket.SOL_SOCKET, _socket.SO_SNDBUF, largest)
    asked = marshal.dumps((program, sys.argv[1:], os.getcwd(), dict(os.environ)))
    asking.sendmsg([asked], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, array("i", range(files)))])
    child = int(asking.recv(64))

    def forward(number: int, frame: object) -> None:
        del frame
        os.kill(child, number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, forward)
    code = int(asking.recv(64))
    if code < 0:  # killed by a signal: so is this process, for a shell to see
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.exit(code)
