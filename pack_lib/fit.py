"""Whether a target's columns keep cells as they are: SQLite converts what it stores by a column's declared type.

Rules: sqlite.org/datatype3.html, "Type Affinity". A cell that would come back as another is refused, never altered.
"""

from __future__ import annotations

from typing import Any

from pack_lib.errors import BadInput
from pack_lib.profile import ShippedTable
from pack_lib.sources.sqlite_file import quoted
from pack_lib.target import Target
from pack_lib.values import RawText, encode_row

_NONE = type(None)
_KEPT: dict[str, set[type]] = {
    # What a column of this affinity keeps, whatever the value; other types are tried out.
    "TEXT": {_NONE, str, bytes, RawText},
    "INTEGER": {_NONE, int, bytes},
    "NUMERIC": {_NONE, int, bytes},
    "REAL": {_NONE, float, bytes},  # but for -0.0
    "BLOB": {_NONE, int, float, str, bytes, RawText},
}


def affinity(declared: str) -> str:
    """The affinity of a declared type, by the five rules of the page above (3.1)."""
    name = declared.upper()
    if "INT" in name:
        return "INTEGER"
    if any(part in name for part in ("CHAR", "CLOB", "TEXT")):
        return "TEXT"
    if not name or "BLOB" in name:
        return "BLOB"
    return "REAL" if any(part in name for part in ("REAL", "FLOA", "DOUB")) else "NUMERIC"


class Fit:
    """One table of a target."""

    def __init__(self, target: Target, table: ShippedTable) -> None:
        self._target = target
        self._table = table
        declared = {
            str(name).lower(): (str(kind), bool(key))
            for _, name, kind, _, _, key in target.connection.execute(f"PRAGMA table_info({quoted(table.name)})")
        }
        alone = sum(key for _, key in declared.values()) == 1
        self._kept = []
        self._real = set()
        for place, column in enumerate(table.columns):
            kind, key = declared[column.lower()]
            kept = _KEPT[affinity(kind)]
            if affinity(kind) == "REAL":
                self._real.add(place)
            # NULL in an INTEGER PRIMARY KEY of one column, the rowid, becomes a number of SQLite's choice.
            self._kept.append(kept - {_NONE} if key and alone and kind.upper() == "INTEGER" else kept)
        self._trial = f"temp.{quoted('trial_' + table.name)}"
        self._has_trial = False

    def check(self, rows: list[Any]) -> None:
        """Raises BadInput, naming table, column and cell, if the target would store one of these as another."""
        if not rows:
            return
        for place, (kept, cells) in enumerate(zip(self._kept, zip(*rows, strict=True), strict=True)):
            if set(map(type, cells)) - kept:
                self._try(place, [cell for cell in cells if type(cell) not in kept])
            if place in self._real and 0.0 in cells:
                self._try(place, [cell for cell in cells if type(cell) is float and cell == 0])

    def _try(self, place: int, cells: list[Any]) -> None:
        run, table = self._target.connection.execute, self._table
        name = quoted(table.columns[place])
        if not self._has_trial:
            # Columns of the same affinities, without the table's constraints.
            run(f"CREATE TABLE {self._trial} AS SELECT * FROM {quoted(table.name)} WHERE 0")
            self._has_trial = True
        for cell in cells:
            if cell is not None:
                self._target.insert(self._trial, (table.columns[place],), [[cell]])
                (stored,) = run(f"SELECT {name} FROM {self._trial}").fetchone()
                run(f"DELETE FROM {self._trial}")
            if cell is None or encode_row([stored]) != encode_row([cell]):
                raise BadInput(
                    f"{self._target.where}: column {table.name}.{table.columns[place]} would not keep "
                    f"{encode_row([cell])[1:-1][:80]} as it is; give a profile whose schema declares no type for it"
                )
