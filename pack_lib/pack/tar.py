"""ustar (POSIX.1-1988) headers with fixed fields, so that a member's header depends on its name and size alone."""

from __future__ import annotations

import zlib
from functools import lru_cache

BLOCK = 512
END = bytes(2 * BLOCK)
"""The end of an archive: two blocks of zeros, and no padding to a record of 10,240."""

_MODE_UID_GID = b"0000644\x000000000\x000000000\x00"
_MTIME = b"00000000000\x00"
_TAIL = b"0" + bytes(100) + b"ustar\x0000" + bytes(64) + b"0000000\x000000000\x00" + bytes(155 + 12)
_BLANK_CHECKSUM = b" " * 8
_PADDING = tuple(bytes(-size % BLOCK) for size in range(BLOCK))


def padding(size: int) -> bytes:
    """The zeros that follow a member's ``size`` bytes up to the next block."""
    return _PADDING[size % BLOCK]


@lru_cache(maxsize=1 << 14)
def _middle(name_length: int, size: int) -> tuple[bytes, int]:
    """What stands between name and checksum, and the sum of all the header's bytes but for the name's."""
    fields = bytes(100 - name_length) + _MODE_UID_GID + b"%011o\x00" % size + _MTIME
    return fields, sum(fields) + sum(_BLANK_CHECKSUM) + sum(_TAIL)


def header_pieces(name: bytes, size: int) -> tuple[bytes, bytes, bytes, bytes]:
    """The 512 bytes of a header in four pieces, cheap by the thousand. ``name`` is ASCII of at most 100 bytes."""
    middle, total = _middle(len(name), size)
    # The low half of an Adler-32 is 1 plus the sum of the bytes (modulo 65,521, which 100 ASCII bytes do not reach).
    total += (zlib.adler32(name) & 0xFFFF) - 1
    return name, middle, b"%06o\x00 " % total, _TAIL


def header(name: str, size: int) -> bytes:
    """The 512-byte header of a regular file. Raises ValueError for a name or a size that ustar cannot hold."""
    raw = name.encode("ascii")
    if not 0 < len(raw) <= 100 or not 0 <= size < 8**11:
        raise ValueError(f"ustar holds no member {name!r} of {size} bytes")
    return b"".join(header_pieces(raw, size))
