"""More ways in which data was once lost, altered or refused for no reason, each found by trying to break this."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from pack_lib.errors import BadInput
from pack_lib.hydrate import hydrate_set
from pack_lib.profile import load_profile
from pack_lib.sources import sqlite as sqlite_source
from pack_lib.sources.sqlite_file import chained
from pack_lib.sources.sqlite_pinned import SqlitePinned
from pack_lib.verify import verify_set
from tests.support import build, contents, leaf, make_shard, schema, shard_rows

PROFILE = load_profile("corpus")
# The live schema without keys and types: repeated rows and any cell have a place in it.
_KEYLESS = (
    schema().replace("    PRIMARY KEY(document_root, ordinal)\n", "").replace("content TEXT,\n", "content TEXT\n")
)
KEYLESS = re.sub(r"(\w+) (INTEGER|REAL|TEXT)( NOT NULL)?( PRIMARY KEY)?(?=[,\n])", r"\1", _KEYLESS)


@pytest.fixture(autouse=True)
def each_layout(in_each_layout: None) -> None:
    """`build` in it."""


@pytest.fixture(params=["Arrow", "rows"])
def reader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each way of reading a source."""
    if request.param == "rows":
        monkeypatch.setattr(sqlite_source, "arrow_available", lambda: False)


def changed(path: Path, *statements: str) -> Path:
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.create_function("application_s", 1, lambda cell: cell, deterministic=True)
        for statement in statements:
            db.execute(statement)
    return path


def made_with(path: Path, statements: str) -> Path:
    with closing(sqlite3.connect(path)) as db:
        db.executescript(statements)
    return path


@pytest.mark.usefixtures("reader")
@pytest.mark.parametrize("root", ["'\u00e9'", "CAST(x'ff61' AS TEXT)", "''", "upper(hex(zeroblob(32)))", "x'00'", "7"])
def test_a_document_of_any_root_is_packed(tmp_path: Path, root: str) -> None:
    body = "a body"
    shard = changed(
        made_with(tmp_path / "shard.db", KEYLESS),
        f"INSERT INTO documents VALUES ({root}, 'uri', NULL, NULL, 1, NULL)",
        f"INSERT INTO chunks VALUES ({root}, 0, '{leaf(body.encode())}', {len(body)}, '{body}')",
    )
    profile = replace(PROFILE, schema=KEYLESS)
    built = build(shard, tmp_path, profile=profile)
    hydrate_set(built.store, built.set, tmp_path / "target.db", profile)
    assert contents(tmp_path / "target.db") == contents(shard)
    assert verify_set(built.store, built.set, profile).complete


@pytest.mark.usefixtures("reader")
@pytest.mark.parametrize("foreign", ["edges(application_s(dst_uri))", "chunks(application_s(document_root))"])
def test_an_index_that_lacks_rows_is_found_beside_one_that_cannot_be_checked(tmp_path: Path, foreign: str) -> None:
    """SQLite's check stops at an index on a function that only the application has."""
    shard = changed(
        make_shard(tmp_path / "shard.db", 12),
        "DROP INDEX chunks_leaf_hash",
        "CREATE INDEX part ON chunks(leaf_hash) WHERE ordinal <> 1",
        f"CREATE INDEX foreign_ ON {foreign}",
        "PRAGMA writable_schema=ON",
        "UPDATE sqlite_master SET sql = 'CREATE INDEX part ON chunks(leaf_hash)' WHERE name = 'part'",
    )
    with pytest.raises(BadInput, match=r"is damaged: .*index part|an index is damaged: REINDEX"):
        build(shard, tmp_path)
    assert not list((tmp_path / "store").rglob("*.tar.zst"))


@pytest.mark.usefixtures("reader")
def test_a_database_with_an_index_that_cannot_be_checked_is_packed(tmp_path: Path) -> None:
    shard = changed(make_shard(tmp_path / "shard.db", 12), "CREATE INDEX foreign_ ON edges(application_s(dst_uri))")
    assert build(shard, tmp_path).set.chunks


