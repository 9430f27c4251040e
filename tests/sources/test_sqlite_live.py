"""SQLite sources that others write to, or died while writing to: pins are consistent and leave them alone."""

from __future__ import annotations

import gc
import multiprocessing
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from pack_lib.columnar import decode_rows
from pack_lib.errors import BadInput, Busy, PackError, StoreTrouble
from pack_lib.pack.blob import FileBlob
from pack_lib.pack.reader import PackReader, TableData
from pack_lib.pack.tarstream import DocumentBatch
from pack_lib.pack_set import pack_key
from pack_lib.repack import repack
from pack_lib.sources import sqlite as module
from pack_lib.sources.sqlite import SqliteSource
from pack_lib.stores.local import LocalStore
from tests.kill.small_shard import CAP, add_documents, files_below, make_shard, profile, text

fork = multiprocessing.get_context("fork")


def documents_of(source: SqliteSource, pin: Path) -> tuple[int, int, int]:
    """(documents, chunks, edges) of a pin: every document has 3 chunks and 2 edges."""
    source.pin(pin)
    pinned = source.open_pinned(pin)
    counts = tuple(pinned.count(table) for table in ("documents", "chunks", "edges"))
    pinned.close()
    return counts  # type: ignore[return-value]


def assert_consistent(counts: tuple[int, int, int]) -> None:
    assert counts[1:] == (3 * counts[0], 2 * counts[0])


def _write(path: Path, checkpoint: int, started: Any, stop: Any) -> None:
    with closing(sqlite3.connect(path, isolation_level=None, timeout=60)) as db:
        db.execute(f"PRAGMA wal_autocheckpoint={checkpoint}")
        db.execute("PRAGMA synchronous=OFF")
        number = 0
        while not stop.is_set():
            db.execute("BEGIN IMMEDIATE")
            add_documents(db, [(f"live:{number}", [text(f"live-{number}-{n}", 300 + n) for n in range(3)])])
            db.execute("COMMIT")
            number += 1
            if number == 3:
                started.set()


@contextmanager
def writer_at_work(path: Path, checkpoint: int = 20) -> Iterator[None]:
    """Another process that commits all the time: a document with its chunks and edges in each transaction."""
    started, stop = fork.Event(), fork.Event()
    writer = fork.Process(target=_write, args=(path, checkpoint, started, stop))
    writer.start()
    try:
        assert started.wait(30)
        yield
        assert writer.is_alive()
    finally:
        stop.set()
        writer.join(60)
    assert writer.exitcode == 0


@pytest.mark.parametrize("mode", ["WAL", "DELETE", "TRUNCATE"])
@pytest.mark.parametrize("checkpoint", [1, 1000])
def test_pins_under_a_live_writer(tmp_path: Path, mode: str, checkpoint: int) -> None:
    path = make_shard(tmp_path / "shard.db", pragma=f"PRAGMA journal_mode={mode};", documents=150, size=4000)
    source = SqliteSource(path)
    seen = []
    with writer_at_work(path, checkpoint):
        for turn in range(6):
            begun = time.monotonic()
            counts = documents_of(source, tmp_path / f"pin-{turn}")
            assert time.monotonic() - begun < 30
            assert_consistent(counts)
            seen.append(counts[0])
    assert seen == sorted(seen)
    assert seen[-1] > 150


def test_the_pack_of_a_live_source_is_one_snapshot(tmp_path: Path) -> None:
    path = make_shard(tmp_path / "shard.db", pragma="PRAGMA journal_mode=WAL;", documents=30, size=3000)
    store = LocalStore(tmp_path / "store")
    with writer_at_work(path):
        made = repack(str(path), store, profile=profile(), staging=tmp_path / "staging").set
    rows = {table.name: table.source_rows for table in made.tables}
    assert_consistent((rows["documents"], rows["chunks"], rows["edges"]))
    assert rows["documents"] > 30
    stated = 0
    chunks: list[object] = []
    with PackReader(FileBlob(store.folder / pack_key(made.packs[0].hash))) as reader:
        for member in reader.members():
            if isinstance(member, DocumentBatch):
                chunks += [leaf for document in member.documents for leaf in document.leaves]
                continue
            if not isinstance(member, TableData):
                chunks += [leaf for leaf, _ in member]
                continue
            for _header, decoded in decode_rows(member.blocks, "test"):
                if member.part.table == "documents":
                    stated += sum(row[2] for row in decoded)
    assert stated == rows["chunks"] == len(chunks)


