"""The protocol between a database and the pack builder. ``pack_lib.testing`` has its conformance suites, `sources` and
`document_sources`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from pack_lib.lines import LineBlock
from pack_lib.profile import Bodies, Documents
from pack_lib.progress import Progress, no_progress

Piece = bytes | memoryview


class BodyColumn(Protocol):
    """The bodies of neighbouring chunks."""

    @property
    def sizes(self) -> Sequence[int]:
        """Bytes of each."""
        ...

    def digests(self) -> list[bytes]:
        """The leaf hash of each, computed from its bytes, 32 bytes."""
        ...

    def pieces(self, start: int, stop: int) -> list[Piece]:
        """The bytes of these bodies, one after the other, in as few pieces as they lie in memory."""
        ...


@dataclass(frozen=True, slots=True)
class ChunkBatch:
    """Neighbouring rows of the bodies' table in document order, as columns."""

    runs: list[tuple[str, int]]
    """(document's root, number of rows); the first may go on with the document the batch before ended with.

    Bytes of a root that are no UTF-8 are surrogate escapes (PEP 383).
    """
    ordinals: Sequence[int]
    """Of each row; -1 for one that is no integer."""
    sized: Sequence[bool]
    """Of each row, whether its size cell is the integer that its body has bytes."""
    leaf_hashes: str
    """The leaf hashes that the rows state, 64 hex digits each, without anything between."""
    bodies: BodyColumn


@runtime_checkable
class Source(Protocol):
    """A live database: others may be writing to it."""

    location: str
    """What to call it in messages: its path or URL without credentials."""

    default_shard: str
    """The shard's name if none is given (a file's stem)."""

    def size(self) -> int:
        """Bytes a pin of it will take, about. Raises BadInput if it is not there or not a database."""
        ...

    def change_token(self) -> str:
        """Changes whenever the database probably did. Cheap; proves nothing."""
        ...

    @property
    def concurrent(self) -> bool:
        """Whether several threads read pinned states faster than one."""
        ...

    def pin(self, destination: Path, progress: Progress = no_progress) -> None:
        """Write one consistent state of it to ``destination`` (a new file), durable.

        Leaves the source's bytes as they are. Raises BadInput, Busy or StoreTrouble.
        """
        ...

    def check(self, pinned: Path | None, progress: Progress = no_progress) -> None:
        """Let the database look whether a file that ``pin`` wrote (None: the source in place) contradicts itself.

        ``progress`` is called now and then; what it raises ends the check. Raises BadInput for a database that does.
        """
        ...

    def open_pinned(self, pinned: Path | None) -> PinnedSource:
        """Read a file that ``pin`` wrote, or, with None, the source in place as one declared immutable."""
        ...


class PinnedSource(Protocol):
    """One immutable state of a database. Iterators stream in bounded memory; close it when done."""

    def tables(self) -> dict[str, tuple[str, ...]]:
        """Every table of the user's (not the engine's own): name -> insertable columns in their order."""
        ...

    def count(self, table: str) -> int:
        """Number of rows."""
        ...

    def rows(self, table: str, columns: Sequence[str], *, exact: bool = False) -> Iterator[list[tuple[Any, ...]]]:
        """All rows in batches, each a tuple of cells, ordered by the columns from first to last.

        NULL comes first, then numbers by value, text by its UTF-8 bytes, blobs by theirs. Rows whose cells all compare
        equal (1 and 1.0) may come in any order, unless ``exact``: then each column's ties are settled by the bytes of
        the cell's canonical form before the next column counts.
        """
        ...

    def lines(self, table: str, columns: Sequence[str], *, fan_in: bool = False) -> Iterator[LineBlock]:
        """The table's lines, as `pack_lib.lines.line_blocks` makes them of `rows`, in blocks of some MiB.

        ``fan_in``: rows that differ in the last column only are one line, that column's values an array.
        """
        ...

    def leaf_hashes(self, table: str, column: str) -> Iterator[list[str]]:
        """The distinct values of a text column in batches, ascending. Raises BadInput for a value that is no text."""
        ...

    def bodies(self, table: str, hash_column: str, content: str, kind: str) -> Iterator[list[tuple[str, bytes]]]:
        """(leaf hash, body) of every row in batches, ascending by leaf hash; a hash may come several times.

        Raises BadInput, naming the leaf hash, for a body that is NULL or not stored as ``kind`` (text or blob).
        """
        ...

    def document_chunks(self, bodies: Bodies, documents: Documents) -> Iterator[ChunkBatch]:
        """The rows of ``bodies.table`` whose document is a row of the documents' table (a text equal to its root).

        Documents come in the order of ``documents.order`` (as in `rows`; of several rows of one root the least cells
        count), then of their roots by bytes; their rows by ordinal. Leaf hashes must have been read by `leaf_hashes`.
        Raises BadInput, naming the leaf hash, for a body that is NULL or not stored as ``bodies.type``.
        """
        ...

    def bodies_apart(
        self, bodies: Bodies, documents: Documents, apart: Sequence[str]
    ) -> Iterator[list[tuple[str, bytes]]]:
        """As `bodies`, of the rows that `document_chunks` does not give, and of those of the documents ``apart``."""
        ...

    def rows_apart(
        self, bodies: Bodies, documents: Documents, columns: Sequence[str], apart: Sequence[str]
    ) -> Iterator[list[tuple[Any, ...]]]:
        """As `rows` of ``bodies.table``, of the rows that `bodies_apart` is about."""
        ...

    def close(self) -> None: ...
