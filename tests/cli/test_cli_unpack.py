"""``cold unpack``: which set or pack it takes, and what it says became of the rows."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

from tests.cli.cold import cold, packs_of, packs_of_shard, refused


def _bodies(path: Path) -> set[tuple[str, str]]:
    with closing(sqlite3.connect(path)) as db:
        return set(db.execute("SELECT leaf_hash, content FROM chunks"))


def test_a_shard_by_name(store: Path, corpus: Path, tmp_path: Path) -> None:
    for number, name in enumerate(("shard-1", "corpus/shard-1")):
        target = tmp_path / f"{number}.db"
        run = cold("unpack", name, "--store", store, "--into", target)
        assert (run.code, run.err) == (0, "")
        assert "missing: nothing" in run.out
        assert "rebuilt: chunks_fts, documents_fts" in run.out
        assert _bodies(target) == _bodies(corpus / "shard-1.db")


def test_json_twice(store: Path, tmp_path: Path) -> None:
    arguments = ["unpack", "shard-0", "--store", store, "--into", tmp_path / "t.db", "--json"]
    first, second = cold(*arguments).document, cold(*arguments).document
    (entry,) = first["unpacked"]
    assert (first["complete"], entry["fresh"], entry["conflicts"]) == (True, True, [])
    assert entry["tables"]["chunks"]["inserted"] == entry["tables"]["chunks"]["rows"] > 0
    assert entry["filled"] == entry["tables"]["chunks"]["rows"]
    (entry,) = second["unpacked"]
    assert (entry["changed"], entry["fresh"], entry["filled"]) == (False, False, 0)
    assert all(fill["present"] == fill["rows"] for fill in entry["tables"].values())


def test_conflicts_are_named_and_kept(store: Path, corpus: Path, tmp_path: Path) -> None:
    target = Path(shutil.copy(corpus / "shard-0.db", tmp_path / "t.db"))
    with closing(sqlite3.connect(target)) as db:
        (root,) = db.execute("SELECT min(document_root) FROM documents").fetchone()
        db.execute("UPDATE documents SET title = 'mine' WHERE document_root = ?", (root,))
        db.execute("UPDATE chunks SET content = NULL WHERE rowid % 2")
        db.execute("DELETE FROM term_aliases")
        db.commit()
    run = cold("unpack", "shard-0", "--store", store, "--into", target)
    assert run.code == 0
    assert f'conflict: documents document_root="{root}"' in run.out
    assert "(existed)" in run.out
    assert _bodies(target) == _bodies(corpus / "shard-0.db")
    with closing(sqlite3.connect(target)) as db:
        assert db.execute("SELECT title FROM documents WHERE document_root = ?", (root,)).fetchone() == ("mine",)


def test_all_merges_every_shard(store: Path, corpus: Path, tmp_path: Path) -> None:
    run = cold("unpack", "--all", "--store", store, "--into", tmp_path / "t.db", "--json")
    assert [entry["shard"] for entry in run.document["unpacked"]] == ["shard-0", "shard-1"]
    assert _bodies(tmp_path / "t.db") == _bodies(corpus / "shard-0.db") | _bodies(corpus / "shard-1.db")


def test_one_pack_says_what_is_missing(store: Path, tmp_path: Path) -> None:
    first, *_, last = (path.name.split(".")[0] for path in packs_of_shard(store, "shard-1"))
    run = cold("unpack", first, "--store", store, "--into", tmp_path / "t.db")
    assert run.code == 0
    assert f"pack {first[:12]}, number 1 of its set" in run.out
    missing = next(line for line in run.out.splitlines() if "missing:" in line)
    assert "all or part of table chunks" in missing
    run = cold("unpack", last[:8], "--store", store, "--into", tmp_path / "u.db", "--json")
    (entry,) = run.document["unpacked"]
    assert entry["pack"]["hash"] == last
    assert "documents" in entry["tables_missing"]
    assert entry["bodies"] > 0
    # The packs of a set one by one are the set.
    for path in packs_of_shard(store, "shard-1"):
        run = cold("unpack", path.name.split(".")[0], "--store", store, "--into", tmp_path / "t.db", "--json")
    assert run.document["unpacked"][0]["without_body"] == 0


def test_what_cannot_be_chosen(store: Path, tmp_path: Path) -> None:
    into = ["--store", store, "--into", tmp_path / "t.db"]
    assert "2 shards; name one or give --all: corpus/shard-0, corpus/shard-1" in refused(3, "unpack", *into)
    assert "its shards are corpus/shard-0, corpus/shard-1" in refused(4, "unpack", "shard-9", *into)
    assert "at least 8 digits" in refused(4, "unpack", "abcdef0", *into)
    assert "no shard or pack 00000000" in refused(4, "unpack", "00000000", *into)
    assert "holds no pack" in refused(4, "unpack", "0" * 64, *into)
    assert cold("unpack", "shard-0", "--all", *into).code == 2
    assert not (tmp_path / "t.db").exists()


def test_a_prefix_of_two_packs_is_refused(own_store: Path, tmp_path: Path) -> None:
    pack = packs_of(own_store)[0]
    twin = pack.name[:10] + "0" * 54
    shutil.copy(pack, pack.with_name(f"{twin}.tar.zst"))
    into = ["--store", own_store, "--into", tmp_path / "t.db"]
    assert "2 packs begin with" in refused(3, "unpack", pack.name[:8], *into)
    assert f"not to {twin}" in refused(5, "unpack", twin, *into)
    assert not (tmp_path / "t.db").exists()


def test_a_whole_pack_of_another_snapshot_is_refused(corpus: Path, tmp_path: Path) -> None:
    """It has as many rows as the one whose name it bears, so nothing but its hash tells."""
    source = shutil.copy(corpus / "shard-0.db", tmp_path / "shard-0.db")
    options = ["--staging", tmp_path / "staging"]
    assert cold("pack", source, "--store", tmp_path / "a", *options).code == 0
    with closing(sqlite3.connect(source)) as db:
        db.execute("UPDATE documents SET title = 'other'")
        db.commit()
    assert cold("pack", source, "--store", tmp_path / "b", *options).code == 0
    shutil.copy(packs_of(tmp_path / "b")[0], packs_of(tmp_path / "a")[0])
    assert "not to its name" in refused(5, "unpack", "--store", tmp_path / "a", "--into", tmp_path / "t.db")
    assert not (tmp_path / "t.db").exists()


def test_a_name_in_two_corpora_is_refused(own_store: Path, corpus: Path, tmp_path: Path) -> None:
    options = ["--store", own_store, "--staging", tmp_path / "staging"]
    assert cold("pack", corpus / "shard-0.db", "--corpus", "more", *options).code == 0
    message = refused(3, "unpack", "shard-0", "--store", own_store, "--into", tmp_path / "t.db")
    assert "corpus/shard-0, more/shard-0" in message
    assert cold("unpack", "more/shard-0", "--store", own_store, "--into", tmp_path / "t.db").code == 0


def test_without_a_catalog_the_only_set_of_a_shard_is_its_newest(own_store: Path, corpus: Path, tmp_path: Path) -> None:
    (own_store / "catalog.json").unlink()
    into = ["--store", own_store, "--into", tmp_path / "t.db"]
    assert cold("unpack", "shard-0", *into).code == 0
    options = ["--store", own_store, "--staging", tmp_path / "staging", "--level", "1"]
    assert cold("pack", corpus / "shard-0.db", *options).code == 0
    (own_store / "catalog.json").unlink()
    assert "has 2 sets of shard corpus/shard-0 and no catalog" in refused(4, "unpack", "shard-0", *into)
    assert cold("unpack", "shard-1", "--store", own_store, "--into", tmp_path / "u.db").code == 0


def test_without_an_argument_the_only_shard_is_taken(corpus: Path, tmp_path: Path) -> None:
    options = ["--store", tmp_path / "s", "--staging", tmp_path / "staging"]
    assert cold("pack", corpus / "shard-0.db", *options).code == 0
    run = cold("unpack", "--store", tmp_path / "s", "--into", tmp_path / "t.db", "--json")
    assert run.document["unpacked"][0]["shard"] == "shard-0"


def test_a_profile_that_is_not_built_in_must_be_given(corpus: Path, tmp_path: Path) -> None:
    folder = Path(__file__).parents[2] / "pack_lib" / "profiles"
    text = (folder / "corpus.toml").read_text("utf-8").replace('name = "corpus"', 'name = "own"')
    (tmp_path / "own.toml").write_text(text)
    shutil.copy(folder / "corpus.sql", tmp_path)
    profile = ["--profile", tmp_path / "own.toml"]
    store = ["--store", tmp_path / "s"]
    assert cold("pack", corpus / "shard-0.db", *store, *profile, "--staging", tmp_path / "staging").code == 0
    message = refused(4, "unpack", *store, "--into", tmp_path / "t.db")
    assert "profile 'own', which the packs name, is not built in; give its file with --profile" in message
    assert cold("unpack", *store, "--into", tmp_path / "t.db", *profile).code == 0
    run = cold("verify", tmp_path / "s")
    assert run.code == 0
    assert "corpus rules not checked: profile 'own' is not built in" in run.out
    assert cold("verify", tmp_path / "s", *profile, "--json").document["sets"][0]["rules_checked"] is True
    (pack,) = packs_of(tmp_path / "s")
    assert "profile 'own' is neither given (--profile) nor built in" in cold("verify", pack).out
