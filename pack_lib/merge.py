"""Merging shipped rows into a table that already has some: only what is missing is added, nothing is overwritten.

Both sides are read as one stream ordered by the merge key (SQLite's sorter, on disk), so memory is one key's rows.
docs/format.md, "Hydration".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

from pack_lib.profile import ShippedTable
from pack_lib.sources.sqlite_file import quoted
from pack_lib.target import Target
from pack_lib.values import encode_row

NAMED = 5
"""Conflicts that a report names, of all it counts."""


class Merge:
    """One table's merge: rows are collected on disk, then compared and inserted. ``conflicts`` counts keys."""

    def __init__(self, target: Target, table: ShippedTable) -> None:
        self._target = target
        self._table = table
        self._names = ", ".join(quoted(column) for column in table.columns)
        self._incoming = f"temp.{quoted('incoming_' + table.name)}"
        self._missing = f"temp.{quoted('missing_' + table.name)}"
        self.inserted = self.present = self.conflicts = 0
        self.finished = False
        self.named: list[str] = []
        # Made from the target's columns, so that a cell takes the type it would take there before it is compared.
        for name in (self._incoming, self._missing):
            target.connection.execute(f"CREATE TABLE {name} AS SELECT {self._names} FROM {quoted(table.name)} WHERE 0")

    def add(self, rows: list[Any]) -> None:
        self._target.insert(self._incoming, self._table.columns, rows)

    def finish(self) -> None:
        table, run = self._table, self._target.connection.execute
        ordered = [table.columns.index(column) for column in table.merge_key]
        keys = ", ".join(f"{place + 2} COLLATE BINARY" for place in ordered)
        stream = run(
            f"SELECT 0, {self._names} FROM {quoted(table.name)} UNION ALL "
            f"SELECT 1, {self._names} FROM {self._incoming} ORDER BY {keys}, 1"
        )
        batch: list[Any] = []
        for key, group in groupby(_rows(stream), key=lambda row: tuple(row[place + 1] for place in ordered)):
            batch += self._compare(key, group)
            if len(batch) > 500:
                self._target.insert(self._missing, table.columns, batch)
                batch = []
        self._target.insert(self._missing, table.columns, batch)
        self._insert_missing()
        self.drop()
        self.finished = True

    def add_now(self, there: Iterable[Any], rows: Iterable[Any]) -> None:
        """Insert what is missing of rows of a few keys; ``there``: all rows that the target has under these keys."""
        ordered = [self._table.columns.index(column) for column in self._table.merge_key]
        groups: dict[tuple[Any, ...], list[Any]] = {}
        for side, some in ((0, there), (1, rows)):
            for row in some:
                groups.setdefault(tuple(row[place] for place in ordered), []).append((side, *row))
        missing = [row for key, group in groups.items() for row in self._compare(key, group)]
        if missing:
            self._target.insert(self._missing, self._table.columns, missing)
            self._insert_missing()
            self._target.connection.execute(f"DELETE FROM {self._missing}")

    def _insert_missing(self) -> None:
        table, run = self._table, self._target.connection.execute
        wanted = run(f"SELECT count(*) FROM {self._missing}").fetchone()[0]
        # The statement's own count: what triggers of the target do besides is not in it.
        inserted = run(
            f"INSERT OR IGNORE INTO {quoted(table.name)} ({self._names}) SELECT {self._names} FROM {self._missing}"
        ).rowcount
        self.inserted += inserted
        if inserted < wanted:
            self._name_refused(wanted - inserted)

    def drop(self) -> None:
        """Drop the temporary tables."""
        for name in (self._incoming, self._missing):
            self._target.connection.execute(f"DROP TABLE {name}")

    def _compare(self, key: tuple[Any, ...], group: Iterable[tuple[Any, ...]]) -> Iterator[Any]:
        """The rows of one key that the target lacks. Cells that compare equal (1 and 1.0) are told apart here."""
        have: Counter[str] = Counter()
        wanted: dict[str, tuple[Any, ...]] = {}
        counts: Counter[str] = Counter()
        for side, *row in group:
            line = encode_row(row)
            if side == 0:
                have[line] += 1
            else:
                counts[line] += 1
                wanted.setdefault(line, tuple(row))
        for line, count in counts.items():
            there = min(count, have[line])
            if have and not there:
                self._name(key)
            else:
                self.present += there
                yield from [wanted[line]] * (count - there)

    def _name(self, key: tuple[Any, ...], count: int = 1) -> None:
        self.conflicts += count
        if len(self.named) < NAMED:
            names = ", ".join(
                f"{column}={encode_row([cell])[1:-1]}" for column, cell in zip(self._table.merge_key, key, strict=True)
            )
            self.named.append(f"{self._table.name} {names}")

    def _name_refused(self, count: int) -> None:
        """Rows that another constraint of the target kept out (INSERT OR IGNORE): their keys are not in it."""
        table = self._table
        key = ", ".join(quoted(column) for column in table.merge_key)
        same = " AND ".join(f"t.{quoted(column)} IS m.{quoted(column)}" for column in table.merge_key)
        refused = self._target.connection.execute(
            f"SELECT {key} FROM {self._missing} m WHERE NOT EXISTS "
            f"(SELECT 1 FROM {quoted(table.name)} t WHERE {same}) LIMIT {NAMED}"
        ).fetchall()
        self.conflicts += count - len(refused)
        for row in refused:
            self._name(tuple(row))


def _rows(stream: Any) -> Iterator[tuple[Any, ...]]:
    while batch := stream.fetchmany(512):
        yield from batch
