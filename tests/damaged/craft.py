"""Packs made by hand, from the format's text alone, so that a test can put anything into them."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Callable, Sequence
from typing import Any

import zstandard

Table = tuple[str, bytes]
"""(member name, bytes)."""


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def member(name: str, body: bytes, size: int | None = None) -> bytes:
    """Header, bytes and padding; ``size``: what the header states instead of the truth."""
    block = name.encode().ljust(100, b"\0") + b"0000644\0" + b"0000000\0" * 2
    block += b"%011o\0" % (len(body) if size is None else size) + b"00000000000\0"
    tail = b"0" + bytes(100) + b"ustar\x0000" + bytes(64) + b"0000000\0" * 2 + bytes(167)
    total = sum(block) + 8 * 32 + sum(tail)
    return block + b"%06o\0 " % total + tail + body + bytes(-len(body) % 512)


def frame(content: bytes, level: int = 3) -> bytes:
    return zstandard.ZstdCompressor(level=level, write_checksum=True).compress(content)


def seek_table(entries: Sequence[tuple[int, int, int]], count: int | None = None, flags: int = 0x80) -> bytes:
    body = b"".join(struct.pack("<III", *entry) for entry in entries)
    foot = struct.pack("<IBI", len(entries) if count is None else count, flags, 0x8F92EAB1)
    return struct.pack("<II", 0x184D2A5E, len(body) + len(foot)) + body + foot


def with_seek_table(frames: Sequence[bytes], sizes: Sequence[int]) -> bytes:
    entries = [(len(data), size, int.from_bytes(data[-4:], "little")) for data, size in zip(frames, sizes, strict=True)]
    return b"".join(frames) + seek_table(entries)


def first_line(value: dict[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode() + b"\n"


def contents(
    tables: Sequence[Table],
    bodies: Sequence[bytes] = (),
    *,
    change: Callable[[dict[str, Any]], None] = lambda value: None,
    catalogue: Callable[[list[str]], None] = lambda lines: None,
    line: bytes | None = None,
) -> list[bytes]:
    """The contents of a pack's frames: first line, catalogue, one a member, the end. ``change`` edits the first line's
    values, ``catalogue`` the catalogue's lines, ``line`` replaces the first line."""
    at, stated, members, lines = 0, [], [], []
    for name, data in tables:
        stated.append(
            {
                "member": name,
                "offset": at + 512,
                "rows": data.count(b"\n") - 1,
                "sha256": sha256(data),
                "size": len(data),
            }
        )
        members.append(member(name, data))
        at += len(members[-1])
    for body in sorted(set(bodies), key=lambda body: sha256(b"\0" + body)):
        digest = sha256(b"\0" + body)
        lines.append(f'["{digest}",{at + 512},{len(body)}]\n')
        members.append(member(f"blobs/{digest[:2]}/{digest[2:]}", body))
        at += len(members[-1])
    value = {
        "_columns": ["leaf_hash", "offset", "size"],
        "body_bytes": sum(len(body) for body in set(bodies)),
        "chunks": len(set(bodies)),
        "corpus": "corpus",
        "format": "cold-pack",
        "layout": 2,
        "number": 1,
        "order": "leaf_hash",
        "profile": "corpus",
        "shard": "shard-0",
        "snapshot_root": "0" * 64,
        "tables": stated,
        "version": 2,
    }
    change(value)
    catalogue(lines)
    first = first_line(value) if line is None else line
    rest = "".join(lines).encode()
    size = len(first) + len(rest)
    head = member("manifest.jsonl", b"", size) + first
    return [part for part in (head, rest, bytes(-size % 512), *members, bytes(1024)) if part]


def pack(tables: Sequence[Table], bodies: Sequence[bytes] = (), **options: Any) -> bytes:
    made = contents(tables, bodies, **options)
    return with_seek_table([frame(part) for part in made], [len(part) for part in made])
