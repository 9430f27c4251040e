"""Frames decoded as a stream, without a seek table's help: packs of another tool, and frames too large for memory."""

from __future__ import annotations

from collections.abc import Iterator

import zstandard

from pack_lib.errors import Damaged
from pack_lib.pack.blob import Blob

_READ = 1 << 18
_SLICE = 1 << 10
"""Compressed bytes decoded at a time. Four of them can stand for 128 KiB (RFC 8878, 3.1.1.2.3), so the content of a
slice is at most 32 MiB, whatever a hostile pack holds."""
_BLOCK = 1 << 20
_MAGIC = b"\x28\xb5\x2f\xfd"
_SKIPPABLE = b"\x2a\x4d\x18"


def stream_frames(blob: Blob, at: int, end: int) -> Iterator[bytes]:
    """The content of every frame between two offsets, in blocks of some 100 KB; skippable frames are passed over.

    Raises Damaged for anything that is no frame, that does not decompress, or that ends early.
    """
    rest = b""
    while rest or at < end:
        if len(rest) < 8:
            more = blob.read(at, min(_READ, end - at))
            at += len(more)
            rest += more
        if rest[1:4] == _SKIPPABLE and rest[0] & 0xF0 == 0x50 and len(rest) >= 8:
            length = 8 + int.from_bytes(rest[4:8], "little")
            if length > len(rest) + end - at:
                raise Damaged(f"{blob.name}: it ends inside a skippable frame; it was cut")
            at += max(0, length - len(rest))
            rest = rest[length:]
            continue
        if rest[:4] != _MAGIC:
            raise Damaged(f"{blob.name}: not a zstd file (no frame begins near byte {at - len(rest):,})")
        # One decoder a frame: the library's multi-frame readers stop silently after the first, or at a cut.
        view, used = memoryview(rest), 0
        decoder = zstandard.ZstdDecompressor(max_window_size=1 << 27).decompressobj()
        try:
            while not decoder.eof:
                if used == len(view):
                    view, used = memoryview(blob.read(at, min(_READ, end - at))), 0
                    at += len(view)
                    if not view:
                        raise Damaged(f"{blob.name}: it ends inside a frame; it was cut")
                piece = view[used : used + _SLICE]
                content = decoder.decompress(piece)
                used += len(piece)
                for start in range(0, len(content), _BLOCK):
                    yield content[start : start + _BLOCK]
            rest = decoder.unused_data + bytes(view[used:])
        except zstandard.ZstdError as error:
            raise Damaged(f"{blob.name}: a frame does not decompress ({error})") from None
