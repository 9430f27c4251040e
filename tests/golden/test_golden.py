"""Packs made once and kept: whatever becomes of this code, it reads them, to the same rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pack_lib.hydrate import hydrate_pack, hydrate_set
from pack_lib.pack.blob import FileBlob
from pack_lib.pack_set import committed_sets, pack_key, read_set
from pack_lib.profile import load_profile
from pack_lib.stores.local import LocalStore
from pack_lib.verify import verify_pack, verify_set
from tests.golden.digests import digests
from tests.golden.make import golden_shard
from tests.support import build

PROFILE = load_profile("corpus")
SETS = sorted(path.parent for path in (Path(__file__).parents[1] / "data" / "golden").glob("*/expected.json"))


@pytest.fixture(params=SETS, ids=lambda path: path.name)
def golden(request: pytest.FixtureRequest) -> Path:
    return Path(request.param)


@pytest.fixture
def expected(golden: Path) -> dict[str, Any]:
    return dict(json.loads((golden / "expected.json").read_text(encoding="utf-8")))


def test_every_layout_has_one() -> None:
    assert [path.name for path in SETS] == ["version-2-layout-2", "version-2-layout-3"]


def test_it_verifies(golden: Path, expected: dict[str, Any]) -> None:
    store = LocalStore(golden)
    (key,) = committed_sets(store)
    assert key == expected["set"]
    report = verify_set(store, read_set(store, key), PROFILE)
    assert report.complete
    assert report.findings == expected["findings"] != []


def test_it_hydrates_to_the_same_rows(golden: Path, expected: dict[str, Any], tmp_path: Path) -> None:
    store = LocalStore(golden)
    made = read_set(store, expected["set"])
    done = hydrate_set(store, made, tmp_path / "h.db", PROFILE)
    assert digests(tmp_path / "h.db", PROFILE) == expected["tables"]
    assert not done.conflicts and not done.without_body
    assert not hydrate_set(store, made, tmp_path / "h.db", PROFILE).changed


def test_its_packs_one_by_one_come_to_the_same(golden: Path, expected: dict[str, Any], tmp_path: Path) -> None:
    store = LocalStore(golden)
    for pack in read_set(store, expected["set"]).packs:
        path = golden / pack_key(pack.hash)
        assert verify_pack(FileBlob(path), PROFILE)[0] == pack.hash
        hydrate_pack(FileBlob(path), tmp_path / "h.db", PROFILE, pack_hash=pack.hash)
    assert digests(tmp_path / "h.db", PROFILE) == expected["tables"]


def test_it_holds_what_its_shard_held(golden: Path, expected: dict[str, Any], tmp_path: Path) -> None:
    """The shard it was made of, made again: so a case that is added to one is not forgotten in the other."""
    shard = golden_shard(tmp_path / "golden.db")
    assert digests(shard, PROFILE) == expected["tables"]
    layout = read_set(LocalStore(golden), expected["set"]).parameters.layout
    again = build(shard, tmp_path, layout=layout, corpus="golden", shard="golden")
    stated = read_set(LocalStore(golden), expected["set"])
    # What other releases of this code and of libzstd must not change; packs may be cut and compressed otherwise.
    assert again.set.snapshot_root == stated.snapshot_root
    assert again.set.bodies_root == stated.bodies_root
    assert again.set.tables == stated.tables
