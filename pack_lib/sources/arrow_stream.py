"""Statements over an immutable SQLite file whose rows arrive as Arrow batches: SQLite works without the interpreter.

Needs the packages ``adbc-driver-sqlite`` and ``pyarrow``, which bring an SQLite of their own.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import sqlite3
import struct
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from pack_lib.sources.base import Piece
from pack_lib.sources.sqlite_file import BOUNDS, immutable_uri, quoted, sqlite_errors
from pack_lib.values import INT64_MAX, INT64_MIN, encode_row

BATCH_ROWS, BATCH_BYTES = 4096, 4 << 20
"""A batch has at most so many rows, and about so many bytes more than the largest row."""
_BATCH_OPTION = "adbc.sqlite.query.batch_rows"
_DAMAGED = ("malformed", "not a database")


@functools.cache
def arrow_available() -> bool:
    """Whether the packages are here and their SQLite makes JSON byte for byte as `encode_row` does."""
    try:
        import adbc_driver_manager
        import adbc_driver_sqlite  # noqa: F401
        import pyarrow.compute
    except ImportError:
        return False
    try:
        return probe(_SAMPLE)
    except (adbc_driver_manager.Error, pyarrow.lib.ArrowException, OSError):
        return False  # an SQLite without JSON or octet_length, or a driver that does not load


_SAMPLE = "".join(
    map(
        chr,
        [
            *range(0x300),  # all that anybody escapes in JSON, DEL, C1, and NUL within a text
            *(0x7FF, 0x800, 0x2028, 0x2029, 0xD7FF, 0xE000, 0xFEFF, 0xFFFD, 0xFFFE, 0xFFFF, 0x10000, 0x1F600, 0x10FFFF),
        ],
    )
)
_BROKEN = (b"\x80", b"a\xff", b"\xc3", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82", b"\xf0\x9f\x98")


def probe(text: str) -> bool:
    """Whether this SQLite writes a text and the other plain cells as we do, and lets broken UTF-8 through as it is."""

    def literal(raw: bytes) -> str:
        return f"CAST(x'{raw.hex()}' AS TEXT)"

    def matches(sql: str, expected: bytes) -> bool:
        stream = ArrowStream(None, "in memory", f"SELECT CAST({sql} AS BLOB), octet_length('\u00e9')")
        with contextlib.closing(stream):
            return [list(batch.to_pylist()[0].values()) for batch in stream] == [[expected, 2]]

    cells = (None, 0, -1, INT64_MAX, INT64_MIN, "", "a\0b", text)
    written = ("NULL", "0", "-1", str(INT64_MAX), f"(-{INT64_MAX} - 1)", "''", literal(b"a\0b"), literal(text.encode()))
    broken = b"".join(b'"%s",' % raw for raw in _BROKEN)
    return (
        matches(f"json_array({', '.join(written)})", encode_row(cells).encode())
        and all(
            matches(f"json_quote({sql})", encode_row((cell,)).encode()[1:-1])
            for sql, cell in zip(written, cells, strict=True)
        )
        and matches(f"json_array({', '.join(map(literal, _BROKEN))})", b"[" + broken[:-1] + b"]")
        and matches("||','||".join(f"json_quote({literal(raw)})" for raw in _BROKEN), broken[:-1])
    )


@contextlib.contextmanager
def arrow_errors(where: str) -> Iterator[None]:
    """`sqlite_errors` for what ADBC and Arrow raise: both only pass on SQLite's message."""
    import adbc_driver_manager
    import pyarrow

    with sqlite_errors(where):
        try:
            yield
        except (adbc_driver_manager.Error, pyarrow.lib.ArrowException, OSError) as error:
            text = str(error)
            if "out of memory" in text:
                raise MemoryError(f"{where}: SQLite ran out of memory") from error
            damaged = any(word in text for word in _DAMAGED)
            raise (sqlite3.DatabaseError if damaged else sqlite3.OperationalError)(text) from error


