"""Stores and staging folders that cannot be used, or hold something wrong."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import zstandard

from pack_lib.catalog import read_catalog
from pack_lib.errors import BadInput, Busy, Damaged, PackError, StoreTrouble
from pack_lib.fsio import locked
from pack_lib.pack_set import committed_sets, pack_key, read_set, sidecar_key
from pack_lib.repack import repack
from pack_lib.stores import open_store
from pack_lib.stores.local import LocalStore
from pack_lib.verify import verify_set
from tests.bad_input.refusals import arguments, refused, refused_and_empty
from tests.kill.small_shard import contents, files_below, make_shard, profile, temporaries


@pytest.fixture
def shard(tmp_path: Path) -> Path:
    return make_shard(tmp_path / "source" / "shard.db")


def packed(tmp_path: Path, source: Path, **options: Any) -> Any:
    return repack(str(source), LocalStore(tmp_path / "store"), **arguments(tmp_path, **options))


@contextmanager
def mounted(folder: Path, size: str, mode: str = "rw") -> Iterator[Path]:
    """A small file system of its own; the test is skipped where mounting is refused."""
    folder.mkdir(parents=True)
    options = f"size={size},{mode}"
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"NOT TESTED: a tmpfs cannot be mounted here ({done.stderr.strip() or done.returncode})")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


# Staging


def test_two_builds_of_one_shard(tmp_path: Path, shard: Path) -> None:
    lock = tmp_path / "staging" / "corpus" / "shard" / "lock"
    with locked(lock, "test"):
        words = ("shard corpus/shard is being built by another process", str(lock), "wait for it to end")
        refused_and_empty(tmp_path, shard, Busy, *words)
        assert packed(tmp_path, shard, shard="another").packs_sent
    assert packed(tmp_path, shard).packs_sent


def test_staging_too_small_for_the_pin(tmp_path: Path) -> None:
    shard = make_shard(tmp_path / "source" / "shard.db", documents=30, size=40_000)
    with mounted(tmp_path / "staging", "2m"):
        words = (str(tmp_path / "staging"), "pinning the source", "bytes and", "are free", "free some space")
        refused_and_empty(tmp_path, shard, StoreTrouble, *words)


def test_staging_that_fills_up_midway(tmp_path: Path) -> None:
    """The room asked for before is an estimate; others may take it meanwhile."""
    shard = make_shard(tmp_path / "source" / "shard.db", documents=9, size=40_000)
    with mounted(tmp_path / "staging", "4m") as staging:

        def fill(step: str, done: int, total: int) -> None:
            if step == "bodies" and not (tmp_path / "staging" / "foreign").exists():
                free = shutil.disk_usage(staging).free
                (staging / "foreign").write_bytes(bytes(free - 100_000))

        with pytest.raises(StoreTrouble, match=r"cannot write .*staging.*: No space left on device; free some space"):
            packed(tmp_path, shard, cap=None, report=fill)
        (staging / "foreign").unlink()
        assert list(files_below(staging)) == ["corpus/shard/lock"]
        assert files_below(tmp_path / "store") == {}
        assert packed(tmp_path, shard, cap=None).packs_sent == 1


def test_staging_that_fills_up_while_pinning(tmp_path: Path) -> None:
    shard = make_shard(tmp_path / "source" / "shard.db", documents=9, size=40_000)
    with mounted(tmp_path / "staging", "3200k") as staging:

        def fill(step: str, done: int, total: int) -> None:
            if step == "pin" and not (staging / "foreign").exists():
                (staging / "foreign").write_bytes(bytes(max(0, shutil.disk_usage(staging).free)))

        try:
            packed(tmp_path, shard, report=fill)
        except StoreTrouble as error:
            assert "\n" not in str(error)
            assert "free" in str(error)
        (staging / "foreign").unlink(missing_ok=True)
        assert list(files_below(staging)) == ["corpus/shard/lock"]


def test_staging_on_a_read_only_file_system(tmp_path: Path, shard: Path) -> None:
    with mounted(tmp_path / "staging", "2m", "ro"):
        words = ("cannot write", str(tmp_path / "staging"), "Read-only file system", "choose another folder")
        refused_and_empty(tmp_path, shard, StoreTrouble, *words)


@pytest.mark.parametrize("below", ["", "corpus", "corpus/shard"])
def test_staging_is_a_file(tmp_path: Path, shard: Path, below: str) -> None:
    place = tmp_path / "staging" / below
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(b"mine")
    store = LocalStore(tmp_path / "store")
    with pytest.raises(StoreTrouble, match=r"cannot write .*staging.*; .*choose another folder"):
        repack(str(shard), store, **arguments(tmp_path))
    assert place.read_bytes() == b"mine"
    assert list(store.list("")) == []


# The store


def test_the_store_is_a_file(tmp_path: Path, shard: Path) -> None:
    (tmp_path / "store").write_bytes(b"mine")
    with pytest.raises(BadInput, match=r"store .*/store is a file; give a folder"):
        open_store(str(tmp_path / "store"))
    with pytest.raises(StoreTrouble, match=r"cannot write .*/store"):
        packed(tmp_path, shard)
    assert (tmp_path / "store").read_bytes() == b"mine"


def test_a_read_only_store(tmp_path: Path, shard: Path) -> None:
    with mounted(tmp_path / "store", "2m", "ro"):
        words = ("cannot write", str(tmp_path / "store"), "Read-only file system", "choose another folder")
        refused_and_empty(tmp_path, shard, StoreTrouble, *words)


@pytest.mark.parametrize("size", ["8k", "64k", "100k", "128k"])
def test_a_store_that_fills_up_midway(tmp_path: Path, shard: Path, size: str) -> None:
    """Whole packs may stay, no set; with more room the next run completes it with the same bytes."""
    with mounted(tmp_path / "store", size):
        words = ("cannot write", str(tmp_path / "store"), "No space left on device", "free some space")
        refused(tmp_path, shard, StoreTrouble, *words)
        left = contents(tmp_path / "store")
        subprocess.run(["mount", "-o", "remount,size=4m", str(tmp_path / "store")], check=True)
        made = packed(tmp_path, shard)
        assert made.packs_sent == len(made.set.packs) - sum(name.endswith(".zst") for name in left)
        now = contents(tmp_path / "store")
        assert {name: now[name] for name in left} == left
        assert verify_set(LocalStore(tmp_path / "store"), made.set, profile()).complete


def _stored(tmp_path: Path, shard: Path) -> tuple[LocalStore, Any]:
    """A store that holds the packs of a set, but neither the set nor the catalog."""
    store = LocalStore(tmp_path / "store")
    made = packed(tmp_path, shard).set
    store.delete(made.key)
    store.delete("catalog.json")
    return store, made


@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "grown", "other"])
@pytest.mark.parametrize("which", [0, -1])
def test_a_damaged_pack_in_the_store(tmp_path: Path, shard: Path, damage: str, which: int) -> None:
    """It is never overwritten, and the message says to delete it."""
    store, made = _stored(tmp_path, shard)
    path = store.folder / pack_key(made.packs[which].hash)
    data = path.read_bytes()
    wrong = {
        "flip": data[:5000] + bytes([data[5000] ^ 1]) + data[5001:],
        "cut": data[:-100],
        "empty": b"",
        "grown": data + b"\0",
        "other": (store.folder / pack_key(made.packs[1].hash)).read_bytes(),
    }[damage]
    path.write_bytes(wrong)
    refused(tmp_path, shard, Damaged, str(path), f"pack {made.packs[which].hash}", "delete it there, then run again")
    assert path.read_bytes() == wrong
    path.unlink()
    again = packed(tmp_path, shard)
    assert again.set == made
    assert path.read_bytes() == data


def test_a_damaged_pack_of_a_committed_set(tmp_path: Path, shard: Path) -> None:
    """Cut in a store whose catalog names the set: the set is not up to date any more."""
    made = packed(tmp_path, shard).set
    store = LocalStore(tmp_path / "store")
    path = store.folder / pack_key(made.packs[0].hash)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(Damaged, match="delete it there, then run again"):
        packed(tmp_path, shard)
    path.unlink()
    again = packed(tmp_path, shard)
    assert (again.set, again.packs_sent, again.up_to_date) == (made, 1, False)


def _recompressed(path: Path, level: int) -> bytes:
    """The same tar as a foreign compressor may write it: frames of another level, no seek table."""
    tar = zstandard.ZstdDecompressor().stream_reader(path.open("rb"), read_across_frames=True).read()
    return zstandard.ZstdCompressor(level=level, write_checksum=True).compress(tar)


@pytest.mark.parametrize("which", [0, 1, -1])
def test_a_pack_of_another_libzstd_is_adopted(tmp_path: Path, shard: Path, which: int) -> None:
    """Same content and so the same hash, other compressed bytes: they stay, and the set manifest states them."""
    store, made = _stored(tmp_path, shard)
    path = store.folder / pack_key(made.packs[which].hash)
    other = _recompressed(path, 19)
    assert other != path.read_bytes()
    path.write_bytes(other)
    again = packed(tmp_path, shard)
    assert path.read_bytes() == other
    stated = again.set.packs[which]
    assert (stated.hash, stated.size) == (made.packs[which].hash, len(other))
    assert stated.sha256 == hashlib.sha256(other).hexdigest()
    assert [pack for pack in again.set.packs if pack != stated] == [
        pack for pack in made.packs if pack.hash != stated.hash
    ]
    assert again.set.snapshot_root == made.snapshot_root
    assert again.set.set_hash != made.set_hash
    assert read_set(store, again.set.key) == again.set
    assert verify_set(store, again.set, profile()).complete
    assert packed(tmp_path, shard).up_to_date


def test_a_pack_of_an_unknown_version_in_the_store(
    tmp_path: Path, shard: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refused with its number, and left as it is."""
    store, made = _stored(tmp_path, shard)
    path = store.folder / pack_key(made.packs[0].hash)
    tar = zstandard.ZstdDecompressor().stream_reader(path.open("rb"), read_across_frames=True).read()
    wrong = zstandard.ZstdCompressor().compress(tar.replace(b'"version":2}', b'"version":7}'))
    path.write_bytes(wrong)
    refused(tmp_path, shard, Damaged, str(path), "version 7", "this build reads")
    assert path.read_bytes() == wrong


