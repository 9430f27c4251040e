"""The plain way to build a pack: ``sqlite3``, ``json``, ``tarfile``, one streaming compressor, one thread.

It does the same work (shipped tables with edges fanned in, each distinct body checked and written in leaf hash
order) with what a person reaches for first, and is the yardstick of ``benchmarks.build``. It makes no consistent
copy first, writes no manifest, heeds no cap, syncs nothing, and its pack cannot be read by chunk. Its memory
grows with the shard: the edge groups are one dict, a table is one ``BytesIO``, and ``TarFile`` keeps the
``TarInfo`` of each member.
"""

from __future__ import annotations

import hashlib
import io
import json
import sqlite3
import tarfile
import time
import tomllib
from contextlib import closing
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import zstandard


@dataclass(frozen=True)
class PlainResult:
    """Seconds of wall time, and sizes in bytes."""

    seconds: float
    tables_seconds: float
    bodies_seconds: float
    chunks: int
    bytes_out: int
    tables_bytes_out: int


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    tar.addfile(info, io.BytesIO(data))


def _table(db: sqlite3.Connection, table: str, columns: list[str], merge_key: list[str]) -> bytes:
    out = io.BytesIO()
    out.write(json.dumps({"_columns": columns}).encode() + b"\n")
    for row in db.execute(f"SELECT {','.join(columns)} FROM {table} ORDER BY {','.join(merge_key)}"):
        out.write(json.dumps(row).encode() + b"\n")
    return out.getvalue()


def _edges(db: sqlite3.Connection, columns: list[str], fan_in: str) -> bytes:
    group_by = [column for column in columns if column != fan_in]
    groups: dict[tuple[Any, ...], list[Any]] = {}
    for source, *key in db.execute(f"SELECT {fan_in},{','.join(group_by)} FROM edges"):
        groups.setdefault(tuple(key), []).append(source)
    out = io.BytesIO()
    out.write(json.dumps({"_columns": [*group_by, fan_in]}).encode() + b"\n")
    for key in sorted(groups, key=lambda key: [(cell is not None, cell or "") for cell in key]):
        out.write(json.dumps([*key, sorted(groups[key])]).encode() + b"\n")
    return out.getvalue()


def plain_build(db: str | Path, out: str | Path) -> PlainResult:
    """Write the shard at ``db`` as one tar.zst at ``out``. Raises ValueError if a body does not match."""
    out = Path(out)
    profile = tomllib.loads(files("pack_lib").joinpath("profiles/corpus.toml").read_text())
    chunks = 0
    begin = time.perf_counter()
    with (
        closing(sqlite3.connect(f"{Path(db).resolve().as_uri()}?mode=ro", uri=True)) as source,
        out.open("wb") as file,
        zstandard.ZstdCompressor(level=3).stream_writer(file) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.USTAR_FORMAT) as tar,
    ):
        for ship in profile["ship"]:
            table, columns = ship["table"], ship["columns"]
            if "fan_in" in ship:
                data = _edges(source, columns, ship["fan_in"])
            else:
                data = _table(source, table, columns, ship["merge_key"])
            _add(tar, f"tables/{table}.jsonl", data)
            compressed.flush(zstandard.FLUSH_BLOCK)
        tables_bytes, tables_end = file.tell(), time.perf_counter()
        for leaf, content in source.execute("SELECT leaf_hash, content FROM chunks GROUP BY leaf_hash"):
            body = content.encode()
            if hashlib.sha256(b"\0" + body).hexdigest() != leaf:
                raise ValueError(f"chunk {leaf}: body and leaf hash differ")
            _add(tar, f"blobs/{leaf[:2]}/{leaf[2:]}", body)
            compressed.flush(zstandard.FLUSH_BLOCK)
            chunks += 1
    end = time.perf_counter()
    return PlainResult(
        seconds=end - begin,
        tables_seconds=tables_end - begin,
        bodies_seconds=end - tables_end,
        chunks=chunks,
        bytes_out=out.stat().st_size,
        tables_bytes_out=tables_bytes,
    )
