"""The order of bytes of a processor, as the preprocessor knows it."""

from typing import Final

BIG_ENDIAN: Final = "defined(__BYTE_ORDER__) && defined(__ORDER_BIG_ENDIAN__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__"
"""The condition under which the first byte of a number is the highest."""
