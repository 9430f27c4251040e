"""The cap: never exceeded, filled to within one frame (one part where a pack ends in a table), refused with numbers."""

from __future__ import annotations

import itertools
import random
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from pack_lib.errors import CapTooSmall
from pack_lib.pack.format import frame_size_for, part_size_for
from pack_lib.profile import load_profile
from pack_lib.verify import verify_set
from tests.foreign.minireader import MiniReader
from tests.support import Built, build, leaf, schema, shard_rows, write_shard

LETTERS = bytes(b"abcde"[value % 5] for value in range(256))
"""Text of five letters by chance: some 2.3 bits a byte, and nothing for a compressor to find."""


def bulk_shard(path: Path, total: int, sizes: tuple[int, int]) -> Path:
    """Some ``total`` bytes of bodies of no document."""
    chooser = random.Random(7)
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode=OFF")
        db.execute("PRAGMA synchronous=OFF")
        db.executescript(schema())
        db.execute("BEGIN")
        place = 0
        while total > 0:
            body = chooser.randbytes(chooser.randint(*sizes)).translate(LETTERS)
            db.execute("INSERT INTO chunks VALUES(NULL, ?, ?, ?, ?)", (place, leaf(body), len(body), body.decode()))
            total -= len(body)
            place += 1
        db.execute("COMMIT")
    return path


def check_filled(built: Built) -> None:
    cap = built.set.parameters.cap
    assert cap is not None
    packs = [MiniReader(path) for path in built.paths]
    for path, made in zip(built.paths, built.set.packs, strict=True):
        assert path.stat().st_size == made.size <= cap
    for number, (pack, following) in enumerate(itertools.pairwise(packs)):
        room = cap - built.set.packs[number].size
        content = following.content_frames()
        if following.header["tables"]:
            part = following.header["tables"][0]
            end = following.base + part["offset"] + part["size"]
            frames = [place for place in content if following.start[place] < end]
            needed = sum(following.frames[place][0] for place in frames) + 12 * len(frames) + 600
            assert not pack.catalogue
        else:
            # What goes into a pack together: a frame of small members, or all frames of a large one.
            _, offset, size = following.members[0]
            end = following.base + offset + size + -size % 512
            unit = [frame for frame in content if following.start[frame] < end]
            needed = sum(following.frames[frame][0] for frame in unit) + following.frames[1][0] + 12 * len(unit) + 112
            filled = following.start[unit[-1] + 1] - following.start[unit[0]]
            assert filled <= max(built.set.parameters.frame_size, end - following.start[unit[0]])
        assert room < needed, f"pack {number + 1} leaves {room:,} bytes where {needed:,} would do"


@pytest.mark.parametrize("cap", [30_000, 300_000])
def test_many_packs_of_a_small_cap(tmp_path: Path, cap: int, layout: int) -> None:
    rows = shard_rows(200, chunk_bytes=1500, edges=4000, noise=True)
    built = build(write_shard(tmp_path / "shard.db", rows), tmp_path, cap=cap, layout=layout)
    assert len(built.set.packs) >= {30_000: 30, 300_000: 3}[cap]
    check_filled(built)
    assert verify_set(built.store, built.set, load_profile()).complete


def test_bodies_larger_than_a_frame(tmp_path: Path, layout: int) -> None:
    source = bulk_shard(tmp_path / "shard.db", 3_000_000, (1, 120_000))
    built = build(source, tmp_path, cap=300_000, layout=layout)
    assert built.set.parameters.frame_size == 16_384
    check_filled(built)
    assert verify_set(built.store, built.set, load_profile()).complete


def test_packs_of_many_frames(tmp_path: Path, layout: int) -> None:
    source = bulk_shard(tmp_path / "shard.db", 135_000_000, (5_000, 40_000))
    built = build(source, tmp_path, cap=20_000_000, layout=layout)
    assert len(built.set.packs) == 3
    assert built.set.parameters.frame_size == 1 << 20
    for path in built.paths[:-1]:
        assert len(MiniReader(path).content_frames()) >= 50
    check_filled(built)


def test_a_pack_may_end_in_a_table(tmp_path: Path, layout: int) -> None:
    rows = shard_rows(40, edges=30_000)
    built = build(write_shard(tmp_path / "shard.db", rows), tmp_path, cap=100_000, layout=layout)
    ends = [MiniReader(path).header for path in built.paths]
    assert sum(1 for header in ends if header["tables"] and not header["chunks"]) >= 2
    check_filled(built)


@pytest.mark.parametrize("cap", [10_000, 50_000])
def test_a_cap_too_small_for_one_body_is_refused_with_the_numbers(tmp_path: Path, cap: int, layout: int) -> None:
    body = random.Random(1).randbytes(80_000).hex()
    rows = shard_rows(3, edges=10)
    rows["chunks"].append((None, 99, leaf(body.encode()), len(body), body))
    source = write_shard(tmp_path / "shard.db", rows)
    with pytest.raises(CapTooSmall) as caught:
        build(source, tmp_path, cap=cap, layout=layout)
    told = str(caught.value)
    assert f"{cap:,}" in told and leaf(body.encode()) in told and f"{len(body):,}" in told
    assert not list((tmp_path / "store").glob("sets/**/*.json")) and not (tmp_path / "store" / "catalog.json").exists()
    needed = int(re.search(r"--cap (\d+)", told)[1])  # type: ignore[index]
    built = build(source, tmp_path, cap=needed, layout=layout)
    assert max(pack.size for pack in built.set.packs) <= needed
    with pytest.raises(CapTooSmall):
        build(source, tmp_path / "less", cap=needed - 2048, layout=layout)


def test_a_cap_too_small_for_one_row_is_refused_with_the_numbers(tmp_path: Path) -> None:
    rows = shard_rows(3, edges=10)
    rows["term_aliases"].append(("long", random.Random(1).randbytes(40_000).hex()))
    source = write_shard(tmp_path / "shard.db", rows)
    with pytest.raises(CapTooSmall, match=r"tables/term_aliases\.0000\d\.jsonl alone takes") as caught:
        build(source, tmp_path, cap=20_000)
    assert not list((tmp_path / "store").glob("sets/**/*.json"))
    needed = int(re.search(r"--cap (\d+)", str(caught.value))[1])  # type: ignore[index]
    assert build(source, tmp_path, cap=needed).set.packs


@pytest.mark.parametrize("cap", [1, 100, 500])
def test_a_cap_too_small_for_any_pack_is_refused(tmp_path: Path, cap: int) -> None:
    source = write_shard(tmp_path / "shard.db", shard_rows(2))
    with pytest.raises(CapTooSmall, match=f"cap of {cap:,} bytes"):
        build(source, tmp_path, cap=cap)
    assert not list((tmp_path / "store").rglob("*.json"))


def test_sizes_that_follow_from_the_cap() -> None:
    assert [frame_size_for(cap) for cap in (None, 23_000_000_000, 20_000_000, 300_000)] == [1 << 20] * 3 + [16_384]
    assert [part_size_for(cap) for cap in (None, 4_400_000_000, 20_000_000, 300_000)] == [
        64 << 20,
        64 << 20,
        1 << 20,
        16_384,
    ]
