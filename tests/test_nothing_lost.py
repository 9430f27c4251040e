"""Ways in which data was once lost, altered or left out without a word, each found by trying to break this."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from pack_lib.build import Job, ShardBuild
from pack_lib.catalog import KEY, latest_sets, read_catalog
from pack_lib.errors import BadInput, Damaged, NotFound
from pack_lib.hydrate import hydrate_set
from pack_lib.pack.parameters import parameters_for
from pack_lib.pack_set import pack_key, read_set, sidecar_key
from pack_lib.profile import load_profile, parse_profile
from pack_lib.repack import repack
from pack_lib.sources import open_source
from pack_lib.stores import LocalStore
from pack_lib.verify import verify_set
from tests.support import contents, leaf, make_shard

PROFILE = load_profile()


def changed(path: Path, *statements: str) -> Path:
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        for statement in statements:
            db.execute(statement)
    return path


@pytest.fixture(autouse=True)
def each_layout(layout: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """`repack` in it."""
    monkeypatch.setattr(f"{__name__}.repack", partial(repack, layout=layout))


@pytest.fixture
def shard(tmp_path: Path) -> Path:
    return make_shard(tmp_path / "shard.db", 12, edges=40)


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "store")


def test_a_source_in_the_staging_folder_is_left_alone(tmp_path: Path, shard: Path, store: LocalStore) -> None:
    place = tmp_path / "data" / "corpus" / "shard"
    place.mkdir(parents=True)
    source = Path(shutil.copy(shard, place / "shard.db"))
    before = source.read_bytes()
    with pytest.raises(BadInput, match="choose another --staging"):
        repack(str(source), store, staging=tmp_path / "data")
    assert source.read_bytes() == before and [path.name for path in place.iterdir()] == ["shard.db"]


def test_a_store_in_the_staging_folder_is_left_alone(tmp_path: Path, shard: Path) -> None:
    inside = LocalStore(tmp_path / "data" / "corpus" / "shard")
    repack(str(shard), inside, staging=tmp_path / "elsewhere")
    held = sorted(path for path in inside.folder.rglob("*") if path.is_file())
    for deeper in (inside, LocalStore(inside.folder / "deeper")):
        with pytest.raises(BadInput, match="choose another --staging"):
            repack(str(changed(shard, "DELETE FROM snapshots")), deeper, staging=tmp_path / "data")
    assert sorted(path for path in inside.folder.rglob("*") if path.is_file()) == held


def test_a_strangers_folder_is_not_cleared(tmp_path: Path, shard: Path, store: LocalStore) -> None:
    place = tmp_path / "staging" / "corpus" / "shard"
    place.mkdir(parents=True)
    (place / "mine.txt").write_text("the only copy")
    with pytest.raises(BadInput, match=r"it holds 'mine\.txt'"):
        repack(str(shard), store, staging=tmp_path / "staging")
    assert (place / "mine.txt").read_text() == "the only copy"


def test_a_wal_behind_a_link_counts(tmp_path: Path, shard: Path, store: LocalStore) -> None:
    """SQLite keeps the -wal beside the file, not beside a link to it."""
    link = tmp_path / "links" / "shard.db"
    link.parent.mkdir()
    link.symlink_to(shard)
    with closing(sqlite3.connect(shard, isolation_level=None)) as writer:
        writer.execute("PRAGMA journal_mode=WAL")
        writer.execute("PRAGMA wal_autocheckpoint=0")
        writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        before = open_source(str(link)).change_token()
        writer.execute("INSERT INTO term_aliases VALUES ('committed', 'just now')")
        assert open_source(str(link)).change_token() != before
        made = repack(str(link), store, staging=tmp_path / "staging").set
        with pytest.raises(BadInput, match="declared immutable"):
            repack(str(link), store, staging=tmp_path / "staging", immutable=True)
    hydrate_set(store, made, tmp_path / "target.db", PROFILE)
    with closing(sqlite3.connect(tmp_path / "target.db")) as db:
        assert db.execute("SELECT term FROM term_aliases WHERE alias = 'committed'").fetchall() == [("just now",)]


@pytest.mark.parametrize(
    ("table", "column"), [("derivations", "derived_root"), ("chunks", "leaf_hash"), ("term_aliases", "alias")]
)
def test_an_index_that_lacks_rows_is_found(
    tmp_path: Path, shard: Path, store: LocalStore, table: str, column: str
) -> None:
    """Rows are read in an index's order: one that lacks some would leave them out of the pack."""
    changed(
        shard,
        f"DELETE FROM {table} WHERE rowid % 7 = 0",
        "DROP INDEX chunks_leaf_hash",
        f"CREATE INDEX part ON {table}({column}) WHERE rowid % 2",
        "PRAGMA writable_schema=ON",
        f"UPDATE sqlite_master SET sql = 'CREATE INDEX part ON {table}({column})' WHERE name = 'part'",
    )
    with pytest.raises(BadInput, match=r"is damaged: .*index part"):
        repack(str(shard), store, staging=tmp_path / "staging")
    assert not list(store.list(""))


