"""SQLite databases as sources: pinning by the backup API."""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from pack_lib.errors import BadInput, PackError
from pack_lib.fsio import explain
from pack_lib.progress import Progress, no_progress
from pack_lib.sources.arrow_stream import arrow_available
from pack_lib.sources.base import PinnedSource
from pack_lib.sources.sqlite_arrow import ArrowPinned
from pack_lib.sources.sqlite_file import connect_immutable, interruptible, quoted, sqlite_errors
from pack_lib.sources.sqlite_pinned import SqlitePinned

_VIRTUAL = re.compile(r"inverted index|\bRTree\b|virtual table", re.IGNORECASE)
_MAGIC = b"SQLite format 3\x00"
_BUSY_SECONDS = 30.0
_SETTLED_SECONDS = 2.0
"""A change time older than this is moved by any write (the coarsest file systems count in two seconds)."""


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

    @property
    def concurrent(self) -> bool:
        return arrow_available()  # rows of the standard library's module are made one by one under the interpreter

    def check(self, pinned: Path | None, progress: Progress = no_progress) -> None:
        # The full check, which compares indexes with tables: we read in their order, so a row that an index lacks
        # would be missing from the pack. What virtual tables find wrong with themselves does not travel.
        path = pinned or self.path
        with sqlite_errors(f"source {self.path}"), contextlib.closing(connect_immutable(path)) as connection:
            connection.execute("PRAGMA trusted_schema=ON")  # indexes on expressions, of the owner's own schema
            with interruptible(connection, lambda: progress(0, path.stat().st_size)):
                found = _integrity(connection)
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
        reader = ArrowPinned if arrow_available() else SqlitePinned
        return reader(pinned or self.path, f"source {self.path}")


def _integrity(connection: sqlite3.Connection) -> list[str]:
    """What SQLite finds wrong; ["ok"] if nothing is."""

    def found(pragma: str) -> list[str]:
        return [str(row[0]) for row in connection.execute(f"PRAGMA {pragma}")]

    try:
        return found("integrity_check(100)")
    except sqlite3.OperationalError:
        # An index on a function that only its application has: its table alone must do with less, and with the
        # counting of its rows.
        tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    wrong = [text for text in found("quick_check(100)") if text != "ok"]
    for (name,) in tables:
        try:
            wrong += [text for text in found(f"integrity_check({quoted(name)})") if text != "ok"]
        except sqlite3.OperationalError:
            continue
    return wrong or ["ok"]
