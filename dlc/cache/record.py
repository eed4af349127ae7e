"""What a step left behind: its key as text, and the digests of what it made."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, cast

from dlc.cache.envelope import Damaged
from dlc.cache.key import Key
from dlc.cache.rows import HEX_NAME

_VERSION: Final = 1
PARTS: Final = "parts"
"""Under which `meta` has the digests of the keys of the results that a result was made from, separated by spaces."""
NEEDS: Final = "needs"
"""Under which `meta` says what else a key needs to name a result: the record is no result, but leads to some."""
_SIGNATURE: Final = re.compile(r"[0-9a-f]{128}")
_MAC: Final = re.compile(r"[0-9a-f]{64}")
_MAC_KEY: Final = re.compile(r"[0-9a-f]{16}")


@dataclass(frozen=True)
class Signature:
    """Who stands for a record; `dlc.cache.signing` makes and checks it."""

    key: str
    """The public key, as configurations write it."""
    time: int
    """Unix seconds."""
    value: str
    """128 hex digits."""

    @classmethod
    def parse(cls, value: object) -> Signature:
        """Inverse of `to_json`. Raises Damaged."""
        match value:
            case [str(key), int(time), str(text)] if 0 <= time < 1 << 62 and _SIGNATURE.fullmatch(text):
                return cls(key, int(time), text)
            case _:
                raise Damaged("record has a signature of another form")

    def to_json(self) -> list[str | int]:
        """As a record holds it."""
        return [self.key, self.time, self.value]


@dataclass(frozen=True)
class Mac:
    """Whose a record is; `dlc.cache.own_key` makes and checks it. It means nothing on other machines."""

    key: str
    """What tells the key from others, 16 hex digits."""
    value: str
    """64 hex digits."""

    @classmethod
    def parse(cls, value: object) -> Mac:
        """Inverse of `to_json`. Raises Damaged."""
        match value:
            case [str(key), str(text)] if _MAC_KEY.fullmatch(key) and _MAC.fullmatch(text):
                return cls(key, text)
            case _:
                raise Damaged("record has a MAC of another form")

    def to_json(self) -> list[str]:
        """As a record holds it."""
        return [self.key, self.value]


@dataclass(frozen=True)
class Record:
    """The result of one step. Immutable; prints to bytes and parses back."""

    key_text: str  # `Key.text` of the key it was saved under
    outputs: tuple[tuple[str, str], ...]  # (name, SHA-256 of the payload in hex), in the order saved
    meta: tuple[tuple[str, str], ...] = ()  # facts that do not identify the result, such as ("ms", "12.5") to make it
    signature: Signature | None = None
    mac: Mac | None = None

    @cached_property
    def key(self) -> Key:
        """The key it was saved under. ValueError if `key_text` is not canonical."""
        return Key.parse(self.key_text)

    @property
    def milliseconds(self) -> float:
        """How long the step took, from `meta["ms"]`; 0 if it is not recorded."""
        text = dict(self.meta).get("ms", "")
        try:
            value = float(text)
        except ValueError:
            return 0.0
        return value if 0.0 <= value < 1e12 else 0.0

    @property
    def parts(self) -> tuple[str, ...]:
        """Digests of the keys of the results that it was made from, where they are known."""
        return tuple(word for word in dict(self.meta).get(PARTS, "").split(" ") if HEX_NAME.fullmatch(word))

    @property
    def leads_on(self) -> bool:
        """Whether it is no result, but says what else the keys of results have."""
        return any(name == NEEDS for name, _ in self.meta)

    def output(self, name: str) -> str:
        """Digest of one output. KeyError if there is none of that name."""
        return dict(self.outputs)[name]

    @cached_property
    def body(self) -> bytes:
        """`to_bytes` without signature and MAC: what these are of."""
        return json.dumps(self._fields(), separators=(",", ":")).encode()

    def to_bytes(self) -> bytes:
        """UTF-8 JSON, the same for equal records."""
        fields = self._fields()
        if self.signature is not None:
            fields["signature"] = self.signature.to_json()
        if self.mac is not None:
            fields["mac"] = self.mac.to_json()
        return json.dumps(fields, separators=(",", ":")).encode()

    def _fields(self) -> dict[str, object]:
        return {"version": _VERSION, "key": self.key_text, "outputs": self.outputs, "meta": self.meta}

    @classmethod
    def from_bytes(cls, payload: bytes) -> Record:
        """Inverse of `to_bytes`. Raises Damaged for anything else, including a record of another version."""
        try:
            fields: object = json.loads(payload)
            if not isinstance(fields, dict):
                raise Damaged("record is not an object")
            table = cast("dict[str, object]", fields)
            if table.get("version") != _VERSION:
                raise Damaged("record is of another version")
            text = table.get("key")
            signature = Signature.parse(table["signature"]) if "signature" in table else None
            pairs = _pairs(table["outputs"]), _pairs(table["meta"])
            mac = Mac.parse(table["mac"]) if "mac" in table else None
            record = cls(text if isinstance(text, str) else "", *pairs, signature, mac)
            _ = record.key
        except Damaged:
            raise
        except (ValueError, KeyError, RecursionError) as failure:
            raise Damaged(f"record does not parse: {failure}") from failure
        if not all(HEX_NAME.fullmatch(digest) for _, digest in record.outputs):
            raise Damaged("record names an output that is not a digest")
        return record


def without_mac(record: Record) -> Record:
    """A record as other machines get it."""
    return record if record.mac is None else replace(record, mac=None)


def _pairs(value: object) -> tuple[tuple[str, str], ...]:
    if not isinstance(value, list):
        raise Damaged("record holds no list of pairs")
    pairs: list[tuple[str, str]] = []
    for item in cast("Iterable[object]", value):
        match item:
            case [str(name), str(text)]:
                pairs.append((name, text))
            case _:
                raise Damaged("record holds something that is not a pair of texts")
    return tuple(pairs)