def test_files_that_differ_after_a_point_are_two_shards(tmp_path: Path, shard: Path, store: LocalStore) -> None:
    for name in ("wiki.2024-01.db", "wiki.2024-02.db"):
        repack(str(shutil.copy(shard, tmp_path / name)), store, staging=tmp_path / "staging")
    assert [entry.shard for entry in latest_sets(store)] == ["wiki.2024-01", "wiki.2024-02"]


@pytest.mark.parametrize(
    ("table", "columns", "row"),
    [
        ("term_aliases", "alias, term", "1, 'one'"),
        ("concept_relations", "concept, relation, other, weight", "'a', 'b', 'c', 9007199254740993"),
        ("concept_relations", "concept, relation, other, weight", "'a', 'b', 'c', '0012'"),
        ("snapshots", "seq, snapshot_root, n_documents, n_chunks, at", "NULL, 'x', 1, 1, 'y'"),
        ("snapshots", "seq, snapshot_root, n_documents, n_chunks, at", "9, 'x', '007', 1, 'y'"),
    ],
)
@pytest.mark.parametrize("fresh", [True, False])
def test_a_cell_that_the_target_would_alter_is_refused(
    tmp_path: Path, shard: Path, store: LocalStore, table: str, columns: str, row: str, fresh: bool
) -> None:
    """The source has no declared types, the target has: what SQLite would convert is named, not converted."""
    target = tmp_path / "target.db"
    if not fresh:
        shutil.copy(shard, target)
    changed(shard, f"DROP TABLE {table}", f"CREATE TABLE {table}({columns})", f"INSERT INTO {table} VALUES ({row})")
    made = repack(str(shard), store, staging=tmp_path / "staging").set
    with pytest.raises(BadInput, match=rf"column {table}\.\w+ would not keep"):
        hydrate_set(store, made, target, PROFILE)
    assert target.exists() != fresh


def test_a_catalog_made_anew_does_not_guess_the_newest_set(tmp_path: Path, shard: Path, store: LocalStore) -> None:
    for number in range(3):
        repack(str(changed(shard, f"INSERT INTO term_aliases VALUES ('v', '{number}')")), store, staging=tmp_path / "s")
    store.delete(KEY)
    repack(str(shutil.copy(shard, tmp_path / "other.db")), store, staging=tmp_path / "s")
    assert [entry.shard for entry in latest_sets(store)] == ["other"]
    assert len([entry for entry in read_catalog(store) if entry.shard == "shard"]) == 3
    repack(str(shard), store, staging=tmp_path / "s")
    newest = {entry.shard: entry.snapshot_root for entry in latest_sets(store)}
    assert newest["shard"] == newest["other"]


def test_the_set_pinned_later_is_the_newer_whichever_is_committed_last(
    tmp_path: Path, shard: Path, store: LocalStore
) -> None:
    def build(staging: str) -> ShardBuild:
        source = open_source(str(shard))
        job = Job("corpus", "shard", source, PROFILE, parameters_for(), tmp_path / staging, workers=1)
        return ShardBuild(job, "run")

    slow = build("slow")
    with slow.held():
        slow.pin()
        slow.select()
        slow.stage_tables(fanned_in=False)
        slow.stage_tables(fanned_in=True)
        later = repack(str(changed(shard, "DELETE FROM term_aliases")), store, staging=tmp_path / "fast").set
        slow.build_packs()
        slow.commit(store, [item.pack for item in slow.upload_staged(store)])
    assert [entry.set_hash for entry in latest_sets(store)] == [later.set_hash]
    assert len(read_catalog(store)) == 2


