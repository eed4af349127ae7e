"""Credentials for the levels of the cache, from the environment or ~/.netrc: never from a file of the project."""

from __future__ import annotations

import base64
import os
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from dlc.base.cache_levels import Level, Levels
from dlc.base.cache_settings import TOKEN_VARIABLE
from dlc.base.diagnostics import ExitCode, error


def with_credentials(levels: Levels) -> Levels:
    """The levels with what is known of credentials for their hosts; those in a URL go first."""
    return replace(levels, levels=tuple(map(_with, levels.levels)))


def _with(level: Level) -> Level:
    parts = urlsplit(level.url)
    if parts.scheme not in ("http", "https") or parts.username is not None:
        return level
    token = _tokens().get(parts.netloc) or _tokens().get(parts.hostname or "")
    return replace(level, authorization=f"Bearer {token}" if token else _from_netrc(parts.hostname or ""))


def _tokens() -> dict[str, str]:
    """Host → token."""
    found: dict[str, str] = {}
    for pair in os.environ.get(TOKEN_VARIABLE, "").split(","):
        host, _, token = pair.strip().partition("=")
        if not pair.strip():
            continue
        # A line end in it would begin another header.
        if not host or not token or not (token.isascii() and token.isprintable()):
            message = f"{TOKEN_VARIABLE} is not of the form HOST=TOKEN[,HOST=TOKEN]"
            raise error("bad-option", message, exit_code=ExitCode.USAGE)
        found[host] = token
    return found


def _from_netrc(host: str) -> str:
    """The header for a host that ~/.netrc (or NETRC) has a login for; "" without one. `default` is for no cache."""
    import netrc

    file = Path(os.environ.get("NETRC", "~/.netrc")).expanduser()
    try:
        known = netrc.netrc(str(file)).hosts.get(host)
    except (OSError, netrc.NetrcParseError, UnicodeDecodeError):
        return ""
    if known is None:
        return ""
    pair = f"{known[0]}:{known[2]}"
    return f"Basic {base64.b64encode(pair.encode()).decode()}"