def test_wal_at_rest_gets_no_files_beside_it(tmp_path: Path) -> None:
    folder = tmp_path / "source"
    path = make_shard(folder / "shard.db", pragma="PRAGMA journal_mode=WAL;")
    before = files_below(folder)
    assert list(before) == ["shard.db"]
    source = SqliteSource(path)
    assert_consistent(documents_of(source, tmp_path / "pin"))
    assert files_below(folder) == before
    repack(str(path), LocalStore(tmp_path / "store"), profile=profile(), staging=tmp_path / "staging")
    assert files_below(folder) == before


def test_wal_on_a_read_only_file_system(tmp_path: Path) -> None:
    folder = tmp_path / "source"
    path = make_shard(folder / "shard.db", pragma="PRAGMA journal_mode=WAL;")
    done = subprocess.run(["mount", "--bind", str(folder), str(folder)], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"NOT TESTED: no bind mount here ({done.stderr.strip()})")
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", str(folder)], check=True)
        assert_consistent(documents_of(SqliteSource(path), tmp_path / "pin"))
        repack(str(path), LocalStore(tmp_path / "store"), profile=profile(), staging=tmp_path / "staging")
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


CRASH = """
import os, signal, sqlite3, sys
sys.path.insert(0, {root!r})
from tests.kill.small_shard import CAP, add_documents, text
db = sqlite3.connect({path!r}, isolation_level=None)
db.executescript({pragmas!r})
db.execute("BEGIN")
add_documents(db, [("crash:%d" % n, [text("crash-%d-%d" % (n, c), 3000 + c) for c in range(3)]) for n in range({n})])
{ending}
os.kill(os.getpid(), signal.SIGKILL)
"""


def crash(path: Path, pragmas: str, ending: str, documents: int = 5) -> None:
    """A process that adds documents and dies."""
    root = str(Path(__file__).resolve().parents[2])
    script = CRASH.format(root=root, path=str(path), pragmas=pragmas, ending=ending, n=documents)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr


@pytest.mark.parametrize("shm", [True, False], ids=["with -shm", "without -shm"])
def test_a_wal_that_a_crashed_process_left(tmp_path: Path, shm: bool) -> None:
    """What was committed into the -wal is in the pin; the database and its -wal stay as they are."""
    folder = tmp_path / "source"
    path = make_shard(folder / "shard.db", pragma="PRAGMA journal_mode=WAL;")
    crash(path, "PRAGMA wal_autocheckpoint=0", 'db.execute("COMMIT")')
    if not shm:
        (folder / "shard.db-shm").unlink()
    before = files_below(folder)
    assert "shard.db-wal" in before
    counts = documents_of(SqliteSource(path), tmp_path / "pin")
    assert counts == (9, 27, 18)
    after = files_below(folder)
    assert {name: after.get(name) for name in ("shard.db", "shard.db-wal")} == {
        name: before[name] for name in ("shard.db", "shard.db-wal")
    }


def test_a_transaction_that_a_crashed_process_did_not_commit_is_not_in_the_pin(tmp_path: Path) -> None:
    path = make_shard(tmp_path / "shard.db", pragma="PRAGMA journal_mode=WAL;")
    crash(path, "PRAGMA wal_autocheckpoint=0; PRAGMA cache_size=2", "", documents=40)
    assert documents_of(SqliteSource(path), tmp_path / "pin") == (4, 12, 8)


