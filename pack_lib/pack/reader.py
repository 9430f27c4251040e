"""The pack reader: opens a pack by its seek table, streams its members in order, and checks every byte of them.

Nothing is handed out that was not verified: a body against its leaf hash, a frame of a table against its checksum and
the whole part against its SHA-256 before its last rows, the manifest against the pack hash. Memory: a few frames.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from pack_lib.errors import Damaged
from pack_lib.pack.blob import Blob
from pack_lib.pack.format import (
    HEX64,
    MANIFEST,
    MAX_BODY,
    MAX_FIRST_LINE,
    PackHeader,
    TablePart,
    blob_name,
    parse_header,
)
from pack_lib.pack.frames import (
    FOOTER_SIZE,
    MAX_FRAME,
    Frame,
    decompress_frame,
    parse_seek_table,
    seek_table_length,
)
from pack_lib.pack.stream import stream_frames
from pack_lib.pack.tar import BLOCK, END, header, header_pieces, padding


@dataclass(frozen=True, slots=True)
class CatalogueEntry:
    leaf_hash: str
    offset: int
    """Of the body's first byte, counted from the end of the manifest member."""
    size: int


@dataclass(frozen=True, slots=True)
class TableData:
    """One table part; ``blocks`` must be read to its end, where its digest is checked, before the next member."""

    part: TablePart
    blocks: Iterator[bytes]


_MAX_LINE = 4096
"""A catalogue line has some 90 bytes."""

BodyBatch = list[tuple[str, bytes]]
"""(leaf hash, body) of neighbours, each checked."""


