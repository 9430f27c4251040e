"""SQLite as a source: the conformance suite, over journal modes, page sizes and encodings."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pack_lib.errors import BadInput
from pack_lib.sources import open_source
from pack_lib.sources.base import Source
from pack_lib.sources.sqlite import SqliteSource
from pack_lib.sources.sqlite_file import quoted
from pack_lib.testing.document_sources import DocumentSourceSuite
from pack_lib.testing.sources import Rows, Table
from pack_lib.values import RawText


def insert(db: sqlite3.Connection, table: str, rows: Rows) -> None:
    for row in rows:
        marks = ", ".join("CAST(? AS TEXT)" if isinstance(cell, RawText) else "?" for cell in row)
        cells = [cell.raw if isinstance(cell, RawText) else cell for cell in row]
        db.execute(f"INSERT INTO {quoted(table)} VALUES ({marks})", cells)


class TestSqliteSource(DocumentSourceSuite):
    pragmas: tuple[str, ...] = ()

    def make_source(self, folder: Path, name: str, tables: Mapping[str, Table]) -> Source:
        path = folder / f"{name}.db"
        with closing(sqlite3.connect(path, isolation_level=None)) as db:
            for pragma in self.pragmas:
                db.execute(f"PRAGMA {pragma}")
            db.execute("PRAGMA synchronous=OFF")
            db.execute("BEGIN")
            for table, made in tables.items():
                db.execute(f"CREATE TABLE {quoted(table)} ({', '.join(quoted(column) for column in made.columns)})")
                insert(db, table, made.rows)
            db.execute("COMMIT")
        return SqliteSource(path)

    def commit(self, source: Source, rows: Mapping[str, Rows]) -> None:
        with closing(sqlite3.connect(source.location, isolation_level=None, timeout=60)) as db:
            db.execute("PRAGMA synchronous=OFF")
            db.execute("BEGIN IMMEDIATE")
            for table, added in rows.items():
                insert(db, table, added)
            db.execute("COMMIT")

    def make_missing(self, folder: Path) -> Source | None:
        return SqliteSource(folder / "absent.db")


class TestSqliteInWalMode(TestSqliteSource):
    pragmas = ("journal_mode=WAL",)


class TestSqliteWithAWalOpen(TestSqliteSource):
    """A connection stays open, so commits stay in the -wal and no checkpoint moves them into the file."""

    pragmas = ("journal_mode=WAL",)

    @pytest.fixture(autouse=True)
    def _open_connections(self) -> Any:
        self._held: list[sqlite3.Connection] = []
        yield
        for connection in self._held:
            connection.close()

    def make_source(self, folder: Path, name: str, tables: Mapping[str, Table]) -> Source:
        source = super().make_source(folder, name, {})
        held = sqlite3.connect(source.location, isolation_level=None)
        self._held.append(held)
        held.execute("PRAGMA wal_autocheckpoint=0")
        held.execute("SELECT count(*) FROM sqlite_master").fetchall()
        for table, made in tables.items():
            held.execute(f"CREATE TABLE {quoted(table)} ({', '.join(quoted(column) for column in made.columns)})")
        held.execute("BEGIN")
        for table, made in tables.items():
            insert(held, table, made.rows)
        held.execute("COMMIT")
        return source

    def commit(self, source: Source, rows: Mapping[str, Rows]) -> None:
        with closing(sqlite3.connect(source.location, isolation_level=None, timeout=60)) as db:
            db.execute("PRAGMA wal_autocheckpoint=0")
            db.execute("PRAGMA synchronous=OFF")
            db.execute("BEGIN IMMEDIATE")
            for table, added in rows.items():
                insert(db, table, added)
            db.execute("COMMIT")

    def test_pin_leaves_the_source_alone(self, folder: Path, pins: Path) -> None:
        """As ever, but for the -shm, which is the connections' own shared memory."""
        from pack_lib.testing.sources import files_in

        source = self.make_source(folder, "shard", {"t": Table(("a",), [(n,) for n in range(1000)])})
        before = files_in(folder)
        pinned = self.pinned(source, pins)
        pinned.close()
        after = files_in(folder)
        assert list(after) == list(before)
        assert {name for name in after if after[name] != before[name]} <= {"shard.db-shm"}