def test_a_wal_cut_by_a_crash(tmp_path: Path) -> None:
    """Only whole transactions count, wherever the -wal was cut."""
    folder = tmp_path / "source"
    path = make_shard(folder / "shard.db", pragma="PRAGMA journal_mode=WAL;")
    crash(path, "PRAGMA wal_autocheckpoint=0", 'db.execute("COMMIT")')
    whole = (folder / "shard.db-wal").read_bytes()
    seen = set()
    for cut in (0, 10, 32, 100, len(whole) // 2, len(whole) - 1, len(whole)):
        (folder / "shard.db-shm").unlink(missing_ok=True)
        (folder / "shard.db-wal").write_bytes(whole[:cut])
        counts = documents_of(SqliteSource(path), tmp_path / f"pin-{cut}")
        assert_consistent(counts)
        seen.add(counts[0])
    assert seen == {4, 9}


def hot_journal(folder: Path) -> Path:
    """A database in the middle of a transaction whose process died: its -journal must be rolled back."""
    path = make_shard(folder / "shard.db")
    crash(path, "PRAGMA cache_size=2; PRAGMA synchronous=FULL", "", documents=60)
    assert (folder / "shard.db-journal").stat().st_size > 0
    return path


def test_a_hot_journal_gives_a_consistent_pin_or_one_clear_refusal(tmp_path: Path) -> None:
    folder = tmp_path / "source"
    path = hot_journal(folder)
    before = files_below(folder)
    try:
        counts = documents_of(SqliteSource(path), tmp_path / "pin")
    except PackError as error:
        assert isinstance(error, BadInput)
        assert str(path) in str(error)
        assert "-journal" in str(error).replace(str(path), ""), error
        assert "\n" not in str(error)
        assert files_below(folder) == before
    else:
        assert counts == (4, 12, 8)
    with closing(sqlite3.connect(path)) as db:  # the one who may write rolls it back
        assert db.execute("SELECT count(*) FROM documents").fetchone() == (4,)
    assert documents_of(SqliteSource(path), tmp_path / "pin-2") == (4, 12, 8)


def test_a_hot_journal_is_no_immutable_source(tmp_path: Path) -> None:
    path = hot_journal(tmp_path / "source")
    with pytest.raises(BadInput, match=r"declared immutable, but a -wal, -shm or -journal lies beside it"):
        SqliteSource(path).open_pinned(None)


@pytest.mark.parametrize("mode", ["DELETE", "WAL"])
def test_an_exclusive_lock_is_busy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    monkeypatch.setattr(module, "_BUSY_SECONDS", 0.2)
    folder = tmp_path / "source"
    path = make_shard(folder / "shard.db", pragma=f"PRAGMA journal_mode={mode};")
    store = LocalStore(tmp_path / "store")
    with closing(sqlite3.connect(path, isolation_level=None)) as holder:
        holder.execute("PRAGMA locking_mode=EXCLUSIVE")
        holder.execute("INSERT INTO mesh_peers VALUES ('peer')")
        holder.execute("BEGIN EXCLUSIVE")
        holder.execute("INSERT INTO edges VALUES (NULL, NULL, NULL)")
        begun = time.monotonic()
        with pytest.raises(Busy, match=r"shard\.db is locked by another process; run again"):
            repack(str(path), store, profile=profile(), staging=tmp_path / "staging")
        assert time.monotonic() - begun < 10
        holder.execute("ROLLBACK")
    assert list(store.list("")) == []
    assert list(files_below(tmp_path / "staging")) == ["corpus/shard/lock"]
    repack(str(path), store, profile=profile(), staging=tmp_path / "staging")


def test_a_wal_under_an_exclusive_lock_without_a_commit_is_its_committed_state(tmp_path: Path) -> None:
    path = make_shard(tmp_path / "shard.db", pragma="PRAGMA journal_mode=WAL;")
    with closing(sqlite3.connect(path, isolation_level=None)) as holder:
        holder.execute("PRAGMA locking_mode=EXCLUSIVE")
        holder.execute("BEGIN EXCLUSIVE")
        holder.execute("INSERT INTO edges VALUES (NULL, NULL, NULL)")
        assert documents_of(SqliteSource(path), tmp_path / "pin") == (4, 12, 8)
        holder.execute("ROLLBACK")


def test_a_writer_that_holds_the_lock_for_a_moment_is_waited_for(tmp_path: Path) -> None:
    path = make_shard(tmp_path / "shard.db")
    ready = fork.Event()

    def hold() -> None:
        with closing(sqlite3.connect(path, isolation_level=None)) as db:
            db.execute("BEGIN EXCLUSIVE")
            ready.set()
            time.sleep(0.7)
            db.execute("ROLLBACK")

    holder = fork.Process(target=hold)
    holder.start()
    assert ready.wait(30)
    assert documents_of(SqliteSource(path), tmp_path / "pin") == (4, 12, 8)
    holder.join()


def test_a_wal_source_that_wakes_while_it_is_pinned_is_pinned_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At rest it is read without locks; a writer that comes meanwhile undoes that."""
    path = make_shard(tmp_path / "shard.db", pragma="PRAGMA journal_mode=WAL;")
    source = SqliteSource(path)
    really, calls = SqliteSource._copy, []

    def copy_and_write(self: SqliteSource, destination: Path, **options: Any) -> None:
        really(self, destination, **options)
        calls.append(options["immutable"])
        if len(calls) <= 2:
            with closing(sqlite3.connect(path, isolation_level=None)) as db:
                db.execute("BEGIN")
                add_documents(db, [(f"late:{len(calls)}", [text(f"late-{len(calls)}-{n}", 90 + n) for n in range(3)])])
                db.execute("COMMIT")

    monkeypatch.setattr(SqliteSource, "_copy", copy_and_write)
    assert documents_of(source, tmp_path / "pin") == (5, 15, 10)  # with what was written first: then under its locks
    assert calls == [True, False]


def test_a_source_declared_immutable_that_changes_is_refused(tmp_path: Path) -> None:
    path = make_shard(tmp_path / "shard.db")
    store = LocalStore(tmp_path / "store")

    def change(step: str, done: int, total: int) -> None:
        if step.startswith("table"):
            with closing(sqlite3.connect(path)) as db:
                db.execute("INSERT INTO mesh_peers VALUES (?)", (os.urandom(4).hex(),))
                db.commit()

    with pytest.raises(BadInput, match="was declared immutable and changed while it was read"):
        repack(
            str(path), store, profile=profile(), staging=tmp_path / "staging", immutable=True, report=change, workers=1
        )
    assert list(store.list("")) == []


def test_the_pin_is_equal_whatever_the_journal_mode(tmp_path: Path) -> None:
    """The same rows in another journal mode, and by way of a -wal, make the same set."""
    made = []
    for number, mode in enumerate(("DELETE", "WAL", "WAL")):
        folder = tmp_path / str(number)
        path = make_shard(folder / "shard.db", documents=0, pragma=f"PRAGMA journal_mode={mode};")
        if number == 2:
            crash(path, "PRAGMA wal_autocheckpoint=0", 'db.execute("COMMIT")')
        else:
            crash(shutil.copy(path, folder / "other.db"), "", 'db.execute("COMMIT")')
            (folder / "other.db").replace(path)
            for tail in ("-wal", "-shm"):
                beside = folder / f"other.db{tail}"
                if beside.exists():
                    beside.replace(folder / f"shard.db{tail}")
        result = repack(str(path), LocalStore(folder / "store"), profile=profile(), staging=tmp_path / "staging")
        assert result.set.chunks == 15
        made.append(result.set.set_hash)
    assert len(set(made)) == 1


class FullStore(LocalStore):
    def put_if_absent(self, key: str, *_arguments: Any, **_options: Any) -> Any:
        raise StoreTrouble("the store is full")


def test_an_error_midway_is_all_that_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream that is dropped after its source was closed says nothing more (the interpreter would, on stderr)."""
    path = make_shard(tmp_path / "shard.db", documents=30)
    noise: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda told: noise.append(str(told.exc_value)))
    store = FullStore(tmp_path / "store")
    try:
        repack(str(path), store, profile=profile(), staging=tmp_path / "staging", cap=CAP, workers=1)
    except StoreTrouble as error:
        assert str(error) == "the store is full"
    gc.collect()
    assert noise == []
