"""Whole sets read without pack_lib, and compared with their source by SQL."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import struct
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.foreign.minireader import MiniReader
from tests.support import Built, build, tree


@pytest.fixture(scope="module")
def packs(real_shard: Path, tmp_path_factory: pytest.TempPathFactory, layout: int) -> list[MiniReader]:
    built = build(real_shard, tmp_path_factory.mktemp("mini"), cap=400_000, layout=layout)
    return [MiniReader(path) for path in built.paths]


def plain(cell: Any) -> Any:
    """A tagged cell's value."""
    if isinstance(cell, dict):
        ((tag, value),) = cell.items()
        return {"$b": bytes.fromhex, "$t": bytes.fromhex, "$f": float}[tag](value)
    return cell


def exact(row: Any) -> Any:
    return tuple((type(cell).__name__, struct.pack("d", cell) if type(cell) is float else cell) for cell in row)


def test_all_bodies_are_the_sources(packs: list[MiniReader], real_shard: Path) -> None:
    with closing(sqlite3.connect(real_shard)) as db:
        wanted = dict(db.execute("SELECT leaf_hash, CAST(content AS BLOB) FROM chunks"))
    found = [pair for pack in packs for pair in pack.bodies()]
    if packs[0].header["layout"] == 2:
        assert [leaf_hash for leaf_hash, _ in found] == sorted(wanted)
    assert dict(found) == wanted
    assert all(hashlib.sha256(b"\0" + body).hexdigest() == leaf_hash for leaf_hash, body in found)


def test_all_rows_are_the_sources(packs: list[MiniReader], real_shard: Path) -> None:
    texts: dict[str, bytes] = {}
    for pack in packs:
        for part in pack.header["tables"]:
            data = pack.table(part)
            assert hashlib.sha256(data).hexdigest() == part["sha256"] and data.count(b"\n") == part["rows"] + 1
            name = part["member"].split("/")[1].split(".")[0]
            texts[name] = texts[name] + data.split(b"\n", 1)[1] if name in texts else data
    assert len(texts) == 13
    with closing(sqlite3.connect(real_shard)) as db:
        for name, data in texts.items():
            head, *rows = map(json.loads, data.decode().split("\n")[:-1])
            columns = list(head["_columns"])
            cells = [[plain(cell) for cell in row] for row in rows]
            if "fan_in" in head:
                ((array, column),) = head["fan_in"].items()
                assert columns[-1] == array
                assert all(row[-1] == sorted(row[-1]) for row in cells)
                columns[-1] = column
                cells = [[*row[:-1], value] for row in cells for value in row[-1]]
            if "derived" in head:
                made = derived(packs, name)
                assert head["derived"]["rows"] == len(made) > 0 == len(head["derived"]["absent"])
                cells += [[row[column] for column in columns] for row in made]
            wanted = db.execute(f"SELECT {', '.join(columns)} FROM {name}").fetchall()
            assert sorted(map(exact, cells), key=repr) == sorted(map(exact, wanted), key=repr), name


def derived(packs: list[MiniReader], name: str) -> list[dict[str, Any]]:
    """The rows of chunks or merkle_nodes that follow from the documents in the packs."""
    rows: list[dict[str, Any]] = []
    for pack in packs:
        bodies = iter(pack.bodies())
        for root, sizes in pack.lines:
            found = [next(bodies) for _ in (sizes if isinstance(sizes, list) else [sizes])]
            if not isinstance(sizes, list):
                continue
            if name == "chunks":
                rows += [
                    {"document_root": root, "ordinal": place, "leaf_hash": leaf_hash, "n_bytes": len(body)}
                    for place, (leaf_hash, body) in enumerate(found)
                ]
                continue
            nodes: list[tuple[str, str, str, int]] = []
            assert tree([bytes.fromhex(leaf_hash) for leaf_hash, _ in found], nodes).hex() == root
            rows += [dict(zip(("node_hash", "left_hash", "right_hash", "level"), node, strict=True)) for node in nodes]
    return [dict(pairs) for pairs in dict.fromkeys(tuple(row.items()) for row in rows)]


def test_roots_are_recomputed(packs: list[MiniReader], small_set: Built) -> None:
    for group in (packs, [MiniReader(path) for path in small_set.paths]):
        bodies = tree(sorted({bytes.fromhex(leaf_hash) for pack in group for leaf_hash, _, _ in pack.catalogue}))
        tables: dict[str, Any] = {}
        for pack in group:
            for part in pack.header["tables"]:
                name, data = part["member"].split("/")[1].split(".")[0], pack.table(part)
                if name in tables:
                    tables[name].update(data.split(b"\n", 1)[1])
                else:
                    tables[name] = hashlib.sha256(data)
        root = tree([bodies, *(digest.digest() for digest in tables.values())]).hex()
        assert {pack.header["snapshot_root"] for pack in group} == {root}


def test_names_and_headers(small_set: Built) -> None:
    for number, (path, made) in enumerate(zip(small_set.paths, small_set.set.packs, strict=True), 1):
        pack = MiniReader(path)
        assert pack.pack_hash == made.hash == path.name.removesuffix(".tar.zst")
        assert hashlib.sha256(path.read_bytes()).hexdigest() == made.sha256
        assert (pack.header["format"], pack.header["version"], pack.header["layout"]) == (
            "cold-pack",
            2,
            small_set.set.parameters.layout,
        )
        assert (pack.header["number"], pack.header["chunks"]) == (number, made.chunks)
        sidecar = path.with_name(f"{made.hash}.json").read_bytes()
        assert sidecar == pack.manifest.split(b"\n", 1)[0] + b"\n"
        assert not {"cap", "level", "time", "host", "path", "libzstd"} & set(pack.header)


def test_frames_are_cut_where_the_format_says(small_set: Built) -> None:
    for path in small_set.paths:
        pack = MiniReader(path)
        first = pack.frame(0)
        assert first[512:] == pack.manifest.split(b"\n", 1)[0] + b"\n"  # the first line alone
        starts = {pack.base + offset - 512 for _, offset, _ in pack.members}
        frame_size = small_set.set.parameters.frame_size
        large = [(offset, size) for _, offset, size in pack.members if 512 + size + -size % 512 > frame_size]
        starts |= {
            pack.base + offset
            for _, offset, _ in pack.catalogue
            if any(begin <= offset < begin + size for begin, size in large)
        }
        for part in pack.header["tables"]:
            start = pack.base + part["offset"] - 512
            line_ends = {start + 512}
            data = pack.table(part)
            at = data.find(b"\n") + 1
            while at:
                line_ends.add(start + 512 + at)
                at = data.find(b"\n", at) + 1
            starts |= {start} | line_ends
        content = pack.content_frames()
        assert all(pack.start[number] in starts for number in content)
        assert pack.base in {pack.start[number] for number in content}  # the manifest in frames of its own
        assert pack.frame(len(pack.frames) - 1) == bytes(1024)
