"""What else than our own files the reader takes: single frames, other tools' frames; and versions it refuses."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import zstandard

from pack_lib.errors import Damaged, NotFound, UnknownVersion
from pack_lib.hydrate import hydrate_pack
from pack_lib.pack.blob import FileBlob
from pack_lib.pack.reader import PackReader
from pack_lib.profile import load_profile
from pack_lib.verify import verify_pack, verify_set
from tests.damaged.craft import contents, frame, member, pack, sha256
from tests.support import Built, build, make_shard
from tests.support import contents as rows_of

TABLES = [("tables/things.jsonl", b'{"_columns":["a"]}\n[1]\n["x"]\n')]
BODIES = [b"one", b"", b"three" * 1000]


def verified(path: Path, data: bytes) -> tuple[str, Any]:
    path.write_bytes(data)
    return verify_pack(FileBlob(path))


def tar_of(path: Path) -> bytes:
    return subprocess.run(["zstd", "-dcq", path], check=True, capture_output=True).stdout


def compressed(tar: bytes, *options: str) -> bytes:
    return subprocess.run(["zstd", "-cq", *options], input=tar, check=True, capture_output=True).stdout


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Built:
    folder = tmp_path_factory.mktemp("one")
    return build(make_shard(folder / "shard.db", 25), folder)


def test_a_pack_made_by_hand_is_read(tmp_path: Path) -> None:
    made = contents(TABLES, BODIES)
    found, report = verified(tmp_path / "x", pack(TABLES, BODIES))
    size = int(made[0][124:135], 8)
    assert found == sha256(b"\0" + b"".join(made)[512 : 512 + size])
    assert (report.chunks, report.body_bytes, report.rows) == (3, 5003, {"things": 2})


@pytest.mark.parametrize("options", [("-3",), ("-19",), ("--no-check",), ("-1", "--no-content-size"), ("--long=27",)])
def test_single_frame_packs_are_read(one: Built, tmp_path: Path, options: tuple[str, ...]) -> None:
    made = one.set.packs[0]
    data = compressed(tar_of(one.paths[0]), *options)
    found, report = verified(tmp_path / "x", data)
    assert found == made.hash and report.chunks == made.chunks
    with PackReader(FileBlob(tmp_path / "x")) as single, PackReader(FileBlob(one.paths[0])) as framed:
        assert list(single.catalogue()) == list(framed.catalogue())
        assert single.header == framed.header
        assert single.pack_hash() == framed.pack_hash() == made.hash
    found, report = verify_pack(FileBlob(tmp_path / "x"), load_profile())
    assert report.complete and not report.findings
    hydrate_pack(FileBlob(tmp_path / "x"), tmp_path / "target.db", load_profile())
    assert rows_of(tmp_path / "target.db") == rows_of(one.source)


def test_frames_cut_anywhere_and_skippable_frames_among_them_are_read(one: Built, tmp_path: Path) -> None:
    tar = tar_of(one.paths[0])
    skippable = b"\x5a\x2a\x4d\x18\x05\x00\x00\x00hello"
    pieces = [skippable]
    for at in range(0, len(tar), 7001):
        pieces += [frame(tar[at : at + 7001]), skippable, frame(b"")]
    assert verified(tmp_path / "x", b"".join(pieces))[0] == one.set.packs[0].hash
    for cut in (1, 5, 9, 12, len(skippable) + 20):
        with pytest.raises(Damaged):
            verified(tmp_path / "x", b"".join(pieces[:-1])[:-cut])


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [("version", 97, "version 97"), ("version", 0, "version 0"), ("version", "2", "'2'"), ("layout", 9, "layout 9")],
)
def test_unknown_versions_are_refused_with_their_number(tmp_path: Path, name: str, value: Any, told: str) -> None:
    with pytest.raises(UnknownVersion, match=told) as caught:
        verified(tmp_path / "x", pack(TABLES, BODIES, change=lambda line: line.update({name: value})))
    assert str(tmp_path / "x") in str(caught.value)


def test_another_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnknownVersion, match="cold-pack"):
        verified(tmp_path / "x", pack(TABLES, change=lambda line: line.update(format="other-pack")))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"x",
        b"\x28\xb5\x2f\xfd",
        b"PK\x03\x04" * 100,
        frame(b""),
        frame(b"no tar"),
        frame(bytes(10_240)),
        frame(member("other.txt", b"x\n") + bytes(1024)),
        frame(member("manifest.jsonl", b"not json\n") + bytes(1024)),
        frame(member("manifest.jsonl", b"no line") + bytes(1024)),
        frame(member("manifest.jsonl", b"") + bytes(1024)),
    ],
)
def test_what_is_no_pack_is_damage(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(Damaged, match=str(tmp_path / "x")):
        verified(tmp_path / "x", data)


def test_an_absent_pack_is_not_found(tmp_path: Path, one: Built) -> None:
    with pytest.raises(NotFound, match="none"):
        FileBlob(tmp_path / "none")
    assert verify_set(one.store, one.set, load_profile()).complete


def test_a_single_frame_of_a_large_window_is_read_or_refused_never_misread(one: Built, tmp_path: Path) -> None:
    parameters = zstandard.ZstdCompressionParameters.from_level(3, window_log=30, enable_ldm=True)
    data = zstandard.ZstdCompressor(compression_params=parameters).compress(tar_of(one.paths[0]))
    try:
        assert verified(tmp_path / "x", data)[0] == one.set.packs[0].hash
    except Damaged as error:
        assert "decompress" in str(error)
