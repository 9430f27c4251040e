"""The comparison must see every kind of difference, and only differences."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from examples import compare as module
from examples.compare import TABLES, compare, main


def changed(source: Path, *statements: str) -> Path:
    target = source.with_name("target.db")
    shutil.copy(source, target)
    with closing(sqlite3.connect(target)) as db:
        for statement in statements:
            assert db.execute(statement).rowcount != 0
        db.commit()
    return target


def different(source: Path, target: Path) -> set[str]:
    return {item.table for item in compare(source, target) if not item.equal}


def test_it_shares_no_code_with_the_packs() -> None:
    assert "import pack_lib" not in Path(module.__file__).read_text()
    assert "from pack_lib" not in Path(module.__file__).read_text()
    assert len(TABLES) == 13


def test_equal_whatever_the_order_of_rows(shard: Path, tmp_path: Path) -> None:
    target = changed(shard)
    with closing(sqlite3.connect(target)) as db:
        for table, columns in TABLES.items():
            rows = db.execute(f"SELECT * FROM {table}").fetchall()
            db.execute(f"DELETE FROM {table}")
            marks = ",".join("?" * len(columns))
            db.executemany(f"INSERT INTO {table} VALUES({marks})", reversed(rows))
        for table in ("chunks_fts", "documents_fts"):
            db.execute(f"INSERT INTO {table}({table}) VALUES('rebuild')")
        db.execute("DROP TABLE mesh_peers")
        db.commit()
    found = compare(shard, target)
    assert [item.table for item in found] == [*TABLES, "chunks_fts", "documents_fts"]
    assert all(item.equal and item.source_rows == item.target_rows > 0 for item in found)
    assert main([str(shard), str(target)]) == 0


@pytest.mark.parametrize(
    ("table", "statement"),
    [
        ("chunks", "UPDATE chunks SET content = content || ' ' WHERE rowid = 3"),
        ("chunks", "UPDATE chunks SET content = CAST(content AS BLOB) WHERE rowid = 3"),
        ("chunks", "UPDATE chunks SET content = NULL WHERE rowid = 3"),
        ("documents", "UPDATE documents SET added_at = NULL WHERE rowid = 1"),
        ("documents", "UPDATE documents SET mime = 'x' || substr(mime, 2) WHERE rowid = 1"),
        ("merkle_nodes", "DELETE FROM merkle_nodes WHERE rowid = 1"),
        ("edges", "DELETE FROM edges WHERE rowid = (SELECT max(rowid) FROM edges WHERE dst_uri = 'module:os')"),
        ("edges", "INSERT INTO edges SELECT * FROM edges LIMIT 1"),
        ("edges", "UPDATE edges SET anchor = '' WHERE anchor IS NULL"),
        ("term_aliases", "UPDATE term_aliases SET alias = upper(alias) WHERE alias = 'op'"),
        ("snapshots", "UPDATE snapshots SET n_chunks = CAST(n_chunks AS BLOB)"),
        ("concept_token_idf", "UPDATE concept_token_idf SET idf = idf + 1e-14 WHERE token = 'import'"),
        ("providence_cache", "DELETE FROM providence_cache"),
    ],
)
def test_sees_a_change(shard: Path, table: str, statement: str) -> None:
    target = changed(shard, statement)
    assert different(shard, target) == {table}
    assert different(target, shard) == {table}
    assert main([str(shard), str(target)]) == 1


def test_missing_duplicate_is_counted(shard: Path) -> None:
    target = changed(
        shard, "DELETE FROM edges WHERE rowid = (SELECT min(rowid) FROM edges WHERE dst_uri = 'module:os')"
    )
    edges = next(item for item in compare(shard, target) if item.table == "edges")
    assert edges.source_rows == edges.target_rows + 1
    assert (edges.only_source, edges.only_target) == (1, 1)


@pytest.mark.parametrize("other", ["'1'", "1.0"])
def test_types_differ_though_values_do_not(shard: Path, other: str) -> None:
    # Without a declared type a column keeps what it is given, so that 1, 1.0 and '1' can stand in it.
    paths = []
    for name, value in (("a.db", "1"), ("b.db", other)):
        path = shard.with_name(name)
        shutil.copy(shard, path)
        with closing(sqlite3.connect(path)) as db:
            db.execute("DROP TABLE term_aliases")
            db.execute("CREATE TABLE term_aliases(alias, term)")
            db.execute(f"INSERT INTO term_aliases VALUES({value}, 'x')")
            db.commit()
        paths.append(path)
    assert different(*paths) == {"term_aliases"}


def test_search_index_left_empty_is_seen(shard: Path) -> None:
    target = changed(shard, "INSERT INTO chunks_fts(chunks_fts) VALUES('delete-all')")
    assert different(shard, target) == {"chunks_fts"}


def test_search_answering_with_other_rows_is_seen(shard: Path) -> None:
    target = changed(
        shard,
        "INSERT INTO documents_fts(documents_fts) VALUES('delete-all')",
        "INSERT INTO documents_fts(rowid, title) SELECT 1 + d.rowid % (SELECT count(*) FROM documents), d.title"
        " FROM documents AS d",
    )
    assert different(shard, target) == {"documents_fts"}


def test_missing_table_and_column(shard: Path) -> None:
    target = changed(shard)
    with closing(sqlite3.connect(target)) as db:
        db.execute("DROP TABLE snapshots")
        db.execute("ALTER TABLE derivations ADD COLUMN more")
        db.execute("DROP TABLE chunks_fts")
    problems = {item.table: item.problem for item in compare(shard, target) if item.problem}
    assert problems["snapshots"] == "target has no such table"
    assert problems["derivations"] == "target has the columns derived_root, source_root, method, params, more"
    assert "chunks_fts" in problems


def test_rows_waiting_in_a_wal_count(shard: Path) -> None:
    target = changed(shard)
    with closing(sqlite3.connect(target)) as db:
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("DELETE FROM snapshots")
        db.commit()
        assert different(shard, target) == {"snapshots"}


def test_text_that_is_not_utf8(shard: Path) -> None:
    target = changed(shard, "UPDATE documents SET title = CAST(x'c328' AS TEXT) WHERE rowid = 1")
    assert "documents" in different(shard, target)
    assert different(target, target) == set()


def test_command_says_what_it_cannot_read(shard: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    junk = tmp_path / "junk.db"
    junk.write_bytes(b"no database, and long enough to be read as one" * 40)
    for path in (tmp_path / "none.db", junk):
        assert main([str(shard), str(path)]) == 1
        error = capsys.readouterr().err
        assert error.startswith("error: ") and error.count("\n") == 1


def test_neither_database_is_written_to(shard: Path) -> None:
    target = changed(shard)
    before = [path.read_bytes() for path in (shard, target)]
    compare(shard, target)
    assert [path.read_bytes() for path in (shard, target)] == before
    assert sorted(path.name for path in shard.parent.iterdir()) == ["shard-0.db", "target.db"]
