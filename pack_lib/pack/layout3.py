"""Layout 3: a tar member a document (``documents/<root[:2]>/<root[2:]>``), its bodies one after the other.

Bodies are staged as the compressed frames their packs will hold, because a set's snapshot root, which stands in each
pack, is known only when every document was looked at. docs/format.md, "Bodies in layout 3".
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from pack_lib.errors import BadInput
from pack_lib.fsio import HashingFile
from pack_lib.hashing import NODE_LENGTH, TreeHasher, tree_hash, tree_nodes
from pack_lib.pack.format import MAX_BODY, MAX_DOCUMENT_BODIES, MAX_MEMBER, Parameters, blob_name, document_name
from pack_lib.pack.frames import Frame, FramePool, frame_of
from pack_lib.pack.tar import BLOCK, header, header_pieces, padding
from pack_lib.sorting import RecordSorter
from pack_lib.sources.base import ChunkBatch, Piece

MAX_APART = 1 << 18
"""Documents that are no members although they have bodies, at most; with more every body stands alone."""


@dataclass(frozen=True, slots=True)
class StagedUnit:
    """Frames that go into one pack together: a frame of small members, or all the frames of one large document."""

    what: str
    """The first member, in words."""
    documents: int
    chunks: int
    body_bytes: int
    extents: tuple[tuple[int, int], ...]
    """(place, length) in the staged file of the frames' bytes, in the pack's order."""
    frames: tuple[Frame, ...]
    catalogue_at: int
    catalogue: Frame

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> StagedUnit:
        frames = tuple(Frame(**frame) for frame in value["frames"])
        extents = tuple((at, length) for at, length in value["extents"])
        return cls(**{**value, "frames": frames, "extents": extents, "catalogue": Frame(**value["catalogue"])})


@dataclass(frozen=True, slots=True)
class StagedBodies:
    """All bodies of a shard in the order of its packs, and what a reader can derive from them."""

    units: tuple[StagedUnit, ...]
    documents: int
    """Members that are documents."""
    root: str
    """Tree hash, hex, over their roots in this order."""
    derived: int
    """Rows of the bodies' table that follow from them: of every member but those of ``shipped``."""
    apart: tuple[str, ...]
    """Roots of documents that are no members: their bodies stand alone."""
    shipped: tuple[str, ...]
    """Roots of members whose rows of the bodies' table do not follow from their bodies."""

    def as_json(self) -> dict[str, Any]:
        """Without ``apart``, which may be anything, and which no later step asks for."""
        return {**asdict(self), "apart": ()}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> StagedBodies:
        units = tuple(StagedUnit.from_json(unit) for unit in value["units"])
        return cls(**{**value, "units": units, "apart": (), "shipped": tuple(value["shipped"])})


@dataclass(slots=True)
class _Unit:
    """A unit as its frames come out of the pool."""

    what: str
    documents: int = 0
    chunks: int = 0
    body_bytes: int = 0
    frames: list[tuple[int, Frame]] = field(default_factory=list)
    head: tuple[int, Frame] | None = None


@dataclass(slots=True)
class _Document:
    """A document as its chunks come by."""

    root: str
    leaves: list[bytes] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    size: int = 0
    pieces: list[Piece] = field(default_factory=list)
    """Of its bodies, those that are in no frame yet."""
    pending: int = 0
    """Bytes of ``pieces``."""
    last: int = -1
    """The ordinal before."""
    ordered: bool = True
    """Ordinals ascend, so that there is one order of the bodies."""
    plain: bool = True
    """Ordinals count from 0, and sizes are those of the bodies."""
    unit: _Unit | None = None
    """Its own, if it is larger than a frame."""


