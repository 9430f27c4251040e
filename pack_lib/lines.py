"""Whole lines of a table, many at a time: what a source makes of its rows, and a table's writer cuts into frames."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from pack_lib.columnar import encode_rows
from pack_lib.fanin import fan_in as fanned


class LineBlock(NamedTuple):
    """Neighbouring lines of a table, each with its LF."""

    data: bytes
    lines: int
    rows: int
    """Rows of the source that were read for them; only over all blocks exactly those that the lines are of."""


def line_blocks(batches: Iterable[list[tuple[Any, ...]]], *, fan_in: bool = False) -> Iterator[LineBlock]:
    """The lines of rows in order (`PinnedSource.rows`, ``exact`` if they are fanned in)."""
    read = 0

    def counted() -> Iterator[list[tuple[Any, ...]]]:
        nonlocal read
        for batch in batches:
            read += len(batch)
            yield batch

    for lines in encode_rows(fanned(counted()) if fan_in else counted()):
        if lines:
            yield LineBlock(b"".join(lines), len(lines), read)
            read = 0