def test_triggers_of_the_target_do_not_hide_what_was_refused(tmp_path: Path, shard: Path, store: LocalStore) -> None:
    made = repack(str(shard), store, staging=tmp_path / "staging").set
    target = Path(shutil.copy(shard, tmp_path / "target.db"))
    changed(
        target,
        "DELETE FROM chunks WHERE rowid % 2",
        "UPDATE chunks SET leaf_hash = substr(leaf_hash, 3) || 'ff' WHERE rowid % 4 = 0",
        "CREATE TABLE meta(x)",
        "CREATE TRIGGER also AFTER INSERT ON chunks BEGIN INSERT INTO meta VALUES (1); END",
        "DELETE FROM term_aliases",
        "CREATE TRIGGER none BEFORE INSERT ON term_aliases BEGIN SELECT RAISE(IGNORE); END",
    )
    with closing(sqlite3.connect(target)) as db:
        count = db.execute("SELECT count(*) FROM chunks").fetchone()[0]
        lost = "SELECT count(*) FROM chunks WHERE leaf_hash LIKE '%ff' AND document_root NOT NULL"
        other = db.execute(lost).fetchone()[0]
    report = hydrate_set(store, made, target, PROFILE)
    with closing(sqlite3.connect(target)) as db:
        assert report.tables["chunks"].inserted == db.execute("SELECT count(*) FROM chunks").fetchone()[0] - count
    assert report.tables["chunks"].conflicts == other
    kept_out = report.tables["term_aliases"]
    assert (kept_out.inserted, kept_out.conflicts) == (0, kept_out.rows) and kept_out.rows


def test_repeated_rows_under_a_key_of_some_columns_are_counted(tmp_path: Path, store: LocalStore) -> None:
    ship = tuple(
        replace(table, merge_key=("concept",)) if table.name == "concept_relations" else table for table in PROFILE.ship
    )
    profile = replace(PROFILE, ship=ship)
    shard = make_shard(tmp_path / "shard.db", 3)
    changed(shard, *["INSERT INTO concept_relations VALUES ('x', 'r', 'o', 0.5)"] * 3)
    made = repack(str(shard), store, staging=tmp_path / "staging", profile=profile).set
    target = changed(
        Path(shutil.copy(shard, tmp_path / "target.db")),
        "DELETE FROM concept_relations WHERE concept = 'x' AND rowid <> (SELECT max(rowid) FROM concept_relations)",
    )
    assert hydrate_set(store, made, target, profile).tables["concept_relations"].inserted == 2
    with closing(sqlite3.connect(target)) as db:
        assert db.execute("SELECT count(*) FROM concept_relations WHERE concept = 'x'").fetchone() == (3,)


def test_up_to_date_means_that_the_store_still_holds_it(tmp_path: Path, shard: Path, store: LocalStore) -> None:
    made = repack(str(shard), store, staging=tmp_path / "staging").set
    store.delete(sidecar_key(made.packs[0].hash))
    assert not repack(str(shard), store, staging=tmp_path / "staging").up_to_date
    assert store.object_size(sidecar_key(made.packs[0].hash))
    assert repack(str(shard), store, staging=tmp_path / "staging").up_to_date
    path = store.folder / pack_key(made.packs[0].hash)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(Damaged, match="delete it there, then run again"):
        repack(str(shard), store, staging=tmp_path / "staging")
    path.unlink()
    repack(str(shard), store, staging=tmp_path / "staging")
    assert verify_set(store, read_set(store, made.key), PROFILE).complete


def test_a_full_text_table_with_a_text_of_its_own_is_refused(tmp_path: Path, shard: Path, store: LocalStore) -> None:
    changed(shard, "DROP TABLE documents_fts", "CREATE VIRTUAL TABLE documents_fts USING fts5(title)")
    with pytest.raises(BadInput, match="a text of its own, which a rebuild would lose: documents_fts"):
        repack(str(shard), store, staging=tmp_path / "staging")


def own_profile(schema: str, ship: str) -> str:
    return f"""name = "own"\nschema = "own.sql"\n{schema}\n[bodies]\ntable = "c"\nhash = "h"\ncontent = "b"\n{ship}"""