def test_a_damaged_sidecar_is_left_and_harms_nothing(tmp_path: Path, shard: Path) -> None:
    store, made = _stored(tmp_path, shard)
    path = store.folder / sidecar_key(made.packs[0].hash)
    path.write_bytes(b"{}")
    assert packed(tmp_path, shard).set == made
    assert verify_set(store, made, profile()).complete


def test_a_damaged_set_manifest_under_the_key_to_be_written(tmp_path: Path, shard: Path) -> None:
    made = packed(tmp_path, shard).set
    store = LocalStore(tmp_path / "store")
    (store.folder / made.key).write_bytes(b"{}")
    with pytest.raises(Damaged, match=rf"{made.key}: its bytes do not hash to its name"):
        packed(tmp_path, shard)
    assert store.get(made.key) == b"{}"
    store.delete(made.key)
    assert packed(tmp_path, shard).set == made


CATALOGS = {
    "empty": b"",
    "text": b"hello",
    "cut": b'{"format": "cold-catalog", "version": 1, "se',
    "list": b"[]",
    "null": b"null",
    "no sets": b'{"format": "cold-catalog", "version": 1}',
    "sets of another type": b'{"format": "cold-catalog", "version": 1, "sets": {"a": 1}}',
    "entry without fields": b'{"format": "cold-catalog", "version": 1, "sets": [{}]}',
    "not UTF-8": b"\xff\xfe",
    "deep": b"[" * 100_000,
    "binary": bytes(range(256)),
}


