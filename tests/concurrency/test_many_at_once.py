"""Several repacks at once: shards of one corpus into one store, one shard twice, one shard into two stores."""

from __future__ import annotations

import multiprocessing
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from pack_lib.build import Job, ShardBuild
from pack_lib.catalog import latest_sets, read_catalog
from pack_lib.errors import Busy, PackError
from pack_lib.pack.parameters import parameters_for
from pack_lib.pack_set import committed_sets, read_set
from pack_lib.repack import repack
from pack_lib.sources import open_source
from pack_lib.stores.local import LocalStore
from pack_lib.stores.memory import MemoryStore
from pack_lib.verify import verify_set
from tests.kill.small_shard import CAP, contents, files_below, make_shard, profile, temporaries

fork = multiprocessing.get_context("fork")


@pytest.fixture(autouse=True)
def each_layout(layout: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """`pack` in it, in this process and the forked ones."""
    monkeypatch.setattr(f"{__name__}.repack", partial(repack, layout=layout))


def pack(source: Path, store: Any, staging: Path, **options: Any) -> Any:
    return repack(str(source), store, profile=profile(), cap=CAP, workers=2, staging=staging, **options)


def _work(source: Path, store: Path, staging: Path, gate: Any, tell: Connection, options: dict[str, Any]) -> None:
    gate.wait(60)
    try:
        tell.send(("done", pack(source, LocalStore(store), staging, **options).set.key))
    except PackError as error:
        tell.send((type(error).__name__, str(error)))


def together(jobs: list[tuple[Path, Path, Path, dict[str, Any]]]) -> list[tuple[str, str]]:
    """Run each (source, store, staging, options) in a process of its own, begun at one moment."""
    gate = fork.Barrier(len(jobs))
    pipes, workers = [], []
    for source, store, staging, options in jobs:
        receive, send = fork.Pipe(duplex=False)
        workers.append(fork.Process(target=_work, args=(source, store, staging, gate, send, options)))
        pipes.append(receive)
    for worker in workers:
        worker.start()
    told = [pipe.recv() if pipe.poll(120) else ("nothing", "") for pipe in pipes]
    for worker in workers:
        worker.join()
    return told


def check(store: Path, sets: int) -> None:
    """As many sets as that, all whole, all named by the catalog; nothing unfinished."""
    opened = LocalStore(store)
    keys = list(committed_sets(opened))
    assert len(keys) == sets
    for key in keys:
        assert verify_set(opened, read_set(opened, key), profile()).complete
    assert sorted(entry.key for entry in read_catalog(opened)) == keys
    assert temporaries(store) == []


def test_four_shards_into_one_store(tmp_path: Path) -> None:
    shards = [make_shard(tmp_path / "source" / f"shard-{n}.db", f"seed {n}") for n in range(4)]
    alone = tmp_path / "alone"
    for shard in shards:
        pack(shard, LocalStore(alone), tmp_path / "staging-alone")
    for turn in range(4):
        store, staging = tmp_path / f"store-{turn}", tmp_path / f"staging-{turn}"
        told = together([(shard, store, staging, {}) for shard in shards])
        assert [word for word, _ in told] == ["done"] * 4, told
        check(store, 4)
        assert [entry.shard for entry in latest_sets(LocalStore(store))] == [f"shard-{n}" for n in range(4)]
        assert contents(store) == contents(alone)
        assert sorted(files_below(staging)) == [f"corpus/shard-{n}/lock" for n in range(4)]


def test_shards_with_the_same_content_share_nothing_but_do_no_harm(tmp_path: Path) -> None:
    """The shard's name is in the pack, so equal bodies make other packs; all four commit."""
    shards = [make_shard(tmp_path / "source" / f"shard-{n}.db", "one seed") for n in range(4)]
    told = together([(shard, tmp_path / "store", tmp_path / "staging", {}) for shard in shards])
    assert [word for word, _ in told] == ["done"] * 4, told
    check(tmp_path / "store", 4)


def test_one_shard_by_several_processes(tmp_path: Path) -> None:
    """One at a time works on it; the others are told so at once, and nothing is harmed."""
    shard = make_shard(tmp_path / "source" / "shard.db", documents=40)
    told = together([(shard, tmp_path / "store", tmp_path / "staging", {}) for _ in range(4)])
    words = [word for word, _ in told]
    assert set(words) <= {"done", "Busy"}, told
    assert "done" in words
    assert "Busy" in words
    for word, text in told:
        if word == "Busy":
            assert "shard corpus/shard is being built by another process" in text
    check(tmp_path / "store", 1)


def test_the_other_is_busy_while_one_builds(tmp_path: Path) -> None:
    shard = make_shard(tmp_path / "source" / "shard.db")
    store = LocalStore(tmp_path / "store")
    tried: list[str] = []

    def meanwhile(step: str, done: int, total: int) -> None:
        if step == "bodies" and not tried:
            tried.append(step)
            with pytest.raises(Busy, match="shard corpus/shard is being built by another process"):
                pack(shard, store, tmp_path / "staging")
            assert pack(shard, store, tmp_path / "staging", shard="another").packs_sent

    assert pack(shard, store, tmp_path / "staging", report=meanwhile).packs_sent
    assert tried
    check(tmp_path / "store", 2)


def test_one_shard_from_two_staging_folders(tmp_path: Path) -> None:
    """No lock keeps them apart (they may be on two machines): both make the same packs, and none is harmed."""
    shard = make_shard(tmp_path / "source" / "shard.db", documents=12)
    for turn in range(4):
        store = tmp_path / f"store-{turn}"
        told = together([(shard, store, tmp_path / f"staging-{turn}-{n}", {}) for n in range(3)])
        assert [word for word, _ in told] == ["done"] * 3, told
        assert len({key for _, key in told}) == 1
        check(store, 1)


def test_one_shard_into_two_stores(tmp_path: Path) -> None:
    shard = make_shard(tmp_path / "source" / "shard.db", documents=12)
    stores = [tmp_path / "one", tmp_path / "two"]
    told = together([(shard, store, store / ".staging", {}) for store in stores])
    assert [word for word, _ in told] == ["done"] * 2, told
    assert contents(stores[0]) == contents(stores[1])


def test_other_parameters_make_a_second_set(tmp_path: Path) -> None:
    """Two sets of one snapshot, committed at once: both exist, and both stand in the catalog."""
    shard = make_shard(tmp_path / "source" / "shard.db", documents=12)
    store = tmp_path / "store"
    told = together([(shard, store, tmp_path / f"staging-{level}", {"level": level}) for level in (1, 5)])
    assert [word for word, _ in told] == ["done"] * 2, told
    check(store, 2)


def test_shards_in_threads_of_one_process(tmp_path: Path) -> None:
    shards = [make_shard(tmp_path / "source" / f"shard-{n}.db", f"seed {n}") for n in range(4)]
    for store in (MemoryStore("many"), LocalStore(tmp_path / "store")):
        start = threading.Barrier(4)

        def work(shard: Path, store: Any = store, start: threading.Barrier = start) -> str:
            start.wait(30)
            return str(pack(shard, store, tmp_path / "staging").set.key)

        with ThreadPoolExecutor(4) as pool:
            keys = list(pool.map(work, shards))
        assert sorted(entry.key for entry in read_catalog(store)) == sorted(keys)
        for key in keys:
            assert verify_set(store, read_set(store, key), profile()).complete


def test_readers_while_a_shard_is_packed_again_and_again(tmp_path: Path) -> None:
    """Whatever moment a reader comes at, the catalog is whole and every set it names can be read."""
    store = LocalStore(tmp_path / "store")
    shards = [make_shard(tmp_path / "source" / "shard.db", f"seed {n}") for n in range(1)]
    stop = threading.Event()
    seen: set[str] = set()
    errors: list[BaseException] = []

    def read() -> None:
        while not stop.is_set():
            try:
                for entry in read_catalog(store):
                    made = read_set(store, entry.key)
                    if entry.key not in seen:
                        assert verify_set(store, made, profile()).complete
                        seen.add(entry.key)
            except BaseException as error:
                errors.append(error)
                return

    reader = threading.Thread(target=read)
    reader.start()
    for turn in range(8):
        shards[0].unlink()
        make_shard(shards[0], f"turn {turn}", documents=1)
        pack(shards[0], store, tmp_path / "staging")
    stop.set()
    reader.join()
    assert not errors, errors
    assert seen
    assert len(read_catalog(store)) == 8


def test_another_run_takes_over_staging_and_the_first_one_is_told(tmp_path: Path) -> None:
    """Between steps no lock is held: who finds another's run there says so and spoils nothing."""
    shard = make_shard(tmp_path / "source" / "shard.db")
    job = Job(
        "corpus", "shard", open_source(str(shard)), profile(), parameters_for(CAP), tmp_path / "staging", workers=1
    )
    first, second = ShardBuild(job, "first"), ShardBuild(job, "second")
    with first.held():
        first.pin()
        first.select()
    with second.held():
        pin = second.pin()
    with first.held(), pytest.raises(PackError, match="holds nothing of run first; start the run from its first step"):
        first.stage_tables(fanned_in=False)
    with second.held():
        assert second.pin() == pin


def test_a_lock_is_free_again_after_an_error(tmp_path: Path) -> None:
    shard = make_shard(tmp_path / "source" / "shard.db")

    class Stop(Exception):
        pass

    def stop(step: str, done: int, total: int) -> None:
        raise Stop

    for _ in range(2):
        with pytest.raises(Stop):
            pack(shard, LocalStore(tmp_path / "store"), tmp_path / "staging", report=stop)
    assert pack(shard, LocalStore(tmp_path / "store"), tmp_path / "staging").packs_sent
