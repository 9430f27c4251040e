"""Fan-in is undone exactly: NULLs, repeated rows, keys of mixed types, groups that are cut."""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pack_lib.fanin import fan_in, fan_out
from pack_lib.sources.sqlite import SqliteSource
from pack_lib.values import encode_row
from tests.property.cells import CELLS, FEW, insert


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fanin") / "links.db"


def ordered(path: Path, rows: list[Any]) -> list[list[tuple[Any, ...]]]:
    """The rows as a pinned source gives them for fan-in."""
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA synchronous=OFF")
        db.execute("CREATE TABLE links(x, y, z)")
        db.execute("BEGIN")
        insert(db, "links", rows)
        db.execute("COMMIT")
    with closing(SqliteSource(path).open_pinned(None)) as pinned:
        return list(pinned.rows("links", ("x", "y", "z"), exact=True))


ROWS = st.lists(st.tuples(FEW, FEW, FEW | CELLS), max_size=40)


@given(ROWS, st.integers(1, 4), st.randoms(use_true_random=False))
def test_exact_both_ways(place: Path, rows: list[Any], limit: int, shuffler: Any) -> None:
    groups = [list(group) for batch in fan_in(ordered(place, rows), limit) for group in batch]
    back = [row for group in groups for row in fan_out(list(group))]
    assert Counter(map(encode_row, back)) == Counter(map(encode_row, rows))
    sizes: dict[str, list[int]] = {}
    for group in groups:
        assert 1 <= len(group[-1]) <= limit
        sizes.setdefault(encode_row(group[:-1]), []).append(len(group[-1]))
    for counts in sizes.values():  # only the last line of a key may be short of the limit
        assert all(count == limit for count in counts[:-1])
    other = list(rows)
    shuffler.shuffle(other)
    assert [list(group) for batch in fan_in(ordered(place, other), limit) for group in batch] == groups


def test_a_key_of_one_value_and_two_types_makes_two_groups(place: Path) -> None:
    rows = [(1, None, "a"), (1.0, None, "b"), (1, None, "c"), ("1", None, "a"), (b"1", None, "a"), (None, None, None)]
    groups = [group for batch in fan_in(ordered(place, rows)) for group in batch]
    found = {encode_row(group[:-1]): group[-1] for group in groups}
    assert len(found) == len(groups)
    assert found == {
        "[null,null]": [None],
        "[1,null]": ["a", "c"],
        "[1.0,null]": ["b"],
        '["1",null]': ["a"],
        '[{"$b":"31"},null]': ["a"],
    }
