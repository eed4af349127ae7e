"""Backends that are executables: they read a request as a line of JSON and answer with a line of JSON.

`protocol` declares the messages; from it follow the JSON Schema (`schema`), what dlc writes and how it reads (`form`).
"""

from typing import Final

SCHEME: Final = "exec:"
"""What begins a --target that names an executable."""
