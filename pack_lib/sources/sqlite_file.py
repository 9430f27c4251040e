"""What everybody needs who reads a SQLite file: identifiers, a connection that writes nothing, errors in our words."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

from pack_lib.errors import BadInput, Busy, StoreTrouble

BOUNDS = ("PRAGMA cache_size=-16384", "PRAGMA temp_store=FILE", "PRAGMA trusted_schema=OFF")
"""Of every connection: 16 MiB of cache, sorts that spill into files, no functions that a stranger's schema names."""

_EVERY_OPCODES = 100_000


def quoted(name: str) -> str:
    """An SQL identifier, whatever is in the name."""
    return '"' + name.replace('"', '""') + '"'


def chained(operator: str, terms: list[str]) -> str:
    """``a + b + c + d`` as ``(a + b) + (c + d)``: SQLite takes expressions of a depth up to 1,000."""
    if len(terms) < 3:
        return operator.join(terms)
    half = len(terms) // 2
    return f"({chained(operator, terms[:half])}){operator}({chained(operator, terms[half:])})"


def immutable_uri(path: Path) -> str:
    return f"file:{quote(os.fsencode(path.absolute()))}?mode=ro&immutable=1"


def connect_immutable(path: Path) -> sqlite3.Connection:
    """Read a file that nobody writes: no lock, no -wal or -shm beside it. Its cache is bounded, its sorts spill."""
    connection = sqlite3.connect(immutable_uri(path), uri=True, check_same_thread=False, isolation_level=None)
    for statement in BOUNDS:
        connection.execute(statement)
    return connection


@contextlib.contextmanager
def interruptible(connection: sqlite3.Connection, now_and_then: Callable[[], object]) -> Iterator[None]:
    """Let a long statement be ended by what a callback raises; SQLite itself answers that with an error of its own."""
    raised: list[BaseException] = []

    def handler() -> int:
        try:
            if not raised:
                now_and_then()
        except BaseException as error:
            raised.append(error)
        return len(raised)

    connection.set_progress_handler(handler, _EVERY_OPCODES)
    try:
        yield
    except sqlite3.OperationalError:
        if not raised:
            raise
    finally:
        connection.set_progress_handler(None, 0)
    if raised:
        raise raised[0]


@contextlib.contextmanager
def sqlite_errors(where: str) -> Iterator[None]:
    """Turn what SQLite raises while reading ``where`` into one error of ours."""
    try:
        yield
    except sqlite3.OperationalError as error:
        text = str(error)
        if "readonly" in text or "read-only" in text:
            raise StoreTrouble(f"cannot write {where}: {text}; give write permission or choose another file") from error
        if "locked" in text or "busy" in text:
            raise Busy(f"{where} is locked by another process; run again when its writer is done") from error
        if "disk is full" in text or "disk I/O" in text:
            raise StoreTrouble(
                f"{where}: SQLite says {text!r}; free space on its disk and where temporary files go, then run again"
            ) from error
        raise BadInput(f"{where} cannot be read: {text}; check it with 'PRAGMA integrity_check'") from error
    except sqlite3.IntegrityError as error:
        raise BadInput(f"{where} refuses a row: {error}; give a profile whose schema has no such constraint") from error
    except sqlite3.DatabaseError as error:
        raise BadInput(
            f"{where} is damaged or no SQLite database: {error}; check it with 'PRAGMA integrity_check'"
        ) from error
