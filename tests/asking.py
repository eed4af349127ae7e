"""What the command of `tests/warm.py` runs: it imports only what takes no time, because it runs hundreds of times."""

import _socket
import marshal
import os
import signal
import sys
from array import array


def main(address: str, largest: int, files: int) -> None:
    """Run `dlc` with this process's arguments and surroundings, and end as it does.

    Args:
        address: Of the process that answers.
        largest: Bytes that a message may have.
        files: How many open files, from stdin on, the command gets.
    """
    asking = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
    asking.connect(address)
    asking.setsockopt(_socket.SOL_SOCKET, _socket.SO_SNDBUF, largest)
    asked = marshal.dumps((sys.argv[1:], os.getcwd(), dict(os.environ)))
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
