"""Packs that are small and decompress to much: refused before the memory is taken."""

from __future__ import annotations

import functools
import io
import subprocess
import sys
from pathlib import Path

import pytest
import zstandard

from tests.damaged.craft import contents, frame, seek_table, with_seek_table

BODIES = [b"one", b"two" * 300, b"three"]
LIMITED = """
import resource, sys
from pathlib import Path
from pack_lib.errors import PackError
from pack_lib.pack.blob import FileBlob
from pack_lib.profile import load_profile
from pack_lib.verify import verify_pack
from pack_lib.hydrate import hydrate_pack
import zstandard, sqlite3, hashlib
path = Path(sys.argv[1])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for attempt in (lambda: verify_pack(FileBlob(path), load_profile()),
                lambda: hydrate_pack(FileBlob(path), path.with_name("t.db"), load_profile())):
    try:
        attempt()
    except PackError as error:
        print(type(error).__name__, error)
    else:
        print("taken")
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


def growth(data: bytes, folder: Path) -> tuple[list[str], int]:
    """What a process of its own says of a pack, and by how many MiB its memory grew."""
    path = folder / "bomb.tar.zst"
    path.write_bytes(data)
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, path],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={"PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert done.returncode == 0, done.stderr
    *told, grown = done.stdout.splitlines()
    return told, int(grown)


def zeros(size: int, *, state_size: bool = True) -> bytes:
    """A frame of so many zeros, some 30,000 times smaller than they are."""
    compressor = zstandard.ZstdCompressor(level=3, write_checksum=True)
    out = io.BytesIO()
    stated = {"size": size} if state_size else {}
    with compressor.stream_writer(out, closefd=False, **stated) as writer:
        left = size
        block = bytes(1 << 20)
        while left > 0:
            writer.write(block[:left])
            left -= len(block)
    return out.getvalue()


@functools.cache
def bombs() -> dict[str, bytes]:
    size = 400 << 20
    whole = zeros(size)
    made = contents([], BODIES)
    return {
        "more than a frame may hold": with_seek_table([zeros((1 << 30) + 1)], [(1 << 30) + 1]),
        "first frame": with_seek_table([whole], [size]),
        "no seek table": whole,
        "no seek table, size not stated": zeros(size, state_size=False),
        "second frame": with_seek_table([frame(made[0]), whole], [len(made[0]), size]),
        "last frame": with_seek_table([*map(frame, made), whole], [*map(len, made), size]),
        "stated small": b"".join(map(frame, made))
        + whole
        + seek_table(
            [(len(f), len(p), int.from_bytes(f[-4:], "little")) for f, p in ((frame(p), p) for p in made)]
            + [(len(whole), 1024, int.from_bytes(whole[-4:], "little"))]
        ),
    }


@pytest.mark.parametrize(
    "which",
    [
        "more than a frame may hold",
        "first frame",
        "no seek table",
        "no seek table, size not stated",
        "second frame",
        "last frame",
        "stated small",
    ],
)
def test_bombs_are_refused_in_little_memory(tmp_path: Path, which: str) -> None:
    assert len(bombs()[which]) < 200_000
    told, grown = growth(bombs()[which], tmp_path)
    assert len(told) == 2 and "taken" not in told, told
    assert grown < 200, f"memory grew by {grown} MiB: {told}"
    assert [item.name for item in tmp_path.iterdir()] == ["bomb.tar.zst"]


def test_a_first_line_without_end_is_refused_in_bounded_memory(tmp_path: Path) -> None:
    head = contents([], BODIES)[0][:512]
    line = head + b"[" * (100 << 20)
    for data in (
        frame(line),
        with_seek_table(
            [frame(line[at : at + (1 << 20)]) for at in range(0, len(line), 1 << 20)],
            [len(line[at : at + (1 << 20)]) for at in range(0, len(line), 1 << 20)],
        ),
    ):
        told, grown = growth(data, tmp_path)
        assert told and all("Damaged" in text or "first line" in text for text in told)
        assert grown < 400