@pytest.mark.parametrize(
    ("columns", "told"), [("h, b NOT NULL", "may be NULL"), ("h", "may be NULL"), ("b", r"no column c\.h")]
)
def test_a_schema_that_could_not_be_filled_is_refused(columns: str, told: str) -> None:
    text = own_profile("", '[[ship]]\ntable = "c"\ncolumns = ["h"]\nmerge_key = ["h"]\n')
    with pytest.raises(BadInput, match=told):
        parse_profile(text, "own", {"own.sql": f"CREATE TABLE c({columns});"})


def test_a_rule_over_rows_in_another_order_is_refused() -> None:
    text = (
        'name = "own"\nrules = ["document_roots"]\n'
        '[bodies]\ntable = "chunks"\nhash = "leaf_hash"\ncontent = "content"\n'
        '[[ship]]\ntable = "chunks"\ncolumns = ["document_root", "ordinal", "leaf_hash"]\nmerge_key = ["leaf_hash"]\n'
    )
    with pytest.raises(BadInput, match="rule document_roots needs the merge key of chunks to begin with document_root"):
        parse_profile(text, "own")


def test_a_table_named_like_a_shadow_is_made(tmp_path: Path, shard: Path, store: LocalStore) -> None:
    profile = replace(
        PROFILE,
        schema=(PROFILE.schema or "") + "CREATE TABLE documents_fts_notes(note TEXT);",
        ship=(
            *PROFILE.ship,
            replace(PROFILE.ship[-1], name="documents_fts_notes", columns=("note",), merge_key=("note",)),
        ),
    )
    changed(shard, "CREATE TABLE documents_fts_notes(note TEXT)", "INSERT INTO documents_fts_notes VALUES ('kept')")
    made = repack(str(shard), store, staging=tmp_path / "staging", profile=profile).set
    assert hydrate_set(store, made, tmp_path / "t.db", profile).tables["documents_fts_notes"].inserted == 1


def test_the_usual_full_text_trigger_of_a_target_works(tmp_path: Path, shard: Path, store: LocalStore) -> None:
    made = repack(str(shard), store, staging=tmp_path / "staging").set
    target = changed(
        Path(shutil.copy(shard, tmp_path / "target.db")),
        "DELETE FROM chunks WHERE rowid % 2",
        "CREATE TRIGGER ai AFTER INSERT ON chunks BEGIN "
        "INSERT INTO chunks_fts(rowid, content) VALUES (new.rowid, new.content); END",
    )
    assert hydrate_set(store, made, target, PROFILE).without_body == 0


def test_a_target_behind_a_link_is_made_where_it_points(tmp_path: Path, shard: Path, store: LocalStore) -> None:
    made = repack(str(shard), store, staging=tmp_path / "staging").set
    link = tmp_path / "link.db"
    (tmp_path / "far").mkdir()
    link.symlink_to(tmp_path / "far" / "real.db")
    hydrate_set(store, made, link, PROFILE)
    assert link.is_symlink() and (tmp_path / "far" / "real.db").is_file()


def test_large_cells_take_time_in_proportion(tmp_path: Path, store: LocalStore) -> None:
    """A cell of many blocks: gathering it once was quadratic, and 50 MB took minutes."""
    shard = make_shard(tmp_path / "shard.db", 2)
    with closing(sqlite3.connect(shard, isolation_level=None)) as db:
        db.execute("INSERT INTO term_aliases VALUES ('large', zeroblob(50000000))")
    made = repack(str(shard), store, staging=tmp_path / "staging").set
    target = tmp_path / "target.db"
    hydrate_set(store, made, target, PROFILE)
    with closing(sqlite3.connect(target)) as db:
        found = db.execute("SELECT length(term), typeof(term) FROM term_aliases WHERE alias = 'large'").fetchall()
    assert found == [(50_000_000, "blob")]


def test_names_and_files_of_strangers_do_not_stop_a_store(tmp_path: Path, shard: Path, store: LocalStore) -> None:
    repack(str(shutil.copy(shard, tmp_path.joinpath("odd %?#é.db"))), store, shard="odd", staging=tmp_path / "staging")
    (store.folder / "packs" / "a\\b").touch()
    (store.folder / "lost+found").mkdir(mode=0)
    assert all("\\" not in key for key in store.list(""))
    with pytest.raises(NotFound):
        store.get("packs/absent")


