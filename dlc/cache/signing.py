"""Whose results a cache uses, and who signs those that are made: Ed25519 signatures (RFC 8032) inside records.

A signature covers, after a word for its format: the digest of the key, so that a record counts under no other name; the
time of signing, so that older records can be called in; and all of the record, with the digests of its objects. The
objects need none: they are held against their digests wherever they are read.

cryptography is imported when something is signed or checked.
"""

from __future__ import annotations

import os
import re
import struct
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dlc.base.diagnostics import DlcError, ExitCode, Location, error
from dlc.cache.record import Record, Signature

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from dlc.cache.own_key import UserKey

CAUSES: Final = {
    "unsigned": "not signed",
    "unknown_key": "signed by a key that is not trusted",
    "bad_signature": "altered after they were signed",
    "outdated": "signed before cache.signed-since",
    "foreign": "made by somebody else, or on another machine",
    "altered": "altered after they were made",
}
"""Why records are not used, by the name of the count of them."""
_PUBLIC: Final = re.compile(r"ed25519:[0-9a-f]{64}")
_FORMAT: Final = b"dlc cache record, signature 1\n"
_EXAMPLE: Final = "as `dlc cache keygen` prints it: ed25519: and 64 hex digits"


@dataclass(frozen=True)
class Signer:
    """A private key in use."""

    public: str
    """The public key that belongs to it, as it is written in configurations."""
    _private: Ed25519PrivateKey = field(repr=False)

    def signed(self, record: Record, now: float | None = None) -> Record:
        """The record with this key's signature in place of any other; `now` in Unix seconds."""
        moment = int(time.time() if now is None else now)
        value = self._private.sign(_message(record, moment)).hex()
        return replace(record, signature=Signature(self.public, moment, value))


@dataclass(frozen=True)
class Policy:
    """What a cache asks of records: a signature where there are trusted keys, else a MAC where it has a key of its own.

    With neither it uses every one.
    """

    trusted: frozenset[str] = frozenset()
    """Public keys; any record that is used is signed by one of them, or by `signer`."""
    since: float = 0.0
    """Unix seconds; what was signed earlier is not used."""
    signer: Signer | None = None
    """Signs what is made."""
    own: UserKey | None = field(default=None, compare=False)
    """Marks what is made, or taken from elsewhere, as the user's own."""

    def signed(self, record: Record) -> Record:
        """The record as it is to be stored."""
        return self.adopted(record if self.signer is None else self.signer.signed(record))

    def adopted(self, record: Record) -> Record:
        """A record that the user takes from elsewhere, as it is to be stored."""
        return record if self.own is None else self.own.get().marked(record)

    def refusal(self, record: Record) -> str:
        """Why a record in the cache of this machine is not used, a name of `CAUSES`; "" if it is."""
        if not self.trusted and self.own is not None:
            return self.own.refusal(record)
        return self.refusal_elsewhere(record)

    def refusal_elsewhere(self, record: Record) -> str:
        """The same of a record that comes from a level or bundle that the user named."""
        if not self.trusted:
            return ""
        signature = record.signature
        if signature is None:
            return "unsigned"
        if signature.key not in self.trusted and (self.signer is None or signature.key != self.signer.public):
            return "unknown_key"
        if not _fits(signature, record):
            return "bad_signature"
        return "outdated" if signature.time < self.since else ""


def causes_of(refused: Mapping[str, int]) -> str:
    """Why so many records each were not used, as output says it."""
    return ", ".join(f"{count} {CAUSES[cause]}" for cause, count in refused.items())


EVERYTHING: Final = Policy()
"""What a cache without keys asks: nothing."""


