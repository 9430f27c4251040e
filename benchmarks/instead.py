"""What a person does instead of packing or hydrating, as ``benchmarks.measure`` calls it, and the floors below ours."""

from __future__ import annotations

import os
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

_FRESH = (
    # As pack_lib/target.py has them for a fresh target.
    "journal_mode=OFF",
    "synchronous=OFF",
    "locking_mode=EXCLUSIVE",
    "cache_size=-65536",
    "temp_store=FILE",
    "foreign_keys=OFF",
)


def bytes_under(path: Path) -> int:
    """Bytes of a file, or of all files in a folder."""
    return sum(file.stat().st_size for file in (path.rglob("*") if path.is_dir() else [path]) if file.is_file())


def command(argv: list[str], out: str, environment: dict[str, str] | None = None) -> dict[str, Any]:
    """Run a command that leaves a file or a folder at ``out``. Raises CalledProcessError."""
    subprocess.run(argv, check=True, env={**os.environ, **(environment or {})})
    return {"bytes_out": bytes_under(Path(out))}


def vacuum_into(db: str, out: str) -> dict[str, Any]:
    """A consistent copy of the database at ``db``, full-text tables included."""
    with closing(sqlite3.connect(db)) as source:
        source.execute("VACUUM INTO ?", (out,))
    return {"bytes_out": bytes_under(Path(out))}


def write_bodies(db: str, out: str) -> None:
    """All bodies in one file, in the order of their documents' URIs and their ordinals."""
    with closing(sqlite3.connect(db)) as source, Path(out).open("wb") as file:
        for (root,) in source.execute("SELECT document_root FROM documents ORDER BY uri, document_root"):
            bodies = source.execute("SELECT content FROM chunks WHERE document_root = ? ORDER BY ordinal", (root,))
            file.writelines(content.encode() for (content,) in bodies)


def insert_select(db: str, out: str, schema: str, tables: list[str], rebuild: list[str]) -> dict[str, Any]:
    """Hydration without packs: ``tables`` copied by SQL from the database at ``db`` into a fresh one, then synced.

    In hydration's order: tables, rows, indexes, full-text tables, their rebuild.
    """
    with closing(sqlite3.connect(":memory:")) as scratch:
        scratch.executescript(schema)
        made = dict(scratch.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL"))
        indexes = [
            sql for (sql,) in scratch.execute("SELECT sql FROM sqlite_master WHERE type = 'index' AND sql <> ''")
        ]
    with closing(sqlite3.connect(out, isolation_level=None)) as target:
        run = target.execute
        for pragma in _FRESH:
            run(f"PRAGMA {pragma}")
        run("ATTACH ? AS source", (db,))
        run("BEGIN IMMEDIATE")
        for table in tables:
            run(made[table])
        for table in tables:
            # With the * SQLite copies whole records where both schemas agree: the floor is as low as it can be.
            run(f"INSERT INTO main.{table} SELECT * FROM source.{table}")
        for statement in indexes:
            run(statement)
        for name in rebuild:
            run(made[name])
            run(f"INSERT INTO {name}({name}) VALUES ('rebuild')")
        run("COMMIT")
    with Path(out).open("rb") as file:
        os.fsync(file.fileno())
    return {"bytes_out": bytes_under(Path(out))}
