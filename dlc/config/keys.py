"""Every key of dlc.toml and every variable of the environment: what it means, what it lets dlc do, what trust it needs.

`KEYS` and `VARIABLES` are the only tables of them; reading, documentation, messages and the tests of trust derive from
these.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from dlc.base.cache_levels import DEFAULT_TIMEOUT, DEFAULT_UPLOAD_TIME
from dlc.base.cache_settings import (
    DEFAULT_SIZE,
    DIRECTORY_VARIABLE,
    KEY_VARIABLE,
    LEVELS_VARIABLE,
    TOKEN_VARIABLE,
    CacheMode,
)
from dlc.spec import Bytes, Spec

Pipeline = tuple[Spec, ...]
Paths = tuple[Path, ...]


Does = Literal["reads", "writes", "deletes", "runs"]
"""What a setting lets dlc do beyond computing: with files, or by running or loading code."""
Trust = Literal["none", "options", "elsewhere", "file", "user"]
"""What a value needs: nothing; trust in the file for options that set what is run; trust in the file where it leads out
of the user's own directories; trust in the file; to come from the user, as variables of the environment do."""


@dataclass(frozen=True)
class KeyDoc:
    """One key of the configuration; `NAME` in it stands for a name of the user's choice."""

    key: str
    kind: Any
    """An option type of `dlc.spec`, Path, Paths, or Pipeline."""
    default: object
    """None for keys with a NAME, and for what is found at run time."""
    doc: str
    does: tuple[Does, ...] = ()
    """What it lets dlc do."""
    trust: Trust = "none"
    """Whether a file has to be trusted for it."""
    example: str = ""
    """A value as TOML, with which it does that; for tests of what needs trust."""


KEYS: Final = (
    KeyDoc(
        "pipeline.NAME",
        Pipeline,
        None,
        "a pipeline: text, or a list of passes and names of pipelines",
        ("runs",),
        "options",
        '"default"',
    ),
    KeyDoc(
        "target.NAME.backend",
        Spec,
        None,
        "the backend and its options, as c{cpu=generic lib=static}",
        ("reads", "runs"),
        "options",
        '"c{cc=gcc}"',
    ),
    KeyDoc(
        "target.NAME.pipeline",
        Pipeline,
        None,
        "pipeline for this target; by default the pipeline of the backend",
        ("runs",),
        "options",
        '"default"',
    ),
    KeyDoc(
        "cache.dir",
        Path,
        None,
        "directory of the cache, relative to the file; the user's cache by default",
        ("reads", "writes", "deletes", "runs"),
        "elsewhere",
        '"own-cache"',
    ),
    KeyDoc(
        "cache.size",
        Bytes,
        DEFAULT_SIZE,
        "maximum size of the cache, for builds and `dlc cache trim`",
        ("deletes",),
        example='"1GiB"',
    ),
    KeyDoc(
        "cache.mode",
        CacheMode,
        "rw",
        "read and write, read only, no cache, fail on a miss, or rebuild and write",
        ("reads", "writes"),
        example='"ro"',
    ),
    KeyDoc(
        "cache.levels",
        tuple[str, ...],
        (),
        "caches that machines share, by URL, nearest first; builds upload to those whose URL ends in #rw",
        ("reads", "writes", "runs"),
        "file",
        '["https://cache.example/dlc"]',
    ),
    KeyDoc(
        "cache.level-timeout",
        float,
        DEFAULT_TIMEOUT,
        "seconds without an answer after which a level is left alone",
        example="1.0",
    ),
    KeyDoc(
        "cache.upload-time",
        float,
        DEFAULT_UPLOAD_TIME,
        "seconds that a build waits at its end for its uploads",
        example="1.0",
    ),
    KeyDoc(
        "cache.trusted-keys",
        tuple[str, ...],
        (),
        "public keys, as `dlc cache keygen` prints them; if there is one, only results that they signed are used",
        ("runs",),
        "file",
        '["ed25519:d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"]',
    ),
    KeyDoc(
        "cache.signed-since",
        str,
        "",
        "date or time, as 2026-11-26: what was signed before it is not used",
        example='"2026-11-26"',
    ),
    KeyDoc(
        "build.budget",
        str,
        "",
        "what a build may cost, as `seconds=60,memory=4294967296`; kinds that it does not name have their defaults; a "
        "file that is not trusted only lowers them",
        trust="file",
        example='"seconds=999999"',
    ),
    KeyDoc("plugins.disable", tuple[str, ...], (), "plugins that are not loaded", example='["other"]'),
    KeyDoc(
        "plugins.ops",
        Paths,
        (),
        "op packs: files `*.ops.yaml`, or directories of such, relative to the file",
        ("reads",),
        example='["own.ops.yaml"]',
    ),
)


@dataclass(frozen=True)
class Variable:
    """A variable of the environment."""

    name: str
    doc: str
    does: tuple[Does, ...] = ()
    trust: Trust = "user"


DISABLE_VARIABLE: Final = "DLC_PLUGINS_DISABLE"
VARIABLES: Final = (
    Variable(DISABLE_VARIABLE, "names of plugins or distributions that are not loaded, separated by commas"),
    Variable("DLC_CACHE", "`rw`, `ro`, `off`, `require` or `refresh`, like `--cache`", ("reads", "writes")),
    Variable(DIRECTORY_VARIABLE, "directory of the cache, like `--cache-dir`", ("reads", "writes", "deletes", "runs")),
    Variable(
        LEVELS_VARIABLE, "levels of the cache, like `--cache-levels`, credentials included", ("reads", "writes", "runs")
    ),
    Variable(TOKEN_VARIABLE, "credentials of levels: `HOST=TOKEN`, separated by commas"),
    Variable(
        KEY_VARIABLE,
        "secret text by which the cache knows its own results, in place of the key of the user on this machine",
        ("runs",),
    ),
    Variable(
        "DLC_CACHE_TRUSTED_KEYS",
        "public keys whose results are used, like `cache.trusted-keys`, separated by commas",
        ("runs",),
    ),
    Variable("DLC_CACHE_SIGNED_SINCE", "since when results must have been signed, like `cache.signed-since`"),
    Variable("DLC_CACHE_SIGNING_KEY", "file of the private key that signs results", ("reads",)),
)


def doc_of(path: Sequence[str]) -> KeyDoc | None:
    """The row of KEYS for a complete key."""
    return next((doc for doc in KEYS if len(doc.key.split(".")) == len(path) and matches(doc, path)), None)


def is_known_prefix(path: Sequence[str]) -> bool:
    """Whether some key starts with `path`."""
    return any(matches(doc, path) for doc in KEYS)


def matches(doc: KeyDoc, path: Sequence[str]) -> bool:
    """Whether `path` is a key of `doc` or the start of one."""
    parts = doc.key.split(".")
    return len(path) <= len(parts) and all(p in ("NAME", name) for p, name in zip(parts, path, strict=False))