def test_every_legal_cell_of_the_schema_comes_back(tmp_path: Path, shard: Path, store: LocalStore) -> None:
    """What SQLite keeps under the schema's own types is not taken for altered; NULL in a key of two columns neither."""
    changed(
        shard,
        f"INSERT INTO chunks VALUES ('lone', NULL, '{leaf(b'body')}', 4, 'body')",
        "INSERT INTO concept_relations VALUES ('a', x'00', '12x', 9e999), ('a', 'b', 'c', 2), ('a', 'b', 'c', 'x')",
        "INSERT INTO concept_relations VALUES ('a', 'b', 'c', 0.0), ('a', 'b', 'c', -9e999), ('a', 'b', 'c', 1e300)",
        "INSERT INTO documents(document_root, n_chunks) VALUES ('odd', 1.5), ('odd2', '12x'), ('odd3', x'ff')",
    )
    made = repack(str(shard), store, staging=tmp_path / "staging").set
    hydrate_set(store, made, tmp_path / "target.db", PROFILE)
    assert contents(tmp_path / "target.db") == contents(shard)


@pytest.mark.parametrize("index", ["audit_events(json_extract(payload, '$.a'))", "documents(own(title))"])
def test_an_index_on_an_expression_is_no_damage(tmp_path: Path, shard: Path, store: LocalStore, index: str) -> None:
    with closing(sqlite3.connect(shard, isolation_level=None)) as db:
        db.create_function("own", 1, str, deterministic=True)
        db.execute("UPDATE audit_events SET payload = '{}'")
        db.execute(f"CREATE INDEX e ON {index}")
    assert repack(str(shard), store, staging=tmp_path / "staging").packs_sent == 1


@pytest.mark.parametrize("cut", [0, 10])
@pytest.mark.parametrize("left", [(), ("run.json", "tables")])
def test_a_lock_cut_short_is_still_ours(
    tmp_path: Path, shard: Path, store: LocalStore, cut: int, left: tuple[str, ...]
) -> None:
    repack(str(shard), store, staging=tmp_path / "staging")
    folder = tmp_path / "staging" / "corpus" / "shard"
    marker = (folder / "lock").read_bytes()
    (folder / "lock").write_bytes(marker[:cut])
    for name in left:
        (folder / name).mkdir() if name == "tables" else (folder / name).write_text('{"run": "killed"}')
    assert repack(str(shard), store, staging=tmp_path / "staging").up_to_date
    assert (folder / "lock").read_bytes() == marker


def edited(store: LocalStore, **times: str) -> None:
    value = json.loads(store.get(KEY))
    value["sets"] = [{**entry, **times} for entry in value["sets"]]
    (store.folder / KEY).write_text(json.dumps(value))


def test_clocks_that_were_wrong_hide_no_set(tmp_path: Path, shard: Path, store: LocalStore) -> None:
    repack(str(shard), store, staging=tmp_path / "s")
    edited(store, pinned_at="2130-01-01T00:00:00+00:00", committed_at="2130-01-01T00:00:00+00:00")
    later = repack(str(changed(shard, "DELETE FROM term_aliases")), store, staging=tmp_path / "s").set
    assert [entry.set_hash for entry in latest_sets(store)] == [later.set_hash]


def test_commit_times_order_sets_without_pin_times(tmp_path: Path, shard: Path, store: LocalStore) -> None:
    repack(str(shard), store, staging=tmp_path / "s")
    later = repack(str(changed(shard, "DELETE FROM term_aliases")), store, staging=tmp_path / "s").set
    edited(store, pinned_at="")
    assert [entry.set_hash for entry in latest_sets(store)] == [later.set_hash]
    edited(store, committed_at="")
    assert latest_sets(store) == []


def test_a_time_that_is_not_known_is_entered_again(tmp_path: Path, shard: Path, store: LocalStore) -> None:
    repack(str(shard), store, staging=tmp_path / "s")
    edited(store, pinned_at="", committed_at="")
    assert repack(str(shard), store, staging=tmp_path / "s").up_to_date
    assert all(entry.pinned_at and entry.committed_at for entry in read_catalog(store))
