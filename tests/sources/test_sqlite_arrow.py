"""The Arrow way of reading a pinned SQLite file gives what the way of the standard library gives, byte for byte."""

from __future__ import annotations

import random
import sqlite3
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("adbc_driver_sqlite")
pytest.importorskip("pyarrow")

from pack_lib.columnar import encode_rows
from pack_lib.errors import BadInput, StoreTrouble
from pack_lib.fanin import GROUP_LIMIT, fan_in
from pack_lib.hashing import leaf_hash
from pack_lib.lines import LineBlock
from pack_lib.profile import Bodies, Documents
from pack_lib.sources import arrow_stream, sqlite, sqlite_arrow
from pack_lib.sources.arrow_stream import ArrowStream, arrow_available, arrow_errors, bounded_rows, is_utf8, probe
from pack_lib.sources.base import ChunkBatch, PinnedSource
from pack_lib.sources.sqlite import SqliteSource
from pack_lib.sources.sqlite_arrow import ArrowPinned
from pack_lib.sources.sqlite_pinned import SqlitePinned
from pack_lib.values import INT64_MAX, INT64_MIN, RawText
from tests.sources.test_sqlite_source import TestSqliteSource as SqliteSuite

BODIES = Bodies("chunks", "leaf_hash", "content", "text", "document_root", "ordinal", "n_bytes")
DOCUMENTS = Documents("documents", "document_root", ("uri",))
TEXTS = [
    "",
    "a",
    "A",
    "a\0b",
    "\0",
    '"',
    "\\",
    "\x01\x1f\x7f\x80",
    "\n\r\t\b\f",
    "\u2028",
    "\U0001f600",
    "null",
    "1",
    "]",
]
CELLS = [None, 0, 1, -1, 10, 9, INT64_MIN, INT64_MAX, *TEXTS]

Rows = Sequence[tuple[Any, ...]]


class RowSource(SqliteSource):
    """A source read as it is where the packages for the Arrow way are missing."""

    def open_pinned(self, pinned: Path | None) -> PinnedSource:
        return SqlitePinned(pinned or self.path, f"source {self.path}")


class TestRowSource(SqliteSuite):
    def make_source(self, folder: Path, name: str, tables: Any) -> RowSource:
        return RowSource(Path(super().make_source(folder, name, tables).location))

    def make_missing(self, folder: Path) -> RowSource:
        return RowSource(folder / "absent.db")


def make(path: Path, columns: Sequence[str], rows: Iterable[tuple[Any, ...]], *, more: Sequence[str] = ()) -> None:
    """A table ``t``; ``columns`` with their declarations; RawText as text."""
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA synchronous=OFF")
        for statement in more:
            db.execute(statement)
        db.execute(f"CREATE TABLE t ({', '.join(columns)})")
        db.execute("BEGIN")
        for row in rows:
            marks = ", ".join("CAST(? AS TEXT)" if isinstance(cell, RawText) else "?" for cell in row)
            db.execute(
                f"INSERT INTO t VALUES ({marks})", [cell.raw if isinstance(cell, RawText) else cell for cell in row]
            )
        db.execute("COMMIT")


def taken(blocks: Iterator[LineBlock], rows: int) -> bytes:
    """The bytes of all blocks, whose counts are checked."""
    data, seen = [], 0
    for block in blocks:
        assert type(block.data) is bytes
        assert block.data.endswith(b"\n")
        assert block.data.count(b"\n") == block.lines > 0
        seen += block.rows
        data.append(block.data)
    assert seen == rows
    return b"".join(data)


def check(path: Path, names: Sequence[str], rows: int) -> None:
    """Lines and fanned-in lines of both ways."""
    with closing(SqlitePinned(path, "here")) as slow, closing(ArrowPinned(path, "here")) as fast:
        plain = b"".join(line for lines in encode_rows(slow.rows("t", names)) for line in lines)
        assert taken(fast.lines("t", names), rows) == plain
        if len(names) > 1:
            groups = fan_in(slow.rows("t", names, exact=True), sqlite_arrow.GROUP_LIMIT)
            fanned = b"".join(line for lines in encode_rows(groups) for line in lines)
            assert taken(fast.lines("t", names, fan_in=True), rows) == fanned
        assert not fast._streams


