"""Sources that cannot be packed: each gives one line that says what is wrong, where, and what to do."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from pack_lib.errors import BadInput, CapTooSmall
from pack_lib.hashing import leaf_hash
from pack_lib.repack import repack
from pack_lib.stores.local import LocalStore
from tests.bad_input.refusals import arguments, refused, refused_and_empty
from tests.kill.small_shard import make_shard


@pytest.fixture
def shard(tmp_path: Path) -> Path:
    return make_shard(tmp_path / "source" / "shard.db")


def change(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        for statement in statements:
            db.execute(statement)


def test_the_shard_itself_is_good(tmp_path: Path, shard: Path) -> None:
    assert repack(str(shard), LocalStore(tmp_path / "store"), **arguments(tmp_path)).packs_sent >= 3


# No database


def test_missing(tmp_path: Path) -> None:
    source = tmp_path / "source" / "absent.db"
    source.parent.mkdir()
    refused_and_empty(tmp_path, source, BadInput, f"source {source} does not exist", "check the path")


def test_in_a_missing_folder(tmp_path: Path) -> None:
    source = tmp_path / "nowhere" / "absent.db"
    refused_and_empty(tmp_path, source, BadInput, f"source {source} does not exist", "check the path")
    assert not source.parent.exists()


def test_below_a_file(tmp_path: Path, shard: Path) -> None:
    refused_and_empty(tmp_path, shard / "shard.db", BadInput, str(shard / "shard.db"))


def test_a_folder(tmp_path: Path) -> None:
    source = tmp_path / "source" / "folder"
    source.mkdir(parents=True)
    refused_and_empty(tmp_path, source, BadInput, f"source {source} is a folder", "give the path of a SQLite database")


@pytest.mark.parametrize(
    "content",
    [b"", b"x", b"id,text\n1,hello\n" * 100, b"SQLite format 3\0", b"PK\3\4" + bytes(4000), bytes(8192)],
    ids=["empty", "one byte", "text", "only the magic", "zip", "zeros"],
)
def test_a_file_of_another_kind(tmp_path: Path, content: bytes) -> None:
    source = tmp_path / "source" / "shard.db"
    source.parent.mkdir()
    source.write_bytes(content)
    refused_and_empty(tmp_path, source, BadInput, f"source {source} is not a SQLite database", "check the path")


def test_a_device(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="/dev/null is not a SQLite database"):
        repack("/dev/null", LocalStore(tmp_path / "store"), **arguments(tmp_path))


# Damaged databases


@pytest.mark.parametrize("part", [0.02, 0.1, 0.3, 0.5, 0.77, 0.95, 0.999])
@pytest.mark.parametrize("whole_pages", [True, False])
def test_truncated(tmp_path: Path, shard: Path, part: float, whole_pages: bool) -> None:
    data = shard.read_bytes()
    length = int(len(data) * part)
    length = max(4096, length // 4096 * 4096) if whole_pages else length + 1234
    shard.write_bytes(data[: min(length, len(data) - 1)])
    message = refused_and_empty(tmp_path, shard, BadInput, f"source {shard}")
    assert any(word in message for word in ("damaged", "malformed")), message
    assert any(cure in message for cure in ("integrity_check", ".recover")), message


@pytest.mark.parametrize("length", [100, 101, 511, 1024, 4095])
def test_truncated_within_the_first_page(tmp_path: Path, shard: Path, length: int) -> None:
    shard.write_bytes(shard.read_bytes()[:length])
    refused_and_empty(tmp_path, shard, BadInput, f"source {shard}", "integrity_check")


def _pages(path: Path) -> int:
    return path.stat().st_size // 4096


@pytest.mark.parametrize("place", [0, 1, 2, 0.3, 0.5, 0.9])
def test_a_corrupted_page(tmp_path: Path, shard: Path, place: float) -> None:
    """Garbage where a page's structure is; what is garbage only in a body is found by its leaf hash."""
    page = int(place if place >= 1 else place * _pages(shard))
    with shard.open("r+b") as file:
        file.seek(page * 4096 + (100 if page == 0 else 0))
        file.write(b"\xa5" * 200)
    message = refused_and_empty(tmp_path, shard, BadInput, f"source {shard}")
    assert any(word in message for word in ("damaged", "malformed", "leaf hash", "cannot be read")), message


