"""A WAL database whose writer opens it, commits and closes it again: at rest one moment and written to the next."""

from __future__ import annotations

import multiprocessing
import os
import sqlite3
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pack_lib.errors import PackError
from pack_lib.sources.sqlite import SqliteSource

fork = multiprocessing.get_context("fork")
ROWS = 2000
MARKED = (1, ROWS // 2, ROWS)


def make(path: Path, size: int = 500) -> Path:
    """Two tables one after the other, so that a torn copy holds new rows of one and old rows of the other."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.executescript("PRAGMA journal_mode=WAL; CREATE TABLE one(n, t); CREATE TABLE two(n, t); BEGIN")
        for table in ("one", "two"):
            db.executemany(f"INSERT INTO {table} VALUES (0, ?)", [("x" * size,)] * ROWS)
        db.execute("COMMIT")
    return path


def commit(path: Path, value: int) -> None:
    """One transaction puts ``value`` into marked rows of both tables; the file keeps its size."""
    with closing(sqlite3.connect(path, isolation_level=None, timeout=60)) as db:
        db.execute("PRAGMA synchronous=OFF")
        db.execute("BEGIN IMMEDIATE")
        for table in ("one", "two"):
            db.execute(f"UPDATE {table} SET n = ? WHERE rowid IN {MARKED}", (value,))
        db.execute("COMMIT")


def values(pin: Path) -> set[int]:
    with closing(sqlite3.connect(pin)) as db:
        return {
            int(n)
            for table in ("one", "two")
            for (n,) in db.execute(f"SELECT n FROM {table} WHERE rowid IN {MARKED}").fetchall()
        }


def _write(path: Path, pause: float, stop: Any) -> None:
    value = 0
    while not stop.is_set():
        value += 1
        commit(path, value)
        time.sleep(pause)


@pytest.mark.parametrize("pause", [0, 0.001, 0.003, 0.01])
def test_every_pin_is_one_state(tmp_path: Path, pause: float) -> None:
    path = make(tmp_path / "shard.db")
    stop = fork.Event()
    writer = fork.Process(target=_write, args=(path, pause, stop))
    writer.start()
    seen: Counter[str] = Counter()
    try:
        for turn in range(40):
            pin = tmp_path / f"pin-{turn}"
            try:
                SqliteSource(path).pin(pin)
            except (PackError, OSError) as error:
                seen[f"{type(error).__name__}: {error}".replace(str(path), "shard.db")] += 1
                continue
            seen["one state" if len(values(pin)) == 1 else "TORN"] += 1
            pin.unlink()
    finally:
        stop.set()
        writer.join()
    assert seen == {"one state": 40}


def test_a_commit_within_one_tick_of_the_file_systems_clock(tmp_path: Path) -> None:
    """Modification times are as coarse as the kernel's tick (milliseconds): a commit need not move them."""
    path = make(tmp_path / "shard.db", size=4000)  # of several steps of the backup
    source = SqliteSource(path)
    calls: list[int] = []

    def meanwhile(done: int, total: int) -> None:
        calls.append(done)
        if len(calls) == 1:
            before = path.stat()
            commit(path, 1)
            if not path.with_name("shard.db-wal").exists():  # it was closed, so all of it is in the file now
                os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    source.pin(tmp_path / "pin", meanwhile)
    assert len(calls) > 1
    assert len(values(tmp_path / "pin")) == 1
