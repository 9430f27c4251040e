"""Cells and rows: one canonical form, exact both ways, one order whatever order ties came in."""

from __future__ import annotations

import json
import random
import struct
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from pack_lib.columnar import TableHeader, decode_rows, encode_rows
from pack_lib.values import RawText, decode_lines, encode_row
from tests.property.cells import CELLS, CLOSE, FEW

ROWS = st.lists(st.tuples(FEW | CLOSE, CELLS), max_size=30)


def exact(cell: Any) -> Any:
    """What makes two cells the same: stored type and value, for a float its bits."""
    if isinstance(cell, float):
        return "real", struct.pack(">d", cell)
    if isinstance(cell, RawText):
        return "raw", cell.raw
    if isinstance(cell, list):
        return "list", tuple(map(exact, cell))
    return type(cell).__name__, cell


def sql_key(row: Any) -> Any:
    """SQLite's order of cells: NULL, numbers by value, text by bytes, blobs; what compares equal stays equal."""

    def of(cell: Any) -> Any:
        if cell is None:
            return 0, 0, b""
        if isinstance(cell, (int, float)):
            return 1, cell, b""
        if isinstance(cell, bytes):
            return 3, 0, cell
        return 2, 0, cell.raw if isinstance(cell, RawText) else cell.encode()

    return tuple(map(of, row))


@given(st.lists(CELLS, min_size=1, max_size=6))
@example(
    [None, 2**63 - 1, -(2**63), -0.0, 1e300, 0.1 + 0.2, float("inf"), float("-inf"), "", "a\x00b", b"", b"\x00\xff"]
)
@example([RawText(b"\xff"), RawText(b"\xed\xa0\x80"), "\u2028\n\r\t\x7f\ufeff\U0001f600", '{"$b":"00"}', "$b"])
@example([5e-324, 1.7976931348623157e308, 2.0**63, -(2.0**63), 1e16, 1e22, 123456789012345680.0])
def test_row_survives_and_is_one_line(row: list[Any]) -> None:
    line = encode_row(row)
    assert "\n" not in line and json.loads(line) is not None
    (back,) = decode_lines([line], len(row), "here")
    assert list(map(exact, back)) == list(map(exact, row))
    assert encode_row(back) == line
    line.encode()  # UTF-8, always


@given(st.lists(CELLS, min_size=1, max_size=3), st.lists(CELLS, min_size=1, max_size=3))
def test_equal_bytes_only_for_equal_rows(left: list[Any], right: list[Any]) -> None:
    assert (encode_row(left) == encode_row(right)) == (list(map(exact, left)) == list(map(exact, right)))


@given(FEW | CLOSE, FEW | CLOSE)
def test_equal_bytes_only_for_equal_close_cells(left: Any, right: Any) -> None:
    assert (encode_row([left]) == encode_row([right])) == (exact(left) == exact(right))


@given(ROWS, st.randoms(use_true_random=False), st.integers(1, 7))
def test_order_does_not_depend_on_how_ties_come(rows: list[Any], shuffler: random.Random, batch: int) -> None:
    def lines(given_rows: list[Any]) -> list[bytes]:
        ordered = sorted(given_rows, key=sql_key)  # stable: ties stay as they came
        batches = [ordered[at : at + batch] for at in range(0, len(ordered), batch)]
        return [line for group in encode_rows(batches) for line in group]

    other = list(rows)
    shuffler.shuffle(other)
    once = lines(rows)
    assert lines(other) == once
    assert sorted(once) == sorted((encode_row(row) + "\n").encode() for row in rows)


@given(ROWS, st.data())
def test_decoding_blocks_cut_anywhere(rows: list[Any], data: st.DataObject) -> None:
    head = TableHeader(("a", "b")).encode()
    whole = head + b"".join((encode_row(row) + "\n").encode() for row in rows)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=8)))
    blocks = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    found = [row for header, batch in decode_rows(blocks, "here") for row in batch if header == head]
    assert [list(map(exact, row)) for row in found] == [list(map(exact, row)) for row in rows]
