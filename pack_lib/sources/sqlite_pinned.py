"""Ordered streaming reads of a pinned SQLite file by the standard library's module."""

from __future__ import annotations

import contextlib
import hashlib
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from pack_lib.errors import BadInput, PackError
from pack_lib.lines import LineBlock, line_blocks
from pack_lib.profile import Bodies, Documents
from pack_lib.sources.base import ChunkBatch, Piece
from pack_lib.sources.sqlite_file import chained, connect_immutable, quoted, sqlite_errors
from pack_lib.values import encode_row, shown, text_cell

_BATCH_ROWS, _BATCH_BYTES = 512, 1 << 20
"""Rows are fetched some at a time: at most so many, and no more than have so many bytes if all were of the largest."""


class SqlitePinned:
    """Ordered streaming reads of a SQLite file that nobody writes."""

    def __init__(self, path: Path, where: str) -> None:
        self._where = where
        with sqlite_errors(where):
            self._connection = connect_immutable(path)
            encoding = self._connection.execute("PRAGMA encoding").fetchone()[0]
        # Whatever a column declares (NOCASE, RTRIM): the order is that of the bytes.
        self._collate = " COLLATE BINARY"
        if encoding != "UTF-8":
            # BINARY compares a UTF-16 database's text by its UTF-16 bytes; the order must not depend on that.
            self._connection.create_collation("cold_utf8", _compare_code_points)
            self._collate = " COLLATE cold_utf8"
        self._connection.create_function("cold_cell", 1, _cell_bytes, deterministic=True)
        self._ordered = False
        self._counts: dict[str, int] = {}

    def close(self) -> None:
        self._connection.close()

    def _batches(
        self, sql: str, text_factory: Callable[[bytes], Any], largest: int, skip: int = 0
    ) -> Iterator[list[tuple[Any, ...]]]:
        # text_factory is the connection's, but each cursor's rows are made while we hold the interpreter: set it
        # before each fetch, so that two streams of one connection do not take each other's.
        with sqlite_errors(self._where):
            cursor = self._connection.execute(sql)
        count = max(1, min(_BATCH_ROWS, _BATCH_BYTES // (largest + 1)))
        try:
            while True:
                with sqlite_errors(self._where):
                    self._connection.text_factory = text_factory
                    batch = cursor.fetchmany(count)
                if not batch:
                    return
                if skip >= len(batch):
                    skip -= len(batch)
                    continue
                yield batch[skip:] if skip else batch
                skip = 0
        finally:
            with contextlib.suppress(sqlite3.ProgrammingError):  # the connection was closed before: so is the cursor
                cursor.close()

    def _largest(self, table: str, columns: Sequence[str]) -> int:
        """Characters (or a blob's bytes) of the table's largest row, of these columns."""
        together = chained(" + ", [f"coalesce(length({quoted(column)}), 0)" for column in columns])
        with sqlite_errors(self._where):
            row = self._connection.execute(f"SELECT max({together}) FROM {quoted(table)} NOT INDEXED").fetchone()
        return int(row[0] or 0)

    def _cells(self, sql: str, largest: int) -> Iterator[list[tuple[Any, ...]]]:
        """Rows of cells. Nearly all text is UTF-8, and a decoder in C is twice as fast: the tolerant one takes over
        where the first text that is not turns up. The same statement over the same file gives the same sequence."""
        done = 0
        try:
            for batch in self._batches(sql, bytes.decode, largest):
                done += len(batch)
                yield batch
        except UnicodeDecodeError:
            yield from self._batches(sql, text_cell, largest, skip=done)

    def tables(self) -> dict[str, tuple[str, ...]]:
        found: dict[str, tuple[str, ...]] = {}
        with sqlite_errors(self._where):
            self._connection.text_factory = str
            names = self._connection.execute(
                "SELECT name FROM sqlite_master WHERE type='table' AND name NOT LIKE 'sqlite~_%' ESCAPE '~'"
            ).fetchall()
            for (name,) in names:
                try:
                    columns = self._connection.execute(f"PRAGMA table_xinfo({quoted(name)})").fetchall()
                except sqlite3.OperationalError:  # a virtual table whose module or tokenizer is not here
                    columns = []
                # hidden: 1 a virtual table's own, 2 and 3 generated; only 0 can be inserted
                found[name] = tuple(column[1] for column in columns if column[6] == 0)
        return found

    def count(self, table: str) -> int:
        if table not in self._counts:
            with sqlite_errors(self._where):
                # Every row of the table itself: what was read through an index is compared with this number.
                row = self._connection.execute(f"SELECT count(*) FROM {quoted(table)} NOT INDEXED").fetchone()
            self._counts[table] = int(row[0])
        return self._counts[table]

    def rows(self, table: str, columns: Sequence[str], *, exact: bool = False) -> Iterator[list[tuple[Any, ...]]]:
        names = [quoted(column) for column in columns]
        order = [name + self._collate for name in names]
        # Only numbers tie without being the same cell; where a table holds nothing but text and NULL the plain order
        # is exact, and the sorter is spared a function call a cell. (Text that is not UTF-8 reaches no function.)
        if exact and self._holds_numbers(table, names):
            tie = "CASE WHEN typeof({0}) IN ('integer', 'real') THEN cold_cell({0}) END"
            order = [term for name in names for term in (name + self._collate, tie.format(name))]
        sql = f"SELECT {', '.join(names)} FROM {quoted(table)} ORDER BY {', '.join(order)}"
        return self._cells(sql, self._largest(table, columns))

    def lines(self, table: str, columns: Sequence[str], *, fan_in: bool = False) -> Iterator[LineBlock]:
        return line_blocks(self.rows(table, columns, exact=fan_in), fan_in=fan_in)

    def _holds_numbers(self, table: str, names: list[str]) -> bool:
        some = chained(" OR ", [f"typeof({name}) IN ('integer', 'real')" for name in names])
        with sqlite_errors(self._where):
            row = self._connection.execute(f"SELECT EXISTS(SELECT 1 FROM {quoted(table)} WHERE {some})").fetchone()
        return bool(row[0])

    def leaf_hashes(self, table: str, column: str) -> Iterator[list[str]]:
        key = quoted(column) + self._collate
        sql = f"SELECT {key}, count(*) FROM {quoted(table)} GROUP BY {key} ORDER BY {key}"
        rows = 0
        for batch in self._cells(sql, self._largest(table, [column])):
            values = [value for value, _ in batch]
            rows += sum(count for _, count in batch)
            for value in values:
                if type(value) is not str:
                    raise BadInput(
                        f"{self._where}, {table}.{column}: {shown(value)} is no text; mend the row in the source"
                    )
            yield values
        if rows != self.count(table):
            raise BadInput(
                f"{self._where}, {table}.{column}: {rows:,} of {self.count(table):,} rows came by; an index is "
                "damaged: REINDEX it in the source"
            )

    def bodies(self, table: str, hash_column: str, content: str, kind: str) -> Iterator[list[tuple[str, bytes]]]:
        return self._bodies_where(table, hash_column, content, kind, "true")

    def _bodies_where(
        self, table: str, hash_column: str, content: str, kind: str, where: str
    ) -> Iterator[list[tuple[str, bytes]]]:
        key, body = quoted(hash_column), quoted(content)
        sql = (
            f"SELECT {key}, CASE typeof({body}) WHEN '{kind}' THEN {body} END FROM {quoted(table)} "
            f"WHERE {where} ORDER BY {key}{self._collate}"
        )
        for batch in self._batches(sql, bytes, self._largest(table, [content])):
            for leaf_hash, found in batch:
                if found is None:
                    raise self._no_body(table, hash_column, content, kind, leaf_hash)
            yield [(str(leaf_hash, "ascii"), found) for leaf_hash, found in batch]

    def document_chunks(self, bodies: Bodies, documents: Documents) -> Iterator[ChunkBatch]:
        self._order_documents(documents)
        sql = document_query(bodies)
        for batch in self._batches(sql, bytes, self._largest(bodies.table, [bodies.content])):
            roots, ordinals, stated, hashes, found = zip(*batch, strict=True)
            if None in found:
                where = bodies.table, bodies.hash, bodies.content, bodies.type
                raise self._no_body(*where, hashes[found.index(None)])
            runs = [(str(root, "utf-8", "surrogateescape"), len(list(rows))) for root, rows in groupby(roots)]
            column = RowBodies(found)
            sized = [size == there for size, there in zip(stated, column.sizes, strict=True)]
            yield ChunkBatch(runs, ordinals, sized, str(b"".join(hashes), "ascii"), column)

    def _order_documents(self, documents: Documents) -> None:
        """Number the documents in their order, in a temporary table of this connection."""
        if self._ordered:
            return
        with sqlite_errors(self._where):
            for statement in ordered_documents(documents, self._collate):
                self._connection.execute(statement)
        self._ordered = True

    def _apart(self, bodies: Bodies, documents: Documents, apart: Sequence[str]) -> str:
        """The condition for the rows of no document, or of one of these."""
        self._order_documents(documents)
        run = self._connection.execute
        with sqlite_errors(self._where):
            run("CREATE TEMP TABLE IF NOT EXISTS cold_apart(root TEXT PRIMARY KEY) WITHOUT ROWID")
            run("DELETE FROM temp.cold_apart")
            # In a UTF-8 database a root may be any bytes; in a UTF-16 one a cast would take them for UTF-16.
            utf8 = self._collate == " COLLATE BINARY"
            self._connection.executemany(
                f"INSERT OR IGNORE INTO temp.cold_apart VALUES ({'CAST(? AS TEXT)' if utf8 else '?'})",
                ((root.encode("utf-8", "surrogateescape") if utf8 else root,) for root in apart),
            )
        root = quoted(bodies.document or "")
        return (
            f"(typeof({root}) <> 'text' OR {root} COLLATE BINARY IN (SELECT root FROM temp.cold_apart) "
            f"OR {root} COLLATE BINARY NOT IN (SELECT root FROM temp.cold_ordered))"
        )

    def bodies_apart(
        self, bodies: Bodies, documents: Documents, apart: Sequence[str]
    ) -> Iterator[list[tuple[str, bytes]]]:
        where = self._apart(bodies, documents, apart)
        return self._bodies_where(bodies.table, bodies.hash, bodies.content, bodies.type, where)

    def rows_apart(
        self, bodies: Bodies, documents: Documents, columns: Sequence[str], apart: Sequence[str]
    ) -> Iterator[list[tuple[Any, ...]]]:
        names = [quoted(column) for column in columns]
        order = ", ".join(name + self._collate for name in names)
        where = self._apart(bodies, documents, apart)
        sql = f"SELECT {', '.join(names)} FROM {quoted(bodies.table)} WHERE {where} ORDER BY {order}"
        return self._cells(sql, self._largest(bodies.table, columns))

    def _no_body(self, table: str, hash_column: str, content: str, kind: str, leaf_hash: bytes) -> PackError:
        where = f"{self._where}, {table}.{content} of leaf hash {shown(leaf_hash.decode('ascii', 'replace'))}"
        with sqlite_errors(self._where):
            self._connection.text_factory = str
            found = self._connection.execute(
                f"SELECT typeof({quoted(content)}) FROM {quoted(table)} "
                f"WHERE {quoted(hash_column)} = ? AND typeof({quoted(content)}) <> ?",
                (leaf_hash.decode("ascii", "replace"), kind),
            ).fetchone()
        stored = found[0] if found else "null"
        if stored == "null":
            return BadInput(f"{where} is NULL; fill it (cold unpack) before packing")
        return BadInput(f"{where} is stored as {stored}, the profile says {kind}; mend the row or the profile's type")


def ordered_documents(documents: Documents, collate: str) -> tuple[str, ...]:
    """Statements that number the documents in their order (``place``, from 1) in temp.cold_ordered."""
    root = quoted(documents.root)
    least = [f"min({quoted(column)}{collate})" for column in documents.order]
    order = ", ".join([*least, f"{root}{collate}"])
    return (
        "CREATE TEMP TABLE cold_ordered(place INTEGER PRIMARY KEY, root TEXT)",
        f"INSERT INTO temp.cold_ordered(root) SELECT {root} FROM {quoted(documents.table)} "
        f"WHERE typeof({root}) = 'text' GROUP BY {root} COLLATE BINARY ORDER BY {order}",
        "CREATE UNIQUE INDEX temp.cold_ordered_root ON cold_ordered(root)",
    )


def document_query(bodies: Bodies) -> str:
    """Root, ordinal, size (-1: no integer), leaf hash and body of each row of a document, in document order."""
    root, ordinal, size, content = (
        quoted(name or "") for name in (bodies.document, bodies.ordinal, bodies.size, bodies.content)
    )
    return (
        f"SELECT o.root, CASE typeof(c.{ordinal}) WHEN 'integer' THEN c.{ordinal} ELSE -1 END, "
        f"CASE typeof(c.{size}) WHEN 'integer' THEN c.{size} ELSE -1 END, "
        f"c.{quoted(bodies.hash)}, CASE typeof(c.{content}) WHEN '{bodies.type}' THEN c.{content} END "
        f"FROM temp.cold_ordered o CROSS JOIN {quoted(bodies.table)} c "
        f"ON c.{root} COLLATE BINARY = o.root AND typeof(c.{root}) = 'text' ORDER BY o.place, c.{ordinal}"
    )


class RowBodies:
    """Bodies that lie in memory one by one."""

    def __init__(self, bodies: Sequence[bytes]) -> None:
        self._bodies = bodies
        self.sizes = list(map(len, bodies))

    def digests(self) -> list[bytes]:
        sha256 = hashlib.sha256
        return [sha256(b"\x00" + body).digest() for body in self._bodies]

    def pieces(self, start: int, stop: int) -> list[Piece]:
        return list(self._bodies[start:stop])


def _cell_bytes(value: Any) -> bytes:
    return encode_row((value,)).encode("utf-8", "surrogatepass")


def _compare_code_points(left: str, right: str) -> int:
    # UTF-8 bytes sort as code points do.
    return (left > right) - (left < right)
