"""SQLite databases as sources: pinning by the backup API, ordered streaming reads of the pinned file."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pack_lib.errors import BadInput, Busy, PackError, StoreTrouble
from pack_lib.fsio import explain
from pack_lib.profile import Bodies, Documents
from pack_lib.progress import Progress, no_progress
from pack_lib.sources.base import ChunkBatch, Piece, PinnedSource
from pack_lib.values import encode_row, shown, text_cell

_VIRTUAL = re.compile(r"inverted index|\bRTree\b|virtual table", re.IGNORECASE)
_MAGIC = b"SQLite format 3\x00"
_BATCH_ROWS, _BATCH_BYTES = 512, 1 << 20
"""Rows are fetched some at a time: at most so many, and no more than have so many bytes if all were of the largest."""
_CACHE_KIB = 16 * 1024
_BUSY_SECONDS = 30.0
_SETTLED_SECONDS = 2.0
"""A change time older than this is moved by any write (the coarsest file systems count in two seconds)."""


def quoted(name: str) -> str:
    """An SQL identifier, whatever is in the name."""
    return '"' + name.replace('"', '""') + '"'


def connect_immutable(path: Path) -> sqlite3.Connection:
    """Read a file that nobody writes: no lock, no -wal or -shm beside it. Its cache is bounded, its sorts spill."""
    uri = f"file:{quote(os.fsencode(path.absolute()))}?mode=ro&immutable=1"
    connection = sqlite3.connect(uri, uri=True, check_same_thread=False, isolation_level=None)
    connection.execute(f"PRAGMA cache_size=-{_CACHE_KIB}")
    connection.execute("PRAGMA temp_store=FILE")
    connection.execute("PRAGMA trusted_schema=OFF")
    return connection


@contextlib.contextmanager
def sqlite_errors(where: str) -> Iterator[None]:
    """Turn what SQLite raises while reading ``where`` into one error of ours."""
    try:
        yield
    except sqlite3.OperationalError as error:
        text = str(error)
        if "readonly" in text or "read-only" in text:
            raise StoreTrouble(f"cannot write {where}: {text}; give write permission or choose another file") from error
        if "locked" in text or "busy" in text:
            raise Busy(f"{where} is locked by another process; run again when its writer is done") from error
        if "disk is full" in text or "disk I/O" in text:
            raise StoreTrouble(
                f"{where}: SQLite says {text!r}; free space on its disk and where temporary files go, then run again"
            ) from error
        raise BadInput(f"{where} cannot be read: {text}; check it with 'PRAGMA integrity_check'") from error
    except sqlite3.IntegrityError as error:
        raise BadInput(f"{where} refuses a row: {error}; give a profile whose schema has no such constraint") from error
    except sqlite3.DatabaseError as error:
        raise BadInput(
            f"{where} is damaged or no SQLite database: {error}; check it with 'PRAGMA integrity_check'"
        ) from error


class SqliteSource:
    """A live SQLite database file, also in WAL mode with a writer at work."""

    def __init__(self, path: Path) -> None:
        # SQLite keeps -wal and -shm beside the file itself, not beside a link to it.
        self.path = Path(os.path.realpath(path))
        self.location = os.fsencode(path).decode("utf-8", "backslashreplace")
        self.default_shard = path.stem

    def _header(self) -> bytes:
        try:
            if self.path.is_dir():
                raise BadInput(f"source {self.path} is a folder; give the path of a SQLite database")
            with self.path.open("rb") as file:
                header = file.read(100)
        except FileNotFoundError:
            raise BadInput(f"source {self.path} does not exist; check the path") from None
        except OSError as error:
            raise BadInput(f"source {self.path} cannot be read: {explain(error)}") from None
        if len(header) < 100 or not header.startswith(_MAGIC):
            raise BadInput(f"source {self.path} is not a SQLite database (its first bytes say so); check the path")
        return header

    def _beside(self, tail: str) -> Path:
        return self.path.with_name(self.path.name + tail)

    def size(self) -> int:
        self._header()
        return self.path.stat().st_size + self._size_beside("-wal")

    def _size_beside(self, tail: str) -> int:
        """Bytes of a companion file, 0 if there is none (a writer may remove it at any moment)."""
        try:
            return self._beside(tail).stat().st_size
        except FileNotFoundError:
            return 0

    def change_token(self) -> str:
        """Size, mtime and change counter of the file; size, mtime and header of its -wal."""
        header = self._header()
        stat = self.path.stat()
        token = f"{stat.st_size}-{stat.st_mtime_ns}-{header[24:28].hex()}"
        try:
            with self._beside("-wal").open("rb") as file:
                start, stat = file.read(32), os.fstat(file.fileno())
        except FileNotFoundError:
            return token
        return token if not start else f"{token}-{stat.st_size}-{stat.st_mtime_ns}-{start.hex()}"

    def pin(self, destination: Path, progress: Progress = no_progress) -> None:
        if not self._pin_at_rest(destination, progress):
            with sqlite_errors(f"source {self.path}"), self._hot_journal():
                self._copy(destination, immutable=False, progress=progress)
        self._check(destination)
        with destination.open("rb") as file:
            os.fsync(file.fileno())

    def _pin_at_rest(self, destination: Path, progress: Progress) -> bool:
        """Copy a WAL database that nobody has open without taking its locks; False, and no copy, if somebody has.

        A reader that takes locks would leave a new -shm and -wal beside it. The file's times show whether anything
        moved meanwhile, once they are so old that a commit now must change them, whatever the file system's tick.
        """
        if self._header()[18:20] != b"\x02\x02" or self._wal_in_use():
            return False
        age = time.time() - self.path.stat().st_ctime
        if 0 <= age < _SETTLED_SECONDS:
            time.sleep(_SETTLED_SECONDS - age)
        before = self._state()
        try:
            with sqlite_errors(f"source {self.path}"):
                self._copy(destination, immutable=True, progress=progress)
        except PackError:
            if self._at_rest(before):
                raise
        if self._at_rest(before):
            return True
        destination.unlink(missing_ok=True)
        return False

    def _state(self) -> tuple[str, int]:
        """The change token and the time of the last change of any kind, which nobody can set back."""
        return self.change_token(), self.path.stat().st_ctime_ns

    def _at_rest(self, state: tuple[str, int]) -> bool:
        return not self._wal_in_use() and self._state() == state

    def _wal_in_use(self) -> bool:
        return self._size_beside("-wal") > 0 or self._beside("-shm").exists()

    @contextlib.contextmanager
    def _hot_journal(self) -> Iterator[None]:
        """A journal that a dead writer left has to be rolled back before anyone can read, and that is a write."""
        try:
            yield
        except sqlite3.OperationalError as error:
            if self._size_beside("-journal") and "readonly" in str(error):
                raise BadInput(
                    f"source {self.path}: a writer died in a transaction and left {self.path.name}-journal; "
                    "open it once with sqlite3 (that rolls it back), then run again"
                ) from error
            raise

    def _copy(self, destination: Path, *, immutable: bool, progress: Progress) -> None:
        mode = "mode=ro&immutable=1" if immutable else "mode=ro"
        uri = f"file:{quote(os.fsencode(self.path))}?{mode}"
        with (
            contextlib.closing(sqlite3.connect(uri, uri=True, timeout=_BUSY_SECONDS, isolation_level=None)) as source,
            contextlib.closing(sqlite3.connect(destination, isolation_level=None)) as target,
        ):
            target.execute("PRAGMA journal_mode=OFF")
            target.execute("PRAGMA synchronous=OFF")
            # An open read transaction keeps the backup on one state: without it every commit of another process
            # starts it anew, and under a busy writer it never ends.
            source.execute("BEGIN")
            source.execute("SELECT count(*) FROM sqlite_master").fetchone()
            page = source.execute("PRAGMA page_size").fetchone()[0]
            source.backup(
                target,
                pages=2048,
                progress=lambda _status, left, pages: progress((pages - left) * page, pages * page),
            )

    def _check(self, pinned: Path) -> None:
        # The full check, which compares indexes with tables: we read in their order, so a row that an index lacks
        # would be missing from the pack. What virtual tables find wrong with themselves does not travel.
        with sqlite_errors(f"source {self.path}"), contextlib.closing(connect_immutable(pinned)) as connection:
            connection.execute("PRAGMA trusted_schema=ON")  # indexes on expressions, of the owner's own schema
            try:
                found = [str(row[0]) for row in connection.execute("PRAGMA integrity_check(100)")]
            except sqlite3.OperationalError:
                # An index on a function that only its application has: then the counting of rows must do.
                found = [str(row[0]) for row in connection.execute("PRAGMA quick_check(100)")]
        wrong = [text for text in found if text != "ok" and not _VIRTUAL.search(text)]
        if wrong:
            first = wrong[0].splitlines()[-1]
            raise BadInput(f"source {self.path} is damaged: {first}; mend it (sqlite3 .recover) before packing")

    def open_pinned(self, pinned: Path | None) -> PinnedSource:
        if pinned is None:
            self._header()
            if self._wal_in_use() or self._beside("-journal").exists():
                raise BadInput(
                    f"source {self.path} was declared immutable, but a -wal, -shm or -journal lies beside it"
                )
        return SqlitePinned(pinned or self.path, f"source {self.path}")


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
        together = " + ".join(f"coalesce(length({quoted(column)}), 0)" for column in columns)
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
        with sqlite_errors(self._where):
            # Every row of the table itself: what was read through an index is compared with this number.
            return int(self._connection.execute(f"SELECT count(*) FROM {quoted(table)} NOT INDEXED").fetchone()[0])

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

    def _holds_numbers(self, table: str, names: list[str]) -> bool:
        some = " OR ".join(f"typeof({name}) IN ('integer', 'real')" for name in names)
        with sqlite_errors(self._where):
            row = self._connection.execute(f"SELECT EXISTS(SELECT 1 FROM {quoted(table)} WHERE {some})").fetchone()
        return bool(row[0])

    def leaf_hashes(self, table: str, column: str) -> Iterator[list[str]]:
        name = quoted(column)
        for batch in self._cells(
            f"SELECT DISTINCT {name}{self._collate} FROM {quoted(table)} ORDER BY 1", self._largest(table, [column])
        ):
            values = [value for (value,) in batch]
            for value in values:
                if type(value) is not str:
                    raise BadInput(
                        f"{self._where}, {table}.{column}: {shown(value)} is no text; mend the row in the source"
                    )
            yield values

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
            runs = [(str(root, "ascii", "replace"), len(list(rows))) for root, rows in groupby(roots)]
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
            self._connection.executemany(
                "INSERT OR IGNORE INTO temp.cold_apart VALUES (?)", [(root,) for root in apart]
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
