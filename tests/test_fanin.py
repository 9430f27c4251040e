"""Fan-in: groups, their limit, and what of a group is damage. Exactness: property/test_fanin_property.py."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest

from pack_lib.errors import Damaged
from pack_lib.fanin import GROUP_LIMIT, fan_in
from pack_lib.values import RawText, decode_lines


def grouped(rows: list[tuple[Any, ...]], limit: int = GROUP_LIMIT) -> list[tuple[Any, ...]]:
    return [group for batch in fan_in([rows], limit) for group in batch]


def test_groups() -> None:
    rows = [(None, "e", "a"), (None, "e", "a"), (None, "e", "b"), ("u", "e", None), ("u", "f", None)]
    assert grouped(rows) == [(None, "e", ["a", "a", "b"]), ("u", "e", [None]), ("u", "f", [None])]
    assert grouped([]) == []


def test_a_group_over_the_limit_goes_on_in_further_rows() -> None:
    rows = [("k", n) for n in range(7)] + [("l", 0)]
    assert grouped(rows, 3) == [("k", [0, 1, 2]), ("k", [3, 4, 5]), ("k", [6]), ("l", [0])]
    assert GROUP_LIMIT == 65_536


def test_keys_that_compare_equal_are_told_apart() -> None:
    rows = [(0, "a"), (0.0, "a"), (-0.0, "a"), (RawText(b"\xff"), "a"), (RawText(b"\xff"), "b")]
    assert repr(grouped(rows)) == repr([(0, ["a"]), (0.0, ["a"]), (-0.0, ["a"]), (RawText(b"\xff"), ["a", "b"])])


def test_memory_is_one_line_of_a_group() -> None:
    def rows() -> Any:
        for start in range(0, 1_000_000, 512):
            yield [("key", value) for value in range(start, start + 512)]

    tracemalloc.start()
    count = sum(len(group[-1]) for batch in fan_in(rows()) for group in batch)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count >= 1_000_000
    assert peak < 16_000_000


@pytest.mark.parametrize("cell", [None, [], "a", 1, [["a"]], [True], [{}]])
def test_a_last_cell_that_is_no_array_of_cells_is_damage(cell: Any) -> None:
    with pytest.raises(Damaged, match="here"):
        decode_lines([json.dumps(["key", cell])], 2, "here", array_last=True)
