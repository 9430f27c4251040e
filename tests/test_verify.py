"""Verification: whole sets pass; contradictions of the source are named; what a set lacks or mixes is damage."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pack_lib.errors import BadInput, Damaged, Inconsistent, NotFound, PackError
from pack_lib.pack.blob import FileBlob
from pack_lib.pack_set import PackSet, committed_sets, pack_key, read_set
from pack_lib.profile import load_profile
from pack_lib.stores.local import LocalStore
from pack_lib.verify import raise_findings, verify_pack, verify_set
from tests.property.cells import write_profile, write_source
from tests.support import Built, build, make_shard, schema, shard_rows, write_shard

pytestmark = pytest.mark.usefixtures("in_each_layout")

PROFILE = load_profile()


def findings(built: Built) -> list[str]:
    report = verify_set(built.store, built.set, PROFILE)
    assert report.complete
    return report.findings


def test_whole_sets_pass(small_set: Built, real_shard: Path, tmp_path: Path) -> None:
    for built in (small_set, build(real_shard, tmp_path, cap=300_000), build(real_shard, tmp_path / "one")):
        seen: list[tuple[int, int]] = []
        report = verify_set(built.store, built.set, PROFILE, lambda done, total, seen=seen: seen.append((done, total)))
        assert report.complete and not report.findings
        raise_findings(report)
        assert (report.packs, report.chunks) == (len(built.set.packs), built.set.chunks)
        assert report.body_bytes == sum(pack.body_bytes for pack in built.set.packs)
        assert report.rows == {table.name: table.rows for table in built.set.tables}
        assert seen[-1] == (built.set.size, built.set.size)
        assert verify_set(built.store, built.set, None).complete


def test_each_pack_alone_passes(small_set: Built) -> None:
    for pack, path in zip(small_set.set.packs, small_set.paths, strict=True):
        found, report = verify_pack(FileBlob(path), PROFILE)
        assert found == pack.hash and not report.complete and not report.findings
        assert report.chunks == pack.chunks


def test_a_set_read_from_the_store_is_the_one_built(small_set: Built) -> None:
    (key,) = committed_sets(small_set.store)
    assert read_set(small_set.store, key) == small_set.set


BREAKS: list[tuple[str, list[str], str, str]] = [
    (
        "a chunk's place",
        ["UPDATE chunks SET ordinal = ordinal + 100 WHERE document_root = :root AND ordinal = 0"],
        "document {root}: the tree hash of its chunks is",
        "SELECT document_root FROM documents WHERE n_chunks > 2 LIMIT 1",
    ),
    (
        "a chunk that is gone",
        ["DELETE FROM chunks WHERE document_root = :root AND ordinal = 1"],
        "document {root}: the tree hash of its chunks is",
        "SELECT document_root FROM documents WHERE n_chunks > 2 LIMIT 1",
    ),
    (
        "a document's count",
        ["UPDATE documents SET n_chunks = n_chunks + 1 WHERE document_root = :root"],
        "document {root}: n_chunks is",
        "SELECT document_root FROM documents LIMIT 1",
    ),
    (
        "a document whose chunks are gone",
        ["DELETE FROM chunks WHERE document_root = :root"],
        "1 documents have no chunks",
        "SELECT document_root FROM documents WHERE n_chunks > 0 LIMIT 1",
    ),
    (
        "a node's child",
        ["UPDATE merkle_nodes SET left_hash = right_hash WHERE node_hash = :root"],
        "Merkle node {root}: the hash of its children is",
        "SELECT node_hash FROM merkle_nodes WHERE left_hash <> right_hash LIMIT 1",
    ),
    (
        "a node's child that is no hash",
        ["UPDATE merkle_nodes SET left_hash = 'zz' WHERE node_hash = :root"],
        "Merkle node {root}: the hash of its children is not computable",
        "SELECT node_hash FROM merkle_nodes LIMIT 1",
    ),
    (
        "an event's payload",
        ["UPDATE audit_events SET payload = payload || ' ' WHERE seq = :root"],
        "audit event {root}: event_hash does not recompute",
        "SELECT 5",
    ),
    (
        "an event that is gone",
        ["DELETE FROM audit_events WHERE seq = :root - 1"],
        "audit event {root}: prev_hash is not the event_hash before it",
        "SELECT 7",
    ),
    (
        "an event's hash",
        ["UPDATE audit_events SET event_hash = prev_hash WHERE seq = :root"],
        "audit event {root}: event_hash does not recompute",
        "SELECT 3",
    ),
]


@pytest.mark.parametrize(("statements", "told", "choose"), [case[1:] for case in BREAKS], ids=[c[0] for c in BREAKS])
@pytest.mark.parametrize("cap", [None, 60_000])
def test_what_contradicts_itself_in_the_source_is_named(
    tmp_path: Path, statements: list[str], told: str, choose: str, cap: int | None
) -> None:
    source = make_shard(tmp_path / "shard.db", 30)
    with closing(sqlite3.connect(source)) as db, db:
        root = db.execute(choose).fetchone()[0]
        for statement in statements:
            assert db.execute(statement, {"root": root}).rowcount > 0
    built = build(source, tmp_path, cap=cap)
    found = findings(built)
    assert any(told.format(root=root) in text for text in found), found
    report = verify_set(built.store, built.set, PROFILE)
    with pytest.raises(Inconsistent) as caught:
        raise_findings(report)
    assert found[0] in str(caught.value)
    assert not verify_set(built.store, built.set, None).findings


def test_several_contradictions_are_counted(tmp_path: Path) -> None:
    source = make_shard(tmp_path / "shard.db", 30)
    with closing(sqlite3.connect(source)) as db, db:
        db.execute("UPDATE audit_events SET payload = 'x' WHERE seq IN (4, 9, 11)")
        db.execute("UPDATE merkle_nodes SET right_hash = left_hash WHERE left_hash <> right_hash")
    found = findings(build(source, tmp_path))
    assert len(found) == 2 and any("audit event 4" in text and "2 more" in text for text in found)


def test_an_empty_document_and_an_empty_corpus_are_sound(tmp_path: Path) -> None:
    rows = shard_rows(5)
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    rows["documents"].append((empty, "doc:empty", None, None, 0, None))
    assert findings(build(write_shard(tmp_path / "shard.db", rows), tmp_path)) == []
    assert findings(build(write_shard(tmp_path / "none.db", {}), tmp_path / "none")) == []


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE chunks SET document_root = CAST(x'ff' AS TEXT) WHERE document_root IS NULL",
        "UPDATE chunks SET document_root = x'ff' WHERE document_root IS NULL",
        "UPDATE documents SET n_chunks = CAST(x'ff' AS TEXT) WHERE rowid = 1",
        "UPDATE documents SET document_root = CAST(x'ff' AS TEXT) WHERE rowid = 1",
        "UPDATE documents SET document_root = x'00' WHERE rowid = 1",
        "UPDATE documents SET document_root = 'a' || char(0) || 'b' WHERE rowid = 1",
        "UPDATE merkle_nodes SET left_hash = CAST(x'ff' AS TEXT) WHERE rowid = 1",
        "UPDATE merkle_nodes SET left_hash = NULL WHERE rowid = 1",
        "UPDATE merkle_nodes SET left_hash = x'00' WHERE rowid = 1",
        "UPDATE audit_events SET payload = CAST(x'ff' AS TEXT) WHERE seq = 1",
        "UPDATE audit_events SET prev_hash = x'ff' WHERE seq = 2",
        "UPDATE chunks SET ordinal = x'00' WHERE rowid = 1",
        "UPDATE chunks SET n_bytes = CAST(x'ff' AS TEXT)",
    ],
)
def test_cells_of_unexpected_types_pack_and_verify(tmp_path: Path, change: str) -> None:
    source = make_shard(tmp_path / "shard.db", 5)
    with closing(sqlite3.connect(source)) as db, db:
        assert db.execute(change).rowcount > 0
    built = build(source, tmp_path)
    assert verify_set(built.store, built.set, PROFILE).complete


# -- sets that lack something or mix something --


@pytest.fixture
def copied(small_set: Built, tmp_path: Path) -> Built:
    store = LocalStore(Path(shutil.copytree(small_set.store.folder, tmp_path / "copied")))
    return Built(store, small_set.set, small_set.source)


@pytest.fixture(scope="module")
def other_set(tmp_path_factory: pytest.TempPathFactory, layout: int) -> Built:
    folder = tmp_path_factory.mktemp("other")
    source = make_shard(folder / "shard.db", 100, chunk_bytes=2800, noise=True, seed=9)
    return build(source, folder, cap=300_000, layout=layout)


def adopt(copied: Built, packs: list[Any], other: Built | None = None) -> PackSet:
    """A set manifest over these packs, put into the copied store."""
    if other is not None:
        for path in other.paths:
            shutil.copy(path, copied.store.folder / "packs" / path.name)
    return replace(copied.set, packs=tuple(packs))


def test_a_pack_that_is_gone(copied: Built) -> None:
    copied.paths[1].unlink()
    with pytest.raises(NotFound, match=copied.set.packs[1].hash):
        verify_set(copied.store, copied.set, PROFILE)


@pytest.mark.parametrize("missing", [0, 1, -1])
def test_a_pack_that_the_set_does_not_name(copied: Built, missing: int) -> None:
    packs = list(copied.set.packs)
    del packs[missing]
    with pytest.raises(Damaged):
        verify_set(copied.store, adopt(copied, packs), PROFILE)


def test_swapped_packs(copied: Built) -> None:
    packs = list(copied.set.packs)
    with pytest.raises(Damaged, match="stands in another place"):
        verify_set(copied.store, adopt(copied, [packs[1], packs[0], *packs[2:]]), PROFILE)


def test_a_pack_twice(copied: Built) -> None:
    packs = list(copied.set.packs)
    with pytest.raises(Damaged):
        verify_set(copied.store, adopt(copied, [*packs, packs[-1]]), PROFILE)


@pytest.mark.parametrize("place", [0, 1, -1])
def test_packs_of_two_sets_mixed(copied: Built, other_set: Built, place: int) -> None:
    packs = list(copied.set.packs)
    packs[place] = other_set.set.packs[place]
    with pytest.raises(Damaged):
        verify_set(copied.store, adopt(copied, packs, other_set), PROFILE)


def test_all_packs_of_another_set(copied: Built, other_set: Built) -> None:
    with pytest.raises(Damaged):
        verify_set(copied.store, adopt(copied, list(other_set.set.packs), other_set), PROFILE)


def test_one_pack_in_the_place_of_another(copied: Built) -> None:
    shutil.copy(copied.paths[1], copied.paths[0])
    with pytest.raises(Damaged, match="set manifest says"):
        verify_set(copied.store, copied.set, PROFILE)


def first_pack(made: PackSet, **values: Any) -> PackSet:
    return replace(made, packs=(replace(made.packs[0], **values), *made.packs[1:]))


def first_table(made: PackSet, **values: Any) -> PackSet:
    return replace(made, tables=(replace(made.tables[0], **values), *made.tables[1:]))


WRONG: dict[str, Callable[[PackSet], PackSet]] = {
    "pack size": lambda made: first_pack(made, size=made.packs[0].size + 1),
    "pack sha256": lambda made: first_pack(made, sha256="0" * 64),
    "pack hash": lambda made: first_pack(made, hash=made.packs[1].hash),
    "pack chunks": lambda made: first_pack(made, chunks=made.packs[0].chunks + 1),
    "pack body_bytes": lambda made: first_pack(made, body_bytes=1),
    "table sha256": lambda made: first_table(made, sha256="0" * 64),
    "table rows": lambda made: first_table(made, rows=made.tables[0].rows + 1),
    "table size": lambda made: first_table(made, size=1),
    "table name": lambda made: first_table(made, name="other"),
    "a table less": lambda made: replace(made, tables=made.tables[:-1]),
    "bodies root": lambda made: replace(made, bodies_root="0" * 64),
    "snapshot root": lambda made: replace(made, snapshot_root="0" * 64),
    "shard": lambda made: replace(made, shard="shard-1"),
    "corpus": lambda made: replace(made, corpus="other"),
    "profile": lambda made: replace(made, profile="other"),
}


@pytest.mark.parametrize("what", WRONG)
def test_every_field_of_the_set_manifest_is_checked(copied: Built, what: str) -> None:
    with pytest.raises(PackError):
        verify_set(copied.store, WRONG[what](copied.set), PROFILE)


@pytest.mark.parametrize("how", ["bit", "cut", "garbage", "version", "empty", "key"])
def test_a_damaged_set_manifest_is_refused(copied: Built, how: str) -> None:
    path = copied.store.folder / copied.set.key
    data = path.read_bytes()
    changes: dict[str, Callable[[], bytes]] = {
        "bit": lambda: data[:100] + bytes([data[100] ^ 1]) + data[101:],
        "cut": lambda: data[:-5],
        "garbage": lambda: data + b" ",
        "version": lambda: data.replace(b'"version":1', b'"version":9'),
        "empty": lambda: b"",
        "key": lambda: data,
    }
    key = copied.set.key
    if how == "key":
        key = key.replace("/shard-0/", "/shard-1/")
        (copied.store.folder / key).parent.mkdir(parents=True)
        path = copied.store.folder / key
    path.write_bytes(changes[how]())
    with pytest.raises(Damaged):
        read_set(copied.store, key)


# -- sources that cannot be packed faithfully: found before anything is committed --


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("UPDATE chunks SET content = content || ' ' WHERE rowid = 3", "does not match it"),
        ("UPDATE chunks SET content = NULL WHERE rowid = 3", "is NULL"),
        ("UPDATE chunks SET content = CAST(content AS BLOB) WHERE rowid = 3", "stored as blob"),
        ("UPDATE chunks SET leaf_hash = upper(leaf_hash) WHERE rowid = 3", "is no leaf hash"),
        ("UPDATE chunks SET leaf_hash = 'x' WHERE rowid = 3", "is no leaf hash"),
        ("UPDATE chunks SET leaf_hash = x'00' WHERE rowid = 3", "is no text"),
        ("UPDATE chunks SET leaf_hash = CAST(x'ff' AS TEXT) WHERE rowid = 3", "is no"),
    ],
)
def test_bodies_that_do_not_match_are_refused(tmp_path: Path, change: str, told: str) -> None:
    source = make_shard(tmp_path / "shard.db", 5)
    with closing(sqlite3.connect(source)) as db, db:
        db.execute(change)
    with pytest.raises(BadInput, match=told):
        build(source, tmp_path)
    assert not list((tmp_path / "store").rglob("*.json*"))


def test_equal_hashes_with_other_bodies_are_refused(tmp_path: Path) -> None:
    source = make_shard(tmp_path / "shard.db", 5)
    with closing(sqlite3.connect(source)) as db, db:
        leaf_hash = db.execute("SELECT leaf_hash FROM chunks GROUP BY 1 HAVING count(*) > 1").fetchone()[0]
        db.execute(
            "UPDATE chunks SET content = 'other' WHERE rowid = (SELECT max(rowid) FROM chunks WHERE leaf_hash = ?)",
            (leaf_hash,),
        )
    with pytest.raises(BadInput, match=leaf_hash):
        build(source, tmp_path)


def test_a_leaf_hash_in_capitals_is_refused_whatever_the_column_collates(tmp_path: Path) -> None:
    source = tmp_path / "shard.db"
    with closing(sqlite3.connect(source)) as db, db:
        db.executescript(schema().replace("leaf_hash TEXT NOT NULL", "leaf_hash TEXT NOT NULL COLLATE NOCASE"))
        for row in shard_rows(3)["chunks"]:
            db.execute("INSERT INTO chunks VALUES(?,?,?,?,?)", row)
        db.execute("INSERT INTO chunks SELECT 'z', rowid, upper(leaf_hash), n_bytes, content FROM chunks")
    with pytest.raises(BadInput, match=r"[0-9A-F]{64}"):
        build(source, tmp_path)


def test_a_profile_without_rules(tmp_path: Path) -> None:
    profile = write_profile(tmp_path / "profile")
    built = build(write_source(tmp_path / "s.db", [(1, 2, 3)], [], ["body"]), tmp_path, profile=profile)
    report = verify_set(built.store, built.set, profile)
    assert report.complete and not report.findings
    assert built.store.object_size(pack_key(built.set.packs[0].hash)) == built.set.packs[0].size