def policy_of(keys: Iterable[str], since: str, private: Path | None, own: UserKey | None = None) -> Policy:
    """The policy that a configuration states.

    Args:
        keys: Public keys that are trusted.
        since: A date or time in ISO 8601, in UTC unless it says otherwise; "" for none.
        private: File of the key that signs.
        own: The key of the cache on this machine.

    Raises:
        DlcError: (USAGE) a key or time is not one, a file cannot be read, or the package cryptography is missing.
    """
    trusted = frozenset(keys)
    for key in sorted(trusted):
        if not _PUBLIC.fullmatch(key):
            raise error(
                "bad-key", f"cache.trusted-keys: {key!r} is no public key", help=_EXAMPLE, exit_code=ExitCode.USAGE
            )
    if trusted or private:
        require_cryptography()
    for key in sorted(trusted):
        _loaded(key)
    return Policy(trusted, _moment(since), read_signer(private) if private else None, own)


def require_cryptography() -> None:
    """Raises DlcError (USAGE) where the package is missing."""
    if not find_spec("cryptography"):
        raise error(
            "no-package",
            "signatures of cached results need the Python package cryptography, which is not installed",
            help="pip install 'dlc[sign]'",
            exit_code=ExitCode.USAGE,
        )


def write_key(path: Path) -> str:
    """Make a private key, in a new file (PKCS #8, PEM) that only its owner can read; the public key.

    Raises DlcError if the file exists or cannot be written.
    """
    require_cryptography()
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    private = Ed25519PrivateKey.generate()
    content = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(file, "wb") as opened:
            opened.write(content)
    except OSError as problem:
        raise error(
            "cannot-write",
            f"{path} cannot be made: {problem.strerror or problem}",
            location=Location(str(path)),
            help="give the name of a file that does not exist, in a directory that does",
        ) from None
    return _public_of(private)


def read_signer(path: Path) -> Signer:
    """The private key in a file. Raises DlcError (USAGE)."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    def failed(what: str) -> DlcError:
        message = f"the key that signs results, {path}, {what}"
        help = "give the path of a file of `dlc cache keygen` in DLC_CACHE_SIGNING_KEY"
        return error("bad-key", message, location=Location(str(path)), help=help, exit_code=ExitCode.USAGE)

    try:
        private = load_pem_private_key(path.read_bytes(), None)
    except OSError as problem:
        raise failed(f"cannot be read: {problem.strerror or problem}") from None
    # TypeError: it is encrypted with a password.
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise failed("is no private key in PEM without a password") from None
    if not isinstance(private, Ed25519PrivateKey):
        raise failed("is a key of another kind than Ed25519")
    return Signer(_public_of(private), private)


def _public_of(private: Ed25519PrivateKey) -> str:
    return "ed25519:" + private.public_key().public_bytes_raw().hex()


def _message(record: Record, moment: int) -> bytes:
    """What is signed. Every part but the last has a fixed length."""
    return _FORMAT + bytes.fromhex(record.key.digest) + struct.pack("<Q", moment) + record.body


def _fits(signature: Signature, record: Record) -> bool:
    from cryptography.exceptions import InvalidSignature

    try:
        _loaded(signature.key)(bytes.fromhex(signature.value), _message(record, signature.time))
    except InvalidSignature:
        return False
    return True


def _loaded(key: str) -> Callable[[bytes, bytes], None]:
    """What verifies a signature of a message by a public key, or raises InvalidSignature. DlcError if it is no key."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        return Ed25519PublicKey.from_public_bytes(bytes.fromhex(key.removeprefix("ed25519:"))).verify
    except ValueError:
        raise error(
            "bad-key", f"cache.trusted-keys: {key} is no public key", help=_EXAMPLE, exit_code=ExitCode.USAGE
        ) from None


def _moment(text: str) -> float:
    """Unix seconds of a date or time; 0 for ""."""
    from datetime import UTC, datetime

    if not text:
        return 0.0
    try:
        found = datetime.fromisoformat(text)
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise error(
            "bad-config",
            f"cache.signed-since: {text!r} is no date or time",
            help="for example 2026-11-26 or 2026-11-26T18:00+01:00",
            exit_code=ExitCode.USAGE,
        ) from None
