"""Staged tables: each shipped table once as the compressed frames its packs will hold, with all digests known.

The frames are copied into packs as they are, so a table is read, encoded and compressed once. docs/format.md, "Tables".
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pack_lib.columnar import Derived, TableHeader
from pack_lib.errors import BadInput
from pack_lib.fsio import HashingFile
from pack_lib.lines import LineBlock
from pack_lib.pack.format import MAX_MEMBER, Parameters, part_name
from pack_lib.pack.frames import Frame, FramePool, compress_frame, frame_of
from pack_lib.pack.tar import header, padding
from pack_lib.profile import ShippedTable
from pack_lib.progress import Progress, no_progress
from pack_lib.sources.base import PinnedSource


@dataclass(frozen=True, slots=True)
class StagedPart:
    """One member: its first frame holds tar header and header line, the others rows; their places in the file."""

    member: str
    rows: int
    size: int
    sha256: str
    first_at: int
    """Where the first frame stands in the file; it is written last, when the size is known."""
    rows_at: int
    frames: tuple[Frame, ...]

    @property
    def csize(self) -> int:
        return sum(frame.csize for frame in self.frames)


@dataclass(frozen=True, slots=True)
class StagedTable:
    name: str
    sha256: str
    """Of the table's uncut bytes: one header line, then every row."""
    source_rows: int
    rows: int
    """Lines: for a fanned-in table fewer than the source's rows."""
    size: int
    """Uncut bytes."""
    parts: tuple[StagedPart, ...]
    derived: Derived | None = None
    """What its header line says."""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> StagedTable:
        parts = tuple(
            StagedPart(**{**part, "frames": tuple(Frame(**frame) for frame in part["frames"])})
            for part in value["parts"]
        )
        derived = None if value["derived"] is None else Derived.from_json(value["derived"])
        return cls(**{**value, "parts": parts, "derived": derived})


class _TableWriter:
    """Cuts one table's lines into parts and frames and writes the frames as they come out of the pool."""

    def __init__(self, table: str, first_line: bytes, parameters: Parameters, file: HashingFile, workers: int) -> None:
        self._table = table
        self._first_line = first_line
        self._parameters = parameters
        self._file = file
        self._pool: FramePool[None] = FramePool(parameters.level, workers, self._take)
        self._whole = hashlib.sha256(first_line)
        self.size = len(first_line)
        self.rows = 0
        self.parts: list[StagedPart] = []
        self._begin_part()

    def _begin_part(self) -> None:
        self._part = hashlib.sha256(self._first_line)
        self._part_size = len(self._first_line)
        self._part_rows = 0
        self._frames: list[Frame] = []
        self._rows_at = self._file.size
        self._lines: list[memoryview] = []
        self._pending = 0  # bytes in _lines

    def _take(self, _note: None, size: int, compressed: bytes) -> None:
        self._frames.append(frame_of(size, compressed))
        self._file.write(compressed)

    def add(self, block: LineBlock) -> None:
        frame_size, part_size = self._parameters.frame_size, self._parameters.part_size
        data, view, at = block.data, memoryview(block.data), 0
        while at < len(data):
            room = min(frame_size - self._pending, part_size - self._part_size)
            end = len(data) if room >= len(data) - at else data.rfind(b"\n", at, at + max(room, 0)) + 1
            if end <= at:  # the next line does not fit: it begins a frame or a part, or is larger than one
                end = data.index(b"\n", at) + 1
                if self._part_rows and self._part_size + end - at > part_size:
                    self._end_part(last=False)
                elif self._pending and self._pending + end - at > frame_size:
                    self._cut_frame()
            self._lines.append(view[at:end])
            self._pending += end - at
            self._part_size += end - at
            self._part_rows += block.lines if end - at == len(data) else data.count(b"\n", at, end)
            at = end

    def _cut_frame(self, tail: bytes = b"") -> None:
        data = b"".join(self._lines)
        self._whole.update(data)
        self._part.update(data)
        self.size += len(data)
        self._lines, self._pending = [], 0
        if data or tail:
            self._pool.push(None, data + tail)

    def _end_part(self, *, last: bool) -> None:
        size = self._part_size
        if size > MAX_MEMBER:
            raise BadInput(f"table {self._table}: a row of {size:,} bytes is more than a tar member holds")
        self._cut_frame(padding(size))
        self._pool.drain()
        number = None if last and not self.parts else len(self.parts) + 1
        member = part_name(self._table, number)
        first = header(member, size) + self._first_line
        compressed = compress_frame(first, self._parameters.level)
        first_at = self._file.size
        self._file.write(compressed)
        frames = (frame_of(len(first), compressed), *self._frames)
        part = StagedPart(member, self._part_rows, size, self._part.hexdigest(), first_at, self._rows_at, frames)
        self.parts.append(part)
        self.rows += self._part_rows
        self._begin_part()

    def finish(self) -> None:
        self._end_part(last=True)

    def __enter__(self) -> _TableWriter:
        return self

    def __exit__(self, *exception: Any) -> None:
        self._pool.__exit__(*exception)

    @property
    def sha256(self) -> str:
        return self._whole.hexdigest()


def stage_table(
    pinned: PinnedSource,
    table: ShippedTable,
    folder: Path,
    parameters: Parameters,
    workers: int,
    progress: Progress = no_progress,
) -> StagedTable:
    """Read, order, encode, cut and compress one shipped table into ``folder/<name>.frames``.

    Memory: a few frames a worker and the source's sorter, whatever the number of rows.
    Raises BadInput for a source that cannot be read, StoreTrouble for a folder that cannot be written.
    """
    total = pinned.count(table.name)
    blocks = pinned.lines(table.name, table.columns, fan_in=table.fan_in is not None)
    header = TableHeader(table.file_columns, table.fan_in)
    return stage_lines(blocks, table, header, (total, total), folder, parameters, workers, progress)


def stage_lines(
    blocks: Iterable[LineBlock],
    table: ShippedTable,
    header: TableHeader,
    counts: tuple[int, int],
    folder: Path,
    parameters: Parameters,
    workers: int,
    progress: Progress = no_progress,
) -> StagedTable:
    """`stage_table` of its lines; ``counts``: rows of the source's table, and of how many of them these must be."""
    total, expected = counts
    rows = 0
    with HashingFile(folder, digest=False) as file:
        with _TableWriter(table.name, header.encode(), parameters, file, workers) as writer:
            for block in blocks:
                writer.add(block)
                rows += block.rows
                progress(rows, expected)
            writer.finish()
        file.commit(f"{table.name}.frames")
    if rows != expected:
        raise BadInput(
            f"table {table.name} gave {rows:,} of its {expected:,} rows in order; "
            "an index of it is damaged: REINDEX it in the source"
        )
    return StagedTable(table.name, writer.sha256, total, writer.rows, writer.size, tuple(writer.parts), header.derived)