class ArrowStream:
    """The rows of one statement as record batches, from a connection of its own that only it uses.

    The type of a column is that of its first value that is not NULL, int64 if the first batch has none; a column must
    therefore be an expression of one type. Errors are of `sqlite_errors`. Any thread may close it at any time.
    """

    def __init__(
        self, path: Path | None, where: str, sql: str, rows: int = BATCH_ROWS, setup: Sequence[str] = ()
    ) -> None:
        """``path`` None: an empty database. ``setup``: statements that come first."""
        import adbc_driver_manager
        import adbc_driver_sqlite
        import pyarrow

        self._where = where
        self._lock = threading.Lock()
        uri = ":memory:" if path is None else immutable_uri(path)
        with arrow_errors(where), contextlib.ExitStack() as stack:
            database = stack.enter_context(adbc_driver_sqlite.connect(uri))
            connection = stack.enter_context(adbc_driver_manager.AdbcConnection(database))

            def run(sql: str) -> Any:
                statement.set_sql_query(sql)
                return stack.enter_context(pyarrow.RecordBatchReader.from_stream(statement.execute_query()[0]))

            for step in (*BOUNDS, *setup):
                with adbc_driver_manager.AdbcStatement(connection) as statement:
                    run(step).close()
            statement = stack.enter_context(adbc_driver_manager.AdbcStatement(connection))
            statement.set_options(**{_BATCH_OPTION: str(rows)})
            self._reader = run(sql)
            self._open = stack.pop_all()
            self._closed = False

    def __iter__(self) -> Iterator[Any]:
        while True:
            with self._lock, arrow_errors(self._where):
                if self._closed:
                    raise sqlite3.ProgrammingError("Cannot operate on a closed database.")
                try:
                    batch = self._reader.read_next_batch()
                except StopIteration:
                    return
            if batch.num_rows:
                yield batch

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._open.close()


def ahead(stream: ArrowStream) -> Iterator[Any]:
    """The batches of a stream, of which the next is read while the caller works on one."""
    batches = iter(stream)
    with ThreadPoolExecutor(1, thread_name_prefix="read ahead") as thread:
        under_way = thread.submit(next, batches, None)
        while (batch := under_way.result()) is not None:
            under_way = thread.submit(next, batches, None)
            yield batch


def bounded_rows(sizes: Iterator[Any], most: int = INT64_MAX - 1) -> int | None:
    """How many rows a batch may have, given the largest sizes (int64, descending); None if one is more than ``most``.

    No batch of so many rows, whichever they are, exceeds ``BATCH_BYTES`` and one largest row.
    """
    largest = [size for batch in sizes for size in integers(batch.column(0))]
    if largest and largest[0] > most:
        return None
    together, limit = 0, BATCH_BYTES + (largest[0] if largest else 0)
    for count, size in enumerate(largest):
        together += size
        if together > limit:
            return max(1, count)
    return BATCH_ROWS


def size_query(table: str, size: str) -> str:
    """For `bounded_rows`: the largest values of an expression over a table's rows."""
    return f"SELECT {size} FROM {quoted(table)} NOT INDEXED ORDER BY 1 DESC LIMIT {BATCH_ROWS}"


def integers(array: Any) -> list[int]:
    """The values of an int32 or int64 array without NULLs."""
    width = array.type.bit_width // 8
    view = memoryview(array.buffers()[1])[array.offset * width : (array.offset + len(array)) * width]
    return (view.cast("i") if width == 4 else view.cast("q")).tolist()


def column_bytes(array: Any) -> tuple[memoryview, list[int]]:
    """A binary array's values as they lie one after the other, and where each begins, with the end of the last."""
    offsets, data = array.buffers()[1:]
    view = memoryview(offsets)[array.offset * 4 : (array.offset + len(array) + 1) * 4]
    ends: list[int] = view.cast("i").tolist()
    return memoryview(data or b""), ends


def joined(array: Any) -> memoryview:
    """All values of a binary array, one after the other, without a copy."""
    view, ends = column_bytes(array)
    return view[ends[0] : ends[-1]]


def is_utf8(data: bytes) -> bool:
    """Whether it is strict UTF-8, looked at without the interpreter."""
    import pyarrow

    offsets = pyarrow.py_buffer(struct.pack("=qq", 0, len(data)))
    text = pyarrow.Array.from_buffers(pyarrow.large_string(), 1, [None, offsets, pyarrow.py_buffer(data)])
    try:
        text.validate(full=True)
    except pyarrow.lib.ArrowInvalid:
        return False
    return True


class ArrowBodies:
    """Bodies that lie in memory one after the other: a `BodyColumn` over a binary array without NULLs."""

    def __init__(self, array: Any) -> None:
        self._data, self._ends = column_bytes(array)
        self.sizes = [stop - start for start, stop in zip(self._ends, self._ends[1:], strict=False)]

    def digests(self) -> list[bytes]:
        # A copy of a digest that has seen the prefix costs less than a body with the prefix before it.
        copy, data, found = hashlib.sha256(b"\x00").copy, self._data, []
        start = self._ends[0]
        for stop in self._ends[1:]:
            digest = copy()
            digest.update(data[start:stop])
            found.append(digest.digest())
            start = stop
        return found

    def pieces(self, start: int, stop: int) -> list[Piece]:
        return [self._data[self._ends[start] : self._ends[stop]]] if start < stop else []