class TestSqliteUtf16(TestSqliteSource):
    """The order of texts must not depend on the encoding."""

    pragmas = ("encoding='UTF-16le'", "page_size=1024")
    raw_text = False
    streamed = 12 << 20


class TestSqliteUtf16BigEndian(TestSqliteSource):
    pragmas = ("encoding='UTF-16be'", "page_size=65536", "journal_mode=PERSIST")
    raw_text = False
    streamed = 12 << 20


def test_opening_by_url(tmp_path: Path) -> None:
    for url in (f"{tmp_path}/a b.db", f"sqlite://{tmp_path}/a%20b.db", f"file://{tmp_path}/a%20b.db"):
        assert open_source(url).location == f"{tmp_path}/a b.db"
    with pytest.raises(BadInput, match=r"gopher://\.\.\. is not supported"):
        open_source("gopher://user:password@host/db")


@pytest.mark.parametrize(
    ("name", "shard"), [("a.db", "a"), ("shard-0.sqlite3", "shard-0"), ("a.b.db", "a.b"), ("plain", "plain")]
)
def test_default_shard(name: str, shard: str) -> None:
    assert SqliteSource(Path("/x") / name).default_shard == shard


@pytest.mark.parametrize("name", ["q?uery.db", "per%20cent.db", "ha#sh.db", "ün.db", "sp ace.db", "quo'te.db"])
def test_odd_file_names(tmp_path: Path, name: str) -> None:
    with closing(sqlite3.connect(tmp_path / name)) as db:
        db.execute("CREATE TABLE t(a)")
        db.execute("INSERT INTO t VALUES (1)")
        db.commit()
    source = SqliteSource(tmp_path / name)
    source.pin(tmp_path / "pin")
    for pinned in (tmp_path / "pin", None):
        opened = source.open_pinned(pinned)
        assert list(opened.rows("t", ["a"])) == [[(1,)]]
        opened.close()


def test_two_streams_of_one_pin_do_not_mix(tmp_path: Path) -> None:
    """Rows come as text, bodies as bytes, from one connection at once."""
    with closing(sqlite3.connect(tmp_path / "shard.db")) as db:
        db.execute("CREATE TABLE t(h, c)")
        db.executemany("INSERT INTO t VALUES (?, ?)", [(f"{n:064x}", f"body {n}") for n in range(3000)])
        db.commit()
    source = SqliteSource(tmp_path / "shard.db")
    source.pin(tmp_path / "pin")
    pinned = source.open_pinned(tmp_path / "pin")
    for rows, bodies in zip(pinned.rows("t", ["h", "c"]), pinned.bodies("t", "h", "c", "text"), strict=True):
        assert bodies == [(leaf, body.encode()) for leaf, body in rows]
        assert pinned.tables() == {"t": ("h", "c")}
    pinned.close()


def test_generated_and_virtual_columns_and_tables(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "shard.db")) as db:
        db.executescript(
            "CREATE TABLE g(a INTEGER PRIMARY KEY, b AS (a + 1), c AS (a + 2) STORED, d) ;"
            "CREATE TABLE w(k TEXT PRIMARY KEY, v) WITHOUT ROWID;"
            "CREATE VIEW v AS SELECT 1 AS x; CREATE TABLE auto(id INTEGER PRIMARY KEY AUTOINCREMENT);"
            "CREATE VIRTUAL TABLE f USING fts5(t); INSERT INTO auto VALUES (1);"
        )
    source = SqliteSource(tmp_path / "shard.db")
    source.pin(tmp_path / "pin")
    pinned = source.open_pinned(tmp_path / "pin")
    tables = pinned.tables()
    pinned.close()
    assert tables["g"] == ("a", "d")
    assert tables["w"] == ("k", "v")
    assert "v" not in tables
    assert not any(name.startswith("sqlite_") for name in tables)
    assert {"f", "f_data", "f_idx", "f_content", "f_docsize", "f_config", "auto"} <= set(tables)
