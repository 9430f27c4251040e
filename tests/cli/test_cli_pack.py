"""``cold pack``: what it prints, what it refuses before it begins, what it leaves when it ends early."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from pack_lib.cli.pack import command
from pack_lib.errors import BadInput
from pack_lib.pack.format import BD_CAP, DEFAULT_CAP, DEFAULT_LEVEL
from pack_lib.pack.parameters import parse_cap
from tests.cli.cold import BODIES, Run, cold, packs_of, packs_of_shard, refused


def test_it_says_what_it_did_for_each_shard(first_pack_run: tuple[Run, Path], corpus: Path) -> None:
    run, store = first_pack_run
    blocks = run.out.rstrip("\n").split("\n\n")
    assert [block.split()[0] for block in blocks] == ["corpus/shard-0", "corpus/shard-1"]
    for block, shard in zip(blocks, ("shard-0", "shard-1"), strict=True):
        with closing(sqlite3.connect(corpus / f"{shard}.db")) as db:
            chunks = db.execute(BODIES).fetchone()[0]
            edges = db.execute("SELECT count(*) FROM edges").fetchone()[0]
        lines = {line.split()[0]: line.split() for line in block.splitlines()[1:]}
        assert lines["chunks"][1] == f"{chunks:,}"
        assert lines["edges"][1:3] == [f"{edges:,}", "->"]
        assert "ratio" in block
        assert "snapshot root" in block
        packs = packs_of_shard(store, shard)
        assert len(packs) > 1
        shown = [
            line.split() for line in block.splitlines() if line.startswith("  pack ") and line.split()[1] != "bytes"
        ]
        assert [(line[2], line[3]) for line in shown] == [
            (path.name.split(".")[0], f"{path.stat().st_size:,}") for path in packs
        ]
    assert run.err == ""


def test_numbers_stand_under_each_other(first_pack_run: tuple[Run, Path]) -> None:
    block = first_pack_run[0].out.split("\n\n")[0].splitlines()
    source, packs = (next(line for line in block if line.startswith(f"  {name} bytes")) for name in ("source", "pack"))
    assert len(source.rstrip()) == packs.index("ratio") - 2


def test_a_second_time_is_up_to_date_and_json_has_the_same(corpus: Path, store: Path, tmp_path: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in store.rglob("*") if path.is_file()}
    options = ["--store", store, "--cap", "100000", "--staging", tmp_path / "staging", "--json"]
    run = cold("pack", corpus / "shard-0.db", corpus / "shard-1.db", *options)
    assert (run.code, run.err) == (0, "")
    document = run.document
    assert document["complete"] is True
    assert [entry["up_to_date"] for entry in document["shards"]] == [True, True]
    for entry in document["shards"]:
        manifest = json.loads(
            (store / "sets/corpus" / entry["shard"] / entry["snapshot_root"] / f"{entry['set_hash']}.json").read_bytes()
        )
        assert entry["packs"] == manifest["packs"]
        assert entry["tables"] == manifest["tables"]
        assert entry["pack_bytes"] == sum(pack["size"] for pack in manifest["packs"])
        assert entry["source_bytes"] == Path(entry["source"]).stat().st_size
        assert (entry["packs_sent"], entry["bytes_sent"]) == (0, 0)
    assert {path: path.stat().st_mtime_ns for path in store.rglob("*") if path.is_file()} == before
    words = cold("pack", corpus / "shard-0.db", *options[:-1])
    assert words.out.startswith("corpus/shard-0  up to date")
    assert not [path for path in (tmp_path / "staging").rglob("*") if path.is_file() and path.name != "lock"]


def test_names_options_and_several_packs(corpus: Path, tmp_path: Path) -> None:
    source = shutil.copy(corpus / "shard-0.db", tmp_path / "other.name.db")
    with closing(sqlite3.connect(source)) as db:
        db.execute("CREATE TABLE scratch_pad(x)")
    arguments = [
        "pack",
        source,
        "--store",
        tmp_path / "s",
        "--staging",
        tmp_path / "staging",
        "--corpus",
        "c2",
        "--json",
    ]
    assert "scratch_pad" in refused_json(3, *arguments)
    run = cold(
        *arguments, "--leave-behind", "scratch_*", "--immutable", "--level", "1", "--workers", "1", "--cap", "none"
    )
    (entry,) = run.document["shards"]
    assert (entry["corpus"], entry["shard"], len(entry["packs"])) == ("c2", "other.name", 1)
    run = cold(*arguments, "--leave-behind", "scratch_*", "--shard", "mine")
    assert run.document["shards"][0]["shard"] == "mine"
    assert packs_of(tmp_path / "s")


def refused_json(code: int, *arguments: object) -> str:
    run = cold(*arguments)
    assert run.code == code
    assert run.document["complete"] is False
    return run.err


def test_two_sources_of_one_shard_are_refused_before_anything_is_done(corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    other = shutil.copy(corpus / "shard-1.db", tmp_path / "b" / "shard-0.sqlite")
    message = refused(3, "pack", corpus / "shard-0.db", other, "--store", tmp_path / "s", "--staging", tmp_path / "st")
    assert str(corpus / "shard-0.db") in message
    assert str(other) in message
    assert not (tmp_path / "s").exists()
    assert not (tmp_path / "st").exists()


def test_a_later_source_that_is_missing_is_refused_before_anything_is_done(corpus: Path, tmp_path: Path) -> None:
    message = refused(3, "pack", corpus / "shard-0.db", tmp_path / "gone.db", "--store", tmp_path / "s")
    assert f"{tmp_path / 'gone.db'} does not exist" in message
    assert not (tmp_path / "s").exists()


def test_what_was_done_before_a_failure_is_reported(corpus: Path, tmp_path: Path) -> None:
    bad = shutil.copy(corpus / "shard-1.db", tmp_path / "bad.db")
    with closing(sqlite3.connect(bad)) as db:
        db.execute("UPDATE chunks SET content = 'other' WHERE rowid = 1")
        db.commit()
    run = cold("pack", corpus / "shard-0.db", bad, "--store", tmp_path / "s", "--staging", tmp_path / "st", "--json")
    assert run.code == 3
    assert "does not match it" in run.err
    assert run.document["complete"] is False
    assert [entry["shard"] for entry in run.document["shards"]] == ["shard-0"]
    listed = cold("list", tmp_path / "s", "--json").document
    assert {pack["shard"] for pack in listed["packs"] if pack["sets"]} == {"shard-0"}


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("dvd", DEFAULT_CAP),
        ("bd", BD_CAP),
        ("none", None),
        ("4096", 4096),
        ("1.5kB", 1500),
        ("650MB", 650_000_000),
        ("25 GB", 25_000_000_000),
        ("4KiB", 4096),
        ("2MiB", 2 << 20),
        ("4.7GB", 4_700_000_000),
        ("4GiB", 4 << 30),
    ],
)
def test_caps(text: str, size: int | None) -> None:
    assert parse_cap(text) == size


@pytest.mark.parametrize("text", ["", "0", "-1", "1.5", "1e9", "4 gb", "DVD", "0.0001kB", "4GB2"])
def test_caps_that_are_none(text: str) -> None:
    with pytest.raises(BadInput, match="is no number of bytes"):
        parse_cap(text)


def test_help_states_the_caps_and_the_level_as_they_are() -> None:
    described = {option.name: option for option in command.params}
    text = str(getattr(described["cap"], "help", ""))
    assert f"dvd is {DEFAULT_CAP:,}" in text
    assert f"bd {BD_CAP:,}" in text
    assert described["level"].default == DEFAULT_LEVEL
