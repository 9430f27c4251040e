"""The local store: the conformance suite, and what a folder can do to it."""

from __future__ import annotations

import errno
import multiprocessing
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from pack_lib.errors import BadInput, NotFound, StoreTrouble
from pack_lib.stores import open_store
from pack_lib.stores.base import Store
from pack_lib.stores.local import LocalStore
from pack_lib.testing.stores import StoreSuite

fork = multiprocessing.get_context("fork")


class TestLocalStore(StoreSuite):
    rounds = 12

    def make_store(self, folder: Path) -> Store:
        return LocalStore(folder)


class TestLocalStoreOfAFolderToCome(TestLocalStore):
    """The folder is made by the first put."""

    many = 20

    def make_store(self, folder: Path) -> Store:
        return LocalStore(folder / "not" / "yet")


class TestLocalStoreWithoutHardLinks(TestLocalStore):
    many = 20

    @pytest.fixture(autouse=True)
    def _no_links(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*_arguments: object, **_options: object) -> None:
            raise OSError(errno.EPERM, "Operation not permitted")

        monkeypatch.setattr(os, "link", refuse)


@contextmanager
def mounted(folder: Path, options: str) -> Iterator[Path]:
    """A tmpfs of its own at ``folder``; the test is skipped where mounting is refused."""
    folder.mkdir(exist_ok=True)
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"NOT TESTED: a tmpfs cannot be mounted here ({done.stderr.strip() or done.returncode})")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def leftovers(folder: Path) -> list[str]:
    """Temporary files anywhere in a store."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob(".tmp-*"))


def test_a_failed_put_leaves_no_temporary(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "store")
    body = tmp_path / "body"
    body.write_bytes(bytes(3_000_000))

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.put_if_absent("packs/x", body, stop)
    assert leftovers(store.folder) == []


def test_a_body_that_grows_while_it_is_copied_is_refused(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "store")
    body = tmp_path / "body"
    body.write_bytes(bytes(3_000_000))

    def grow(done: int, total: int) -> None:
        if done == 1 << 20:
            with body.open("ab") as file:
                file.write(b"more")

    with pytest.raises(StoreTrouble, match="changed while it was copied"):
        store.put_if_absent("packs/x", body, grow)
    assert store.object_size("packs/x") is None
    assert leftovers(store.folder) == []


def _put_slowly(folder: Path, body: Path, tell: Connection) -> None:
    def slow(done: int, total: int) -> None:
        tell.send(done)
        time.sleep(0.005)

    LocalStore(folder).put_if_absent("packs/x", body, slow)
    tell.send(-1)


@pytest.mark.parametrize("blocks", [1, 3, 7, 8])
def test_a_writer_killed_midway_leaves_nothing_that_can_be_read(tmp_path: Path, blocks: int) -> None:
    body = tmp_path / "body"
    body.write_bytes(os.urandom(8 << 20))
    store = LocalStore(tmp_path / "store")
    receive, send = fork.Pipe(duplex=False)
    writer = fork.Process(target=_put_slowly, args=(store.folder, body, send))
    writer.start()
    for _ in range(blocks):
        assert receive.poll(30)
        receive.recv()
    assert writer.pid
    os.kill(writer.pid, signal.SIGKILL)
    writer.join()
    assert store.object_size("packs/x") in (None, 8 << 20)
    assert list(store.list("")) in ([], ["packs/x"])
    store.put_if_absent("packs/x", body)
    assert store.get("packs/x") == body.read_bytes()
    assert list(store.list("")) == ["packs/x"]


def _put_many(folder: Path, number: int, keys: int, tell: Connection) -> None:
    store = LocalStore(folder)
    mine = bytes([number]) * (200_000 + number)
    tell.send([key for key in range(keys) if store.put_if_absent(f"packs/{key}", mine).created])


def test_of_several_processes_one_makes_each_object(tmp_path: Path) -> None:
    keys, pipes, writers = 40, [], []
    for number in range(6):
        receive, send = fork.Pipe(duplex=False)
        writers.append(fork.Process(target=_put_many, args=(tmp_path, number, keys, send)))
        pipes.append(receive)
    for writer in writers:
        writer.start()
    made = {key: number for number, pipe in enumerate(pipes) for key in pipe.recv()}
    told = sum(1 for _ in made)
    for writer in writers:
        writer.join()
    store = LocalStore(tmp_path)
    assert told == keys
    for key, number in made.items():
        assert store.get(f"packs/{key}") == bytes([number]) * (200_000 + number)
    assert leftovers(tmp_path) == []


def _increment(folder: Path, times: int) -> None:
    store = LocalStore(folder)
    for _ in range(times):
        while True:
            found = store.get_versioned("catalog.json")
            value = int(found[0]) if found else 0
            if store.replace_if("catalog.json", b"%d" % (value + 1), found[1] if found else None):
                break


def test_of_several_processes_none_loses_a_replace(tmp_path: Path) -> None:
    writers = [fork.Process(target=_increment, args=(tmp_path, 30)) for _ in range(6)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    assert LocalStore(tmp_path).get("catalog.json") == b"180"
    assert leftovers(tmp_path) == []


def test_a_killed_process_frees_the_lock_of_the_catalog(tmp_path: Path) -> None:
    writers = [fork.Process(target=_increment, args=(tmp_path, 10_000)) for _ in range(3)]
    for writer in writers:
        writer.start()
    time.sleep(0.3)
    for writer in writers:
        assert writer.pid
        os.kill(writer.pid, signal.SIGKILL)
        writer.join()
    store = LocalStore(tmp_path)
    found = store.get_versioned("catalog.json")
    assert found is not None
    assert int(found[0]) > 0
    assert store.replace_if("catalog.json", b"0", found[1])


def test_a_full_disk_keeps_what_was_there(tmp_path: Path) -> None:
    with mounted(tmp_path / "small", "size=2m") as folder:
        store = LocalStore(folder)
        store.put_if_absent("packs/kept", b"kept")
        store.replace_if("catalog.json", b"kept", None)
        body = tmp_path / "body"
        body.write_bytes(os.urandom(4 << 20))
        for what in (body, body.read_bytes()):
            with pytest.raises(StoreTrouble, match=r"cannot write .*No space left.*free some space") as trouble:
                store.put_if_absent("packs/x", what)
            assert str(folder) in str(trouble.value)
            assert "\n" not in str(trouble.value)
        found = store.get_versioned("catalog.json")
        assert found is not None
        with pytest.raises(StoreTrouble, match="No space left"):
            store.replace_if("catalog.json", bytes(4 << 20), found[1])
        assert store.get("catalog.json") == b"kept"
        assert list(store.list("")) == ["catalog.json", "packs/kept"]
        assert leftovers(folder) == []
        assert store.put_if_absent("packs/y", bytes(1 << 20)).created


def test_a_file_system_without_inodes(tmp_path: Path) -> None:
    with mounted(tmp_path / "small", "size=2m,nr_inodes=8") as folder:
        store = LocalStore(folder)
        with pytest.raises(StoreTrouble, match=r"cannot write .*No space left"):
            for number in range(9):
                store.put_if_absent(f"packs/{number}", b"x")
        assert leftovers(folder) == []


def test_a_read_only_folder(tmp_path: Path) -> None:
    with mounted(tmp_path / "small", "size=2m") as folder:
        store = LocalStore(folder)
        store.put_if_absent("packs/x", b"kept")
        subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
        assert store.get("packs/x") == b"kept"
        assert list(store.list("")) == ["packs/x"]
        assert store.put_if_absent("packs/x", b"kept").created is False
        for call in (
            lambda: store.put_if_absent("packs/y", b"y"),
            lambda: store.replace_if("catalog.json", b"y", None),
            lambda: store.delete("packs/x"),
        ):
            with pytest.raises(StoreTrouble, match="Read-only file system; it is mounted read-only") as trouble:
                call()
            assert str(folder) in str(trouble.value)
        assert list(store.list("")) == ["packs/x"]


def test_opening(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    with pytest.raises(BadInput, match=r"store .*file is a file; give a folder"):
        open_store(str(tmp_path / "file"))
    with pytest.raises(NotFound, match=r"store .*absent does not exist; check the path"):
        open_store(str(tmp_path / "absent"), must_exist=True)
    with pytest.raises(BadInput, match=r"gopher://\.\.\. is not supported"):
        open_store("gopher://user:password@host/x")
    with pytest.raises(BadInput, match="empty"):
        open_store("")
    (tmp_path / "with space").mkdir()
    assert open_store(f"file://{tmp_path}/with%20space", must_exist=True).location == str(tmp_path / "with space")


def test_a_store_whose_folder_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    store = LocalStore(tmp_path / "file")
    assert store.object_size("packs/x") is None
    with pytest.raises(StoreTrouble, match=r"a part of the path is a file|a file stands where a folder is needed"):
        store.put_if_absent("packs/x", b"x")
    with pytest.raises(StoreTrouble):
        store.replace_if("catalog.json", b"x", None)
    assert (tmp_path / "file").read_bytes() == b"x"
