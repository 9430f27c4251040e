"""What a database holds as one digest a table: every row with multiplicity, every cell with its type and its bytes."""

from __future__ import annotations

import hashlib
import sqlite3
from contextlib import closing
from pathlib import Path

from pack_lib.profile import Profile


def digests(path: Path, profile: Profile) -> dict[str, list[object]]:
    """Table -> [rows, SHA-256 over its rows, ascending]."""
    found: dict[str, list[object]] = {}
    with closing(sqlite3.connect(path)) as db:
        db.text_factory = bytes
        for table in profile.ship:
            columns = [*table.columns, *([profile.bodies.content] if table.name == profile.bodies.table else [])]
            cells = ", ".join(f'typeof("{column}"), "{column}"' for column in columns)
            rows = sorted(" ".join(map(_cell, row)) for row in db.execute(f"SELECT {cells} FROM {table.name}"))
            found[table.name] = [len(rows), hashlib.sha256("\n".join(rows).encode()).hexdigest()]
    return found


def _cell(value: object) -> str:
    """Exactly; a text comes as its bytes, like a blob and like the name of its type before it."""
    return value.hex() if isinstance(value, (bytes, float)) else str(value)