@pytest.mark.parametrize("body", CATALOGS.values(), ids=CATALOGS)
def test_a_damaged_catalog(tmp_path: Path, shard: Path, body: bytes) -> None:
    """The message says how to have it made anew; what it says is then what the sets say."""
    made = packed(tmp_path, shard).set
    store = LocalStore(tmp_path / "store")
    (store.folder / "catalog.json").write_bytes(body)
    another = make_shard(tmp_path / "source" / "another.db", "another")
    refused(tmp_path, another, Damaged, f"{store.folder}/catalog.json", "delete it and run")
    assert store.get("catalog.json") == body
    store.delete("catalog.json")
    second = packed(tmp_path, another).set
    assert [entry.key for entry in read_catalog(store)] == [second.key, made.key]


@pytest.mark.parametrize(
    ("field", "value"),
    [("corpus", 5), ("shard", None), ("committed_at", 7), ("set_hash", "x"), ("packs", "many"), ("size", None)],
)
def test_a_catalog_with_a_wrong_field(tmp_path: Path, shard: Path, field: str, value: Any) -> None:
    packed(tmp_path, shard)
    path = tmp_path / "store" / "catalog.json"
    catalog = json.loads(path.read_bytes())
    catalog["sets"][0][field] = value
    path.write_text(json.dumps(catalog))
    another = make_shard(tmp_path / "source" / "another.db", "another")
    refused(tmp_path, another, Damaged, "catalog.json", "delete it and run")


