"""Where a pack's compressed bytes go."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from pack_lib.pack.blob import FileBlob
from pack_lib.pack.frames import FOOTER_SIZE, Frame, decompress_frame, parse_seek_table, seek_table_length
from pack_lib.pack.reader import PackReader
from pack_lib.pack.tar import BLOCK, padding


def table_bytes(pack: Path) -> int:
    """Compressed bytes of the frames that hold tables; the file's others are bodies, catalogue and seek table."""
    with closing(FileBlob(pack)) as blob:
        length = seek_table_length(blob.read(blob.size - FOOTER_SIZE, FOOTER_SIZE), blob.size, pack.name)
        if length is None:
            raise ValueError(f"{pack.name} has no seek table")
        frames = parse_seek_table(blob.read(blob.size - length, length), blob.size, pack.name)
        tables = PackReader(blob).header.tables
        first = decompress_frame(blob.read(0, frames[0].csize), frames[0], pack.name)
    manifest = int(first[124:135], 8)  # the size field of the first ustar header, in octal digits
    base = BLOCK + manifest + len(padding(manifest))
    spans = [(base + part.offset - BLOCK, base + part.offset + part.size + len(padding(part.size))) for part in tables]
    return _inside(frames, spans)


def _inside(frames: list[Frame], spans: list[tuple[int, int]]) -> int:
    """Compressed bytes of the frames that lie in ascending spans of the archive."""
    at = total = number = 0
    for frame in frames:
        end = at + frame.usize
        while number < len(spans) and spans[number][1] <= at:
            number += 1
        if number < len(spans) and spans[number][0] <= at and end <= spans[number][1]:
            total += frame.csize
        at = end
    return total
