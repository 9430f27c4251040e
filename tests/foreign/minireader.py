"""A pack reader of one page, from the format's text alone: the struct module, a zstd library, nothing of pack_lib."""

from __future__ import annotations

import hashlib
import json
import struct
from bisect import bisect_right
from collections.abc import Iterator
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Any

import zstandard


class MiniReader:
    def __init__(self, path: Path) -> None:
        self.file = path.open("rb")
        size = path.stat().st_size
        self.file.seek(size - 9)
        count, flags, magic = struct.unpack("<IBI", self.file.read(9))
        assert (flags, magic) == (0x80, 0x8F92EAB1)
        table = 8 + 12 * count + 9
        self.file.seek(size - table)
        data = self.file.read(table)
        assert struct.unpack_from("<II", data) == (0x184D2A5E, table - 8)
        self.frames = [struct.unpack_from("<III", data, 8 + 12 * number) for number in range(count)]
        self.at = [0, *accumulate(frame[0] for frame in self.frames)]
        self.start = [0, *accumulate(frame[1] for frame in self.frames)]
        assert self.at[-1] + table == size
        head = self.read(0, 512)
        assert head[:15] == b"manifest.jsonl\0" and head[257:265] == b"ustar\x0000"
        manifest_size = int(head[124:135], 8)
        self.manifest = self.read(512, manifest_size)
        self.pack_hash = hashlib.sha256(b"\0" + self.manifest).hexdigest()
        first, *rest = self.manifest.splitlines()
        self.header: dict[str, Any] = json.loads(first)
        self.lines: list[Any] = [json.loads(line) for line in rest]
        self.base = 512 + manifest_size + -manifest_size % 512
        self.catalogue, self.members = self._walk()

    def _walk(self) -> tuple[list[tuple[str, int, int]], list[tuple[str, int, int]]]:
        """(leaf hash, offset, size) of each body; (name, offset, size) of each member that holds some."""
        if self.header["layout"] == 2:
            members = [(f"blobs/{name[:2]}/{name[2:]}", offset, size) for name, offset, size in self.lines]
            return [tuple(line) for line in self.lines], members
        bodies, members = [], []
        part = self.header["tables"][-1] if self.header["tables"] else {"offset": 0, "size": 0}
        at = part["offset"] + part["size"]
        for name, sizes in self.lines:
            at += -at % 512 + 512
            whole = isinstance(sizes, list)
            folder = "documents" if whole else "blobs"
            members.append((f"{folder}/{name[:2]}/{name[2:]}", at, sum(sizes) if whole else sizes))
            for size in sizes if whole else [sizes]:
                body = self.read(self.base + at, size)
                bodies.append((hashlib.sha256(b"\0" + body).hexdigest(), at, size))
                at += size
        return bodies, members

    @lru_cache(maxsize=2)  # noqa: B019 (a reader lives no longer than a test)
    def frame(self, number: int) -> bytes:
        csize, usize, checksum = self.frames[number]
        self.file.seek(self.at[number])
        data = self.file.read(csize)
        assert struct.unpack("<I", data[-4:]) == (checksum,)
        content = zstandard.ZstdDecompressor().decompress(data)
        assert len(content) == usize
        return content

    def read(self, offset: int, length: int) -> bytes:
        """Bytes of the tar, from as few frames as hold them."""
        found = b""
        number = bisect_right(self.start, offset) - 1
        skip = offset - self.start[number]
        while len(found) < length:
            found += self.frame(number)[skip : skip + length - len(found)]
            number, skip = number + 1, 0
        return found

    def table(self, part: dict[str, Any]) -> bytes:
        return self.read(self.base + part["offset"], part["size"])

    def bodies(self) -> Iterator[tuple[str, bytes]]:
        for leaf_hash, offset, size in self.catalogue:
            yield leaf_hash, self.read(self.base + offset, size)

    def content_frames(self) -> list[int]:
        """Numbers of the frames after the manifest, the archive's end left out."""
        return [number for number in range(len(self.frames) - 1) if self.start[number] >= self.base]
