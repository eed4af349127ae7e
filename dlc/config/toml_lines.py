"""Line numbers of keys in a TOML text, which the standard parser does not keep.

A scan of headers and keys, not a second parser: the text is known to be valid, and a key that the scan cannot see (in
an inline table) gets the line of the nearest key around it.
"""

import re
from collections.abc import Sequence

_HEADER = re.compile(r"\s*\[\[?([^\]#]+)\]\]?\s*(?:#.*)?$")
_KEY = re.compile(r"""\s*((?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*'))*)\s*=""")
_PART = re.compile(r"""[A-Za-z0-9_-]+|"[^"]*"|'[^']*'""")


def line_of(text: str, path: Sequence[str], item: str = "") -> int:
    """Line, from 1, of the key `path` in valid TOML `text`; of the list element `item` below it, if given.

    The line of the longest prefix of `path` that is written out; 1 when none is.
    """
    lines = text.splitlines()
    best, best_length = 1, 0
    table: tuple[str, ...] = ()
    for number, line in enumerate(lines, 1):
        if header := _HEADER.match(line):
            table = found = _parts(header[1])
        elif key := _KEY.match(line):
            found = (*table, *_parts(key[1]))
        else:
            continue
        if len(found) > best_length and tuple(path[: len(found)]) == found:
            best, best_length = number, len(found)
    if item and best_length == len(path):
        for number in range(best, len(lines) + 1):
            if item in lines[number - 1]:
                return number
    return best


def _parts(dotted: str) -> tuple[str, ...]:
    return tuple(part.strip("\"'") for part in _PART.findall(dotted))