class PackReader:
    """One pack. Construction reads the seek table and the manifest's first line.

    Raises UnknownVersion, or Damaged naming what is wrong with it.
    """

    def __init__(self, blob: Blob) -> None:
        self.blob = blob
        self.name = blob.name
        self._frames = self._read_seek_table()
        line = self._manifest_line()
        self.header: PackHeader = parse_header(line, self.name)
        self.first_line = line

    def _read_seek_table(self) -> list[Frame] | None:
        size = self.blob.size
        foot = self.blob.read(size - FOOTER_SIZE, FOOTER_SIZE) if size >= FOOTER_SIZE else b""
        length = seek_table_length(foot, size, self.name)
        if length is None:
            return None
        return parse_seek_table(self.blob.read(size - length, length), size, self.name)

    def _contents(self) -> Iterator[bytes]:
        """The whole tar, frame by frame from the start."""
        if self._frames is None:
            yield from stream_frames(self.blob, 0, self.blob.size)
            return
        at = 0
        for frame in self._frames:
            if frame.usize > MAX_FRAME:
                left = frame.usize
                for block in stream_frames(self.blob, at, at + frame.csize):
                    left -= len(block)
                    yield block
                tail = self.blob.read(at + frame.csize - 4, 4)
                if left or int.from_bytes(tail, "little") != frame.checksum:
                    raise Damaged(f"{self.name}, byte {at:,}: a frame is not what the seek table states")
            elif frame.usize:
                yield decompress_frame(self.blob.read(at, frame.csize), frame, f"{self.name}, byte {at:,}")
            at += frame.csize

    def _manifest_line(self) -> bytes:
        head, pieces, length = b"", [], 0
        for block in self._contents():
            if len(head) < BLOCK:
                head += block
                if len(head) < BLOCK:
                    continue
                # Looked at before anything is gathered: what is no pack ends here.
                self._manifest_size = _member_size(head[:BLOCK], MANIFEST, self.name)
                block = head[BLOCK:]
            at = block.find(b"\n") + 1
            pieces.append(block[:at] if at else block)
            length += len(pieces[-1])
            if length > min(self._manifest_size, MAX_FIRST_LINE):
                raise Damaged(
                    f"{self.name}: its first line does not end within the manifest, or {MAX_FIRST_LINE:,} bytes"
                )
            if at:
                return b"".join(pieces)
        raise Damaged(f"{self.name}: it holds no manifest")

    def manifest_blocks(self) -> Iterator[bytes]:
        """The manifest's bytes in blocks; exactly as many as its tar header states."""
        left = self._manifest_size
        skip = BLOCK
        for block in self._contents():
            part = block[skip : skip + left]
            skip = max(0, skip - len(block))
            left -= len(part)
            if part:
                yield part
            if not left:
                return
        raise Damaged(f"{self.name}: it ends inside its manifest; it was cut")

    def pack_hash(self) -> str:
        """The leaf hash of the manifest's bytes, as read."""
        digest = hashlib.sha256(b"\x00")
        for block in self.manifest_blocks():
            digest.update(block)
        return digest.hexdigest()

    def catalogue(self) -> Iterator[CatalogueEntry]:
        """The bodies in the pack's order. Raises Damaged for a line that is none, or for a wrong number of them."""
        for batch in self._catalogue_batches():
            for entry in batch:
                yield CatalogueEntry(*entry)

    def _catalogue_batches(self, note: Callable[[bytes], None] | None = None) -> Iterator[list[tuple[str, int, int]]]:
        """The catalogue in batches; ``note`` gets the manifest's bytes, block by block."""
        rest = b""
        first = True
        previous, count, total = "", 0, 0
        for block in self.manifest_blocks():
            if note is not None:
                note(block)
            data = rest + block
            cut = data.rfind(b"\n") + 1
            rest = data[cut:]
            if first and cut:
                start = data.index(b"\n") + 1
                first = False
            else:
                start = 0
            if len(rest) > _MAX_LINE and not first:
                raise Damaged(f"{self.name}: a catalogue line does not end within {_MAX_LINE:,} bytes")
            if first or cut <= start:
                continue
            entries = self._parse_catalogue(data[start : cut - 1])
            hashes = [entry[0] for entry in entries]
            if hashes[0] <= previous or any(a >= b for a, b in pairwise(hashes)):
                raise Damaged(f"{self.name}: the catalogue's leaf hashes do not ascend near {hashes[0]}")
            previous = hashes[-1]
            count += len(entries)
            total += sum(entry[2] for entry in entries)
            yield entries
        if rest or (count, total) != (self.header.chunks, self.header.body_bytes):
            raise Damaged(
                f"{self.name}: the catalogue lists {count:,} bodies of {total:,} bytes, "
                f"its first line says {self.header.chunks:,} of {self.header.body_bytes:,}"
            )

    def _parse_catalogue(self, lines: bytes) -> list[tuple[str, int, int]]:
        try:
            rows: list[Any] = json.loads(b"[" + lines.replace(b"\n", b",") + b"]")
            entries = [(leaf_hash, offset, size) for leaf_hash, offset, size in rows]
            # The one canonical form leaves no room for a second reading of a line.
            again = "\n".join([f'["{leaf_hash}",{offset},{size}]' for leaf_hash, offset, size in entries])
            hashes, offsets, sizes = zip(*entries, strict=True)
            if set(map(type, hashes)) != {str} or set(map(type, offsets + sizes)) != {int}:
                raise ValueError("its cells are not a text and two integers")
            if not all(map(HEX64.match, hashes)) or min(sizes) < 0 or max(sizes) > MAX_BODY:
                raise ValueError("a leaf hash or a size")
        except (ValueError, TypeError, RecursionError) as error:
            raise Damaged(f"{self.name}: a catalogue line is wrong ({error})") from None
        if again.encode() != lines:
            raise Damaged(f"{self.name}: a catalogue line is not in canonical form")
        return entries

    def members(self, note: Callable[[bytes], None] | None = None) -> Iterator[TableData | BodyBatch]:
        """Every member after the manifest, in order, all of it checked against the manifest.

        ``note``, if given, is called with all the manifest's bytes on the way. Raises Damaged at the first thing that
        is not as the manifest says; at the end also for what the archive has besides, and for what it lacks.
        """
        stream = _TarStream(self._contents(), self.name)
        stream.skip_manifest(self._manifest_size)
        for part in self.header.tables:
            stream.expect(part.member, part.size, part.offset)
            yield TableData(part, stream.table(part))
            stream.finish_member(part.size)
        for batch in self._catalogue_batches(note):
            yield from stream.bodies(batch)
        stream.expect_end()

    def close(self) -> None:
        self.blob.close()

    def __enter__(self) -> PackReader:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def _member_size(block: bytes, name: str, where: str) -> int:
    """The size a ustar header block states, if it is exactly the header we write for ``name``."""
    try:
        size = int(block[124:135], 8)
        if block == header(name, size):
            return size
    except ValueError:
        pass
    raise Damaged(f"{where}: where the header of {name} should be stands another block")


