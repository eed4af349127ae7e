"""How an op computes: scalar expressions, nests of loops over them, and everything derived from a nest."""

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


class _Room(ModuleType):
    """This package, which is also the decorator `@dlc.kernel` of the public interface."""

    def __call__(self, function: Any = None, **options: Any) -> Any:
        """See `dlc.driver.python.kernel.kernel`, which stands far above this package and is only asked for here."""
        return import_module("dlc.driver.python.kernel").kernel(function, **options)


# A package and a public name of `dlc` may be one word only if the one is the other.
sys.modules[__name__].__class__ = _Room
