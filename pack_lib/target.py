"""The database that hydration fills: a fresh one under a temporary name, or an existing one inside one transaction.

Whatever goes wrong, the target is as it was: a fresh file is removed, a transaction rolled back.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from pack_lib.errors import BadInput, Busy, NotFound
from pack_lib.fsio import sync_folder, writing
from pack_lib.profile import FTS_SHADOWS, Profile
from pack_lib.sources.sqlite_file import quoted, sqlite_errors
from pack_lib.values import RawText, text_cell

_CACHE_KIB = 64 * 1024
_ROWS_A_STATEMENT = 100
_SHADOWS = (*FTS_SHADOWS, "_node", "_rowid", "_parent")


class Target:
    """See the module. ``fresh`` says whether the file is new; use it as a context manager."""

    def __init__(self, path: Path, profile: Profile) -> None:
        self.where = f"target {path}"
        path = Path(os.path.realpath(path))  # a link stays one, and the file is made where it points
        self.path = path
        self.profile = profile
        with writing(path):
            self.fresh = not path.exists() or path.stat().st_size == 0
        self._temporary = path.with_name(f".tmp-{path.name}.unpack")
        self._lock = -1
        if path.is_dir():
            raise BadInput(f"target {path} is a folder; give the path of a database file")
        if self.fresh:
            for tail in ("-wal", "-shm", "-journal"):
                stray = path.with_name(path.name + tail)
                if stray.exists():
                    raise BadInput(f"{stray} lies beside target {path}, which is not there; move it away first")

    def __enter__(self) -> Target:
        if self.fresh:
            self._open_temporary()
        opened = self._temporary if self.fresh else self.path
        with sqlite_errors(self.where):
            self.connection = sqlite3.connect(opened, isolation_level=None, timeout=30)
            self.connection.text_factory = text_cell
            self._most_cells = self.connection.getlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER)
            run = self.connection.execute
            if self.fresh:
                run("PRAGMA journal_mode=OFF")
                run("PRAGMA synchronous=OFF")
                run("PRAGMA locking_mode=EXCLUSIVE")
            run(f"PRAGMA cache_size=-{_CACHE_KIB}")
            run("PRAGMA temp_store=FILE")
            run("PRAGMA foreign_keys=OFF")
            run("BEGIN IMMEDIATE")
            self.utf8 = run("PRAGMA encoding").fetchone()[0] == "UTF-8"
        return self

    def _open_temporary(self) -> None:
        """The temporary file's own lock keeps two processes from filling it at once; a dead one's is taken over."""
        if not self.path.parent.is_dir():
            raise NotFound(f"folder {self.path.parent} of target {self.path.name} does not exist; create it first")
        busy = Busy(f"target {self.path} is being filled by another process; wait for it to end")
        with writing(self.path):
            self._lock = os.open(self._temporary, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(self._lock)
                self._lock = -1
                raise busy from None
            if not self._is_ours():  # the process that had it has just given it its name
                os.close(self._lock)
                self._lock = -1
                raise busy
            os.ftruncate(self._lock, 0)

    def _is_ours(self) -> bool:
        """Whether the temporary name still is the file whose lock we hold."""
        try:
            return os.path.samestat(os.fstat(self._lock), self._temporary.stat())
        except FileNotFoundError:
            return False

    def commit(self) -> None:
        """Make everything durable: end the transaction, and give a fresh file its name."""
        with sqlite_errors(self.where):
            self.connection.execute("COMMIT")
            self.connection.close()
        if self.fresh:
            with writing(self.path):
                os.fsync(self._lock)
                if self.path.exists() and self.path.stat().st_size:
                    raise Busy(f"target {self.path} appeared while it was being filled; nothing was changed in it")
                self._temporary.replace(self.path)
                sync_folder(self.path.parent)

    def __exit__(self, *exception: object) -> None:
        with contextlib.suppress(sqlite3.Error):  # closing rolls back what was not committed
            self.connection.close()
        if self._lock >= 0:
            if self._is_ours():
                self._temporary.unlink(missing_ok=True)
            os.close(self._lock)

    def tables(self) -> set[str]:
        """Names of tables in lower case, as SQLite compares them."""
        rows = self.connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        return {str(name).lower() for (name,) in rows}

    def columns(self, table: str) -> list[str]:
        """Insertable columns."""
        found = self.connection.execute(f"PRAGMA table_xinfo({quoted(table)})").fetchall()
        return [str(column[1]) for column in found if column[6] == 0]

    def count(self, table: str) -> int:
        return int(self.connection.execute(f"SELECT count(*) FROM {quoted(table)} NOT INDEXED").fetchone()[0])

    def create(self, kinds: tuple[str, ...]) -> None:
        """Create what the profile's schema has and the target lacks: ('table',), ('index',) or ('virtual',).

        Raises BadInput if the target lacks a shipped table and the profile has no schema, or lacks a column.
        """
        there = {str(n).lower() for (n,) in self.connection.execute("SELECT name FROM sqlite_master").fetchall()}
        for kind, name, sql in _schema(self.profile):
            if kind in kinds and name.lower() not in there:
                self.connection.execute(sql)
        if "table" not in kinds:
            return
        for table in self.profile.ship:
            wanted = [
                *table.columns,
                *([self.profile.bodies.content] if table.name == self.profile.bodies.table else []),
            ]
            columns = {column.lower() for column in self.columns(table.name)}
            missing = [column for column in wanted if column.lower() not in columns]
            if missing:
                what = (
                    f"column {table.name}.{missing[0]}"
                    if table.name.lower() in self.tables()
                    else f"table {table.name}"
                )
                raise BadInput(f"{self.where} has no {what}; give a database with this profile's schema or a new file")

    def insert(self, into: str, columns: tuple[str, ...], rows: list[Any]) -> int:
        """Insert rows of cells; ``into`` is a table's name in SQL. A text that is not UTF-8 arrives as its bytes.

        Returns how many rows were inserted: a trigger of the target's may keep some out.
        """
        cells = list(chain.from_iterable(rows))
        self.check_texts(cells)
        if RawText not in set(map(type, cells)):
            return self.insert_cells(into, columns, cells)
        head = self._head(into, columns)
        if not self.utf8:
            raise BadInput(f"{self.where} is a UTF-16 database and cannot hold text that is not UTF-8; use a UTF-8 one")
        inserted = 0
        for row in rows:
            marks = ", ".join("CAST(? AS TEXT)" if type(cell) is RawText else "?" for cell in row)
            values = [cell.raw if type(cell) is RawText else cell for cell in row]
            inserted += self.connection.execute(head + f"({marks})", values).rowcount
        return inserted

    def check_texts(self, cells: Iterable[Any]) -> None:
        """Raises BadInput for a text that this database would not keep: SQLite makes U+FFFE and U+FFFF of UTF-8 into
        U+FFFD of UTF-16."""
        if self.utf8:
            return
        for cell in cells:
            if isinstance(cell, str) and ("\ufffe" in cell or "\uffff" in cell):
                raise BadInput(
                    f"{self.where} is a UTF-16 database and does not keep U+FFFE or U+FFFF in a text; use a UTF-8 one"
                )

    @staticmethod
    def _head(into: str, columns: tuple[str, ...]) -> str:
        return f"INSERT INTO {into} ({', '.join(quoted(column) for column in columns)}) VALUES "

    def insert_cells(self, into: str, columns: tuple[str, ...], cells: list[Any]) -> int:
        """`insert` of rows one after the other in one list, of which no cell is a RawText."""
        # A statement of many rows takes about half the time of as many statements, and means the same.
        head, width = self._head(into, columns), len(columns)
        marks = f"({', '.join('?' * width)})"
        count = max(1, min(_ROWS_A_STATEMENT, self._most_cells // width))
        whole = len(cells) // (count * width) * count * width
        statement, inserted = head + ", ".join([marks] * count), 0
        for start in range(0, whole, count * width):
            inserted += self.connection.execute(statement, cells[start : start + count * width]).rowcount
        rest = (cells[start : start + width] for start in range(whole, len(cells), width))
        return inserted + max(0, self.connection.executemany(head + marks, rest).rowcount)


def _schema(profile: Profile) -> Iterator[tuple[str, str, str]]:
    """(kind, name, statement) of each object of the profile's schema, tables before what needs them."""
    if profile.schema is None:
        return
    with contextlib.closing(sqlite3.connect(":memory:")) as scratch:
        try:
            scratch.executescript(profile.schema)
        except sqlite3.Error as error:
            raise BadInput(f"the schema of profile {profile.name} cannot be created here: {error}") from None
        found = scratch.execute("SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
    virtual = {name for kind, name, sql in found if kind == "table" and sql.upper().startswith("CREATE VIRTUAL")}
    for kind, name, sql in found:
        if name in virtual:
            yield "virtual", name, sql
        elif kind == "table" and any(name == owner + tail for owner in virtual for tail in _SHADOWS):
            continue  # a shadow table: its virtual table makes it
        else:
            yield kind, name, sql
