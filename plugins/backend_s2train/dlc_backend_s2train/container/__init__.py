"""`.s2t` files: a whole program in sections with checksums, and its text."""

from dlc_backend_s2train.container.reader import optional_sections, read
from dlc_backend_s2train.container.writer import write

__all__ = ["optional_sections", "read", "write"]
