"""The hot paths of a pinned SQLite file by Arrow batches: no Python work a row. `SqlitePinned` does the rest."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pack_lib.columnar import encode_rows
from pack_lib.fanin import GROUP_LIMIT
from pack_lib.fanin import fan_in as fanned
from pack_lib.lines import LineBlock
from pack_lib.profile import Bodies, Documents
from pack_lib.sources.arrow_stream import (
    ArrowBodies,
    ArrowStream,
    ahead,
    bounded_rows,
    integers,
    is_utf8,
    joined,
    size_query,
)
from pack_lib.sources.base import ChunkBatch
from pack_lib.sources.sqlite_file import chained, quoted
from pack_lib.sources.sqlite_pinned import SqlitePinned, ordered_documents
from pack_lib.values import INT64_MAX, encode_row

_MAX_COLUMNS = 100
"""A function of SQLite takes at least so many arguments."""
_MAX_ROW = 150_000_000
"""Bytes of a row that SQLite makes a line of: of its text 6 bytes a character at most, 1,000,000,000 in all."""


class ArrowPinned(SqlitePinned):
    """`SqlitePinned` for where `arrow_available`; what it yields is the same, byte for byte."""

    def __init__(self, path: Path, where: str) -> None:
        super().__init__(path, where)
        self._path = path
        self._streams: set[ArrowStream] = set()
        # A UTF-16 database orders text by a function of ours, which this connection's SQLite does not have.
        self._arrow = self._collate == " COLLATE BINARY"

    def close(self) -> None:
        for stream in list(self._streams):
            stream.close()
        super().close()

    @contextlib.contextmanager
    def _stream(self, sql: str, rows: int = 1, setup: Sequence[str] = ()) -> Iterator[ArrowStream]:
        stream = ArrowStream(self._path, self._where, sql, rows, setup)
        self._streams.add(stream)
        try:
            yield stream
        finally:
            self._streams.discard(stream)
            stream.close()

    def _rows_a_batch(self, table: str, size: str, most: int = INT64_MAX - 1) -> int | None:
        with self._stream(size_query(table, size), 4096) as stream:
            return bounded_rows(iter(stream), most)

    def document_chunks(self, bodies: Bodies, documents: Documents) -> Iterator[ChunkBatch]:
        if not self._arrow:
            yield from super().document_chunks(bodies, documents)
            return
        import pyarrow.compute

        count = self._rows_a_batch(bodies.table, f"coalesce(octet_length({quoted(bodies.content)}), 0)")
        setup = ordered_documents(documents, self._collate)
        with self._stream(_chunk_query(bodies), count or 1, setup) as stream:
            for batch in ahead(stream):
                roots, ordinals, stated, hashes, found = batch.columns
                if found.null_count:
                    first = found.is_null().index(True).as_py()
                    raise self._no_body(bodies.table, bodies.hash, bodies.content, bodies.type, hashes[first].as_py())
                runs = pyarrow.compute.run_end_encode(roots)
                ends = integers(runs.run_ends)
                lengths = [stop - start for start, stop in zip([0, *ends], ends, strict=False)]
                names = [str(root, "utf-8", "surrogateescape") for root in runs.values.to_pylist()]
                column = ArrowBodies(found)
                yield ChunkBatch(
                    list(zip(names, lengths, strict=True)),
                    integers(ordinals),
                    list(map(operator.eq, integers(stated), column.sizes)),
                    str(joined(hashes), "ascii"),
                    column,
                )

    def lines(self, table: str, columns: Sequence[str], *, fan_in: bool = False) -> Iterator[LineBlock]:
        count = None if fan_in and len(columns) < 2 else self._plain_rows(table, columns)
        if count is None:
            return super().lines(table, columns, fan_in=fan_in)
        return (self._fanned_lines if fan_in else self._lines)(table, columns, count)

    def _plain_rows(self, table: str, columns: Sequence[str]) -> int | None:
        """How many rows a batch may have; None for a table with reals, blobs or a very large row."""
        if not self._arrow or not 0 < len(columns) <= _MAX_COLUMNS:
            return None
        # A real or a blob is NULL here, and so is the sum.
        sizes = "CASE typeof({0}) WHEN 'text' THEN octet_length({0}) + 3 WHEN 'null' THEN 5 WHEN 'integer' THEN 21 END"
        together = chained(" + ", [sizes.format(quoted(column)) for column in columns])
        return self._rows_a_batch(table, f"coalesce({together}, {INT64_MAX})", _MAX_ROW)

    def _in_order(
        self, table: str, columns: Sequence[str], select: str, count: int
    ) -> contextlib.AbstractContextManager[ArrowStream]:
        # The functions of the outer query are called as rows leave the sorter, so that nothing they make goes through
        # it; and with the order named by number it holds each cell once (a term written out would be stored again).
        names = [quoted(column) for column in columns]
        inner = ", ".join(f"{name}{self._collate} AS {name}" for name in names)
        order = ", ".join(map(str, range(1, len(names) + 1)))
        return self._stream(f"SELECT {select} FROM (SELECT {inner} FROM {quoted(table)} ORDER BY {order})", count)

    def _lines(self, table: str, columns: Sequence[str], count: int) -> Iterator[LineBlock]:
        select = f"CAST(json_array({', '.join(map(quoted, columns))})||char(10) AS BLOB)"
        done = 0
        with self._in_order(table, columns, select, count) as stream:
            for batch in ahead(stream):
                data = joined(batch.column(0)).tobytes()
                if not is_utf8(data):
                    break
                yield LineBlock(data, batch.num_rows, batch.num_rows)
                done += batch.num_rows
            else:
                return
        for lines in encode_rows(_without(self.rows(table, columns), done)):
            if lines:
                yield LineBlock(b"".join(lines), len(lines), len(lines))

    def _fanned_lines(self, table: str, columns: Sequence[str], count: int) -> Iterator[LineBlock]:
        *keys, value = map(quoted, columns)
        select = f"CAST(json_array({', '.join(keys)}) AS BLOB), CAST(json_quote({value}) AS BLOB)"
        done = 0
        with self._in_order(table, columns, select, count) as stream:
            for block in _grouped(ahead(stream), GROUP_LIMIT):
                if not is_utf8(block.data):
                    break
                yield block
                done += block.lines
            else:
                return
        # No number is real, so that no two groups tie: what tells the lines apart are text and its bytes.
        for groups in _without(fanned(self.rows(table, columns, exact=True), GROUP_LIMIT), done):
            data = "".join(encode_row(group) + "\n" for group in groups).encode()
            yield LineBlock(data, len(groups), sum(len(group[-1]) for group in groups))


def _chunk_query(bodies: Bodies) -> str:
    """`document_query`, every column of one type and only the body NULL."""
    root, ordinal, size, leaf, content = (
        quoted(name or "") for name in (bodies.document, bodies.ordinal, bodies.size, bodies.hash, bodies.content)
    )
    return (
        f"SELECT CAST(o.root AS BLOB), CASE typeof(c.{ordinal}) WHEN 'integer' THEN c.{ordinal} ELSE -1 END, "
        f"CASE typeof(c.{size}) WHEN 'integer' THEN c.{size} ELSE -1 END, "
        f"coalesce(CAST(c.{leaf} AS BLOB), x''), "
        f"CASE typeof(c.{content}) WHEN '{bodies.type}' THEN CAST(c.{content} AS BLOB) END "
        f"FROM temp.cold_ordered o CROSS JOIN {quoted(bodies.table)} c "
        f"ON c.{root} COLLATE BINARY = o.root AND typeof(c.{root}) = 'text' ORDER BY o.place, c.{ordinal}"
    )


def _without(batches: Iterable[list[Any]], count: int) -> Iterator[list[Any]]:
    """Batches without the first so many items."""
    for batch in batches:
        if count < len(batch):
            yield batch[count:] if count else batch
        count = max(0, count - len(batch))


class _Group:
    """The last group so far, which the next batch may go on with."""

    def __init__(self, key: bytes, values: bytes, rows: int) -> None:
        self.key = key
        self.values = [values]
        self.rows = rows

    def line(self) -> bytes:
        return b"%b,[%b]]\n" % (self.key[:-1], b",".join(self.values))


def _grouped(batches: Iterator[Any], limit: int) -> Iterator[LineBlock]:
    """The lines of fanned-in rows, of batches of (keys as a JSON array, value as JSON) in order, both binary."""
    import pyarrow
    from pyarrow import compute

    held: _Group | None = None
    comma, opens, closes, nothing = (pyarrow.scalar(text) for text in (b",", b",[", b"]]\n", b""))
    for batch in batches:
        keys, values = batch.columns
        runs = compute.run_end_encode(keys)
        keys, ends = runs.values, runs.run_ends
        goes_on = held is not None and held.rows < limit and keys[0].as_py() == held.key
        room = limit - held.rows if held is not None and goes_on else limit
        if batch.num_rows > limit or ends[0].as_py() > room:
            keys, ends = _cut(keys, integers(ends), room, limit)
        texts = compute.binary_join(
            pyarrow.ListArray.from_arrays(pyarrow.concat_arrays([pyarrow.array([0], ends.type), ends]), values), comma
        )
        first, last = 0, len(texts) - 1
        if held is not None and goes_on:
            held.values.append(texts[0].as_py())
            held.rows += ends[0].as_py()
            if last == 0:
                continue
            first = 1
        data: list[bytes | memoryview] = []
        lines = rows = 0
        if held is not None:
            data, lines, rows = [held.line()], 1, held.rows
        begun = ends[last - 1].as_py() if last else 0
        if last > first:
            heads = compute.binary_slice(keys[first:last], 0, -1)
            done = compute.binary_join_element_wise(heads, opens, texts[first:last], closes, nothing)
            data.append(joined(done))
            lines += last - first
            rows += begun - (ends[0].as_py() if first else 0)
        held = _Group(keys[last].as_py(), texts[last].as_py(), ends[last].as_py() - begun)
        if lines:
            yield LineBlock(b"".join(data), lines, rows)
    if held is not None:
        yield LineBlock(held.line(), 1, held.rows)


def _cut(keys: Any, ends: list[int], room: int, limit: int) -> tuple[Any, Any]:
    """Runs cut so that none is longer than ``limit``, and the first no longer than ``room``."""
    import pyarrow

    cuts: list[int] = []
    whose: list[int] = []
    start = 0
    for run, end in enumerate(ends):
        while start < end:
            start = min(end, start + room)
            cuts.append(start)
            whose.append(run)
            room = limit
    return keys.take(pyarrow.array(whose, pyarrow.int32())), pyarrow.array(cuts, pyarrow.int32())
