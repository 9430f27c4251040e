"""Strategies for cells and a small profile whose columns have no affinity, so that every stored type can be in each."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from pack_lib.profile import Profile, load_profile
from pack_lib.values import RawText
from tests.support import leaf

PROFILE = """
name = "own"
schema = "own.sql"
exclude = ["private_*"]
[bodies]
table = "items"
hash = "hash"
content = "body"
[[ship]]
table = "items"
columns = ["item", "hash"]
merge_key = ["item", "hash"]
[[ship]]
table = "things"
columns = ["a", "b", "c"]
merge_key = ["a"]
[[ship]]
table = "links"
columns = ["x", "y", "z"]
merge_key = ["x", "y", "z"]
fan_in = "z"
"""
SCHEMA = """
CREATE TABLE items(item, hash TEXT, body);
CREATE TABLE things(a, b, c);
CREATE TABLE links(x, y, z);
CREATE INDEX items_hash ON items(hash);
"""
WIDTHS = {"things": 3, "links": 3}

INT64 = st.integers(-(2**63), 2**63 - 1)
# Few values that compare equal or nearly so: ties are where an order is easily not total.
CLOSE = st.sampled_from(
    [0, 1, -1, 0.0, -0.0, 1.0, 2**53, 2**53 + 1, float(2**53), 2**63 - 1, -(2**63), 9.223372036854775807e18, 0.1 + 0.2]
)
FLOATS = st.floats(allow_nan=False)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
NOT_UTF8 = st.binary(max_size=6).map(lambda raw: RawText(b"\xff" + raw))
CELLS = st.one_of(st.none(), CLOSE, INT64, FLOATS, TEXTS, st.binary(max_size=8), NOT_UTF8)
FEW = st.sampled_from([None, 1, 1.0, 0.0, -0.0, "", "a", b"", b"a", RawText(b"\xff"), "1", float("inf")])


def write_profile(folder: Path, schema: str = SCHEMA, profile: str = PROFILE) -> Profile:
    folder.mkdir(exist_ok=True)
    (folder / "own.toml").write_text(profile)
    (folder / "own.sql").write_text(schema)
    return load_profile(str(folder / "own.toml"))


def insert(db: sqlite3.Connection, table: str, rows: list[tuple[Any, ...]]) -> None:
    """Rows of cells; text that is not UTF-8 goes in as a cast blob."""
    for row in rows:
        marks = ",".join("CAST(? AS TEXT)" if isinstance(cell, RawText) else "?" for cell in row)
        values = [cell.raw if isinstance(cell, RawText) else cell for cell in row]
        db.execute(f"INSERT INTO {table} VALUES({marks})", values)


def write_source(path: Path, things: list[Any], links: list[Any], bodies: list[str], schema: str = SCHEMA) -> Path:
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA synchronous=OFF")
        db.executescript(schema)
        db.execute("BEGIN")
        insert(db, "things", things)
        insert(db, "links", links)
        insert(db, "items", [(place, leaf(body.encode()), body) for place, body in enumerate(bodies)])
        db.execute("COMMIT")
    return path