class BodyStager:
    """Cuts documents and bodies into frames and units and writes them to a file as they come out of the pool.

    Give all chunks in document order with ``add``, then, after ``end_documents``, what stands alone with ``add_loose``;
    then ``finish``. Memory: a few frames a worker, and one document's hashes.
    """

    def __init__(self, file: HashingFile, parameters: Parameters, workers: int, *, want_nodes: bool) -> None:
        """``want_nodes``: gather the documents' interior nodes in ``nodes``."""
        self._file = file
        self._frame_size = parameters.frame_size
        self._pool: FramePool[tuple[_Unit, str]] = FramePool(parameters.level, workers, self._take)
        self.nodes = RecordSorter(NODE_LENGTH) if want_nodes else None
        self._units: list[StagedUnit] = []
        self._roots = TreeHasher()
        self._derived = 0
        self._document: _Document | None = None
        self.apart: list[str] = []
        self.rows = self.rows_apart = 0
        """Rows of documents seen, and those of them that belong to ``apart``."""
        self.forgot = False
        self._shipped: list[str] = []
        self._begin_frame()

    def _begin_frame(self) -> None:
        self._pieces: list[Piece] = []
        self._filled = 0
        self._lines: list[str] = []
        self._open = _Unit("")

    def _take(self, note: tuple[_Unit, str], size: int, compressed: bytes) -> None:
        unit, kind = note
        placed = self._file.size, frame_of(size, compressed)
        self._file.write(compressed)
        if kind == "head":
            unit.head = placed
        elif kind == "frame":
            unit.frames.append(placed)
        else:
            self._units.append(_staged(unit, *placed))

    def add(self, batch: ChunkBatch, digests: list[bytes]) -> None:
        """Rows in document order with their checked leaf hashes. Raises BadInput for a body that is too large."""
        at = 0
        self.rows += len(digests)
        for root, count in batch.runs:
            if self._document is None or self._document.root != root:
                self._end_document()
                self._document = _Document(root)
            self._extend(self._document, batch, digests, at, at + count)
            at += count

    def _extend(self, document: _Document, batch: ChunkBatch, digests: list[bytes], start: int, stop: int) -> None:
        sizes, ordinals = batch.bodies.sizes[start:stop], batch.ordinals[start:stop]
        first = document.last + 1
        if list(ordinals) != list(range(first, first + len(ordinals))):
            document.plain = False
            previous = [document.last, *ordinals[:-1]]
            if any(a >= b for a, b in zip(previous, ordinals, strict=True)):
                document.ordered = False
        document.last = ordinals[-1]
        document.plain = document.plain and all(batch.sized[start:stop])
        document.leaves += digests[start:stop]
        document.sizes += sizes
        together = sum(sizes)
        document.size += together
        if max(sizes) > MAX_BODY:
            large = start + max(range(stop - start), key=sizes.__getitem__)
            raise too_large(digests[large].hex(), batch.bodies.sizes[large])
        if document.unit is None and BLOCK + document.pending + together + 511 <= self._frame_size:
            document.pieces += batch.bodies.pieces(start, stop)
            document.pending += together
            return
        if document.unit is None:
            self._end_frame()
            document.unit = _Unit(f"document {document.root}")
        self._cut(document, batch, start, stop)

    def _cut(self, document: _Document, batch: ChunkBatch, start: int, stop: int) -> None:
        """Bodies of a large document into frames of its own, cut between bodies."""
        sizes = batch.bodies.sizes
        begun = start
        for place in range(start, stop):
            if document.pending and document.pending + sizes[place] > self._frame_size:
                document.pieces += batch.bodies.pieces(begun, place)
                self._push_pending(document)
                begun = place
            document.pending += sizes[place]
        document.pieces += batch.bodies.pieces(begun, stop)

    def _push_pending(self, document: _Document, tail: bytes = b"") -> None:
        if document.unit is not None and (document.pending or tail):
            self._pool.push((document.unit, "frame"), b"".join([*document.pieces, tail]))
        document.pieces, document.pending = [], 0

    def _end_document(self) -> None:
        document, self._document = self._document, None
        if document is None:
            return
        nodes: list[bytes] = []
        if not document.ordered or document.size > MAX_MEMBER or len(document.leaves) > MAX_DOCUMENT_BODIES:
            found = ""
        elif self.nodes is None:
            found = tree_hash(document.leaves).hex()
        else:
            root, nodes = tree_nodes(document.leaves)
            found = root.hex()
        if found != document.root:
            self.apart.append(document.root)
            self.rows_apart += len(document.leaves)
            return
        self._roots.add(bytes.fromhex(found))
        if self.nodes is not None:
            self.nodes.add(nodes)
        if document.plain:
            self._derived += len(document.leaves)
        else:
            self._shipped.append(document.root)
        line = f'["{document.root}",[{",".join(map(str, document.sizes))}]]\n'
        if document.unit is not None:
            self._push_pending(document, padding(document.size))
            head = header(document_name(document.root), document.size)
            self._pool.push((document.unit, "head"), head)
            self._end_unit(document.unit, document, [line])
            return
        taken = BLOCK + document.size + -document.size % BLOCK
        if self._filled and self._filled + taken > self._frame_size:
            self._end_frame()
        self._pieces += header_pieces(document_name(document.root).encode(), document.size)
        self._pieces += document.pieces
        self._pieces.append(padding(document.size))
        self._filled += taken
        self._lines.append(line)
        self._count(self._open, document)

    @staticmethod
    def _count(unit: _Unit, document: _Document) -> None:
        unit.what = unit.what or f"document {document.root}"
        unit.documents += 1
        unit.chunks += len(document.leaves)
        unit.body_bytes += document.size

    def _end_unit(self, unit: _Unit, document: _Document, lines: list[str]) -> None:
        self._count(unit, document)
        self._pool.push((unit, "catalogue"), "".join(lines).encode())

    def _end_frame(self) -> None:
        """End the frame of small members, if it has any; it is a unit."""
        if self._lines:
            self._pool.push((self._open, "frame"), b"".join(self._pieces))
            self._pool.push((self._open, "catalogue"), "".join(self._lines).encode())
        self._begin_frame()

    def end_documents(self) -> None:
        self._end_document()
        self._end_frame()

    def forget_documents(self) -> None:
        """Begin again with no document: every body will be given to ``add_loose``."""
        self._pool.drain()
        self._units, self._roots, self._document = [], TreeHasher(), None
        self._derived = self.rows = self.rows_apart = 0
        self.apart, self._shipped = [], []
        self.forgot = True
        if self.nodes is not None:
            self.nodes.clear()
        self._begin_frame()

    def add_loose(self, bodies: Iterable[tuple[str, bytes]]) -> None:
        """(leaf hash, body) of neighbours, ascending, each checked. Raises BadInput for a body that is too large."""
        unit = self._open
        for leaf_hash, body in bodies:
            size = len(body)
            if size > MAX_BODY:
                raise too_large(leaf_hash, size)
            taken = BLOCK + size + -size % BLOCK
            if self._filled and self._filled + taken > self._frame_size:
                self._end_frame()
                unit = self._open
            self._pieces += header_pieces(blob_name(leaf_hash).encode(), size)
            self._pieces += (body, padding(size))
            self._filled += taken
            self._lines.append(f'["{leaf_hash}",{size}]\n')
            unit.what = unit.what or f"the body {leaf_hash}"
            unit.chunks += 1
            unit.body_bytes += size

    def finish(self) -> StagedBodies:
        self._end_frame()
        self._pool.drain()
        return StagedBodies(
            tuple(self._units),
            self._roots.count,
            self._roots.root().hex(),
            self._derived,
            tuple(self.apart),
            tuple(self._shipped),
        )

    def __enter__(self) -> BodyStager:
        return self

    def __exit__(self, *exception: Any) -> None:
        self._pool.__exit__(*exception)


def _staged(unit: _Unit, at: int, catalogue: Frame) -> StagedUnit:
    placed = [*([unit.head] if unit.head else []), *unit.frames]
    extents: list[tuple[int, int]] = []
    for place, frame in placed:
        if extents and sum(extents[-1]) == place:
            extents[-1] = extents[-1][0], extents[-1][1] + frame.csize
        else:
            extents.append((place, frame.csize))
    frames = tuple(frame for _, frame in placed)
    return StagedUnit(unit.what, unit.documents, unit.chunks, unit.body_bytes, tuple(extents), frames, at, catalogue)


def too_large(leaf_hash: str, size: int) -> BadInput:
    return BadInput(f"the body {leaf_hash} has {size:,} bytes; a pack holds bodies of up to {MAX_BODY:,}")