@pytest.fixture(params=[1, 2, 3, 7, 4096])
def batch_rows(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(arrow_stream, "BATCH_ROWS", request.param)
    return int(request.param)


# The probe


def test_json_of_every_code_point_is_ours() -> None:
    assert arrow_available()
    assert probe("".join(chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000))


def test_a_different_encoder_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    for other in (lambda row: "[" + ",".join(map(repr, row)) + "]", lambda row: ""):
        monkeypatch.setattr(arrow_stream, "encode_row", other)
        assert not arrow_available.__wrapped__()


def test_without_the_packages_the_other_way_serves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "adbc_driver_sqlite", None)
    monkeypatch.setattr(sqlite, "arrow_available", arrow_available.__wrapped__)
    corpus(tmp_path / "a.db")
    with closing(SqliteSource(tmp_path / "a.db").open_pinned(None)) as pinned:
        assert type(pinned) is SqlitePinned
        assert sum(len(batch.ordinals) for batch in pinned.document_chunks(BODIES, DOCUMENTS)) > 0
    monkeypatch.undo()
    with closing(SqliteSource(tmp_path / "a.db").open_pinned(None)) as pinned:
        assert type(pinned) is ArrowPinned


# Lines


def test_lines_of_all_plain_cells(tmp_path: Path, batch_rows: int) -> None:
    rows = [(a, b) for a in CELLS for b in CELLS]
    make(tmp_path / "a.db", ["a", "b"], rows + rows[::3])
    check(tmp_path / "a.db", ["a", "b"], len(rows) + len(rows[::3]))
    check(tmp_path / "a.db", ["b"], len(rows) + len(rows[::3]))


@pytest.mark.parametrize("declared", ["TEXT", "TEXT COLLATE NOCASE", "TEXT COLLATE RTRIM", "DATE", "INTEGER", "BLOB"])
@pytest.mark.parametrize("index", [False, True])
def test_lines_whatever_the_columns_declare(tmp_path: Path, batch_rows: int, declared: str, index: bool) -> None:
    rows = [
        (a, b, c) for a in ("a", "A", "b ", "b", None, 7) for b in ("x", "X", "x ", 1, "1") for c in (None, "y", "Y")
    ]
    random.Random(1).shuffle(rows)
    make(tmp_path / "a.db", [f"{name} {declared}" for name in ("a", "[b c]", '"c""d"')], rows)
    if index:
        with closing(sqlite3.connect(tmp_path / "a.db")) as db:
            db.execute('CREATE INDEX i ON t(a, "b c", "c""d")')
    check(tmp_path / "a.db", ["a", "b c", 'c"d'], len(rows))


def test_lines_of_no_rows_and_of_one_type(tmp_path: Path) -> None:
    for rows in ([], [(None, None)], [(None, None)] * 9, [(1, 2)], [("", "")]):
        make(tmp_path / "a.db", ["a", "b"], rows)
        check(tmp_path / "a.db", ["a", "b"], len(rows))


@pytest.mark.parametrize("cell", [1.0, -0.0, float("inf"), b"", b"x"])
def test_reals_and_blobs_are_left_to_rows(tmp_path: Path, cell: object) -> None:
    make(tmp_path / "a.db", ["a", "b", "r REAL"], [(n, "x", None) for n in range(5000)] + [(1, cell, None)])
    with closing(ArrowPinned(tmp_path / "a.db", "here")) as pinned:
        assert pinned._plain_rows("t", ["a", "b"]) is None
        assert pinned._plain_rows("t", ["a"]) is not None
        assert pinned._plain_rows("t", ["r"]) is not None
        assert pinned._plain_rows("t", []) is None
        assert pinned._plain_rows("t", ["a"] * 101) is None
    check(tmp_path / "a.db", ["a", "b"], 5001)
    make(tmp_path / "a.db", ["r REAL"], [(1,)])  # stored as an integer, read as a real
    with closing(ArrowPinned(tmp_path / "a.db", "here")) as pinned:
        assert pinned._plain_rows("t", ["r"]) is None
    check(tmp_path / "a.db", ["r"], 1)