def test_a_catalog_of_another_version(tmp_path: Path, shard: Path) -> None:
    packed(tmp_path, shard)
    path = tmp_path / "store" / "catalog.json"
    path.write_bytes(path.read_bytes().replace(b'"version": 1', b'"version": 9'))
    with pytest.raises(PackError, match=r"catalog version 9; this build reads 1"):
        packed(tmp_path, shard)


def test_a_catalog_that_names_a_set_that_is_gone(tmp_path: Path, shard: Path) -> None:
    made = packed(tmp_path, shard).set
    store = LocalStore(tmp_path / "store")
    store.delete(made.key)
    assert packed(tmp_path, shard).set == made
    assert list(committed_sets(store)) == [made.key]


def test_foreign_files_in_the_store_are_left_alone(tmp_path: Path, shard: Path) -> None:
    store = tmp_path / "store"
    (store / "sets" / "corpus").mkdir(parents=True)
    (store / "packs").mkdir()
    foreign = [store / "README", store / "packs" / "notes.txt", store / "sets" / "corpus" / "x.json"]
    for path in foreign:
        path.write_bytes(b"mine")
    made = packed(tmp_path, shard).set
    assert all(path.read_bytes() == b"mine" for path in foreign)
    assert list(committed_sets(LocalStore(store))) == [made.key]
    assert temporaries(store) == []


def test_no_permission(shard: Path) -> None:
    """As a user who may not write the store."""
    if os.geteuid():
        pytest.skip("NOT TESTED: only root can become another user")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "source").mkdir()
        source = Path(shutil.copy(shard, folder / "source"))
        (folder / "store").mkdir()
        (folder / "staging").mkdir()
        (folder / "staging").chmod(0o777)
        told = folder / "staging" / "told"
        child = os.fork()
        if child == 0:
            try:
                os.setgid(65534)
                os.setuid(65534)
                packed(folder, source)
            except PackError as error:
                told.write_text(f"{type(error).__name__}: {error}")
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        assert re.match(rf"StoreTrouble: cannot write {folder}/store.*; give write permission", told.read_text())
        assert files_below(folder / "store") == {}
        source.chmod(0o600)
        child = os.fork()
        if child == 0:
            try:
                os.setgid(65534)
                os.setuid(65534)
                packed(folder, source)
            except PackError as error:
                told.write_text(f"{type(error).__name__}: {error}")
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        assert re.match(rf"BadInput: source {source} cannot be read: Permission denied", told.read_text())
