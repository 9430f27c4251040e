"""Layout 3: one tar member a document, in document order, and rows that follow from documents are not shipped."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from pack_lib import bodies as staging_bodies
from pack_lib import columnar, derived
from pack_lib.errors import BadInput, CapTooSmall, Damaged
from pack_lib.hashing import TreeHasher, tree_nodes
from pack_lib.hydrate import hydrate_pack
from pack_lib.pack.blob import FileBlob
from pack_lib.pack.catalogue import CatalogueParser
from pack_lib.pack.format import PackHeader
from pack_lib.pack.reader import PackReader
from pack_lib.profile import load_profile
from pack_lib.sorting import RecordSorter
from pack_lib.verify import verify_set
from tests.support import Built, build, contents, hydrate, leaf, make_shard, tree

PROFILE = load_profile("corpus")


def edited(path: Path, *statements: str) -> Path:
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        for statement in statements:
            db.execute(statement)
    return path


def rows(path: Path, sql: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as db:
        return db.execute(sql).fetchall()


def exact(built: Built, folder: Path) -> None:
    """The set verifies as a whole, hydrates to the source row for row, and again without a change."""
    report = verify_set(built.store, built.set, PROFILE)
    assert report.complete
    target = folder / "hydrated.db"
    made = hydrate(built, target)
    assert made.without_body == 0 and made.unplaced == 0 and made.conflicts == []
    assert contents(target) == contents(built.source)
    again = hydrate(built, target)
    assert not again.changed and again.conflicts == []


def table_headers(built: Built) -> dict[str, columnar.TableHeader]:
    found = {}
    for path in built.paths:
        with PackReader(FileBlob(path)) as reader:
            for member in reader.members():
                if hasattr(member, "blocks"):
                    data = b"".join(member.blocks)
                    found.setdefault(
                        member.part.table, columnar.parse_header_line(data[: data.index(b"\n") + 1], "here")
                    )
    return found


def shipped_rows(built: Built, name: str) -> int:
    return next(table.rows for table in built.set.tables if table.name == name)


def test_every_row_and_body_comes_back(tmp_path: Path) -> None:
    built = build(make_shard(tmp_path / "shard.db", 60), tmp_path, layout=3)
    exact(built, tmp_path)
    assert shipped_rows(built, "chunks") == 3  # the chunks of no document
    assert shipped_rows(built, "merkle_nodes") == 0
    smaller = build(built.source, tmp_path / "two", layout=2)
    assert built.set.size < smaller.set.size
    assert built.set.bodies_root == smaller.set.bodies_root


def test_tar_extracts_readable_documents_in_the_order_of_their_uris(tmp_path: Path) -> None:
    built = build(make_shard(tmp_path / "shard.db", 40), tmp_path, layout=3, cap=None)
    subprocess.run(["tar", "--zstd", "-xf", built.paths[0], "-C", tmp_path], check=True)
    listed = subprocess.run(["tar", "--zstd", "-tf", built.paths[0]], check=True, capture_output=True, text=True)
    names = [name for name in listed.stdout.splitlines() if name.startswith("documents/")]
    ordered = [root for (root,) in rows(built.source, "SELECT document_root FROM documents ORDER BY uri, 1")]
    assert names == [f"documents/{root[:2]}/{root[2:]}" for root in map(str, ordered)]
    for root in map(str, ordered):
        sql = f"SELECT content FROM chunks WHERE document_root = '{root}' ORDER BY ordinal"
        text = "".join(str(body) for (body,) in rows(built.source, sql))
        assert (tmp_path / "documents" / root[:2] / root[2:]).read_text() == text
    loose = listed.stdout.splitlines()[-3:]
    assert all(name.startswith("blobs/") for name in loose) and loose == sorted(loose)


def test_a_stranger_checks_a_document_with_the_catalogue_alone(tmp_path: Path) -> None:
    built = build(make_shard(tmp_path / "shard.db", 20), tmp_path, layout=3, cap=None)
    subprocess.run(["tar", "--zstd", "-xf", built.paths[0], "-C", tmp_path], check=True)
    lines = (tmp_path / "manifest.jsonl").read_text().splitlines()
    documents = [(name, sizes) for name, sizes in map(json.loads, lines[1:]) if isinstance(sizes, list)]
    assert len(documents) == json.loads(lines[0])["documents"] == 20
    for root, sizes in documents:
        data = (tmp_path / "documents" / root[:2] / root[2:]).read_bytes()
        leaves, at = [], 0
        for size in sizes:
            leaves.append(bytes.fromhex(leaf(data[at : at + size])))
            at += size
        assert at == len(data) and tree(leaves).hex() == root


@pytest.mark.parametrize("workers", [1, 4])
def test_equal_bytes_for_any_workers_and_insertion_order(tmp_path: Path, workers: int) -> None:
    one = build(make_shard(tmp_path / "a.db", 50), tmp_path, layout=3, cap=60_000, workers=2)
    other = build(
        make_shard(tmp_path / "b.db", 50, shuffle=7, page_size=1024),
        tmp_path / "o",
        layout=3,
        cap=60_000,
        workers=workers,
    )
    assert len(one.set.packs) > 1
    assert one.set.encode() == other.set.encode()


@pytest.mark.parametrize("encoding", ["UTF-16le", "UTF-16be"])
def test_a_utf16_copy_gives_the_same_bytes(tmp_path: Path, encoding: str) -> None:
    one = build(make_shard(tmp_path / "a.db", 12), tmp_path, layout=3)
    other = build(make_shard(tmp_path / "b.db", 12, encoding=encoding), tmp_path / "o", layout=3)
    assert one.set.encode() == other.set.encode()


def test_one_changed_row_changes_the_hash(tmp_path: Path) -> None:
    source = make_shard(tmp_path / "a.db", 12)
    one = build(source, tmp_path, layout=3)
    other = build(
        edited(Path(shutil.copy(source, tmp_path / "b.db")), "UPDATE audit_events SET at = 'x' WHERE seq = 3"),
        tmp_path / "o",
        layout=3,
    )
    assert one.set.packs[0].hash != other.set.packs[0].hash


FIRST = "(SELECT document_root FROM documents ORDER BY 1 LIMIT 1 OFFSET 3)"
UNUSUAL = {
    "root that no tree has": (f"UPDATE chunks SET document_root = '{'a' * 64}' WHERE document_root = {FIRST}",),
    "document without chunks": (f"INSERT INTO documents VALUES ('{'b' * 64}', 'doc:x', NULL, NULL, 0, NULL)",),
    "wrong root": (
        f"INSERT INTO documents SELECT '{'c' * 64}', uri, title, mime, n_chunks, added_at FROM documents LIMIT 1",
        f"INSERT INTO chunks SELECT '{'c' * 64}', ordinal, leaf_hash, n_bytes, content FROM chunks "
        f"WHERE document_root = {FIRST}",
    ),
    "ordinals from 5": (f"UPDATE chunks SET ordinal = ordinal + 500 WHERE document_root = {FIRST}",),
    "text ordinals": (f"UPDATE chunks SET ordinal = 'n' || ordinal WHERE document_root = {FIRST}",),
    "ordinals of halves": (f"UPDATE chunks SET ordinal = ordinal + 0.5 WHERE document_root = {FIRST}",),
    "negative ordinal": (f"UPDATE chunks SET ordinal = ordinal - 1 WHERE document_root = {FIRST}",),
    "wrong size": (f"UPDATE chunks SET n_bytes = n_bytes + 1 WHERE document_root = {FIRST}",),
    "no size": (f"UPDATE chunks SET n_bytes = NULL WHERE document_root = {FIRST}",),
    "size as text": (f"UPDATE chunks SET n_bytes = 'x' WHERE document_root = {FIRST}",),
    "blob root": (f"UPDATE chunks SET document_root = CAST(document_root AS BLOB) WHERE document_root = {FIRST}",),
    "node missing": ("DELETE FROM merkle_nodes WHERE rowid = 3",),
    "node of no document": (f"INSERT INTO merkle_nodes VALUES ('{'d' * 64}', 'x', NULL, 1.5)",),
    "node in capitals": ("UPDATE merkle_nodes SET node_hash = upper(node_hash) WHERE rowid = 2",),
    "node of another level": ("UPDATE merkle_nodes SET level = 9 WHERE rowid = 4",),
    "node of a float level": ("UPDATE merkle_nodes SET level = 'x' WHERE rowid = 4",),
    "no nodes": ("DELETE FROM merkle_nodes",),
    "no documents": ("DELETE FROM documents",),
    "no chunks": ("DELETE FROM chunks",),
    "uris of all types": (
        "UPDATE documents SET uri = NULL WHERE rowid % 4 = 0",
        "UPDATE documents SET uri = x'00ff' WHERE rowid % 4 = 1",
    ),
}


@pytest.mark.parametrize("kind", UNUSUAL)
def test_what_does_not_follow_is_shipped(tmp_path: Path, kind: str) -> None:
    source = edited(make_shard(tmp_path / "shard.db", 14, chunks=6), *UNUSUAL[kind])
    for cap in (None, 40_000):
        folder = tmp_path / str(cap)
        folder.mkdir()
        exact(build(source, folder, layout=3, cap=cap), folder)


def test_rows_that_do_not_follow_are_named_in_the_header_line(tmp_path: Path) -> None:
    source = edited(make_shard(tmp_path / "shard.db", 14), *UNUSUAL["wrong size"], *UNUSUAL["node missing"])
    headers = table_headers(build(source, tmp_path, layout=3))
    root = rows(source, f"SELECT {FIRST}")[0][0]
    assert headers["chunks"].derived is not None and headers["chunks"].derived.absent == (root,)
    assert headers["merkle_nodes"].derived is not None and len(headers["merkle_nodes"].derived.absent) == 1
    assert headers["documents"].derived is None


def test_a_table_with_too_many_exceptions_is_shipped_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(derived, "MAX_ABSENT", 2)
    source = edited(
        make_shard(tmp_path / "shard.db", 14),
        "UPDATE chunks SET n_bytes = 1 WHERE ordinal = 0",
        "DELETE FROM merkle_nodes WHERE rowid % 2",
    )
    built = build(source, tmp_path, layout=3)
    assert all(header.derived is None for header in table_headers(built).values())
    exact(built, tmp_path)


def test_where_roots_are_no_tree_hashes_every_body_stands_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging_bodies, "MAX_APART", 3)
    source = edited(make_shard(tmp_path / "shard.db", 14), "UPDATE chunks SET ordinal = 99 - ordinal")
    built = build(source, tmp_path, layout=3)
    exact(built, tmp_path)
    assert PackReader(FileBlob(built.paths[0])).header.documents == 0


def test_documents_larger_than_a_frame_span_frames_and_stay_whole(tmp_path: Path) -> None:
    source = make_shard(tmp_path / "shard.db", 12, chunks=12, chunk_bytes=6000, noise=True)
    built = build(source, tmp_path, layout=3, cap=150_000)
    frame_size = built.set.parameters.frame_size
    assert frame_size < 12 * 6000 and len(built.set.packs) > 2
    exact(built, tmp_path)
    for path in built.paths:
        subprocess.run(["zstd", "-tq", path], check=True)


def test_a_cap_too_small_for_a_document_is_refused_with_the_numbers(tmp_path: Path) -> None:
    source = make_shard(tmp_path / "shard.db", 3, chunks=3, chunk_bytes=60_000, noise=True)
    with pytest.raises(CapTooSmall, match=r"document [0-9a-f]{64} of .* bytes alone takes .* bytes; give --cap"):
        build(source, tmp_path, layout=3, cap=30_000)


@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM chunks WHERE rowid % 3 = 0",
        "UPDATE chunks SET content = NULL WHERE rowid % 2",
        "DELETE FROM documents",
        "DELETE FROM merkle_nodes WHERE rowid % 2",
        "DELETE FROM chunks",
    ],
)
def test_a_database_with_rows_gets_what_it_lacks(tmp_path: Path, damage: str) -> None:
    built = build(make_shard(tmp_path / "shard.db", 30), tmp_path, layout=3, cap=60_000)
    target = edited(Path(shutil.copy(built.source, tmp_path / "target.db")), damage)
    made = hydrate(built, target)
    assert made.changed and made.conflicts == [] and contents(target) == contents(built.source)


def test_rows_with_other_values_are_kept_and_named(tmp_path: Path) -> None:
    built = build(make_shard(tmp_path / "shard.db", 30), tmp_path, layout=3)
    target = edited(
        Path(shutil.copy(built.source, tmp_path / "target.db")), "UPDATE chunks SET n_bytes = 7 WHERE rowid = 5"
    )
    before = contents(target)
    made = hydrate(built, target)
    assert made.tables["chunks"].conflicts == 1 and "chunks document_root=" in made.conflicts[0]
    assert contents(target) == before


@pytest.mark.parametrize("backwards", [False, True])
def test_packs_one_by_one(tmp_path: Path, backwards: bool) -> None:
    built = build(make_shard(tmp_path / "shard.db", 60, noise=True), tmp_path, layout=3, cap=60_000)
    target = tmp_path / "target.db"
    paths = built.paths[::-1] if backwards else built.paths
    assert len(paths) > 2
    for path in paths:
        made = hydrate_pack(FileBlob(path), target, PROFILE)
        assert {"chunks", "merkle_nodes"} <= set(made.tables_missing) and made.conflicts == []
    if backwards:  # bodies of no document came before their rows
        assert not hydrate_pack(FileBlob(built.paths[0]), target, PROFILE).conflicts
        hydrate_pack(FileBlob(built.paths[-1]), target, PROFILE)
    assert contents(target) == contents(built.source)
    assert not hydrate(built, target).changed


@pytest.mark.parametrize(
    "lines",
    [
        '["{a}",[1,2]]\n["{a}",[]]',
        '["{a}",[1]]\n["{b}",[1.0]]',
        '["{a}",[1]]\n["{b}",[-1]]',
        '["{a}",[true]]',
        '["{b}",5]\n["{a}",[1]]',
        '["{b}",5]\n["{a}",5]',
        '["{a}",5]\n["{a}",5]',
        '["{a}", [1]]',
        '["x",[1]]',
        '["{a}",[99999999999]]',
        '["{a}",[1],3]',
    ],
)
def test_catalogue_lines_that_are_damage(lines: str) -> None:
    header = PackHeader("c", "s", "corpus", "0" * 64, 1, 0, 0, (), layout=3)
    with pytest.raises(Damaged):
        CatalogueParser(header, "here").parse(lines.format(a="a" * 64, b="b" * 64).encode())


def test_a_wrong_body_is_named(tmp_path: Path) -> None:
    source = edited(make_shard(tmp_path / "shard.db", 10), "UPDATE chunks SET content = 'other' WHERE rowid = 4")
    name = str(rows(source, "SELECT leaf_hash FROM chunks WHERE rowid = 4")[0][0])
    with pytest.raises(BadInput, match=name):
        build(source, tmp_path, layout=3)
    edited(source, "UPDATE chunks SET content = NULL WHERE rowid = 4")
    with pytest.raises(BadInput, match=f"{name}' is NULL"):
        build(source, tmp_path, layout=3)


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 31, 32, 33, 100])
def test_trees_are_those_of_the_rfc(count: int) -> None:
    leaves = [bytes([number]) * 32 for number in range(count)]
    nodes: list[tuple[str, str, str, int]] = []
    root = tree(leaves, nodes)
    found, records = tree_nodes(leaves)
    texts = [(r[:32].hex(), r[32:64].hex(), r[64:96].hex(), r[96]) for r in records]
    assert (found, sorted(texts)) == (root, sorted(nodes))
    for cut in (0, 1, count // 3, count):
        hasher = TreeHasher()
        hasher.extend(leaves[:cut])
        hasher.extend(leaves[cut:])
        assert hasher.root() == root and hasher.count == count


def test_sorting_spills_and_gives_each_record_once_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pack_lib.sorting._RUN", 50)
    given = [bytes([number * 7 % 251, number % 3]) for number in range(400)]
    with RecordSorter(2) as sorter:
        for at in range(0, 400, 30):
            sorter.add(given[at : at + 30])
        assert list(sorter.sorted()) == sorted(set(given)) == list(sorter.sorted())


def test_the_same_promise_holds_for_a_real_corpus(real_shard: Path, tmp_path: Path) -> None:
    check: Callable[[Built, Path], None] = exact
    check(build(real_shard, tmp_path, layout=3, cap=400_000), tmp_path)