def test_rows_too_large_for_a_line_of_sqlites_are_left_to_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_arrow, "_MAX_ROW", 50_000)
    for size in (40_000, 60_000):
        make(tmp_path / "a.db", ["a", "b"], [(1, "x"), (2, "\x01" * size)])
        with closing(ArrowPinned(tmp_path / "a.db", "here")) as pinned:
            assert (pinned._plain_rows("t", ["a", "b"]) is None) == (size > 50_000)
        check(tmp_path / "a.db", ["a", "b"], 2)


@pytest.mark.parametrize("place", [0, 5, 400, 799])
@pytest.mark.parametrize("raw", [b"\xff", b"\xc3", b"\xed\xa0\x80", b"z\0\x80", b"\xf4\x90\x80\x80"])
def test_text_that_is_no_utf8_turns_up_late(tmp_path: Path, batch_rows: int, place: int, raw: bytes) -> None:
    rows: list[tuple[Any, ...]] = [(f"{n // 9:05}", n % 7, f"\u00e9{n}") for n in range(800)]
    rows[place] = (rows[place][0], RawText(raw), rows[place][2])
    rows[(place + 31) % 800] = (*rows[place][:2], RawText(raw))
    make(tmp_path / "a.db", ["a", "b", "c"], rows)
    check(tmp_path / "a.db", ["a", "b", "c"], 800)


def test_blocks_are_bounded(tmp_path: Path) -> None:
    made = random.Random(2)
    rows = [(n, "x" * made.randrange(4000)) for n in range(8000)] + [(9000, "y" * (5 << 20))]
    make(tmp_path / "a.db", ["a", "b"], rows)
    with closing(ArrowPinned(tmp_path / "a.db", "here")) as pinned:
        sizes = [len(block.data) for block in pinned.lines("t", ["a", "b"])]
    assert sum(sizes) > 20 << 20
    assert max(sizes) <= (5 << 20) + (4 << 20) + 100
    assert 2 <= len(sizes) < 20, "one large row does not make the others' batches small"
    check(tmp_path / "a.db", ["a", "b"], len(rows))


cells = st.one_of(
    st.none(),
    st.integers(-3, 3),
    st.sampled_from([INT64_MIN, INT64_MAX]),
    st.text(max_size=3),
    st.sampled_from([*TEXTS, RawText(b"\xff"), RawText(b"a\xc3")]),
)


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.lists(st.tuples(cells, cells, cells), max_size=30),
    repeats=st.integers(1, 4),
    batch=st.sampled_from([1, 2, 3, 5, 4096]),
    limit=st.sampled_from([1, 2, 3, 7, GROUP_LIMIT]),
    declared=st.sampled_from(["", "TEXT COLLATE NOCASE", "INTEGER"]),
)
def test_lines_of_any_plain_table(
    tmp_path: Path, rows: list[tuple[Any, ...]], repeats: int, batch: int, limit: int, declared: str
) -> None:
    rows = rows * repeats
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrow_stream, "BATCH_ROWS", batch)
        patch.setattr(sqlite_arrow, "GROUP_LIMIT", limit)
        make(tmp_path / "a.db", [f"a {declared}", f"b {declared}", f"c {declared}"], rows)
        check(tmp_path / "a.db", ["a", "b", "c"], len(rows))
        check(tmp_path / "a.db", ["c", "a"], len(rows))


