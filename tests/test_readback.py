"""A finished pack that is not what was written is noticed before anything of it is sent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import pack_lib.build
import pack_lib.readback
from pack_lib.errors import PackError
from pack_lib.pack.blob import FileBlob
from pack_lib.pack.reader import PackReader
from pack_lib.pack.writer import BuiltPack
from pack_lib.readback import read_back
from pack_lib.repack import repack
from pack_lib.stores.local import LocalStore
from tests.support import make_shard

really = pack_lib.build.read_back


@pytest.fixture
def shard(tmp_path: Path) -> Path:
    return make_shard(tmp_path / "shard.db", documents=60)


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def places(path: Path) -> list[int]:
    """Bytes all over a pack: in the manifest, in a table, in bodies, in the seek table."""
    size = path.stat().st_size
    return [40, size // 3, size // 2, size - 30, size - 1]


@pytest.mark.usefixtures("in_each_layout")
@pytest.mark.parametrize("workers", [1, 2])
def test_each_flipped_byte_is_noticed(
    shard: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    noticed: list[str] = []

    def flipped(pack: BuiltPack, *arguments: Any) -> None:
        really(pack, *arguments)
        for at in places(pack.path):
            flip(pack.path, at)
            with pytest.raises(PackError, match=r"does not read back as it was written.*nothing of it was sent"):
                read_back(pack, workers)
            noticed.append(str(at))
            flip(pack.path, at)
        really(pack, *arguments)

    monkeypatch.setattr(pack_lib.build, "read_back", flipped)
    store = LocalStore(tmp_path / "store")
    repack(str(shard), store, staging=tmp_path / "staging", workers=workers)
    assert len(noticed) == 5


def test_a_damaged_file_is_not_sent(shard: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def damaged(pack: BuiltPack, *arguments: Any) -> None:
        flip(pack.path, pack.size // 2)
        really(pack, *arguments)

    monkeypatch.setattr(pack_lib.build, "read_back", damaged)
    store = LocalStore(tmp_path / "store")
    with pytest.raises(PackError, match="the memory is failing: check both, then run again"):
        repack(str(shard), store, staging=tmp_path / "staging")
    assert not [path for path in (tmp_path / "store").rglob("*") if path.is_file()]


def test_a_frame_of_other_content_is_noticed(shard: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compressor that fails: the file is as written, and does not hold what was given to it."""
    import pack_lib.pack.frames as frames

    compress = frames.compress_frame
    failed = []

    def failing(data: bytes, level: int) -> bytes:
        compressed = compress(data, level)
        if len(data) > 10_000 and not failed:
            failed.append(1)
            return compressed[:-4] + bytes(4)  # the checksum of something else
        return compressed

    monkeypatch.setattr(frames, "compress_frame", failing)
    with pytest.raises(PackError, match="does not read back"):
        repack(str(shard), LocalStore(tmp_path / "store"), staging=tmp_path / "staging")
    assert failed


def test_it_says_how_far_it_is(shard: Path, tmp_path: Path) -> None:
    told: list[tuple[str, int, int]] = []
    repack(
        str(shard), LocalStore(tmp_path / "store"), staging=tmp_path / "staging", report=lambda *step: told.append(step)
    )
    steps = {step for step, _, _ in told}
    assert "upload" in steps
    assert all(0 <= done <= total for step, done, total in told if step == "read back")


def test_every_frame_is_looked_at(shard: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []
    check = PackReader.check_frame

    def counted(reader: PackReader, at: int, frame: Any) -> None:
        looked.append(at)
        check(reader, at, frame)

    monkeypatch.setattr(PackReader, "check_frame", counted)
    store = LocalStore(tmp_path / "store")
    repack(str(shard), store, staging=tmp_path / "staging")
    (path,) = (tmp_path / "store").rglob("*.tar.zst")
    with PackReader(FileBlob(path)) as reader:
        assert sorted(looked) == [at for at, _ in reader.frames()]