def test_a_corrupted_body(tmp_path: Path, shard: Path) -> None:
    data = bytearray(shard.read_bytes())
    with closing(sqlite3.connect(shard)) as db:
        body, leaf = db.execute("SELECT content, leaf_hash FROM chunks ORDER BY leaf_hash LIMIT 1").fetchone()
    at = data.index(body[:500].encode())
    data[at + 100] ^= 1
    shard.write_bytes(data)
    refused_and_empty(tmp_path, shard, BadInput, f"source {shard}, chunks", leaf, "does not match", "mend the row")


# The profile's tables and columns


def test_a_table_unknown_to_the_profile(tmp_path: Path, shard: Path) -> None:
    change(shard, "CREATE TABLE surprise(a)", "CREATE TABLE another(a)")
    words = ("profile small", "table unknown to the profile: another, surprise", "ship, exclude or rebuild")
    refused_and_empty(tmp_path, shard, BadInput, f"source {shard}", *words, "--leave-behind")
    result = repack(str(shard), LocalStore(tmp_path / "store"), **arguments(tmp_path, leave_behind=["surprise", "an*"]))
    assert result.packs_sent


def test_a_missing_shipped_table(tmp_path: Path, shard: Path) -> None:
    change(shard, "DROP TABLE edges")
    message = refused_and_empty(tmp_path, shard, BadInput, f"source {shard}", "profile small", "missing table: edges")
    assert "--leave-behind" not in message


def test_a_missing_column(tmp_path: Path, shard: Path) -> None:
    change(shard, "ALTER TABLE documents RENAME COLUMN uri TO url")
    words = ("missing column: documents.uri", "column unknown to the profile: documents.url")
    refused_and_empty(tmp_path, shard, BadInput, f"source {shard}", *words)


def test_a_missing_body_column(tmp_path: Path, shard: Path) -> None:
    change(shard, "ALTER TABLE chunks DROP COLUMN content")
    refused_and_empty(tmp_path, shard, BadInput, "missing column: chunks.content")


def test_an_unknown_column(tmp_path: Path, shard: Path) -> None:
    change(shard, "ALTER TABLE chunks ADD COLUMN secret TEXT")
    refused_and_empty(tmp_path, shard, BadInput, "column unknown to the profile: chunks.secret")


def test_everything_at_once_is_named(tmp_path: Path, shard: Path) -> None:
    change(shard, "DROP TABLE edges", "ALTER TABLE chunks ADD COLUMN x", "CREATE TABLE y(a)")
    refused_and_empty(tmp_path, shard, BadInput, "missing table: edges", "chunks.x", "unknown to the profile: y")


# Bodies and leaf hashes


def first_leaf(path: Path) -> str:
    with closing(sqlite3.connect(path)) as db:
        return str(db.execute("SELECT leaf_hash FROM chunks ORDER BY leaf_hash LIMIT 1 OFFSET 1").fetchone()[0])


def test_a_body_that_is_null(tmp_path: Path, shard: Path) -> None:
    leaf = first_leaf(shard)
    change(shard, f"UPDATE chunks SET content = NULL WHERE leaf_hash = '{leaf}'")
    refused_and_empty(tmp_path, shard, BadInput, f"source {shard}, chunks.content", leaf, "is NULL", "fill it")


def test_a_body_stored_as_blob(tmp_path: Path, shard: Path) -> None:
    leaf = first_leaf(shard)
    change(shard, f"UPDATE chunks SET content = CAST(content AS BLOB) WHERE leaf_hash = '{leaf}'")
    words = ("is stored as blob, the profile says text", "mend the row")
    refused_and_empty(tmp_path, shard, BadInput, f"source {shard}, chunks.content", leaf, *words)


def test_a_body_that_is_another(tmp_path: Path, shard: Path) -> None:
    leaf = first_leaf(shard)
    change(shard, f"UPDATE chunks SET content = 'another' WHERE leaf_hash = '{leaf}'")
    words = (leaf, "does not match", "7 bytes", leaf_hash(b"another").hex(), "mend the row")
    refused_and_empty(tmp_path, shard, BadInput, f"source {shard}, chunks", *words)


def test_a_body_deep_in_a_later_pack(tmp_path: Path, shard: Path) -> None:
    """Packs before it may be in the store by then; no set names them."""
    with closing(sqlite3.connect(shard)) as db:
        leaf = db.execute("SELECT max(leaf_hash) FROM chunks").fetchone()[0]
    change(shard, f"UPDATE chunks SET content = 'another' WHERE leaf_hash = '{leaf}'")
    refused(tmp_path, shard, BadInput, leaf, "does not match")


