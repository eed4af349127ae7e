"""Levels of a cache behind the one on this machine, as configuration and flags name them: `https://host/path#rw`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

DISK: Final = "disk"
"""The cache on this machine, which is always the first level."""
SCHEMES: Final = ("https", "http", "s3", "gs", "az", "redis", "rediss")
ACCESS: Final = {"": False, "ro": False, "rw": True}
"""What may follow `#` → whether builds write to the level."""
DEFAULT_TIMEOUT: Final = 5.0
"""Seconds without an answer after which a level is left alone."""
DEFAULT_UPLOAD_TIME: Final = 10.0
"""Seconds that a build waits at its end for what it uploads."""
SHORTEST_TIMEOUT: Final = 0.01
LONGEST_TIME: Final = 3600.0
"""Seconds that may be set for either."""


@dataclass(frozen=True)
class Level:
    """A place that several machines share."""

    label: str
    """Its URL without credentials: what is shown, and what statistics are filed under."""
    writes: bool = False
    """Whether builds upload to it."""
    url: str = field(default="", repr=False)
    """With credentials, if it has any: never shown."""
    authorization: str = field(default="", repr=False)
    """The value of the header of that name, if its credentials are not in the URL."""

    @classmethod
    def parse(cls, text: str) -> Level:
        """The level that `text` names. Raises ValueError, whose text holds no credentials."""
        from urllib.parse import urlsplit, urlunsplit

        try:
            parts = urlsplit(text.strip())
            host, port = parts.hostname, parts.port
        except ValueError:
            raise ValueError("a level is not a valid URL") from None
        shown = f"[{host}]" if host and ":" in host else host or ""
        shown += f":{port}" if port else ""
        label = urlunsplit((parts.scheme, shown, parts.path, "", ""))
        if parts.scheme not in SCHEMES:
            known = ", ".join(f"{scheme}://" for scheme in SCHEMES)
            raise ValueError(f"level {label} is none of {DISK} (which comes first), {known}")
        if not host or not label.isprintable() or not label.isascii() or " " in label:
            raise ValueError(f"level {label!a} names no host or bucket, or has spaces or signs that are not ASCII")
        if parts.query:
            raise ValueError(f"level {label} has a query (?…), which no level takes")
        if parts.fragment not in ACCESS:
            raise ValueError(f"level {label} ends in #{parts.fragment}: #ro and #rw are known")
        url = urlunsplit((parts.scheme, parts.netloc, parts.path, "", ""))
        return cls(label, ACCESS[parts.fragment], url)

    @property
    def shown(self) -> str:
        """As it is written in a configuration, without credentials."""
        return f"{self.label}#rw" if self.writes else self.label

    def at(self, url: str) -> str:
        """A URL with the access to this level, whatever is the default: what `parse` reads."""
        return f"{url}#{'rw' if self.writes else 'ro'}"

    @property
    def has_credentials(self) -> bool:
        """Whether the URL holds any."""
        return self.url != self.label


def without_credentials(text: str) -> str:
    """A text in which URLs have lost what is before their `@`."""
    import re

    return re.sub(r"(?<=://)[^\s,/]*@", "", text)


def parse_levels(texts: Sequence[str]) -> tuple[Level, ...]:
    """The levels behind the disk, of those that a configuration lists. Raises ValueError without credentials in it."""
    names = [text.strip() for text in texts if text.strip()]
    found = tuple(Level.parse(name) for name in (names[1:] if names[:1] == [DISK] else names))
    labels = [level.label for level in found]
    if twice := next((label for label in labels if labels.count(label) > 1), None):
        raise ValueError(f"level {twice} is listed twice")
    return found


@dataclass(frozen=True)
class Levels:
    """The levels behind the disk, nearest first, and how long a build waits for them."""

    levels: tuple[Level, ...] = ()
    timeout: float = DEFAULT_TIMEOUT
    """Seconds without an answer after which a level is left alone."""
    upload_time: float = DEFAULT_UPLOAD_TIME
    """Seconds that `close` waits for uploads."""


NO_LEVELS: Final = Levels()
