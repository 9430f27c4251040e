"""Damage by chance: flipped bits, cuts, garbage, swapped frames. It is reported, and no wrong body is ever read.

A pack's checks are its own digests. Some bits of a zstd frame or of the seek table's end do not change what it holds
(a match may point to other, equal bytes): there the file's SHA-256 in the set manifest is what tells.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from pack_lib.errors import Damaged, PackError
from pack_lib.pack.reader import PackReader, TableData
from pack_lib.pack.tarstream import DocumentBatch
from pack_lib.profile import load_profile
from pack_lib.stores.local import LocalStore
from pack_lib.verify import verify_pack, verify_set
from tests.damaged.craft import seek_table, sha256
from tests.foreign.minireader import MiniReader
from tests.support import Built, build, make_shard

FLIPS = 2000


class Bytes:
    """A pack in memory."""

    def __init__(self, data: bytes) -> None:
        self.name, self.data, self.size = "the pack", data, len(data)

    def read(self, offset: int, length: int) -> bytes:
        found = self.data[offset : offset + length] if offset >= 0 else b""
        if len(found) != length:
            raise Damaged(f"{self.name}: ends")
        return found

    def close(self) -> None:
        pass


def everything(data: bytes) -> tuple[list[tuple[str, bytes]], list[tuple[str, bytes]], str]:
    """All bodies, all tables and the pack hash, as a reader hands them out before it knows the end."""
    bodies: list[tuple[str, bytes]] = []
    tables: list[tuple[str, bytes]] = []
    with PackReader(Bytes(data)) as reader:
        for member in reader.members():
            if isinstance(member, TableData):
                tables.append((member.part.member, b"".join(member.blocks)))
            elif isinstance(member, DocumentBatch):
                for document in member.documents:
                    bodies += [(leaf.hex(), body) for leaf, body in zip(document.leaves, document.bodies, strict=True)]
                    assert all(sha256(b"\0" + body) == leaf_hash for leaf_hash, body in bodies[-len(document.leaves) :])
            else:
                bodies += member
                assert all(sha256(b"\0" + body) == leaf_hash for leaf_hash, body in member)
        return bodies, tables, reader.pack_hash()


class Judge:
    """One sound pack, and the verdict over changed copies of it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.data = path.read_bytes()
        self.sound = everything(self.data)
        self.hash = verify_pack(Bytes(self.data))[0]
        self.known = dict(self.sound[0])
        self.unreported: list[Any] = []
        self.checked = 0

    def check(self, changed: bytes, what: Any) -> None:
        """Reported by `PackError`, or by another pack hash, or it holds exactly the sound pack's content."""
        if changed == self.data:
            return
        try:
            found = verify_pack(Bytes(changed))[0]
        except PackError as error:
            assert str(error) and "\n" not in str(error)
        else:
            if found == self.hash:
                assert everything(changed) == self.sound, what
                assert sha256(changed) != sha256(self.data)
                self.unreported.append(what)
        self.checked += 1
        if self.checked % 4:
            return
        try:
            bodies = everything(changed)[0]
        except PackError:
            return
        assert all(self.known.get(leaf_hash, body) == body for leaf_hash, body in bodies), what

    def flip(self, positions: Iterable[int], seed: int) -> None:
        chooser = random.Random(seed)
        for position in positions:
            changed = bytearray(self.data)
            changed[position] ^= 1 << chooser.randrange(8) if chooser.random() < 0.7 else chooser.randrange(1, 256)
            self.check(bytes(changed), ("flip", position))


@pytest.fixture(scope="module")
def damaged_set(tmp_path_factory: pytest.TempPathFactory, layout: int) -> Built:
    """Small packs: they are verified thousands of times."""
    folder = tmp_path_factory.mktemp("small-packs")
    built = build(
        make_shard(folder / "shard.db", 30, edges=60, chunk_bytes=500, noise=True),
        folder,
        cap={2: 16_000, 3: 9_000}[layout],
        layout=layout,
    )
    assert len(built.set.packs) >= 3
    return built


@pytest.fixture(scope="module")
def judges(damaged_set: Built, small_set: Built) -> dict[str, Judge]:
    def chosen(built: Built, tables: bool, bodies: bool) -> Path:
        readers = [(path, MiniReader(path)) for path in built.paths]
        return next(p for p, r in readers if (not tables or r.header["tables"]) and (not bodies or r.catalogue))

    return {
        "tables": Judge(chosen(damaged_set, True, False)),
        "bodies": Judge(chosen(damaged_set, False, True)),
        "large": Judge(chosen(small_set, True, True)),
    }


@pytest.mark.parametrize("which", ["tables", "bodies", "large"])
@pytest.mark.parametrize("part", range(2))
def test_flipped_bits(judges: dict[str, Judge], which: str, part: int) -> None:
    judge = judges[which]
    count = FLIPS // 12 if which == "large" else FLIPS // 4
    judge.unreported.clear()
    judge.flip(random.Random(part).sample(range(len(judge.data)), count), part)
    assert len(judge.unreported) * 50 < judge.checked


@pytest.mark.parametrize("which", ["tables", "bodies"])
def test_every_byte_of_manifest_and_seek_table(judges: dict[str, Judge], which: str) -> None:
    judge = judges[which]
    judge.unreported.clear()
    reader = MiniReader(judge.path)
    manifest_end = reader.at[reader.content_frames()[0]]
    judge.flip(range(manifest_end), 1)
    judge.flip(range(reader.at[-1], len(judge.data)), 2)
    assert len(judge.unreported) * 50 < judge.checked