def test_two_bodies_of_one_leaf_hash(tmp_path: Path, shard: Path) -> None:
    leaf = first_leaf(shard)
    change(
        shard,
        f"INSERT INTO chunks SELECT 'other', 0, leaf_hash, n_bytes, 'another' FROM chunks WHERE leaf_hash = '{leaf}'",
    )
    refused_and_empty(tmp_path, shard, BadInput, leaf, "does not match")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("upper(leaf_hash)", "no leaf hash"),
        ("substr(leaf_hash, 2)", "no leaf hash"),
        ("leaf_hash || '0'", "no leaf hash"),
        ("leaf_hash || char(10)", "no leaf hash"),
        ("''", "no leaf hash"),
        ("'not a hash'", "no leaf hash"),
        ("char(0)", "no leaf hash"),
        ("NULL", "no text"),
        ("CAST(leaf_hash AS BLOB)", "no text"),
        ("x'c3'", "no text"),
        ("CAST(x'c328' AS TEXT)", "no text"),
        ("CAST(7 AS BLOB)", "no text"),
    ],
)
def test_a_malformed_leaf_hash(tmp_path: Path, shard: Path, value: str, shown: str) -> None:
    change(shard, f"UPDATE chunks SET leaf_hash = {value} WHERE leaf_hash = '{first_leaf(shard)}'")
    refused_and_empty(tmp_path, shard, BadInput, f"source {shard}, chunks.leaf_hash", shown, "mend the row")


def test_a_very_long_leaf_hash_is_not_repeated_whole(tmp_path: Path, shard: Path) -> None:
    change(shard, f"UPDATE chunks SET leaf_hash = hex(zeroblob(100000)) WHERE leaf_hash = '{first_leaf(shard)}'")
    refused_and_empty(tmp_path, shard, BadInput, f"source {shard}, chunks.leaf_hash", "no leaf hash")


# What is asked for


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../x", "-x", "a b", "ü", "x" * 64, "a\n", "a.", ".a", "a\0"])
@pytest.mark.parametrize("which", ["corpus", "shard"])
def test_names_with_bad_characters(tmp_path: Path, shard: Path, which: str, name: str) -> None:
    words = (f"{which} {name!r}", "letters, digits")
    refused_and_empty(tmp_path, shard, BadInput, *words, **{which: name})
    assert not (tmp_path / "staging").exists()


@pytest.mark.parametrize("name", [".db", "a b.db", "-x.db"])
def test_a_source_whose_name_makes_no_shard(tmp_path: Path, name: str) -> None:
    shard = make_shard(tmp_path / "source" / name)
    refused_and_empty(tmp_path, shard, BadInput, "shard ", "letters, digits")
    assert repack(str(shard), LocalStore(tmp_path / "store"), **arguments(tmp_path, shard="named")).packs_sent


@pytest.mark.parametrize("level", [0, 23, -1, 1000])
def test_a_level_that_zstd_does_not_have(tmp_path: Path, shard: Path, level: int) -> None:
    refused_and_empty(tmp_path, shard, BadInput, f"level {level}: zstd has levels 1 to 22", level=level)


@pytest.mark.parametrize("workers", [0, -1, 257])
def test_workers(tmp_path: Path, shard: Path, workers: int) -> None:
    refused_and_empty(tmp_path, shard, BadInput, f"{workers} workers: give 1 to 256", workers=workers)


@pytest.mark.parametrize("cap", [-1, 0, 1, 1000, 9000])
def test_a_cap_too_small(tmp_path: Path, shard: Path, cap: int) -> None:
    refused(tmp_path, shard, CapTooSmall, f"cap of {cap:,} bytes is too small", "give ", cap=cap)


def test_the_cap_that_was_named_is_enough(tmp_path: Path, shard: Path) -> None:
    """Following the advice ends well, after one or a few rounds: another member may need more."""
    cap = 9000
    for _ in range(5):
        try:
            repack(str(shard), LocalStore(tmp_path / "store"), **arguments(tmp_path, cap=cap))
            return
        except CapTooSmall as error:
            advice = re.search(r"give (?:--cap )?([0-9,]+) or more", str(error))
            assert advice, error
            cap = int(advice[1].replace(",", ""))
    pytest.fail(f"still refused at {cap}")
