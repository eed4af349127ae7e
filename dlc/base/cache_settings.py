"""What the configuration, the command line and the cache agree on."""

from typing import Final, Literal, TypeAlias

CacheMode: TypeAlias = Literal["rw", "ro", "off", "require", "refresh"]
"""Read and write; read only; neither; fail on a miss; build everything again."""

DEFAULT_SIZE: Final = 4 << 30
"""Bytes that a cache keeps to unless somebody says otherwise."""