def test_every_bit_of_the_last_bytes_and_of_the_first(judges: dict[str, Judge]) -> None:
    judge = judges["bodies"]
    for position in (*range(24), *range(len(judge.data) - 21, len(judge.data))):
        for bit in range(8):
            changed = bytearray(judge.data)
            changed[position] ^= 1 << bit
            judge.check(bytes(changed), ("bit", position))


@pytest.mark.parametrize("which", ["tables", "bodies"])
def test_cut_at_every_length_of_many(judges: dict[str, Judge], which: str) -> None:
    judge = judges[which]
    size = len(judge.data)
    lengths = {*range(40), *range(size - 60, size), *random.Random(4).sample(range(size), 300)}
    frames = MiniReader(judge.path).at
    lengths |= set(frames)
    judge.unreported.clear()
    for length in sorted(lengths):
        judge.check(judge.data[:length], ("cut", length))
    # Without its seek table alone it is the same content, in frames that are read one after the other.
    assert judge.unreported == [("cut", frames[-1])]


@pytest.mark.parametrize("which", ["tables", "bodies"])
def test_garbage_at_the_end_and_in_the_middle(judges: dict[str, Judge], which: str) -> None:
    judge = judges[which]
    chooser = random.Random(6)
    for size in (1, 7, 9, 17, 512, 70_000):
        for junk in (bytes(size), chooser.randbytes(size), judge.data[:size], judge.data[-size:]):
            with pytest.raises(PackError):
                verify_pack(Bytes(judge.data + junk))
            for place in chooser.sample(range(len(judge.data)), 6):
                judge.check(judge.data[:place] + junk + judge.data[place:], ("insert", place, size))
    judge.check(judge.data * 2, "twice")


def test_missing_middle_and_zeroed_blocks(judges: dict[str, Judge]) -> None:
    judge = judges["bodies"]
    chooser = random.Random(8)
    for size in (1, 9, 512, 4096):
        for place in chooser.sample(range(len(judge.data) - size), 25):
            for blank in (b"", bytes(size), b"\xff" * size, chooser.randbytes(size)):
                judge.check(judge.data[:place] + blank + judge.data[place + size :], ("blank", place, size))


@pytest.mark.parametrize("which", ["tables", "bodies"])
def test_frames_swapped_doubled_or_dropped_under_a_right_seek_table(judges: dict[str, Judge], which: str) -> None:
    judge = judges[which]
    reader = MiniReader(judge.path)
    frames = [(judge.data[reader.at[n] : reader.at[n + 1]], entry) for n, entry in enumerate(reader.frames)]
    chooser = random.Random(9)

    def check(changed: list[Any], what: Any) -> None:
        data = b"".join(frame for frame, _ in changed) + seek_table([entry for _, entry in changed])
        if data != judge.data:
            with pytest.raises(PackError):
                verify_pack(Bytes(data))
            judge.check(data, what)

    for one in range(len(frames)):
        other = chooser.randrange(len(frames))
        swapped = list(frames)
        swapped[one], swapped[other] = frames[other], frames[one]
        check(swapped, ("swap", one, other))
        check(frames[:one] + frames[one + 1 :], ("drop", one))
        check([*frames[:one], frames[one], *frames[one:]], ("double", one))


def test_entries_of_the_seek_table_changed_or_moved(judges: dict[str, Judge]) -> None:
    judge = judges["bodies"]
    reader = MiniReader(judge.path)
    body = judge.data[: reader.at[-1]]
    for number, (csize, usize, checksum) in enumerate(reader.frames):
        for entry in (
            (csize, usize + 1, checksum),
            (csize, 0, checksum),
            (csize, 2**32 - 1, checksum),
            (csize + 1, usize, checksum),
            (0, usize, checksum),
            (2**32 - 1, usize, checksum),
            (csize, usize, checksum ^ 1),
        ):
            changed = [*reader.frames[:number], entry, *reader.frames[number + 1 :]]
            with pytest.raises(PackError):
                verify_pack(Bytes(body + seek_table(changed)))
    half = [(csize - 10, usize, check) for csize, usize, check in reader.frames]
    half[-1] = (half[-1][0] + 10 * len(half), *half[-1][1:])
    with pytest.raises(PackError):
        verify_pack(Bytes(body + seek_table(half)))


def test_a_set_reports_every_change_of_a_file(damaged_set: Built, tmp_path: Path) -> None:
    store = LocalStore(Path(shutil.copytree(damaged_set.store.folder, tmp_path / "store")))
    copied = Built(store, damaged_set.set, damaged_set.source)
    chooser = random.Random(12)
    for path in copied.paths:
        data = path.read_bytes()
        places = {*chooser.sample(range(len(data)), 30), 4, len(data) - 1, len(data) - 2, len(data) - 5}
        for place in places:
            changed = bytearray(data)
            changed[place] ^= 1 << chooser.randrange(8)
            path.write_bytes(changed)
            with pytest.raises(Damaged, match=path.name):
                verify_set(store, damaged_set.set, load_profile())
        path.write_bytes(data)
    assert verify_set(store, damaged_set.set, load_profile()).complete


def test_packs_are_told_apart_by_their_hash(damaged_set: Built) -> None:
    hashes = {verify_pack(Bytes(path.read_bytes()))[0] for path in damaged_set.paths}
    assert hashes == {pack.hash for pack in damaged_set.set.packs}
