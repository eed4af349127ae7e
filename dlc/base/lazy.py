"""References to classes that are imported when they are used."""

import sys
from dataclasses import dataclass
from importlib import import_module
from typing import Any


@dataclass(frozen=True)
class Lazy:
    """What a hook returns instead of a class, to keep `dlc --help` fast."""

    name: str
    """The class's spec name."""
    target: str
    """"module:Class"."""

    @property
    def is_loaded(self) -> bool:
        """Whether its module is imported already."""
        return self.target.partition(":")[0] in sys.modules

    def load(self) -> type[Any]:
        """Import the class."""
        module, _, attribute = self.target.partition(":")
        return getattr(import_module(module), attribute)
