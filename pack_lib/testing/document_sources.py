"""Conformance suite for what layout 3 and the fast way ask of a source besides: whole lines, and documents' chunks.

Use it beside `pack_lib.testing.sources.SourceSuite`, whose methods it needs::

    class TestMySource(DocumentSourceSuite): ...
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from pack_lib.errors import BadInput
from pack_lib.hashing import leaf_hash
from pack_lib.lines import line_blocks
from pack_lib.profile import Bodies, Documents
from pack_lib.sources.base import ChunkBatch, PinnedSource
from pack_lib.testing.sources import BLOBS, FLOATS, INTEGERS, TEXTS, Rows, SourceSuite, Table, canonical, sort_key

BODIES = Bodies("chunks", "leaf_hash", "content", "text", "document", "ordinal", "size")
DOCUMENTS = Documents("documents", "root", ("uri",))
COLUMNS = ("document", "ordinal", "leaf_hash", "size", "content")


class DocumentSourceSuite(SourceSuite):
    """Subclass it as ``Test...``; see `SourceSuite`."""

    def corpus(self, *, documents: int = 30, seed: int = 1) -> tuple[Table, Table]:
        """Documents in no order, some without chunks, and chunks, some of no document."""
        chance = random.Random(seed)
        roots = [leaf_hash(b"document %d" % number).hex() for number in range(documents)]
        listed: Rows = [(root, f"uri {number % 7}") for number, root in enumerate(roots) if number % 6]
        chunks: Rows = []
        for number, root in enumerate(roots):
            for ordinal in range(chance.randrange(6)):
                body = chance.choice(["", "x\0y", "\u20ac" * chance.randrange(40), f"{number} {ordinal}", "same"])
                raw = body.encode()
                chunks.append((root, ordinal, leaf_hash(raw).hex(), len(raw) + (chance.randrange(9) == 0), body))
        chance.shuffle(listed)
        chance.shuffle(chunks)
        return Table(("root", "uri"), listed), Table(COLUMNS, chunks)

    def _pinned_corpus(self, folder: Path, pins: Path, documents: Table, chunks: Table) -> PinnedSource:
        source = self.make_source(folder, "shard", {"documents": documents, "chunks": chunks})
        return self.pinned(source, pins)

    def _gathered(self, pinned: PinnedSource) -> list[tuple[Any, ...]]:
        """(root, ordinal, sized, leaf hash, body) of each row that `document_chunks` gives."""
        rows: list[tuple[Any, ...]] = []
        for batch in pinned.document_chunks(BODIES, DOCUMENTS):
            rows += _rows(batch)
        return rows

    def test_lines_are_those_of_the_rows(self, folder: Path, pins: Path) -> None:
        kinds: list[list[Any]] = [TEXTS, INTEGERS, FLOATS, BLOBS] if self.mixes_types else [TEXTS]
        cells = [None, *(cell for kind in kinds for cell in kind)]
        rows: Rows = [(f"k{number % 3}", cells[number % 5], cell) for number, cell in enumerate(cells * 3)]
        plain: Rows = [(f"k{number % 3}", f"{number % 5}", text) for number, text in enumerate(TEXTS * 40)]
        source = self.make_source(folder, "shard", {"t": Table(("a", "b", "c"), rows), "p": Table(("a", "b"), [])})
        self.commit(source, {"p": [row[1:] for row in plain]})
        pinned = self.pinned(source, pins)
        for table, columns in (("t", ("a", "b", "c")), ("t", ("c",)), ("p", ("a", "b")), ("p", ("b", "a"))):
            for fan_in in (False, True):
                if fan_in and len(columns) < 2:
                    continue
                blocks = list(pinned.lines(table, columns, fan_in=fan_in))
                expected = list(line_blocks(pinned.rows(table, columns, exact=fan_in), fan_in=fan_in))
                assert b"".join(block.data for block in blocks) == b"".join(block.data for block in expected)
                assert sum(block.rows for block in blocks) == pinned.count(table)
                assert all(block.data.count(b"\n") == block.lines > 0 for block in blocks)
        pinned.close()

    def test_lines_of_no_rows(self, folder: Path, pins: Path) -> None:
        pinned = self.pinned(self.make_source(folder, "shard", {"t": Table(("a", "b"), [])}), pins)
        assert list(pinned.lines("t", ("a", "b"))) == list(pinned.lines("t", ("a", "b"), fan_in=True)) == []
        pinned.close()

    def test_document_chunks(self, folder: Path, pins: Path) -> None:
        """By URI, then root, then ordinal; only of documents that the documents' table lists."""
        documents, chunks = self.corpus()
        pinned = self._pinned_corpus(folder, pins, documents, chunks)
        found = self._gathered(pinned)
        assert found == self._gathered(pinned), "once more"
        pinned.close()
        place = {root: (uri, root) for root, uri in documents.rows}
        expected = [
            (root, ordinal, size == len(body.encode()), bytes.fromhex(digest), body.encode())
            for root, ordinal, digest, size, body in chunks.rows
            if root in place
        ]
        assert found == sorted(expected, key=lambda row: (*place[row[0]], row[1]))
        assert len(found) > 30

    def test_what_stands_apart(self, folder: Path, pins: Path) -> None:
        """Rows of no listed document, and those of the documents named; nothing twice, nothing left out."""
        documents, chunks = self.corpus()
        chunks.rows.append((None, 0, leaf_hash(b"alone").hex(), 5, "alone"))
        pinned = self._pinned_corpus(folder, pins, documents, chunks)
        listed = {root for root, _ in documents.rows}
        for apart in ([], [documents.rows[0][0], documents.rows[3][0], "f" * 64]):
            wanted = [row for row in chunks.rows if row[0] not in listed or row[0] in apart]
            bodies = self._all(pinned.bodies_apart(BODIES, DOCUMENTS, apart))
            assert sorted(bodies) == sorted((row[2], row[4].encode()) for row in wanted)
            assert [digest for digest, _ in bodies] == sorted(row[2] for row in wanted)
            rows = self._all(pinned.rows_apart(BODIES, DOCUMENTS, COLUMNS[:4], apart))
            wanted.sort(key=lambda row: [part for cell in row[:4] for part in (sort_key(cell), canonical(cell))])
            assert rows == [row[:4] for row in wanted]
        pinned.close()

    def test_a_documents_body_that_is_null(self, folder: Path, pins: Path) -> None:
        documents, chunks = self.corpus()
        listed = {root for root, _ in documents.rows}
        row = next(place for place, row in enumerate(chunks.rows) if row[0] in listed)
        lacking = chunks.rows[row][2]
        chunks.rows[row] = (*chunks.rows[row][:4], None)
        pinned = self._pinned_corpus(folder, pins, documents, chunks)
        with pytest.raises(BadInput, match=rf"chunks\.content of leaf hash '?{lacking}"):
            self._gathered(pinned)
        pinned.close()

    def test_a_check_finds_nothing_in_a_whole_database(self, folder: Path, pins: Path) -> None:
        source = self.make_source(folder, "shard", {"t": Table(("a",), [(number,) for number in range(100)])})
        source.pin(pins / "pin")
        told: list[tuple[int, int]] = []
        source.check(pins / "pin", lambda done, total: told.append((done, total)))
        assert all(0 <= done <= total for done, total in told)
        assert source.concurrent in (True, False)


def _rows(batch: ChunkBatch) -> list[tuple[Any, ...]]:
    """A batch's rows, with the checks that it must pass by itself."""
    roots = [root for root, count in batch.runs for _ in range(count)]
    sizes, digests, count = list(batch.bodies.sizes), batch.bodies.digests(), len(roots)
    assert count > 0
    assert count == len(batch.ordinals) == len(batch.sized) == len(sizes) == len(digests)
    bodies = [b"".join(batch.bodies.pieces(place, place + 1)) for place in range(count)]
    assert list(map(len, bodies)) == sizes
    assert b"".join(batch.bodies.pieces(0, count)) == b"".join(bodies)
    assert b"".join(batch.bodies.pieces(count // 3, count // 2)) == b"".join(bodies[count // 3 : count // 2])
    assert [leaf_hash(body) for body in bodies] == digests
    assert b"".join(digests).hex() == batch.leaf_hashes
    return list(zip(roots, batch.ordinals, batch.sized, digests, bodies, strict=True))
