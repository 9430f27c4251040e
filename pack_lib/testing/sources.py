"""Conformance suite for sources. What passes it can be pinned and packed.

Use it with pytest, in a test module of your own::

    class TestMySource(SourceSuite):
        def make_source(self, folder, name, tables): ...
        def commit(self, source, rows): ...
"""

from __future__ import annotations

import hashlib
import math
import re
import threading
import tracemalloc
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pack_lib.errors import BadInput, PackError
from pack_lib.hashing import leaf_hash
from pack_lib.pack.format import check_name
from pack_lib.sources.base import PinnedSource, Source
from pack_lib.values import INT64_MAX, INT64_MIN, RawText, encode_row

Rows = list[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Table:
    """A table to create. A column takes the type of its cells: None, int, float, str or bytes."""

    columns: tuple[str, ...]
    rows: Rows


TEXTS = ["", "a", "A", "a\0b", "a ", "ab", "\u00e9", "e\u0301", "\u20ac", "\uff21", "\U0001f600", "line\nbreak", '"\\']
INTEGERS = [0, 1, -1, 2, 10, 9, 2**53, 2**53 + 1, INT64_MAX, INT64_MIN]
FLOATS = [0.5, -0.5, 1e300, -1e300, 5e-324, math.inf, -math.inf, 0.1 + 0.2, 2.0**53, 2.0**63, 1.5]
BLOBS = [b"", b"\0", b"a", b"a\0", b"\xff", b"ab"]


def sort_key(cell: Any) -> tuple[int, Any]:
    """The order of cells: NULL, numbers by value, text by its UTF-8 bytes, blobs by theirs."""
    if cell is None:
        return 0, 0
    if isinstance(cell, bytes):
        return 3, cell
    if isinstance(cell, str):
        return 2, cell.encode()
    if isinstance(cell, RawText):
        return 2, cell.raw
    return 1, cell


def canonical(cell: Any) -> bytes:
    return encode_row((cell,)).encode()


def files_in(folder: Path) -> dict[str, str]:
    """Every file below a folder with the SHA-256 of its bytes."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


class SourceSuite:
    """Subclass it as ``Test...``, implement the two methods, and state what the class attributes say."""

    mixes_types = True
    """A column holds cells of several types."""
    raw_text = True
    """A text may be no UTF-8."""
    streamed = 24 << 20
    """Bytes of the table that must stream in less memory."""

    def make_source(self, folder: Path, name: str, tables: Mapping[str, Table]) -> Source:
        """A database called ``name`` with these tables, committed; a database of files has them below ``folder``."""
        raise NotImplementedError

    def commit(self, source: Source, rows: Mapping[str, Rows]) -> None:
        """Add rows to tables in one committed transaction of another connection, also while the source is pinned."""
        raise NotImplementedError

    def make_missing(self, folder: Path) -> Source | None:
        """A source that is not there; None if there can be no such thing."""
        return None

    # Helpers

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        """Where sources go; nothing else does."""
        (tmp_path / "source").mkdir()
        return tmp_path / "source"

    @pytest.fixture
    def pins(self, tmp_path: Path) -> Path:
        """Where pins go."""
        (tmp_path / "pins").mkdir()
        return tmp_path / "pins"

    def pinned(self, source: Source, pins: Path, name: str = "pin") -> PinnedSource:
        source.pin(pins / name)
        return source.open_pinned(pins / name)

    def _all(self, batches: Iterator[list[Any]]) -> list[Any]:
        found: list[Any] = []
        for batch in batches:
            assert type(batch) is list
            assert batch, "an empty batch"
            found += batch
        return found

    def _chunks(self, bodies: Sequence[bytes], *, as_text: bool = True) -> Table:
        rows = [
            (number, leaf_hash(body).hex(), body.decode() if as_text else body) for number, body in enumerate(bodies)
        ]
        return Table(("n", "leaf_hash", "content"), rows)

    # The source

    def test_is_a_source(self, folder: Path) -> None:
        source = self.make_source(folder, "shard-7", {"t": Table(("a",), [(1,)])})
        assert isinstance(source, Source)
        assert source.location and "\n" not in source.location
        assert check_name(source.default_shard, "shard") == "shard-7"

    def test_missing(self, folder: Path, pins: Path) -> None:
        source = self.make_missing(folder)
        if source is None:
            pytest.skip("this source cannot be missing")
        for call in (source.size, source.change_token, lambda: source.pin(pins / "pin")):
            with pytest.raises(BadInput, match=re.escape(source.location)):
                call()
        assert files_in(folder) == {}
        assert files_in(pins) == {}

    def test_size_is_about_that_of_the_pin(self, folder: Path, pins: Path) -> None:
        rows: Rows = [(hashlib.sha256(b"%d" % n).hexdigest() * 4,) for n in range(4000)]
        source = self.make_source(folder, "shard", {"t": Table(("a",), rows)})
        size = source.size()
        source.pin(pins / "pin")
        assert (pins / "pin").stat().st_size <= size * 1.2 + (1 << 20)
        assert size > 256 * 4000 / 10

    def test_change_token(self, folder: Path, pins: Path) -> None:
        source = self.make_source(folder, "shard", {"t": Table(("a",), [(1,)])})
        tokens = [source.change_token()]
        assert source.change_token() == tokens[0]
        source.pin(pins / "pin")
        assert source.change_token() == tokens[0], "pinning changed it"
        for number in range(5):
            self.commit(source, {"t": [(number,)]})
            tokens.append(source.change_token())
        assert len(set(tokens)) == len(tokens)

    # Pinning

    def test_pin_is_a_snapshot(self, folder: Path, pins: Path) -> None:
        source = self.make_source(folder, "shard", {"t": Table(("a",), [(1,)])})
        first = self.pinned(source, pins, "first")
        self.commit(source, {"t": [(2,)]})
        second = self.pinned(source, pins, "second")
        assert self._all(first.rows("t", ["a"])) == [(1,)]
        assert self._all(second.rows("t", ["a"])) == [(1,), (2,)]
        first.close()
        second.close()

    def test_pin_leaves_the_source_alone(self, folder: Path, pins: Path) -> None:
        source = self.make_source(folder, "shard", {"t": Table(("a",), [(n,) for n in range(1000)])})
        before = files_in(folder)
        pinned = self.pinned(source, pins)
        self._all(pinned.rows("t", ["a"]))
        pinned.close()
        assert files_in(folder) == before
        assert [path.name for path in pins.iterdir()] == ["pin"]

    def test_pin_tells_progress(self, folder: Path, pins: Path) -> None:
        source = self.make_source(folder, "shard", {"t": Table(("a",), [("x" * 1000,) for _ in range(3000)])})
        told: list[tuple[int, int]] = [(0, 0)]
        source.pin(pins / "pin", lambda done, total: told.append((done, total)))
        assert all(0 <= done <= total for done, total in told)
        assert told[-1][0] == told[-1][1]

    def test_pin_of_a_changing_source_is_consistent(self, folder: Path, pins: Path) -> None:
        """Every transaction adds one row to each of two tables: a pin holds as many rows of one as of the other."""
        filler: Rows = [(-n, "x" * 500) for n in range(1, 4001)]
        tables = {"one": Table(("n", "text"), filler), "two": Table(("n", "text"), filler)}
        source = self.make_source(folder, "shard", tables)
        stop = threading.Event()
        errors: list[BaseException] = []

        def write() -> None:
            number = 0
            while not stop.is_set():
                try:
                    self.commit(source, {"one": [(number, "x" * 100)], "two": [(number, "y" * 100)]})
                except BaseException as error:
                    errors.append(error)
                    return
                number += 1

        writer = threading.Thread(target=write)
        writer.start()
        try:
            for turn in range(5):
                pinned = self.pinned(source, pins, f"pin-{turn}")
                numbers = [[row[0] for row in self._all(pinned.rows(table, ["n"]))] for table in ("one", "two")]
                assert numbers[0] == numbers[1]
                assert numbers[0] == list(range(-4000, 0)) + list(range(numbers[0][-1] + 1))[: len(numbers[0]) - 4000]
                assert pinned.count("one") == pinned.count("two") == len(numbers[0])
                pinned.close()
        finally:
            stop.set()
            writer.join()
        assert not errors, errors

    # Reading

    def test_tables(self, folder: Path, pins: Path) -> None:
        tables = {
            "plain": Table(("b", "a"), [(1, "x")]),
            "Odd name; --": Table(("a b", 'quo"te', "SELECT"), [(1, 2, 3)]),
            "empty": Table(("only",), []),
        }
        source = self.make_source(folder, "shard", tables)
        pinned = self.pinned(source, pins)
        assert pinned.tables() == {name: table.columns for name, table in tables.items()}
        assert {name: pinned.count(name) for name in tables} == {"plain": 1, "Odd name; --": 1, "empty": 0}
        assert self._all(pinned.rows("Odd name; --", ['quo"te', "SELECT", "a b"])) == [(2, 3, 1)]
        assert list(pinned.rows("empty", ["only"])) == []
        pinned.close()

    @pytest.mark.parametrize("cells", [TEXTS, INTEGERS, FLOATS, BLOBS], ids=["texts", "integers", "floats", "blobs"])
    def test_cells_survive_in_order(self, folder: Path, pins: Path, cells: list[Any]) -> None:
        rows: Rows = [(cell, number) for number, cell in enumerate([*cells, None])]
        source = self.make_source(folder, "shard", {"t": Table(("a", "n"), rows[::-1])})
        pinned = self.pinned(source, pins)
        found = self._all(pinned.rows("t", ["a", "n"]))
        pinned.close()
        assert [repr(row) for row in found] == [repr(row) for row in sorted(rows, key=lambda row: sort_key(row[0]))]
        assert all(type(row) is tuple for row in found)

    def test_negative_zero_survives(self, folder: Path, pins: Path) -> None:
        source = self.make_source(folder, "shard", {"t": Table(("n", "a"), [(1, -0.0), (2, 0.0), (3, 1.5)])})
        pinned = self.pinned(source, pins)
        found = self._all(pinned.rows("t", ["n", "a"]))
        pinned.close()
        assert [repr(row) for row in found] == ["(1, -0.0)", "(2, 0.0)", "(3, 1.5)"]

    def _mixed(self) -> Rows:
        cells = [None, *TEXTS[:6], *INTEGERS, *FLOATS, *BLOBS, 1.0, 2.0, -1.0, -0.0, 0.0]
        rows: Rows = [(cell, f"{number % 3}") for number, cell in enumerate(cells)]
        rows += [(one, two) for one in (1, 1.0, 0, 0.0, -0.0, "1", b"1", None) for two in (2, 2.0, None, "2", b"2")] * 2
        return rows

    def test_mixed_types_in_order(self, folder: Path, pins: Path) -> None:
        """Rows ascend column by column; of rows that tie in all columns the order is open."""
        if not self.mixes_types:
            pytest.skip("its columns hold one type each")
        rows = self._mixed()
        source = self.make_source(folder, "shard", {"t": Table(("a", "b"), rows)})
        pinned = self.pinned(source, pins)
        found = self._all(pinned.rows("t", ["a", "b"]))
        swapped = self._all(pinned.rows("t", ["b", "a"]))
        pinned.close()
        assert sorted(map(repr, found)) == sorted(map(repr, rows))
        keys = [tuple(map(sort_key, row)) for row in found]
        assert keys == sorted(keys)
        assert [tuple(map(sort_key, row)) for row in swapped] == sorted(key[::-1] for key in keys)

    def test_mixed_types_in_exact_order(self, folder: Path, pins: Path) -> None:
        """Each column's ties are settled by the cell's canonical bytes before the next column counts."""
        if not self.mixes_types:
            pytest.skip("its columns hold one type each")
        rows = self._mixed()
        for turn, given in enumerate((rows, rows[::-1])):
            (folder / str(turn)).mkdir()
            source = self.make_source(folder / str(turn), "shard", {"t": Table(("a", "b"), given)})
            pinned = self.pinned(source, pins, f"pin-{turn}")
            found = self._all(pinned.rows("t", ["a", "b"], exact=True))
            pinned.close()
            expected = sorted(rows, key=lambda row: [part for c in row for part in (sort_key(c), canonical(c))])
            assert list(map(repr, found)) == list(map(repr, expected))

    def test_text_that_is_not_utf8(self, folder: Path, pins: Path) -> None:
        if not self.raw_text:
            pytest.skip("its texts are UTF-8")
        cells = [
            RawText(b"a\xff"),
            "a",
            RawText(b"\xc3"),
            "\u00e9",
            RawText(b"\xed\xa0\x80"),
            "z",
            RawText(b"\xff\xff"),
        ]
        source = self.make_source(folder, "shard", {"t": Table(("a",), [(cell,) for cell in cells])})
        pinned = self.pinned(source, pins)
        for exact in (False, True):
            found = self._all(pinned.rows("t", ["a"], exact=exact))
            assert found == [(cell,) for cell in sorted(cells, key=sort_key)]
        pinned.close()

    def test_leaf_hashes(self, folder: Path, pins: Path) -> None:
        bodies = [b"body %d" % (number % 900) for number in range(2500)]
        source = self.make_source(folder, "shard", {"chunks": self._chunks(bodies)})
        pinned = self.pinned(source, pins)
        assert self._all(pinned.leaf_hashes("chunks", "leaf_hash")) == sorted({leaf_hash(b).hex() for b in bodies})
        pinned.close()

    @pytest.mark.parametrize("cell", [None, 5, b"00" * 32, 1.5], ids=["null", "integer", "blob", "float"])
    def test_leaf_hash_that_is_no_text(self, folder: Path, pins: Path, cell: Any) -> None:
        if cell is not None and not self.mixes_types:
            pytest.skip("its columns hold one type each")
        source = self.make_source(folder, "shard", {"chunks": Table(("leaf_hash",), [("00" * 32,), (cell,)])})
        pinned = self.pinned(source, pins)
        with pytest.raises(BadInput, match=rf"{re.escape(source.location)}.*chunks\.leaf_hash"):
            self._all(pinned.leaf_hashes("chunks", "leaf_hash"))
        pinned.close()

    @pytest.mark.parametrize("as_text", [True, False])
    def test_bodies(self, folder: Path, pins: Path, as_text: bool) -> None:
        """Every row's body as bytes, ascending by leaf hash; one hash may come several times."""
        bodies = [f"body {number % 300} \u20ac\0 {'x' * (number % 7)}".encode() for number in range(2100)]
        bodies.append(b"")
        source = self.make_source(folder, "shard", {"chunks": self._chunks(bodies, as_text=as_text)})
        pinned = self.pinned(source, pins)
        found = self._all(pinned.bodies("chunks", "leaf_hash", "content", "text" if as_text else "blob"))
        pinned.close()
        assert found == sorted((leaf_hash(body).hex(), body) for body in bodies)

    @pytest.mark.parametrize("kind", ["text", "blob"])
    def test_body_that_is_null(self, folder: Path, pins: Path, kind: str) -> None:
        table = self._chunks([b"one", b"two", b"three"], as_text=kind == "text")
        lacking = table.rows[1][1]
        rows = [row if row[1] != lacking else (*row[:2], None) for row in table.rows]
        source = self.make_source(folder, "shard", {"chunks": Table(table.columns, rows)})
        pinned = self.pinned(source, pins)
        with pytest.raises(BadInput, match=f"(?s){lacking}.*NULL"):
            self._all(pinned.bodies("chunks", "leaf_hash", "content", kind))
        pinned.close()

    @pytest.mark.parametrize(("kind", "cell"), [("text", b"two"), ("blob", "two"), ("text", 2), ("blob", 2.5)])
    def test_body_of_another_type(self, folder: Path, pins: Path, kind: str, cell: Any) -> None:
        if not self.mixes_types:
            pytest.skip("its columns hold one type each")
        table = self._chunks([b"one", b"two", b"three"], as_text=kind == "text")
        wrong = table.rows[1][1]
        rows = [row if row[1] != wrong else (*row[:2], cell) for row in table.rows]
        source = self.make_source(folder, "shard", {"chunks": Table(table.columns, rows)})
        pinned = self.pinned(source, pins)
        with pytest.raises(BadInput, match=rf"{re.escape(source.location)}.*{wrong}.*{kind}"):
            self._all(pinned.bodies("chunks", "leaf_hash", "content", kind))
        pinned.close()

    def test_what_is_not_there(self, folder: Path, pins: Path) -> None:
        source = self.make_source(folder, "shard", {"t": Table(("a",), [(1,)])})
        pinned = self.pinned(source, pins)
        with pytest.raises(PackError, match="absent"):
            self._all(pinned.rows("absent", ["a"]))
        with pytest.raises(PackError, match="absent"):
            pinned.count("absent")
        pinned.close()

    def test_a_stream_may_be_left(self, folder: Path, pins: Path) -> None:
        source = self.make_source(folder, "shard", {"t": Table(("a",), [(number,) for number in range(5000)])})
        pinned = self.pinned(source, pins)
        stream = pinned.rows("t", ["a"])
        assert next(stream)[0] == (0,)
        assert self._all(pinned.rows("t", ["a"])) == [(number,) for number in range(5000)]
        del stream
        pinned.close()

    @pytest.mark.parametrize("size", [4000, 1 << 20])
    def test_streams_in_bounded_memory(self, folder: Path, pins: Path, size: int) -> None:
        """A table and its bodies pass through in far less memory than they take, short bodies and long ones."""
        count = self.streamed // size
        rows: Rows = [(f"{number * 7919 % 100_003:064x}", f"{number}{'x' * size}") for number in range(count)]
        source = self.make_source(folder, "shard", {"chunks": Table(("leaf_hash", "content"), rows)})
        del rows
        pinned = self.pinned(source, pins)
        tracemalloc.start()
        try:
            base = tracemalloc.get_traced_memory()[0]
            assert sum(len(batch) for batch in pinned.rows("chunks", ["leaf_hash", "content"])) == count
            assert sum(len(batch) for batch in pinned.bodies("chunks", "leaf_hash", "content", "text")) == count
            peak = tracemalloc.get_traced_memory()[1] - base
        finally:
            tracemalloc.stop()
        pinned.close()
        assert peak < self.streamed / 2, f"{peak:,} bytes"
