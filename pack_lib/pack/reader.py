"""The pack reader: opens a pack by its seek table, streams its members in order, and checks every byte of them.

Nothing is handed out that was not verified: a body against its leaf hash, a frame of a table against its checksum and
the whole part against its SHA-256 before its last rows, the manifest against the pack hash. Memory: a few frames.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pack_lib.errors import Damaged
from pack_lib.pack.blob import Blob
from pack_lib.pack.catalogue import Catalogue, CatalogueParser
from pack_lib.pack.format import MANIFEST, MAX_FIRST_LINE, PackHeader, TablePart, parse_header
from pack_lib.pack.frames import (
    FOOTER_SIZE,
    MAX_FRAME,
    Frame,
    decompress_frame,
    parse_seek_table,
    seek_table_length,
)
from pack_lib.pack.stream import stream_frames
from pack_lib.pack.tar import BLOCK, header
from pack_lib.pack.tarstream import DocumentBatch, TarStream


@dataclass(frozen=True, slots=True)
class TableData:
    """One table part; ``blocks`` must be read to its end, where its digest is checked, before the next member."""

    part: TablePart
    blocks: Iterator[bytes]


BodyBatch = list[tuple[str, bytes]]
"""(leaf hash, body) of neighbours, each checked: bodies of no document, in layout 2 all."""
Member = TableData | BodyBatch | DocumentBatch


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
            yield from self._content(at, frame)
            at += frame.csize

    def _content(self, at: int, frame: Frame) -> Iterator[bytes]:
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

    def frames(self) -> Iterator[tuple[int, Frame]]:
        """Where each frame begins in the file, and its entry. Raises Damaged for a pack without a seek table."""
        if self._frames is None:
            raise Damaged(f"{self.name}: it has no seek table")
        at = 0
        for frame in self._frames:
            yield at, frame
            at += frame.csize

    def check_frame(self, at: int, frame: Frame) -> None:
        """Decompress one frame. Safe in any thread. Raises Damaged unless it has the size and checksum of its entry."""
        for _ in self._content(at, frame):
            pass

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

    def catalogue(self) -> Iterator[tuple[str, list[int]] | tuple[str, int, int]]:
        """(root, sizes) of each document, then (leaf hash, offset or -1, size) of each body. Raises Damaged."""
        for batch in self.catalogue_batches():
            yield from batch.documents
            yield from batch.bodies

    def catalogue_batches(self, note: Callable[[bytes], None] | None = None) -> Iterator[Catalogue]:
        """`catalogue` in batches; ``note`` gets the manifest's bytes, block by block."""
        rest = b""
        first = True
        parser = CatalogueParser(self.header, self.name)
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
            if len(rest) > parser.max_line and not first:
                raise Damaged(f"{self.name}: a catalogue line does not end within {parser.max_line:,} bytes")
            if first or cut <= start:
                continue
            yield parser.parse(data[start : cut - 1])
        parser.finish(rest)

    def members(self, note: Callable[[bytes], None] | None = None) -> Iterator[Member]:
        """Every member after the manifest, in order, all of it checked against the manifest.

        ``note``, if given, is called with all the manifest's bytes on the way. Raises Damaged at the first thing that
        is not as the manifest says; at the end also for what the archive has besides, and for what it lacks.
        """
        stream = TarStream(self._contents(), self.name)
        stream.skip_manifest(self._manifest_size)
        for part in self.header.tables:
            stream.expect(part.member, part.size, part.offset)
            yield TableData(part, stream.table(part))
            stream.finish_member(part.size)
        for batch in self.catalogue_batches(note):
            yield from stream.documents(batch.documents)
            yield from stream.bodies(batch.bodies, offsets=self.header.layout == 2)
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