class _TarStream:
    """A tar's bytes as they come out of frames, read member by member with a known next one."""

    def __init__(self, contents: Iterator[bytes], where: str) -> None:
        self._contents = contents
        self._where = where
        self._data = b""
        self._at = 0  # place in _data
        self._base = 0  # offset of _data's start from the end of the manifest member

    def _take(self, length: int) -> bytes:
        """The next bytes, ``length`` of them."""
        data, at = self._data, self._at
        if at + length <= len(data):
            self._at = at + length
            return data[at : at + length]
        pieces = [data[at:]]
        have = len(pieces[0])
        self._base += len(data)
        while have < length:
            data = next(self._contents, b"")
            if not data:
                raise Damaged(f"{self._where}: the archive ends in the middle of a member; it was cut")
            pieces.append(data)
            have += len(data)
            self._base += len(data)
        self._base -= len(data)
        self._data, self._at = data, len(data) - (have - length)
        return b"".join(pieces)[:length]

    def skip_manifest(self, size: int) -> None:
        left = BLOCK + size + len(padding(size))
        while left:
            left -= len(self._take(min(left, 1 << 20)))
        self._base = -self._at

    def expect(self, name: str, size: int, offset: int) -> None:
        """The next block must be the header of this member, and its bytes must begin at ``offset``."""
        if self._take(BLOCK) != header(name, size):
            raise Damaged(f"{self._where}: where the header of {name} should be stands another block")
        if self._base + self._at != offset:
            raise Damaged(f"{self._where}: {name} begins at {self._base + self._at:,}, the manifest says {offset:,}")

    def table(self, part: TablePart) -> Iterator[bytes]:
        digest = hashlib.sha256()
        left = part.size
        while left:
            # As much as the present frame still has, so that nothing is joined; a whole one if it has nothing.
            block = self._take(min(left, max(1, len(self._data) - self._at)))
            left -= len(block)
            digest.update(block)
            if not left and digest.hexdigest() != part.sha256:
                raise Damaged(f"{self._where}: the bytes of {part.member} do not have the SHA-256 the manifest states")
            yield block

    def finish_member(self, size: int) -> None:
        zeros = padding(size)
        if self._take(len(zeros)) != zeros:
            raise Damaged(f"{self._where}: the padding after a member is not zeros")

    def bodies(self, entries: list[tuple[str, int, int]]) -> Iterator[BodyBatch]:
        """The bodies of these catalogue entries, as many at a time as a frame holds."""
        sha256 = hashlib.sha256
        batch: BodyBatch = []
        for leaf_hash, offset, size in entries:
            if self._at >= len(self._data) and batch:
                yield batch
                batch = []
            head = b"".join(header_pieces(f"blobs/{leaf_hash[:2]}/{leaf_hash[2:]}".encode(), size))
            tail = padding(size)
            begin, end = self._at + BLOCK, self._at + BLOCK + size
            if end + len(tail) <= len(self._data):  # the member lies in one frame, as the writer leaves it
                data = self._data
                block, body, zeros = data[self._at : begin], data[begin:end], data[end : end + len(tail)]
                self._at = end + len(tail)
            else:
                block, body, zeros = self._take(BLOCK), self._take(size), self._take(len(tail))
            if block != head:
                raise Damaged(
                    f"{self._where}: where the header of {blob_name(leaf_hash)} should be stands another block"
                )
            if self._base + self._at - size - len(tail) != offset:
                raise Damaged(
                    f"{self._where}: {blob_name(leaf_hash)} does not begin at {offset:,}, as the manifest says"
                )
            if sha256(b"\x00" + body).hexdigest() != leaf_hash:
                raise Damaged(f"{self._where}: the body {leaf_hash} does not match its leaf hash")
            if zeros != tail:
                raise Damaged(f"{self._where}: the padding after a member is not zeros")
            batch.append((leaf_hash, body))
        if batch:
            yield batch

    def expect_end(self) -> None:
        if self._take(len(END)) != END or self._at != len(self._data) or next(self._contents, b""):
            raise Damaged(f"{self._where}: the archive does not end after its last member")
