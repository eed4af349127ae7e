"""Checkpoints: parameters and state in one piece of memory that is known again, whole and of this program, or refused.

    0   magic, 8 bytes            24  bytes of parameters, u64      48  identity of the program, 16 bytes
    8   version of the format, u32   32  bytes of state, u64           64  parameters, state, gradients
    12  CRC-32 of what is behind 64  40  bytes of gradients, u64
    16  bytes of all, u64

Numbers are little-endian, the CRC-32 that of ISO 3309 and zlib. Gradients are kept where they are summed over several
calls.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from hashlib import sha256

from dlc.api.training import Bundle, RegionName
from dlc_backend_c.package import Package, refuse
from dlc_backend_c.regions import region_checks
from dlc_backend_c.weights import ALIGN

MAGIC = b"DLC\x1aCKP\n"
"""As PNG's: a transfer that takes it for text, or stops at the end of one, changes it."""
VERSION = 1
HEADER = 64
"""Bytes."""
_CRC = 12, 16


def identity(bundle: Bundle) -> bytes:
    """What the memory of a program is: 16 bytes of a digest of names, types and places."""
    h = sha256(f"accumulate {bundle.accumulate}\0".encode())
    for region, places in sorted(bundle.regions.items()):
        for p in places:
            h.update(f"{region}\0{p.type}\0{p.offset}\0".encode())
            h.update(p.name.encode("utf-8", "surrogatepass") + b"\0")
    return h.digest()[:16]


def checkpoint_bytes(bundle: Bundle, kept: Sequence[RegionName]) -> int:
    """Size of a checkpoint."""
    return HEADER + sum(bundle.size(r) for r in kept)


def header(bundle: Bundle, kept: Sequence[RegionName]) -> bytes:
    """The first `HEADER` bytes of every checkpoint, with zeros for the CRC-32."""
    regions: tuple[RegionName, ...] = ("parameters", "state", "gradients")
    sizes = [bundle.size(r) if r in kept else 0 for r in regions]
    return struct.pack("<8sII4Q16s", MAGIC, VERSION, 0, checkpoint_bytes(bundle, kept), *sizes, identity(bundle))


def checkpoint_text(package: Package, bundle: Bundle, kept: Sequence[RegionName]) -> list[str]:
    """Definitions of `save` and `load`."""
    p, macro, size = package.prefix, package.macro, f"{package.macro}_CHECKPOINT_BYTES"
    start = HEADER
    places: list[tuple[RegionName, int]] = []
    for region in kept:
        places.append((region, start))
        start += bundle.size(region)
    first, last = _CRC
    return [
        *_constants(p, header(bundle, kept)),
        f"int {p}_save(const {p}_training *t, void *checkpoint)",
        "{",
        "    unsigned char *const to = (unsigned char *)checkpoint;",
        "    uint32_t crc;",
        "",
        *refuse(["t == NULL", "checkpoint == NULL"], f"{macro}_ERROR_NULL"),
        *region_checks(package, kept, arena=False),
        *(f"    memcpy(to + {at}, t->{r}, {bundle.size(r)});" for r, at in places),
        f"    memcpy(to, {p}_checkpoint, {HEADER});",
        f"    crc = {p}_crc32(to + {HEADER}, {size} - {HEADER});",
        f"    memcpy(to + {first}, &crc, sizeof crc);",
        f"    return {macro}_OK;",
        "}",
        "",
        f"int {p}_load(const {p}_training *t, const void *checkpoint, size_t bytes)",
        "{",
        "    const unsigned char *const from = (const unsigned char *)checkpoint;",
        "    uint32_t crc;",
        "",
        *refuse(["t == NULL", "checkpoint == NULL"], f"{macro}_ERROR_NULL"),
        *region_checks(package, kept, arena=False),
        *refuse(
            [
                f"bytes != {size}",
                f"memcmp(from, {p}_checkpoint, {first}) != 0",
                f"memcmp(from + {last}, {p}_checkpoint + {last}, {HEADER - last}) != 0",
            ],
            f"{macro}_ERROR_CHECKPOINT",
        ),
        f"    memcpy(&crc, from + {first}, sizeof crc);",
        *refuse([f"crc != {p}_crc32(from + {HEADER}, {size} - {HEADER})"], f"{macro}_ERROR_CHECKPOINT"),
        *(f"    memcpy(t->{r}, from + {at}, {bundle.size(r)});" for r, at in places),
        f"    return {macro}_OK;",
        "}",
        "",
    ]


def _constants(prefix: str, head: bytes) -> list[str]:
    """What every checkpoint begins with, and the checksum of the rest."""
    rows = [", ".join(f"{b}" for b in head[k : k + ALIGN // 4]) for k in range(0, len(head), ALIGN // 4)]
    return [
        f"static const unsigned char {prefix}_checkpoint[{len(head)}] = {{",
        *(f"    {row}," for row in rows),
        "};",
        "",
        f"static uint32_t {prefix}_crc32(const unsigned char *at, size_t bytes)",
        "{",
        "    uint32_t table[256], crc = 0xffffffffu;",
        "    size_t i;",
        "    unsigned k;",
        "",
        "    for (i = 0; i < 256; i++) {",
        "        table[i] = (uint32_t)i;",
        "        for (k = 0; k < 8; k++) {",
        "            table[i] = table[i] >> 1 ^ (table[i] & 1u ? 0xedb88320u : 0u);",
        "        }",
        "    }",
        "    for (i = 0; i < bytes; i++) {",
        "        crc = crc >> 8 ^ table[(crc ^ at[i]) & 255u];",
        "    }",
        "    return crc ^ 0xffffffffu;",
        "}",
        "",
    ]