# Fan-in


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 8, 64, GROUP_LIMIT])
def test_groups_are_cut_at_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch_rows: int, limit: int
) -> None:
    monkeypatch.setattr(sqlite_arrow, "GROUP_LIMIT", limit)
    sizes = [1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 1, 1, 40]
    rows = [(key, None, f"v{n}") for key, size in enumerate(sizes) for n in range(size)] + [("x", 1, "same")] * 20
    make(tmp_path / "a.db", ["a", "b", "c"], rows)
    check(tmp_path / "a.db", ["a", "b", "c"], len(rows))


@pytest.mark.parametrize("size", [GROUP_LIMIT - 1, GROUP_LIMIT, GROUP_LIMIT + 1, 2 * GROUP_LIMIT + 5000])
def test_groups_around_the_real_limit(tmp_path: Path, size: int) -> None:
    rows = [("a", 0), *(("k", n % 1000) for n in range(size)), ("z", 1)]
    make(tmp_path / "a.db", ["a", "b"], rows)
    check(tmp_path / "a.db", ["a", "b"], len(rows))


def test_keys_that_only_look_alike_stay_apart(tmp_path: Path, batch_rows: int) -> None:
    rows = [(key, value) for key in (1, "1", None, "null", "", "]", '"') for value in (1, "1", None, "null", 1)]
    make(tmp_path / "a.db", ["a", "b"], rows)
    check(tmp_path / "a.db", ["a", "b"], len(rows))


# Document chunks


def corpus(path: Path, *, kind: str = "text", encoding: str = "UTF-8", documents: int = 40) -> None:
    made = random.Random(3)
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute(f"PRAGMA encoding='{encoding}'")
        db.execute("CREATE TABLE documents(document_root TEXT COLLATE NOCASE, uri TEXT COLLATE NOCASE)")
        db.execute("CREATE TABLE chunks(document_root TEXT, ordinal, leaf_hash TEXT, n_bytes, content)")
        db.execute("CREATE INDEX i ON chunks(document_root, ordinal)")
        db.execute("BEGIN")
        for number in range(documents):
            root = leaf_hash(b"%d" % number).hex()
            root = root.upper() if number % 5 == 0 else root[:9] + "\u00e9\0" if number % 7 == 0 else root
            if number % 9:
                db.execute("INSERT INTO documents VALUES (?, ?)", (root, made.choice(["a", "B", "b", None])))
            for ordinal in range(made.randrange(9)):
                text = made.choice(["", "x\0y", "\u20ac" * made.randrange(99), "\U0001f600", f"{number} {ordinal}"])
                body = text.encode()
                size = made.choice([len(body), len(body), len(text), str(len(body)), None, float(len(body)), -1])
                place = ordinal if made.randrange(9) else made.choice([None, "x", 2.5])
                cell = text if kind == "text" else body
                db.execute(
                    "INSERT INTO chunks VALUES (?, ?, ?, ?, ?)", (root, place, leaf_hash(body).hex(), size, cell)
                )
        db.execute("COMMIT")


