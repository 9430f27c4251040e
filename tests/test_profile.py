"""Profiles: the built-in one, the user's own, and every disagreement with a source named."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from pack_lib.errors import BadInput, NotFound
from pack_lib.profile import load_profile, parse_profile
from tests.property.cells import PROFILE, SCHEMA, write_profile
from tests.support import build, make_shard, schema

SHIPPED = [
    "documents",
    "chunks",
    "merkle_nodes",
    "edges",
    "audit_events",
    "derivations",
    "concept_relations",
    "concept_token_idf",
    "providence_cache",
    "citation_aliases",
    "term_aliases",
    "snapshots",
    "document_http_meta",
]
NEVER = [
    "mesh_peers",
    "mesh_x",
    "selfmodel_a",
    "capital_ledger",
    "memory_b",
    "controller_events",
    "fork_score_branches",
    "adapter_loss_reports",
    "falsifications",
    "schema_meta",
    "meta",
]


def test_built_in() -> None:
    profile = load_profile()
    assert [table.name for table in profile.ship] == SHIPPED
    assert all(profile.is_known(name) and not profile.table(name) for name in NEVER)
    assert all(profile.is_known(f"{base}_fts{tail}") for base in ("chunks", "documents") for tail in ("", "_data"))
    assert not any(profile.is_known(name) for name in ("mesh", "metadata", "chunks_ft", "other", "chunks_fts_x"))
    edges = profile.table("edges")
    assert edges and edges.fan_in == "src_root"
    assert edges.file_columns == ("dst_uri", "edge_type", "anchor", "dst_root", "src_roots")
    assert profile.schema == schema()


def test_built_in_fits_its_own_schema() -> None:
    with closing(sqlite3.connect(":memory:")) as db:
        db.executescript(schema())
        names = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        tables = {name: tuple(row[1] for row in db.execute(f"PRAGMA table_info({name})")) for name in names}
    load_profile().check(tables, "here")


def test_own_profile(tmp_path: Path) -> None:
    profile = write_profile(tmp_path)
    assert (profile.name, profile.schema) == ("own", SCHEMA)
    assert [table.name for table in profile.ship] == ["items", "things", "links"]


def test_absent_profiles(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="built in are corpus"):
        load_profile("none")
    with pytest.raises(NotFound, match=re.escape(str(tmp_path / "none.toml"))):
        load_profile(str(tmp_path / "none.toml"))


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('name = "own"', "name = ", "is not TOML"),
        ('name = "own"', 'name = "a b"', "name must be"),
        ('name = "own"', 'name = "own"\nshipp = 1', "unknown setting shipp"),
        ('table = "things"', 'table = "thi;ngs"', "plain name"),
        ('table = "things"', 'table = "items"', "each once"),
        ('columns = ["a", "b", "c"]', 'columns = ["a", "a"]', "distinct"),
        ('columns = ["a", "b", "c"]', 'columns = "abc"', "list of names"),
        ('merge_key = ["a"]', 'merge_key = ["d"]', "merge_key must name"),
        ('fan_in = "z"', 'fan_in = "x"', "fan_in must be the last"),
        ('content = "body"', 'content = "hash"', "without column content"),
        ('content = "body"', 'content = "body"\ntype = "json"', "type is text or blob"),
        ('hash = "hash"\n', "", "are needed"),
        ('schema = "own.sql"', 'schema = "../own.sql"', "not beside it"),
        ('exclude = ["private_*"]', 'rules = ["none"]', "unknown rule none"),
    ],
)
def test_mistakes_in_a_profile_are_named(old: str, new: str, told: str) -> None:
    assert old in PROFILE
    with pytest.raises(BadInput, match=re.escape(told)) as caught:
        parse_profile(PROFILE.replace(old, new, 1), "profile own.toml", {"own.sql": SCHEMA})
    assert str(caught.value).startswith("profile own.toml")


def change(path: Path, *statements: str) -> Path:
    with closing(sqlite3.connect(path)) as db, db:
        for statement in statements:
            db.execute(statement)
    return path


def test_every_disagreement_with_a_source_is_named_at_once(tmp_path: Path) -> None:
    source = change(
        make_shard(tmp_path / "shard.db", 3),
        "CREATE TABLE extra(x)",
        "DROP TABLE term_aliases",
        "ALTER TABLE snapshots ADD COLUMN more",
        "ALTER TABLE snapshots DROP COLUMN at",
    )
    with pytest.raises(BadInput) as caught:
        build(source, tmp_path)
    for told in (
        "missing table: term_aliases",
        "missing column: snapshots.at",
        "table unknown to the profile: extra",
        "column unknown to the profile: snapshots.more",
    ):
        assert told in str(caught.value)
    assert not (tmp_path / "store").exists()


def test_an_unknown_table_stays_behind_only_if_named(tmp_path: Path) -> None:
    source = change(make_shard(tmp_path / "shard.db", 3), "CREATE TABLE extra(x)", "CREATE TABLE extra2(x)")
    with pytest.raises(BadInput, match=r"extra2; .*--leave-behind"):
        build(source, tmp_path, leave_behind=("extra",))
    build(source, tmp_path, leave_behind=("extra*",))
