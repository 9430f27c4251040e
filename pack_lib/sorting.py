"""Sorting more digests than memory should hold: runs on disk, merged in one stream."""

from __future__ import annotations

import heapq
import tempfile
from collections.abc import Iterable, Iterator
from itertools import islice
from types import TracebackType
from typing import IO

_RUN = 1 << 16
_READ = 1 << 16


class RecordSorter:
    """Distinct records of one length, ascending. Memory: one run (65,536 records), and 64 KiB a run when read back.

    Give records with ``add``, then read ``sorted``, again if need be. Leaving the ``with`` block deletes what is on
    disk.
    """

    def __init__(self, length: int) -> None:
        """``length``: bytes of a record."""
        self._length = length
        self._records: list[bytes] = []
        self._whole = False  # _records are sorted and distinct
        self._runs: list[IO[bytes]] = []

    def add(self, records: Iterable[bytes]) -> None:
        self._records += records
        self._whole = False
        if len(self._records) >= _RUN:
            self._spill()

    def _spill(self) -> None:
        run = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the sorter)
        self._runs.append(run)
        run.write(b"".join(sorted(set(self._records))))
        self._records = []

    def sorted(self) -> Iterator[bytes]:
        if not self._whole:
            self._records, self._whole = sorted(set(self._records)), True
        if not self._runs:
            yield from self._records
            return
        previous = b""
        for record in heapq.merge(*map(self._read, self._runs), self._records):
            if record != previous:
                yield record
                previous = record

    def _read(self, run: IO[bytes]) -> Iterator[bytes]:
        length = self._length
        run.seek(0)
        while block := run.read(_READ // length * length):
            yield from (block[at : at + length] for at in range(0, len(block), length))

    def __enter__(self) -> RecordSorter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def clear(self) -> None:
        """Forget all records."""
        self.close()
        self._records, self._whole = [], False

    def close(self) -> None:
        for run in self._runs:
            run.close()
        self._runs = []


def batched(records: Iterator[bytes], size: int) -> Iterator[list[bytes]]:
    """The records in lists of at most ``size``."""
    while batch := list(islice(records, size)):
        yield batch
