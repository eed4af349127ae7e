"""What the configuration, the command line and the cache agree on."""

from typing import Final, Literal, TypeAlias

CacheMode: TypeAlias = Literal["rw", "ro", "off", "require", "refresh"]
"""Read and write; read only; neither; fail on a miss; build everything again."""

LEVELS_VARIABLE: Final = "DLC_CACHE_LEVELS"
"""The environment's variable that says the levels behind the directory, credentials included."""
DIRECTORY_VARIABLE: Final = "DLC_CACHE_DIR"
"""The one that says the directory."""
KEY_VARIABLE: Final = "DLC_CACHE_KEY"
"""The one with a secret text by which a cache knows its own results on every machine that has the text."""
TOKEN_VARIABLE: Final = "DLC_CACHE_TOKEN"
"""The one that has credentials: HOST=TOKEN or HOST:PORT=TOKEN, several separated by commas."""
DEFAULT_SIZE: Final = 4 << 30
"""Bytes that a cache keeps to unless somebody says otherwise."""