@pytest.mark.parametrize(
    "more",
    [
        "SELECT * FROM merkle_nodes LIMIT 4",
        "SELECT node_hash, left_hash, right_hash, 99 FROM merkle_nodes LIMIT 4",
        "SELECT node_hash, left_hash, right_hash, CAST(level AS REAL) FROM merkle_nodes LIMIT 4",
    ],
    ids=["repeated", "other cells", "another type"],
)
@pytest.mark.parametrize("there", [False, True], ids=["new file", "empty tables"])
def test_rows_beside_derived_ones_all_arrive(tmp_path: Path, more: str, there: bool) -> None:
    profile = replace(PROFILE, schema=KEYLESS)
    shard = made_with(tmp_path / "shard.db", KEYLESS)
    with closing(sqlite3.connect(shard)) as db, db:
        for table, rows in shard_rows(12).items():
            for row in rows:
                db.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", row)
    changed(shard, f"INSERT INTO merkle_nodes {more}")
    built = build(shard, tmp_path, profile=profile, cap=40_000)
    target = tmp_path / "target.db"
    if there:
        made_with(target, KEYLESS)
    done = hydrate_set(built.store, built.set, target, profile)
    assert contents(target) == contents(shard)
    assert done.conflicts == []
    again = hydrate_set(built.store, built.set, target, profile)
    assert not again.changed and not again.conflicts
    assert contents(target) == contents(shard)


@pytest.mark.parametrize("where", ["cell", "body"])
@pytest.mark.parametrize("text", ["\ufffe", "a\uffff"])
def test_a_utf16_target_refuses_what_it_would_alter(tmp_path: Path, where: str, text: str) -> None:
    shard = make_shard(tmp_path / "shard.db", 12)
    with closing(sqlite3.connect(shard)) as db, db:
        if where == "cell":
            db.execute("INSERT INTO term_aliases VALUES ('x', ?)", (text,))
        else:
            raw = text.encode()
            db.execute("INSERT INTO chunks VALUES (NULL, 9, ?, ?, ?)", (leaf(raw), len(raw), text))
    built = build(shard, tmp_path)
    target = made_with(tmp_path / "target.db", "PRAGMA encoding='UTF-16le';" + schema())
    before = target.read_bytes()
    with pytest.raises(BadInput, match=r"UTF-16 database and does not keep U\+FFFE or U\+FFFF.*use a UTF-8 one"):
        hydrate_set(built.store, built.set, target, PROFILE)
    assert target.read_bytes() == before


@pytest.mark.parametrize(
    "spoil",
    [
        lambda sql: sql.replace("anchor TEXT\n", "anchor TEXT, UNIQUE(dst_uri, edge_type) ON CONFLICT REPLACE\n"),
        lambda sql: (
            sql + "CREATE TRIGGER gone AFTER INSERT ON edges BEGIN DELETE FROM edges WHERE rowid = new.rowid; END;"
        ),
    ],
    ids=["REPLACE", "trigger"],
)
def test_a_target_that_removes_rows_is_refused(tmp_path: Path, spoil: Callable[[str], str]) -> None:
    built = build(make_shard(tmp_path / "shard.db", 12), tmp_path)
    assert spoil(schema()) != schema()
    target = made_with(tmp_path / "target.db", spoil(schema()))
    before = target.read_bytes()
    with pytest.raises(BadInput, match=r"table edges has \d+ rows where [\d,]+ should be: .*nothing was changed"):
        hydrate_set(built.store, built.set, target, PROFILE)
    assert target.read_bytes() == before


def test_tables_of_very_many_columns_are_read(tmp_path: Path) -> None:
    names = [f"column {number}" for number in range(1500)]
    columns = ", ".join(f'"{name}"' for name in names)
    path = made_with(tmp_path / "wide.db", f"CREATE TABLE t({columns}); INSERT INTO t DEFAULT VALUES;")
    with closing(SqlitePinned(path, "here")) as pinned:
        assert list(pinned.rows("t", names, exact=True)) == [[(None,) * 1500]]


@pytest.mark.parametrize("count", range(1, 12))
def test_chained_keeps_the_order_of_its_terms(count: int) -> None:
    terms = [str(number) for number in range(count)]
    assert re.findall(r"\d+", chained(" + ", terms)) == terms
