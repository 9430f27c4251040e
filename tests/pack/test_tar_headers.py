"""ustar headers: fixed fields, the checksum, and what they cannot hold; read by Python's tarfile."""

from __future__ import annotations

import io
import tarfile

import pytest

from pack_lib.pack.tar import BLOCK, END, header, padding
from tests.damaged.craft import member


@pytest.mark.parametrize("size", [0, 1, 511, 512, 513, 8**11 - 1])
@pytest.mark.parametrize("name", ["manifest.jsonl", "tables/edges.00001.jsonl", "blobs/ff/" + "f" * 62, "x" * 100])
def test_header_is_what_the_format_says(name: str, size: int) -> None:
    block = header(name, size)
    assert len(block) == BLOCK and block == member(name, b"", size)
    info = tarfile.TarInfo.frombuf(block, "ascii", "strict")
    assert (info.name, info.size, info.mode, info.uid, info.gid, info.mtime) == (name, size, 0o644, 0, 0, 0)
    assert (info.uname, info.gname, info.type, info.devmajor, info.devminor) == ("", "", tarfile.REGTYPE, 0, 0)


@pytest.mark.parametrize(("name", "size"), [("", 0), ("x" * 101, 0), ("x", 8**11), ("x", -1), ("\u00e9", 0)])
def test_what_ustar_cannot_hold_is_refused(name: str, size: int) -> None:
    with pytest.raises(ValueError):
        header(name, size)


def test_an_archive_of_them_reads() -> None:
    bodies = [bytes([number]) * (number * 97 % 1500) for number in range(40)]
    data = b"".join(header(f"m/{n}", len(body)) + body + padding(len(body)) for n, body in enumerate(bodies)) + END
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        found = [archive.extractfile(info).read() for info in archive]  # type: ignore[union-attr]
    assert found == bodies
