"""Fan-in: rows that differ only in their last column become one row with a sorted array of it, and back, exactly.

A stream over neighbours: memory is one group's line, never a group. docs/format.md, "Fan-in".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

GROUP_LIMIT = 65_536
"""Values of an array; what is more goes on in further rows with the same key."""


_PLAIN = {str, type(None)}


def _same(left: tuple[Any, ...], right: tuple[Any, ...]) -> bool:
    """Whether two keys are the same cells: equal, of one stored type, and zeros of one sign."""
    if left != right:
        return False
    for a, b in zip(left, right, strict=True):
        if type(a) is not type(b):
            return False
        if a == 0 and type(a) is float and str(a) != str(b):
            return False
    return True


def fan_in(batches: Iterable[list[tuple[Any, ...]]], limit: int = GROUP_LIMIT) -> Iterator[list[tuple[Any, ...]]]:
    """Rows ordered exactly (`PinnedSource.rows(exact=True)`) -> (key cells..., [values]) in batches, same order.

    Repeated rows keep their multiplicity: the value stands in the array as often as the row.
    """
    key: tuple[Any, ...] | None = None
    values: list[Any] = []
    plain = False
    for batch in batches:
        groups: list[tuple[Any, ...]] = []
        for row in batch:
            row_key = row[:-1]
            # A key of text and NULL only is equal to no other cells; numbers must be looked at (1 == 1.0).
            if row_key == key and (plain or _same(row_key, key)) and len(values) < limit:
                values.append(row[-1])
                continue
            if key is not None:
                groups.append((*key, values))
            key, values = row_key, [row[-1]]
            plain = set(map(type, key)) <= _PLAIN
        if groups:
            yield groups
    if key is not None:
        yield [(*key, values)]


def fan_out(row: list[Any]) -> list[list[Any]]:
    """The rows of one group, in order; its last cell is the array (`decode_rows` has checked that)."""
    key = row[:-1]
    return [[*key, value] for value in row[-1]]