def gathered(batches: Iterable[ChunkBatch]) -> list[Any]:
    """Everything that batches say, a row each, with the checks that a batch must pass by itself."""
    rows: list[Any] = []
    for batch in batches:
        roots = [root for root, count in batch.runs for _ in range(count)]
        sizes, digests = list(batch.bodies.sizes), batch.bodies.digests()
        count = len(roots)
        assert count > 0
        assert count == len(batch.ordinals) == len(batch.sized) == len(sizes) == len(digests)
        assert all(left[0] != right[0] for left, right in zip(batch.runs, batch.runs[1:], strict=False))
        assert set(map(type, batch.ordinals)) == {int}
        assert set(map(type, batch.sized)) == {bool}
        bodies = [b"".join(batch.bodies.pieces(place, place + 1)) for place in range(count)]
        assert list(map(len, bodies)) == sizes
        assert b"".join(batch.bodies.pieces(0, count)) == b"".join(bodies)
        assert b"".join(batch.bodies.pieces(count // 3, count // 2)) == b"".join(bodies[count // 3 : count // 2])
        assert [leaf_hash(body) for body in bodies] == digests
        assert len(batch.leaf_hashes) == 64 * count
        rows += zip(roots, batch.ordinals, batch.sized, digests, bodies, strict=True)
        assert b"".join(digests).hex() == batch.leaf_hashes
    return rows


@pytest.mark.parametrize("kind", ["text", "blob"])
@pytest.mark.parametrize("encoding", ["UTF-8", "UTF-16le"])
def test_document_chunks(tmp_path: Path, batch_rows: int, kind: str, encoding: str) -> None:
    corpus(tmp_path / "a.db", kind=kind, encoding=encoding)
    bodies = Bodies(**{**{name: getattr(BODIES, name) for name in BODIES.__slots__}, "type": kind})
    with (
        closing(SqlitePinned(tmp_path / "a.db", "here")) as slow,
        closing(ArrowPinned(tmp_path / "a.db", "here")) as fast,
    ):
        expected = gathered(slow.document_chunks(bodies, DOCUMENTS))
        assert gathered(fast.document_chunks(bodies, DOCUMENTS)) == expected
        assert gathered(fast.document_chunks(bodies, DOCUMENTS)) == expected, "once more"
        assert len(expected) > 50
        assert fast._arrow == (encoding == "UTF-8")


def test_bodies_are_one_piece(tmp_path: Path) -> None:
    corpus(tmp_path / "a.db")
    with closing(ArrowPinned(tmp_path / "a.db", "here")) as pinned:
        (batch,) = pinned.document_chunks(BODIES, DOCUMENTS)
        pieces = batch.bodies.pieces(0, len(batch.ordinals))
        assert [type(piece) for piece in pieces] == [memoryview]
        assert batch.bodies.pieces(3, 3) == []
    assert len(pieces[0]) == sum(batch.bodies.sizes), "the bytes outlive the source"


def test_document_chunks_of_nothing(tmp_path: Path) -> None:
    corpus(tmp_path / "a.db", documents=0)
    with closing(ArrowPinned(tmp_path / "a.db", "here")) as pinned:
        assert list(pinned.document_chunks(BODIES, DOCUMENTS)) == []


@pytest.mark.parametrize("change", ["NULL", "CAST(content AS BLOB)", "1", "1.5"])
@pytest.mark.parametrize("where", ["true", "ordinal = 3"])
def test_a_body_that_is_none_is_named(tmp_path: Path, batch_rows: int, change: str, where: str) -> None:
    corpus(tmp_path / "a.db")
    with closing(sqlite3.connect(tmp_path / "a.db")) as db:
        db.execute(f"UPDATE chunks SET content = {change} WHERE {where}")
        db.commit()
    messages = []
    for kind in (SqlitePinned, ArrowPinned):
        with closing(kind(tmp_path / "a.db", "here")) as pinned, pytest.raises(BadInput) as caught:
            list(pinned.document_chunks(BODIES, DOCUMENTS))
        messages.append(str(caught.value))
    assert messages[0] == messages[1]
    assert "leaf hash" in messages[0]


def test_no_sorter_for_bodies(tmp_path: Path) -> None:
    corpus(tmp_path / "a.db")
    setup = sqlite_arrow.ordered_documents(DOCUMENTS, " COLLATE BINARY")
    query = "EXPLAIN QUERY PLAN " + sqlite_arrow._chunk_query(BODIES)
    with closing(ArrowStream(tmp_path / "a.db", "here", query, 100, setup)) as stream:
        plan = [row["detail"] for batch in stream for row in batch.to_pylist()]
    assert plan == ["SCAN o", "SEARCH c USING INDEX i (document_root=?)"]


# Streams


def open_files() -> int:
    """0 where the system does not say."""
    folder = Path("/proc/self/fd")
    return len(list(folder.iterdir())) if folder.is_dir() else 0


def test_a_stream_that_is_left_early_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow_stream, "BATCH_ROWS", 2)
    corpus(tmp_path / "a.db")
    with closing(ArrowPinned(tmp_path / "a.db", "here")) as pinned:
        columns = ["uri", "document_root"]
        for blocks in (
            pinned.lines("documents", columns),
            pinned.lines("documents", columns, fan_in=True),
            pinned.document_chunks(BODIES, DOCUMENTS),
        ):
            next(blocks)
            assert len(pinned._streams) == 1
            blocks.close()  # type: ignore[attr-defined]
            assert not pinned._streams
        opened = open_files()
        both = [pinned.lines("documents", columns), pinned.lines("chunks", ["leaf_hash"])]
        first = [next(blocks) for blocks in both]
        assert len(first) == len(pinned._streams) == 2
    for blocks in both:
        with pytest.raises(BadInput, match="closed"):
            list(blocks)  # the one that was read ahead, no more
    assert open_files() < opened or not opened


def test_odd_paths_are_read_and_nothing_is_written(tmp_path: Path) -> None:
    folder = tmp_path / "a %20?mode=rw#\u00e9&x"
    folder.mkdir()
    make(folder / "b c.db", ["a", "b"], [(1, "x")])
    (folder / "b c.db").chmod(0o444)
    before = (folder / "b c.db").stat()
    check(folder / "b c.db", ["a", "b"], 1)
    assert list(tmp_path.rglob("*")) == [folder, folder / "b c.db"]
    after = (folder / "b c.db").stat()
    assert (before.st_mtime_ns, before.st_size) == (after.st_mtime_ns, after.st_size)


def test_a_damaged_file_is_bad_input(tmp_path: Path) -> None:
    make(tmp_path / "a.db", ["a", "b"], [(n, "x" * 300) for n in range(3000)])
    with (tmp_path / "a.db").open("r+b") as file:
        file.seek(40 * 4096)
        file.write(b"\xff" * 4096 * 20)
    with closing(ArrowPinned(tmp_path / "a.db", "here")) as pinned, pytest.raises(BadInput, match="here is damaged"):
        list(pinned.lines("t", ["a", "b"]))


def test_a_missing_table_is_bad_input(tmp_path: Path) -> None:
    make(tmp_path / "a.db", ["a"], [])
    with closing(ArrowPinned(tmp_path / "a.db", "here")) as pinned, pytest.raises(BadInput, match="no such table"):
        pinned.lines("absent", ["a"])


def test_a_full_disk_is_trouble_of_the_store() -> None:
    with pytest.raises(StoreTrouble, match="here"), arrow_errors("here"):
        raise OSError("[SQLite] Failed to step query: database or disk is full")


def test_what_is_no_error_of_sqlite_passes() -> None:
    with pytest.raises(ZeroDivisionError), arrow_errors("here"):
        raise ZeroDivisionError


@given(st.lists(st.integers(0, 3 << 20), max_size=40))
def test_no_batch_is_larger_than_its_bound(sizes: list[int]) -> None:
    import pyarrow

    largest = sorted(sizes, reverse=True)
    batch = pyarrow.record_batch({"size": pyarrow.array(largest, pyarrow.int64())})
    count = bounded_rows(iter([batch]))
    assert count is not None and count >= 1
    assert sum(largest[:count]) <= arrow_stream.BATCH_BYTES + max(largest, default=0)
    if count < arrow_stream.BATCH_ROWS:
        assert sum(largest[: count + 1]) > arrow_stream.BATCH_BYTES


@given(st.binary(max_size=12))
def test_is_utf8_is_strict(raw: bytes) -> None:
    try:
        str(raw, "utf-8")
        assert is_utf8(raw)
    except UnicodeDecodeError:
        assert not is_utf8(raw)
