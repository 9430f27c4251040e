"""Columnar JSONL: its header line, ties, and what of it is damage."""

from __future__ import annotations

import pytest

from pack_lib.columnar import Derived, TableHeader, decode_rows, encode_rows, parse_header_line
from pack_lib.errors import Damaged


def test_header_line() -> None:
    assert TableHeader(("a", "b")).encode() == b'{"_columns":["a","b"]}\n'
    fanned = TableHeader(("uri", "roots"), "root").encode()
    assert fanned == b'{"_columns":["uri","roots"],"fan_in":{"roots":"root"}}\n'
    assert parse_header_line(fanned, "here") == TableHeader(("uri", "roots"), "root")
    assert parse_header_line(b'{"_columns":["a"],"more":1}\n', "here") == TableHeader(("a",))

    derived = TableHeader(("a",), derived=Derived(2, "0" * 64, 7, ("1" * 64,)))
    assert parse_header_line(derived.encode(), "here") == derived


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"[]",
        b"{}",
        b"1",
        b"null",
        b'{"_columns":[]}',
        b'{"_columns":[1]}',
        b'{"_columns":5}',
        b'{"_columns":["a","b"],"fan_in":{"a":"x"}}',
        b'{"_columns":["a"],"fan_in":{"a":1}}',
        b'{"_columns":["a"],"fan_in":{}}',
        b'{"_columns":["a"],"fan_in":3}',
        b"\xff\xff",
        b"[" * 100_000,
    ],
)
def test_header_lines_that_are_damage(line: bytes) -> None:
    with pytest.raises(Damaged, match="here"):
        parse_header_line(line, "here")


def test_ties_are_settled_by_bytes_and_keep_their_number() -> None:
    batches = [[(0, "a"), (0.0, "a")], [(-0.0, "a"), (0, "a")], [(1.0, "b")], [], [(1, "b"), (1, "b")]]
    lines = b"".join(line for batch in encode_rows(batches) for line in batch)
    assert lines == b'[-0.0,"a"]\n[0,"a"]\n[0,"a"]\n[0.0,"a"]\n[1,"b"]\n[1,"b"]\n[1.0,"b"]\n'


def test_a_million_equal_rows_are_not_held() -> None:
    given = ([("same", 1)] * 512 for _ in range(200))
    batches = list(encode_rows(given))
    assert sum(map(len, batches)) == 512 * 200
    assert max(map(len, batches)) <= 1024


def test_no_rows() -> None:
    assert [line for batch in encode_rows([]) for line in batch] == []
    head = TableHeader(("a",)).encode()
    assert list(decode_rows([head], "here")) == [(head, [])]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b'{"_columns":["a"]}',
        b'{"_columns":["a"]}\n[1]',
        b'{"_columns":["a"]}\n[1,2]\n',
        b'{"_columns":["a"]}\n["\xff"]\n',
        b'{"_columns":["a"]}\n\n',
    ],
)
def test_tables_that_are_damage(data: bytes) -> None:
    with pytest.raises(Damaged, match="here"):
        list(decode_rows([data], "here"))
