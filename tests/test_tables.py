"""Table members: cut into parts with a header line each, at row boundaries, and whole again when put together."""

from __future__ import annotations

import hashlib
import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from pack_lib.columnar import TableHeader
from pack_lib.lines import LineBlock
from pack_lib.pack.format import part_size_for
from pack_lib.pack.parameters import parameters_for
from pack_lib.profile import ShippedTable
from pack_lib.tables import stage_lines
from tests.support import Built, build, make_shard, shard_rows, write_shard


def members(path: Path) -> dict[str, bytes]:
    """A pack's members by GNU tar."""
    folder = path.parent.parent / f"x-{path.name[:12]}"
    folder.mkdir(exist_ok=True)
    subprocess.run(["tar", "--zstd", "-xf", path, "-C", folder], check=True)
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.fixture(scope="module")
def cut_set(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Edges of some 600 kB under a cap of 300 kB, with a row longer than a part."""
    folder = tmp_path_factory.mktemp("cut")
    rows = shard_rows(50, edges=9000, chunk_bytes=300)
    rows["term_aliases"].append(("x" * 40_000, "longer than a part"))
    return build(write_shard(folder / "shard.db", rows), folder, cap=300_000)


def test_parts_make_up_the_table(cut_set: Built) -> None:
    part_size = part_size_for(cut_set.set.parameters.cap)
    parts: dict[str, list[tuple[str, bytes]]] = {}
    for path in cut_set.paths:
        for name, data in members(path).items():
            if name.startswith("tables/"):
                parts.setdefault(name.split("/")[1].split(".")[0], []).append((name, data))
    assert set(parts) == {table.name for table in cut_set.set.tables}
    for table in cut_set.set.tables:
        found = sorted(parts[table.name])
        if len(found) > 1:
            assert [name for name, _ in found] == [
                f"tables/{table.name}.{number:05d}.jsonl" for number in range(1, len(found) + 1)
            ]
        else:
            assert found[0][0] == f"tables/{table.name}.jsonl"
        heads = {data.split(b"\n", 1)[0] for _, data in found}
        assert len(heads) == 1 and json.loads(next(iter(heads)))["_columns"]
        for _, data in found:
            lines = data.splitlines(keepends=True)
            assert data.endswith(b"\n") and (len(data) <= part_size or len(lines) == 2)
        whole = found[0][1] + b"".join(data.split(b"\n", 1)[1] for _, data in found[1:])
        assert hashlib.sha256(whole).hexdigest() == table.sha256
        assert (len(whole), whole.count(b"\n") - 1) == (table.size, table.rows)
    assert len(parts["edges"]) > 5 and len(parts["term_aliases"]) > 1


def test_the_uncut_digest_does_not_depend_on_the_cap(cut_set: Built, tmp_path: Path) -> None:
    other = build(cut_set.source, tmp_path, cap=None, level=1)
    assert [table.sha256 for table in other.set.tables] == [table.sha256 for table in cut_set.set.tables]
    assert other.set.snapshot_root == cut_set.set.snapshot_root
    assert len(other.set.packs) == 1


def test_tables_without_rows_are_their_header_line(tmp_path: Path) -> None:
    built = build(make_shard(tmp_path / "shard.db", 1, edges=0), tmp_path)
    found = members(built.paths[0])
    assert found["tables/edges.jsonl"] == (
        b'{"_columns":["dst_uri","edge_type","anchor","dst_root","src_roots"],"fan_in":{"src_roots":"src_root"}}\n'
    )
    empty = build(write_shard(tmp_path / "none.db", {}), tmp_path / "none")
    assert [pack.chunks for pack in empty.set.packs] == [0]
    assert len(members(empty.paths[0])) == 14


@pytest.mark.parametrize("blocks", [1, 3, 1000])
def test_frames_and_parts_are_cut_alike_however_lines_come(tmp_path: Path, blocks: int) -> None:
    """A frame ends where the next row does not fit, a part's padding ends its last frame, and blocks show nowhere."""
    sizes = [10, 90, 200, 300, 20, 250, 1, 1, 700, 5000, 3, 256, 254, 255, 2, 900, 40] * 20
    lines = [b"[" + b"1" * size + b"]\n" for size in sizes]
    table = ShippedTable("t", ("a",), ("a",), None)
    parameters = replace(parameters_for(None), frame_size=256, part_size=4096)
    given = [
        LineBlock(b"".join(lines[at : at + blocks]), len(lines[at : at + blocks]), len(lines[at : at + blocks]))
        for at in range(0, len(lines), blocks)
    ]
    counts = len(lines), len(lines)
    staged = stage_lines(given, table, TableHeader(("a",)), counts, tmp_path, parameters, workers=2)
    head = len(TableHeader(("a",)).encode())
    expected: list[list[list[int]]] = [[]]
    size = head
    for line in map(len, lines):
        if expected[-1] and size + line > 4096:
            expected.append([])
            size = head
        if not expected[-1] or sum(expected[-1][-1]) + line > 256:
            expected[-1].append([])
        expected[-1][-1].append(line)
        size += line
    assert len(staged.parts) == len(expected) > 10
    for part, frames in zip(staged.parts, expected, strict=True):
        usizes = [sum(frame) for frame in frames]
        usizes[-1] += -part.size % 512
        assert [frame.usize for frame in part.frames[1:]] == usizes
        assert part.size == head + sum(map(sum, frames))
    assert staged.sha256 == hashlib.sha256(TableHeader(("a",)).encode() + b"".join(lines)).hexdigest()
