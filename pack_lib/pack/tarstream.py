"""A pack's tar as its frames come by, read member by member, each checked before it is handed out."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate, pairwise

from pack_lib.errors import Damaged
from pack_lib.hashing import tree_nodes
from pack_lib.pack.format import TablePart, blob_name, document_name
from pack_lib.pack.tar import BLOCK, END, header, header_pieces, padding

MAX_HELD = 32 << 20
"""Bytes of a document up to which its bodies are held in memory; those of a larger one wait in a temporary file."""


@dataclass(frozen=True, slots=True)
class Document:
    """One document of layout 3, its bodies checked against its root."""

    root: str
    leaves: list[bytes]
    """The leaf hash of each body, 32 bytes."""
    sizes: list[int]
    nodes: list[bytes]
    """Records of the tree's interior nodes (`pack_lib.hashing.tree_nodes`)."""
    bodies: Iterable[bytes]
    """In order. Read them before the next document is asked for."""


@dataclass(frozen=True, slots=True)
class DocumentBatch:
    """Neighbouring documents, at least one."""

    documents: list[Document]


class Spool:
    """Bodies in a temporary file, which goes with the object."""

    def __init__(self, sizes: list[int]) -> None:
        self._sizes = sizes
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 (closed when it is dropped)

    def write(self, body: bytes) -> None:
        self._file.write(body)

    def __iter__(self) -> Iterator[bytes]:
        self._file.seek(0)
        return map(self._file.read, self._sizes)


class TarStream:
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

    def bodies(self, entries: list[tuple[str, int, int]], *, offsets: bool) -> Iterator[list[tuple[str, bytes]]]:
        """The bodies of these catalogue entries, as many at a time as a frame holds; ``offsets``: they are stated."""
        sha256 = hashlib.sha256
        batch: list[tuple[str, bytes]] = []
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
            if offsets and self._base + self._at - size - len(tail) != offset:
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

    def documents(self, entries: list[tuple[str, list[int]]]) -> Iterator[DocumentBatch]:
        """The documents of these catalogue entries, as many at a time as a frame holds."""
        batch: list[Document] = []
        for root, sizes in entries:
            if self._at >= len(self._data) and batch:
                yield DocumentBatch(batch)
                batch = []
            batch.append(self._document(root, sizes))
        if batch:
            yield DocumentBatch(batch)

    def _document(self, root: str, sizes: list[int]) -> Document:
        size = sum(sizes)
        head = b"".join(header_pieces(document_name(root).encode(), size))
        if self._take(BLOCK) != head:
            raise Damaged(f"{self._where}: where the header of {document_name(root)} should be stands another block")
        sha256, at = hashlib.sha256, self._at
        bodies: list[bytes] | Spool
        if at + size <= len(self._data):
            data = self._data
            ends = list(accumulate(sizes, initial=at))
            bodies = [data[start:end] for start, end in pairwise(ends)]
            self._at = at + size
            leaves = [sha256(b"\x00" + body).digest() for body in bodies]
        elif size <= MAX_HELD:
            bodies = [self._take(length) for length in sizes]
            leaves = [sha256(b"\x00" + body).digest() for body in bodies]
        else:
            bodies = Spool(sizes)
            leaves = []
            for length in sizes:
                body = self._take(length)
                leaves.append(sha256(b"\x00" + body).digest())
                bodies.write(body)
        found, nodes = tree_nodes(leaves)
        if found.hex() != root:
            raise Damaged(f"{self._where}: the bodies of document {root} do not match its root")
        self.finish_member(size)
        return Document(root, leaves, sizes, nodes, bodies)

    def expect_end(self) -> None:
        if self._take(len(END)) != END or self._at != len(self._data) or next(self._contents, b""):
            raise Damaged(f"{self._where}: the archive does not end after its last member")
