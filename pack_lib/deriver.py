"""Putting into a target the rows that follow from documents and are not shipped. docs/format.md, "Derived rows"."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

from pack_lib.bodies import derived_tables
from pack_lib.columnar import Derived
from pack_lib.derived import chunk_rows, node_rows
from pack_lib.errors import Damaged
from pack_lib.fit import Fit
from pack_lib.hashing import NODE_LENGTH
from pack_lib.merge import Merge
from pack_lib.pack.tarstream import Document
from pack_lib.profile import ShippedTable
from pack_lib.sorting import RecordSorter, batched
from pack_lib.sources.sqlite_file import quoted
from pack_lib.target import Target
from pack_lib.values import text_cell

_BATCH_BYTES = 1 << 20
_BATCH_ROWS = 512
_NODES = 4096


class Fill(Protocol):
    """What became of a table's rows, counted."""

    rows: int
    inserted: int
    present: int
    conflicts: int


class Deriver:
    """Takes documents as they come by. Chunks' rows go in at once, Merkle nodes at the end, in their order."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._profile = target.profile
        self.tables: dict[str, Derived] = {}
        """What the packs say."""
        self.rows: dict[str, int] = {}
        """Derived so far."""
        self._shipped: dict[str, ShippedTable] = {}
        self._absent: dict[str, frozenset[str]] = {}
        self._nodes = RecordSorter(NODE_LENGTH)
        self._merge: Merge | None = None

    def begin(self, name: str, derived: Derived, where: str) -> None:
        """A pack says that rows of a table are derived. Raises Damaged if the profile does not say how."""
        if self.tables.get(name) == derived:
            return
        table = self._profile.table(name)
        if table is None or name not in derived_tables(self._profile) or name in self.tables:
            raise Damaged(f"{where}: rows of {name} are derived; give the profile it was packed with")
        self.tables[table.name] = derived
        self.rows[table.name] = 0
        self._shipped[table.name] = table
        self._absent[table.name] = frozenset(derived.absent)
        bodies, nodes = self._profile.bodies, self._profile.nodes
        example: list[Any] = []
        if table.name == bodies.table:
            example += chunk_rows(bodies, table.columns, "0" * 64, [bytes(32)], [1])
        elif nodes is not None:
            example += node_rows(nodes, table.columns, [bytes(NODE_LENGTH)])
        Fit(self._target, table).check(example)

    def insert(self, documents: list[Document], fills: dict[str, Any]) -> list[Document]:
        """Insert what follows from these documents. Returns those whose bodies are still to be placed by leaf hash."""
        bodies = self._profile.bodies
        if self._profile.nodes is not None and self._profile.nodes.table in self.tables:
            for document in documents:
                self._nodes.add(document.nodes)
        if bodies.table not in self.tables:
            return documents
        table, absent = self._shipped[bodies.table], self._absent[bodies.table]
        plain = [document for document in documents if document.root not in absent]
        count = sum(len(document.leaves) for document in plain)
        self.rows[table.name] += count
        fill: Fill = fills[table.name]
        fill.rows += count
        if not self._target.fresh:
            for document in plain:
                self._merge_document(table, document)
            return documents
        fill.inserted += self._insert_chunks(table, plain)
        return [document for document in documents if document.root in absent]

    def _insert_chunks(self, table: ShippedTable, documents: list[Document]) -> int:
        """All rows of these documents with their bodies. Returns how many were inserted."""
        bodies = self._profile.bodies
        into, columns = quoted(table.name), (*table.columns, bodies.content)
        inserted, size, cells = 0, 0, list[Any]()
        for document in documents:
            found = _cells_of(document.bodies, text=bodies.type == "text")
            if found is None:  # too many bytes for memory, or a text that is no UTF-8
                inserted += self._target.insert_cells(into, columns, cells)
                size, cells = 0, []
                for some in in_batches(self._with_bodies(table, [document])):
                    inserted += self._target.insert(into, columns, some)
                continue
            rows = chunk_rows(bodies, table.columns, document.root, document.leaves, document.sizes)
            for row, body in zip(rows, found, strict=True):
                cells += row
                cells.append(body)
            size += sum(document.sizes)
            if size > _BATCH_BYTES:
                inserted += self._target.insert_cells(into, columns, cells)
                size, cells = 0, []
        return inserted + self._target.insert_cells(into, columns, cells)

    def _with_bodies(self, table: ShippedTable, documents: list[Document]) -> Iterator[Any]:
        bodies = self._profile.bodies
        text = bodies.type == "text"
        for document in documents:
            rows = chunk_rows(bodies, table.columns, document.root, document.leaves, document.sizes)
            for row, body in zip(rows, document.bodies, strict=True):
                yield (*row, text_cell(body) if text else body)

    def _merge_document(self, table: ShippedTable, document: Document) -> None:
        bodies = self._profile.bodies
        if self._merge is None:
            self._merge = Merge(self._target, table)
        names = ", ".join(quoted(column) for column in table.columns)
        there = self._target.connection.execute(
            f"SELECT {names} FROM {quoted(table.name)} WHERE {quoted(bodies.document or '')} = ? COLLATE BINARY",
            (document.root,),
        ).fetchall()
        rows = chunk_rows(bodies, table.columns, document.root, document.leaves, document.sizes)
        self._merge.add_now(there, rows)

    def finish(self, fills: dict[str, Any], merge_of: Callable[[ShippedTable], Merge | None]) -> list[str]:
        """Insert the nodes, or add them to what is merged, and count the rest. Returns the first conflicts in words."""
        named: list[str] = []
        nodes = self._profile.nodes
        if self._merge is not None:
            named += _count(self._merge, fills[self._profile.bodies.table])
            self._merge.drop()
        if nodes is None or nodes.table not in self.tables:
            return named
        table, absent, fill = self._shipped[nodes.table], self._absent[nodes.table], fills[nodes.table]
        merge = merge_of(table)
        for records in batched(self._nodes.sorted(), _NODES):
            rows = node_rows(nodes, table.columns, records)
            if absent:
                key = table.columns.index(nodes.node)
                rows = [row for row in rows if row[key] not in absent]
            self.rows[table.name] += len(rows)
            fill.rows += len(rows)
            if merge is None:
                fill.inserted += self._target.insert(quoted(table.name), table.columns, rows)
            else:
                merge.add(rows)
        self._nodes.close()
        return named

    def incomplete(self) -> list[str]:
        """Tables of which the documents seen gave fewer rows than their header lines say."""
        return [name for name, derived in self.tables.items() if self.rows[name] != derived.rows]


def _cells_of(bodies: Any, *, text: bool) -> list[Any] | None:
    """Bodies in memory as cells; None if they are elsewhere, or one is a text that is no UTF-8."""
    if not isinstance(bodies, list):
        return None
    if not text:
        return bodies
    try:
        return [str(body, "utf-8") for body in bodies]
    except UnicodeDecodeError:
        return None


def _count(merge: Merge, fill: Fill) -> list[str]:
    fill.inserted += merge.inserted
    fill.present += merge.present
    fill.conflicts += merge.conflicts
    return merge.named


def in_batches(rows: Iterable[Any]) -> Iterator[list[Any]]:
    """Rows, the last cell of which is a body, at most 512 and about 1 MiB at a time."""
    batch: list[Any] = []
    size = 0
    for row in rows:
        batch.append(row)
        body = row[-1]
        size += len(body) if isinstance(body, (str, bytes)) else 0
        if size > _BATCH_BYTES or len(batch) == _BATCH_ROWS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
