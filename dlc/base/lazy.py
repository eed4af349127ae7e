"""References to classes and modules that are imported when they are used."""

import sys
from dataclasses import dataclass
from importlib import import_module
from typing import Any


@dataclass(frozen=True)
class Lazy:
    """What a hook returns instead of a class, to keep `dlc --help` fast."""

    name: str
    """The class's spec name; of a module of import rules, their domain."""
    target: str
    """"module:Class", or "module" for a module."""

    @property
    def is_loaded(self) -> bool:
        """Whether its module is imported already."""
        return self.target.partition(":")[0] in sys.modules

    def load(self) -> Any:
        """Import the class or module."""
        module, _, attribute = self.target.partition(":")
        found = import_module(module)
        return getattr(found, attribute) if attribute else found
