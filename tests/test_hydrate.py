"""Hydration: row for row into a new file, nothing the second time, only what lacks in one that has rows, all or
nothing on trouble."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from examples.compare import compare
from pack_lib.errors import BadInput, Busy, Damaged, NotFound, PackError
from pack_lib.hydrate import hydrate_pack, hydrate_set
from pack_lib.pack.blob import FileBlob
from pack_lib.pack.reader import PackReader
from pack_lib.profile import load_profile
from pack_lib.stores.local import LocalStore
from tests.support import Built, build, contents, hydrate, make_shard, shard_rows, write_shard

PROFILE = load_profile()


@contextmanager
def changing(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path)) as db, db:
        yield db


def listing(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


def logical(path: Path) -> list[str]:
    """Every statement that would make the database again."""
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as db:
        return list(db.iterdump())


@pytest.fixture(scope="module")
def real_set(real_shard: Path, tmp_path_factory: pytest.TempPathFactory, layout: int) -> Built:
    cap = {2: 400_000, 3: 150_000}[layout]
    return build(real_shard, tmp_path_factory.mktemp("real-set"), cap=cap, layout=layout)


@pytest.fixture(scope="module")
def filled(real_set: Built, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("filled") / "target.db"
    report = hydrate(real_set, target)
    assert report.fresh and report.changed and not report.conflict_count and not report.without_body
    assert report.packs == len(real_set.set.packs) > 1
    return target


@pytest.fixture
def copy(filled: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(filled, tmp_path / "target.db"))


def test_a_new_file_is_the_source_row_for_row(real_shard: Path, filled: Path) -> None:
    found = compare(real_shard, filled)
    assert len(found) == 15 and [item for item in found if not item.equal] == []
    assert all(item.source_rows for item in found)
    assert contents(filled) == contents(real_shard)
    assert listing(filled.parent) == ["target.db"]


def test_the_schema_is_the_live_one_and_sound(real_shard: Path, filled: Path) -> None:
    query = "SELECT type, name, sql FROM sqlite_master WHERE name NOT LIKE 'm%' AND name NOT LIKE 'sqlite%' ORDER BY 2"
    with closing(sqlite3.connect(filled)) as db, closing(sqlite3.connect(real_shard)) as live:
        assert db.execute(query).fetchall() == live.execute(query).fetchall()
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        for table in ("chunks_fts", "documents_fts"):
            db.execute(f"INSERT INTO {table}({table}, rank) VALUES('integrity-check', 1)")
        assert not db.execute("SELECT 1 FROM sqlite_master WHERE name IN ('meta', 'mesh_peers')").fetchall()


def test_search_answers_as_in_the_source(real_shard: Path, filled: Path) -> None:
    query = (
        "SELECT leaf_hash FROM chunks_fts JOIN chunks ON chunks.rowid = chunks_fts.rowid "
        "WHERE chunks_fts MATCH 'import AND return' ORDER BY 1"
    )
    with closing(sqlite3.connect(filled)) as db, closing(sqlite3.connect(real_shard)) as live:
        assert db.execute(query).fetchall() == live.execute(query).fetchall() != []


def test_a_second_time_changes_nothing(real_set: Built, copy: Path) -> None:
    before, bytes_before = logical(copy), copy.read_bytes()
    report = hydrate(real_set, copy)
    assert not report.changed and not report.fresh and not report.rebuilt and not report.conflict_count
    assert (report.filled, report.unplaced, report.without_body) == (0, 0, 0)
    assert all(fill.rows == fill.present and not fill.inserted for fill in report.tables.values())
    assert copy.read_bytes() == bytes_before and logical(copy) == before
    assert listing(copy.parent) == ["target.db"]


def test_an_empty_file_counts_as_new(real_set: Built, real_shard: Path, tmp_path: Path) -> None:
    (tmp_path / "target.db").touch()
    assert hydrate(real_set, tmp_path / "target.db").fresh
    assert contents(tmp_path / "target.db") == contents(real_shard)


def test_a_database_with_rows_gets_what_it_lacks(real_set: Built, real_shard: Path, copy: Path) -> None:
    chooser = random.Random(5)
    with changing(copy) as db:
        lost = {}
        for table in PROFILE.ship:
            rowids = [rowid for (rowid,) in db.execute(f"SELECT rowid FROM {table.name}")]
            gone = chooser.sample(rowids, len(rowids) // 3)
            db.executemany(f"DELETE FROM {table.name} WHERE rowid = ?", [(rowid,) for rowid in gone])
            lost[table.name] = len(gone)
        db.execute("UPDATE chunks SET content = NULL WHERE rowid % 5 = 0")
        db.execute("INSERT INTO term_aliases VALUES('my', 'own')")
        db.execute("CREATE TABLE mesh_mine(x)")
        db.execute("INSERT INTO mesh_mine VALUES(1)")
        for name in ("chunks_fts", "documents_fts"):
            db.execute(f"INSERT INTO {name}({name}) VALUES('rebuild')")
    report = hydrate(real_set, copy)
    assert {name: fill.inserted for name, fill in report.tables.items()} == lost
    assert report.changed and not report.fresh and not report.conflict_count and not report.without_body
    assert sorted(report.rebuilt) == ["chunks_fts", "documents_fts"]
    with changing(copy) as db:
        assert db.execute("SELECT * FROM mesh_mine").fetchall() == [(1,)]
        assert db.execute("DELETE FROM term_aliases WHERE alias = 'my'").rowcount == 1
    assert [item for item in compare(real_shard, copy) if not item.equal] == []


def test_missing_bodies_only_are_filled(real_set: Built, real_shard: Path, copy: Path) -> None:
    with changing(copy) as db:
        evicted = db.execute("UPDATE chunks SET content = NULL WHERE rowid % 3 = 0").rowcount
    report = hydrate(real_set, copy)
    assert (report.filled, report.without_body, report.changed) == (evicted, 0, True)
    assert not any(fill.inserted for fill in report.tables.values())
    assert [item for item in compare(real_shard, copy) if not item.equal] == []


def test_rows_of_the_same_key_with_other_values_are_kept_counted_and_named(real_set: Built, copy: Path) -> None:
    with changing(copy) as db:
        db.execute("UPDATE documents SET title = 'mine', n_chunks = NULL WHERE rowid <= 7")
        db.execute("UPDATE concept_token_idf SET idf = idf + 1 WHERE rowid = 1")
        token = db.execute("SELECT token FROM concept_token_idf WHERE rowid = 1").fetchone()[0]
        roots = {root for (root,) in db.execute("SELECT document_root FROM documents WHERE rowid <= 7")}
        db.execute("INSERT INTO documents_fts(documents_fts) VALUES('rebuild')")
    before = contents(copy)
    report = hydrate(real_set, copy)
    assert report.tables["documents"].conflicts == 7 and report.tables["concept_token_idf"].conflicts == 1
    assert report.conflict_count == 8 and not report.changed
    named = [text for text in report.conflicts if text.startswith("documents ")]
    assert len(named) == 5 and all(any(root in text for root in roots) for text in named)
    assert any(token in text for text in report.conflicts)
    assert contents(copy) == before


def test_another_chunk_in_the_same_place_is_kept_and_named(real_set: Built, copy: Path) -> None:
    with changing(copy) as db:
        root = db.execute("SELECT document_root FROM chunks WHERE document_root IS NOT NULL").fetchone()[0]
        db.execute(
            "UPDATE chunks SET leaf_hash = ?, content = 'mine' WHERE document_root = ? AND ordinal = 0",
            ("f" * 64, root),
        )
    before = contents(copy)["chunks"]
    report = hydrate(real_set, copy)
    assert report.tables["chunks"].conflicts == 1 and any(root in text for text in report.conflicts)
    assert contents(copy)["chunks"] == before


def test_a_body_that_differs_is_kept_and_named(real_set: Built, copy: Path) -> None:
    with changing(copy) as db:
        leaf_hash = db.execute("SELECT leaf_hash FROM chunks GROUP BY 1 HAVING count(*) = 1").fetchone()[0]
        db.execute("UPDATE chunks SET content = 'mine' WHERE leaf_hash = ?", (leaf_hash,))
    report = hydrate(real_set, copy)
    assert report.conflict_count == report.tables["chunks"].conflicts == 1
    assert any(leaf_hash in text for text in report.conflicts) and not report.changed
    with changing(copy) as db:
        assert db.execute("SELECT content FROM chunks WHERE leaf_hash = ?", (leaf_hash,)).fetchall() == [("mine",)]


def test_a_body_that_differs_is_named_though_another_fills_several_rows(tmp_path: Path) -> None:
    built = build(make_shard(tmp_path / "shard.db", 6), tmp_path)
    target = tmp_path / "target.db"
    hydrate(built, target)
    with changing(target) as db:
        leaf_hash = db.execute("SELECT leaf_hash FROM chunks GROUP BY 1 HAVING count(*) = 1").fetchone()[0]
        assert db.execute("SELECT 1 FROM chunks GROUP BY leaf_hash HAVING count(*) > 1").fetchall()
        db.execute("UPDATE chunks SET content = NULL")
        db.execute("UPDATE chunks SET content = 'mine' WHERE leaf_hash = ?", (leaf_hash,))
    report = hydrate(built, target)
    assert report.conflict_count == 1 and any(leaf_hash in text for text in report.conflicts)


@pytest.mark.parametrize("backwards", [False, True])
def test_packs_one_by_one_complete_each_other(
    real_set: Built, real_shard: Path, tmp_path: Path, backwards: bool
) -> None:
    target = tmp_path / "target.db"
    paths = real_set.paths[::-1] if backwards else real_set.paths
    reports = [hydrate_pack(FileBlob(path), target, PROFILE) for path in paths]
    first = reports[0]
    assert first.fresh and first.packs == 1
    if backwards:
        assert "documents" in first.tables_missing and first.bodies > 0
        assert first.unplaced == first.bodies or real_set.set.parameters.layout == 3  # which brings rows with bodies
        for path in real_set.paths:  # the bodies that came before their rows
            hydrate_pack(FileBlob(path), target, PROFILE)
    else:
        assert "documents" not in first.tables_missing
        assert first.without_body or first.tables_missing
    assert [item for item in compare(real_shard, target) if not item.equal] == []
    assert not hydrate(real_set, target).changed


def test_repeated_rows_that_two_packs_share_are_completed_by_the_set(tmp_path: Path) -> None:
    """A pack alone cannot tell its copies of a row from those of the pack before: it says that the table is partial."""
    rows = shard_rows(3, edges=20)
    rows["term_aliases"] = [("alias " * 30, f"term {number // 150}") for number in range(3_000)]
    source = write_shard(tmp_path / "shard.db", rows)
    built = build(source, tmp_path, cap=20_000)
    holders = [path for path in built.paths if b"tables/term_aliases" in _first_line(path)]
    assert len(holders) > 1
    for path in built.paths:
        report = hydrate_pack(FileBlob(path), tmp_path / "target.db", PROFILE)
        if path in holders:
            assert "term_aliases" in report.tables_missing
    hydrate_set(built.store, built.set, tmp_path / "target.db", PROFILE)
    assert contents(tmp_path / "target.db") == contents(source)


def _first_line(path: Path) -> bytes:
    with PackReader(FileBlob(path)) as reader:
        return reader.first_line


def damaged_copy(built: Built, folder: Path, number: int) -> Built:
    """The set in another store with a byte in the middle of one pack changed."""
    store = LocalStore(Path(shutil.copytree(built.store.folder, folder)))
    copied = Built(store, built.set, built.source)
    path = copied.paths[number]
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x40
    path.write_bytes(data)
    return copied


@pytest.mark.parametrize("number", [0, 1, -1])
def test_damage_on_the_way_leaves_an_existing_target_as_it_was(
    real_set: Built, copy: Path, tmp_path_factory: pytest.TempPathFactory, number: int
) -> None:
    with changing(copy) as db:
        db.execute("DELETE FROM documents WHERE rowid % 2")
        db.execute("DELETE FROM edges")
        db.execute("UPDATE chunks SET content = NULL WHERE rowid % 2")
    before = logical(copy)
    broken = damaged_copy(real_set, tmp_path_factory.mktemp("broken") / "store", number)
    with pytest.raises(Damaged):
        hydrate(broken, copy)
    assert logical(copy) == before
    assert listing(copy.parent) == ["target.db"]
    assert hydrate(real_set, copy).changed


@pytest.mark.parametrize("number", [0, 1, -1])
def test_damage_on_the_way_leaves_no_new_file(real_set: Built, tmp_path: Path, number: int) -> None:
    broken = damaged_copy(real_set, tmp_path / "store", number)
    (tmp_path / "out").mkdir()
    with pytest.raises(Damaged):
        hydrate(broken, tmp_path / "out" / "target.db")
    assert listing(tmp_path / "out") == []


def test_a_pack_that_is_gone_leaves_no_new_file(real_set: Built, tmp_path: Path) -> None:
    store = LocalStore(Path(shutil.copytree(real_set.store.folder, tmp_path / "store")))
    Built(store, real_set.set, real_set.source).paths[1].unlink()
    (tmp_path / "out").mkdir()
    with pytest.raises(NotFound):
        hydrate_set(store, real_set.set, tmp_path / "out" / "target.db", PROFILE)
    assert listing(tmp_path / "out") == []


@pytest.mark.parametrize("tail", ["-wal", "-shm", "-journal"])
@pytest.mark.parametrize("there", [False, True])
def test_what_lies_beside_an_absent_target_is_refused(real_set: Built, tmp_path: Path, tail: str, there: bool) -> None:
    (tmp_path / f"target.db{tail}").write_bytes(b"left")
    if there:
        (tmp_path / "target.db").touch()
    before = listing(tmp_path)
    with pytest.raises(BadInput, match=f"target.db{tail}"):
        hydrate(real_set, tmp_path / "target.db")
    assert listing(tmp_path) == before


def test_targets_that_cannot_be_filled(real_set: Built, real_shard: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="folder"):
        hydrate(real_set, tmp_path)
    with pytest.raises(NotFound, match="none"):
        hydrate(real_set, tmp_path / "none" / "target.db")
    (tmp_path / "text").write_text("no database at all, but a text that is long enough to be read as one\n" * 20)
    before = (tmp_path / "text").read_bytes()
    with pytest.raises(BadInput, match="no SQLite database"):
        hydrate(real_set, tmp_path / "text")
    assert (tmp_path / "text").read_bytes() == before
    with changing(tmp_path / "other.db") as db:
        db.execute("CREATE TABLE documents(document_root PRIMARY KEY, uri)")
    with pytest.raises(BadInput, match=r"documents\.title"):
        hydrate(real_set, tmp_path / "other.db")
    assert logical(tmp_path / "other.db")[1].startswith("CREATE TABLE documents")
    assert len(logical(tmp_path / "other.db")) == 3


def test_a_target_in_use_is_busy(real_set: Built, copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pack_lib import target

    connect = sqlite3.connect
    monkeypatch.setattr(target.sqlite3, "connect", lambda *args, **how: connect(*args, **{**how, "timeout": 0.1}))
    with closing(connect(copy, isolation_level=None)) as db:
        db.execute("BEGIN IMMEDIATE")
        with pytest.raises(Busy):
            hydrate(real_set, copy)
        db.execute("ROLLBACK")
    assert not hydrate(real_set, copy).changed


def test_two_that_fill_one_new_file(real_set: Built, tmp_path: Path) -> None:
    from pack_lib.target import Target

    with Target(tmp_path / "target.db", PROFILE), pytest.raises(Busy, match="being filled"):
        hydrate(real_set, tmp_path / "target.db")
    assert listing(tmp_path) == []


def test_a_wal_target_is_filled(real_set: Built, real_shard: Path, copy: Path) -> None:
    with closing(sqlite3.connect(copy, isolation_level=None)) as db:
        assert db.execute("PRAGMA journal_mode=WAL").fetchone() == ("wal",)
        db.execute("DELETE FROM edges")
        db.execute("DELETE FROM documents WHERE rowid % 3 = 0")  # stands in the -wal
        assert hydrate(real_set, copy).changed
    assert [item for item in compare(real_shard, copy) if not item.equal] == []


def test_a_set_of_another_profile_is_refused(real_set: Built, tmp_path: Path) -> None:
    from tests.property.cells import write_profile

    with pytest.raises(PackError, match="profile"):
        hydrate(real_set, tmp_path / "target.db", write_profile(tmp_path / "profile"))
    assert listing(tmp_path) == ["profile", "profile/own.sql", "profile/own.toml"]


def test_a_utf16_target_holds_all_but_text_that_is_not_utf8(real_set: Built, real_shard: Path, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "wide.db")) as db, db:
        db.execute("PRAGMA encoding='UTF-16le'")
        db.executescript(PROFILE.schema or "")
    assert hydrate(real_set, tmp_path / "wide.db").changed
    assert contents(tmp_path / "wide.db") == contents(real_shard)
    assert not hydrate(real_set, tmp_path / "wide.db").changed


def test_edges_with_nulls_are_not_doubled(tmp_path: Path) -> None:
    rows = shard_rows(3, edges=0)
    rows["edges"] = [(None,) * 5] * 3 + [("a", None, None, None, None)] * 2 + [("a", "t", None, "", None)]
    source = write_shard(tmp_path / "shard.db", rows)
    built = build(source, tmp_path)
    target = tmp_path / "target.db"
    hydrate(built, target)
    assert not hydrate(built, target).changed
    with changing(target) as db:
        db.execute("DELETE FROM edges WHERE rowid IN (1, 2, 4)")
    assert hydrate(built, target).tables["edges"].inserted == 3
    assert contents(target) == contents(source)


def test_documents_without_a_key_are_not_doubled(tmp_path: Path) -> None:
    rows = shard_rows(3, edges=0)
    rows["documents"] += [(None, f"doc:none-{number}", None, None, None, None) for number in range(3)]
    source = write_shard(tmp_path / "shard.db", rows)
    built = build(source, tmp_path)
    hydrate(built, tmp_path / "target.db")
    report = hydrate(built, tmp_path / "target.db")
    assert not report.changed and not report.conflict_count
    assert contents(tmp_path / "target.db") == contents(source)
