"""``cold verify``: names every problem, goes on after each, and its exit code tells the worst."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.cli.cold import Run, cold, packs_of, packs_of_shard, refused


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def _sidecar(pack: Path) -> Path:
    return pack.with_name(pack.name.removesuffix(".tar.zst") + ".json")


def _problems(store: Path) -> tuple[int, list[dict[str, Any]], Run]:
    """Exit code and problems, which the text names in the same words."""
    found, words = cold("verify", store, "--json"), cold("verify", store)
    problems = found.document["problems"]
    assert words.code == found.code
    assert [line for line in words.out.splitlines() if line.startswith("problem: ")] == [
        f"problem: {problem['message']}" for problem in problems
    ]
    noun = "problem" if len(problems) == 1 else "problems"
    assert words.err == (f"cold: {store}: {len(problems)} {noun} found\n" if problems else "")
    return found.code, problems, words


def test_a_whole_store(store: Path) -> None:
    code, problems, words = _problems(store)
    assert (code, problems) == (0, [])
    assert words.out.splitlines()[-1] == f"2 sets, {len(packs_of(store))} packs: no problem found"
    document = cold("verify", store, "--json").document
    assert all(made["ok"] and made["rules_checked"] for made in document["sets"])


def test_everything_wrong_is_named_in_one_run(own_store: Path) -> None:
    first, second, *_ = packs_of_shard(own_store, "shard-0")
    gone, _, fine, *_ = packs_of_shard(own_store, "shard-1")
    _flip(first)
    second.write_bytes(second.read_bytes()[:-100])
    gone.unlink()
    _sidecar(fine).write_bytes(_sidecar(fine).read_bytes().replace(b"shard-1", b"shard-2"))
    code, problems, words = _problems(own_store)
    assert code == 5
    assert [(problem["kind"], problem["pack"]) for problem in problems] == [
        ("Damaged", first.name.split(".")[0]),
        ("Damaged", second.name.split(".")[0]),
        ("NotFound", gone.name.split(".")[0]),
        ("Damaged", fine.name.split(".")[0]),
    ]
    assert all(problem["set"] and str(own_store) in problem["message"] for problem in problems)
    assert "corpus/shard-1: " in words.out


def test_a_deleted_pack(own_store: Path) -> None:
    packs_of_shard(own_store, "shard-1")[1].unlink()
    code, problems, _ = _problems(own_store)
    assert code == 4
    assert [problem["kind"] for problem in problems] == ["NotFound"]
    assert [made["ok"] for made in cold("verify", own_store, "--json").document["sets"]] == [True, False]


@pytest.mark.parametrize("edit", ["changed", "deleted"])
def test_a_sidecar(own_store: Path, edit: str) -> None:
    sidecar = _sidecar(packs_of_shard(own_store, "shard-0")[0])
    if edit == "deleted":
        sidecar.unlink()
    else:
        sidecar.write_bytes(sidecar.read_bytes() + b" ")
    code, problems, _ = _problems(own_store)
    assert code == (4 if edit == "deleted" else 5)
    assert len(problems) == 1
    assert "the sidecar is" in problems[0]["message"]


def test_a_whole_pack_under_the_name_of_another(own_store: Path) -> None:
    first, second, *_ = packs_of_shard(own_store, "shard-0")
    first.write_bytes(second.read_bytes())
    code, problems, _ = _problems(own_store)
    assert code == 5
    assert "not to its name" in problems[0]["message"]


def test_set_manifest_and_catalog(own_store: Path) -> None:
    (manifest,) = (own_store / "sets").glob("*/shard-0/*/*.json")
    manifest.write_bytes(manifest.read_bytes() + b" ")
    (other,) = (own_store / "sets").glob("*/shard-1/*/*.json")
    other.unlink()
    code, problems, words = _problems(own_store)
    assert code == 5
    assert [problem["kind"] for problem in problems] == ["NotFound", "Damaged"]
    assert "catalog.json names set sets/corpus/shard-1/" in problems[0]["message"]
    assert "do not hash to its name" in problems[1]["message"]
    assert "in no committed set, not checked" in words.out
    (own_store / "catalog.json").write_bytes(b"{}")
    code, problems, _ = _problems(own_store)
    assert code == 5
    assert "catalog" in problems[0]["message"]


def test_a_corpus_that_contradicts_itself(corpus: Path, tmp_path: Path) -> None:
    source = shutil.copy(corpus / "shard-0.db", tmp_path / "odd.db")
    with closing(sqlite3.connect(source)) as db:
        db.execute("UPDATE merkle_nodes SET left_hash = right_hash WHERE rowid = 1")
        db.execute("UPDATE audit_events SET payload = '{}' WHERE seq = 2")
        db.commit()
    assert cold("pack", source, "--store", tmp_path / "s", "--staging", tmp_path / "staging").code == 0
    code, problems, _ = _problems(tmp_path / "s")
    assert code == 6
    assert [problem["kind"] for problem in problems] == ["Inconsistent", "Inconsistent"]
    assert "Merkle node" in problems[0]["message"]
    assert "audit event 2" in problems[1]["message"]
    (pack,) = packs_of(tmp_path / "s")
    run = cold("verify", pack)
    assert run.code == 6
    assert "problem: Merkle node" in run.out
    _flip(pack)
    assert _problems(tmp_path / "s")[0] == 5


def test_one_file(store: Path, corpus: Path, tmp_path: Path) -> None:
    first, second, *_ = packs_of_shard(store, "shard-0")
    run = cold("verify", second)
    assert (run.code, run.err) == (0, "")
    assert second.name.split(".")[0] in run.out
    assert "matches the pack hash" in run.out
    assert "number 2 of a set" in run.out
    assert "not checked: they need every pack of the set" in run.out
    renamed = shutil.copy(first, tmp_path / "disc-1.tar.zst")
    document = cold("verify", renamed, "--json").document
    assert (document["name_matches"], document["number"], document["whole_snapshot"]) == (False, 1, False)
    assert document["pack_hash"] == first.name.split(".")[0]
    assert document["problems"] == []
    wrong = Path(shutil.copy(first, tmp_path / second.name))
    run = cold("verify", wrong)
    assert run.code == 5
    assert "is the hash of another pack" in run.out
    _flip(wrong)
    assert str(wrong) in refused(5, "verify", wrong)
    assert cold("pack", corpus / "shard-0.db", "--store", tmp_path / "s", "--staging", tmp_path / "st").code == 0
    (whole,) = packs_of(tmp_path / "s")
    run = cold("verify", whole)
    assert "the whole snapshot" in run.out
    assert run.out.splitlines()[-1] == "no problem found"
    assert json.loads(cold("verify", whole, "--json").out)["rules_checked"] is True


def test_what_is_no_store_is_not_verified(tmp_path: Path) -> None:
    assert "no committed set" in refused(4, "verify", tmp_path)
    assert "does not exist" in refused(4, "verify", tmp_path / "none")
    (tmp_path / "text").write_text("no pack")
    assert "not a zstd file" in refused(5, "verify", tmp_path / "text")
