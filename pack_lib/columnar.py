"""Columnar JSONL: a header line that names the columns, then one canonical JSON array a row, in one total order.

Grammar: docs/format.md, "Tables". Reading and writing here know lines; members, frames and files are other modules'.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from pack_lib.errors import Damaged
from pack_lib.hashing import HEX64
from pack_lib.values import canonical_json, decode_lines, encode_row

_BATCH = 512
MAX_ABSENT = 4096
"""Exceptions that a table's header line names at most; a table with more is shipped whole."""


@dataclass(frozen=True, slots=True)
class Derived:
    """Rows that are not shipped because a reader makes them from the documents' bodies. docs/format.md, "Tables"."""

    documents: int
    """Documents that are members of the packs."""
    root: str
    """RFC 6962 tree hash, hex, over the roots of these documents in the packs' order."""
    rows: int
    """Derived rows."""
    absent: tuple[str, ...] = ()
    """What nothing is derived for although it is there: roots of documents, or node hashes; ascending."""

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Derived:
        """Raises KeyError, TypeError or ValueError for anything that is none."""
        made = cls(**{**value, "absent": tuple(value["absent"])})
        if not all(type(count) is int and count >= 0 for count in (made.documents, made.rows)):
            raise ValueError("derived: counts")
        if not all(map(HEX64.match, (made.root, *made.absent))) or len(made.absent) > MAX_ABSENT:
            raise ValueError("derived: digests")
        return made


@dataclass(frozen=True, slots=True)
class TableHeader:
    """A table's first line."""

    columns: tuple[str, ...]
    gathered: str | None = None
    """The column of the source that the last one holds arrays of; None: no fan-in."""
    derived: Derived | None = None

    def encode(self) -> bytes:
        """The line with its LF."""
        value: dict[str, Any] = {"_columns": list(self.columns)}
        if self.derived is not None:
            value["derived"] = asdict(self.derived)
        if self.gathered is not None:
            value["fan_in"] = {self.columns[-1]: self.gathered}
        return canonical_json(value) + b"\n"


def parse_header_line(line: bytes, where: str) -> TableHeader:
    """A table's first line. Raises Damaged."""
    try:
        value = json.loads(line)
        columns = tuple(value["_columns"])
        if not columns or not all(isinstance(column, str) for column in columns):
            raise ValueError("columns")
        gathered = derived = None
        if "fan_in" in value:
            ((array, gathered),) = value["fan_in"].items()
            if array != columns[-1] or not isinstance(gathered, str):
                raise ValueError("fan_in")
        if "derived" in value:
            derived = Derived.from_json(value["derived"])
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise Damaged(f"{where}: its header line is wrong ({error})") from None
    return TableHeader(columns, gathered, derived)


def encode_rows(batches: Iterable[list[tuple[Any, ...]]]) -> Iterator[list[bytes]]:
    """Lines with their LF, in batches, of rows that are ordered but for ties; ties are settled by the line's bytes.

    Rows that compare equal cell by cell (1 and 1.0, 0.0 and -0.0) stand together but in any order: what is held of
    them is each distinct line with its count.
    """
    encode = encode_row
    last: tuple[Any, ...] | None = None
    last_line = b""
    tied: Counter[bytes] | None = None
    for batch in batches:
        lines: list[bytes] = []
        for row in batch:
            line = (encode(row) + "\n").encode()
            if row == last:
                if tied is None:
                    tied = Counter([last_line])
                tied[line] += 1
                continue
            if tied is not None:
                yield lines
                yield from _in_order(tied)
                lines, tied = [], None
            elif last is not None:
                lines.append(last_line)
            last, last_line = row, line
        yield lines
    if tied is not None:
        yield from _in_order(tied)
    elif last is not None:
        yield [last_line]


def _in_order(lines: Counter[bytes]) -> Iterator[list[bytes]]:
    for line in sorted(lines):
        for start in range(0, lines[line], _BATCH):
            yield [line] * min(_BATCH, lines[line] - start)


def decode_rows(blocks: Iterable[bytes], where: str) -> Iterator[tuple[bytes, list[list[Any]]]]:
    """Rows of one table's bytes, given in blocks cut anywhere: yields (header line, rows) batch by batch.

    The header line is the same each time; the first batch comes even if it has no rows. Raises Damaged.
    """
    header: bytes | None = None
    width, gathered = 0, False
    pieces: list[bytes] = []  # of a line that has not ended yet
    for block in blocks:
        cut = block.rfind(b"\n") + 1
        if not cut:
            pieces += [block] if block else []
            continue
        data = b"".join([*pieces, block[:cut]])
        pieces = [block[cut:]] if cut < len(block) else []
        try:
            lines = str(data, "utf-8").split("\n")
        except UnicodeDecodeError:
            raise Damaged(f"{where}: not UTF-8") from None
        lines.pop()
        if header is None:
            header = (lines.pop(0) + "\n").encode()
            parsed = parse_header_line(header, where)
            width, gathered = len(parsed.columns), parsed.gathered is not None
        yield header, decode_lines(lines, width, where, array_last=gathered)
    if pieces or header is None:
        raise Damaged(f"{where}: its last line does not end")
