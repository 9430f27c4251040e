"""``cold list`` and ``cold stats``: what they tell, and that they read no pack to tell it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from pack_lib.cli.list import list_packs, read_sidecars
from pack_lib.cli.sets import readable_sets
from pack_lib.cli.stats import gather
from pack_lib.stores import LocalStore
from tests.cli.cold import BODIES, cold, packs_of, packs_of_shard


class CountingStore(LocalStore):
    """Notes every request."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.requests: list[tuple[str, str]] = []

    def get(self, key: str, limit: int = 1 << 30) -> bytes:
        self.requests.append(("get", key))
        return super().get(key, limit)

    def get_range(self, key: str, offset: int, length: int) -> bytes:
        self.requests.append(("get_range", key))
        return super().get_range(key, offset, length)

    def object_sha256(self, key: str) -> str | None:
        self.requests.append(("object_sha256", key))
        return super().object_sha256(key)

    def object_size(self, key: str) -> int | None:
        self.requests.append(("object_size", key))
        return super().object_size(key)

    def list(self, prefix: str) -> Iterator[str]:
        self.requests.append(("list", prefix))
        return super().list(prefix)

    def of(self, kind: str) -> set[str]:
        return {key for found, key in self.requests if found == kind}


def test_no_pack_is_read(store: Path) -> None:
    packs = {f"packs/{path.name}" for path in packs_of(store)}
    counting = CountingStore(store)
    listed = list_packs(counting)
    assert counting.requests[0] == ("list", "packs/")
    assert sorted(counting.requests[1:]) == sorted(("object_size", key) for key in packs)
    read_sidecars(counting, listed, readable_sets(counting)[0])
    gather(counting)
    assert not counting.of("get_range") | counting.of("object_sha256")
    assert not counting.of("get") & packs
    assert {key for key in counting.of("get") if key.startswith("packs/")} == {
        key.removesuffix(".tar.zst") + ".json" for key in packs
    }


def test_list(store: Path) -> None:
    run = cold("list", store)
    assert (run.code, run.err) == (0, "")
    head, *lines, total = run.out.splitlines()
    assert head.split() == ["pack", "bytes", "chunks", "shard", "number", "set"]
    paths = packs_of(store)
    assert [line.split()[:2] for line in lines] == [
        [path.name.split(".")[0], f"{path.stat().st_size:,}"] for path in paths
    ]
    assert total == f"{len(paths)} packs, {sum(path.stat().st_size for path in paths):,} bytes"
    assert len({line.index("corpus/") for line in lines}) == 1


def test_list_json(store: Path, corpus: Path) -> None:
    document = cold("list", store, "--json").document
    assert (document["missing"], document["problems"]) == ([], [])
    for shard in ("shard-0", "shard-1"):
        own = sorted((pack for pack in document["packs"] if pack["shard"] == shard), key=lambda pack: pack["number"])
        assert [pack["hash"] for pack in own] == [path.name.split(".")[0] for path in packs_of_shard(store, shard)]
        assert len({tuple(pack["sets"]) for pack in own}) == 1
        with closing(sqlite3.connect(corpus / f"{shard}.db")) as db:
            chunks = db.execute(BODIES).fetchone()[0]
        assert sum(pack["chunks"] for pack in own) == chunks


def test_list_without_manifests_reads_none(own_store: Path) -> None:
    for path in [*(own_store / "packs").glob("*.json"), *(own_store / "sets").rglob("*.json")]:
        path.write_bytes(b"no manifest at all")
    document = cold("list", own_store, "--no-manifest", "--json").document
    assert [set(pack) for pack in document["packs"]] == [{"hash", "size"}] * len(packs_of(own_store))
    run = cold("list", own_store, "--no-manifest")
    assert run.out.splitlines()[0].split() == ["pack", "bytes"]
    run = cold("list", own_store)
    assert run.code == 0
    assert "sidecar damaged" in run.out
    assert "problem: " in run.out


@pytest.fixture
def odd_store(own_store: Path) -> Path:
    """Shard 1's set is not committed, shard 0 lacks a pack, and one sidecar is gone."""
    (manifest,) = (own_store / "sets").glob("*/shard-1/*/*.json")
    manifest.unlink()
    first, second, *_ = packs_of_shard(own_store, "shard-0")
    first.unlink()
    second.with_name(second.name.removesuffix(".tar.zst") + ".json").unlink()
    return own_store


def test_list_marks_what_is_odd(odd_store: Path) -> None:
    run = cold("list", odd_store)
    assert run.code == 0
    lone = [line for line in run.out.splitlines() if "in no set" in line]
    assert lone
    assert all("corpus/shard-1" in line for line in lone)
    assert f"{len(lone)} packs in no committed set" in run.out
    assert "sidecar missing" in run.out
    assert "missing: pack " in run.out


def test_stats(store: Path) -> None:
    document = cold("stats", store, "--json").document
    files = [path for path in store.rglob("*") if path.is_file() and not path.name.startswith(".")]
    packs = packs_of(store)
    assert document["store_bytes"] == sum(path.stat().st_size for path in files)
    assert document["pack_bytes"] == sum(path.stat().st_size for path in packs)
    assert document["other_bytes"] == document["store_bytes"] - document["pack_bytes"]
    assert [document[name] for name in ("corpora", "shards", "sets", "packs")] == [1, 2, 2, len(packs)]
    assert [document[name] for name in ("packs_in_no_set", "bytes_in_no_set", "packs_missing")] == [0, 0, 0]
    catalog = {entry["shard"]: entry for entry in json.loads((store / "catalog.json").read_bytes())["sets"]}
    for shard in document["latest"]:
        entry = catalog[shard["shard"]]
        assert [shard[name] for name in ("set_hash", "committed_at", "packs", "chunks")] == [
            entry[name] for name in ("set_hash", "committed_at", "packs", "chunks")
        ]
    assert document["chunks"] == sum(shard["chunks"] for shard in document["latest"])
    run = cold("stats", store)
    assert (run.code, run.err) == (0, "")
    assert f"{document['body_bytes']:,}" in run.out
    assert all(shard["committed_at"] in run.out for shard in document["latest"])


def test_stats_of_an_odd_store(odd_store: Path) -> None:
    document = cold("stats", odd_store, "--json").document
    assert document["packs_in_no_set"] > 1
    assert document["packs_missing"] == 1
    (odd_store / "catalog.json").unlink()
    run = cold("stats", odd_store)
    assert run.code == 0
    assert "not known" in run.out


def test_an_empty_store(tmp_path: Path) -> None:
    assert cold("list", tmp_path).out == "0 packs, 0 bytes\n"
    assert cold("stats", tmp_path, "--json").document["latest"] == []
