"""Writes one shard as a SQLite database."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from importlib import resources
from pathlib import Path

from examples.corpus.model import CorpusError, ShardSummary
from examples.corpus.tables import ShardContent, all_rows

# A live database has a peer's own tables too; the built-in profile never ships them.
_PEER_TABLES = """
CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT);
INSERT INTO meta VALUES('written_by', 'examples.corpus');
CREATE TABLE mesh_peers(peer_id TEXT PRIMARY KEY, address TEXT, last_seen TEXT);
INSERT INTO mesh_peers VALUES('peer-1', 'peer-1.corpus.example:7000', NULL);
"""


def schema() -> str:
    """The live schema of a corpus shard, as the built-in profile has it."""
    return resources.files("pack_lib.profiles").joinpath("corpus.sql").read_text(encoding="utf-8")


@contextmanager
def finished_or_removed(path: Path) -> Iterator[None]:
    """Removes what a failure leaves of the file; else makes sure that it is on the disk."""
    path.unlink(missing_ok=True)
    try:
        yield
        with path.open("rb+") as file:
            os.fsync(file.fileno())
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def write_shard(content: ShardContent, path: Path) -> ShardSummary:
    """Writes the shard at ``path``, replacing what is there, and returns its row counts.

    Raises CorpusError if it cannot be written; nothing is left of it then.
    """
    rows: dict[str, int] = {}
    try:
        with finished_or_removed(path), closing(sqlite3.connect(path, isolation_level=None)) as db:
            # The file has a temporary name until it is whole, so no journal has to protect it.
            db.execute("PRAGMA journal_mode=OFF")
            db.execute("PRAGMA synchronous=OFF")
            db.execute("PRAGMA cache_size=-65536")
            db.executescript(schema() + _PEER_TABLES)
            db.execute("BEGIN")
            for table, cells in all_rows(content):
                width = len(db.execute(f"SELECT * FROM {table} LIMIT 0").description)
                marks = ",".join("?" * width)
                rows[table] = max(0, db.executemany(f"INSERT INTO {table} VALUES({marks})", cells).rowcount)
            for table in ("chunks_fts", "documents_fts"):
                db.execute(f"INSERT INTO {table}({table}) VALUES('rebuild')")
            db.execute("COMMIT")
    except (OSError, sqlite3.OperationalError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise CorpusError(f"cannot write {path}: {reason}") from error
    return ShardSummary(path.name, path, rows, path.stat().st_size)
