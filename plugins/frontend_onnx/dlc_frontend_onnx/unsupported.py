"""What import rules raise, and a remedy that many messages share."""

from __future__ import annotations

from typing import Final

MALFORMED: Final = "the model is malformed: onnx.checker.check_model(path) tells more"


class Unsupported(Exception):
    """A node that dlc does not import; becomes part of one diagnostic for all nodes with the same reason."""

    def __init__(self, reason: str, help: str = "") -> None:
        """`reason` without names of nodes, so that equal reasons are reported once."""
        super().__init__(reason)
        self.reason, self.help = reason, help


class Conclusive(Unsupported):
    """Unsupported however the model is read: nothing else needs to be tried."""
